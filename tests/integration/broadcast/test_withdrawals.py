"""Broadcasts that wait for keys or a barrier, and whose caller goes away. Method: compare each error with the log.

Promises of docs/reference/guarantees.md: G13, G26.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext

import grpc
import pytest

import tidelog
from tidelog import AsyncClient, BarrierNotReachedError, Client, ResourceAcquiredError, ResourceKey
from tidelog.v1 import broadcast_service_pb2 as pb
from tidelog.v1 import error_pb2, message_pb2
from tidelog_server.app import Server
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.grpc_calls import connected, refusal_of, running_server
from tidelog_testing.parts.mailbox_nodes import until

KEY = ResourceKey("d", "held")
ROUNDS = 25


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with running_server() as server:
        yield server


@pytest.fixture
async def direct(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.grpc_endpoint) as client:
        await client.create_channel("lane")
        yield client


@pytest.fixture
async def holder(direct: AsyncClient) -> int:
    """Return the id of a broadcast that holds the key."""
    return (await direct.broadcast("lane/0", b"held", resource_keys=[KEY])).broadcast_id


async def waiting(server: Server, count: int = 1) -> None:
    """Wait until ``count`` calls wait for a key on the server."""
    await until(lambda: server._node.broadcasts._saver.waiters_usage.total == count)


async def left_nothing(server: Server, direct: AsyncClient, holder: int) -> None:
    """Check that nothing waits for the key, and that nothing is appended once it is free."""
    await waiting(server, 0)
    await direct.ack(holder, "lane/0")
    await direct.broadcast("lane/0", b"next", resource_keys=[KEY])
    assert await payloads(direct, "lane/0") == [b"held", b"next"]


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_close_also_if_it_is_cancelled_withdraws_a_broadcast_that_waits_for_a_key(
    server: Server, direct: AsyncClient, holder: int, *, is_cancelled: bool
) -> None:
    client = AsyncClient(server.grpc_endpoint)
    call = asyncio.create_task(client.broadcast("lane/0", b"late", resource_keys=[KEY], wait_s=600))
    await waiting(server)
    client.timeout_s = 600 if is_cancelled else 0.01
    closing = asyncio.create_task(client.aclose())
    if is_cancelled:
        await asyncio.sleep(0)
        closing.cancel()
    with pytest.raises(asyncio.CancelledError) if is_cancelled else nullcontext():
        await closing
    with pytest.raises(ResourceAcquiredError) as refused:
        await call
    assert refused.value.effect == "none"
    await left_nothing(server, direct, holder)


async def test_a_close_withdraws_a_broadcast_that_waits_for_its_barrier(server: Server, direct: AsyncClient) -> None:
    beyond = (await direct.allocate_ticks())[0] + (3_600_000 << 18)
    client = AsyncClient(server.grpc_endpoint)
    call = asyncio.create_task(client.broadcast("lane/0", b"late", barrier_tick=beyond, timeout_s=600))
    await until(lambda: bool(server._node.broadcasts._attempts))
    client.timeout_s = 0.01
    await client.aclose()
    with pytest.raises(BarrierNotReachedError) as refused:
        await call
    assert refused.value.effect == "none"
    assert await payloads(direct, "lane/0") == []


async def test_a_close_while_the_key_becomes_free_tells_what_is_in_the_log(server: Server, direct: AsyncClient) -> None:
    for number in range(ROUNDS):
        held = await direct.broadcast("lane/0", b"held", resource_keys=[KEY])
        client = AsyncClient(server.grpc_endpoint, timeout_s=0.001)
        payload = b"%d" % number
        call = asyncio.create_task(
            client.broadcast("lane/0", payload, resource_keys=[KEY], wait_s=600, timeout_s=10)
        )  # fmt: skip
        await waiting(server)
        _, _, outcome = await asyncio.gather(
            direct.ack(held.broadcast_id, "lane/0"), client.aclose(), call, return_exceptions=True
        )
        there = payload in await payloads(direct, "lane/0")
        if isinstance(outcome, tidelog.BroadcastResult):
            assert there
            await direct.ack(outcome.broadcast_id, "lane/0")
        else:
            # Accepted broadcasts are answered at once here, so no effect is unknown.
            assert isinstance(outcome, ResourceAcquiredError), outcome
            assert outcome.effect == "none"
            assert not there


async def test_a_wait_that_times_out_had_no_effect(server: Server, direct: AsyncClient, holder: int) -> None:
    with pytest.raises(ResourceAcquiredError) as refused:
        await direct.broadcast("lane/0", b"late", resource_keys=[KEY], wait_s=0.05)
    assert refused.value.effect == "none"
    # A deadline of gRPC that is shorter than the wait.
    async with connected(server) as raw:
        found = await refusal_of(raw.broadcasts.Broadcast(a_request(), timeout=0.6))
    assert (found.reason, found.effect) == (error_pb2.REASON_RESOURCE_ACQUIRED, error_pb2.EFFECT_NONE)
    await left_nothing(server, direct, holder)


async def test_a_cancelled_wait_had_no_effect(server: Server, direct: AsyncClient, holder: int) -> None:
    call = asyncio.create_task(direct.broadcast("lane/0", b"late", resource_keys=[KEY], wait_s=600))
    await waiting(server)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await left_nothing(server, direct, holder)


async def test_a_close_of_the_synchronous_twin_withdraws_it(server: Server, direct: AsyncClient, holder: int) -> None:
    client = Client(server.grpc_endpoint, timeout_s=0.2)
    call = asyncio.create_task(
        asyncio.to_thread(client.broadcast, "lane/0", b"late", resource_keys=[KEY], wait_s=600)
    )  # fmt: skip
    await waiting(server)
    await asyncio.to_thread(client.close)
    with pytest.raises(ResourceAcquiredError) as refused:
        await call
    assert refused.value.effect == "none"
    await left_nothing(server, direct, holder)


async def test_a_withdrawal_ends_waits_of_its_own_principal_only(
    server: Server, direct: AsyncClient, holder: int
) -> None:
    broadcast_id = (await direct.allocate_ticks())[0]
    async with connected(server) as raw:
        call = asyncio.ensure_future(refusal_of(raw.broadcasts.Broadcast(a_request(broadcast_id=broadcast_id))))
        await waiting(server)
        assert not server._node.broadcasts.withdraw(broadcast_id, b"another")
        other = await raw.broadcasts.WithdrawBroadcast(pb.WithdrawBroadcastRequest(broadcast_id=broadcast_id + 1))
        assert not other.waited
        assert not call.done()
        own = await raw.broadcasts.WithdrawBroadcast(pb.WithdrawBroadcastRequest(broadcast_id=broadcast_id))
        assert own.waited
        found = await call
        assert (found.code, found.reason) == (
            grpc.StatusCode.FAILED_PRECONDITION.value[0], error_pb2.REASON_RESOURCE_ACQUIRED
        )  # fmt: skip
        # One that is accepted stays so.
        accepted = await raw.broadcasts.WithdrawBroadcast(pb.WithdrawBroadcastRequest(broadcast_id=holder))
        assert not accepted.waited
    await left_nothing(server, direct, holder)


def a_request(**fields: int) -> pb.BroadcastRequest:
    return pb.BroadcastRequest(
        vchannels=["lane/0"], message=message_pb2.Message(payload=b"late"),
        resource_keys=[pb.ResourceKey(domain=KEY.domain, key=KEY.key)], wait_timeout_ms=600_000, **fields,
    )  # fmt: skip
