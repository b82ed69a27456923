"""Appends to a channel with several vchannels: by client, producers and transactions. Method: real calls."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import grpc.aio
import pytest
from crc32c import crc32c

import tidelog
from tidelog import AppendResult, AsyncClient, Message, ProducerSequence, partition_keys
from tidelog.v1 import message_pb2, wal_service_pb2_grpc
from tidelog.v1 import wal_service_pb2 as wal
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.fixtures import client_with

COUNT = 4
client = client_with(orders=COUNT, one=1)


def keyed(count: int, first: int = 0) -> list[Message]:
    return [Message(b"%d" % number, key=b"key-%d" % (number % 97)) for number in range(first, first + count)]


async def placed(client: AsyncClient, channel: str = "orders") -> dict[bytes, str]:
    """Return the vchannel of each payload, which is there once."""
    found: dict[bytes, str] = {}
    async for batch in client.scan(channel):
        for payload in batch.payloads:
            assert payload not in found
            found[payload] = batch.vchannel
    return found


def expected(messages: Sequence[Message], vchannels: int = COUNT) -> dict[bytes, str]:
    return {each.payload: f"orders/{crc32c(each.key or b'') % vchannels}" for each in messages}


def check_parts(result: AppendResult, messages: Sequence[Message | bytes]) -> None:
    """Check that the parts have each message once."""
    places = [place for part in result.parts for place in part.indices]
    assert sorted(places) == list(range(len(messages)))
    for part in result.parts:
        assert part.result.last_tick - part.result.first_tick + 1 == len(part.indices)
        assert not part.result.parts
    assert result.first_tick == min(part.result.first_tick for part in result.parts)
    assert result.last_tick == max(part.result.last_tick for part in result.parts)


async def test_a_call_is_divided_by_the_keys_of_its_messages(client: AsyncClient) -> None:
    messages = keyed(500)

    result = await client.append("orders", messages)

    check_parts(result, messages)
    assert [part.vchannel for part in result.parts] == [f"orders/{index}" for index in range(COUNT)]
    assert await placed(client) == expected(messages)
    for part in result.parts:
        ticks = {
            payload: tick
            async for batch in client.scan(part.vchannel)
            for payload, tick in zip(batch.payloads, batch.ticks, strict=True)
        }
        assert [ticks[messages[place].payload] for place in part.indices] == list(
            range(part.result.first_tick, part.result.last_tick + 1)
        )


async def test_calls_without_keys_take_turns(client: AsyncClient) -> None:
    results = [
        await client.channel("orders").append([b"%d" % number, b"and %d" % number]) for number in range(2 * COUNT)
    ]

    assert Counter(part.vchannel for result in results for part in result.parts) == {
        f"orders/{index}": 2 for index in range(COUNT)
    }
    assert all(len(result.parts) == 1 for result in results)


async def test_messages_without_key_in_a_call_go_together(client: AsyncClient) -> None:
    messages: list[Message | bytes] = [*keyed(20), b"a", Message(b"b"), b"c"]

    check_parts(await client.append("orders", messages), messages)

    where = await placed(client)
    assert where[b"a"] == where[b"b"] == where[b"c"]
    assert {payload: where[payload] for payload in expected(keyed(20))} == expected(keyed(20))


async def test_a_named_vchannel_and_a_channel_with_one_answer_as_before(client: AsyncClient) -> None:
    for name in ("orders/2", "one", "one/0"):
        result = await client.append(name, [b"x", Message(b"y", key=b"k")])
        assert (result.parts, result.last_tick - result.first_tick) == ((), 1)
    assert await payloads(client, "orders/2") == [b"x", b"y"]


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32c", lambda key, vchannels: len(key) % vchannels])
async def test_a_partitioner_chooses(client: AsyncClient, partitioner: tidelog.Partitioner) -> None:
    messages = keyed(100)
    chosen = partition_keys([message.key for message in messages], COUNT, partitioner)
    await client.append("orders", messages, partitioner=partitioner)
    async with client.producer("orders", partitioner=partitioner) as producer:
        await producer.send_many(keyed(100, 100))
    async with client.txn() as txn:
        await txn.append("orders", keyed(100, 200), partitioner=partitioner)

    where = await placed(client)

    assert {message.payload: where[message.payload] for message in messages} == {
        message.payload: f"orders/{index}" for message, index in zip(messages, chosen, strict=True)
    }
    index_of = {message.key: index for message, index in zip(messages, chosen, strict=True)}
    for message in keyed(200, 100):
        assert where[message.payload] == f"orders/{index_of[message.key]}"


async def test_a_partitioner_that_fails_appends_nothing(client: AsyncClient) -> None:
    def failing(key: bytes, vchannels: int) -> int:
        raise LookupError(key, vchannels)

    await client.append("orders", b"first")
    with pytest.raises(tidelog.InvalidRequestError, match="LookupError"):
        await client.append("orders", keyed(1), partitioner=failing)
    with pytest.raises(ValueError, match="'md5'"):
        await client.append("orders", keyed(1), partitioner="md5")  # type: ignore[arg-type]  # It is refused.
    with pytest.raises(tidelog.InvalidRequestError, match="'orders/1' is one vchannel"):
        await client.append("orders/1", keyed(1), partitioner="murmur2")
    with pytest.raises(tidelog.InvalidRequestError, match="'orders/1' is one vchannel"):
        client.producer("orders/1", partitioner="murmur2")
    async with client.producer("orders", linger_s=0, partitioner=failing) as producer:
        ticket = await producer.send(keyed(1)[0])
        with pytest.raises(tidelog.InvalidRequestError, match="LookupError"):
            await ticket
        with pytest.raises(tidelog.InvalidRequestError):
            await producer.flush()
        with pytest.raises(tidelog.InvalidRequestError):
            await producer.aclose()
    assert set(await placed(client)) == {b"first"}


async def test_a_condition_on_the_last_tick_needs_one_vchannel(client: AsyncClient) -> None:
    with pytest.raises(tidelog.InvalidRequestError, match="expected_last_tick is the tick of one vchannel"):
        await client.append("orders", b"x", expected_last_tick=0)
    with pytest.raises(tidelog.InvalidRequestError, match="expected_last_tick is the tick of one vchannel"):
        async with client.txn() as txn:
            await txn.append("orders", b"x", expected_last_tick=0)
    await client.append("one", b"x", expected_last_tick=0)


async def test_an_error_says_which_parts_are_in_the_log(client: AsyncClient) -> None:
    messages = keyed(100)
    for index in range(COUNT):
        await client.fence(f"orders/{index}", 9 if index == 2 else 5)

    with pytest.raises(tidelog.AppendPartlyDoneError, match="not in the log: orders/2") as caught:
        await client.append("orders", messages, fencing_token=5)

    error = caught.value
    assert [part.vchannel for part in error.done] == ["orders/0", "orders/1", "orders/3"]
    assert [(part.vchannel, type(part.error)) for part in error.not_done] == [("orders/2", tidelog.FencedError)]
    assert (error.unknown, error.effect, type(error.__cause__)) == ((), "unknown", tidelog.FencedError)
    places = [place for done in error.done for place in done.indices]
    places += [place for failed in error.not_done for place in failed.indices]
    assert sorted(places) == list(range(100))
    wanted = {payload: name for payload, name in expected(messages).items() if name != "orders/2"}
    assert await placed(client) == wanted
    # If nothing of it is in the log, the error is that of the server.
    with pytest.raises(tidelog.FencedError):
        await client.append("orders", messages, fencing_token=7)


async def test_a_producer_keeps_the_order_of_each_key(client: AsyncClient) -> None:
    messages = keyed(5_000)

    async with client.channel("orders").producer(max_batch_bytes=4_000) as producer:
        tickets = [await producer.send(message) for message in messages[:100]]
        await producer.send_many(messages[100:])
        results = [await ticket for ticket in tickets]
        await producer.flush()
        totals = producer.totals

    assert await placed(client) == expected(messages)
    for message, result in zip(messages, results, strict=False):
        [part] = result.parts
        assert part.vchannel == expected([message])[message.payload]
        assert result.first_tick == result.last_tick == part.result.first_tick
    for index in range(COUNT):
        numbers = [int(payload) for payload in await payloads(client, f"orders/{index}")]
        assert numbers == sorted(numbers)
        assert totals[f"orders/{index}"].messages == len(numbers)


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_producer_without_keys_is_balanced(client: AsyncClient, idempotent: bool) -> None:
    lines = [b"%d" % number for number in range(100_000)]

    async with client.producer("orders", idempotent=idempotent, max_batch_bytes=20_000) as producer:
        await producer.send_many(lines)

    where = await placed(client)
    assert set(where) == set(lines)
    for count in Counter(where.values()).values():
        assert abs(count - len(lines) / COUNT) <= 0.05 * len(lines) / COUNT


async def test_a_producer_of_a_channel_with_one_vchannel_is_as_before(client: AsyncClient) -> None:
    async with client.producer("one", linger_s=0) as producer:
        tickets = [await producer.send(b"%d" % number) for number in range(50)]

    results = [await ticket for ticket in tickets]
    assert [(result.parts, result.first_tick == result.last_tick) for result in results] == [((), True)] * 50
    assert await payloads(client, "one") == [b"%d" % number for number in range(50)]
    assert producer.totals == {}


async def test_a_producer_of_no_channel_fails_at_the_first_send(client: AsyncClient) -> None:
    producer = client.producer("nowhere", linger_s=0)
    tickets = [await producer.send(b"x") for _ in range(3)]
    with pytest.raises(tidelog.ChannelNotFoundError):
        await producer.flush()
    for ticket in tickets:
        with pytest.raises(tidelog.TidelogError):
            await ticket


async def test_a_message_that_is_too_large_fails_alone(client: AsyncClient) -> None:
    messages = keyed(40)
    messages[7] = Message(bytes(2 << 20), key=messages[7].key)
    producer = client.producer("orders", max_batch_bytes=4 << 20)
    tickets = [await producer.send(message) for message in messages]

    with pytest.raises(tidelog.InvalidRequestError, match="payload of the message has 2097152 bytes"):
        await producer.flush()

    with pytest.raises(tidelog.InvalidRequestError):
        await tickets[7]
    others = [message for place, message in enumerate(messages) if place != 7]
    assert await placed(client) == expected(others)
    for place, ticket in enumerate(tickets):
        if place != 7:
            assert (await ticket).parts[0].vchannel == expected([messages[place]])[messages[place].payload]


@pytest.mark.parametrize("count", [200, 300_000])
async def test_a_transaction_is_divided_small_and_large(client: AsyncClient, count: int) -> None:
    messages = keyed(count)

    async with client.txn() as txn:
        await txn.append("one", b"also")
        for begin in range(0, count, 50_000):
            await txn.append("orders", messages[begin : begin + 50_000])

    assert await placed(client) == expected(messages)
    assert set(txn.result.results) == {"one", *(f"orders/{index}" for index in range(COUNT))}
    assert sum(each.last_tick - each.first_tick + 1 for each in txn.result.results.values()) == count + 1
    assert txn.result.last_tick - txn.result.first_tick == count
    for index in range(COUNT):
        numbers = [int(payload) for payload in await payloads(client, f"orders/{index}")]
        assert numbers == sorted(numbers)


async def test_a_transaction_without_keys_is_balanced(client: AsyncClient) -> None:
    lines = [b"%d" % number for number in range(200_000)]

    async with client.txn() as txn:
        await txn.append("orders", lines)

    counts = Counter((await placed(client)).values())
    assert all(abs(count - 50_000) <= 2_500 for count in counts.values()), counts


async def test_concurrent_commits_of_one_transaction_learn_once(client: AsyncClient) -> None:
    txn = client.txn()
    await txn.append("orders", keyed(20))

    first, second = await asyncio.gather(txn.commit(), txn.commit())

    assert first == second
    assert await placed(client) == expected(keyed(20))


async def test_columns_need_a_vchannel(client: AsyncClient) -> None:
    await client.append("one", keyed(3))
    async with client.txn() as txn:
        async for batch in client.scan("one"):
            with pytest.raises(tidelog.InvalidRequestError, match="'orders' has 4 vchannels: name the one"):
                await txn.append_columns("orders", batch.columns)
            await txn.append_columns("orders/3", batch.columns)
    assert len(await payloads(client, "orders/3")) == 3


@pytest.mark.parametrize("count", [1, 2, 7])
async def test_a_channel_that_is_created_again_has_its_new_number(client: AsyncClient, count: int) -> None:
    await client.append("orders", keyed(100))
    await client.destroy_channels(["orders"])
    with pytest.raises(tidelog.ChannelNotFoundError):
        await client.append("orders", keyed(1))
    await client.append("one", b"x")
    await client.create_channel("orders", vchannels=COUNT)
    await client.append("orders", keyed(100))
    await client.destroy_channels(["orders"])
    await client.create_channel("orders", vchannels=count)

    first = await client.append("orders", keyed(100))
    # With more vchannels, the answer to the first one tells it.
    result = await client.append("orders", keyed(100, 1_000))
    async with client.txn() as txn:
        await txn.append("orders", keyed(100, 2_000))
    async with client.producer("orders") as producer:
        await producer.send_many(keyed(100, 3_000))

    check_parts(result, keyed(100)) if count > 1 else None
    assert sum(len(part.indices) for part in first.parts) == 100
    where = await placed(client)
    later = keyed(100, 1_000) + keyed(100, 2_000) + keyed(100, 3_000)
    assert {message.payload: where[message.payload] for message in later} == expected(later, count)
    if count < COUNT:
        assert where == expected(keyed(100) + later, count)


async def test_transactions_and_producers_forget_a_number_that_is_too_large(client: AsyncClient) -> None:
    async def created_again(vchannels: int) -> None:
        await client.destroy_channels(["orders"])
        await client.create_channel("orders", vchannels=vchannels)

    await client.append("orders", keyed(50))
    await created_again(2)
    txn = client.txn()
    await txn.append("orders", keyed(50))
    with pytest.raises(tidelog.ChannelNotFoundError):
        await txn.commit()
    await txn.rollback()
    async with client.txn() as again:
        await again.append("orders", keyed(50))
    assert await placed(client) == expected(keyed(50), 2)

    producer = client.producer("orders", linger_s=0)
    await producer.send_many(keyed(50, 50))
    await producer.flush()
    await created_again(1)
    await producer.send_many(keyed(50, 100))
    with pytest.raises(tidelog.ChannelNotFoundError):
        await producer.flush()
    async with client.producer("orders") as another:
        await another.send_many(keyed(50, 1_000))
    assert set(await placed(client)) >= {message.payload for message in keyed(50, 1_000)}


async def test_numbered_appends_of_one_producer_are_there_once(client: AsyncClient) -> None:
    calls = [keyed(10, 10 * number) for number in range(20)]
    position = await client.open_producer("orders", "loader")
    assert (position.vchannels, position.last_sequence, position.epoch) == (COUNT, 0, 1)
    for number, messages in enumerate(calls[:10], 1):
        result = await client.append("orders", messages, producer=position.sequence(number))
        assert not result.duplicate
        again = await client.append("orders", messages, producer=position.sequence(number))
        assert (again.parts[0].result.first_tick, again.duplicate) == (result.parts[0].result.first_tick, True)

    async with AsyncClient(client.endpoint) as other:
        taken = await other.channel("orders").open_producer("loader")
        assert (taken.vchannels, taken.last_sequence, taken.epoch) == (COUNT, 9, 2)
        with pytest.raises(tidelog.ProducerFencedError):
            await client.append("orders", calls[10], producer=position.sequence(11))
        for number in range(taken.last_sequence + 1, len(calls) + 1):
            await other.append("orders", calls[number - 1], producer=taken.sequence(number))

    assert await placed(client) == expected([message for messages in calls for message in messages])


async def test_a_numbered_append_must_not_move(client: AsyncClient) -> None:
    with pytest.raises(tidelog.InvalidRequestError, match=r"open it on the channel with open_producer"):
        await client.append("orders", keyed(2), producer=ProducerSequence("p", 1))
    position = await client.open_producer("orders", "p")
    with pytest.raises(tidelog.InvalidRequestError, match=r"messages\[1\] has no key"):
        await client.append("orders", [*keyed(1), b"x"], producer=position.sequence(1))
    with pytest.raises(tidelog.InvalidRequestError, match="has the number 2, expected 1"):
        await client.append("orders", keyed(1), producer=position.sequence(2))
    with pytest.raises(tidelog.InvalidRequestError, match="was opened on the channel of orders/1"):
        await client.open_producer("orders/1", "p")
    await client.open_producer("orders/1", "q")
    with pytest.raises(tidelog.InvalidRequestError, match="was opened on orders/1 alone"):
        await client.open_producer("orders", "q")
    assert await placed(client) == {}


async def test_a_producer_id_of_the_only_vchannel_is_as_before(client: AsyncClient) -> None:
    position = await client.open_producer("one", "p")
    await client.append("one", b"1", producer=position.sequence(1))
    await client.append("one/0", b"2", producer=position.sequence(2))

    assert (await client.open_producer("one/0", "p")).last_sequence == 2
    assert (await client.open_producer("one", "p")).last_sequence == 2
    assert await payloads(client, "one") == [b"1", b"2"]


async def test_answers_have_the_number_of_vchannels(client: AsyncClient) -> None:
    async with grpc.aio.insecure_channel(client.endpoint) as channel:
        stub: Any = wal_service_pb2_grpc.WalServiceStub(channel)  # type: ignore[no-untyped-call]  # Generated.
        for name, number in (("orders/3", COUNT), ("one", 0), ("one/0", 0)):
            request = wal.AppendRequest(vchannel=name, messages=[message_pb2.Message(payload=b"x")])
            answer = await stub.Append(request)
            assert answer.result.vchannels == number


def test_the_synchronous_client_does_the_same(tidelog_client: tidelog.Client) -> None:
    client = tidelog_client
    client.create_channel("orders", vchannels=COUNT)
    check_parts(client.append("orders", keyed(50)), keyed(50))
    with client.channel("orders").producer() as producer:
        ticket = producer.send(keyed(1, 50)[0])
        producer.send_many(keyed(49, 51))
        [part] = ticket.result().parts
        producer.flush()
        assert part.vchannel in producer.totals
    with client.txn() as txn:
        txn.append("orders", keyed(50, 100))
    position = client.channel("orders").open_producer("p")
    client.channel("orders").append(keyed(50, 150), producer=position.sequence(1))

    found = {payload: batch.vchannel for batch in client.scan("orders") for payload in batch.payloads}

    assert found == expected(keyed(200))
