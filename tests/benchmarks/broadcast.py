"""``benchmarks broadcast``: broadcasts to many vchannels, against single appends to one of them."""

import statistics
import time
from dataclasses import dataclass
from typing import Final

from tidelog import AsyncClient, ResourceKey
from tidelog_server.commands.bench.channel import bench_vchannels
from tidelog_server.commands.bench.payloads import distinct_payloads
from tidelog_server.commands.bench.report import Floor, Report, percentiles
from tidelog_server.commands.bench.server_process import Target

# Broadcasts and appends alternate, because the speed of a machine varies.
_ROUNDS: Final = 10
_WARM_UP: Final = 20


@dataclass(frozen=True, slots=True)
class BroadcastSettings:
    """Settings of ``benchmarks broadcast``.

    Attributes:
        broadcasts: Number of broadcasts, one after the other.
        vchannels: Vchannels per broadcast.
        size: Bytes per message.
    """

    broadcasts: int
    vchannels: int
    size: int


async def measure_broadcast(target: Target, settings: BroadcastSettings) -> Report:
    """Measure broadcasts under a resource key, single appends, and acknowledgements; returns medians.

    Each broadcast is acknowledged on all vchannels before the next one, so that its key is free.
    """
    key = ResourceKey("bench", "key")
    share = max(1, settings.broadcasts // _ROUNDS)
    broadcasts: list[float] = []
    appends: list[float] = []
    acks: list[float] = []
    async with AsyncClient(target.grpc) as client, bench_vchannels(client, settings.vchannels) as vchannels:
        payloads = distinct_payloads(settings.size)

        async def broadcast_once(number: int) -> None:
            start = time.perf_counter()
            result = await client.broadcast(vchannels, payloads[number % len(payloads)], resource_keys=[key])
            broadcasts.append(time.perf_counter() - start)
            start = time.perf_counter()
            await client.ack(result.broadcast_id, vchannels)
            acks.append(time.perf_counter() - start)

        async def append_once(number: int) -> None:
            start = time.perf_counter()
            await client.append(vchannels[number % len(vchannels)], payloads[number % len(payloads)])
            appends.append(time.perf_counter() - start)

        for number in range(_WARM_UP):
            await broadcast_once(number)
            await append_once(number)
        for durations in (broadcasts, appends, acks):
            durations.clear()
        for _ in range(_ROUNDS):
            for number in range(share):
                await broadcast_once(number)
            for number in range(share):
                await append_once(number)
    append_us = statistics.median(appends) * 1e6
    latency = percentiles(broadcasts)
    return Report(
        name="broadcast",
        settings={"broadcasts": settings.broadcasts, "vchannels": settings.vchannels, "size": settings.size},
        latency_us=latency,
        server_rss_bytes=target.peak_rss_bytes(),
        floor=Floor("one append to one vchannel, p50", "latency_us", append_us),
        ratio=latency["p50"] / append_us,
        details={"ack_of_all_p50_us": statistics.median(acks) * 1e6},
    )
