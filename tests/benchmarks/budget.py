"""``benchmarks budget``: what a lone operation spends its time with, stage by stage.

Method: one operation after the other, with times at the points of ``stamps`` in client and server. A stage is the time
between two points that follow each other, as the median over all operations.
"""

import os
import statistics
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from benchmarks import stamps
from benchmarks.stamps import CLIENT_POINTS, SERVER_POINTS, Stamps
from tidelog import AsyncClient
from tidelog_server.commands.bench.channel import bench_vchannels
from tidelog_server.commands.bench.report import Report, percentiles
from tidelog_server.commands.bench.server_process import ServerProcess

_WARM_UP: Final = 300
_BEGIN: Final = "client: call"
# The points of an operation, in their order.
_ORDER: Final = (
    *(each.name for each in CLIENT_POINTS[:2]), *(each.name for each in SERVER_POINTS),
    *(each.name for each in CLIENT_POINTS[2:]),
)  # fmt: skip

Operation = Callable[[AsyncClient, Sequence[str]], Awaitable[object]]
Spans = list[tuple[int, int]]


async def measure_budget(folder: Path, settings: Mapping[str, str], *, operations: int, size: int) -> list[Report]:
    """Return the budgets of an append and of a transaction of ten messages on two vchannels."""
    payload = os.urandom(size)
    file = folder / "stamps.json"
    os.environ[stamps.FILE_VARIABLE] = str(file)

    async def append(client: AsyncClient, vchannels: Sequence[str]) -> None:
        await client.append(vchannels[0], payload)

    async def transaction(client: AsyncClient, vchannels: Sequence[str]) -> None:
        async with client.txn() as txn:
            for vchannel in vchannels:
                await txn.append(vchannel, [payload] * 5)

    kinds: Mapping[str, Operation] = {"append": append, "transaction of 10 messages on 2 vchannels": transaction}
    client_times = Stamps(CLIENT_POINTS)
    process = ServerProcess(folder / "server", settings, module="benchmarks.stamps")
    spans: dict[str, Spans] = {}
    try:
        async with AsyncClient(process.grpc) as client, bench_vchannels(client, 2) as vchannels:
            for name, operation in kinds.items():
                await _timed(client, vchannels, operation, _WARM_UP)
                spans[name] = await _timed(client, vchannels, operation, operations)
    finally:
        process.stop()
    times = {**client_times.times, **stamps.read(file)}
    return [_report(name, each, times, size) for name, each in spans.items()]


async def _timed(client: AsyncClient, vchannels: Sequence[str], operation: Operation, number: int) -> Spans:
    spans = []
    for _ in range(number):
        begin_ns = time.perf_counter_ns()
        await operation(client, vchannels)
        spans.append((begin_ns, time.perf_counter_ns()))
    return spans


def _report(name: str, spans: Spans, times: Mapping[str, Sequence[int]], size: int) -> Report:
    stages = [found for begin, end in spans if (found := _stages(begin, end, times)) is not None]
    return Report(
        name=f"budget, {name}",
        settings={"operations": len(spans), "with_all_points": len(stages), "size": size},
        latency_us=percentiles([(end - begin) / 1e9 for begin, end in spans]),
        details={
            f"{stage}, p50 µs": statistics.median(each[at] for each in stages) / 1e3
            for at, stage in enumerate((_BEGIN, *_ORDER))
        },
    )


def _stages(begin: int, end: int, times: Mapping[str, Sequence[int]]) -> list[int] | None:
    """Return the duration of each stage of an operation; None if a point is missing or out of order."""
    moments = [begin]
    for name in _ORDER:
        several = times[name]
        at = bisect_left(several, begin)
        if at == len(several) or several[at] > end:
            return None
        moments.append(several[at])
    moments.append(end)
    durations = [after - before for before, after in pairwise(moments)]
    return durations if min(durations) >= 0 else None
