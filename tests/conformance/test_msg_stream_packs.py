"""Packs and positions of message streams, on each kind of broker.

Method: both variants of streams, in memory and on a real server; the synchronous ones with each call on a thread.
"""

import asyncio
from itertools import pairwise

import pytest

from tidelog import Tick
from tidelog.msgstream import (
    AsyncMsgStreamFactory,
    BadPositionError,
    CollectionMsg,
    DeleteMsg,
    GeneralMsg,
    InsertMsg,
    MsgPack,
    MsgPosition,
    MsgType,
    NotSubscribedError,
    SubscriptionPosition,
    TimeTickMsg,
)
from tidelog_testing.parts.streams import (
    INTERVAL_MS,
    NewStream,
    StreamBroker,
    full_packs,
    ids,
    ids_from,
    pack,
    received,
    subscribed,
)

LATEST = SubscriptionPosition.LATEST


# ------------------------------------------------------------------------------------------------- seeking


async def test_any_pack_leads_to_the_rest(broker: StreamBroker, new_stream: NewStream) -> None:
    channels = await broker.channels(2)
    async with new_stream() as stream:
        await subscribed(stream, channels)
        for number in range(1, 6):
            await stream.broadcast(pack(2 * number, 2 * number + 1))
            await stream.produce(pack(100 + number, key=number))
        packs = broker.in_order(await full_packs(stream, 25))

        for index in reversed(range(len(packs))):
            # A pack of a plain stream has only the position of one channel.
            behind = {name: MsgPosition(name, broker.empty_id) for name in channels}
            behind |= {each.channel_name: each for before in packs[: index + 1] for each in before.end_positions}
            await stream.seek(behind.values())
            rest = packs[index + 1 :]
            assert broker.in_order(await full_packs(stream, sum(len(each.msgs) for each in rest))) == rest


async def test_a_position_of_another_channel_is_refused(broker: StreamBroker, new_stream: NewStream) -> None:
    one, two = await broker.channels(2)
    async with new_stream() as stream:
        await subscribed(stream, [one])
        with pytest.raises(NotSubscribedError, match=f"does not consume '{two}': expected one of {one}") as refused:
            await stream.seek([MsgPosition(two, Tick(1).message_id)])

    assert refused.value.channel == two


@pytest.mark.parametrize("message_id", [b"", b"short", b"\xff" * 8, Tick(1 << 62).message_id, None, "earliest"])
async def test_a_position_that_is_none_is_refused(
    broker: StreamBroker, new_stream: NewStream, message_id: bytes
) -> None:
    [channel] = await broker.channels(1)
    async with new_stream() as stream:
        await subscribed(stream, [channel])
        await stream.produce(pack(1))
        with pytest.raises(BadPositionError, match="expected 8 bytes|expected a serialized|take positions"):  # noqa: RUF043 - it is one
            await stream.seek([MsgPosition(channel, message_id)])
        with pytest.raises(BadPositionError, match="with timestamp -1, expected 0"):
            await stream.seek([MsgPosition(channel, broker.empty_id, timestamp=-1)])
        assert await ids_from(stream, 1) == [1]
    broker.factory.set_params({"ignore_bad_positions": True})
    async with new_stream() as lenient:
        await subscribed(lenient, [channel], sub_name="lenient")
        await lenient.seek([MsgPosition(channel, message_id)])
        await lenient.produce(pack(2))
        assert await ids_from(lenient, 1) == [2]


async def test_a_seek_leaves_the_message_out_unless_it_is_to_be_included(
    broker: StreamBroker, new_stream: NewStream
) -> None:
    async with new_stream() as stream:
        await subscribed(stream, await broker.channels(1))
        await broker.produce_between_ticks(stream, pack(1, 2, 3).msgs)
        position = (await received(stream, 3))[1].position
        assert position is not None

        await stream.seek([position])
        assert await ids_from(stream, 1) == [3]
        await stream.seek([position], include_message=True)
        assert await ids_from(stream, 2) == [2, 3]


@pytest.mark.parametrize("include_message", [True, False])
async def test_the_latest_id_of_an_empty_channel_leads_to_its_first_message(
    broker: StreamBroker, new_stream: NewStream, *, include_message: bool
) -> None:
    [channel] = await broker.channels(1)
    stream = new_stream()
    await subscribed(stream, [channel], LATEST)
    position = MsgPosition(channel, await stream.get_latest_msg_id(channel))
    await stream.seek([position], include_message=include_message)
    for number in (1, 2):
        await stream.produce(pack(number))
        assert await ids_from(stream, 1) == [number]
    # Seek back from the saved position of the subscription.
    await stream.seek([position], include_message=include_message)
    assert (await received(stream, 1))[0].id == 1
    async with asyncio.timeout(20):
        await stream.close()


# ------------------------------------------------------------------------------------------------- plain


async def test_a_plain_pack_is_one_message_with_its_time(broker: StreamBroker) -> None:
    async with broker.factory.new_msg_stream() as stream:
        await subscribed(stream, await broker.channels(2))
        await stream.broadcast(pack(1, 2))
        packs = await full_packs(stream, 4)

    assert [len(each.msgs) for each in packs] == [1, 1, 1, 1]
    for each in packs:
        position = each.msgs[0].position
        assert position is not None
        assert each.begin_ts == each.end_ts == position.timestamp
        assert position.msg_id == Tick(position.timestamp).message_id or not broker.capabilities.log_ticks
        assert list(each.start_positions) == list(each.end_positions) == [position]
        assert position.msg_group == "sub"


# ------------------------------------------------------------------------------------------------- time tick


async def test_ticks_that_are_stored_as_messages_are_in_no_pack(broker: StreamBroker) -> None:
    ticks = MsgPack(msgs=[TimeTickMsg(id=7), GeneralMsg(type=MsgType.TIME_TICK, id=8)])
    async with broker.new_tt_msg_stream() as stream, broker.factory.new_msg_stream() as plain:
        channels = await broker.channels(2)
        await subscribed(stream, channels)
        await plain.as_consumer(channels, "other")
        await stream.broadcast(ticks)
        await stream.produce(pack(1))
        await stream.broadcast(ticks)
        await stream.produce(pack(2))
        assert await ids_from(stream, 2) == [1, 2]
        # A plain stream delivers whatever was sent, the ticks of a ticker included.
        came: list[int] = []
        while len(came) < 10:
            came += [each for each in await ids_from(plain, 1) if each]
        assert sorted(came) == [1, 2, *[7] * 4, *[8] * 4]


async def test_packs_lie_on_the_grid_and_follow_one_another(broker: StreamBroker) -> None:
    async with broker.new_tt_msg_stream() as stream:
        channels = await broker.channels(3)
        await stream.as_producer(channels[:2])
        await stream.as_consumer(channels, "sub", LATEST)
        packs = []
        for number in range(1, 6):
            await stream.broadcast(pack(number))
            packs += [await stream.consume(), await stream.consume()]

    for before, after in pairwise(packs):
        assert after.begin_ts == before.end_ts
        assert list(after.start_positions) == list(before.end_positions)
    for each in packs:
        assert [position.timestamp for position in each.end_positions] == [each.end_ts] * 3
        if not broker.capabilities.log_ticks:
            # Ends are ticks of the producers, and a message may be late.
            continue
        assert ((each.end_ts + 1) >> 18) % INTERVAL_MS == 0
        assert (each.end_ts + 1) & ((1 << 18) - 1) == 0
        assert all(
            each.begin_ts < message.position.timestamp <= each.end_ts for message in each.msgs if message.position
        )


async def test_all_consumers_get_the_same_packs(broker: StreamBroker) -> None:
    async with broker.new_tt_msg_stream() as one, broker.new_tt_msg_stream() as two:
        channels = await broker.channels(4)
        await subscribed(one, channels)
        for number in range(1, 21):
            await one.broadcast(pack(number)) if number % 5 == 0 else await one.produce(pack(number, key=number % 2))
        # The other stream begins when most messages have been sent.
        await subscribed(two, channels, sub_name="other")

        assert await full_packs(two, 32) == await full_packs(one, 32)


async def test_an_idle_stream_says_that_time_passes(broker: StreamBroker) -> None:
    async with broker.new_tt_msg_stream() as stream:
        await subscribed(stream, await broker.channels(2), LATEST)
        packs = [await stream.consume() for _ in range(4)]

    assert all(each.is_empty for each in packs)
    assert [each.begin_ts for each in packs[1:]] == [each.end_ts for each in packs[:-1]]


async def test_a_drop_of_a_collection_ends_its_pack(broker: StreamBroker) -> None:
    async with broker.new_tt_msg_stream() as stream:
        await subscribed(stream, await broker.channels(1))
        drop = CollectionMsg(type=MsgType.DROP_COLLECTION, id=2)
        await broker.produce_between_ticks(stream, [*pack(1).msgs, drop, *pack(3).msgs])
        packs = await full_packs(stream, 3)

    assert [ids(each.msgs) for each in packs] == [[1, 2], [3]]
    assert packs[0].end_ts == packs[0].msgs[1].end_ts
    assert packs[1].begin_ts == packs[0].end_ts
    # The position is that of the next message, which is known already.
    following = packs[1].msgs[0].position
    assert following is not None
    assert packs[0].end_positions[0].msg_id == following.msg_id


async def test_a_repeated_insert_comes_once_in_a_pack_and_a_definition_as_often_as_it_was_sent(
    broker: StreamBroker,
) -> None:
    define = CollectionMsg(type=MsgType.CREATE_COLLECTION, id=9)
    messages = [
        *pack(1, 1).msgs, define, define, InsertMsg(id=1, source_id=2), DeleteMsg(id=1), DeleteMsg(id=1), InsertMsg(),
        InsertMsg(),
    ]  # fmt: skip
    async with broker.new_tt_msg_stream() as stream:
        await subscribed(stream, await broker.channels(1))
        await broker.produce_between_ticks(stream, messages, at_once=True)
        came = await received(stream, 7)

    assert [(type(message), message.id) for message in came] == [
        (InsertMsg, 1), (CollectionMsg, 9), (CollectionMsg, 9), (InsertMsg, 1), (DeleteMsg, 1), (InsertMsg, 0),
        (InsertMsg, 0),
    ]  # fmt: skip


async def test_a_seek_far_back_keeps_the_packs(broker: StreamBroker) -> None:
    async with broker.new_tt_msg_stream() as stream:
        channels = await broker.channels(2)
        await subscribed(stream, channels)
        first: list[MsgPack] = []
        for number in range(1, 6):
            await stream.broadcast(pack(number))
            first += await full_packs(stream, 2)
        await stream.seek([MsgPosition(name, broker.empty_id) for name in channels])

        assert await full_packs(stream, 10) == first


def test_the_factory_is_what_others_derive_from(broker: StreamBroker) -> None:
    assert isinstance(broker.factory, AsyncMsgStreamFactory)
    with pytest.raises(ValueError, match="unknown parameters: pulsar_address; expected some of tick_interval_ms"):
        broker.factory.set_params({"pulsar_address": ""})
