"""The producer, over gRPC, to a server in this process. Method: every way of sending, compared with a scan."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import tidelog
from tidelog import AsyncClient, Message, ProducerOptions
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.fixtures import client_with
from tidelog_testing.parts.grpc_calls import running_server

client = client_with(orders=1)


async def test_every_way_of_sending_keeps_the_order_of_the_calls(client: AsyncClient) -> None:
    async with client.producer("orders") as producer:
        await producer.send(b"1")
        producer.send_nowait(Message(b"2", key=b"k"))
        await producer.send_many([b"3", Message(b"4"), b"5"])
        await producer.send(b"6")

    assert await payloads(client, "orders") == [b"1", b"2", b"3", b"4", b"5", b"6"]


async def test_each_ticket_is_the_position_of_its_message(client: AsyncClient) -> None:
    async with client.producer("orders", max_batch_bytes=100) as producer:
        tickets = [await producer.send(b"%d" % i) for i in range(100)]
        results = [await ticket for ticket in tickets]

    ticks = [tick async for batch in client.scan("orders") for tick in batch.ticks]
    assert [result.first_tick for result in results] == [result.last_tick for result in results] == ticks


async def test_a_ticket_may_be_awaited_twice_and_a_cancelled_wait_harms_no_other(client: AsyncClient) -> None:
    async with client.producer("orders") as producer:
        first, second = await producer.send(b"a"), await producer.send(b"b")

        async def wait() -> object:
            return await first

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        waiting.cancel()

        assert await second == await second
        assert (await first).first_tick < (await second).first_tick
        assert first.done()


async def test_a_large_list_is_cut_into_batches_and_arrives_whole(client: AsyncClient) -> None:
    messages = [b"%d" % i for i in range(25_000)]

    async with client.producer("orders", max_batch_bytes=50_000, max_in_flight_bytes=100_000) as producer:
        await producer.send_many(messages)

    assert await payloads(client, "orders") == messages


async def test_a_batch_leaves_when_its_first_message_has_lingered(client: AsyncClient) -> None:
    async with client.producer("orders", linger_s=0.05) as producer:
        ticket = await producer.send(b"first")

        async def keep_sending() -> None:
            # Messages arrive faster than the linger; if each restarted it, the first would never be sent.
            while not ticket.done():
                await producer.send(b"later")
                await asyncio.sleep(0.01)

        await asyncio.wait_for(keep_sending(), 5)


async def test_a_full_producer_says_so_and_has_room_after_a_flush(client: AsyncClient) -> None:
    async with client.producer("orders", linger_s=10, max_batch_bytes=100, max_in_flight_bytes=100) as producer:
        producer.send_nowait(b"x" * 80)
        with pytest.raises(tidelog.BufferFullError):
            producer.send_nowait(b"y" * 80)
        await producer.flush()
        producer.send_nowait(b"z" * 80)

    assert await payloads(client, "orders") == [b"x" * 80, b"z" * 80]


async def test_waiting_for_room_does_not_wait_for_the_linger(client: AsyncClient) -> None:
    async with client.producer("orders", linger_s=60, max_batch_bytes=100, max_in_flight_bytes=100) as producer:
        for _ in range(5):
            await asyncio.wait_for(producer.send(b"x" * 60), 5)


async def test_a_flush_tells_the_first_failure_and_every_later_send_says_that_the_producer_stopped(
    client: AsyncClient,
) -> None:
    producer = client.producer("nowhere")
    ticket = await producer.send(b"a")

    with pytest.raises(tidelog.ChannelNotFoundError):
        await producer.flush()
    with pytest.raises(tidelog.ChannelNotFoundError):
        await ticket
    with pytest.raises(tidelog.ProducerStoppedError) as caught:
        await producer.send(b"b")
    assert isinstance(caught.value.__cause__, tidelog.ChannelNotFoundError)
    assert caught.value.effect == "none"


async def test_leaving_the_block_by_an_error_shows_that_error(client: AsyncClient) -> None:
    async def fail() -> None:
        async with client.producer("nowhere") as producer:
            await producer.send(b"a")
            raise KeyError

    with pytest.raises(KeyError):
        await fail()


async def test_a_closed_producer_says_so(client: AsyncClient) -> None:
    async with client.producer("orders") as producer:
        pass

    with pytest.raises(tidelog.ClosedError):
        await producer.send(b"a")


@pytest.mark.parametrize("options", [{"linger_s": -1}, {"max_batch_bytes": 0}, {"max_in_flight_bytes": 5}])
async def test_options_out_of_range_are_refused(client: AsyncClient, options: ProducerOptions) -> None:
    with pytest.raises(ValueError, match="expected"):
        client.producer("orders", **options)


MAX_BYTES = 1_000
SMALL, LARGE = b"s" * 10, b"L" * (MAX_BYTES + 1)


@pytest.fixture
async def strict() -> AsyncIterator[AsyncClient]:
    """A client of a server whose own limit is below that of the client."""
    async with running_server(limits__max_message_bytes=MAX_BYTES) as started:
        async with AsyncClient(started.grpc_endpoint) as client:
            await client.create_channel("orders")
            yield client


async def test_a_message_above_the_servers_limit_fails_alone(strict: AsyncClient) -> None:
    """Three callers share a producer, with batches in flight before and after the ones that are refused."""

    async def send(name: str, bad: frozenset[int]) -> list[bytes]:
        sent = [f"{name}{i}".encode() + (LARGE if i in bad else b"") for i in range(60)]
        tickets = [await producer.send(payload) for payload in sent]
        for index, ticket in enumerate(tickets):
            if index in bad:
                with pytest.raises(tidelog.InvalidRequestError, match=r"has 10\d\d bytes, .* at most 1000"):
                    await ticket
            else:
                ticks[sent[index]] = (await ticket).first_tick
        return [payload for index, payload in enumerate(sent) if index not in bad]

    ticks: dict[bytes, int] = {}
    async with strict.producer("orders", linger_s=0, max_batch_bytes=2_500) as producer:
        bad: tuple[frozenset[int], ...] = (frozenset({0, 7, 8, 59}), frozenset(), frozenset(range(20, 40)))
        good = await asyncio.gather(*map(send, "abc", bad))
        with pytest.raises(tidelog.InvalidRequestError):
            await producer.flush()
        last = await producer.send(b"last")
        await producer.flush()
        ticks[b"last"] = (await last).first_tick

    found = [
        (bytes(payload), tick)
        async for batch in strict.scan("orders")
        for payload, tick in zip(batch.payloads, batch.ticks, strict=True)
    ]
    assert dict(found) == ticks
    assert len(found) == sum(map(len, good)) + 1
    for name, expected in zip("abc", good, strict=True):
        assert [payload for payload, _ in found if payload.startswith(name.encode())] == expected


async def test_send_many_and_send_nowait_leave_out_what_is_too_large(strict: AsyncClient) -> None:
    producer = strict.producer("orders")
    await producer.send_many([b"1", LARGE, Message(b"2", key=b"k"), Message(LARGE, key=b"k"), b"3"])
    producer.send_nowait(LARGE)
    producer.send_nowait(b"4")

    with pytest.raises(tidelog.InvalidRequestError, match="has 1001 bytes"):
        await producer.aclose()
    assert await payloads(strict, "orders") == [b"1", b"2", b"3", b"4"]


async def test_a_message_above_the_servers_limit_of_a_batch_fails_alone() -> None:
    limits: dict[str, Any] = {"limits__max_message_bytes": MAX_BYTES, "limits__max_batch_bytes": MAX_BYTES}
    async with running_server(**limits) as started, AsyncClient(started.grpc_endpoint) as client:
        await client.create_channel("orders")
        producer = client.producer("orders")
        await producer.send_many([b"1", LARGE, b"2"])
        with pytest.raises(tidelog.InvalidRequestError, match="has 1001 bytes"):
            await producer.flush()
        assert await payloads(client, "orders") == [b"1", b"2"]


async def test_a_producer_without_numbers_stops_at_what_is_too_large(strict: AsyncClient) -> None:
    """Batches behind the refused one may be in the log already, so that the rest of it cannot keep its place."""
    producer = strict.producer("orders", idempotent=False)
    await producer.send(LARGE)
    with pytest.raises(tidelog.InvalidRequestError):
        await producer.flush()
    with pytest.raises(tidelog.ProducerStoppedError):
        await producer.send(b"x")


async def test_a_transaction_above_the_servers_limit_fails_alone(strict: AsyncClient) -> None:
    async def commit(payload: bytes) -> None:
        async with strict.txn() as txn:
            await txn.append("orders", [SMALL, payload])

    outcomes = await asyncio.gather(*map(commit, [b"a", LARGE, b"b"]), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [type(None), tidelog.InvalidRequestError, type(None)]
    assert sorted(await payloads(strict, "orders")) == [b"a", b"b", SMALL, SMALL]
