"""A full disk only causes appends to be refused; if it fills up without warning, the server stops and loses nothing.

Method: the data folder is on a small tmpfs, which needs root; a real server fills it. Growing it is a remount.

Promises of docs/reference/guarantees.md: G14.
"""

import asyncio
import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tidelog import AsyncClient
from tidelog.v1 import error_pb2
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.faults.small_disk import mounted
from tidelog_testing.loads.workload import Load, create_channel, read_all, trim, until
from tidelog_testing.oracles.history import History, Outcome, check, shown
from tidelog_testing.parts.soaks import Recorder
from tidelog_testing.servers.processes import ServerProcess

pytestmark = pytest.mark.crash

PADDING = b" " + bytes(4_000)
FULL_WITHIN_S = 60.0
NOT_READY = (503, "not ready: the disk is nearly full\n")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", megabytes=96) as folder:
        # The server's log, which the tests read, is on another disk.
        (folder / "log.stderr").symlink_to(tmp_path / "log.stderr")
        yield folder


def grow(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=1g", folder], check=True)


def fill(file: Path, *, leaving_bytes: int) -> None:
    """Fill the disk of a new file, except for a number of bytes."""
    with file.open("wb") as filling:
        with suppress(OSError):
            while True:
                os.write(filling.fileno(), bytes(1 << 12))
        filling.truncate(filling.tell() - leaving_bytes)


def a_load(history: History, vchannels: list[str]) -> Load:
    return Load(history, vchannels, random.Random(0), streams=2, unaries=1, padding=PADDING)


async def judge(server: ServerProcess, history: History, vchannels: list[str]) -> None:
    anomalies = check(history, await read_all(server.grpc, vchannels))
    assert not anomalies, shown(anomalies)


def is_full(load: Load) -> bool:
    return load.refusals[error_pb2.REASON_DISK_FULL] > 0


async def resumes(load: Load) -> None:
    """Wait until an append is acknowledged again."""
    load.acknowledged.clear()
    async with asyncio.timeout(FULL_WITHIN_S):
        await load.acknowledged.wait()


async def test_a_nearly_full_disk_refuses_appends_until_there_is_room(disk: Path, record_property: Recorder) -> None:
    history = History()
    with ServerProcess(disk / "log", {"limits.min_free_disk_bytes": "48MiB"}) as server:
        vchannels = await create_channel(server.grpc, "full", 2)
        load = a_load(history, vchannels)
        running = asyncio.ensure_future(load.run(server.grpc))
        await until(lambda: is_full(load), FULL_WITHIN_S, "the disk is full")
        await until(lambda: server.get("/readyz") == NOT_READY, FULL_WITHIN_S, "the server is not ready")
        load.stopping.set()
        await running
        # Reads work, and no refused append is there.
        await judge(server, history, vchannels)
        assert set(load.refusals) == {error_pb2.REASON_DISK_FULL}
        assert history.count(Outcome.UNKNOWN) == 0

        # Trims work, and appends resume automatically.
        load = a_load(history, vchannels)
        running = asyncio.ensure_future(load.run(server.grpc))
        await until(lambda: is_full(load), FULL_WITHIN_S, "the disk is full")
        for vchannel in vchannels:
            last = max(each.first_tick for each in history.appends if each.vchannel == vchannel)
            await trim(server.grpc, history, vchannel, last)
        await resumes(load)

        await until(lambda: is_full(load), FULL_WITHIN_S, "the disk is full again")
        grow(disk)
        await resumes(load)
        load.stopping.set()
        await running
        await judge(server, history, vchannels)
    record_property("measured", f"{history.count(Outcome.OK)} acknowledged, {history.count(Outcome.FAIL)} refused")


async def test_a_disk_that_is_full_without_warning_stops_the_server_and_loses_nothing(
    disk: Path, record_property: Recorder
) -> None:
    history = History()
    with ServerProcess(disk / "log") as server:
        vchannels = await create_channel(server.grpc, "full", 2)
        load = a_load(history, vchannels)
        await load.run(server.grpc)
        assert await asyncio.to_thread(server.wait) == ExitCode.STORAGE_FAILED, server.errors
        assert "No space left" in server.errors
    assert set(load.refusals) <= {error_pb2.REASON_STORAGE_FAILED, error_pb2.REASON_ON_SHUTDOWN}
    grow(disk)
    with ServerProcess(disk / "log") as server:
        await judge(server, history, vchannels)
    assert history.count(Outcome.UNKNOWN) > 0
    record_property("measured", f"{history.count(Outcome.OK)} acknowledged, {history.count(Outcome.UNKNOWN)} unknown")


async def test_a_stop_on_a_full_disk_reports_it_and_loses_nothing(disk: Path) -> None:
    with ServerProcess(disk / "log") as server:
        vchannels = await create_channel(server.grpc, "full", 300)
        fill(disk / "filling", leaving_bytes=60 << 10)
        # Less than the messages and the tails of all vchannels, which a stop writes, take together.
        async with AsyncClient(server.grpc) as client:
            await asyncio.gather(*(client.append(each, each.encode()) for each in vchannels))
        server.terminate()
        assert await asyncio.to_thread(server.wait) == ExitCode.STORAGE_FAILED, server.errors
        assert "storage failed: writing to RocksDB: " in server.errors
        assert "Traceback" not in server.errors
    grow(disk)
    with ServerProcess(disk / "log") as server:
        async with AsyncClient(server.grpc) as client:
            for each in vchannels:
                assert [payload async for batch in client.scan(each) for payload in batch.payloads] == [each.encode()]
