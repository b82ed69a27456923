"""``benchmarks msgstream``: the delay of packs of a time-tick stream, and the time to produce them."""

import asyncio
import statistics
import time
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from tidelog import AsyncClient, Tick
from tidelog.msgstream import (
    AsyncMsgStream,
    AsyncRmqMsgStreamFactory,
    InsertMsg,
    MsgPack,
    SubscriptionPosition,
)
from tidelog_server.commands.bench.channel import bench_vchannels
from tidelog_server.commands.bench.payloads import distinct_payloads
from tidelog_server.commands.bench.report import Report, percentiles
from tidelog_server.commands.bench.server_process import Target

CHANNELS: Final = 8
SILENT: Final = 2
_ROWS: Final = 6
_PRODUCED: Final = 200


@dataclass(frozen=True, slots=True)
class MsgstreamSettings:
    """Settings of ``benchmarks msgstream``.

    Attributes:
        intervals: Number of intervals to measure.
        interval_ms: Milliseconds per interval.
        pause_ms: Milliseconds between packs of the producer.
        size: Bytes per row.
    """

    intervals: int
    interval_ms: int
    pause_ms: float
    size: int


@dataclass(slots=True)
class _Watched:
    """The packs that one consumer received.

    Attributes:
        packs: Packs with messages.
        delays_s: Seconds from the end of the interval to the arrival, of all packs. Server and client share a clock.
    """

    packs: list[MsgPack] = field(default_factory=list)
    delays_s: list[float] = field(default_factory=list)


async def measure_msgstream(target: Target, settings: MsgstreamSettings) -> Report:
    """Produce to six of eight channels while two consumers follow all of them; then read everything again.

    A delay is measured in intervals, from the end of a pack's interval, before which it cannot arrive, to its arrival.
    """
    async with AsyncClient(target.grpc) as client, bench_vchannels(client, CHANNELS) as channels:
        factory = AsyncRmqMsgStreamFactory(client)
        factory.set_params({"tick_interval_ms": settings.interval_ms})
        async with factory.new_msg_stream() as producer:
            await producer.as_producer(channels[: CHANNELS - SILENT])
            produced, (one, two) = await _watch(factory, producer, channels, settings)
            single_us, several_us = await _produce_one_by_one(producer, settings)
        is_same = await _is_the_same_again(factory, channels, one.packs)
    interval_s = settings.interval_ms / 1_000
    delays = sorted(delay_s / interval_s for watched in (one, two) for delay_s in watched.delays_s)
    return Report(
        name="msgstream",
        settings={
            "channels": CHANNELS, "silent": SILENT, "intervals": settings.intervals,
            "interval_ms": settings.interval_ms, "size": settings.size,
        },
        latency_us=percentiles([*one.delays_s, *two.delays_s]),
        server_rss_bytes=target.peak_rss_bytes(),
        details={
            "delay_p50_intervals": statistics.median(delays),
            "delay_p99_intervals": delays[int(0.99 * len(delays))],
            "delay_max_intervals": delays[-1],
            "packs_with_messages": len(one.packs),
            "messages_produced": produced,
            # 1 for yes.
            "packs_equal_on_both": float(one.packs == two.packs),
            "packs_equal_when_read_again": float(is_same),
            "produce_to_one_channel_p50_us": single_us,
            "produce_to_six_channels_p50_us": several_us,
        },
    )  # fmt: skip


async def _watch(
    factory: AsyncRmqMsgStreamFactory, producer: AsyncMsgStream, channels: list[str], settings: MsgstreamSettings
) -> tuple[int, tuple[_Watched, _Watched]]:
    """Return the number of messages produced, and the packs of two consumers."""
    payloads = distinct_payloads(settings.size)
    async with factory.new_tt_msg_stream() as first, factory.new_tt_msg_stream() as second:
        for number, stream in enumerate((first, second)):
            await stream.as_consumer(channels, f"watch-{number}", SubscriptionPosition.LATEST)
        # Both consumers begin with the same interval.
        begin = max([(await stream.consume()).end_ts for stream in (first, second)])
        end = begin + (settings.intervals * settings.interval_ms << 18)
        watching = [asyncio.create_task(_watch_until(stream, begin, end)) for stream in (first, second)]
        produced = await _produce_until(producer, end, payloads, settings)
        one, two = await asyncio.gather(*watching)
    return produced, (one, two)


async def _produce_until(producer: AsyncMsgStream, end: int, payloads: list[bytes], settings: MsgstreamSettings) -> int:
    """Produce packs of six rows, one per channel of the producer, until the interval before the last."""
    stop_ms = Tick(end).physical_ms - settings.interval_ms
    produced = 0
    for number in count(1):
        if time.time_ns() // 1_000_000 >= stop_ms:
            break
        await producer.produce(_pack(number, payloads))
        produced += _ROWS
        await asyncio.sleep(settings.pause_ms / 1_000)
    return produced


async def _watch_until(stream: AsyncMsgStream, begin: int, end: int) -> _Watched:
    watched = _Watched()
    while True:
        pack = await stream.consume()
        now_s = time.time()
        if pack.begin_ts < begin:
            continue
        # The next interval begins with the tick after the pack.
        watched.delays_s.append(now_s - Tick(pack.end_ts + 1).physical_ms / 1_000)
        watched.packs += [] if pack.is_empty else [pack]
        if pack.end_ts >= end:
            return watched


async def _produce_one_by_one(producer: AsyncMsgStream, settings: MsgstreamSettings) -> tuple[float, float]:
    """Return the median microseconds of a pack for one channel, an append, and for all channels, a transaction."""
    payloads = distinct_payloads(settings.size)
    single: list[float] = []
    several: list[float] = []
    for number in range(_PRODUCED):
        row = InsertMsg(row_ids=[number], row_data=[payloads[number % len(payloads)]], hash_keys=[number])
        for durations, pack in ((single, MsgPack(msgs=[row])), (several, _pack(number, payloads))):
            start = time.perf_counter()
            await producer.produce(pack)
            durations.append(time.perf_counter() - start)
    return statistics.median(single) * 1e6, statistics.median(several) * 1e6


async def _is_the_same_again(factory: AsyncRmqMsgStreamFactory, channels: list[str], packs: list[MsgPack]) -> bool:
    """Return whether a consumer that starts at the beginning receives the same packs."""
    async with factory.new_tt_msg_stream() as stream:
        await stream.as_consumer(channels, "again")
        again: list[MsgPack] = []
        while len(again) < len(packs):
            pack = await stream.consume()
            again += [] if pack.is_empty else [pack]
    return again == packs


def _pack(number: int, payloads: list[bytes]) -> MsgPack:
    rows = [number * _ROWS + row for row in range(_ROWS)]
    data = [payloads[row % len(payloads)] for row in rows]
    return MsgPack(msgs=[InsertMsg(id=number, row_ids=rows, row_data=data, hash_keys=list(range(_ROWS)))])
