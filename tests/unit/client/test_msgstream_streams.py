"""Streams in memory: cancelling, several tasks, pursuit, bounds. Method: streams of one event loop."""

import asyncio
from collections.abc import Mapping

import pytest

from tidelog import Message, Tick, UnavailableError
from tidelog.msgstream import (
    AsyncMemMsgStreamFactory,
    BrokerFullError,
    InsertMsg,
    MemBroker,
    MemSubscriptionStore,
    MsgPack,
    MsgPosition,
    SubscriptionPosition,
    TsMsg,
)
from tidelog_testing.parts.streams import full_packs, received

INTERVAL_MS = 10


class Clock:
    """A clock in milliseconds that a test sets."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def broker() -> MemBroker:
    broker = MemBroker()
    for name in ("a", "b"):
        broker.create_channel(name)
    return broker


@pytest.fixture
def factory(broker: MemBroker) -> AsyncMemMsgStreamFactory:
    factory = AsyncMemMsgStreamFactory(broker)
    factory.set_params({"tick_interval_ms": INTERVAL_MS})
    return factory


def pack(number: int) -> MsgPack:
    return MsgPack(msgs=[InsertMsg(id=number, row_data=[b"x" * 100], hash_keys=[number])])


@pytest.mark.parametrize("kind", ["new_msg_stream", "new_tt_msg_stream"])
async def test_cancelling_a_consumer_loses_nothing(factory: AsyncMemMsgStreamFactory, kind: str) -> None:
    async with getattr(factory, kind)() as stream:
        await stream.as_producer(["a", "b"])
        await stream.as_consumer(["a", "b"], "sub")
        came: list[TsMsg] = []
        for number in range(1, 31):
            await stream.produce(pack(number))
            consuming = asyncio.create_task(stream.consume())
            for _ in range(number % 4):
                await asyncio.sleep(0)
            consuming.cancel()
            await asyncio.wait((consuming,))
            came += [] if consuming.cancelled() else consuming.result().msgs
        came += await received(stream, 30 - len(came))

    assert [message.id for message in came] == list(range(1, 31))


async def test_a_pack_leaves_a_channel_that_begins_behind_it_where_it_is(
    broker: MemBroker, factory: AsyncMemMsgStreamFactory
) -> None:
    def send(channel: str, number: int) -> int:
        return broker.append({channel: [Message(InsertMsg(id=number).marshal(), type=400)]})[channel][0]

    first = send("a", 1)
    async with factory.new_tt_msg_stream() as stream:
        await stream.as_consumer(["a", "b"], "sub")
        # Read to the end of its interval, so that the others lie after it.
        await full_packs(stream, 1)
        later = send("b", 2)
        await stream.seek([MsgPosition("a", Tick(0).message_id), MsgPosition("b", Tick(later).message_id, "", later)])
        [one] = await full_packs(stream, 1)
        assert [message.position and message.position.timestamp for message in one.msgs] == [first]
        await stream.seek(one.end_positions)
        behind = send("b", 3)

        assert [message.begin_ts for message in await received(stream, 1)] == [behind]


class FailingStore(MemSubscriptionStore):
    """A store of which every second save fails."""

    def __init__(self) -> None:
        super().__init__()
        self.saves = 0

    async def save(self, sub_name: str, ticks: Mapping[str, int]) -> None:
        """Save these ticks, or fail."""
        self.saves += 1
        if self.saves % 2:
            raise UnavailableError("the store is away")
        await super().save(sub_name, ticks)


async def test_progress_that_could_not_be_saved_is_saved_with_the_next_pack(broker: MemBroker) -> None:
    broker.subscriptions = FailingStore()
    factory = AsyncMemMsgStreamFactory(broker)
    async with factory.new_msg_stream() as stream:
        await stream.as_producer(["a", "b"])
        await stream.as_consumer(["a", "b"], "sub")
        # One for each channel: only the save shows that the first was delivered.
        sent = {**await stream.produce(pack(2)), **await stream.produce(pack(3))}
        await stream.consume()
        with pytest.raises(UnavailableError):
            await stream.consume()
        await stream.consume()
        saved = await broker.subscriptions.load("sub", ["a", "b"])

    assert saved == {"a": int.from_bytes(sent["a"][0], "big")}


async def test_each_pack_goes_to_one_of_several_tasks(factory: AsyncMemMsgStreamFactory) -> None:
    async with factory.new_msg_stream() as stream:
        await stream.as_producer(["a"])
        await stream.as_consumer(["a"], "sub")
        consuming = [asyncio.create_task(stream.consume()) for _ in range(5)]
        await asyncio.sleep(0)
        for number in range(1, 6):
            await stream.produce(pack(number))

        packs = await asyncio.gather(*consuming)
        await stream.produce(pack(6))
        packs.append(await stream.consume())
    assert sorted(each.msgs[0].id for each in packs) == [1, 2, 3, 4, 5, 6]


async def test_a_seek_while_somebody_waits_leads_him_there(factory: AsyncMemMsgStreamFactory) -> None:
    async with factory.new_msg_stream() as stream:
        await stream.as_producer(["a"])
        await stream.as_consumer(["a"], "sub", SubscriptionPosition.LATEST)
        sent = await stream.produce(pack(1))
        assert [message.id for message in await received(stream, 1)] == [1]
        consuming = asyncio.create_task(stream.consume())
        await asyncio.sleep(0)
        await stream.seek([MsgPosition("a", sent["a"][0])], include_message=True)

        assert (await consuming).msgs[0].id == 1


@pytest.mark.parametrize("turns", range(1, 12, 2))
async def test_a_seek_while_a_large_pack_is_decoded_leads_elsewhere(
    broker: MemBroker, factory: AsyncMemMsgStreamFactory, turns: int
) -> None:
    broker.append({"a": [Message(InsertMsg(row_ids=[1]).marshal(), type=400)]})
    large = broker.append({"a": [Message(InsertMsg(row_ids=[2]).marshal(), type=400)] * 2_000})["a"]
    async with factory.new_tt_msg_stream() as stream:
        await stream.as_consumer(["a"], "sub")
        await stream.seek([MsgPosition("a", Tick(large[0]).message_id)])
        consuming = asyncio.create_task(full_packs(stream, 2_000))
        for _ in range(turns):
            await asyncio.sleep(0)
        await stream.seek([MsgPosition("a", Tick(0).message_id)])
        if consuming.done():
            consuming = asyncio.create_task(full_packs(stream, 2_001))

        assert len([message for each in await consuming for message in each.msgs]) == 2_001


async def test_pursuit_merges_packs_of_an_old_log(broker: MemBroker) -> None:
    clock = Clock()
    old = MemBroker(clock_ms=clock)
    old.create_channel("a")
    factory = AsyncMemMsgStreamFactory(old)
    factory.set_params({"tick_interval_ms": 100, "pursuit_mode": True})
    async with factory.new_tt_msg_stream() as stream:
        await stream.as_producer(["a"])
        await stream.as_consumer(["a"], "sub")
        for number in range(1, 201):
            await stream.produce(pack(number))
            clock.now_ms += 500
        packs = await full_packs(stream, 100)

    assert [message.id for each in packs for message in each.msgs] == list(range(1, len(packs[0].msgs) + 1))
    assert 59_900 <= (packs[0].end_ts - packs[0].msgs[0].begin_ts) >> 18 <= 60_600


async def test_a_clock_that_is_wrong_is_no_lag() -> None:
    clock = Clock()
    broker = MemBroker(clock_ms=clock)
    broker.create_channel("a")
    factory = AsyncMemMsgStreamFactory(broker)
    factory.set_params({"tick_interval_ms": 100, "pursuit_mode": True})
    async with factory.new_tt_msg_stream() as stream:
        await stream.as_producer(["a"])
        await stream.as_consumer(["a"], "sub", SubscriptionPosition.LATEST)
        packs = []
        for number in range(1, 6):
            await stream.produce(pack(number))
            clock.now_ms += 100
            packs += await full_packs(stream, 1)

    assert [len(each.msgs) for each in packs] == [1] * 5


async def test_a_pack_that_would_be_too_large_is_divided_alike_for_everybody(factory: AsyncMemMsgStreamFactory) -> None:
    factory.set_params({"tick_interval_ms": 60_000, "max_pack_bytes": 1_000})
    async with factory.new_tt_msg_stream() as stream, factory.new_tt_msg_stream() as other:
        await stream.as_producer(["a"])
        for each in (stream, other):
            await each.as_consumer(["a"], "sub")
        for number in range(1, 40):
            await stream.produce(pack(number))

        packs = await full_packs(stream, 30)
        assert packs == await full_packs(other, 30)
    assert all(sum(message.size_bytes for message in each.msgs) < 1_500 for each in packs)


async def test_the_broker_in_memory_has_a_bound(broker: MemBroker) -> None:
    small = MemBroker(max_bytes=250)
    small.create_channel("a")
    small.append({"a": [Message(b"x" * 200)]})

    with pytest.raises(BrokerFullError, match="of at most 250, so 232 more do not fit"):
        small.append({"a": [Message(b"x" * 200)]})
    small.destroy_channel("a")
    small.create_channel("a")
    small.append({"a": [Message(b"x" * 200)]})


async def test_a_long_log_in_memory_is_read_in_pieces(broker: MemBroker, factory: AsyncMemMsgStreamFactory) -> None:
    body = InsertMsg().marshal()
    broker.append({name: [Message(body, type=400)] * 5_500 for name in ("a", "b")})
    async with factory.new_tt_msg_stream() as stream:
        await stream.as_consumer(["a", "b"], "sub")
        [whole] = await full_packs(stream, 11_000)

    # Messages that were sent together form one pack.
    assert len(whole.msgs) == 11_000


async def test_time_that_stands_still_or_goes_back_gives_growing_ticks() -> None:
    clock = Clock()
    broker = MemBroker(clock_ms=clock)
    broker.create_channel("a")
    ticks: list[int] = []
    for step_ms in (0, 0, -500, 3):
        clock.now_ms += step_ms
        ticks += broker.append({"a": [Message(b"")]})["a"]

    assert ticks == sorted(set(ticks))
