"""Ticks, a million at a time and as often as they are had, by a token that may do nothing else."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

import grpc.aio

from benchmarks.attacks.attack import Assault, Attack
from benchmarks.siege.server import BenchServer
from tidelog import Tick
from tidelog.v1 import wal_service_pb2, wal_service_pb2_grpc
from tidelog_server.core.limits import MAX_TICKS_PER_REQUEST

_TASKS: Final = 16


async def run(assault: Assault) -> None:
    """Ask for them."""
    async with assault.order.channel() as channel, asyncio.TaskGroup() as tasks:
        stub: Any = wal_service_pb2_grpc.WalServiceStub(channel)  # type: ignore[no-untyped-call]  # Generated.
        for _ in range(_TASKS):
            tasks.create_task(_take(assault, stub))
        assault.under_way()


async def _take(assault: Assault, stub: Any) -> None:
    request = wal_service_pb2.AllocateTicksRequest(count=MAX_TICKS_PER_REQUEST)
    while True:
        try:
            await stub.AllocateTicks(request, metadata=assault.order.metadata)
            assault.counts["taken"] += 1
        except grpc.aio.AioRpcError:
            assault.counts["refused"] += 1


async def check(server: BenchServer) -> Mapping[str, float]:
    """Return by how many milliseconds ticks are ahead of the clock."""
    async with server.client() as client:
        [tick] = await client.allocate_ticks()
        return {"tick_lead_ms": max(0.0, Tick(tick).physical_ms - time.time() * 1_000)}


ATTACK: Final = Attack(
    name="ticks", what="allocates ticks by the million", run=run, grants=["read:bench-nothing"],
    # Without a quota: as many principals would have.
    settings={"quota.ticks_per_s": "0", "quota.requests_per_s": "0"}, check=check,
)  # fmt: skip
