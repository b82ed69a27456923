"""Message streams on a real server: what only a log can show. Method: streams next to the client that they run on."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, Message
from tidelog.msgstream import (
    AsyncRmqMsgStreamFactory,
    InsertMsg,
    MsgPack,
    MsgType,
    SubscriptionPosition,
)
from tidelog.msgstream._backends.group_subscriptions import GroupSubscriptionStore
from tidelog_testing.faults.fault_proxy import FaultProxy
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.fixtures import client_with
from tidelog_testing.parts.streams import full_packs, received
from tidelog_testing.servers.processes import ServerProcess, lasting_port

INTERVAL_MS = 50
client = client_with(a=6, b=2)


@pytest.fixture
def factory(client: AsyncClient) -> AsyncRmqMsgStreamFactory:
    factory = AsyncRmqMsgStreamFactory(client)
    factory.set_params({"tick_interval_ms": INTERVAL_MS})
    return factory


CHANNELS = [*(f"a/{index}" for index in range(6)), "b/0", "b/1"]
SILENT = ["a/3", "b/1"]


def pack(*ids: int, size: int = 10) -> MsgPack:
    return MsgPack(msgs=[InsertMsg(id=each, row_data=[b"x" * size], hash_keys=[each]) for each in ids])


async def test_two_consumers_get_the_same_packs_while_channels_are_silent(factory: AsyncRmqMsgStreamFactory) -> None:
    sounding = [name for name in CHANNELS if name not in SILENT]
    async with (
        factory.new_msg_stream() as producer,
        factory.new_tt_msg_stream() as one,
        factory.new_tt_msg_stream() as two,
    ):
        await producer.as_producer(sounding)
        await one.as_consumer(CHANNELS, "one", SubscriptionPosition.LATEST)
        # Up to the end of the interval in which it began.
        await one.consume()

        async def produce() -> None:
            for number in range(100):
                await producer.produce(pack(3 * number + 1, 3 * number + 2, 3 * number + 3))
                # Spread over several intervals.
                await asyncio.sleep(0.002)

        producing = asyncio.create_task(produce())
        first = await full_packs(one, 300)
        await producing
        await two.as_consumer(CHANNELS, "two")
        second = await full_packs(two, 300)

    assert len(first) >= 3
    assert second == first
    assert {position.channel_name for position in first[0].end_positions} == set(CHANNELS)
    # Messages produced together are in one pack.
    for each in first:
        ids = {message.id for message in each.msgs}
        assert {
            number + other for number in ids for other in range(1 - (number - 1) % 3, 3 - (number - 1) % 3)
        } - ids <= ids


async def test_a_reader_sees_a_produced_pack_as_a_whole_or_not_at_all(
    client: AsyncClient, factory: AsyncRmqMsgStreamFactory
) -> None:
    async with factory.new_msg_stream() as producer, factory.new_tt_msg_stream() as stream:
        await producer.as_producer(CHANNELS)
        await stream.as_consumer(CHANNELS, "sub")
        sent = [asyncio.create_task(producer.broadcast(pack(number))) for number in range(1, 41)]
        for number, task in enumerate(sent):
            await asyncio.sleep(0)
            if number % 2:
                task.cancel()
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        await producer.broadcast(pack(99))
        packs: list[MsgPack] = []
        while not packs or packs[-1].msgs[-1].id != 99:
            packs += await full_packs(stream, 1)

    for each in packs:
        ids = [message.id for message in each.msgs]
        assert {ids.count(number) for number in ids} == {len(CHANNELS)}
    came = {message.id for each in packs for message in each.msgs}
    assert came >= {number for number, outcome in enumerate(outcomes, 1) if isinstance(outcome, dict)}


async def test_a_pack_larger_than_an_append_travels_as_a_transaction(
    client: AsyncClient, factory: AsyncRmqMsgStreamFactory
) -> None:
    async with factory.new_tt_msg_stream() as stream:
        await stream.as_producer(["a/0"])
        await stream.as_consumer(["a/0"], "sub")
        ids = list(range(1, 81))
        sent = await stream.produce(pack(*ids, size=100_000))
        [whole] = await full_packs(stream, 80)

    assert [message.id for message in whole.msgs] == ids
    assert [message.position.msg_id for message in whole.msgs if message.position] == sent["a/0"]


async def test_a_transaction_of_any_client_is_in_one_pack(
    client: AsyncClient, factory: AsyncRmqMsgStreamFactory
) -> None:
    body = InsertMsg().marshal()
    factory.set_params({"tick_interval_ms": 10})
    async with factory.new_tt_msg_stream() as stream:
        await stream.as_consumer(["a/0", "a/1"], "sub")
        async with client.txn() as txn:
            for name in ("a/0", "a/1", "a/2"):
                await txn.append(name, [Message(body, type=MsgType.INSERT)] * 1_000)
        packs = await full_packs(stream, 2_000)

    assert [len(each.msgs) for each in packs] == [2_000]


async def test_the_type_stands_beside_the_message(client: AsyncClient, factory: AsyncRmqMsgStreamFactory) -> None:
    async with factory.new_msg_stream() as stream:
        await stream.as_producer(["a/0"])
        await stream.produce(pack(1))

    [batch] = [batch async for batch in client.scan("a/0", types=[MsgType.INSERT])]
    assert list(batch.types) == [MsgType.INSERT]


async def test_a_pack_is_refused_by_the_server_as_a_whole(
    client: AsyncClient, factory: AsyncRmqMsgStreamFactory
) -> None:
    factory.set_params({"max_message_bytes": 4 << 20})
    async with factory.new_msg_stream() as stream:
        await stream.as_producer(["a/0", "a/1"])
        with pytest.raises(tidelog.InvalidRequestError):
            await stream.produce(MsgPack(msgs=[*pack(1).msgs, *pack(2, size=2 << 20).msgs]))

    assert await payloads(client, "a/0") == await payloads(client, "a/1") == []


async def test_what_was_trimmed_is_told_and_each_channel_begins_where_it_is(
    client: AsyncClient, factory: AsyncRmqMsgStreamFactory
) -> None:
    async with factory.new_tt_msg_stream() as stream:
        await stream.as_producer(["a/0", "a/1"])
        await stream.as_consumer(["a/0", "a/1"], "sub")
        await stream.broadcast(pack(1))
        [first] = await full_packs(stream, 2)
        await stream.broadcast(pack(2))
        [second] = await full_packs(stream, 2)
        # One channel is trimmed up to the second pack, and the stream seeks there: the other channel is not affected.
        await client.trim("a/1", tidelog.Tick(second.end_ts + 1))
        [older, newer] = first.end_positions[0], second.end_positions[1]
        await stream.seek([older, newer])
        assert [message.id for message in await received(stream, 1)] == [2]

        await stream.seek(first.end_positions)
        with pytest.raises(tidelog.PositionTrimmedError) as trimmed:
            await full_packs(stream, 1)
        await stream.seek([newer])
        await stream.broadcast(pack(3))
        assert {message.id for message in await received(stream, 3)} == {2, 3}
    assert trimmed.value.vchannel == "a/1"


async def test_what_was_trimmed_of_a_channel_that_is_younger_than_the_pack_is_an_error(
    client: AsyncClient, factory: AsyncRmqMsgStreamFactory
) -> None:
    async with factory.new_tt_msg_stream() as stream:
        await stream.as_producer(["a/0"])
        await stream.produce(pack(1))
        # So that the pack ends before the creation of the other channel.
        await asyncio.sleep(2 * INTERVAL_MS / 1_000)
        young = await client.create_channel("young")
        await stream.as_producer(["young/0"])
        await stream.broadcast(pack(2))
        await stream.as_consumer(["a/0", "young/0"], "sub")
        [first] = await full_packs(stream, 1)
        assert first.end_ts < young.created_tick
        assert {each.channel_name: each.timestamp for each in first.end_positions} == {
            "a/0": first.end_ts, "young/0": young.created_tick,
        }  # fmt: skip
        assert len(await received(stream, 2)) == 2
        await client.trim("young/0", everything=True)
        await stream.seek(first.end_positions)
        with pytest.raises(tidelog.PositionTrimmedError) as trimmed:
            await full_packs(stream, 1)
    assert trimmed.value.vchannel == "young/0"


async def test_a_name_that_stands_for_several_vchannels_is_refused(factory: AsyncRmqMsgStreamFactory) -> None:
    async with factory.new_msg_stream() as stream:
        with pytest.raises(tidelog.InvalidRequestError, match="a has 6 vchannels: name one, such as a/0"):
            await stream.as_producer(["a"])
        with pytest.raises(tidelog.ChannelNotFoundError, match="expected one of a/0 to a/5"):
            await stream.as_producer(["a/6"])


async def test_a_channel_is_destroyed_as_a_whole_or_not_at_all(
    client: AsyncClient, factory: AsyncRmqMsgStreamFactory
) -> None:
    with pytest.raises(tidelog.InvalidRequestError, match="b has other vchannels, such as b/0"):
        await factory.dispose(["b/1", "a"], "sub", destroys_channels=True)
    assert [channel.name async for channel in client.list_channels()] == ["a", "b"]

    await factory.dispose(["b/1", "b/0", "nowhere/0"], "sub", destroys_channels=True)
    assert [channel.name async for channel in client.list_channels()] == ["a"]

    await factory.dispose(["a"], "sub", destroys_channels=True)
    assert [channel.name async for channel in client.list_channels()] == []


async def test_streams_go_on_when_the_server_was_killed(tmp_path: Path) -> None:
    port = lasting_port()
    running = await asyncio.to_thread(ServerProcess, tmp_path / "data", port)
    async with AsyncClient(running.grpc) as client:
        await client.create_channel("a", vchannels=2)
        factory = AsyncRmqMsgStreamFactory(client)
        async with AsyncExitStack() as stack:
            stack.callback(running.kill)
            stream = await stack.enter_async_context(factory.new_tt_msg_stream())
            await stream.as_producer(["a/0", "a/1"])
            await stream.as_consumer(["a/0", "a/1"], "sub")
            await stream.broadcast(pack(1))
            [before] = await full_packs(stream, 2)
            running.kill()
            running = await asyncio.to_thread(ServerProcess, tmp_path / "data", port)
            stack.callback(running.kill)
            stack.push_async_callback(stream.close)
            await stream.broadcast(pack(2))
            # The same stream, and one that begins where another program stopped.
            [after] = await full_packs(stream, 2)
            other = await stack.enter_async_context(factory.new_tt_msg_stream())
            await other.as_consumer(["a/0", "a/1"], "other", SubscriptionPosition.UNKNOWN)
            await other.seek(before.end_positions)

            assert [message.id for message in after.msgs] == [2, 2]
            assert await full_packs(other, 2) == [after]


@pytest.mark.parametrize("channels", [["a/0"], ["a/0", "a/1"]])
async def test_a_pack_is_sent_until_its_outcome_is_known_and_is_there_once(
    client: AsyncClient, channels: list[str]
) -> None:
    async with FaultProxy(client.endpoint, delay_s=0.01) as proxy, AsyncClient(proxy.endpoint) as far:
        stream = AsyncRmqMsgStreamFactory(far).new_msg_stream()
        await stream.as_producer(channels)
        for number in range(15):
            produced = asyncio.create_task(stream.produce(pack(2 * number, 2 * number + 1)))
            # At some moment between the request and the answer, which take 20 ms.
            await asyncio.sleep(number * 0.002)
            proxy.break_connections()
            assert sum(map(len, (await produced).values())) == 2
        await stream.close()

    factory = AsyncRmqMsgStreamFactory(client)
    async with factory.new_msg_stream() as reader:
        await reader.as_consumer(channels, "sub")
        assert sorted([message.id for message in await received(reader, 30)]) == list(range(30))
    assert sum([len(await payloads(client, channel)) for channel in channels]) == 30


async def test_a_saved_position_that_cannot_be_kept_is_an_error_and_not_tried_for_ever(client: AsyncClient) -> None:
    store = GroupSubscriptionStore(client)
    await store.begin("sub", {"a/0": 0})
    await store.save("sub", {"a/0": -5})
    async with asyncio.timeout(20):
        with pytest.raises(ValueError, match="tick"):
            await store.flush("sub")
        with pytest.raises(ValueError, match="tick"):
            await store.save("sub", {"a/0": 1})


async def test_a_subscription_outlives_programs_and_servers(tmp_path: Path) -> None:
    port = lasting_port()
    for number in (1, 2, 3):
        with await asyncio.to_thread(ServerProcess, tmp_path / "data", port) as running:
            async with AsyncClient(running.grpc) as client:
                await client.create_channel("a", if_not_exists=True)
                async with AsyncRmqMsgStreamFactory(client).new_msg_stream() as stream:
                    await stream.as_producer(["a"])
                    await stream.as_consumer(["a"], "sub", SubscriptionPosition.LATEST)
                    await stream.produce(pack(number))
                    received = await stream.consume()
                    if number > 1:
                        # The pack in hand when the program ended, and then new ones.
                        assert [message.id for message in received.msgs] == [number - 1]
                        received = await stream.consume()
                    assert [message.id for message in received.msgs] == [number]


async def test_a_client_that_closes_ends_its_streams(client: AsyncClient, factory: AsyncRmqMsgStreamFactory) -> None:
    stream = factory.new_tt_msg_stream()
    await stream.start()
    await stream.as_consumer(["a/0"], "sub", SubscriptionPosition.LATEST)
    await stream.consume()
    await client.aclose()

    with pytest.raises(tidelog.ClosedError):
        async for _ in stream.chan():
            pass
    await stream.close()
