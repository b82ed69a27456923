"""Scans that are opened and never read: of much data, and following the channel of the good client."""

import asyncio
import math
import time
from collections.abc import Mapping
from typing import Any, Final

import grpc.aio

from benchmarks.attacks.attack import Assault, Attack
from benchmarks.siege.client import CHANNEL
from benchmarks.siege.server import BenchServer
from tidelog.v1 import wal_service_pb2 as wal

_LARGE: Final = "bench-large"
_LARGE_BYTES: Final = 54 << 20
_MESSAGE_BYTES: Final = 1_000
_SCANS: Final = 300
_FOLLOWERS: Final = 5_000
# As many as a connection may have.
_PER_CONNECTION: Final = 100
_ROWS_RESPONSE_BYTES: Final = 4 << 20
_OPEN_WITHIN_S: Final = 20.0
_SETTLED_CPU_S: Final = 0.05


async def write_much(server: BenchServer) -> Mapping[str, Any]:
    """Write what the scans do not read."""
    async with server.client() as client:
        await client.ensure_channel(_LARGE)
        async with client.vchannel(_LARGE).producer() as producer:
            payload = bytes(_MESSAGE_BYTES)
            for _ in range(_LARGE_BYTES // _MESSAGE_BYTES // 1_000):
                await producer.send_many([payload] * 1_000)
    return {}


async def scan_columns(assault: Assault) -> None:
    """Open scans in columns."""
    await _hold(assault, _SCANS, _request(_LARGE, wal.SCAN_FORMAT_COLUMNS), settles=True)


async def scan_rows(assault: Assault) -> None:
    """Open scans in rows, with the largest responses."""
    await _hold(
        assault, _SCANS, _request(_LARGE, wal.SCAN_FORMAT_ROWS, max_response_bytes=_ROWS_RESPONSE_BYTES), settles=True
    )


async def follow(assault: Assault) -> None:
    """Open scans that each append of the good client wakes."""
    request = _request(CHANNEL, wal.SCAN_FORMAT_COLUMNS, end=wal.ScanEnd(follow=wal.ScanEndFollow()))
    request.policy.latest.SetInParent()
    await _hold(assault, _FOLLOWERS, request, settles=False)


def _request(channel: str, scan_format: Any, **more: Any) -> wal.ScanRequest:
    return wal.ScanRequest(sources=[wal.ScanSource(vchannel=f"{channel}/0")], format=scan_format, **more)


async def _hold(assault: Assault, count: int, request: wal.ScanRequest, *, settles: bool) -> None:
    """Open the scans, see how each began, and read nothing after its first response.

    gRPC receives some megabytes of each all the same, as any reader would: with ``settles`` that is waited for.
    """
    channels = [assault.order.channel() for _ in range(math.ceil(count / _PER_CONNECTION))]
    try:
        calls = []
        for number in range(count):
            scan: Any = channels[number // _PER_CONNECTION].unary_stream("/tidelog.v1.WalService/Scan")
            calls.append(scan(request.SerializeToString(), metadata=assault.order.metadata))
        begun = [asyncio.ensure_future(_begin(call, assault)) for call in calls]
        await asyncio.wait(begun, timeout=_OPEN_WITHIN_S)
        if settles:
            await _settled()
        assault.under_way()
        await asyncio.Event().wait()
    finally:
        for channel in channels:
            await channel.close()


async def _settled() -> None:
    """Wait until gRPC receives nothing more, which this process then takes no CPU for."""
    for _ in range(int(_OPEN_WITHIN_S)):
        before_s = time.process_time()
        await asyncio.sleep(1)
        if time.process_time() - before_s < _SETTLED_CPU_S:
            return


async def _begin(call: Any, assault: Assault) -> None:
    try:
        await call.read()
    except grpc.aio.AioRpcError as error:
        assault.counts[f"ended_{error.code().name.lower()}"] += 1
    else:
        assault.counts["begun"] += 1


_GRANTS: Final = (f"read:{_LARGE}", f"read:{CHANNEL}")

COLUMNS: Final = Attack(
    name="unread-columns", what="leaves 300 scans of 54 MiB in columns unread", run=scan_columns, grants=_GRANTS,
    prepare=write_much,
)  # fmt: skip
ROWS: Final = Attack(
    name="unread-rows", what="leaves 300 scans of 54 MiB in rows unread, with responses of 4 MiB", run=scan_rows,
    grants=_GRANTS, prepare=write_much,
)  # fmt: skip
FOLLOWERS: Final = Attack(
    name="unread-followers", what="leaves 5,000 following scans of the good client's channel unread", run=follow,
    grants=_GRANTS,
)  # fmt: skip
