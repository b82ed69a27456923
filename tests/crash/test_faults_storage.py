"""When the disk fails, the server stops instead of guessing, and nothing acknowledged is lost.

Method: strace lets one system call of a real server under load fail, at a chosen count or on a chosen file. The call
after it would succeed again, as after a real failed fsync: a server that merely tried again would acknowledge what
the kernel has dropped.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidelog.v1 import error_pb2
from tidelog_server.cli.exit_codes import ExitCode
from tidelog_testing.history import History, Outcome, check, shown
from tidelog_testing.processes import ServerProcess
from tidelog_testing.system_faults import failing_calls, injected, injection
from tidelog_testing.workload import Load, create_channel, read_all, until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

SYNCS = "fdatasync,fsync,sync_file_range"
WRITES = "write,pwrite64,writev"
NOT_READY_WITHIN_S = 2.0


@dataclass(slots=True)
class Disk:
    """A data folder whose disk fails again and again, and what clients know about it."""

    folder: Path
    history: History
    vchannels: list[str]
    slowest_s: float = 0.0

    async def fail(self, options: Callable[[Path], Sequence[str]]) -> None:
        """Run a server under load until the calls that ``options`` name have made it stop."""
        report = self.folder.with_name("strace.txt")
        load = Load(self.history, self.vchannels, random.Random(0))
        with ServerProcess(self.folder) as server:
            await self.judge(server)
            before = len(self.history.appends)
            with failing_calls(server, options(self.folder), report):
                running = asyncio.ensure_future(load.run(server.grpc))
                await self._expect_stop(load, server)
                await running
                assert await asyncio.to_thread(server.wait) == ExitCode.STORAGE_FAILED, server.errors
            assert "storage failed" in server.errors
        assert injected(report) > 0
        assert set(load.refusals) <= {error_pb2.REASON_STORAGE_FAILED, error_pb2.REASON_ON_SHUTDOWN}, load.refusals
        assert any(append.outcome is Outcome.UNKNOWN for append in self.history.appends[before:])

    async def judge(self, server: ServerProcess) -> None:
        """Read everything after a restart: nothing acknowledged is lost, and no ack came after a failure."""
        log = await read_all(server.grpc, self.vchannels)
        anomalies = check(self.history, log)
        assert not anomalies, shown(anomalies)

    async def _expect_stop(self, load: Load, server: ServerProcess) -> None:
        await until(lambda: bool(load.refusals) or server.code is not None, 30, "an append that is not acknowledged")
        begin_s = time.monotonic()
        await asyncio.to_thread(_wait_not_ready, server)
        self.slowest_s = max(self.slowest_s, time.monotonic() - begin_s)
        assert self.slowest_s < NOT_READY_WITHIN_S


def _wait_not_ready(server: ServerProcess) -> None:
    while True:
        try:
            status, _ = server.get("/readyz")
        except OSError:
            return
        if status == 503:
            return


async def a_disk(folder: Path) -> Disk:
    with ServerProcess(folder) as server:
        return Disk(folder, History(), await create_channel(server.grpc, "disk", 3))


def live_wal(folder: Path) -> list[str]:
    """Return strace's options that look at RocksDB's write-ahead log alone."""
    return [option for path in folder.glob("db/*.log") for option in ("-P", str(path))]


async def test_after_a_failed_sync_nothing_is_acknowledged_and_nothing_is_lost(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    disk = await a_disk(tmp_path / "log")
    counts = (1, 2, 3, 7, 40)
    for count in counts:
        await disk.fail(lambda _, count=count: injection(SYNCS, "EIO", f"{count}"))  # type: ignore[misc]
    with ServerProcess(disk.folder) as server:
        await disk.judge(server)
    record_property("measured", f"{len(counts)} failed syncs; not ready {disk.slowest_s:.2f} s after, at most")
