"""Topics that are deleted and created again while streams are open."""

import asyncio

import tidelog
from tidelog.msgstream import AsyncMsgStream, AsyncPulsarMsgStreamFactory, AsyncTimeTicker, PulsarBroker
from tidelog_testing.parts.pulsar_topics import NewTopics
from tidelog_testing.parts.streams import ids_from, pack, subscribed
from tidelog_testing.servers.pulsar import PulsarProcess

WITHIN_S = 60.0


async def produced(stream: AsyncMsgStream, number: int) -> None:
    """Send a message; the producer of the deleted topic fails first."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                await stream.produce(pack(number))
            except (tidelog.ClosedError, tidelog.ChannelNotFoundError, tidelog.UnavailableError):
                await asyncio.sleep(0.1)
            else:
                return


async def test_a_topic_that_is_created_again_is_written_and_read(
    pulsar: PulsarProcess, broker: PulsarBroker, factory: AsyncPulsarMsgStreamFactory, new_topics: NewTopics
) -> None:
    [topic] = await new_topics(1)
    async with factory.new_msg_stream() as stream, factory.new_msg_stream() as reader:
        await stream.as_producer([topic])
        await subscribed(reader, [topic])
        await stream.produce(pack(1))
        assert await ids_from(reader, 1) == [1]
        await asyncio.to_thread(broker.admin("the test").delete_topic, topic)
        await asyncio.to_thread(pulsar.create_topic, topic)
        await produced(stream, 2)

        async with asyncio.timeout(WITHIN_S):
            assert await ids_from(reader, 1) == [2]


async def test_a_ticker_continues_when_a_topic_is_created_again(
    pulsar: PulsarProcess, broker: PulsarBroker, factory: AsyncPulsarMsgStreamFactory, new_topics: NewTopics
) -> None:
    [topic] = await new_topics(1)
    async with AsyncTimeTicker(broker, [topic], interval_ms=20):
        await asyncio.to_thread(broker.admin("the test").delete_topic, topic)
        await asyncio.to_thread(pulsar.create_topic, topic)
        async with factory.new_tt_msg_stream() as stream, asyncio.timeout(WITHIN_S):
            await subscribed(stream, [topic])
            await produced(stream, 1)
            assert await ids_from(stream, 1) == [1]
