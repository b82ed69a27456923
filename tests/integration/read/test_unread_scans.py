"""Scans that no client reads take bounded memory, and leave other principals what they need.

Method: real servers; scans by gRPC itself whose responses are never asked for, of more than all windows hold.
"""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import psutil
import pytest

from tidelog import AsyncClient
from tidelog.v1 import error_pb2
from tidelog.v1 import wal_service_pb2 as wal
from tidelog_testing.parts.grpc_calls import WAL, connected, refusal_of, running_server
from tidelog_testing.parts.waiting import eventually
from tidelog_testing.servers.processes import ServerProcess
from tidelog_testing.servers.secured import secured_server, until

MIB = 1 << 20
# A window that the client does not make larger, so that what it receives unasked is small.
OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]


async def write(client: AsyncClient, mebibytes: int) -> int:
    await client.ensure_channel("large")
    async with client.vchannel("large").producer() as producer:
        for _ in range(mebibytes):
            await producer.send_many([bytes(1_000)] * 1_000)
    return 1_000 * mebibytes


def unread(channel: grpc.aio.Channel, scan_format: Any, **options: Any) -> Any:
    scan: Any = channel.unary_stream(f"{WAL}/Scan")
    request = wal.ScanRequest(
        sources=[wal.ScanSource(vchannel="large/0")], format=scan_format, max_response_bytes=4 * MIB
    )
    return scan(request.SerializeToString(), **options)


@pytest.mark.parametrize("scan_format", [wal.SCAN_FORMAT_COLUMNS, wal.SCAN_FORMAT_ROWS], ids=["columns", "rows"])
async def test_unread_scans_take_bounded_memory(tmp_path: Path, scan_format: Any) -> None:
    settings = {"limits.max_unread_bytes": "48MiB"}
    with ServerProcess(tmp_path / "log", settings) as server:
        async with AsyncClient(server.grpc) as client:
            await write(client, 40)
            process = psutil.Process(server.pid)
            before = process.memory_info().rss
            channels = [grpc.aio.insecure_channel(server.grpc, options=OPTIONS) for _ in range(2)]
            scans = [unread(channels[number % 2], scan_format) for number in range(120)]
            await eventually(lambda: asyncio.to_thread(server.metric, "tidelog_scanners"), lambda found: found >= 120)
            # Until nothing is sent any more.
            sent = -1.0
            while sent != (now := await asyncio.to_thread(server.metric, "tidelog_scan_bytes_total")):
                sent = now
                await asyncio.sleep(0.5)
            grown = process.memory_info().rss - before
            assert grown < 100 * MIB, grown
            assert await asyncio.to_thread(server.metric, "tidelog_unread_bytes") < 32 * MIB
            for scan in scans:
                scan.cancel()
            for channel in channels:
                await channel.close()
            await eventually(lambda: asyncio.to_thread(server.metric, "tidelog_unread_bytes"), lambda found: not found)


async def test_another_principal_reads_while_scans_are_left_unread(tmp_path: Path) -> None:
    async with secured_server(tmp_path, limits__max_unread_bytes="48MiB") as secured:
        good, hostile = await secured.token("read:*", "append:*", "channel.create:*"), await secured.token("read:*")
        async with secured.client(good) as client:
            count = await write(client, 20)
            async with secured.channel() as channel:
                metadata = (("authorization", f"Bearer {hostile}"),)
                scans = [unread(channel, wal.SCAN_FORMAT_COLUMNS, metadata=metadata) for _ in range(50)]
                budget = secured.server._log.read_budget
                await until(lambda: budget.waiting > 0)
                async with asyncio.timeout(60), client.scan("large") as scan:
                    assert sum([len(batch) async for batch in scan]) == count
                assert budget.waiting > 0
                for each in scans:
                    each.cancel()


async def test_a_caller_has_a_limited_number_of_streams() -> None:
    async with running_server(limits__max_open_streams_per_principal=3) as server, connected(server) as client:
        await client.create("a")
        async with AsyncClient(server.grpc_endpoint) as other:
            async with grpc.aio.insecure_channel(server.grpc_endpoint) as channel:
                scan: Any = channel.unary_stream(f"{WAL}/Scan")
                request = wal.ScanRequest(
                    sources=[wal.ScanSource(vchannel="a/0")], end=wal.ScanEnd(follow=wal.ScanEndFollow())
                ).SerializeToString()
                calls = [scan(request) for _ in range(3)]
                for call in calls:
                    await call.read()
                refusal = await refusal_of(scan(request).read())
                assert refusal.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
                assert (refusal.reason, refusal.values["limit"]) == (
                    error_pb2.REASON_RATE_LIMIT_REJECTED, "open_streams"
                )  # fmt: skip
                assert "limits.max_open_streams_per_principal" in refusal.text
                # One that ends makes room for another.
                calls[0].cancel()
                await until(lambda: server._log.metrics.open_streams._value.get() == 2)
                assert await scan(request).read()
            await until(lambda: server._log.metrics.open_streams._value.get() == 0)
            assert await other.wal_name()
