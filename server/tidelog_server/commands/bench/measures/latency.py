"""``bench latency``: one synced append at a time, against a gRPC echo plus a sync of the disk."""

import asyncio
import statistics
from pathlib import Path
from typing import Final, NamedTuple

from tidelog import AsyncClient
from tidelog_server.commands.bench.appending import Load, append_singles
from tidelog_server.commands.bench.channel import bench_vchannels
from tidelog_server.commands.bench.floors.grpc_floor import grpc_floor
from tidelog_server.commands.bench.payloads import distinct_payloads
from tidelog_server.commands.bench.report import Floor, Report, percentiles
from tidelog_server.commands.bench.server_process import Target
from tidelog_server.commands.probes import measure_sync

# Many short rounds, so that variations of the machine's speed affect all measurements alike.
_ROUNDS: Final = 20
_WARM_UP: Final = 200
# Approximate bytes of a request with one message in addition to its payload.
_REQUEST_OVERHEAD_BYTES: Final = 70


async def measure_latency(target: Target, folder: Path, *, messages: int, size: int) -> Report:
    """Append one message after the other, in turns with echo and sync; returns medians over the rounds."""
    share = max(1, messages // _ROUNDS)
    durations: list[float] = []
    floors: list[_Floors] = []
    async with (
        AsyncClient(target.grpc) as client,
        bench_vchannels(client, 1) as vchannels,
        grpc_floor(folder, is_tuned=False) as bare,
        grpc_floor(folder, is_tuned=True) as tuned,
    ):
        payloads = distinct_payloads(size)
        await append_singles(client, payloads, Load(min(_WARM_UP, share), 1, vchannels))
        for floor in (bare, tuned):
            await floor.echo_s(count=min(_WARM_UP, share), size_bytes=size)
        for _ in range(_ROUNDS):
            shape = {"count": share, "size_bytes": size + _REQUEST_OVERHEAD_BYTES}
            floors.append(
                _Floors(
                    await bare.echo_s(**shape),
                    (await asyncio.to_thread(measure_sync, folder, min(share, 500))).sync_us / 1e6,
                    await tuned.echo_s(**shape),
                    await tuned.synced_echo_s(**shape),
                )
            )
            durations += (await append_singles(client, payloads, Load(share, 1, vchannels)))[1]
    return _report(target, durations, floors, messages=messages, size=size)


class _Floors(NamedTuple):
    """Medians of a round, in seconds.

    Attributes:
        echo: Round trip through gRPC and asyncio with default settings.
        sync: Write and sync.
        tuned_echo: Round trip with our settings.
        tuned_synced_echo: Round trip with our settings, with a write and a sync on a thread before the answer.
    """

    echo: float
    sync: float
    tuned_echo: float
    tuned_synced_echo: float


def _report(target: Target, durations: list[float], floors: list[_Floors], *, messages: int, size: int) -> Report:
    median = _Floors(*(statistics.median(values) * 1e6 for values in zip(*floors, strict=True)))
    floor_us = median.echo + median.sync
    found = percentiles(durations)
    return Report(
        name="latency",
        settings={"messages": messages, "size": size, "durability": "sync"},
        messages_per_second=len(durations) / sum(durations),
        megabytes_per_second=len(durations) * size / sum(durations) / 1e6,
        latency_us=found,
        server_rss_bytes=target.peak_rss_bytes(),
        floor=Floor("gRPC stream echo p50 + fdatasync p50", "latency_us", floor_us),
        ratio=found["p50"] / floor_us,
        details={
            "echo_p50_us": median.echo,
            "fdatasync_p50_us": median.sync,
            "echo_with_our_settings_p50_us": median.tuned_echo,
            "echo_that_syncs_with_our_settings_p50_us": median.tuned_synced_echo,
        },
    )
