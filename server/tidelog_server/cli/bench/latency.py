"""``bench latency``: one synced append at a time, against a gRPC echo and a sync of the disk."""

import asyncio
import statistics
from pathlib import Path
from typing import Final, NamedTuple

from tidelog import AsyncClient
from tidelog_server.cli.bench.appending import Load, append_singles
from tidelog_server.cli.bench.channel import bench_vchannels
from tidelog_server.cli.bench.grpc_floor import grpc_floor
from tidelog_server.cli.bench.payloads import distinct_payloads
from tidelog_server.cli.bench.report import Floor, Report, percentiles
from tidelog_server.cli.bench.server_process import Target, child_environment
from tidelog_server.cli.grpc_stack import without_choice
from tidelog_server.cli.probes import measure_sync

_ROUNDS: Final = 4
_WARM_UP: Final = 200
# What a request with one message carries besides its payload, about.
_REQUEST_OVERHEAD_BYTES: Final = 70


async def measure_latency(target: Target, folder: Path, *, messages: int, size: int) -> Report:
    """Append one message after the other, and measure echo and sync by turns with it; medians over the rounds."""
    share = max(1, messages // _ROUNDS)
    durations: list[float] = []
    floors: list[_Floors] = []
    environment = child_environment()
    async with (
        AsyncClient(target.grpc) as client,
        bench_vchannels(client, 1) as vchannels,
        grpc_floor(without_choice(environment)) as bare,
        grpc_floor(environment) as tuned,
    ):
        payloads = distinct_payloads(size)
        await append_singles(client, payloads, Load(min(_WARM_UP, share), 1, vchannels))
        for floor in (bare, tuned):
            await floor.echo_s(count=min(_WARM_UP, share), size_bytes=size)
        for _ in range(_ROUNDS):
            echo_s, tuned_echo_s = [
                await floor.echo_s(count=share, size_bytes=size + _REQUEST_OVERHEAD_BYTES) for floor in (bare, tuned)
            ]
            sync = await asyncio.to_thread(measure_sync, folder, min(share, 500))
            floors.append(_Floors(echo_s, tuned_echo_s, sync.sync_us / 1e6))
            durations += (await append_singles(client, payloads, Load(share, 1, vchannels)))[1]
    return _report(target, durations, floors, messages=messages, size=size)


class _Floors(NamedTuple):
    """Medians of a round, in seconds: an echo through gRPC as it comes, one through gRPC as we run it, and a sync."""

    echo: float
    tuned_echo: float
    sync: float


def _report(target: Target, durations: list[float], floors: list[_Floors], *, messages: int, size: int) -> Report:
    echo_us, tuned_echo_us, sync_us = (statistics.median(values) * 1e6 for values in zip(*floors, strict=True))
    found = percentiles(durations)
    return Report(
        name="latency",
        settings={"messages": messages, "size": size, "durability": "sync"},
        messages_per_second=len(durations) / sum(durations),
        megabytes_per_second=len(durations) * size / sum(durations) / 1e6,
        latency_us=found,
        server_rss_bytes=target.peak_rss_bytes(),
        floor=Floor("gRPC stream echo p50 + fdatasync p50", "latency_us", echo_us + sync_us),
        ratio=found["p50"] / (echo_us + sync_us),
        details={
            "echo_p50_us": echo_us,
            "fdatasync_p50_us": sync_us,
            "echo_with_our_grpc_settings_p50_us": tuned_echo_us,
        },
    )
