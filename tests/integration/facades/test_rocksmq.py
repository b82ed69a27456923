"""Queues, as users of RocksMQ use them. Method: each operation, and each of its rules, against a real server.

Failures of a server, a connection or a caller are tested in test_rocksmq_failures.py.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

import tidelog
from tidelog import AsyncClient, Message, Tick
from tidelog.rocksmq import (
    AsyncIDAllocator,
    AsyncRocksMQ,
    ConsumerMessage,
    MessageNotFoundError,
    ProducerMessage,
    new_rocksmq,
)
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.fixtures import client_with

client = client_with()


@pytest.fixture
async def mq(client: AsyncClient) -> AsyncIterator[AsyncRocksMQ]:
    """Queues with a channel and a group on it."""
    async with AsyncRocksMQ(client, name="shop") as mq:
        await mq.create_channel("orders")
        await mq.create_consumer_group("billing", "orders")
        yield mq


async def consumed(mq: AsyncRocksMQ, n: int = 100, group: str = "billing", channel: str = "orders") -> list[bytes]:
    return [message.payload for message in await mq.consume(group, channel, n)]


# -- Channels ----------------------------------------------------------------------------------------------


async def test_creating_a_channel_twice_keeps_what_is_in_it(client: AsyncClient, mq: AsyncRocksMQ) -> None:
    await mq.produce("orders", [b"a"])

    await mq.create_channel("orders")

    assert await consumed(mq) == [b"a"]
    [described] = await client.describe_channels(["shop.orders"])
    assert len(described.vchannels) == 1


@pytest.mark.parametrize("name", ["a/b", "", "Ä", "-a", "a b"])
async def test_a_name_that_none_can_have_is_refused(mq: AsyncRocksMQ, name: str) -> None:
    with pytest.raises(tidelog.InvalidRequestError):
        await mq.create_channel(name)
    with pytest.raises(tidelog.InvalidRequestError):
        await mq.create_consumer_group(name)


async def test_names_keep_queues_apart(client: AsyncClient, mq: AsyncRocksMQ) -> None:
    other, bare = AsyncRocksMQ(client, name="bank"), AsyncRocksMQ(client)
    await other.create_channel("orders")
    await mq.produce("orders", [b"a"])

    assert await other.get_latest_msg("orders") is None
    assert await bare.get_latest_msg("shop.orders") == await mq.get_latest_msg("orders")
    assert not await other.exist_consumer_group("billing")
    with pytest.raises(ValueError, match="name"):
        AsyncRocksMQ(client, name="a.b")


async def test_a_destroyed_channel_is_empty_when_it_is_made_again(mq: AsyncRocksMQ) -> None:
    await mq.produce("orders", [b"a", b"b"])
    assert await consumed(mq, 1) == [b"a"]

    await mq.destroy_channel("orders")

    assert await mq.exist_consumer_group("billing")
    assert not await mq.exist_consumer_group("billing", "orders")
    await mq.create_channel("orders")
    assert await consumed(mq) == []
    await mq.produce("orders", [b"c"])
    assert await consumed(mq) == [b"c"]


async def test_destroying_a_channel_touches_none_whose_name_extends_it(mq: AsyncRocksMQ) -> None:
    extended = ["orders2", "orders.eu", "orders-0"]
    for channel in extended:
        await mq.create_channel(channel)
        await mq.create_consumer_group("billing", channel)
        await mq.produce(channel, [b"a", b"b"])
        assert await consumed(mq, 1, channel=channel) == [b"a"]

    await mq.destroy_channel("orders")

    assert [await consumed(mq, channel=channel) for channel in extended] == [[b"b"]] * 3


async def test_a_channel_is_valid_if_it_can_be_used_as_a_queue(client: AsyncClient, mq: AsyncRocksMQ) -> None:
    await client.create_channel("shop.wide", vchannels=2)

    await mq.check_topic_valid("orders")

    with pytest.raises(tidelog.ChannelNotFoundError):
        await mq.check_topic_valid("nothing")
    with pytest.raises(tidelog.InvalidRequestError, match="2 vchannels"):
        await mq.check_topic_valid("wide")
    with pytest.raises(tidelog.ChannelAlreadyExistsError):
        await mq.create_channel("wide")


async def test_what_does_not_exist_is_named(mq: AsyncRocksMQ) -> None:
    for unknown_channel in (
        mq.destroy_channel("nothing"), mq.produce("nothing", [b"a"]), mq.get_latest_msg("nothing"),
        mq.create_consumer_group("new", "nothing"), mq.destroy_consumer_group("billing", "nothing"),
        mq.consume("billing", "nothing", 1), mq.seek("billing", "nothing", 1), mq.wait("billing", "nothing", 1),
        mq.force_seek("billing", "nothing", 1), mq.seek_to_latest("billing", "nothing"),
        mq.register_consumer("billing", "nothing"),
    ):  # fmt: skip
        with pytest.raises(tidelog.ChannelNotFoundError, match="nothing"):
            await unknown_channel
    for unknown_group in (
        mq.consume("absent", "orders", 1), mq.force_seek("absent", "orders", 1), mq.seek_to_latest("absent", "orders"),
        mq.register_consumer("absent", "orders"), mq.wait("absent", "orders", 1),
    ):  # fmt: skip
        with pytest.raises(tidelog.GroupNotFoundError, match="absent"):
            await unknown_group


# -- Groups ------------------------------------------------------------------------------------------------


async def test_a_group_is_created_once(mq: AsyncRocksMQ) -> None:
    await mq.create_channel("refunds")

    with pytest.raises(tidelog.GroupAlreadyExistsError):
        await mq.create_consumer_group("billing", "orders")
    with pytest.raises(tidelog.GroupAlreadyExistsError):
        await mq.create_consumer_group("billing")
    await mq.create_consumer_group("billing", "refunds")

    assert await mq.exist_consumer_group("billing")
    assert await mq.exist_consumer_group("billing", "refunds")
    assert not await mq.exist_consumer_group("billing", "nothing")
    assert not await mq.exist_consumer_group("absent")


async def test_a_group_without_a_channel_begins_at_the_first_message_of_each(mq: AsyncRocksMQ) -> None:
    await mq.produce("orders", [b"a", b"b"])
    await mq.create_consumer_group("audit")

    assert await consumed(mq, 1, "audit") == [b"a"]
    assert await consumed(mq, 9, "audit") == [b"b"]
    assert await consumed(mq) == [b"a", b"b"]


async def test_a_destroyed_group_is_unknown_and_destroying_it_again_is_no_error(mq: AsyncRocksMQ) -> None:
    await mq.produce("orders", [b"a", b"b"])
    assert await consumed(mq, 1) == [b"a"]

    for _ in range(2):
        await mq.destroy_consumer_group("billing", "orders")
        await mq.destroy_consumer_group("billing")

    with pytest.raises(tidelog.GroupNotFoundError):
        await consumed(mq)
    await mq.create_consumer_group("billing", "orders")
    assert await consumed(mq) == [b"a", b"b"]


async def test_a_group_that_leaves_one_channel_keeps_the_others(mq: AsyncRocksMQ) -> None:
    await mq.create_channel("refunds")
    await mq.create_consumer_group("billing", "refunds")

    await mq.destroy_consumer_group("billing", "orders")

    assert not await mq.exist_consumer_group("billing", "orders")
    assert await mq.exist_consumer_group("billing", "refunds")


# -- Messages ----------------------------------------------------------------------------------------------


async def test_a_list_is_produced_as_one_with_ids_in_order(client: AsyncClient, mq: AsyncRocksMQ) -> None:
    ids = await mq.produce("orders", [b"a", ProducerMessage(b"b", {"p": "q"}), Message(b"c", key=b"k", type=7)])

    assert ids == [ids[0], ids[0] + 1, ids[0] + 2]
    [batch] = [batch async for batch in client.scan("shop.orders")]
    assert list(batch.ticks) == ids
    assert await mq.consume("billing", "orders", 3) == [
        ConsumerMessage(ids[0], b"a"),
        ConsumerMessage(ids[1], b"b", {"p": "q"}),
        ConsumerMessage(ids[2], b"c", key=b"k", type=7),
    ]
    assert await mq.get_latest_msg("orders") == ids[-1]
    assert (await mq.produce("orders", [b"d"]))[0] > ids[-1]


async def test_empty_payloads_stay_empty(mq: AsyncRocksMQ) -> None:
    await mq.produce("orders", [b"", ProducerMessage(b""), b"a"])

    assert await consumed(mq) == [b"", b"", b"a"]


async def test_a_list_larger_than_a_batch_is_one_all_the_same(mq: AsyncRocksMQ) -> None:
    large = [bytes([number]) * 900_000 for number in range(8)]

    ids = await mq.produce("orders", large)

    assert ids == list(range(ids[0], ids[0] + 8))
    found: list[bytes] = []
    while some := await consumed(mq, 8):
        assert sum(map(len, some)) < 5 << 20
        found += some
    assert found == large


async def test_what_is_no_list_of_messages_is_refused_and_nothing_is_produced(mq: AsyncRocksMQ) -> None:
    for wrong in (None, b"a", "a", Message(b"a"), ProducerMessage(b"a"), 1, [b"a", "b"], [None]):
        with pytest.raises(TypeError):
            await mq.produce("orders", cast("Any", wrong))

    with pytest.raises(tidelog.InvalidRequestError):
        await mq.produce("orders", [b"a", bytes(2 << 20)])
    assert await mq.produce("orders", []) == []
    assert await mq.get_latest_msg("orders") is None


async def test_consuming_acknowledges_up_to_n_messages_and_ends_with_an_empty_list(mq: AsyncRocksMQ) -> None:
    await mq.produce("orders", [b"a", b"b", b"c", b"d", b"e"])

    assert await consumed(mq, 2) == [b"a", b"b"]
    assert await consumed(mq, 2) == [b"c", b"d"]
    assert await consumed(mq, 1_000_000) == [b"e"]
    assert await consumed(mq, 2) == []
    assert await consumed(mq, 2) == []


async def test_a_number_of_messages_is_positive(mq: AsyncRocksMQ) -> None:
    await mq.produce("orders", [b"a"])

    for n in (0, -1):
        with pytest.raises(tidelog.InvalidRequestError, match=f"n is {n}"):
            await mq.consume("billing", "orders", n)
    for wrong in (True, 1.0, "1", None):
        with pytest.raises(TypeError):
            await mq.consume("billing", "orders", cast("Any", wrong))
    with pytest.raises(TypeError):
        await mq.consume("billing", cast("Any", None), 1)
    assert await consumed(mq) == [b"a"]


async def test_each_message_goes_to_one_of_four_consumers(client: AsyncClient, mq: AsyncRocksMQ) -> None:
    ids = await mq.produce("orders", [b"%d" % number for number in range(2_000)])
    async with AsyncClient(client.endpoint) as second:
        consumers = [
            await AsyncRocksMQ(each, name="shop").register_consumer("billing", "orders")
            for each in (client, client, second, second)
        ]

        async def drain(number: int) -> list[Tick]:
            taken: list[Tick] = []
            while messages := await consumers[number].consume(7 + number):
                taken += [message.msg_id for message in messages]
            return taken

        taken = await asyncio.gather(*map(drain, range(4)))

    assert sorted(msg_id for each in taken for msg_id in each) == ids
    assert all(each == sorted(each) for each in taken)


async def test_messages_produced_meanwhile_are_consumed_once(mq: AsyncRocksMQ) -> None:
    expected = {b"%d-%d" % (producer, number) for producer in range(3) for number in range(50)}
    found: list[bytes] = []

    async def produce(producer: int) -> None:
        for number in range(50):
            await mq.produce("orders", [b"%d-%d" % (producer, number)])

    async def consume() -> None:
        while len(found) < len(expected):
            found.extend(message.payload for message in await mq.consume("billing", "orders", 10, wait_s=0.2))

    await asyncio.gather(*map(produce, range(3)), *(consume() for _ in range(3)))

    assert sorted(found) == sorted(expected)


async def test_a_consumer_that_joined_the_group_is_not_disturbed(client: AsyncClient, mq: AsyncRocksMQ) -> None:
    await mq.produce("orders", [b"a"])
    async with client.consumer("shop.billing", "shop.orders", auto_commit=False) as consumer:
        assert (await anext(consumer)).payloads == [b"a"]
        for disturbing in (
            mq.consume("billing", "orders", 1), mq.destroy_channel("orders"), mq.destroy_consumer_group("billing"),
            mq.destroy_consumer_group("billing", "orders"),
        ):  # fmt: skip
            with pytest.raises(tidelog.GroupInUseError):
                await disturbing

    assert await consumed(mq) == [b"a"]


# -- Waiting -----------------------------------------------------------------------------------------------


async def test_registering_twice_changes_nothing(mq: AsyncRocksMQ) -> None:
    await mq.produce("orders", [b"a", b"b"])
    first = await mq.register_consumer("billing", "orders")
    assert [message.payload for message in await first.consume(1)] == [b"a"]

    second = await mq.register_consumer("billing", "orders")

    assert [message.payload for message in await second.consume(2)] == [b"b"]
    assert await first.consume(1) == []


async def test_who_waits_learns_of_messages_of_before_and_after(mq: AsyncRocksMQ) -> None:
    consumer = await mq.register_consumer("billing", "orders")
    waiting = asyncio.create_task(consumer.wait())
    consuming = asyncio.create_task(mq.consume("billing", "orders", 1, wait_s=60))
    await asyncio.sleep(0)

    await mq.produce("orders", [b"a", b"b"])

    assert await waiting
    assert [message.payload for message in await consuming] == [b"a"]
    assert await consumer.wait()
    assert await consumed(mq) == [b"b"]
    assert not await consumer.wait(0.01)


async def test_a_wait_ends_when_it_is_notified_or_closed(mq: AsyncRocksMQ) -> None:
    consumer = await mq.register_consumer("billing", "orders")
    waiting = asyncio.create_task(consumer.wait())
    await consumer.notify()
    assert not await waiting
    await mq.notify("billing", "orders")
    assert await consumer.consume(1, wait_s=60) == []

    ending = asyncio.create_task(consumer.consume(1, wait_s=60))
    await asyncio.sleep(0)
    await mq.aclose()

    with pytest.raises(tidelog.ClosedError):
        await ending
    with pytest.raises(tidelog.ClosedError):
        await mq.produce("orders", [b"a"])


async def test_closing_leaves_the_callers_client_open(client: AsyncClient) -> None:
    async with AsyncRocksMQ(client) as mq:
        await mq.create_channel("orders")
    async with AsyncRocksMQ(client.endpoint) as own:
        await own.produce("orders", [b"a"])

    assert await payloads(client, "orders") == [b"a"]
    with pytest.raises(tidelog.ClosedError):
        await own.client.wal_name()


# -- Positions ---------------------------------------------------------------------------------------------


async def test_a_seek_goes_forward_and_back_to_a_message(mq: AsyncRocksMQ) -> None:
    ids = await mq.produce("orders", [b"a", b"b", b"c"])

    for index in (2, 0, 1, 1):
        await mq.seek("billing", "orders", ids[index])
        assert (await mq.consume("billing", "orders", 1))[0].msg_id == ids[index]

    await mq.seek("billing", "orders", ids[-1] + 1)
    assert await consumed(mq) == []


async def test_a_seek_to_what_is_no_message_is_refused_and_moves_nothing(client: AsyncClient, mq: AsyncRocksMQ) -> None:
    ids = await mq.produce("orders", [b"a", b"b"])
    await mq.create_channel("refunds")
    [foreign] = await mq.produce("refunds", [b"x"])
    [last] = await mq.produce("orders", [b"c"])
    assert await consumed(mq, 1) == [b"a"]

    for absent in (0, ids[-1] + 1, foreign):
        with pytest.raises(MessageNotFoundError, match="no message with the id") as refused:
            await mq.seek("billing", "orders", absent)
        assert (refused.value.msg_id, refused.value.last_msg_id) == (absent, last)
    with pytest.raises(tidelog.PositionBeyondEndError):
        await mq.seek("billing", "orders", last + (1 << 40))
    for impossible in (-1, 1 << 63):
        with pytest.raises(tidelog.InvalidRequestError, match="msg_id"):
            await mq.seek("billing", "orders", impossible)
    with pytest.raises(TypeError):
        await mq.seek("billing", "orders", cast("Any", b"1"))
    with pytest.raises(tidelog.GroupNotFoundError):
        await mq.seek("absent", "orders", ids[0])

    assert await consumed(mq) == [b"b", b"c"]
    await client.trim("shop.orders", before=Tick(ids[1]))
    with pytest.raises(tidelog.PositionTrimmedError):
        await mq.seek("billing", "orders", ids[0])


async def test_a_forced_seek_goes_to_the_next_message_that_there_is(mq: AsyncRocksMQ) -> None:
    ids = await mq.produce("orders", [b"a"])
    await mq.produce("orders", [b"b"])

    await mq.force_seek("billing", "orders", ids[0] + 1)
    assert await consumed(mq) == [b"b"]
    await mq.force_seek("billing", "orders", 0)
    assert await consumed(mq) == [b"a", b"b"]


async def test_a_forced_seek_to_what_was_trimmed_goes_to_the_next_message(
    client: AsyncClient, mq: AsyncRocksMQ
) -> None:
    ids = await mq.produce("orders", [b"a", b"b", b"c", b"d"])
    await client.trim("shop.orders", before=Tick(ids[2]))
    for trimmed in (0, 1, ids[0], ids[1]):
        await mq.force_seek("billing", "orders", trimmed)
        assert await consumed(mq) == [b"c", b"d"]

    await client.trim("shop.orders", everything=True)
    await mq.force_seek("billing", "orders", ids[0])
    assert await consumed(mq) == []
    await mq.produce("orders", [b"e"])
    assert await consumed(mq) == [b"e"]


async def test_a_seek_to_the_latest_passes_over_what_is_there(mq: AsyncRocksMQ) -> None:
    await mq.create_consumer_group("audit")
    await mq.produce("orders", [b"a"])

    await mq.seek_to_latest("audit", "orders")

    assert await consumed(mq, group="audit") == []
    await mq.produce("orders", [b"b"])
    assert await consumed(mq, group="audit") == [b"b"]


# -- Ids ---------------------------------------------------------------------------------------------------


async def test_ids_are_ranges_that_grow_and_never_repeat(client: AsyncClient) -> None:
    first, second = AsyncIDAllocator(client, prefetch=10), AsyncIDAllocator(client, prefetch=10)

    ranges = [await each.alloc(count) for count in (1, 4, 25, 3, 1) for each in (first, second)]

    assert [end - begin for begin, end in ranges] == [1, 1, 4, 4, 25, 25, 3, 3, 1, 1]
    for own in (ranges[::2], ranges[1::2]):
        assert own == sorted(own)
    ids = [each for begin, end in ranges for each in range(begin, end)]
    assert len(set(ids)) == len(ids)


async def test_concurrent_tasks_get_different_ids(client: AsyncClient) -> None:
    allocator = AsyncIDAllocator(client, prefetch=16)

    ids = await asyncio.gather(*(allocator.alloc_one() for _ in range(200)))

    assert len(set(ids)) == 200


async def test_updated_ids_exceed_all_that_came_before(client: AsyncClient, mq: AsyncRocksMQ) -> None:
    allocator = AsyncIDAllocator(client)
    early = await allocator.alloc_one()
    [msg_id] = await mq.produce("orders", [b"a"])
    assert await allocator.alloc_one() == early + 1

    await allocator.update_id()

    assert early < msg_id < await allocator.alloc_one()


async def test_a_count_of_ids_is_positive(client: AsyncClient) -> None:
    allocator = AsyncIDAllocator(client)

    for count in (0, -1, 1_000_001):
        with pytest.raises(tidelog.InvalidRequestError):
            await allocator.alloc(count)
    with pytest.raises(TypeError):
        await allocator.alloc(cast("Any", "1"))
    with pytest.raises(ValueError, match="prefetch"):
        AsyncIDAllocator(client, prefetch=0)


async def test_queues_are_made_from_a_name_and_an_allocator(client: AsyncClient) -> None:
    mq = new_rocksmq("shop", AsyncIDAllocator(client))

    assert isinstance(mq, AsyncRocksMQ)
    assert (mq.name, mq.client) == ("shop", client)
    with pytest.raises(TypeError, match="allocator"):
        new_rocksmq("shop", cast("Any", client))
