"""Denied requests do not fill the disk past the free-disk limit; the server runs and can start again meanwhile.

Method: the data folder is on a small tmpfs, which needs root; appends fill it up to the limit, then a token without
permissions floods a real server with batches for channels that it may not append to.

Promises of docs/reference/guarantees.md: G14.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

import tidelog
from tidelog import AsyncClient
from tidelog_server.core.limits import MIB
from tidelog_server.storage.format.data_folder import wal_files
from tidelog_server.storage.recovery.open import OPEN_SPARE_BYTES
from tidelog_testing.faults.small_disk import mounted
from tidelog_testing.parts.grpc_calls import a_request
from tidelog_testing.parts.waiting import eventually
from tidelog_testing.servers.processes import ServerProcess

pytestmark = pytest.mark.crash

LIMIT_BYTES = 40 * MIB
# Audited calls may use a quarter of the limit; the rest is for RocksDB's own writes.
KEPT_BYTES = LIMIT_BYTES // 2
STORM_S = 15.0
STREAMS = 3
SETTINGS = {
    "auth.kind": "on", "limits.min_free_disk_bytes": str(LIMIT_BYTES), "quota.requests_per_s": 100_000,
    "quota.request_burst": 100_000,
}  # fmt: skip


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    # A start after SIGKILL needs the size of the WAL once more. RocksDB's limit of the WAL is 128 MiB.
    with mounted(tmp_path / "disk", megabytes=320) as folder:
        yield folder


def free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def has_room_to_start(disk: Path) -> bool:
    """Whether a start has the space that it requires, now that trims free some."""
    try:
        wal_bytes = sum(path.stat().st_size for path in wal_files(disk / "log" / "db"))
    except FileNotFoundError:
        # RocksDB has just deleted one.
        return False
    return free_bytes(disk) >= wal_bytes + OPEN_SPARE_BYTES


async def fill(client: AsyncClient, disk: Path) -> None:
    """Append until the disk is too full for it."""
    await client.create_channel("full")
    with pytest.raises(tidelog.DiskFullError):
        while True:
            if free_bytes(disk) < LIMIT_BYTES:
                # The server checks the disk every second. More load before that would take what the test measures.
                await client.append("full", b"")
                await asyncio.sleep(0.05)
            else:
                await asyncio.gather(*(client.append("full", os.urandom(200_000)) for _ in range(8)))


async def flood(endpoint: str, token: str, counts: Counter[str]) -> None:
    async with grpc.aio.insecure_channel(endpoint) as channel:
        appending: Any = channel.stream_stream("/tidelog.v1.WalService/AppendStream")
        stream = appending(metadata=(("authorization", f"Bearer {token}"),))

        async def send() -> None:
            number = 0
            while True:
                number += 1
                request = a_request(f"c{number % 100_000}", b"x", request_id=number)
                await stream.write(request.SerializeToString())

        sending = asyncio.create_task(send())
        try:
            while await stream.read() is not grpc.aio.EOF:
                counts["denied"] += 1
        finally:
            sending.cancel()


async def test_denials_do_not_fill_the_disk(disk: Path) -> None:
    counts, least_bytes = Counter[str](), 1 << 60
    with ServerProcess(disk / "log", SETTINGS) as server:
        first = (disk / "log" / "bootstrap-token").read_text().strip()
        async with AsyncClient(server.grpc, token=first) as client:
            admin = await client.create_token("an administrator", ["admin.write", "admin.read", "channel.create:*"])
        async with AsyncClient(server.grpc, token=admin.token, timeout_s=5.0) as client:
            good = await client.create_token("a writer", ["append:full", "channel.create:full", "channel.truncate:*"])
            bad = await client.create_token("an attacker", ["append:zzz"])
            async with AsyncClient(server.grpc, token=good.token, timeout_s=2.0) as writer:
                await fill(writer, disk)
                floods = [asyncio.create_task(flood(server.grpc, bad.token, counts)) for _ in range(STREAMS)]
                ends_s = time.monotonic() + STORM_S
                while time.monotonic() < ends_s:
                    least_bytes = min(least_bytes, free_bytes(disk))
                    await asyncio.sleep(0.1)
                # Administration works, is audited, and frees space.
                await client.create_token("made beside the storm", ["read:full"])
                await writer.trim("full", everything=True)
                await eventually(lambda: appends(writer), lambda found: found and has_room_to_start(disk))
                for task in floods:
                    task.cancel()
                await asyncio.gather(*floods, return_exceptions=True)
            methods = [event async for batch in client.scan("_audit") for event in batch.payloads]
    assert counts["denied"] >= 1_000
    assert least_bytes >= KEPT_BYTES, f"{least_bytes >> 20} MiB were left of {LIMIT_BYTES >> 20}"
    assert sum(b'"event":"denied"' in event for event in methods) <= 100
    assert sum(b"CreateToken" in event for event in methods) == 4
    with ServerProcess(disk / "log", SETTINGS) as server:
        async with AsyncClient(server.grpc, token=good.token) as client:
            assert (await client.append("full", b"again")).last_tick > 0


async def appends(client: AsyncClient) -> bool:
    try:
        await client.append("full", b"x")
    except tidelog.DiskFullError:
        return False
    return True
