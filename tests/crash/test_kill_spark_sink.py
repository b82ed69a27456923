"""A stream that Spark writes is in the log exactly once, however often its driver and its executors are killed.

Method: a real server, and a query in a process group of its own that writes files of numbered lines, a file a batch.
At random moments, while it writes, a Python worker, an executor or the whole driver is ended by SIGKILL; a driver is
started again on the same checkpoint. In the end each line is in the log once, and nothing waits to be committed.

Promises of GUARANTEES.md: G47.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from tidelog import AppVersionPassedError, At, Client
from tidelog_testing.processes import ROOT, ServerProcess
from tidelog_testing.spark_sink import APP

pytestmark = [pytest.mark.crash, pytest.mark.spark]

CHANNEL = "lines"
VCHANNELS = [f"{CHANNEL}/0", f"{CHANNEL}/1"]
LINES = 200


class Query:
    """The query, started again whenever its driver was killed."""

    def __init__(self, master: str, server: ServerProcess, folder: Path) -> None:
        self._command = [
            sys.executable, "-m", "tidelog_testing.spark_sink", master, server.grpc, CHANNEL, str(folder)
        ]  # fmt: skip
        self._log_path = folder / "spark.txt"
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(str(ROOT / part) for part in ("client", "server", "tests"))
        environment = {
            **os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"
        }  # fmt: skip
        with self._log_path.open("ab") as log:
            return subprocess.Popen(
                self._command, stdout=log, stderr=log, env=environment, start_new_session=True, cwd=ROOT
            )

    @property
    def text(self) -> str:
        return self._log_path.read_text(errors="replace")[-5_000:]

    def kill_driver(self) -> None:
        """Kill everything of the query at once, and start it again."""
        self.end()
        self.process = self._start()

    def kill_one_of(self, name: str) -> bool:
        """Kill a process of the query whose command has ``name``; tell whether there was one."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        found = [each for each in children if name in " ".join(_command_of(each))]
        if found:
            random.choice(found).send_signal(signal.SIGKILL)
        return bool(found)

    def end(self) -> None:
        """Kill what is left of it. Executors are in sessions of their own."""
        children = []
        if self.process.poll() is None:
            children = psutil.Process(self.process.pid).children(recursive=True)
            os.killpg(self.process.pid, signal.SIGKILL)
        for child in children:
            try:
                child.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        self.process.wait()


def _command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


@contextmanager
def running_query(master: str, server: ServerProcess, folder: Path) -> Iterator[Query]:
    query = Query(master, server, folder)
    try:
        yield query
    finally:
        query.end()


def wait_for(what: str, is_so: Callable[[], bool], query: Query, within_s: float = 240.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline_s, f"{what}: not within {within_s} s\n{query.text}"
        time.sleep(0.02)


def wait_for_a_batch(client: Client, query: Query) -> None:
    """Return once the query writes again, so that it is not the start of its driver that is killed, or has ended."""
    before = _written(client)
    wait_for("a batch after the last kill", lambda: _written(client) > before or _ended(query), query)


def lines_in(client: Client) -> Counter[bytes]:
    with client.scan(VCHANNELS, until=At.watermark()) as scan:
        return Counter(payload for batch in scan for payload in batch.payloads)


def storm(master: str, folder: Path, files: int, kills: list[str], seed: int) -> None:
    chance = random.Random(seed)
    (folder / "lines").mkdir()
    for number in range(files):
        text = "\n".join(f"{number}-{line}" for line in range(LINES))
        (folder / "lines" / f"{number:05}.txt").write_text(text, encoding="utf-8")
    with ServerProcess(folder / "log") as server, Client(server.grpc) as client:
        client.create_channel(CHANNEL, vchannels=2)
        with running_query(master, server, folder) as query:
            for victim in kills:
                wait_for_a_batch(client, query)
                if _ended(query):
                    pytest.fail(f"all was written before the kills were over: seed {seed}")
                time.sleep(chance.uniform(0.0, 1.5))
                if victim == "driver":
                    query.kill_driver()
                else:
                    wait_for(f"a process {victim}", partial(query.kill_one_of, victim), query)
            wait_for("the end", lambda: _ended(query), query, within_s=600.0)
            assert query.process.returncode == 0, query.text
        expected = Counter(f"{number}-{line}".encode() for number in range(files) for line in range(LINES))
        found = lines_in(client)
        assert (found - expected, expected - found) == (Counter(), Counter()), f"seed {seed}"
        # What killed tasks had open ends by its keepalive, what they had prepared by the next commit.
        wait_for("the end of what was left behind", lambda: client.list_txns() == [], query, within_s=60.0)
        with pytest.raises(AppVersionPassedError):
            client.commit_prepared([], APP, 0)


def _written(client: Client) -> int:
    return sum(each.messages for each in client.describe_channels([CHANNEL])[0].vchannels)


def _ended(query: Query) -> bool:
    return query.process.poll() is not None


@pytest.mark.timeout(300)
def test_each_row_is_there_once_after_kills(tmp_path: Path) -> None:
    storm("local[2,100]", tmp_path, files=8, kills=["pyspark.daemon", "driver"], seed=random.randrange(1 << 32))


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_each_row_is_there_once_after_twenty_kills_of_driver_and_executors(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    kills = random.Random(seed).choices(["driver", "CoarseGrainedExecutorBackend", "pyspark.daemon"], [2, 2, 1], k=20)
    storm("local-cluster[2,1,1024]", tmp_path, files=150, kills=kills, seed=seed)
