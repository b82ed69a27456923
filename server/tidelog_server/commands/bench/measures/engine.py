"""``bench append``, ``latency`` and ``scan`` with a log in an engine, against the bare client in the same run.

The client sends the same records: as many bytes in each group as the server appended, in as many records, with the same
settings and as many groups in flight.
"""

import asyncio
import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import grpc

from tidelog import AsyncClient
from tidelog_server.commands.bench.appending import Load, append_lists, append_singles
from tidelog_server.commands.bench.channel import bench_vchannels
from tidelog_server.commands.bench.floors.engine_floor import EngineBench
from tidelog_server.commands.bench.floors.grpc_floor_server import OPTIONS
from tidelog_server.commands.bench.measures.append import AppendSettings
from tidelog_server.commands.bench.measures.scan import raw_rate
from tidelog_server.commands.bench.payloads import distinct_payloads
from tidelog_server.commands.bench.report import Floor, Report, percentiles
from tidelog_server.commands.bench.server_process import Target, cpu_s_per_gb
from tidelog_server.recordlog.records import MAX_PAYLOAD_BYTES, MAX_RECORD_BYTES
from tidelog_server.storage.engine.store import GROUPS_AHEAD

_ROUNDS: Final = 5
_LATENCY_ROUNDS: Final = 20
_WARM_UP: Final = 200
_WARM_UP_SHARE: Final = 4
_SCATTERED_OVER: Final = 64
_HEADER_BYTES: Final = MAX_RECORD_BYTES - MAX_PAYLOAD_BYTES


class Shape(NamedTuple):
    """How a server has appended to its log.

    Attributes:
        groups: Number of groups.
        group_bytes: Average bytes of a group.
    """

    groups: int
    group_bytes: int

    def records(self) -> list[int]:
        """Return the sizes of the records of a group."""
        full, rest = divmod(self.group_bytes, MAX_PAYLOAD_BYTES)
        return [MAX_RECORD_BYTES] * full + ([rest + _HEADER_BYTES] if rest or not full else [])


def shape_between(before: Mapping[str, float], after: Mapping[str, float]) -> Shape:
    """Return how the server appended between two readings of its metrics, changes of any kind included."""
    groups = round(after["tidelog_log_confirm_seconds_count"] - before["tidelog_log_confirm_seconds_count"])
    appended = after["tidelog_log_appended_bytes_total"] - before["tidelog_log_appended_bytes_total"]
    return Shape(max(1, groups), round(appended / max(1, groups)))


class _Latencies(NamedTuple):
    """Seconds of single messages: of the bare client, of a server on RocksDB, and of one on the engine."""

    bare: list[float]
    on_rocksdb: list[float]
    ours: list[float]

    def floor_us(self) -> float:
        return percentiles(self.bare)["p50"] + percentiles(self.on_rocksdb)["p50"]

    def ratio(self) -> float:
        return percentiles(self.ours)["p50"] / self.floor_us()


async def measure_append(target: Target, bench: EngineBench, settings: AppendSettings) -> Report:
    """Append in turns with the bare client; the ratio is the median over the rounds."""
    ours_s: list[float] = []
    floors_s: list[float] = []
    shapes: list[Shape] = []
    cpu_s: list[float] = []
    share = max(1, settings.messages // _ROUNDS)
    async with (
        AsyncClient(target.grpc) as client,
        bench_vchannels(client, settings.vchannels, is_kept=True) as vchannels,
    ):
        payloads = distinct_payloads(settings.size)
        load = Load(share, settings.per_batch, vchannels, settings.producers)
        await append_lists(client, payloads, replace(load, messages=max(1, share // _WARM_UP_SHARE)))
        for _ in range(_ROUNDS):
            before, before_s = await asyncio.to_thread(target.metrics), target.cpu_s()
            ours_s.append((await append_lists(client, payloads, load)).seconds)
            shape = shape_between(before, await asyncio.to_thread(target.metrics))
            cpu_s += cpu_s_per_gb(before_s, target.cpu_s(), share * settings.size).values()
            shapes.append(shape)
            floors_s += await asyncio.to_thread(
                bench.floor.ask, "groups", count=shape.groups, records=shape.records(), ahead=GROUPS_AHEAD
            )
    ratios = [floor_s / our_s for our_s, floor_s in zip(ours_s, floors_s, strict=True)]
    appended = _ROUNDS * share
    return Report(
        name=f"append on {bench.kind.system}",
        settings={
            "messages": settings.messages, "size": settings.size, "batch_messages": settings.per_batch,
            "producers": settings.producers, "vchannels": settings.vchannels,
        },
        messages_per_second=appended / sum(ours_s),
        megabytes_per_second=appended * settings.size / sum(ours_s) / 1e6,
        server_rss_bytes=target.peak_rss_bytes(),
        floor=Floor(f"{bench.kind.package} alone, same records", "messages_per_second", appended / sum(floors_s)),
        ratio=statistics.median(ratios),
        details={
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
            "group_bytes": statistics.median(shape.group_bytes for shape in shapes),
            "server_cpu_s_per_gb": statistics.median(cpu_s),
        },
    )  # fmt: skip


async def measure_latency(target: Target, local: Target, bench: EngineBench, *, messages: int, size: int) -> Report:
    """Append one message after the other, in turns with the bare client and with a server on RocksDB.

    In a round, the caches of what is repeated are warm, and an append on the engine needs those of both others. So all
    is measured again in rounds of one message.
    """
    share = max(1, messages // _LATENCY_ROUNDS)
    async with (
        AsyncClient(target.grpc) as client,
        AsyncClient(local.grpc) as local_client,
        bench_vchannels(client, 1, is_kept=True) as vchannels,
        bench_vchannels(local_client, 1, is_kept=True) as local_vchannels,
    ):
        payloads = distinct_payloads(size)
        warm_up = min(_WARM_UP, share)
        before = await asyncio.to_thread(target.metrics)
        await append_singles(client, payloads, Load(warm_up, 1, vchannels))
        size_bytes = sum(shape_between(before, await asyncio.to_thread(target.metrics)).records())

        async def measured(rounds: int, count: int) -> _Latencies:
            found = _Latencies([], [], [])
            for _ in range(rounds):
                found.bare.extend(await asyncio.to_thread(bench.floor.ask, "lone", count=count, size=size_bytes))
                found.on_rocksdb.extend(
                    (await append_singles(local_client, payloads, Load(count, 1, local_vchannels)))[1]
                )
                found.ours.extend((await append_singles(client, payloads, Load(count, 1, vchannels)))[1])
            return found

        await measured(1, warm_up)
        found = await measured(_LATENCY_ROUNDS, share)
        ones = await measured(_ROUNDS * share, 1)
    bare_us, local_us = percentiles(found.bare), percentiles(found.on_rocksdb)
    return Report(
        name=f"latency on {bench.kind.system}",
        settings={"messages": messages, "size": size},
        messages_per_second=len(found.ours) / sum(found.ours),
        megabytes_per_second=len(found.ours) * size / sum(found.ours) / 1e6,
        latency_us=percentiles(found.ours),
        server_rss_bytes=target.peak_rss_bytes(),
        floor=Floor(f"{bench.kind.package}'s produce p50 + lone append on RocksDB p50", "latency_us", found.floor_us()),
        ratio=found.ratio(),
        details={
            "produce_p50_us": bare_us["p50"],
            "produce_p99_us": bare_us["p99"],
            "append_on_rocksdb_p50_us": local_us["p50"],
            "in_rounds_of_one_latency_p50_us": percentiles(ones.ours)["p50"],
            "in_rounds_of_one_floor_us": ones.floor_us(),
            "in_rounds_of_one_ratio": ones.ratio(),
        },
    )  # fmt: skip


async def measure_scan(target: Target, bench: EngineBench, *, messages: int, size: int, per_batch: int) -> Report:
    """Scan a vchannel with an empty cache, in turns with a plain consumer of the topic; then one of many vchannels."""
    assert target.process is not None
    async with AsyncClient(target.grpc) as client, bench_vchannels(client, 1, is_kept=True) as [vchannel]:
        await append_lists(client, distinct_payloads(size), Load(messages, per_batch, [vchannel]))
    ours: list[float] = []
    floors: list[float] = []
    for _ in range(_ROUNDS):
        seconds, size_bytes = await asyncio.to_thread(bench.floor.ask, "consume", topic=bench.topic)
        floors.append(size_bytes / seconds / 1e6)
        ours.append(await _cold_rate(target, vchannel))
    endpoint = target.process.grpc
    async with AsyncClient(endpoint) as client, bench_vchannels(client, _SCATTERED_OVER, is_kept=True) as scattered:
        load = Load(messages, per_batch, scattered, producers=_SCATTERED_OVER)
        await append_lists(client, distinct_payloads(size), load)
    scattered_rates = [await _cold_rate(target, scattered[0]) for _ in range(3)]
    ratios = [our / floor for our, floor in zip(ours, floors, strict=True)]
    return Report(
        name=f"scan on {bench.kind.system}",
        settings={
            "messages": messages, "size": size, "batch_messages": per_batch, "cache": "empty",
            "megabytes_per_second_of": "raw batches",
        },
        megabytes_per_second=statistics.median(ours),
        server_rss_bytes=target.peak_rss_bytes(),
        floor=Floor("a plain reader of the topic", "megabytes_per_second", statistics.median(floors)),
        ratio=statistics.median(ratios),
        details={
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
            f"one_vchannel_of_{_SCATTERED_OVER}_megabytes_per_second": statistics.median(scattered_rates),
        },
    )  # fmt: skip


async def _cold_rate(target: Target, vchannel: str) -> float:
    """Return the megabytes per second of a scan by a server that has just started."""
    assert target.process is not None
    await asyncio.to_thread(target.process.stop)
    await asyncio.to_thread(target.process.start)
    async with grpc.aio.insecure_channel(target.process.grpc, options=OPTIONS) as raw:
        await raw.channel_ready()
        return await raw_rate(raw, vchannel)
