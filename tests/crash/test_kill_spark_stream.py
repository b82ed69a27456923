"""A stream read by Spark loses and repeats nothing, however often its driver, its workers and the server are killed.

Method: a real server on which producers append continuously, single messages and transactions over three vchannels; and
a query in its own process group that copies them into another channel, exactly once. At random moments, while it
copies, the whole driver, one of its Python workers, an executor or the server is ended by SIGKILL. A server is
restarted on the same folder and port; a query that was killed, or ended for that reason, on the same checkpoint.

After each kill and at the end the copy is checked: no message is in it twice and no transaction in part. At the end
each message of the source is in it once. The offsets of the checkpoint show the messages of each micro-batch: those of
all vchannels between two ticks. In the copy the batches follow each other, each as a whole.

Promises of docs/reference/guarantees.md: G11, G47.
"""

import asyncio
import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path

import pytest

from tidelog import At, Client, TidelogError
from tidelog_testing.loads.outage import InterruptedServer
from tidelog_testing.parts.soaks import Recorder
from tidelog_testing.spark.program import SparkProgram

pytestmark = [pytest.mark.crash, pytest.mark.spark]

SOURCES = ["in.a/0", "in.a/1", "in.b/0"]
COPIES = ["copy/0", "copy/1"]
# Between the appends of a producer, so that the query keeps up although it is stopped most of the time.
PAUSE_S = 0.1
PRODUCERS = 2

Row = tuple[int, str, int | None]
"""Tick, payload and transaction of a message."""


class Producers:
    """Threads that append numbered messages until they are stopped.

    Attributes:
        acknowledged: Payloads that are certainly in the log.
        failures: Number of appends without an answer.
    """

    def __init__(self, endpoint: str) -> None:
        self.acknowledged: list[str] = []
        self.failures = 0
        self._endpoint = endpoint
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._produce, args=(number,)) for number in range(PRODUCERS)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop appending; return when the threads have ended."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _produce(self, producer: int) -> None:
        chance = random.Random(producer)
        with Client(self._endpoint) as client:
            for number in count():
                if self._stop.wait(PAUSE_S):
                    return
                lanes = chance.sample(SOURCES, k=chance.randint(2, 3)) if number % 2 else [chance.choice(SOURCES)]
                parts = {
                    lane: [f"{producer}.{number}.{lane}.{i}" for i in range(chance.randint(1, 4))] for lane in lanes
                }
                try:
                    with client.txn() as txn:
                        for lane, payloads in parts.items():
                            txn.append(lane, [payload.encode() for payload in payloads])
                except TidelogError:
                    # The server was away for longer than the client retries; the log shows whether they were appended.
                    self.failures += 1
                else:
                    self.acknowledged += [payload for payloads in parts.values() for payload in payloads]


@contextmanager
def running(folder: Path) -> Iterator[tuple[InterruptedServer, Producers]]:
    server = InterruptedServer(folder)
    try:
        with Client(server.grpc) as client:
            client.create_channel("in.a", vchannels=2)
            client.create_channel("in.b")
            client.create_channel("copy", vchannels=2)
        producers = Producers(server.grpc)
        try:
            yield server, producers
        finally:
            producers.stop()
    finally:
        server.kill()


def rows_of(client: Client, vchannels: list[str]) -> list[Row]:
    """Return the messages in tick order."""
    with client.scan(vchannels, until=At.watermark()) as scan:
        rows = [
            (tick, payload.decode(), batch.txn_id)
            for batch in scan
            for tick, payload in zip(batch.ticks, batch.payloads, strict=True)
        ]
    return sorted(rows)


def kill(victim: str, server: InterruptedServer, query: SparkProgram) -> None:
    match victim:
        case "driver":
            query.start_again()
        case "server":
            asyncio.run(server.start_again())
        case "both":
            query.kill()
            asyncio.run(server.start_again())
            query.start_again()
        case worker:
            query.wait_for(f"a process {worker}", lambda: query.kill_one_of(worker) or query.code is not None)


def storm(master: str, folder: Path, kills: list[str], seed: int) -> str:
    """Kill and judge; return a summary in one line."""
    chance = random.Random(seed)
    with running(folder / "log") as (server, producers), Client(server.grpc) as client:
        arguments = [master, server.grpc, "in.*", "copy", str(folder)]
        with SparkProgram("tidelog_testing.spark.copy", arguments, folder / "spark.txt") as query:

            def runs_or_again() -> None:
                # It may end with an error while the server is away; then restart it, as an operator would.
                if query.code is not None:
                    query.start_again()

            for victim in kills:
                wait_for_batch(client, query, runs_or_again)
                time.sleep(chance.uniform(0.0, 1.5))
                kill(victim, server, query)
                judge_part(rows_of(client, SOURCES), rows_of(client, COPIES), f"seed {seed}, after {victim}")
            wait_for_batch(client, query, runs_or_again)
            producers.stop()
            (folder / "stop").touch()
            query.wait_for("the end", lambda: query.code is not None, within_s=500.0)
            assert query.code == 0, query.text
            source, copy = rows_of(client, SOURCES), rows_of(client, COPIES)
            judge_part(source, copy, f"seed {seed}")
            assert {payload for _, payload, _ in source} >= set(producers.acknowledged), f"seed {seed}"
            assert len(source) == len(copy), f"seed {seed}"
            batches = judge_batches(source, copy, folder / "checkpoint", f"seed {seed}")
            query.wait_for("the end of what was left behind", lambda: client.list_txns() == [], within_s=300.0)
            assert producers.acknowledged
            return (
                f"seed {seed}: {len(kills)} kills, {query.starts} drivers, {len(copy)} messages in {batches} "
                f"batches, {producers.failures} appends without an answer"
            )


def wait_for_batch(client: Client, query: SparkProgram, runs_or_again: Callable[[], None]) -> None:
    """Return once something is written again, so that the next kill does not hit the start of a driver."""
    before = _written(client)

    def look() -> bool:
        runs_or_again()
        return _written(client) > before

    query.wait_for("a batch after the last kill", look)


def judge_part(source: list[Row], copy: list[Row], where: str) -> None:
    """Fail if the copy has a message twice, a message that is not in the source, or part of a transaction."""
    copied = Counter(payload for _, payload, _ in copy)
    assert [payload for payload, times in copied.items() if times > 1] == [], where
    by_transaction: dict[int, set[str]] = defaultdict(set)
    for _, payload, txn_id in source:
        if txn_id is not None:
            by_transaction[txn_id].add(payload)
    torn = [sorted(parts) for parts in by_transaction.values() if 0 < len(parts & copied.keys()) < len(parts)]
    assert torn == [], where
    assert copied.keys() <= {payload for _, payload, _ in source}, where


def judge_batches(source: list[Row], copy: list[Row], checkpoint: Path, where: str) -> int:
    """Fail if the copy is not the checkpoint's batches, one after the other; return their number."""
    files = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    offsets = [json.loads(path.read_text(encoding="utf-8").splitlines()[-1]) for path in files]
    ends = [offsets[0]["begin"]["tick"], *(offset["tick"] for offset in offsets)]
    for offset in offsets[1:]:
        positions = [tick for channel in offset["channels"].values() for tick in channel.values()]
        assert positions == [offset["tick"]] * len(SOURCES), where
    batches = 0
    place = 0
    for begin, end in pairwise(ends):
        wanted = {payload for tick, payload, _ in source if begin <= tick < end}
        assert {payload for _, payload, _ in copy[place : place + len(wanted)]} == wanted, f"{where}: [{begin}, {end})"
        place += len(wanted)
        batches += bool(wanted)
    assert place == len(copy), where
    return batches


def _written(client: Client) -> int:
    return sum(each.messages for each in client.describe_channels(["copy"])[0].vchannels)


@pytest.mark.timeout(1_200)
def test_a_copy_has_each_message_once_after_kills(tmp_path: Path, record_property: Recorder) -> None:
    seed = random.randrange(1 << 32)
    record_property("measured", storm("local[2,100]", tmp_path, ["pyspark.daemon", "both"], seed))


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_a_copy_has_each_message_once_after_twenty_kills(tmp_path: Path, record_property: Recorder) -> None:
    seed = random.randrange(1 << 32)
    victims = ["driver", "server", "both", "CoarseGrainedExecutorBackend", "pyspark.daemon", "python_streaming"]
    kills = random.Random(seed).choices(victims, [5, 4, 3, 3, 3, 2], k=20)
    record_property("measured", storm("local-cluster[2,1,1024]", tmp_path, kills, seed))
