"""A stream written by Spark is in the log exactly once, however often its driver and its executors are killed.

Method: a real server, and a query in its own process group that writes files of numbered lines, one file per batch, as
they arrive. At random moments, while it writes, a Python worker, an executor or the whole driver is ended by SIGKILL; a
driver is started again on the same checkpoint, also if its query ended because its own worker was killed. In the end
each line is in the log once, and no prepared transactions are left.

Promises of docs/reference/guarantees.md: G47.
"""

import random
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Self

import pytest

from tidelog import AppCommitMismatchError, At, Client
from tidelog_testing.servers.processes import ServerProcess
from tidelog_testing.spark.program import SparkProgram
from tidelog_testing.spark.sink import APP

pytestmark = [pytest.mark.crash, pytest.mark.spark]

CHANNEL = "lines"
VCHANNELS = [f"{CHANNEL}/0", f"{CHANNEL}/1"]
LINES = 200
AHEAD = 5
"""Files that wait to be written."""


def lines_in(client: Client) -> Counter[bytes]:
    with client.scan(VCHANNELS, until=At.watermark()) as scan:
        return Counter(payload for batch in scan for payload in batch.payloads)


def wait_for_a_batch(client: Client, query: SparkProgram, last_victim: str) -> None:
    """Return once the query writes again, so that the next kill does not hit the start of its driver."""
    before = _written(client)

    def look() -> bool:
        start_again_if_it_may_have_failed(query, last_victim)
        return _written(client) > before

    query.wait_for("a batch after the last kill", look)


def start_again_if_it_may_have_failed(query: SparkProgram, last_victim: str) -> None:
    """Restart a query that ended because of a kill; fail if it ended for another reason.

    Spark retries a task whose Python worker died, but not the work of the driver's own workers, one of which commits:
    then the query ends, and its operator restarts it.
    """
    if query.code not in {None, 0}:
        assert last_victim == "pyspark.daemon", f"it ended after {last_victim or 'nothing'} was killed: {query.text}"
        query.start_again()


class Source:
    """The folder that the query reads, and a thread that keeps some unwritten files in it.

    Attributes:
        files: Number of files made.
    """

    def __init__(self, folder: Path, client: Client) -> None:
        self.files = 0
        self._folder = folder
        self._client = client
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._make)
        folder.mkdir()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, _: object, __: object, ___: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop making files; return when the thread has ended. Idempotent."""
        self._stop.set()
        self._thread.join()

    def lines(self) -> Counter[bytes]:
        """Return the expected content of the log at the end."""
        return Counter(f"{number}-{line}".encode() for number in range(self.files) for line in range(LINES))

    def _make(self) -> None:
        while not self._stop.wait(0.05):
            if self.files < _written(self._client) // LINES + AHEAD:
                text = "\n".join(f"{self.files}-{line}" for line in range(LINES))
                # Spark ignores names that begin with a dot, so it sees complete files only.
                hidden = self._folder / f".{self.files:05}.txt"
                hidden.write_text(text, encoding="utf-8")
                hidden.rename(self._folder / f"{self.files:05}.txt")
                self.files += 1


def storm(master: str, folder: Path, kills: list[str], seed: int) -> None:
    chance = random.Random(seed)
    with ServerProcess(folder / "log") as server, Client(server.grpc) as client:
        client.create_channel(CHANNEL, vchannels=2)
        arguments = [master, server.grpc, CHANNEL, str(folder)]
        with (
            Source(folder / "lines", client) as source,
            SparkProgram("tidelog_testing.spark.sink", arguments, folder / "spark.txt") as query,
        ):
            last_victim = ""
            for victim in kills:
                wait_for_a_batch(client, query, last_victim)
                last_victim = victim
                time.sleep(chance.uniform(0.0, 1.5))
                if victim == "driver":
                    query.start_again()
                else:
                    query.wait_for(f"a process {victim}", partial(query.kill_one_of, victim))
            source.stop()
            (folder / "stop").touch()

            def has_ended() -> bool:
                start_again_if_it_may_have_failed(query, last_victim)
                return query.code == 0

            query.wait_for("the end", has_ended, within_s=600.0)
            expected, found = source.lines(), lines_in(client)
            assert (found - expected, expected - found) == (Counter(), Counter()), f"seed {seed}"
            # Open transactions of killed tasks end by their keepalive, prepared ones by the next commit.
            query.wait_for("the end of what was left behind", lambda: client.list_txns() == [], within_s=300.0)
        # The versions belong to the query.
        with pytest.raises(AppCommitMismatchError):
            client.commit_prepared([], APP, 0)


def _written(client: Client) -> int:
    return sum(each.messages for each in client.describe_channels([CHANNEL])[0].vchannels)


@pytest.mark.timeout(1_200)
def test_each_row_is_there_once_after_a_kill_of_the_driver(tmp_path: Path) -> None:
    storm("local[2]", tmp_path, ["driver"], random.randrange(1 << 32))


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_each_row_is_there_once_after_twenty_kills_of_driver_and_executors(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    kills = random.Random(seed).choices(["driver", "CoarseGrainedExecutorBackend", "pyspark.daemon"], [2, 2, 1], k=20)
    storm("local-cluster[2,1,1024]", tmp_path, kills, seed)
