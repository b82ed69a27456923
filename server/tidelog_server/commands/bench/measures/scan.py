"""``bench scan``: messages per second into Python bytes, and megabytes of raw batches against a bare gRPC stream."""

import statistics
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc

from tidelog import AsyncClient, At
from tidelog.v1 import wal_service_pb2
from tidelog_server.commands.bench.appending import Load, append_lists
from tidelog_server.commands.bench.channel import bench_vchannels
from tidelog_server.commands.bench.floors.grpc_floor import grpc_floor
from tidelog_server.commands.bench.floors.grpc_floor_server import OPTIONS
from tidelog_server.commands.bench.payloads import distinct_payloads
from tidelog_server.commands.bench.report import Floor, Report
from tidelog_server.commands.bench.server_process import Target, cpu_s_per_gb

_ROUNDS: Final = 3
_SCAN_METHOD: Final = "/tidelog.v1.WalService/Scan"


@dataclass(frozen=True, slots=True)
class _Rates:
    """A figure per round: messages per second for ``payloads``, megabytes per second for the others.

    Attributes:
        floor, tuned_floor: A bare gRPC stream with default settings, and with our settings.
        cpu_s_per_gb: CPU seconds of the server for each GB of raw batches; empty if the benchmark did not start it.
    """

    payloads: list[float] = field(default_factory=list)
    raw: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)
    tuned_floor: list[float] = field(default_factory=list)
    cpu_s_per_gb: list[float] = field(default_factory=list)


async def measure_scan(target: Target, folder: Path, *, messages: int, size: int, per_batch: int) -> Report:
    """Append messages, then scan them in turns with the floor; returns medians over the rounds.

    Returns:
        Messages per second into bytes objects, and megabytes per second as raw batches against a bare gRPC stream.
    """
    async with (
        AsyncClient(target.grpc) as client,
        bench_vchannels(client, 1) as vchannels,
        grpc_floor(folder, is_tuned=False) as bare,
        grpc_floor(folder, is_tuned=True) as tuned,
        grpc.aio.insecure_channel(target.grpc, options=OPTIONS) as raw,
    ):
        await append_lists(client, distinct_payloads(size), Load(messages, per_batch, vchannels))
        count, size_bytes = await _raw_shape(raw, vchannels[0])
        rates = _Rates()
        for _ in range(_ROUNDS):
            for floor, found in ((bare, rates.floor), (tuned, rates.tuned_floor)):
                found.append(await floor.stream_megabytes_per_second(count=count, size_bytes=size_bytes // count))
            before_s = target.cpu_s()
            rates.raw.append(await raw_rate(raw, vchannels[0]))
            rates.cpu_s_per_gb.extend(cpu_s_per_gb(before_s, target.cpu_s(), size_bytes).values())
            rates.payloads.append(messages / await _payload_seconds(client, vchannels[0], messages))
    settings: dict[str, object] = {
        "messages": messages, "size": size, "batch_messages": per_batch,
        "messages_per_second_of": "bytes objects", "megabytes_per_second_of": "raw batches",
    }  # fmt: skip
    return _report(target, settings, rates)


async def _payload_seconds(client: AsyncClient, vchannel: str, messages: int) -> float:
    """Scan every payload into its own bytes object."""
    start = time.perf_counter()
    count = size_bytes = 0
    async with client.scan(vchannel, until=At.watermark()) as scan:
        async for batch in scan:
            payloads = batch.payloads
            count += len(payloads)
            size_bytes += len(payloads[-1])
    seconds = time.perf_counter() - start
    assert count == messages
    assert 0 < size_bytes
    return seconds


async def _raw_shape(raw: grpc.aio.Channel, vchannel: str) -> tuple[int, int]:
    """Return the number of responses and the total bytes of a scan. Also serves as the warm-up."""
    sizes = [len(response) async for response in _raw_scan(raw, vchannel)]
    return len(sizes), sum(sizes)


async def raw_rate(raw: grpc.aio.Channel, vchannel: str) -> float:
    """Return the megabytes per second of a scan whose responses are counted but not decoded."""
    start = time.perf_counter()
    size_bytes = 0
    async for response in _raw_scan(raw, vchannel):
        size_bytes += len(response)
    return size_bytes / (time.perf_counter() - start) / 1e6


def _raw_scan(raw: grpc.aio.Channel, vchannel: str) -> AsyncIterator[bytes]:
    """Open a scan that returns serialised responses."""
    request = wal_service_pb2.ScanRequest(
        sources=[wal_service_pb2.ScanSource(vchannel=vchannel)],
        end=wal_service_pb2.ScanEnd(watermark=wal_service_pb2.ScanEndWatermark()),
        format=wal_service_pb2.SCAN_FORMAT_COLUMNS,
    )
    method: Any = raw.unary_stream(_SCAN_METHOD)
    call: AsyncIterator[bytes] = method(request.SerializeToString())
    return call


def _report(target: Target, settings: dict[str, object], rates: _Rates) -> Report:
    details = {"floor_with_our_settings_megabytes_per_second": statistics.median(rates.tuned_floor)}
    if rates.cpu_s_per_gb:
        details["server_cpu_s_per_gb"] = statistics.median(rates.cpu_s_per_gb)
    return Report(
        name="scan",
        settings=settings,
        messages_per_second=statistics.median(rates.payloads),
        megabytes_per_second=statistics.median(rates.raw),
        server_rss_bytes=target.peak_rss_bytes(),
        floor=Floor(
            "a bare gRPC server stream of as large messages", "megabytes_per_second", statistics.median(rates.floor)
        ),
        ratio=statistics.median(ours / floor for ours, floor in zip(rates.raw, rates.floor, strict=True)),
        details=details,
    )
