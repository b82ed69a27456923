"""``benchmarks budget``: what an operation spends its time with, stage by stage, compared with a lone append.

Method: one operation after the other, with times at the points of ``stamps`` in client and server. A stage is the time
between two points that follow each other, as the median over all operations. Concurrent appends share one request, so
the stages of the first one are those of all. The answer to an append and the page of the follower are under way at the
same time, to two clients of one process: the stages of a delivery include what it waits for the other.
"""

import asyncio
import os
import statistics
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import stamps
from benchmarks.stamps import BROADCAST_POINTS, CLIENT_POINTS, DELIVERY_POINTS, SERVER_POINTS, Point, Stamps
from tidelog import AsyncClient
from tidelog_server.commands.bench.channel import bench_vchannels
from tidelog_server.commands.bench.report import Floor, Report, percentiles
from tidelog_server.commands.bench.server_process import ServerProcess

_WARM_UP: Final = 300
_AT_ONCE: Final = 64
_OF_APPENDS: Final = (*CLIENT_POINTS[:2], *SERVER_POINTS, *CLIENT_POINTS[2:])

Operation = Callable[[AsyncClient, Sequence[str]], Awaitable[object]]
Spans = list[tuple[int, int]]


class Kind(NamedTuple):
    """A kind of operation; its first stage, which begins with the call, and the points at which the others begin."""

    operation: Operation
    first: str = "client: call"
    points: Sequence[Point] = _OF_APPENDS


async def measure_budget(folder: Path, settings: Mapping[str, str], *, operations: int, size: int) -> list[Report]:
    """Return the budgets of the kinds of operations, each on one or two vchannels, and deliveries of appends."""
    payload = os.urandom(size)
    file = folder / "stamps.json"
    os.environ[stamps.FILE_VARIABLE] = str(file)

    async def append(client: AsyncClient, vchannels: Sequence[str]) -> None:
        await client.append(vchannels[0], payload)

    async def transaction(client: AsyncClient, vchannels: Sequence[str]) -> None:
        async with client.txn() as txn:
            for vchannel in vchannels:
                await txn.append(vchannel, [payload] * 5)

    async def appends(client: AsyncClient, vchannels: Sequence[str]) -> None:
        await asyncio.gather(*(append(client, vchannels) for _ in range(_AT_ONCE)))

    async def broadcast(client: AsyncClient, vchannels: Sequence[str]) -> None:
        await client.broadcast(vchannels, payload)

    kinds = {
        "append": Kind(append),
        f"{_AT_ONCE} appends at once": Kind(appends),
        "transaction of 10 messages on 2 vchannels": Kind(transaction),
        "broadcast to 2 vchannels": Kind(broadcast, "client: call, write; network; server: read", BROADCAST_POINTS),
    }
    client_times = Stamps((*CLIENT_POINTS, DELIVERY_POINTS[-1]))
    process = ServerProcess(folder / "server", settings, module="benchmarks.stamps")
    spans: dict[str, Spans] = {}
    try:
        async with AsyncClient(process.grpc) as client, bench_vchannels(client, 2) as vchannels:
            for name, kind in kinds.items():
                await _timed(client, vchannels, kind.operation, _WARM_UP)
                spans[name] = await _timed(client, vchannels, kind.operation, operations)
            async with AsyncClient(process.grpc) as reader, reader.tail(vchannels[0]) as messages:

                async def delivery(client: AsyncClient, vchannels: Sequence[str]) -> None:
                    appending = asyncio.ensure_future(append(client, vchannels))
                    await anext(messages)
                    delivered_ns.append(time.perf_counter_ns())
                    await appending

                delivered_ns: list[int] = []
                begun = await _timed(client, vchannels, delivery, _WARM_UP + operations)
    finally:
        process.stop()
    times = {**client_times.times, **stamps.read(file)}
    append_us = percentiles(_seconds(spans["append"]))["p50"]
    deliveries = [(begin_ns, end_ns) for (begin_ns, _), end_ns in zip(begun, delivered_ns, strict=True)][_WARM_UP:]
    reports = [_report(name, each, kinds[name], times, size) for name, each in spans.items()]
    reports.append(_report("delivery to a follower", deliveries, Kind(append, points=DELIVERY_POINTS), times, size))
    return [_compared(report, append_us) for report in reports]


def _compared(report: Report, append_us: float) -> Report:
    assert report.latency_us is not None
    floor = Floor("a lone append, p50", "latency_us", append_us)
    return replace(report, floor=floor, ratio=report.latency_us["p50"] / append_us)


def _seconds(spans: Spans) -> list[float]:
    return [(end_ns - begin_ns) / 1e9 for begin_ns, end_ns in spans]


async def _timed(client: AsyncClient, vchannels: Sequence[str], operation: Operation, number: int) -> Spans:
    spans = []
    for _ in range(number):
        begin_ns = time.perf_counter_ns()
        await operation(client, vchannels)
        spans.append((begin_ns, time.perf_counter_ns()))
    return spans


def _report(name: str, spans: Spans, kind: Kind, times: Mapping[str, Sequence[int]], size: int) -> Report:
    points = [times[each.place] for each in kind.points]
    stages = (kind.first, *(each.name for each in kind.points))
    found = [durations for span in spans if (durations := durations_of(span, points)) is not None]
    return Report(
        name=f"budget, {name}",
        settings={"operations": len(spans), "with_all_points": len(found), "size": size},
        latency_us=percentiles(_seconds(spans)),
        details={
            f"{stage}, p50 µs": statistics.median(each[at] for each in found) / 1e3 for at, stage in enumerate(stages)
        },
    )


def durations_of(span: tuple[int, int], points: Sequence[Sequence[int]]) -> list[int] | None:
    """Return the duration of each stage of an operation; None if it has not passed all points in their order."""
    moments = [span[0]]
    for times in points:
        at = bisect_left(times, moments[-1])
        if at == len(times) or times[at] > span[1]:
            return None
        moments.append(times[at])
    return [after - before for before, after in pairwise([*moments, span[1]])]
