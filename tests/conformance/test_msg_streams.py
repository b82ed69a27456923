"""Message streams send and receive, on each kind of broker. See test_msg_stream_packs.py for the ends of packs.

Method: both variants of streams, in memory and on a real server; the synchronous ones with each call on a thread.
"""

import asyncio
from collections.abc import Callable, Sequence

import pytest

import tidelog
from tidelog import Message
from tidelog.msgstream import (
    AsyncMsgStream,
    DeleteMsg,
    EmptyPackError,
    GeneralMsg,
    InsertMsg,
    MalformedMessageError,
    MessageTooLargeError,
    MsgPack,
    MsgPosition,
    MsgStreamError,
    MsgType,
    RepackError,
    StreamStateError,
    SubscriptionPosition,
    TimeTickMsg,
    TsMsg,
    UnknownMsgTypeError,
    class_of_type,
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

EARLIEST, LATEST, UNKNOWN = SubscriptionPosition


# ------------------------------------------------------------------------------------------------- sending


async def test_what_is_produced_comes_out_once_and_in_its_order(broker: StreamBroker, new_stream: NewStream) -> None:
    channels = await broker.channels(3)
    async with new_stream() as stream:
        await subscribed(stream, channels)
        for first in (1, 4, 7):
            await stream.produce(pack(first, first + 1, first + 2, key=first % 3))

        assert await ids_from(stream, 9) == list(range(1, 10))


async def test_every_type_can_be_sent_and_received(broker: StreamBroker, new_stream: NewStream) -> None:
    messages = [
        class_of_type(kind)(type=kind, id=number)
        for number, kind in enumerate(MsgType, 1)
        # Not sent as a message: packs replace it, see below.
        if kind is not MsgType.TIME_TICK
    ]
    async with new_stream() as stream:
        await subscribed(stream, await broker.channels(1))
        await stream.produce(MsgPack(msgs=messages))
        came = await received(stream, len(messages))

    for message in came:
        assert (message.begin_ts, message.end_ts) == (message.position.timestamp,) * 2 if message.position else None
        message.set_ts(0)
    assert came == messages


async def test_times_and_traces_of_the_producer_are_kept(broker: StreamBroker, new_stream: NewStream) -> None:
    sent = DeleteMsg(id=1, begin_ts=5, end_ts=9, source_id=3, trace_context={"traceparent": "00-1-2-01"})
    async with new_stream() as stream:
        await subscribed(stream, await broker.channels(1))
        await stream.produce(MsgPack(msgs=[sent]))

        assert await received(stream, 1) == [sent]


async def test_nothing_is_sent_as_nothing(broker: StreamBroker, new_stream: NewStream) -> None:
    async with new_stream() as stream:
        await subscribed(stream, await broker.channels(2))

        assert await stream.produce(None) == {}
        assert await stream.produce(MsgPack()) == {}
        with pytest.raises(EmptyPackError, match="at least one message"):
            await stream.broadcast(MsgPack())
        with pytest.raises(EmptyPackError):
            await stream.broadcast(None)


async def test_what_is_no_pack_is_told(broker: StreamBroker, new_stream: NewStream) -> None:
    async with new_stream() as stream:
        await stream.as_producer(await broker.channels(2))
        for send in (stream.produce, stream.broadcast):
            with pytest.raises(TypeError, match="the pack is list, expected a MsgPack"):
                await send([InsertMsg()])  # type: ignore[arg-type]  # the point of the test
            with pytest.raises(MalformedMessageError, match="is bytes: expected a TsMsg"):
                await send(MsgPack(msgs=[b"text"]))  # type: ignore[list-item]  # the point of the test
            with pytest.raises(MalformedMessageError, match="has type -1: expected 0 to 4294967295"):
                await send(MsgPack(msgs=[GeneralMsg(type=-1, hash_keys=[0])]))


async def test_without_producers_nothing_can_be_sent(new_stream: NewStream) -> None:
    async with new_stream() as stream:
        for send in (stream.produce, stream.broadcast):
            with pytest.raises(StreamStateError, match="no producers: call as_producer"):
                await send(pack(1))
        with pytest.raises(StreamStateError):
            stream.compute_produce_channel_indexes([InsertMsg()])


async def test_repeated_channels_change_nothing(broker: StreamBroker, new_stream: NewStream) -> None:
    channels = await broker.channels(2)
    async with new_stream() as stream:
        await subscribed(stream, channels)
        await subscribed(stream, channels[::-1] * 2, LATEST)

        assert stream.compute_produce_channel_indexes([InsertMsg(hash_keys=[4, 5])]) == [[0, 1]]
        assert list(await stream.produce(pack(1, key=1))) == channels[1:]
        assert await ids_from(stream, 1) == [1]


async def test_rows_go_where_their_keys_say(broker: StreamBroker, new_stream: NewStream) -> None:
    channels = await broker.channels(2)
    async with new_stream() as stream:
        await subscribed(stream, channels)
        insert = InsertMsg(id=1, row_ids=[10, 11, 12], hash_keys=[0, 1, 2])
        await stream.produce(MsgPack(msgs=[insert, DeleteMsg(id=2, hash_keys=[3])]))
        came = await received(stream, 3)

    where = {(message.id, tuple(getattr(message, "row_ids", ()))): message.position for message in came}
    assert {key: found.channel_name for key, found in where.items() if found} == {
        (1, (10, 12)): channels[0],
        (1, (11,)): channels[1],
        (2, ()): channels[1],
    }


async def test_a_repack_function_divides_instead(broker: StreamBroker, new_stream: NewStream) -> None:
    channels = await broker.channels(2)
    seen: list[Sequence[Sequence[int]]] = []

    def to_the_last(msgs: Sequence[TsMsg], keys: Sequence[Sequence[int]]) -> dict[int, MsgPack]:
        seen.append(keys)
        return {1: MsgPack(msgs=msgs)}

    async with new_stream() as stream:
        await stream.as_producer(channels)
        stream.set_repack_func(to_the_last)
        assert list(await stream.produce(pack(1, key=2))) == [channels[1]]
        stream.set_repack_func(lambda msgs, _: {2: MsgPack(msgs=msgs)})
        with pytest.raises(RepackError, match="a pack for channel 2, expected 0 to 1"):
            await stream.produce(pack(2))
        stream.set_repack_func(None)
        assert list(await stream.produce(pack(3, key=2))) == [channels[0]]

    assert seen == [[[0]]]


async def test_a_pack_that_cannot_be_sent_is_refused_as_a_whole(broker: StreamBroker, new_stream: NewStream) -> None:
    broker.factory.set_params({"max_message_bytes": 1_000})
    async with new_stream() as stream:
        await subscribed(stream, await broker.channels(2))
        large = InsertMsg(id=8, row_data=[b"x" * 1_001], hash_keys=[1])
        for send in (stream.produce, stream.broadcast):
            with pytest.raises(MessageTooLargeError, match="the InsertMsg with id 8 has") as refused:
                await send(MsgPack(msgs=[*pack(1).msgs, large]))
            assert refused.value.max_bytes == 1_000 < refused.value.size_bytes
            with pytest.raises(MalformedMessageError):
                await send(MsgPack(msgs=[*pack(1).msgs, DeleteMsg(id=1 << 70, hash_keys=[1])]))
        with pytest.raises(RepackError, match="no hash keys"):
            await stream.produce(MsgPack(msgs=[*pack(1).msgs, TimeTickMsg()]))
        await stream.produce(pack(2))

        assert await ids_from(stream, 1) == [2]


UNEVEN = [
    InsertMsg(id=1, row_ids=[1, 2], row_data=[b"a"], hash_keys=[7, 7]),
    InsertMsg(id=1, row_ids=[1, 2], timestamps=[1, 2, 3], hash_keys=[7, 7]),
]


@pytest.mark.parametrize("uneven", UNEVEN)
@pytest.mark.parametrize("number", [1, 2])
async def test_an_insert_whose_columns_differ_in_length_is_not_sent(
    broker: StreamBroker, new_stream: NewStream, uneven: InsertMsg, number: int
) -> None:
    async with new_stream() as stream:
        await subscribed(stream, await broker.channels(number))
        with pytest.raises(RepackError, match="message 1 of the pack, an InsertMsg, has"):
            await stream.produce(MsgPack(msgs=[*pack(1).msgs, uneven]))
        stream.set_repack_func(lambda msgs, _: {0: MsgPack(msgs=msgs)})
        for send in (stream.produce, stream.broadcast):
            with pytest.raises(MalformedMessageError, match="columns of different lengths"):
                await send(MsgPack(msgs=[*pack(1).msgs, uneven]))
        await stream.produce(pack(2))

        assert await ids_from(stream, 1) == [2]


async def test_with_one_channel_keys_that_are_given_belong_to_the_rows(
    broker: StreamBroker, new_stream: NewStream
) -> None:
    async with new_stream() as stream:
        await subscribed(stream, await broker.channels(1))
        with pytest.raises(RepackError, match="'hash_keys': 1, 'row_ids': 2"):
            await stream.produce(MsgPack(msgs=[InsertMsg(id=1, row_ids=[1, 2], hash_keys=[7])]))
        await stream.produce(MsgPack(msgs=[InsertMsg(id=2, row_ids=[1, 2])]))

        assert await ids_from(stream, 1) == [2]


async def test_a_broadcast_goes_to_every_channel(broker: StreamBroker, new_stream: NewStream) -> None:
    channels = await broker.channels(3)
    async with new_stream() as stream:
        await subscribed(stream, channels)
        sent = await stream.broadcast(pack(1, 2))
        packs = await full_packs(stream, 6)

    came = [message.position for each in packs for message in each.msgs if message.position is not None]
    assert {name: [each.msg_id for each in came if each.channel_name == name] for name in channels} == sent
    # Ticks of producers may come between the messages of a broadcast.
    assert len(packs) in (1, 6) or not broker.capabilities.log_ticks


async def test_unknown_channels_are_told(broker: StreamBroker, new_stream: NewStream) -> None:
    [channel] = await broker.channels(1)
    async with new_stream() as stream:
        for wrong in ("nowhere", "nowhere/0"):
            with pytest.raises(tidelog.ChannelNotFoundError):
                await stream.as_producer([channel, wrong])
            with pytest.raises(tidelog.ChannelNotFoundError):
                await stream.as_consumer([channel, wrong], "sub")
            with pytest.raises(tidelog.ChannelNotFoundError):
                await stream.check_topic_valid(wrong)
            with pytest.raises(tidelog.ChannelNotFoundError):
                await stream.get_latest_msg_id(wrong)
        with pytest.raises(StreamStateError, match="no producers"):
            await stream.produce(pack(1))
        with pytest.raises(TypeError, match="expected several names"):
            await stream.as_producer(channel)


async def test_the_latest_id_is_that_of_the_last_message(broker: StreamBroker, new_stream: NewStream) -> None:
    [channel] = await broker.channels(1)
    async with new_stream() as stream:
        await stream.as_producer([channel])
        await stream.check_topic_valid(channel)
        if not broker.needs_ticks or broker.capabilities.log_ticks:
            assert await stream.get_latest_msg_id(channel) == broker.empty_id
        sent = await stream.produce(pack(1, 2))
        latest = await stream.get_latest_msg_id(channel)

        # The last message may be a tick.
        assert latest == sent[channel][-1] or (broker.needs_ticks and not broker.capabilities.log_ticks)
        assert latest not in (broker.empty_id, sent[channel][0])


# ------------------------------------------------------------------------------------------------- receiving


async def test_subscriptions_may_have_capitals_in_their_names(broker: StreamBroker, new_stream: NewStream) -> None:
    [channel] = await broker.channels(1)
    names = [f"by-dev-dataNode-{channel.partition('/')[0]}", f"By-dev-dataNode-{channel.partition('/')[0]}"]
    for name in names:
        async with new_stream() as stream:
            await subscribed(stream, [channel], sub_name=name)
            await stream.produce(pack(1))
            assert await ids_from(stream, 1) == [1]
            # Requesting the next pack marks this one as handled, for this subscription.
            await stream.produce(pack(2))
            assert await ids_from(stream, 1) == [2]
        await broker.factory.dispose([channel], name)


async def test_latest_begins_behind_what_is_there(broker: StreamBroker, new_stream: NewStream) -> None:
    channels = await broker.channels(2)
    async with new_stream() as stream:
        await stream.as_producer(channels)
        await stream.produce(pack(1))
        await subscribed(stream, channels, LATEST)
        await stream.broadcast(pack(2))

        assert await ids_from(stream, 2) == [2, 2]


async def test_unknown_waits_for_a_seek(broker: StreamBroker, new_stream: NewStream) -> None:
    [channel] = await broker.channels(1)
    async with new_stream() as stream:
        await subscribed(stream, [channel], UNKNOWN)
        sent = await stream.produce(pack(1, 2, 3))
        with pytest.raises(StreamStateError, match=f"no position on {channel}: seek"):
            await stream.consume()
        await stream.seek([broker.position_after(channel, sent[channel])])

        assert await ids_from(stream, 2) == [2, 3]


async def test_reading_needs_a_start_and_consumers(broker: StreamBroker, new_stream: NewStream) -> None:
    [channel] = await broker.channels(1)
    stream = new_stream()
    await stream.as_consumer([channel], "sub")
    with pytest.raises(StreamStateError, match="was not started"):
        await stream.consume()
    await stream.close()
    async with new_stream() as other:
        with pytest.raises(StreamStateError, match="no consumers"):
            await other.consume()
        with pytest.raises(StreamStateError, match="is empty"):
            await other.as_consumer([channel], "")
        with pytest.raises(ValueError, match="middle"):
            await other.as_consumer([channel], "sub", "middle")  # type: ignore[arg-type]  # the point of the test
        await other.as_consumer([channel], "sub")
        with pytest.raises(StreamStateError, match="has the subscription 'sub'"):
            await other.as_consumer([channel], "another")


async def test_channels_that_are_added_leave_the_others_where_they_are(
    broker: StreamBroker, new_stream: NewStream
) -> None:
    one, two = await broker.channels(2)
    async with new_stream() as stream:
        await subscribed(stream, [one])
        await stream.produce(pack(1, 2))
        assert await ids_from(stream, 2) == [1, 2]
        await subscribed(stream, [two])
        await stream.broadcast(pack(3))

        assert await ids_from(stream, 2) == [3, 3]


async def test_a_subscription_goes_on_behind_what_was_handled(broker: StreamBroker, new_stream: NewStream) -> None:
    channels = await broker.channels(1)
    async with new_stream() as stream:
        await subscribed(stream, channels)
        await stream.produce(pack(1))
        await received(stream, 1)
        await stream.produce(pack(2))
        # This marks the first as handled.
        await received(stream, 1)
    async with new_stream() as again, new_stream() as other:
        await subscribed(again, channels, LATEST)
        await subscribed(other, channels, sub_name="other")

        assert await ids_from(again, 1) == [2]
        assert await ids_from(other, 2) == [1, 2]
    await broker.factory.dispose(channels, "sub")
    await broker.factory.dispose(channels, "sub")
    async with new_stream() as anew:
        assert await ids_from(await subscribed(anew, channels), 2) == [1, 2]


async def test_a_pack_that_ends_before_a_channel_was_created_leads_to_its_beginning(
    broker: StreamBroker, new_stream: NewStream
) -> None:
    [old] = await broker.channels(1)
    async with new_stream() as producer:
        await producer.as_producer([old])
        await producer.produce(pack(1))
        # The packs of a time-tick stream that have this message end before the creation of the next channel.
        await asyncio.sleep(3 * INTERVAL_MS / 1_000)
        [young] = await broker.channels(1)
        await producer.as_producer([young])
        await producer.broadcast(pack(2))
    async with new_stream() as stream:
        await subscribed(stream, [old, young])
        [first] = await full_packs(stream, 1)
        # Without ticks of the log, each channel of a plain stream is read on its own.
        assert ids(first.msgs) == [1] or not (broker.needs_ticks or broker.capabilities.log_ticks)
        rest = [2, 2] if ids(first.msgs) == [1] else [1, 2]
        # This marks the first as handled.
        await stream.consume()
    async with new_stream() as resumed:
        await subscribed(resumed, [old, young])
        assert sorted(await ids_from(resumed, 2)) == rest
        # A pack of a plain stream has only the position of one channel.
        behind = {name: MsgPosition(name, broker.empty_id) for name in (old, young)}
        behind |= {each.channel_name: each for each in first.end_positions}
        await resumed.seek(behind.values())
        assert sorted(await ids_from(resumed, 2)) == rest


async def test_disposing_may_destroy_the_channels(broker: StreamBroker, new_stream: NewStream) -> None:
    channels = await broker.channels(1)

    await broker.factory.dispose([*channels, "nowhere"], "sub", destroys_channels=True)

    with pytest.raises(tidelog.ChannelNotFoundError):
        await new_stream().check_topic_valid(channels[0])


async def test_a_closed_stream_says_so(broker: StreamBroker, new_stream: NewStream) -> None:
    channels = await broker.channels(1)
    stream = await subscribed(new_stream(), channels, LATEST)
    consuming = asyncio.create_task(_packs(stream))
    await stream.produce(pack(1))
    await stream.close()
    await stream.close()
    await consuming

    calls: list[Callable[[], object]] = [
        stream.consume, stream.start, lambda: stream.produce(pack(1)), lambda: stream.broadcast(pack(1)),
        lambda: stream.as_producer(channels), lambda: stream.as_consumer(channels, "sub"), lambda: stream.seek([]),
        lambda: stream.get_latest_msg_id(channels[0]), lambda: stream.check_topic_valid(channels[0]),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(tidelog.ClosedError):
            await call()  # type: ignore[misc]  # each returns an awaitable
    assert await _packs(stream) == []


async def _packs(stream: AsyncMsgStream) -> list[MsgPack]:
    return [each async for each in stream.chan()]


async def test_what_cannot_be_read_is_told_until_it_can_or_is_left_out(
    broker: StreamBroker, new_stream: NewStream
) -> None:
    [channel] = await broker.channels(1)
    async with new_stream() as stream:
        await subscribed(stream, [channel])
        await stream.produce(pack(1))
        await stream.produce(MsgPack(msgs=[GeneralMsg(type=77, id=2)]))
        await _until_error(stream, UnknownMsgTypeError)
        with pytest.raises(UnknownMsgTypeError):
            await stream.consume()
        stream.dispatcher.add_msg_template(77, _general)
        assert (await received(stream, 1))[-1].id == 2

        await broker.append(channel, Message(b"\xff", type=MsgType.INSERT))
        await stream.produce(pack(3))
        error = await _until_error(stream, MalformedMessageError)
        assert f"of {channel}; " in error.__notes__[-1]
        assert isinstance(error, MsgStreamError)
        if error.position is None:
            # A time-tick stream without ticks of the log: messages before it may be in no pack yet.
            assert broker.needs_ticks
            assert not broker.capabilities.log_ticks
            stream.dispatcher.add_msg_template(MsgType.INSERT, _insert_or_general)
            assert await ids_from(stream, 2) == [0, 3]
        else:
            await stream.seek([error.position])
            assert await ids_from(stream, 1) == [3]


def _general(data: object) -> TsMsg:
    assert isinstance(data, bytes)
    return GeneralMsg.unmarshal(data, 77)


def _insert_or_general(data: object) -> TsMsg:
    assert isinstance(data, bytes)
    try:
        return InsertMsg.unmarshal(data, MsgType.INSERT)
    except MalformedMessageError:
        return GeneralMsg(type=MsgType.UNDEFINED, body=data)


async def _until_error(stream: AsyncMsgStream, kind: type[Exception]) -> Exception:
    with pytest.raises(kind) as raised:
        while True:
            await stream.consume()
    return raised.value
