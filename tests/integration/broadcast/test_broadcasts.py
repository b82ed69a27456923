"""Broadcasts, over gRPC, on a server in this process. Method: broadcast and acknowledge in every way, then compare.

What must outlive a server is tested on two servers that share a data folder, one after the other.

Promises of docs/reference/guarantees.md: G26, G27, G29, G30.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tidelog import AckMode, AsyncClient, At, Batch, BroadcastState, Message, ResourceKey
from tidelog.testing import server
from tidelog_testing.oracles.reads import payloads

ALL = ["orders/0", "orders/1", "orders/2", "payments/0"]
SCHEMA = ResourceKey("schema", "users")
FINISHED = (BroadcastState.DONE, BroadcastState.ABORTED)


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    async with server() as client:
        await prepare(client)
        yield client


async def prepare(client: AsyncClient) -> None:
    await client.create_channel("orders", vchannels=3)
    await client.create_channel("payments")


async def delivered(client: AsyncClient, *vchannels: str, **options: object) -> list[Batch]:
    return [batch async for batch in client.scan(vchannels or ALL, **options)]  # type: ignore[arg-type]  # tests give what a scan takes


async def held(client: AsyncClient, key: ResourceKey = SCHEMA) -> bool:
    """Return whether a broadcast holds a key."""
    try:
        await client.wait_acked(key, timeout_s=0)
    except tidelog.DeadlineError:
        return True
    return False


async def test_a_broadcast_is_on_every_vchannel_once_at_one_tick(client: AsyncClient) -> None:
    before = await client.append("orders/1", b"before")
    result = await client.broadcast(ALL, Message(b"all", key=b"k", type=7, properties={"a": "b"}))
    after = await client.append("orders/1", b"after")

    batches = [batch for batch in await delivered(client) if batch.broadcast_id]

    assert [batch.vchannel for batch in batches] == ALL
    assert {(batch.broadcast_id, tuple(batch.ticks)) for batch in batches} == {(result.broadcast_id, (result.tick,))}
    assert [(m.payload, m.key, m.type, m.properties) for batch in batches for m in batch] == [
        (b"all", b"k", 7, {"a": "b"})
    ] * 4
    assert before.last_tick < result.tick < after.first_tick
    assert result.broadcast_id < result.tick
    assert not result.duplicate


async def test_a_filter_on_types_hides_no_broadcast_unless_it_is_asked_to(client: AsyncClient) -> None:
    await client.append("payments", [Message(b"one", type=1), Message(b"two", type=2)])
    await client.append("payments", Message(b"three", type=3))
    await client.broadcast(["payments"], Message(b"barrier", type=9))

    async def passed(**options: object) -> list[bytes]:
        return [payload for batch in await delivered(client, "payments", **options) for payload in batch.payloads]

    assert await passed(types=[1]) == [b"one", b"barrier"]
    assert await passed(types=[1], hides_broadcasts=True) == [b"one"]
    assert await passed(types=[9], hides_broadcasts=True) == [b"barrier"]
    with pytest.raises(ValueError, match="hides_broadcasts"):
        client.scan("payments", hides_broadcasts=True)


async def test_a_broadcast_passes_its_barrier(client: AsyncClient) -> None:
    soon = (await client.allocate_ticks())[0] + (100 << 18)

    result = await client.broadcast(ALL, b"late", barrier_tick=soon)

    assert result.tick > soon
    with pytest.raises(tidelog.BarrierNotReachedError):
        await client.broadcast(ALL, b"never", barrier_tick=soon + (3_600_000 << 18), timeout_s=3)
    assert await payloads(client, "payments") == [b"late"]


async def test_a_broadcast_is_finished_once_all_have_acknowledged(client: AsyncClient) -> None:
    result = await client.broadcast(ALL, b"ddl", resource_keys=[SCHEMA])
    (summary,) = [each async for each in client.list_broadcasts()]
    assert (summary.broadcast_id, summary.state, summary.tick) == (result.broadcast_id, "wait_ack", result.tick)
    assert (summary.vchannels, summary.acked_vchannels, summary.resource_keys) == (4, 0, (SCHEMA,))

    first, *rest = await delivered(client)
    await client.ack_batch(first)
    await client.ack_batch(first)
    description = await client.describe_broadcast(result.broadcast_id)
    assert (description.acked, description.missing) == (("orders/0",), ("orders/1", "orders/2", "payments/0"))
    assert await held(client)
    await asyncio.gather(*(client.ack_batch(batch) for batch in rest))

    assert not await held(client)
    assert [each async for each in client.list_broadcasts()] == []
    (done,) = [each async for each in client.list_broadcasts(FINISHED)]
    assert (done.state, done.acked_vchannels, done.tick) == ("done", 4, result.tick)
    assert done.finished_time_ms is not None
    await client.ack(result.broadcast_id, "orders/0")
    # A client that passes its tick as its id acknowledges nothing.
    for unknown in (1, result.tick):
        with pytest.raises(tidelog.BroadcastNotFoundError):
            await client.ack(unknown, "orders/0")


async def test_the_short_name_of_a_lone_vchannel_will_do(client: AsyncClient) -> None:
    result = await client.broadcast(["payments"], b"x")

    await client.ack(result.broadcast_id, ["payments"])

    assert (await client.describe_broadcast(result.broadcast_id)).summary.state == "done"


async def test_a_held_key_refuses_at_once_and_shared_ones_go_together(client: AsyncClient) -> None:
    shared, exclusive = ResourceKey("schema", "users", shared=True), SCHEMA
    one = await client.broadcast(ALL, b"1", resource_keys=[shared, ResourceKey("other", "x")])
    two = await client.broadcast(ALL, b"2", resource_keys=[shared])

    with pytest.raises(tidelog.ResourceAcquiredError) as caught:
        await client.broadcast(ALL, b"3", resource_keys=[exclusive, ResourceKey("another", "y")])

    assert (caught.value.domain, caught.value.key, caught.value.broadcast_id) == ("schema", "users", one.broadcast_id)
    assert caught.value.effect == "none"
    assert not await held(client, ResourceKey("another", "y"))
    await client.ack(one.broadcast_id, ALL)
    with pytest.raises(tidelog.ResourceAcquiredError):
        await client.broadcast(ALL, b"3", resource_keys=[exclusive])
    await client.ack(two.broadcast_id, ALL)
    await client.broadcast(ALL, b"3", resource_keys=[exclusive])
    assert await payloads(client, "payments") == [b"1", b"2", b"3"]


async def test_who_waits_for_a_key_gets_it_in_turn(client: AsyncClient) -> None:
    first = await client.broadcast(ALL, b"1", resource_keys=[SCHEMA])
    waiting = []
    for payload in (b"2", b"3"):
        waiting.append(asyncio.create_task(client.broadcast(ALL, payload, resource_keys=[SCHEMA], wait_s=30)))
        await asyncio.sleep(0.05)
    with pytest.raises(tidelog.ResourceAcquiredError):
        await client.broadcast(ALL, b"impatient", resource_keys=[SCHEMA], wait_s=0.05)

    await client.ack(first.broadcast_id, ALL)
    second = await waiting[0]
    assert not waiting[1].done()
    await client.ack(second.broadcast_id, ALL)
    third = await waiting[1]

    assert first.tick < second.tick < third.tick
    assert await payloads(client, "payments") == [b"1", b"2", b"3"]


async def test_who_stops_waiting_leaves_no_trace(client: AsyncClient) -> None:
    first = await client.broadcast(ALL, b"1", resource_keys=[SCHEMA])
    waiting = asyncio.create_task(client.broadcast(ALL, b"2", resource_keys=[SCHEMA], wait_s=30))
    await asyncio.sleep(0.1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    await client.ack(first.broadcast_id, ALL)
    third = await client.broadcast(ALL, b"3", resource_keys=[SCHEMA], wait_s=5)

    assert await payloads(client, "payments") == [b"1", b"3"]
    assert [each.broadcast_id async for each in client.list_broadcasts()] == [third.broadcast_id]


async def test_waiting_for_acknowledgements_ends_with_the_first_or_the_last(client: AsyncClient) -> None:
    result = await client.broadcast(ALL, b"x", resource_keys=[SCHEMA])
    once_by_key = asyncio.create_task(client.wait_acked(SCHEMA, mode=AckMode.ONCE, timeout_s=30))
    once_by_id = asyncio.create_task(client.wait_acked(result.broadcast_id, mode=AckMode.ONCE, timeout_s=30))
    all_by_key = asyncio.create_task(client.wait_acked(SCHEMA, timeout_s=30))
    all_by_id = asyncio.create_task(client.wait_acked(result.broadcast_id, timeout_s=30))
    with pytest.raises(tidelog.DeadlineError):
        await client.wait_acked(SCHEMA, mode=AckMode.ONCE, timeout_s=0.1)
    assert not any(task.done() for task in (once_by_key, once_by_id, all_by_key, all_by_id))

    await client.ack(result.broadcast_id, "orders/1")
    await asyncio.gather(once_by_key, once_by_id)
    assert not all_by_key.done()
    assert not all_by_id.done()
    await client.ack(result.broadcast_id, ["orders/0", "orders/2", "payments/0"])
    await asyncio.gather(all_by_key, all_by_id)

    await client.wait_acked(ResourceKey("schema", "not held"))
    await client.wait_acked(result.broadcast_id)


async def test_many_that_wait_do_not_keep_out_the_acknowledgement(client: AsyncClient) -> None:
    result = await client.broadcast(ALL, b"x", resource_keys=[SCHEMA])
    waiting = [asyncio.create_task(client.wait_acked(result.broadcast_id, timeout_s=20)) for _ in range(150)]
    waiting += [
        asyncio.create_task(
            _discard(client.broadcast(ALL, b"y", resource_keys=[replace(SCHEMA, shared=True)], wait_s=20))
        )
        for _ in range(20)
    ]
    await asyncio.sleep(0.3)

    async with asyncio.timeout(60):
        await client.ack(result.broadcast_id, ALL)
        await asyncio.gather(*waiting)


async def _discard(call: Coroutine[None, None, object]) -> None:
    await call


async def test_who_takes_a_key_later_is_not_waited_for(client: AsyncClient) -> None:
    first = await client.broadcast(ALL, b"1", resource_keys=[SCHEMA])
    second = asyncio.create_task(client.broadcast(ALL, b"2", resource_keys=[SCHEMA], wait_s=30))
    waiting = asyncio.create_task(client.wait_acked(SCHEMA, timeout_s=30))
    await asyncio.sleep(0.1)

    await client.ack(first.broadcast_id, ALL)

    await waiting
    await second
    assert await held(client)


async def test_an_aborted_broadcast_frees_its_keys_and_stays_in_the_log(client: AsyncClient) -> None:
    result = await client.broadcast(ALL, b"stuck", resource_keys=[SCHEMA])
    await client.ack(result.broadcast_id, "orders/0")
    by_id = asyncio.create_task(client.wait_acked(result.broadcast_id, timeout_s=30))
    by_key = asyncio.create_task(client.wait_acked(SCHEMA, timeout_s=30))
    await asyncio.sleep(0.1)

    summary = await client.abort_broadcast(result.broadcast_id, "its consumer is gone")

    assert (summary.state, summary.abort_reason, summary.acked_vchannels) == ("aborted", "its consumer is gone", 1)
    with pytest.raises(tidelog.BroadcastAbortedError) as caught:
        await by_id
    assert (caught.value.broadcast_id, caught.value.abort_reason) == (result.broadcast_id, "its consumer is gone")
    await by_key
    assert not await held(client)
    assert await payloads(client, "payments") == [b"stuck"]
    again = await client.abort_broadcast(result.broadcast_id, "twice")
    assert again.abort_reason == "its consumer is gone"
    await client.ack(result.broadcast_id, ALL)
    assert (await client.describe_broadcast(result.broadcast_id)).summary.state == "aborted"


async def test_a_channel_that_is_destroyed_counts_as_acknowledged(client: AsyncClient) -> None:
    result = await client.broadcast(ALL, b"x", resource_keys=[SCHEMA])
    await client.ack(result.broadcast_id, "payments")

    await client.destroy_channels(["orders"])

    assert (await client.describe_broadcast(result.broadcast_id)).summary.state == "done"
    assert not await held(client)


async def test_a_destroy_amid_broadcasts_leaves_none_hanging(client: AsyncClient) -> None:
    async def keep_broadcasting(number: int) -> list[int]:
        ticks: list[int] = []
        while True:
            try:
                result = await client.broadcast(ALL, b"%d" % number)
            except tidelog.ChannelNotFoundError:
                return ticks
            ticks.append(int(result.tick))

    running = [asyncio.create_task(keep_broadcasting(number)) for number in range(4)]
    await asyncio.sleep(0.3)
    await client.destroy_channels(["orders"])
    ticks = sorted(tick for ticks in await asyncio.gather(*running) for tick in ticks)

    assert [batch.first_tick for batch in await delivered(client, "payments")] == ticks
    assert {each.acked_vchannels async for each in client.list_broadcasts()} == {3}


async def test_what_is_open_outlives_the_server(tmp_path: Path) -> None:
    async with server(tmp_path / "log") as client:
        await prepare(client)
        result = await client.broadcast(ALL, b"x", resource_keys=[SCHEMA])
        await client.ack(result.broadcast_id, ["orders/0", "payments"])
        done = await client.broadcast(["payments"], b"y")
        await client.ack(done.broadcast_id, "payments")

    async with server(tmp_path / "log") as client:
        description = await client.describe_broadcast(result.broadcast_id)
        assert (description.acked, description.missing) == (("orders/0", "payments/0"), ("orders/1", "orders/2"))
        assert description.summary.resource_keys == (SCHEMA,)
        with pytest.raises(tidelog.ResourceAcquiredError):
            await client.broadcast(ALL, b"z", resource_keys=[SCHEMA])
        assert (await client.describe_broadcast(done.broadcast_id)).summary.state == "done"
        await client.ack(result.broadcast_id, ["orders/1", "orders/2"])
        assert not await held(client)

    async with server(tmp_path / "log") as client:
        assert not await held(client)
        assert await payloads(client, "payments") == [b"x", b"y"]


async def test_many_pages_of_broadcasts_are_listed_once_each(client: AsyncClient) -> None:
    sent = [await client.broadcast(["payments"], b"%d" % number) for number in range(205)]
    await client.ack(sent[100].broadcast_id, "payments")

    listed = [each.broadcast_id async for each in client.list_broadcasts()]

    expected = [result.broadcast_id for result in sent]
    assert listed == expected[:100] + expected[101:]
    assert [each.broadcast_id async for each in client.list_broadcasts(tuple(BroadcastState))] == expected


async def test_concurrent_broadcasts_are_in_one_order_everywhere(client: AsyncClient) -> None:
    results = await asyncio.gather(*(client.broadcast(ALL, b"%d" % number) for number in range(50)))

    orders = {name: await payloads(client, name) for name in ALL}

    expected = [b"%d" % number for number, _ in sorted(enumerate(results), key=lambda item: item[1].tick)]
    assert orders == dict.fromkeys(ALL, expected)


async def test_a_plan_and_a_watermark_have_a_broadcast_on_all_vchannels(client: AsyncClient) -> None:
    result = await client.broadcast(ALL, b"x")

    plan = await client.plan_scan(ALL)

    assert plan.end_tick > result.tick
    assert [split.vchannel for split in plan.splits] == ALL
    assert [batch async for batch in client.scan(ALL, until=At.tick(result.tick))] == []
    assert len([batch async for batch in client.scan(ALL, until=At.tick(result.tick + 1))]) == len(ALL)


def test_the_synchronous_client_does_the_same(tidelog_server: tidelog.testing.TestServer) -> None:
    with tidelog.Client(tidelog_server.endpoint) as client:
        client.create_channel("twins", vchannels=2)
        names = ["twins/0", "twins/1"]
        result = client.broadcast(names, b"x", resource_keys=[SCHEMA])
        assert [each.broadcast_id for each in client.list_broadcasts()] == [result.broadcast_id]
        first, second = client.scan(names)
        client.ack_batch(first)
        client.wait_acked(result.broadcast_id, mode=AckMode.ONCE)
        client.ack(result.broadcast_id, second.vchannel)
        client.wait_acked(SCHEMA)
        assert client.describe_broadcast(result.broadcast_id).summary.state == "done"
        assert client.abort_broadcast(result.broadcast_id, "too late").state == "done"
        with pytest.raises(ValueError, match="is not a broadcast"):
            client.ack_batch(Batch("twins/0", first.columns, first.ticks))


async def test_what_is_no_message_no_key_and_no_mode_is_told_apart(client: AsyncClient) -> None:
    wrong: Any = "schema:orders"
    with pytest.raises(TypeError, match="ResourceKey"):
        await client.broadcast(ALL, b"x", resource_keys=[wrong])
    with pytest.raises(TypeError, match="is str, expected bytes or Message"):
        await client.broadcast(ALL, wrong)
    with pytest.raises(TypeError, match="ResourceKey"):
        await client.wait_acked(wrong)
    with pytest.raises(ValueError, match="schema:orders"):
        await client.wait_acked(SCHEMA, mode=wrong)
    number: Any = 5
    with pytest.raises(TypeError, match="got int"):
        await client.append("orders/0", number)
    assert await payloads(client, "orders/0") == []
    assert [each async for each in client.list_broadcasts()] == []
