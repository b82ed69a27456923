"""When the disk fails, the server stops instead of guessing, and nothing acknowledged is lost.

Method: strace makes one system call of a real server under load fail, at a chosen count or on a chosen file. The next
call would succeed, as after a real failed fsync: a server that merely retried would acknowledge data that the kernel
has dropped.

Promises of docs/reference/guarantees.md: G1, G7, G14.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import pytest

from tidelog.v1 import error_pb2
from tidelog_cli.exit_codes import ExitCode
from tidelog_server.core.ticks import MAX_TICK
from tidelog_testing.faults.system_faults import failing_calls, injected, injection, require_strace
from tidelog_testing.loads.workload import Load, create_channel, read_all, until
from tidelog_testing.oracles.history import History, Outcome, check, shown
from tidelog_testing.parts.soaks import Recorder
from tidelog_testing.servers.processes import ServerDiedError, ServerProcess

pytestmark = pytest.mark.crash

SYNCS = "fdatasync,fsync,sync_file_range"
WRITES = "write,pwrite64,writev"
# The promise is one second; the test may share its cores with others.
NOT_READY_WITHIN_S = 5.0


@dataclass(slots=True)
class Disk:
    """A data folder whose disk fails repeatedly, and what clients know about it.

    Attributes:
        begin: Index of the first append of the last server that failed.
        slowest_s: The longest time from the first unacknowledged append to "not ready".
    """

    folder: Path
    history: History
    vchannels: list[str]
    begin: int = 0
    slowest_s: float = 0.0
    failures: int = 0

    async def fail(self, options: Sequence[str]) -> None:
        """Run a server under load until the failing calls named by ``options`` have stopped it."""
        report = self.folder.with_name("strace.txt")
        load = Load(self.history, self.vchannels, random.Random(self.failures))
        with ServerProcess(self.folder) as server:
            await self.judge(server)
            self.begin = len(self.history.appends)
            with failing_calls(server, [*options, *self._of_this_server(options)], report):
                running = asyncio.ensure_future(load.run(server.grpc))
                await self._expect_not_ready(load, server)
                await running
                assert await asyncio.to_thread(server.wait) == ExitCode.STORAGE_FAILED, server.errors
            assert "storage failed" in server.errors
        assert injected(report) > 0
        assert set(load.refusals) <= {error_pb2.REASON_STORAGE_FAILED, error_pb2.REASON_ON_SHUTDOWN}, load.refusals
        assert any(append.outcome is Outcome.UNKNOWN for append in self.history.appends[self.begin :])
        self.failures += 1

    async def judge(self, server: ServerProcess) -> None:
        """Read everything after a restart: nothing acknowledged is lost, and no ack came after the failure."""
        log = await read_all(server.grpc, self.vchannels)
        anomalies = check(self.history, log)
        assert not anomalies, shown(anomalies)
        ticks = {value: tick for rows in log.values() for tick, value in rows}
        recent = self.history.appends[self.begin :]
        acknowledged = [append.first_tick for append in recent if append.outcome is Outcome.OK]
        unknown = [ticks.get(append.values()[0]) for append in recent if append.outcome is Outcome.UNKNOWN]
        # All appends of a node are written and acknowledged in tick order.
        assert max(acknowledged, default=0) < min((tick for tick in unknown if tick), default=MAX_TICK)

    async def survives(self) -> str:
        """Judge the state after the last failure, and return a summary."""
        with ServerProcess(self.folder) as server:
            await self.judge(server)
        acks = self.history.count(Outcome.OK)
        assert acks > 0, "void: nothing was ever acknowledged"
        unknown = self.history.count(Outcome.UNKNOWN)
        return f"{self.failures} failures, {acks} acknowledged, {unknown} unknown, not ready in {self.slowest_s:.2f} s"

    async def _expect_not_ready(self, load: Load, server: ServerProcess) -> None:
        await until(lambda: bool(load.refusals) or server.code is not None, 30, "an append that is not acknowledged")
        begin_s = time.monotonic()
        await asyncio.to_thread(_wait_not_ready, server)
        self.slowest_s = max(self.slowest_s, time.monotonic() - begin_s)
        assert self.slowest_s < NOT_READY_WITHIN_S

    def _of_this_server(self, options: Sequence[str]) -> list[str]:
        """Return the options that limit writes to the write-ahead log, which has a new name after each start."""
        if any(WRITES in option for option in options):
            return [option for path in self.folder.glob("db/*.log") for option in ("-P", str(path))]
        return []


def _wait_not_ready(server: ServerProcess) -> None:
    while True:
        try:
            status, _ = server.get("/readyz")
        except OSError:
            return
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            return


async def a_disk(folder: Path) -> Disk:
    with ServerProcess(folder) as server:
        return Disk(folder, History(), await create_channel(server.grpc, "disk", 3))


async def test_after_a_failed_sync_nothing_is_acknowledged_and_nothing_is_lost(
    tmp_path: Path, record_property: Recorder
) -> None:
    disk = await a_disk(tmp_path / "log")
    for count in (1, 2, 7, 40):
        await disk.fail(injection(SYNCS, "EIO", f"{count}"))
    record_property("measured", await disk.survives())


async def test_after_a_failed_write_of_the_log_nothing_is_acknowledged_and_nothing_is_lost(
    tmp_path: Path, record_property: Recorder
) -> None:
    disk = await a_disk(tmp_path / "log")
    for error, count in (("EIO", 1), ("ENOSPC", 5), ("EDQUOT", 40)):
        await disk.fail(injection(WRITES, error, f"{count}"))
    record_property("measured", await disk.survives())


@pytest.mark.extended
async def test_a_head_that_cannot_be_written_stops_the_server_too(tmp_path: Path, record_property: Recorder) -> None:
    disk = await a_disk(tmp_path / "log")
    head = ["-P", str(disk.folder / "HEAD")]
    for calls, error, count in ((SYNCS, "EIO", 2), ("pwrite64", "ENOSPC", 1)):
        await disk.fail([*injection(calls, error, f"{count}"), *head])
    record_property("measured", await disk.survives())


@pytest.mark.soak
@pytest.mark.timeout(3_600)
async def test_any_of_the_first_failed_syncs_and_writes_loses_nothing(
    tmp_path: Path, record_property: Recorder
) -> None:
    disk = await a_disk(tmp_path / "log")
    for count in range(1, 61):
        await disk.fail(injection(SYNCS, "EIO", f"{count}"))
        await disk.fail(injection(WRITES, "EIO", f"{count}"))
    record_property("measured", await disk.survives())


@pytest.mark.extended
async def test_a_start_during_which_the_disk_fails_loses_nothing(tmp_path: Path, record_property: Recorder) -> None:
    disk = await a_disk(tmp_path / "log")
    load = Load(disk.history, disk.vchannels, random.Random(0), unaries=0)
    with ServerProcess(disk.folder) as server:
        running = asyncio.ensure_future(load.run(server.grpc))
        await load.acknowledged.wait()
        server.kill()
        await running
    # A kill may lose an ack in flight, but not a later one on another stream: only a server that stops by itself
    # answers in order.
    disk.begin = len(disk.history.appends)
    ends: Counter[int] = Counter()
    report = tmp_path / "strace.txt"
    strace = [require_strace(), "-f", "--seccomp-bpf", "-o", str(report)]
    for count in (1, 2, 4):
        with pytest.raises(ServerDiedError) as died:
            ServerProcess(disk.folder, wrapper=[*strace, *injection(SYNCS, "EIO", f"{count}")])
        ends[died.value.code] += 1
        assert injected(report) > 0
        assert "Traceback" not in died.value.errors, died.value.errors
    assert set(ends) <= {ExitCode.DATA_LOSS, ExitCode.DATA_DIR_UNUSABLE, ExitCode.STORAGE_FAILED}, ends
    record_property("measured", f"{await disk.survives()}; starts ended with {dict(ends)}")
