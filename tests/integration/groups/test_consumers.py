"""Consumers: members of a group share vchannels, commit, hand over and return. Method: several on a real server.

Promises of docs/reference/guarantees.md: G32, G33, G35.
"""

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tidelog import AsyncClient, AsyncConsumer, At, Batch, Client, PositionCommit
from tidelog.groups.member_stream import MemberStream
from tidelog_testing.faults.cut_proxy import cut_off_client
from tidelog_testing.parts.fixtures import client_with
from tidelog_testing.parts.waiting import until
from tidelog_testing.servers.processes import ServerProcess, lasting_port

VCHANNELS = [f"orders/{index}" for index in range(4)]
client = client_with(orders=4, out=1)


async def append_numbers(client: AsyncClient, begin: int, end: int) -> None:
    """Append each number as a message, in batches of ten, to the vchannels in turn."""
    for number in range(begin, end, 10):
        payloads = [b"%d" % each for each in range(number, min(end, number + 10))]
        await client.append(VCHANNELS[number // 10 % 4], payloads)


async def take(consumer: AsyncConsumer, count: int) -> list[int]:
    """Consume ``count`` messages."""
    found: list[int] = []
    while len(found) < count:
        found += map(int, (await anext(consumer)).payloads)
    return found


async def lag(client: AsyncClient) -> int:
    return (await client.describe_group("billing")).lag_messages


async def until_shared(client: AsyncClient, *consumers: AsyncConsumer) -> None:
    """Wait until each consumer has its share of vchannels, and nothing else changes."""
    while True:
        shares = [await consumer.wait_rebalance(0.01) for consumer in consumers]
        members = (await client.describe_group("billing")).members
        held = {member.member_id: member.vchannels for member in members}
        if held == {consumer.member_id: share for consumer, share in zip(consumers, shares, strict=True)}:
            sizes = [len(share) for share in shares]
            if max(sizes) - min(sizes) <= 1 and sum(sizes) == len(VCHANNELS):
                return


async def test_one_consumer_gets_everything_and_commits_by_itself(client: AsyncClient) -> None:
    await append_numbers(client, 0, 200)
    async with client.consumer("billing", "orders") as consumer:
        assert list(consumer.assignment) == VCHANNELS
        assert sorted(await take(consumer, 200)) == list(range(200))
        await append_numbers(client, 200, 230)
        assert sorted(await take(consumer, 30)) == list(range(200, 230))
        assert set(consumer.positions) == set(VCHANNELS)
    assert await lag(client) == 0
    assert (await client.describe_group("billing")).members == ()


async def test_what_was_in_hand_when_a_block_fails_comes_again(client: AsyncClient) -> None:
    await append_numbers(client, 0, 40)
    batches: list[Batch] = []
    with pytest.raises(ZeroDivisionError):
        async with client.consumer("billing", "orders") as consumer:
            batches += [await anext(consumer), await anext(consumer)]
            raise ZeroDivisionError
    async with client.consumer("billing", "orders") as consumer:
        again = await take(consumer, 30)
    assert set(map(int, batches[1].payloads)) <= set(again)
    assert not set(map(int, batches[0].payloads)) & set(again)


async def test_commits_by_hand(client: AsyncClient) -> None:
    await append_numbers(client, 0, 40)
    async with client.consumer("billing", "orders", auto_commit=False) as consumer:
        await anext(consumer)
        await consumer.commit()
        await anext(consumer)
        assert await lag(client) == 30
    assert await lag(client) == 30
    async with client.consumer("billing", "orders", auto_commit=False) as consumer:
        first = await anext(consumer)
        consumer.commit_soon()
        second = await anext(consumer)
        consumer.commit_soon()
        await consumer.commit()
        assert await lag(client) == 10
        assert not set(first.payloads) & set(second.payloads)


async def test_members_share_vchannels_and_hand_over_what_they_processed(client: AsyncClient) -> None:
    await append_numbers(client, 0, 400)
    told: list[tuple[str, list[str]]] = []
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(
            client.consumer(
                "billing", "orders", auto_commit=False,
                on_assigned=lambda names: told.append(("assigned", list(names))),
                on_revoked=lambda names: told.append(("revoked", list(names))),
            )
        )  # fmt: skip
        in_hand = [await anext(first) for _ in range(8)]
        await first.commit()
        second = await stack.enter_async_context(client.consumer("billing", "orders", auto_commit=False))
        await until_shared(client, first, second)
        assert not set(first.assignment) & set(second.assignment)
        assert told == [("assigned", VCHANNELS), ("revoked", list(second.assignment))]
        rest = await asyncio.gather(take(first, 200 - 40), take(second, 200 - 40))
    seen = Counter(int(payload) for batch in in_hand for payload in batch.payloads)
    for numbers in rest:
        seen.update(numbers)
    assert seen == Counter(range(400))


async def test_who_leaves_gives_everything_to_the_others(client: AsyncClient) -> None:
    await append_numbers(client, 0, 200)
    async with client.consumer("billing", "orders") as first:
        async with client.consumer("billing", "orders") as second:
            await until_shared(client, first, second)
            share = await take(second, 100)
        await until_shared(client, first)
        assert sorted(share + await take(first, 100)) == list(range(200))
    assert await lag(client) == 0


async def test_a_member_that_is_silent_loses_its_vchannels_and_its_commits_are_refused(client: AsyncClient) -> None:
    await append_numbers(client, 0, 200)
    lost: list[str] = []
    async with AsyncExitStack() as stack:
        slow = await stack.enter_async_context(
            client.consumer("billing", "orders", auto_commit=False, release_within_s=0.2, on_lost=lost.extend)
        )
        await take(slow, 80)
        stale = slow.commits()
        # It requests no further batch, so its revoked vchannels are taken away.
        other = await stack.enter_async_context(client.consumer("billing", "orders", auto_commit=False))
        while len(other.assignment) < 2:
            await other.wait_rebalance(1.0)
        taken = [commit for commit in stale if commit.vchannel in other.assignment]
        with pytest.raises(tidelog.GroupFencedError):
            await client.commit_positions(taken)
        with pytest.raises(tidelog.GroupFencedError):
            await slow.commit()
        await slow.wait_rebalance(0.0)
        assert sorted(lost) == sorted(other.assignment)
        await slow.commit()
        assert await lag(client) == 200 - sum(1 for commit in stale if commit not in taken) * 20


async def test_a_transaction_takes_the_positions_along_or_neither(client: AsyncClient) -> None:
    await append_numbers(client, 0, 80)
    async with client.consumer("billing", "orders", auto_commit=False) as consumer:
        batch = await anext(consumer)
        async with client.txn() as txn:
            await txn.append("out", batch.payloads)
            txn.commit_positions(consumer)
        assert await lag(client) == 70
        second = await anext(consumer)
        txn = client.txn()
        await txn.append("out", second.payloads)
        txn.commit_positions(consumer)
        await txn.rollback()
        assert await lag(client) == 70
        # Uncommitted messages are delivered again.
        assert (await anext(consumer)).payloads == second.payloads
        async with client.txn() as large:
            await large.append("out", [b"x" * 1_000_000] * 5)
            large.commit_positions(consumer)
        assert await lag(client) == 60
        async with client.txn() as empty:
            await anext(consumer)
            empty.commit_positions(consumer)
        assert await lag(client) == 50
    assert len([message async for batch in client.scan("out") for message in batch]) == 15


async def test_a_transaction_under_a_lost_assignment_appends_nothing(client: AsyncClient) -> None:
    await append_numbers(client, 0, 40)
    for size in (10, 3_000_000):
        await client.seek_group("billing", At.earliest()) if size > 10 else None
        async with client.consumer("billing", "orders", auto_commit=False) as consumer:
            batch = await anext(consumer)
            txn = client.txn()
            await txn.append("out", b"x" * 100 if size == 10 else [b"x" * 1_000_000] * 3)
            txn.commit_positions(consumer)
            await client.seek_group("billing", At.earliest(), batch.vchannel)
            with pytest.raises(tidelog.GroupFencedError) as refused:
                await txn.commit()
            assert refused.value.effect == "none"
            await txn.rollback()
    assert [batch async for batch in client.scan("out")] == []
    assert await lag(client) == 40


async def test_no_refused_transaction_leaves_messages_out(client: AsyncClient) -> None:
    await append_numbers(client, 0, 200)
    async with client.consumer("billing", "orders", auto_commit=False) as consumer:
        refusals = 0
        while await lag(client):
            batch = await anext(consumer)
            txn = client.txn()
            await txn.append("out", batch.payloads)
            txn.commit_positions(consumer)
            if refusals < 3:
                # Of another vchannel than the batch's, whose loss the consumer has not noticed.
                other = next(name for name in consumer.assignment if name != batch.vchannel)
                txn.commit_positions([PositionCommit("billing", other, 1, consumer.member_id, 1)])
                refusals += 1
                with pytest.raises(tidelog.GroupFencedError):
                    await txn.commit()
                with pytest.raises(tidelog.TransactionStateError):
                    await txn.commit()
            else:
                await txn.commit()
    found = [int(payload) for batch in [batch async for batch in client.scan("out")] for payload in batch.payloads]
    assert sorted(found) == list(range(200))


async def test_a_commit_that_leaves_something_out_is_refused(client: AsyncClient) -> None:
    await append_numbers(client, 0, 80)
    await client.create_group("billing", "orders")
    results = [await client.consume("billing", "orders/0", 10), await client.consume("billing", "orders/0", 20)]
    begin, middle, end = 0, results[0].next_tick, results[1].next_tick
    for expected in (begin, begin):
        # The second time it exists already.
        await client.commit_positions([PositionCommit("billing", "orders/0", middle, expected_tick=expected)])
    with pytest.raises(tidelog.GroupPositionMovedError) as moved:
        await client.commit_positions([PositionCommit("billing", "orders/0", end, expected_tick=begin)])
    assert (moved.value.vchannel, moved.value.next_tick, moved.value.effect) == ("orders/0", middle, "none")
    for expected in (begin, end):
        txn = client.txn()
        await txn.append("out", b"twice")
        txn.commit_positions([PositionCommit("billing", "orders/0", middle, expected_tick=expected)])
        with pytest.raises(tidelog.GroupPositionMovedError):
            await txn.commit()
    async with client.txn() as good:
        await good.append("out", b"once")
        good.commit_positions([PositionCommit("billing", "orders/0", end, expected_tick=middle)])
    assert [message.payload async for batch in client.scan("out") for message in batch] == [b"once"]


async def test_a_transaction_that_came_to_nothing_lets_no_later_one_pass_over_it(client: AsyncClient) -> None:
    await append_numbers(client, 0, 40)
    last = await client.append("out", b"before")
    async with client.consumer("billing", ["orders"], auto_commit=False) as consumer:
        first = await anext(consumer)
        left = client.txn()
        # Its condition does not hold, and no call rolls it back.
        await left.append("out", first.payloads, expected_last_tick=last.last_tick - 1)
        left.commit_positions(consumer)
        with pytest.raises(tidelog.LastTickMismatchError):
            await left.commit()
        open_one = client.txn()
        await open_one.append("out", (await anext(consumer)).payloads)
        open_one.commit_positions(consumer)
        # Later messages on the same vchannels.
        await append_numbers(client, 40, 80)
        while await lag(client):
            batch = await anext(consumer)
            with suppress(tidelog.GroupPositionMovedError):
                async with client.txn() as txn:
                    await txn.append("out", batch.payloads)
                    txn.commit_positions(consumer)
        with pytest.raises(tidelog.GroupPositionMovedError):
            await open_one.commit()
        found = [
            int(payload) async for batch in client.scan("out") for payload in batch.payloads if payload != b"before"
        ]
    assert sorted(found) == list(range(80))


async def test_a_transaction_whose_wait_is_cancelled_leaves_nothing_out(client: AsyncClient) -> None:
    await append_numbers(client, 0, 200)
    chance = random.Random(5)
    async with client.consumer("billing", "orders", auto_commit=False) as consumer:
        while await lag(client):
            with suppress(TimeoutError, tidelog.GroupPositionMovedError):
                async with asyncio.timeout(chance.choice([0.0005, 0.001, 0.002, 1])):
                    batch = await anext(consumer)
                    async with client.txn() as txn:
                        await txn.append("out", batch.payloads)
                        txn.commit_positions(consumer)
    found = [int(payload) async for batch in client.scan("out") for payload in batch.payloads]
    assert sorted(found) == list(range(200))


async def test_polls_that_do_not_wait_get_everything_in_the_end(client: AsyncClient) -> None:
    await append_numbers(client, 0, 200)
    found: list[int] = []
    async with client.consumer("billing", "orders") as consumer, asyncio.timeout(60):
        while len(found) < 200:
            found += [int(payload) for batch in await consumer.poll(0) for payload in batch.payloads]
            await asyncio.sleep(0)
    assert sorted(found) == list(range(200))


async def test_a_time_that_is_still_to_come_is_now(client: AsyncClient) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    async with client.consumer("billing", "orders", start=At.time(later)) as consumer:
        await append_numbers(client, 0, 10)
        assert await take(consumer, 10) == list(range(10))
    await client.seek_group("billing", At.time(later))
    assert await lag(client) == 0


async def test_a_close_that_is_cancelled_leaves_no_member_behind(client: AsyncClient) -> None:
    consumer = client.consumer("billing", "orders")
    await consumer.join()
    closing = asyncio.create_task(consumer.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    while (await client.describe_group("billing")).members:
        await asyncio.sleep(0.01)


async def test_a_client_that_closes_ends_its_consumers(client: AsyncClient) -> None:
    async with AsyncClient(client.endpoint) as other:
        await client.create_channel("single")
        first = other.consumer("audit", "single")
        reserve = other.consumer("audit", "single")
        await first.join()
        await reserve.join()
        waiting = [asyncio.create_task(take(consumer, 1)) for consumer in (first, reserve)]
        await asyncio.sleep(0)
        await other.aclose()
        for task in waiting:
            with pytest.raises(tidelog.ClosedError):
                await asyncio.wait_for(task, 5)
        for consumer in (first, reserve):
            await consumer.aclose()


async def test_a_seek_lets_members_begin_anew(client: AsyncClient) -> None:
    await append_numbers(client, 0, 80)
    async with client.consumer("billing", "orders", auto_commit=False) as consumer:
        assert sorted(await take(consumer, 80)) == list(range(80))
        await client.seek_group("billing", At.earliest(), "orders/1")
        again = await take(consumer, 20)
        assert sorted(again) == [*range(10, 20), *range(50, 60)]
        await client.seek_group("billing", At.latest())
        await append_numbers(client, 80, 120)
        while len(consumer.assignment) < 4 or max(again) < 80:
            again += map(int, (await anext(consumer)).payloads)
        assert 80 <= min(number for number in again[20:])


async def test_a_trim_ahead_of_a_group_is_told_or_passed_over(client: AsyncClient) -> None:
    await client.create_channel("old")
    first = await client.append("old", [b"1", b"2"])
    await client.create_group("audit", "old")
    await client.trim("old", At.tick(first.last_tick))
    async with client.consumer("audit", "old") as consumer:
        with pytest.raises(tidelog.PositionTrimmedError) as trimmed:
            await anext(consumer)
        assert trimmed.value.first_available_tick == first.last_tick
        await client.seek_group("audit", At.earliest())
        assert (await anext(consumer)).payloads == [b"2"]
    await client.create_group("other", "old", start=At.tick(first.last_tick))
    await client.append("old", b"3")
    await client.trim("old", everything=True)
    await client.append("old", b"4")
    async with client.consumer("other", "old", skips_trimmed=True) as consumer:
        assert (await anext(consumer)).payloads == [b"4"]


async def test_poll_returns_what_is_there_and_nothing_if_nothing_comes(client: AsyncClient) -> None:
    async with client.consumer("billing", "orders", auto_commit=False) as consumer:
        assert await consumer.poll(0.05) == []
        await append_numbers(client, 0, 400)
        found: list[int] = []
        while len(found) < 400:
            polled = await consumer.poll(5, max_batches=3)
            assert 1 <= len(polled) <= 3
            found += [int(payload) for batch in polled for payload in batch.payloads]
        assert sorted(found) == list(range(400))


@pytest.mark.parametrize("member_id", [None, "a"])
@pytest.mark.parametrize("exists", [True, False])
async def test_a_consumer_joins_once_however_often_it_is_asked(
    client: AsyncClient, member_id: str | None, exists: bool
) -> None:
    """Two streams of one member would end each other. Method: count the calls of JoinGroup on the connection."""
    if exists:
        await client.create_group("billing")
    connection = client._session().transport.services
    join_group, calls = connection.join_group, []

    def counted(**options: Any) -> Any:
        calls.append(join_group(**options))
        return calls[-1]

    connection.join_group = counted
    await append_numbers(client, 0, 100)
    consumer = client.consumer("billing", "orders", member_id=member_id, auto_commit=False)
    await asyncio.gather(consumer.join(), consumer.join())
    async with consumer:
        await consumer.join()
        assert sorted(await take(consumer, 100)) == list(range(100))
        await consumer.commit()
    # Where there is no group, the first call is refused.
    assert len(calls) == (1 if exists else 2)
    assert await lag(client) == 0
    with pytest.raises(tidelog.ClosedError, match="the consumer is closed"):
        await consumer.join()


async def test_a_name_gets_its_vchannels_back_and_ends_its_namesake(client: AsyncClient) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(client.consumer("billing", "orders", member_id="worker-1"))
        other = await stack.enter_async_context(client.consumer("billing", "orders"))
        await until_shared(client, first, other)
        before = first.assignment
        await append_numbers(client, 0, 80)
        await take(first, 40)
        await first.commit()
        namesake = await stack.enter_async_context(client.consumer("billing", "orders", member_id="worker-1"))
        assert namesake.assignment == before
        # Committed messages are not delivered again.
        assert await namesake.poll(0.1) == []
        with pytest.raises(tidelog.GroupFencedError):
            await anext(first)
        assert (await client.describe_group("billing")).members[0].member_id == "worker-1"


async def test_a_destroyed_group_ends_its_members(client: AsyncClient) -> None:
    async with client.consumer("billing", "orders") as consumer:
        await client.destroy_group("billing", force=True)
        with pytest.raises(tidelog.GroupNotFoundError):
            await anext(consumer)
    with pytest.raises(tidelog.ClosedError):
        await anext(consumer)


async def test_a_channel_that_members_consume_is_destroyed_by_force_only(client: AsyncClient) -> None:
    lost: list[str] = []
    async with client.consumer("billing", "orders", on_lost=lost.extend) as consumer:
        with pytest.raises(tidelog.GroupInUseError):
            await client.destroy_channels(["orders"])
        await client.destroy_channels(["orders"], force=True)
        # Also if it is re-created: another channel then has the name.
        await client.create_channel("orders")
        with pytest.raises(tidelog.ChannelNotFoundError):
            await anext(consumer)
    assert lost == VCHANNELS


async def test_what_a_consumer_cannot_be(client: AsyncClient) -> None:
    for channels, options, error in (
        ("none", {}, tidelog.ChannelNotFoundError),
        ("orders", {"lease_s": 0.1}, tidelog.InvalidRequestError),
        ("orders", {"description": "x" * 257}, tidelog.InvalidRequestError),
    ):
        with pytest.raises(error):
            async with client.consumer("billing", channels, **options):
                pass
    async with client.consumer("billing", "orders") as consumer:
        with pytest.raises(ValueError, match="auto_commit"):
            consumer.commits()
        with pytest.raises(tidelog.GroupInUseError):
            await client.commit_positions([PositionCommit("billing", "orders/0", 0)])


async def test_a_member_whose_connection_breaks_keeps_its_vchannels() -> None:
    lost: list[str] = []
    async with cut_off_client() as (client, proxy, direct):
        async with client.consumer("billing", "orders", auto_commit=False, on_lost=lost.extend) as consumer:
            for number in range(30):
                await direct.append("orders/0", b"%d" % number)
                assert (await anext(consumer)).payloads == [b"%d" % number]
                proxy.cut()
                await consumer.commit()
        assert await lag(direct) == 0
    assert lost == []


async def test_consumers_wait_out_a_restart(tmp_path: Path) -> None:
    settings = lasting_port()
    process = ServerProcess(tmp_path / "data", settings)
    async with AsyncClient(process.grpc, retry=tidelog.Retry(base_s=0.02, cap_s=0.2)) as client:
        await client.create_channel("orders", vchannels=4)
        await append_numbers(client, 0, 80)
        async with (
            client.consumer("billing", "orders", auto_commit=False) as first,
            client.consumer("billing", "orders", auto_commit=False) as second,
        ):
            await until_shared(client, first, second)
            seen = Counter(await take(first, 20))
            await first.commit()
            seen.update(await take(second, 10))
            process.kill()
            with ServerProcess(tmp_path / "data", settings) as process:
                async with AsyncClient(process.grpc) as producer:
                    await append_numbers(producer, 80, 120)
                # Uncommitted messages are delivered again, to the current member of the vchannel.
                finished = asyncio.Event()

                async def consume(consumer: AsyncConsumer) -> None:
                    while not finished.is_set():
                        for batch in await consumer.poll(0.2):
                            seen.update(map(int, batch.payloads))
                        # Under the epochs from before the restart.
                        with suppress(tidelog.GroupFencedError):
                            await consumer.commit()
                        if len(seen) == 120 and await lag(client) == 0:
                            finished.set()

                await asyncio.gather(consume(first), consume(second))
                assert set(seen) == set(range(120))
                assert sum(count - 1 for count in seen.values()) <= 10 + 20


async def test_a_restart_lets_no_batch_come_that_cannot_be_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, may_join = lasting_port(), asyncio.Event()
    may_join.set()
    refused = 0
    open_call = MemberStream._open

    def open_later(member: MemberStream) -> Any:
        nonlocal refused
        if not may_join.is_set():
            refused += 1
            raise tidelog.UnavailableError("the member is slower than its scans")
        return open_call(member)

    monkeypatch.setattr(MemberStream, "_open", open_later)
    process = ServerProcess(tmp_path / "data", settings)
    async with AsyncClient(process.grpc, retry=tidelog.Retry(base_s=0.02, cap_s=0.1)) as client:
        await client.create_channel("orders")
        await client.append("orders", b"1")
        async with client.consumer("billing", "orders", auto_commit=False) as consumer:
            assert (await anext(consumer)).payloads == [b"1"]
            await consumer.commit()
            may_join.clear()
            process.kill()
            with ServerProcess(tmp_path / "data", settings):
                async with AsyncClient(process.grpc) as producer:
                    await producer.append("orders", b"2")
                following = asyncio.ensure_future(anext(consumer))
                await until(lambda: refused >= 20)
                assert not following.done()
                may_join.set()
                assert (await following).payloads == [b"2"]
                await consumer.commit()
                assert await lag(client) == 0


def test_the_synchronous_twin(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as process, Client(process.grpc) as client:
        client.create_channel("orders", vchannels=2)
        for number in range(10):
            client.append(f"orders/{number % 2}", [b"%d" % each for each in range(10 * number, 10 * number + 10)])
        with client.consumer("billing", "orders", auto_commit=False) as consumer:
            assert consumer.assignment == ("orders/0", "orders/1")
            found: list[int] = []
            for batch in consumer:
                found += map(int, batch.payloads)
                with client.txn() as txn:
                    txn.append("orders/0", []) if not batch.payloads else None
                    txn.commit_positions(consumer)
                if len(found) == 100:
                    break
            assert sorted(found) == list(range(100))
        assert client.describe_group("billing").lag_messages == 0
        client.append("orders/1", b"100")
        with client.consumer("billing", ["orders"]) as consumer:
            assert [message.payload for batch in consumer.poll(5) for message in batch] == [b"100"]
            consumer.commit_soon()
            consumer.commit()
            assert consumer.wait_rebalance() == ("orders/0", "orders/1")
        assert [group.name for group in client.list_groups()] == ["billing"]
        assert client.destroy_group("billing")
