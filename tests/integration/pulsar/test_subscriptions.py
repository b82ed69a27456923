"""Subscriptions on Pulsar: a later stream takes over, and what a position needs is retained or reported."""

import asyncio
from collections.abc import Callable
from typing import Any

import pulsar as library
import pytest

import tidelog
from tidelog.msgstream import (
    AsyncPulsarMsgStreamFactory,
    MsgPosition,
    PulsarBroker,
    StreamFencedError,
    SubscriptionPosition,
)
from tidelog_testing.parts.pulsar_topics import NewTopics
from tidelog_testing.parts.streams import ids_from, pack, received, subscribed
from tidelog_testing.servers.pulsar import PulsarProcess


async def test_a_later_stream_of_a_subscription_takes_over(
    factory: AsyncPulsarMsgStreamFactory, new_topics: NewTopics
) -> None:
    topics = await new_topics(1)
    earlier, later = factory.new_msg_stream(), factory.new_msg_stream()
    await subscribed(earlier, topics)
    await earlier.produce(pack(1, 2, 3, 4))
    assert await ids_from(earlier, 2) == [1, 2]
    await subscribed(later, topics)
    with pytest.raises(StreamFencedError, match="use another subscription"):
        while True:
            await earlier.consume()

    # The first message was handled: the second was requested after it.
    assert (await received(later, 3))[-1].id == 4
    await later.close()
    with pytest.raises(StreamFencedError):
        await earlier.close()


async def test_a_position_is_found_while_pulsar_answers_that_there_is_no_message(
    factory: AsyncPulsarMsgStreamFactory, new_topics: NewTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = await new_topics(1)
    async with factory.new_msg_stream() as earlier:
        await subscribed(earlier, topics)
        await earlier.produce(pack(1, 2, 3))
        assert await ids_from(earlier, 3) == [1, 2, 3]

    # As a broker that has just loaded the topic.
    monkeypatch.setattr(library.Reader, "has_message_available", lambda _: False)
    async with factory.new_msg_stream() as later:
        await subscribed(later, topics)
        assert await ids_from(later, 1) == [3]


async def test_the_error_of_a_block_is_not_replaced_by_that_of_its_stream(
    factory: AsyncPulsarMsgStreamFactory, new_topics: NewTopics
) -> None:
    topics = await new_topics(1)
    later = factory.new_msg_stream()
    with pytest.raises(LookupError, match="of the block") as raised:
        async with factory.new_msg_stream() as fenced:
            await subscribed(fenced, topics)
            await fenced.produce(pack(1, 2, 3))
            assert await ids_from(fenced, 1) == [1]
            await subscribed(later, topics)
            with pytest.raises(StreamFencedError):
                while True:
                    await fenced.consume()
            raise LookupError("of the block")
    await later.close()

    assert any("closing the stream also failed: StreamFencedError" in note for note in raised.value.__notes__)


async def test_messages_after_a_position_are_retained_and_others_are_deleted(
    broker: PulsarBroker, pulsar: PulsarProcess, factory: AsyncPulsarMsgStreamFactory, new_topics: NewTopics
) -> None:
    [topic] = await new_topics(1)
    async with factory.new_msg_stream() as stream:
        await subscribed(stream, [topic])
        first_ledger = pulsar.first_ledger(topic)
        await stream.produce(pack(1, 2))
        first = await received(stream, 1)
        assert await ids_from(stream, 1) == [2]
        pulsar.close_ledger(topic)
        for number in range(3, 7):
            await stream.produce(pack(number))
            assert await ids_from(stream, 1) == [number]
    pulsar.trim(topic)
    while pulsar.first_ledger(topic) == first_ledger:
        await asyncio.sleep(0.05)
    position = first[0].position
    assert position is not None
    async with factory.new_msg_stream() as again:
        await subscribed(again, [topic])
        assert await ids_from(again, 1) == [6]
        await again.seek([position])
        with pytest.raises(tidelog.PositionTrimmedError, match="was deleted: check the retention"):
            await again.consume()


async def test_a_position_of_one_factory_is_good_for_another(
    factory: AsyncPulsarMsgStreamFactory, new_topics: NewTopics
) -> None:
    [topic] = await new_topics(1)
    async with factory.new_msg_stream() as stream:
        await subscribed(stream, [topic])
        sent = await stream.produce(pack(1, 2, 3))
    async with factory.new_msg_stream() as other:
        await other.as_consumer([topic], "other", SubscriptionPosition.UNKNOWN)
        await other.seek([MsgPosition(topic.rpartition("/")[2], sent[topic][1])])
        assert await ids_from(other, 1) == [3]


class CancellingBroker(PulsarBroker):
    """Cancels a task when its call of this number has run, before it has the result.

    Attributes:
        left: Calls until then.
    """

    left = 0
    task: asyncio.Task[None]

    async def run(self, call: Callable[[], Any], what: str, topic: str = "") -> Any:
        self.left -= 1
        if self.left:
            return await super().run(call, what, topic)
        loop = asyncio.get_running_loop()

        def then_cancel() -> Any:
            result = call()
            loop.call_soon_threadsafe(self.task.cancel)
            return result

        return await super().run(then_cancel, what, topic)


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_subscription_that_was_not_completed_holds_nothing(
    pulsar: PulsarProcess, broker: PulsarBroker, new_topics: NewTopics, number: int
) -> None:
    [topic] = await new_topics(1)
    async with CancellingBroker(pulsar.url, admin_url=pulsar.admin_url, namespace=broker.namespace) as cancelling:
        async with AsyncPulsarMsgStreamFactory(cancelling).new_msg_stream() as stream:
            cancelling.left = number
            cancelling.task = asyncio.create_task(stream.as_consumer([topic], "sub"))
            with pytest.raises(asyncio.CancelledError):
                await cancelling.task

            assert pulsar.clients(topic) == pulsar.clients(f"{topic}-tidelog-sub") == 0
            await subscribed(stream, [topic])
            assert pulsar.clients(topic) > 0
