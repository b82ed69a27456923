"""How a close of a client ends the calls in progress: the error of each call, compared with the log.

Method: a real server; to keep a call in progress, a proxy delays or withholds bytes.

Promises of docs/reference/guarantees.md: G13.
"""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager

import pytest

import tidelog
from tidelog import AppendUnknownError, AsyncClient, Client, ClosedError, ProducerSequence, ResourceKey
from tidelog.testing import TestServer, start_server
from tidelog_testing.faults.fault_proxy import FaultProxy

CALLS = 50
ROUNDS = 6
ENOUGH = 20
LANES = [f"lanes/{number}" for number in range(CALLS)]
Kind = Callable[[AsyncClient, int, bytes], Coroutine[None, None, object]]


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with start_server() as running:
        yield running


@pytest.fixture
async def direct(server: TestServer) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.endpoint) as client:
        await client.create_channel("lanes", vchannels=CALLS)
        await client.create_channel("lane")
        yield client
        await client.destroy_channels(["lanes", "lane"], force=True)


@asynccontextmanager
async def away(server: TestServer, *, timeout_s: float) -> AsyncIterator[tuple[AsyncClient, FaultProxy]]:
    """Yield a connected client, and the proxy in front of its server, which no longer forwards anything."""
    async with FaultProxy(server.endpoint) as proxy:
        client = AsyncClient(proxy.endpoint, timeout_s=timeout_s)
        await client.wal_name()
        proxy.cut()
        yield client, proxy
        await client.aclose()


async def plain(client: AsyncClient, number: int, payload: bytes) -> object:
    return await client.append(LANES[number], payload, timeout_s=20)


async def numbered(client: AsyncClient, number: int, payload: bytes) -> object:
    return await client.append(LANES[number], payload, producer=ProducerSequence("p", 1, 1), timeout_s=20)


async def behind_a_barrier(client: AsyncClient, number: int, payload: bytes) -> object:
    return await client.append(LANES[number], payload, barrier_tick=1, timeout_s=20)


async def on_a_condition(client: AsyncClient, number: int, payload: bytes) -> object:
    return await client.append(LANES[number], payload, expected_last_tick=0, timeout_s=20)


async def broadcast(client: AsyncClient, number: int, payload: bytes) -> object:
    return await client.broadcast([LANES[number], "lane"], payload, timeout_s=20)


async def transaction(client: AsyncClient, number: int, payload: bytes) -> object:
    async with client.txn(timeout_s=20) as txn:
        await txn.append(LANES[number], payload)
        await txn.append("lane", payload)
    return txn.result


async def staged_transaction(client: AsyncClient, number: int, payload: bytes) -> object:
    async with client.txn(timeout_s=20) as txn:
        # A transaction with a barrier is begun, staged and committed by separate calls.
        await txn.append(LANES[number], payload, barrier_tick=1)
    return txn.result


async def producer(client: AsyncClient, number: int, payload: bytes) -> object:
    async with client.producer(LANES[number], linger_s=0) as sender:
        return await (await sender.send(payload))


KINDS = [plain, numbered, behind_a_barrier, on_a_condition, broadcast, transaction, staged_transaction, producer]


async def in_the_log(direct: AsyncClient) -> set[bytes]:
    async with direct.scan(LANES) as scan:
        return {payload async for batch in scan for payload in batch.payloads}


async def prepared(direct: AsyncClient, kind: Kind) -> None:
    if kind is numbered:
        await asyncio.gather(*(direct.open_producer(lane, "p") for lane in LANES))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_close_waits_for_what_is_appended(server: TestServer, direct: AsyncClient, kind: Kind) -> None:
    await prepared(direct, kind)
    async with FaultProxy(server.endpoint, delay_s=0.02) as proxy:
        async with AsyncClient(proxy.endpoint) as client:
            await client.wal_name()
            calls = [asyncio.create_task(kind(client, number, b"%d" % number)) for number in range(CALLS)]
            # By then, kinds that use unary calls have sent a request.
            await asyncio.sleep(0.01)
        outcomes = await asyncio.gather(*calls, return_exceptions=True)

    closed = [each for each in outcomes if isinstance(each, ClosedError)]
    assert [each for each in outcomes if isinstance(each, BaseException) and each not in closed] == []
    assert {each.effect for each in closed} <= {"none"}
    # A staged transaction that is between two of its calls is not an append in progress.
    assert not closed or kind is staged_transaction
    assert len(await in_the_log(direct)) == CALLS - len(closed)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_close_at_any_moment_tells_what_is_in_the_log(
    server: TestServer, direct: AsyncClient, kind: Kind
) -> None:
    chance = random.Random(kind.__name__)
    for number in range(ROUNDS):
        await prepared(direct, kind)
        async with FaultProxy(server.endpoint, delay_s=0.005) as proxy:
            client = AsyncClient(proxy.endpoint, timeout_s=chance.choice([0.002, 0.01, 5.0]))
            calls = [asyncio.create_task(kind(client, each, b"%d.%d" % (number, each))) for each in range(CALLS)]
            await asyncio.sleep(chance.random() * 0.06)
            await client.aclose()
            outcomes = await asyncio.gather(*calls, return_exceptions=True)

        unexpected = [
            each for each in outcomes
            if isinstance(each, BaseException) and not isinstance(each, ClosedError | AppendUnknownError)
        ]  # fmt: skip
        assert unexpected == []
        there = await in_the_log(direct)
        for each, outcome in enumerate(outcomes):
            payload = b"%d.%d" % (number, each)
            if isinstance(outcome, AppendUnknownError):
                assert outcome.effect == "unknown"
            elif isinstance(outcome, ClosedError):
                assert outcome.effect == "none"
                assert payload not in there
            else:
                assert payload in there
        await direct.destroy_channels(["lanes", "lane"], force=True)
        await direct.create_channel("lanes", vchannels=CALLS)
        await direct.create_channel("lane")


@pytest.mark.parametrize("kind", [numbered, behind_a_barrier, on_a_condition, broadcast, plain, transaction])
async def test_what_was_sent_and_not_answered_has_an_unknown_effect(
    server: TestServer, direct: AsyncClient, kind: Kind
) -> None:
    await prepared(direct, kind)
    async with FaultProxy(server.endpoint) as proxy:
        client = AsyncClient(proxy.endpoint, timeout_s=0.2)
        await client.wal_name()
        # So that the client has broadcast ids and an open stream.
        await client.append("lane", b"before")
        await client.broadcast(["lane"], b"before")
        proxy.cut()
        call = asyncio.create_task(kind(client, 0, b"sent"))
        await asyncio.sleep(0)
        await client.aclose()
        with pytest.raises(AppendUnknownError) as unknown:
            await call
    assert unknown.value.effect == "unknown"


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_never_sent_has_no_effect(server: TestServer, direct: AsyncClient, kind: Kind) -> None:
    async with FaultProxy(server.endpoint) as proxy:
        proxy.cut()
        client = AsyncClient(proxy.endpoint, timeout_s=0.2, connect_timeout_s=20)
        call = asyncio.create_task(kind(client, 0, b"never sent"))
        await asyncio.sleep(0.01)
        await client.aclose()
        with pytest.raises(ClosedError) as closed:
            await call
    assert closed.value.effect == "none"
    assert await in_the_log(direct) == set()


READS: list[Callable[[AsyncClient], Awaitable[object]]] = [
    lambda client: client.wait_acked(ResourceKey("d", "held"), timeout_s=60),
    lambda client: client.consume("waiting", "lane", wait_s=30),
    lambda client: client.consume("waiting", "lane", wait_s=30, commit=True),
    lambda client: client.allocate_ticks(),
    lambda client: client.describe_channels(["lane"]),
    lambda client: client.describe_cluster(),
    lambda client: anext(client.list_broadcasts()),
    lambda client: client.list_txns(),
    lambda client: client.describe_group("waiting"),
    lambda client: anext(aiter(client.tail("lane"))),
    lambda client: _second(client.owners_feed()),
]


async def _second(feed: AsyncIterator[object]) -> object:
    await anext(feed)
    return await anext(feed)


@pytest.mark.parametrize("number", range(len(READS)))
async def test_calls_that_only_read_or_wait_end_at_once(server: TestServer, direct: AsyncClient, number: int) -> None:
    key = ResourceKey("d", "held")
    held = await direct.broadcast(["lane"], b"m", resource_keys=[key])
    await direct.create_group("waiting", ["lane"], start=tidelog.At.latest())
    async with FaultProxy(server.endpoint) as proxy:
        client = AsyncClient(proxy.endpoint, timeout_s=30)
        await client.wal_name()
        if number not in (0, 1, 2, 9, 10):
            proxy.cut()
        call = asyncio.ensure_future(READS[number](client))
        # By then, calls that wait on the server have sent their request.
        await asyncio.sleep(0.1)
        async with asyncio.timeout(5):
            await client.aclose()
            with pytest.raises(ClosedError) as closed:
                await call
    # A consume with commit may have moved the position.
    assert closed.value.effect == ("unknown" if number == 2 else "none")
    await direct.ack(held.broadcast_id, "lane")
    await direct.destroy_group("waiting", force=True)


CHANGES: list[Callable[[AsyncClient], Awaitable[object]]] = [
    lambda client: client.create_channel("made"),
    lambda client: client.destroy_channels(["made"], ignore_missing=True),
    lambda client: client.create_group("made"),
    lambda client: client.trim("lane", everything=True),
    lambda client: client.fence("lane", 7),
    lambda client: client.ack(1, "lane"),
    lambda client: client.abort_txn(1, "why"),
]


@pytest.mark.parametrize("number", range(len(CHANGES)))
async def test_other_changes_tell_their_effect(server: TestServer, direct: AsyncClient, number: int) -> None:
    async with away(server, timeout_s=20) as (client, _):
        call = asyncio.ensure_future(CHANGES[number](client))
        await asyncio.sleep(0)
        # The close has a shorter timeout than the call.
        client.timeout_s = 0.2
        await client.aclose()
        with pytest.raises(ClosedError) as closed:
            await call
    assert closed.value.effect == "unknown"


async def test_changes_under_way_are_answered(server: TestServer, direct: AsyncClient) -> None:
    async with FaultProxy(server.endpoint, delay_s=0.05) as proxy:
        async with AsyncClient(proxy.endpoint) as client:
            await client.wal_name()
            created = asyncio.create_task(client.create_channel("made"))
            await asyncio.sleep(0)
        assert (await created).name == "made"
    await direct.destroy_channels(["made"])


async def test_a_consumers_commit_under_way_is_answered(server: TestServer, direct: AsyncClient) -> None:
    await direct.append("lane", [b"a", b"b"])
    async with FaultProxy(server.endpoint, delay_s=0.02) as proxy:
        client = AsyncClient(proxy.endpoint)
        consumer = client.consumer("committing", ["lane"], auto_commit=False)
        await consumer.join()
        await anext(consumer)
        commit = asyncio.create_task(consumer.commit())
        await asyncio.sleep(0)
        await client.aclose()
        await commit
        await consumer.aclose()
    assert (await direct.describe_group("committing")).positions["lane/0"].lag_messages == 0
    await direct.destroy_group("committing", force=True)


async def test_a_task_group_gets_the_error_instead_of_a_task_that_vanished(
    server: TestServer, direct: AsyncClient
) -> None:
    async with away(server, timeout_s=0.1) as (client, _):
        with pytest.raises(ExceptionGroup) as group:
            async with asyncio.TaskGroup() as tasks:
                call = tasks.create_task(behind_a_barrier(client, 0, b"m"))
                await asyncio.sleep(0)
                tasks.create_task(client.aclose())
    assert not call.cancelled()
    assert group.group_contains(AppendUnknownError)


async def test_a_cancelled_caller_stays_cancelled_during_a_close(server: TestServer, direct: AsyncClient) -> None:
    async with away(server, timeout_s=5) as (client, proxy):
        call = asyncio.create_task(behind_a_barrier(client, 0, b"m"))
        await asyncio.sleep(0)
        closing = asyncio.create_task(client.aclose())
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        proxy.heal()
        await closing


async def test_a_close_that_is_cancelled_still_ends_every_call(server: TestServer, direct: AsyncClient) -> None:
    async with away(server, timeout_s=20) as (client, _):
        calls = [asyncio.create_task(kind(client, 0, b"m")) for kind in (plain, behind_a_barrier)]
        await asyncio.sleep(0.01)
        closing = asyncio.create_task(client.aclose())
        await asyncio.sleep(0.01)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 5)
    assert [type(each) for each in outcomes] == [AppendUnknownError, AppendUnknownError]


@pytest.mark.parametrize("breaks", [True, False])
async def test_a_server_that_takes_nothing_neither_fails_nor_holds_up_a_close(
    server: TestServer, direct: AsyncClient, *, breaks: bool
) -> None:
    async with asyncio.timeout(10), FaultProxy(server.endpoint) as proxy:
        client = AsyncClient(proxy.endpoint, timeout_s=0.2, max_in_flight_bytes=64 << 20)
        await client.append("lane", b"before")
        proxy.cut()
        calls = [asyncio.create_task(client.append("lane", bytes(1 << 20), timeout_s=60)) for _ in range(30)]
        await asyncio.sleep(0.1)
        closing = asyncio.create_task(client.aclose())
        # By then the half-close of the stream is blocked behind data that the server does not read.
        await asyncio.wait((closing,), timeout=0.6 if breaks else None)
    await closing
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} <= {AppendUnknownError, ClosedError}


async def test_a_pause_waits_for_a_better_moment_while_a_call_is_under_way(
    server: TestServer, direct: AsyncClient
) -> None:
    async with FaultProxy(server.endpoint) as proxy, AsyncClient(proxy.endpoint) as client:
        await client.wal_name()
        proxy.cut()
        call = asyncio.create_task(behind_a_barrier(client, 0, b"m"))
        await asyncio.sleep(0)
        assert not await client.pause()
        proxy.heal()
        await call
        assert await client.pause()


def test_threads_that_append_while_another_one_closes_learn_the_effect(server: TestServer) -> None:
    with Client(server.endpoint) as direct:
        direct.create_channel("threads", vchannels=8)
        for number in range(8):
            direct.open_producer(f"threads/{number}", "t")
        client = Client(server.endpoint)
        acknowledged: list[bytes] = []
        ends: list[BaseException] = []
        is_under_way = threading.Event()

        def append(number: int) -> None:
            try:
                for sequence in range(1, 100_000):
                    payload = b"%d.%d" % (number, sequence)
                    client.append(f"threads/{number}", payload, producer=ProducerSequence("t", sequence, 1))
                    acknowledged.append(payload)
                    if len(acknowledged) > ENOUGH:
                        is_under_way.set()
            except BaseException as end:  # noqa: BLE001 - every exception is checked below
                ends.append(end)

        threads = [threading.Thread(target=append, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        assert is_under_way.wait(20)
        client.close()
        for thread in threads:
            thread.join(20)

        assert [type(end) for end in ends] == [ClosedError] * 8
        stored = [payload for batch in direct.channel("threads").scan() for payload in batch.payloads]
        assert sorted(stored) == sorted(acknowledged)
        direct.destroy_channels(["threads"])
