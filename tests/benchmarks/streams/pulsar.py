"""``benchmarks msgstream-pulsar``: message streams on a Pulsar broker, in turns with the plain client.

Both send the same messages, encode them before they are sent, and decode what they receive.
"""

import asyncio
import gc
import secrets
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from tidelog import Tick
from tidelog.msgstream import (
    AsyncPulsarMsgStreamFactory,
    AsyncTimeTicker,
    InsertMsg,
    MsgPack,
    MsgType,
    PulsarBroker,
    StreamSettings,
    SubscriptionPosition,
)
from tidelog_server.commands.bench.report import Floor, Report, percentiles

ROUNDS: Final = 5
TOPICS: Final = 8
SILENT: Final = 2
INTERVAL_MS: Final = 200
_PACK_MESSAGES: Final = 1_000
_PACKS_IN_FLIGHT: Final = 4
_RECEIVE_MS: Final = 60_000
_QUEUE: Final = 1_000


@dataclass(frozen=True, slots=True)
class PulsarStreamSettings:
    """Settings of ``benchmarks msgstream-pulsar``.

    Attributes:
        messages: Messages of one turn.
        size: Bytes per row; a message has one.
        intervals: Ticks of which the delay is measured.
    """

    messages: int
    size: int
    intervals: int


@dataclass(slots=True)
class _Rates:
    """Messages per second of each turn."""

    plain: list[float] = field(default_factory=list)
    stream: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """The median of the ratios of the turns."""
        return statistics.median(ours / theirs for ours, theirs in zip(self.stream, self.plain, strict=True))


async def measure_pulsar_streams(broker: PulsarBroker, settings: PulsarStreamSettings) -> list[Report]:
    """Return a report of producing, of consuming in packs, and of the delay of packs."""
    messages = _messages(settings)
    # A program that consumes has no messages to produce: each garbage collection would visit them.
    gc.collect()
    gc.freeze()
    produced, consumed = _Rates(), _Rates()
    for _ in range(ROUNDS):
        with _topics(broker, 1) as [topic]:
            produced.plain.append(await _rate(settings, partial(_plain_produce, broker, topic, messages)))
            consumed.plain.append(await _rate(settings, partial(_plain_consume, broker, topic, settings)))
        with _topics(broker, 1) as [topic]:
            produced.stream.append(await _stream_produce(broker, topic, messages))
            consumed.stream.append(await _stream_consume(broker, topic, settings))
    return [
        _rate_report("produce", produced, settings), _rate_report("consume", consumed, settings),
        await _measure_delay(broker, settings),
    ]  # fmt: skip


def _rate_report(what: str, rates: _Rates, settings: PulsarStreamSettings) -> Report:
    return Report(
        name=f"msgstream on pulsar, {what}",
        settings={"messages": settings.messages, "size": settings.size, "turns": ROUNDS,
                  "pulsar_pack_bytes": StreamSettings().pulsar_pack_bytes},
        messages_per_second=statistics.median(rates.stream),
        floor=Floor("the plain client with the same messages", "messages_per_second", statistics.median(rates.plain)),
        ratio=rates.ratio,
        details={"lowest_ratio": min(map(_ratio, rates.stream, rates.plain)),
                 "highest_ratio": max(map(_ratio, rates.stream, rates.plain))},
    )  # fmt: skip


def _ratio(ours: float, theirs: float) -> float:
    return ours / theirs


def _messages(settings: PulsarStreamSettings) -> list[InsertMsg]:
    row = secrets.token_bytes(settings.size)
    return [
        InsertMsg(id=number, row_ids=[number], row_data=[row], hash_keys=[0]) for number in range(settings.messages)
    ]


@contextmanager
def _topics(broker: PulsarBroker, number: int) -> Iterator[list[str]]:
    """Yield new topics, which are deleted at the end if there is an administration API."""
    names = [broker.topic(f"tidelog-bench-{secrets.token_hex(6)}") for _ in range(number)]
    if not broker.has_admin:
        yield names
        return
    admin = broker.admin("creating topics")
    for name in names:
        admin.create_topic(name)
    try:
        yield names
    finally:
        for name in names:
            admin.delete_topic(name)


async def _rate(settings: PulsarStreamSettings, work: Callable[[], None]) -> float:
    begin_s = time.perf_counter()
    await asyncio.to_thread(work)
    return settings.messages / (time.perf_counter() - begin_s)


def _plain_produce(broker: PulsarBroker, topic: str, messages: list[InsertMsg]) -> None:
    """Send as a program without streams does: batches of the library, and a callback for each receipt."""
    producer = broker.client().create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=1, max_pending_messages=0
    )
    receipts: list[object] = []
    all_came = threading.Event()

    def came(_: Any, message_id: Any) -> None:
        receipts.append(message_id)
        if len(receipts) == len(messages):
            all_came.set()

    for message in messages:
        producer.send_async(message.marshal(), came, properties={"type": str(int(message.type))})
    all_came.wait()
    producer.close()


def _plain_consume(broker: PulsarBroker, topic: str, settings: PulsarStreamSettings) -> None:
    import pulsar

    consumer = broker.client().subscribe(
        topic, "plain", initial_position=pulsar.InitialPosition.Earliest, receiver_queue_size=_QUEUE
    )
    left = settings.messages
    while True:
        message = consumer.receive(timeout_millis=_RECEIVE_MS)
        InsertMsg.unmarshal(message.data(), int(message.properties()["type"]))
        left -= 1
        if not left:
            break
    consumer.acknowledge_cumulative(message)
    consumer.close()


async def _stream_produce(broker: PulsarBroker, topic: str, messages: list[InsertMsg]) -> float:
    """Send packs, several at a time, beside a ticker; return the messages per second, without its last tick."""
    async with (
        AsyncPulsarMsgStreamFactory(broker).new_msg_stream() as stream,
        AsyncTimeTicker(broker, [topic], interval_ms=INTERVAL_MS),
    ):
        begin_s = time.perf_counter()
        await stream.as_producer([topic])
        room = asyncio.Semaphore(_PACKS_IN_FLIGHT)

        async def send(pack: MsgPack) -> None:
            async with room:
                await stream.produce(pack)

        packs = [MsgPack(msgs=messages[at : at + _PACK_MESSAGES]) for at in range(0, len(messages), _PACK_MESSAGES)]
        await asyncio.gather(*map(send, packs))
        rate = len(messages) / (time.perf_counter() - begin_s)
        # Ticks after all messages: the last ones are in a complete pack then.
        await asyncio.sleep(3 * INTERVAL_MS / 1_000)
        return rate


async def _stream_consume(broker: PulsarBroker, topic: str, settings: PulsarStreamSettings) -> float:
    async with AsyncPulsarMsgStreamFactory(broker).new_tt_msg_stream() as stream:
        await stream.as_consumer([topic], "streams")
        begin_s = time.perf_counter()
        left = settings.messages
        while left > 0:
            left -= len((await stream.consume()).msgs)
        return settings.messages / (time.perf_counter() - begin_s)


async def _measure_delay(broker: PulsarBroker, settings: PulsarStreamSettings) -> Report:
    """Follow topics with ticks, two of them without messages; measure packs, and ticks by a plain reader."""
    with _topics(broker, TOPICS) as topics:
        factory = AsyncPulsarMsgStreamFactory(broker)
        async with factory.new_tt_msg_stream() as stream, factory.new_msg_stream() as producer:
            await producer.as_producer(topics[: TOPICS - SILENT])
            await stream.as_consumer(topics, "delays", SubscriptionPosition.LATEST)
            plain: list[float] = []
            reading = threading.Thread(target=_plain_delays, args=(broker, topics[0], settings.intervals, plain))
            reading.start()
            delays: list[float] = []
            async with AsyncTimeTicker(broker, topics, interval_ms=INTERVAL_MS):
                sending = asyncio.create_task(_send_steadily(producer))
                for _ in range(settings.intervals):
                    pack = await stream.consume()
                    delays.append(_age_s(pack.end_ts))
                await asyncio.to_thread(reading.join)
                sending.cancel()
    own, theirs = statistics.median(delays), statistics.median(plain)
    return Report(
        name="msgstream on pulsar, delay of packs",
        settings={"topics": TOPICS, "silent": SILENT, "interval_ms": INTERVAL_MS, "intervals": settings.intervals},
        latency_us=percentiles(delays),
        floor=Floor("a tick at a plain reader, p50", "latency_us", theirs * 1e6),
        ratio=own / theirs,
        details={"p50_above_plain_ms": (own - theirs) * 1e3},
    )


async def _send_steadily(producer: Any) -> None:
    number = 0
    while True:
        number += 1
        await producer.produce(MsgPack(msgs=[InsertMsg(id=number, row_ids=[number], hash_keys=[number])]))
        await asyncio.sleep(0.01)


def _plain_delays(broker: PulsarBroker, topic: str, number: int, delays: list[float]) -> None:
    import pulsar

    reader = broker.client().create_reader(topic, pulsar.MessageId.latest, receiver_queue_size=_QUEUE)
    while len(delays) < number:
        message = reader.read_next(timeout_millis=_RECEIVE_MS)
        if message.properties()["type"] == str(int(MsgType.TIME_TICK)):
            delays.append(_age_s(int(message.properties()["time"])))
    reader.close()


def _age_s(tick: int) -> float:
    return time.time() - Tick(tick).physical_ms / 1_000
