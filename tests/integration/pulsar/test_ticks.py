"""Ticks of topics: tickers fence each other, late messages are delivered, and a missing tick is reported."""

import asyncio
import logging
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pulsar as library
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tidelog import tracing
from tidelog.msgstream import (
    AsyncPulsarMsgStreamFactory,
    AsyncTimeTicker,
    InsertMsg,
    MsgPack,
    PackTooLargeError,
    PulsarBroker,
    StreamFencedError,
    SubscriptionPosition,
    TimeTickMsg,
)
from tidelog.msgstream._pulsar import tt_stream as module
from tidelog_testing.parts.pulsar_topics import NewTopics
from tidelog_testing.parts.streams import full_packs, ids, ids_from, pack, subscribed
from tidelog_testing.parts.waiting import until


@pytest.fixture
def clock() -> Iterator[int]:
    """A clock of ticks that starts far above the present, so that it is the only source of time."""
    return count(1 << 62, 1_000)


@pytest.fixture
def reader() -> Iterator[InMemoryMetricReader]:
    """Measure the operations of clients."""
    reader = InMemoryMetricReader()
    tracing.enable_metrics(MeterProvider([reader]))
    yield reader
    tracing.disable()


def timed(number: int, time: int, key: int = 0) -> InsertMsg:
    return InsertMsg(id=number, row_ids=[number], begin_ts=time, end_ts=time, hash_keys=[key])


def points(reader: InMemoryMetricReader, name: str) -> dict[Any, Any]:
    """Return the values of a metric, by topic or else subscription."""
    data = reader.get_metrics_data()
    scopes = [] if data is None else data.resource_metrics[0].scope_metrics
    found: list[Any] = [
        point
        for metric in (scopes[0].metrics if scopes else [])
        if metric.name == name
        for point in metric.data.data_points
    ]
    topic, group = "messaging.destination.name", "messaging.consumer.group.name"
    return {each.attributes.get(topic, each.attributes[group]): each.value for each in found}


def tick(time: int) -> MsgPack:
    return MsgPack(msgs=[TimeTickMsg(begin_ts=time, end_ts=time)])


async def test_a_later_ticker_continues_while_pulsar_answers_that_there_is_no_message(
    broker: PulsarBroker, new_topics: NewTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = await new_topics(1)
    async with AsyncTimeTicker(broker, topics, interval_ms=10, safe_time=lambda: 1 << 62) as earlier:
        await until(lambda: earlier.last_tick >= (1 << 62) + 2)

    monkeypatch.setattr(library.Reader, "has_message_available", lambda _: False)
    async with AsyncTimeTicker(broker, topics, interval_ms=10, safe_time=lambda: 0) as later:
        # It has read the earlier one's last tick before it sends one.
        await until(lambda: later.last_tick > earlier.last_tick)


async def test_a_pack_ends_when_every_topic_has_the_tick(
    factory: AsyncPulsarMsgStreamFactory, new_topics: NewTopics
) -> None:
    topics = await new_topics(2)
    async with factory.new_tt_msg_stream() as stream:
        await subscribed(stream, topics)
        await stream.produce(MsgPack(msgs=[timed(1, 5), timed(2, 15, key=1), timed(3, 10, key=1), timed(4, 11)]))
        await stream.broadcast(tick(10))
        await stream.broadcast(tick(20))
        packs = [await stream.consume(), await stream.consume()]

    assert [(each.begin_ts, each.end_ts, sorted(ids(each.msgs))) for each in packs] == [
        (0, 10, [1, 3]),
        (10, 20, [2, 4]),
    ]


async def test_pursuit_merges_packs_that_are_far_behind(
    factory: AsyncPulsarMsgStreamFactory, new_topics: NewTopics
) -> None:
    topics = await new_topics(2)
    factory.set_params({"pursuit_mode": True})
    begin_ms = time.time_ns() // 1_000_000 - 3_600_000
    async with factory.new_tt_msg_stream() as stream:
        await subscribed(stream, topics)
        for number in range(1, 81):
            now = (begin_ms + 1_000 * number) << 18
            await stream.produce(MsgPack(msgs=[timed(number, now, key=number)]))
            await stream.broadcast(tick(now))
        # The stream is no longer behind with it.
        await stream.broadcast(tick((begin_ms + 3_600_000) << 18))
        merged = await stream.consume()
    async with factory.new_tt_msg_stream() as stream:
        await stream.as_consumer(topics, "later", SubscriptionPosition.UNKNOWN)
        await stream.seek(merged.end_positions)
        following = await stream.consume()

    assert sorted(ids(merged.msgs)) == list(range(1, 62))
    assert sorted(ids(following.msgs)) == list(range(62, 81))


async def test_late_messages_are_in_the_next_pack_and_counted(
    factory: AsyncPulsarMsgStreamFactory, new_topics: NewTopics, reader: InMemoryMetricReader
) -> None:
    async with factory.new_tt_msg_stream() as stream:
        topics = await new_topics(1)
        await stream.as_consumer(topics, "counted")
        await stream.as_producer(topics)
        for each in (tick(10), MsgPack(msgs=[timed(1, 7)]), tick(20)):
            await stream.broadcast(each)
        packs = [await stream.consume(), await stream.consume()]
        late = stream.status.late_messages

    assert [ids(each.msgs) for each in packs] == [[], [1]]
    assert late == 1
    assert points(reader, "tidelog.msgstream.late_messages")["counted"] == 1


async def test_a_topic_without_ticks_is_named(
    factory: AsyncPulsarMsgStreamFactory, new_topics: NewTopics, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, reader: InMemoryMetricReader,
) -> None:  # fmt: skip
    monkeypatch.setattr(module, "WAITING_AFTER_S", 0.2)
    one, two = await new_topics(2)
    async with factory.new_tt_msg_stream() as stream:
        await subscribed(stream, [one, two])
        stream.set_repack_func(lambda msgs, _: {0: MsgPack(msgs=msgs)})
        await stream.produce(tick(10))
        with caplog.at_level(logging.WARNING, logger="tidelog"):
            waiting = asyncio.create_task(stream.consume())
            await until(lambda: any(f"no tick came on {two}" in record.getMessage() for record in caplog.records))
        status, waits = stream.status, points(reader, "tidelog.msgstream.tick_wait")
        stream.set_repack_func(lambda msgs, _: {1: MsgPack(msgs=msgs)})
        await stream.produce(tick(10))
        assert (await waiting).end_ts == 10

    assert status.waits_for == (two,)
    assert status.waits_since_s > 0
    assert list(waits) == [two]
    assert waits[two] >= 0.2
    assert points(reader, "tidelog.msgstream.tick_wait") == {}


async def test_a_later_ticker_fences_an_earlier_one_and_continues_above(
    broker: PulsarBroker, factory: AsyncPulsarMsgStreamFactory, new_topics: NewTopics, clock: Iterator[int]
) -> None:
    topics = await new_topics(2)
    ahead = AsyncTimeTicker(broker, topics, interval_ms=20, safe_time=lambda: next(clock))
    behind = AsyncTimeTicker(broker, topics, interval_ms=20, safe_time=lambda: 5)
    async with factory.new_tt_msg_stream() as stream, ahead:
        await subscribed(stream, topics)
        first = [await stream.consume() for _ in range(3)]
        async with behind:
            with pytest.raises(StreamFencedError, match="a later stream or ticker has taken over"):
                await ahead.wait()
            last = ahead.last_tick
            while (await stream.consume()).end_ts <= last:
                pass
            following = await stream.consume()

    assert [each.end_ts for each in first] == [1 << 62, (1 << 62) + 1_000, (1 << 62) + 2_000]
    assert following.end_ts > last


async def test_a_pack_over_the_limit_is_an_error(factory: AsyncPulsarMsgStreamFactory, new_topics: NewTopics) -> None:
    factory.set_params({"max_pack_bytes": 1_000})
    topics = await new_topics(1)
    large = [InsertMsg(id=number, row_data=[bytes(600)], begin_ts=5, end_ts=5) for number in (1, 2)]
    async with factory.new_tt_msg_stream() as stream:
        await subscribed(stream, topics)
        await stream.produce(MsgPack(msgs=large))
        with pytest.raises(PackTooLargeError, match="write ticks more often, or raise max_pack_bytes"):
            await stream.consume()
    factory.set_params({"max_pack_bytes": 10_000})
    async with factory.new_tt_msg_stream() as again:
        await subscribed(again, topics)
        await again.broadcast(tick(10))
        assert await ids_from(again, 2) == [1, 2]


async def test_messages_without_a_time_have_that_of_their_sending(
    broker: PulsarBroker, factory: AsyncPulsarMsgStreamFactory, new_topics: NewTopics
) -> None:
    topics = await new_topics(3)
    async with factory.new_tt_msg_stream() as stream, AsyncTimeTicker(broker, topics, interval_ms=20):
        await subscribed(stream, topics)
        for number in range(20):
            await stream.produce(pack(number, key=number))
        packs = await full_packs(stream, 20)

    for each in packs:
        assert all(
            each.begin_ts < message.end_ts <= each.end_ts or message.end_ts <= each.begin_ts for message in each.msgs
        )
    assert sorted(number for each in packs for number in ids(each.msgs)) == list(range(20))


@pytest.mark.parametrize("options", [{"interval_ms": 9}, {"interval_ms": 60_001}])
def test_invalid_intervals_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="expected 10 to 60000"):
        AsyncTimeTicker(PulsarBroker(), ["topic"], interval_ms=options["interval_ms"])
    with pytest.raises(ValueError, match="expected at least one"):
        AsyncTimeTicker(PulsarBroker(), [])
