"""Appends through the client, over gRPC, to a server in this process. Method: real calls, compared with a scan."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
import uvloop

import tidelog
from tidelog import AsyncClient, Message
from tidelog.testing import server
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.fixtures import client_with

client = client_with(orders=2)


async def test_a_message_comes_back_with_all_that_it_had(client: AsyncClient) -> None:
    time = datetime(2026, 1, 31, 12, tzinfo=UTC)
    message = Message(b"p", key=b"k", type=3, properties={"a": "b"}, event_time=time)

    result = await client.append("orders/0", message)

    [stored] = [stored async for batch in client.scan("orders/0") for stored in batch]
    assert (stored.payload, stored.key, stored.type, stored.properties) == (b"p", b"k", 3, {"a": "b"})
    assert (stored.event_time, stored.vchannel, stored.tick) == (time, "orders/0", result.first_tick)


async def test_a_list_gets_consecutive_ticks(client: AsyncClient) -> None:
    result = await client.append("orders/0", [b"a", Message(b"b"), b"c"])

    assert result.last_tick == result.first_tick + 2
    assert await payloads(client, "orders/0") == [b"a", b"b", b"c"]


async def test_concurrent_appends_get_ticks_of_their_own(client: AsyncClient) -> None:
    results = await asyncio.gather(*(client.append("orders/0", b"%d" % i) for i in range(500)))

    async with client.scan("orders/0") as scan:
        stored = {
            tick: payload async for batch in scan for tick, payload in zip(batch.ticks, batch.payloads, strict=True)
        }
    assert {result.first_tick: b"%d" % i for i, result in enumerate(results)} == stored


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_deadline_that_is_now_harms_no_other_append(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def check() -> None:
        async with server() as client:
            await client.create_channel("orders")
            for number in range(20):
                hasty, other = await asyncio.gather(
                    client.append("orders/0", b"hasty", timeout_s=number / 10_000),
                    client.append("orders/0", b"other", timeout_s=30),
                    return_exceptions=True,
                )
                assert isinstance(hasty, tidelog.AppendResult | tidelog.TidelogError)
                assert isinstance(other, tidelog.AppendResult)
            assert (await payloads(client, "orders/0")).count(b"other") == 20

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(check())


async def test_a_barrier_is_exceeded(client: AsyncClient) -> None:
    [barrier_tick] = await client.allocate_ticks()

    result = await client.append("orders/0", b"after", barrier_tick=barrier_tick)

    assert result.first_tick > barrier_tick


async def test_a_barrier_far_in_the_future_is_given_up_at_the_deadline_with_its_values(client: AsyncClient) -> None:
    [tick] = await client.allocate_ticks()
    barrier_tick = tick + (3_600_000 << 18)

    with pytest.raises(TimeoutError) as caught:
        await client.append("orders/0", b"x", barrier_tick=barrier_tick, timeout_s=0.3)

    assert isinstance(caught.value, tidelog.BarrierNotReachedError | tidelog.AppendUnknownError)
    assert await payloads(client, "orders/0") == []


@pytest.mark.not_on_engine(reason="a log in an engine acknowledges `os` as `sync`")
async def test_durability_is_that_which_was_asked_for(client: AsyncClient) -> None:
    results = await asyncio.gather(
        client.append("orders/0", b"a", durability="os"), client.append("orders/0", b"b", durability="sync")
    )

    assert [result.durability for result in results] == ["os", "sync"]


async def test_an_unknown_durability_is_refused_before_anything_is_sent(client: AsyncClient) -> None:
    with pytest.raises(ValueError, match="durability"):
        await client.append("orders/0", b"a", durability="memory")  # type: ignore[arg-type]  # the point of the test


async def test_a_missing_channel_is_named(client: AsyncClient) -> None:
    with pytest.raises(tidelog.ChannelNotFoundError) as caught:
        await client.append("nowhere/0", b"a")

    assert "nowhere" in caught.value.name
    assert caught.value.effect == "none"


async def test_an_empty_list_is_refused_by_the_server(client: AsyncClient) -> None:
    with pytest.raises(tidelog.InvalidRequestError):
        await client.append("orders/0", [])


async def test_an_oversized_message_fails_alone_among_concurrent_ones(client: AsyncClient) -> None:
    oversized = b"x" * ((1 << 20) + 1)

    results = await asyncio.gather(
        *(client.append("orders/0", payload) for payload in (b"a", b"b", oversized, b"c", b"d")), return_exceptions=True
    )

    assert [isinstance(result, tidelog.InvalidRequestError) for result in results] == [False, False, True, False, False]
    assert sorted(await payloads(client, "orders/0")) == [b"a", b"b", b"c", b"d"]


async def test_a_closed_client_says_so(client: AsyncClient) -> None:
    await client.append("orders/0", b"a")
    await client.aclose()

    with pytest.raises(tidelog.ClosedError):
        await client.append("orders/0", b"b")


async def test_nobody_there_means_unavailable_without_effect() -> None:
    async with AsyncClient("127.0.0.1:1", connect_timeout_s=0.2) as client:
        with pytest.raises(tidelog.UnavailableError) as of_call:
            await client.wal_name()
        with pytest.raises(tidelog.UnavailableError) as of_append:
            await client.append("orders/0", b"a", timeout_s=0.5)

    assert (of_call.value.effect, of_append.value.effect) == ("none", "none")


async def test_channels_are_made_described_listed_trimmed_and_destroyed(client: AsyncClient) -> None:
    owner = tidelog.OwnerDescription("role", "address", "text")
    created = await client.create_channel("payments", vchannels=3, owner=owner)
    again = await client.create_channel("payments", vchannels=3, if_not_exists=True)
    result = await client.vchannel("payments/2").append([b"a", b"b"])

    [described] = await client.describe_channels(["payments"])
    assert (created.owner, again.name, len(described.vchannels)) == (owner, "payments", 3)
    assert described.vchannels[2].messages == 2
    assert [channel.name async for channel in client.list_channels()] == ["orders", "payments"]
    assert await client.latest_mvcc_tick("payments/2") >= result.last_tick
    assert await client.trim("payments/2", result.last_tick) == result.last_tick
    assert await payloads(client, "payments/2") == [b"b"]
    with pytest.raises(tidelog.ChannelAlreadyExistsError):
        await client.create_channel("payments")
    assert await client.channel("payments").destroy()
    assert await client.destroy_channels(["payments"], ignore_missing=True) == []
