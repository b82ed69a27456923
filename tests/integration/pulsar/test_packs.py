"""Messages of one call travel as one message of Pulsar; a position is one of them."""

import asyncio
from typing import Any

import pulsar as library
import pytest

from tidelog.msgstream import (
    AsyncMsgStreamFactory,
    AsyncPulsarMsgStreamFactory,
    GeneralMsg,
    InsertMsg,
    MsgPack,
    MsgType,
    PulsarBroker,
    TimeTickMsg,
)
from tidelog_testing.parts.pulsar_topics import NewTopics
from tidelog_testing.parts.streams import ids, ids_from, pack, received, subscribed

WITH_TICKS = [
    InsertMsg(id=1, hash_keys=[0], row_ids=[1], begin_ts=5, end_ts=5),
    InsertMsg(id=2, hash_keys=[0], row_ids=[2], begin_ts=15, end_ts=15),
    TimeTickMsg(begin_ts=10, end_ts=10, hash_keys=[0]),
    InsertMsg(id=3, hash_keys=[0], row_ids=[3], begin_ts=16, end_ts=16),
    TimeTickMsg(begin_ts=20, end_ts=20, hash_keys=[0]),
    TimeTickMsg(begin_ts=30, end_ts=30, hash_keys=[0]),
]


async def contents(broker: PulsarBroker, topic: str) -> list[Any]:
    """Return the messages of Pulsar in a topic."""

    def read() -> list[Any]:
        reader = broker.client().create_reader(topic, library.MessageId.earliest)
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(timeout_millis=30_000))
        reader.close()
        return found

    return await asyncio.to_thread(read)


async def send(broker: PulsarBroker, topic: str, content: bytes, properties: dict[str, str]) -> None:
    """Send a message as another program does."""

    def call() -> None:
        producer = broker.client().create_producer(topic)
        producer.send(content, properties=properties)
        producer.close()

    await asyncio.to_thread(call)


async def produce(factory: AsyncMsgStreamFactory, topic: str, *packs: MsgPack) -> None:
    async with factory.new_msg_stream() as stream:
        await stream.as_producer([topic])
        for each in packs:
            await stream.produce(each)


async def test_the_messages_of_a_call_are_one_message_of_pulsar(
    factory: AsyncPulsarMsgStreamFactory, broker: PulsarBroker, new_topics: NewTopics
) -> None:
    [topic] = await new_topics(1)
    factory.set_params({"pulsar_pack_bytes": 1_000})
    large = MsgPack(msgs=[InsertMsg(id=number, row_data=[bytes(600)], hash_keys=[0]) for number in (8, 9)])
    await produce(factory, topic, pack(1, 2, 3), pack(4), large)

    found = [each.properties() for each in await contents(broker, topic)]
    assert found == [{"pack": "3"}, {"type": "400"}, {"type": "400"}, {"type": "400"}]
    async with factory.new_msg_stream() as stream:
        await subscribed(stream, [topic])
        assert await ids_from(stream, 6) == [1, 2, 3, 4, 8, 9]


async def test_other_programs_can_read_messages_that_are_not_packed(
    factory: AsyncPulsarMsgStreamFactory, broker: PulsarBroker, new_topics: NewTopics
) -> None:
    [topic] = await new_topics(1)
    factory.set_params({"pulsar_pack_bytes": 0})
    await produce(factory, topic, pack(1, 2, 3))

    found = await contents(broker, topic)
    assert [InsertMsg.unmarshal(each.data(), int(each.properties()["type"])).id for each in found] == [1, 2, 3]


async def test_a_stream_continues_inside_a_pack(factory: AsyncPulsarMsgStreamFactory, new_topics: NewTopics) -> None:
    [topic] = await new_topics(1)
    await produce(factory, topic, pack(1, 2, 3, 4))
    async with factory.new_msg_stream() as stream:
        await subscribed(stream, [topic])
        first = await received(stream, 2)
    async with factory.new_msg_stream() as again:
        await subscribed(again, [topic])
        # The second was not handled: no call came after it.
        assert await ids_from(again, 3) == [2, 3, 4]
        position = first[0].position
        assert position is not None
        await again.seek([position])
        assert await ids_from(again, 3) == [2, 3, 4]
        await again.seek([position], include_message=True)
        assert await ids_from(again, 4) == [1, 2, 3, 4]


async def test_a_pack_of_ticks_continues_inside_a_pack_of_pulsar(
    factory: AsyncPulsarMsgStreamFactory, new_topics: NewTopics
) -> None:
    [topic] = await new_topics(1)
    await produce(factory, topic, MsgPack(msgs=WITH_TICKS))
    async with factory.new_tt_msg_stream() as stream:
        await subscribed(stream, [topic])
        assert ids((await stream.consume()).msgs) == [1]
        second = await stream.consume()
        assert (second.end_ts, ids(second.msgs)) == (20, [2, 3])
    async with factory.new_tt_msg_stream() as again:
        await subscribed(again, [topic])
        repeated = await again.consume()
        assert repeated == second
        assert (await again.consume()).end_ts == 30
        await again.seek(repeated.start_positions)
        assert await again.consume() == second


async def test_a_template_may_return_one_message_for_several(
    factory: AsyncPulsarMsgStreamFactory, new_topics: NewTopics
) -> None:
    [topic] = await new_topics(1)
    await produce(factory, topic, MsgPack(msgs=WITH_TICKS))
    same = GeneralMsg(type=MsgType.INSERT)
    async with factory.new_tt_msg_stream() as stream:
        await subscribed(stream, [topic])
        stream.dispatcher.add_msg_template(MsgType.INSERT, lambda _: same)
        packs = [await stream.consume() for _ in range(2)]
        assert [len(each.msgs) for each in packs] == [1, 2]
    async with factory.new_tt_msg_stream() as again:
        await subscribed(again, [topic])
        # From the message that the first pack lacks.
        assert ids((await again.consume()).msgs) == [2, 3]


async def test_a_pack_fits_into_a_message_of_the_broker(
    factory: AsyncPulsarMsgStreamFactory, broker: PulsarBroker, new_topics: NewTopics
) -> None:
    [topic] = await new_topics(1)
    # As if the broker accepted no larger ones.
    assert broker.greeting is not None or broker.client()
    assert broker.greeting is not None
    broker.greeting = broker.greeting._replace(max_message_bytes=500)
    await produce(factory, topic, pack(*range(1, 51)))

    found = await contents(broker, topic)
    assert 2 < len(found) < 50
    assert max(len(each.data()) for each in found) <= 500
    async with factory.new_msg_stream() as stream:
        await subscribed(stream, [topic])
        assert await ids_from(stream, 50) == list(range(1, 51))


@pytest.mark.parametrize("content", [b"\xff", b""])
async def test_what_another_program_calls_a_pack_is_one_message(
    factory: AsyncPulsarMsgStreamFactory, broker: PulsarBroker, new_topics: NewTopics, content: bytes
) -> None:
    [topic] = await new_topics(1)
    await send(broker, topic, content, {"pack": "2"})
    async with factory.new_msg_stream() as stream:
        await subscribed(stream, [topic])
        stream.dispatcher.add_msg_template(
            MsgType.UNDEFINED,
            lambda data: GeneralMsg(type=MsgType.UNDEFINED, body=data),  # type: ignore[arg-type]  # it gets bytes
        )
        [found] = await received(stream, 1)

    assert isinstance(found, GeneralMsg)
    assert found.body == content
