"""``benchmarks frames``: a log into an Arrow table and a Polars frame, against the same log into Python bytes.

Each reading is a process of its own, so that its peak of memory is that of one reading. They alternate.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final

from benchmarks.children import child_process, line_of
from tidelog import AsyncClient
from tidelog_server.commands.bench.appending import Load, append_lists
from tidelog_server.commands.bench.channel import bench_vchannels
from tidelog_server.commands.bench.payloads import distinct_payloads
from tidelog_server.commands.bench.report import Floor, Report
from tidelog_server.commands.bench.server_process import Target

_READER: Final = "benchmarks.frame_reader"
BYTES: Final = "bytes"
FRAMES: Final = ("arrow", "polars")


@dataclass(frozen=True, slots=True)
class FramesSettings:
    """Settings of ``benchmarks frames``.

    Attributes:
        messages: Number of messages.
        size: Bytes per payload.
        per_batch: Messages per batch.
        rounds: Number of readings of each kind.
    """

    messages: int
    size: int
    per_batch: int
    rounds: int


@dataclass(frozen=True, slots=True)
class _Reading:
    """One reading.

    Attributes:
        seconds: Seconds from the call to the whole frame.
        peak_bytes: Greatest resident memory during it, without that before it.
        table_bytes: Size of the Arrow table; 0 if it has made none.
    """

    seconds: float
    peak_bytes: int
    table_bytes: int


async def measure_frames(target: Target, settings: FramesSettings) -> Iterable[Report]:
    """Append messages, then read them in turns into bytes objects, a table and a frame; a report for each frame."""
    readings: dict[str, list[_Reading]] = {kind: [] for kind in (BYTES, *FRAMES)}
    async with AsyncClient(target.grpc) as client, bench_vchannels(client, 1) as vchannels:
        load = Load(settings.messages, settings.per_batch, vchannels)
        await append_lists(client, distinct_payloads(settings.size), load)
        for _ in range(settings.rounds):
            for kind, found in readings.items():
                found.append(await _read(target.grpc, vchannels[0], kind, settings.messages))
    table_bytes = readings[FRAMES[0]][0].table_bytes
    return [_report(settings, kind, readings[kind], readings[BYTES], table_bytes) for kind in FRAMES]


async def _read(endpoint: str, vchannel: str, kind: str, messages: int) -> _Reading:
    order = {"endpoint": endpoint, "vchannel": vchannel, "kind": kind, "messages": messages}
    async with child_process(_READER, order) as process:
        return _Reading(**json.loads(await line_of(process)))


def _report(
    settings: FramesSettings, kind: str, found: list[_Reading], floor: list[_Reading], table_bytes: int
) -> Report:
    peak_bytes = median(each.peak_bytes for each in found)
    return Report(
        name=f"frames into {kind}",
        settings={
            "messages": settings.messages, "size": settings.size, "batch_messages": settings.per_batch,
            "rounds": settings.rounds,
        },
        messages_per_second=median(settings.messages / each.seconds for each in found),
        floor=Floor(
            "bytes objects, as bench scan", "messages_per_second",
            median(settings.messages / each.seconds for each in floor),
        ),
        ratio=median(theirs.seconds / ours.seconds for ours, theirs in zip(found, floor, strict=True)),
        details={
            "table_megabytes": table_bytes / 1e6,
            "peak_megabytes": peak_bytes / 1e6,
            "peak_to_table": peak_bytes / table_bytes,
        },
    )  # fmt: skip
