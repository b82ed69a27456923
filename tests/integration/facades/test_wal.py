"""The WAL accessor of the client: appends, transactions, broadcasts. Method: each call against a real server.

Reads are tested in test_wal_read.py.
"""

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
from crc32c import crc32c

import tidelog
from tidelog import AsyncClient, AsyncWal, Message, ResourceKey, To
from tidelog.rocksmq import AsyncRocksMQ
from tidelog.testing import server
from tidelog.txn import transaction as _transaction
from tidelog_testing.faults.fault_proxy import FaultProxy
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.fixtures import client_with
from tidelog_testing.parts.waiting import eventually
from tidelog_testing.servers.processes import ServerProcess

HOUR = 3_600_000 << 18
KEY = ResourceKey("schema", "orders")
client = client_with(orders=2, payments=1)


@pytest.fixture
def wal(client: AsyncClient) -> AsyncWal:
    return client.wal()


async def test_the_log_tells_its_kind_and_how_far_it_is(wal: AsyncWal) -> None:
    result = await wal.append("orders/0", [b"a", b"b"], durability="os")

    assert await wal.wal_name() in ("rocksdb", "memory")
    assert await wal.latest_mvcc_tick("orders/0") == result.last_tick
    assert result.durability == "os"


async def test_an_append_exceeds_its_barrier(client: AsyncClient, wal: AsyncWal) -> None:
    ticks = await client.allocate_ticks(1_000_000)

    assert (await wal.append("orders/0", b"a", barrier_tick=ticks[-1])).first_tick > ticks[-1]
    with pytest.raises(tidelog.BarrierNotReachedError):
        await wal.append("orders/0", b"b", barrier_tick=ticks[-1] + HOUR, timeout_s=2)


async def test_conditions_hold_or_nothing_is_appended(client: AsyncClient, wal: AsyncWal) -> None:
    first = await wal.append("orders/0", b"a", expected_last_tick=0)
    await client.fence("orders/0", 7)

    with pytest.raises(tidelog.LastTickMismatchError) as mismatch:
        await wal.append("orders/0", b"b", expected_last_tick=first.last_tick - 1)
    with pytest.raises(tidelog.FencedError):
        await wal.append("orders/0", b"b", fencing_token=6)
    with pytest.raises(tidelog.LastTickMismatchError):
        async with wal.txn("orders/0") as txn:
            await txn.append(b"b", expected_last_tick=first.last_tick - 1)
    with pytest.raises(tidelog.FencedError):
        async with wal.txn("orders/0") as txn:
            await txn.append(b"b", fencing_token=6)

    assert mismatch.value.last_tick == first.last_tick
    assert await payloads(client, "orders/0") == [b"a"]
    async with wal.txn("orders/0") as txn:
        await txn.append(b"b", expected_last_tick=first.last_tick, fencing_token=7)
    await wal.append("orders/0", b"c", expected_last_tick=txn.result.last_tick, fencing_token=7)
    assert await payloads(client, "orders/0") == [b"a", b"b", b"c"]


async def test_a_transaction_commits_at_the_end_of_its_block(client: AsyncClient, wal: AsyncWal) -> None:
    ticks = await client.allocate_ticks(1_000_000)
    async with wal.txn("orders/0", durability="os", keepalive_s=1, timeout_s=5) as txn:
        await txn.append(b"a")
        await txn.append([b"b", Message(b"c", key=b"k")], barrier_tick=ticks[-1])

    [batch] = [batch async for batch in client.scan("orders/0")]
    assert (batch.payloads, batch.txn_id) == ([b"a", b"b", b"c"], txn.txn_id)
    assert (batch.first_tick, batch.last_tick) == (txn.result.first_tick, txn.result.last_tick)
    assert ticks[-1] < txn.result.first_tick
    assert txn.result.durability == "os"
    assert await txn.commit() == txn.result


async def test_a_transaction_on_the_only_vchannel_of_a_channel_needs_no_index(wal: AsyncWal) -> None:
    async with wal.txn("payments") as txn:
        await txn.append([b"a", b"b"])

    assert txn.result.last_tick == txn.result.first_tick + 1


async def test_an_exception_rolls_back_and_so_does_rollback(client: AsyncClient, wal: AsyncWal) -> None:
    with pytest.raises(KeyError):
        async with wal.txn("orders/0") as txn:
            await txn.append(b"never")
            raise KeyError
    async with wal.txn("orders/0") as other:
        await other.append(b"never")
        await other.rollback()
        await other.rollback()

    assert await payloads(client, "orders/0") == []
    for each in (txn, other):
        with pytest.raises(tidelog.TransactionStateError):
            await each.commit()
        with pytest.raises(tidelog.TransactionStateError):
            await each.append(b"more")
        with pytest.raises(tidelog.TransactionStateError):
            _ = each.result


async def test_a_transaction_without_messages_has_no_result(wal: AsyncWal) -> None:
    async with wal.txn("orders/0") as txn:
        pass

    assert await txn.commit() is None
    with pytest.raises(tidelog.TransactionStateError):
        _ = txn.txn_id


async def test_options_of_a_transaction_are_checked_at_once(wal: AsyncWal) -> None:
    with pytest.raises(ValueError, match=r"keepalive_s is 0\.0005, expected 0\.001"):
        wal.txn("orders/0", keepalive_s=0.0005)


async def test_groups_go_by_themselves_and_answers_stand_where_the_messages_stood(
    client: AsyncClient, wal: AsyncWal
) -> None:
    responses = await wal.append_messages(
        [
            ("orders/0", b"1"),
            To("payments", b"2"),
            ("nowhere", b"3"),
            ("orders/0", Message(b"4", key=b"k")),
            ("nowhere/0", b"5"),
            ("orders/1", b"6"),
            ("payments/0", b"7"),
        ]
    )

    assert [type(each.error) for each in responses] == [
        type(None), type(None), tidelog.ChannelNotFoundError, type(None), tidelog.ChannelNotFoundError, type(None),
        type(None),
    ]  # fmt: skip
    assert responses[2].error is responses[4].error is responses.first_error
    with pytest.raises(tidelog.ChannelNotFoundError):
        responses.results()
    for vchannel, indexes in (("orders/0", [0, 3]), ("payments/0", [1, 6]), ("orders/1", [5])):
        [batch] = [batch async for batch in client.scan(vchannel)]
        places = [responses[index].result for index in indexes]
        assert [place.first_tick if place else None for place in places] == list(batch.ticks)
        assert {responses[index].txn_id for index in indexes} == {batch.txn_id}
    assert responses[5].txn_id is None
    assert responses.largest_tick == max(
        [await wal.latest_mvcc_tick(name) for name in ("orders/0", "orders/1", "payments")]
    )


async def test_many_messages_of_one_vchannel_keep_their_order_and_are_one_transaction(
    client: AsyncClient, wal: AsyncWal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_transaction, "STAGE_FROM_BYTES", 2_000)
    messages = [b"%03d" % index * 50 for index in range(200)]

    responses = await wal.append_messages([(f"orders/{index % 2}", each) for index, each in enumerate(messages)])

    assert await payloads(client, "orders/0") == messages[::2]
    assert await payloads(client, "orders/1") == messages[1::2]
    ticks = [result.first_tick for result in responses.results()]
    assert ticks[::2] == list(range(ticks[0], ticks[0] + 100))
    assert len({response.txn_id for response in responses}) == 2
    assert await client.list_txns() == []


async def test_a_barrier_is_for_all_messages_of_a_call(client: AsyncClient, wal: AsyncWal) -> None:
    ticks = await client.allocate_ticks(1_000_000)
    pairs = [("orders/0", b"a"), ("orders/1", b"b"), ("orders/1", b"c")]

    responses = await wal.append_messages(pairs, barrier_tick=ticks[-1])
    assert all(result.first_tick > ticks[-1] for result in responses.results())

    refused = await wal.append_messages(pairs, barrier_tick=ticks[-1] + HOUR, timeout_s=2)
    assert [type(each.error) for each in refused] == [tidelog.BarrierNotReachedError] * 3
    assert await payloads(client, "orders/1") == [b"b", b"c"]
    # The transaction begun for it was rolled back.
    assert await client.list_txns() == []


async def test_messages_of_a_channel_are_divided_by_key(client: AsyncClient, wal: AsyncWal) -> None:
    pairs = [("orders", Message(b"%d" % number, key=b"key-%d" % (number % 5))) for number in range(20)]
    alone = ("orders", Message(b"alone", key=b"key-0"))
    responses = [*(await wal.append_messages(pairs)), *(await wal.append_messages([alone]))]
    async with wal.txn("orders") as txn:
        await txn.append([message for _, message in pairs])
    found = {row.tick: row async for batch in client.scan("orders") for row in batch}
    for response, (_, message) in zip(responses, [*pairs, alone], strict=True):
        assert response.result is not None
        row = found[response.result.first_tick]
        assert (row.payload, row.vchannel) == (message.payload, f"orders/{crc32c(message.key or b'') % 2}")
    assert [each.txn_id is None for each in responses] == [False] * 20 + [True]
    by_index = {
        index: found[tidelog.Tick(part.result.first_tick + place)].payload
        for part in txn.result.parts
        for place, index in enumerate(part.indices)
    }
    assert by_index == {index: message.payload for index, (_, message) in enumerate(pairs)}
    assert len(found) == 41

    refused = await wal.append_messages([*pairs, ("orders/0", b"x"), ("payments", b"y")])
    assert isinstance(refused.first_error, tidelog.InvalidRequestError)
    assert "'orders' has 2 vchannels, and the call names it and 'orders/0'" in str(refused.first_error)
    assert [each.error is None for each in refused] == [False] * 21 + [True]
    assert len([row async for batch in client.scan("orders") for row in batch]) == 41


async def append_two(client: AsyncClient) -> None:
    # With a barrier they are staged, so the server knows the transaction.
    responses = await client.wal().append_messages([("orders", b"a"), ("orders", b"b")], barrier_tick=1)
    assert len(responses.results()) == 2


async def produce_two(client: AsyncClient) -> None:
    # A large transaction is staged too.
    assert len(await AsyncRocksMQ(client).produce("orders", [bytes(700_000)] * 2)) == 2


@pytest.mark.parametrize("append", [append_two, produce_two])
@pytest.mark.parametrize("is_aborted", [False, True])
async def test_messages_whose_transaction_expires_are_appended_in_another(
    tmp_path: Path, append: Callable[[AsyncClient], Coroutine[None, None, None]], *, is_aborted: bool
) -> None:
    settings = {"limits.txn_keepalive_ms": 300}
    with await asyncio.to_thread(ServerProcess, tmp_path / "data", settings) as process:
        async with AsyncClient(process.grpc) as direct, FaultProxy(process.grpc, delay_s=0.05) as proxy:
            await direct.create_channel("orders")
            async with AsyncClient(proxy.endpoint, timeout_s=60) as client:
                appending = asyncio.create_task(append(client))
                while not (begun := await direct.list_txns()):
                    assert not appending.done()
                proxy.cut()
                if is_aborted:
                    await direct.abort_txn(begun[0].txn_id, reason="maintenance")
                await eventually(direct.list_txns, lambda found: not found)
                proxy.heal()
                if is_aborted:
                    with pytest.raises(tidelog.TransactionExpiredError):
                        await appending
                else:
                    await appending
            assert len(await payloads(direct, "orders")) == (0 if is_aborted else 2)


async def test_no_messages_are_no_responses_and_a_wrong_one_refuses_the_call(
    client: AsyncClient, wal: AsyncWal
) -> None:
    assert list(await wal.append_messages([])) == []
    with pytest.raises(TypeError, match=r"messages\[1\]"):
        await wal.append_messages([("orders/0", b"a"), ("orders/1", "text")])  # type: ignore[list-item]  # the point of the test
    with pytest.raises(ValueError, match="barrier"):
        await wal.append_messages([("orders/0", b"a")], barrier_tick=-1)

    assert await payloads(client, "orders/0") == []


async def test_a_message_that_is_refused_refuses_its_vchannel_only(client: AsyncClient, wal: AsyncWal) -> None:
    responses = await wal.append_messages(
        [
            ("orders/0", b"fine"),
            ("orders/0", Message(b"", properties={"_mine": "no"})),
            ("orders/1", b"there"),
        ]
    )

    assert isinstance(responses[0].error, tidelog.InvalidRequestError)
    assert responses[0].error is responses[1].error
    assert responses[2].error is None
    assert await payloads(client, "orders/0") == []
    assert await payloads(client, "orders/1") == [b"there"]


async def test_a_broadcast_is_acknowledged_by_batch_or_by_id(client: AsyncClient, wal: AsyncWal) -> None:
    broadcast = wal.broadcast()
    sent = await broadcast.append(["orders/0", "orders/1", "payments"], b"new column", resource_keys=[KEY])
    with pytest.raises(tidelog.ResourceAcquiredError):
        await broadcast.append(["orders/0"], b"another", resource_keys=[KEY])
    once = asyncio.create_task(broadcast.block_until_resource_key_ack_once(KEY))
    everybody = asyncio.create_task(broadcast.block_until_resource_key_ack_all(KEY, timeout_s=30))
    with pytest.raises(tidelog.DeadlineError):
        await broadcast.block_until_resource_key_ack_once(KEY, timeout_s=0.05)

    [batch] = [batch async for batch in client.scan("orders/0", start=sent.tick)]
    await broadcast.ack(batch)
    await broadcast.ack(batch)
    await once
    with pytest.raises(tidelog.DeadlineError):
        await broadcast.block_until_resource_key_ack_all(KEY, timeout_s=0.05)
    assert not everybody.done()
    await broadcast.ack(sent.broadcast_id, "orders/1")
    await broadcast.ack(sent.broadcast_id, ["payments"])

    await everybody
    await broadcast.block_until_resource_key_ack_once(KEY)
    await broadcast.append(["orders/0"], b"another", resource_keys=[KEY])


async def test_an_acknowledgement_says_on_which_vchannels(client: AsyncClient, wal: AsyncWal) -> None:
    broadcast = wal.broadcast()
    sent = await broadcast.append(["orders/0"], b"x", wait_s=1, barrier_tick=1, timeout_s=5)
    [batch] = [batch async for batch in client.scan("orders/0", start=sent.tick)]

    with pytest.raises(ValueError, match="pass the vchannels to acknowledge"):
        await broadcast.ack(sent.broadcast_id)  # type: ignore[call-overload]  # the point of the test
    with pytest.raises(ValueError, match="leave out vchannels"):
        await broadcast.ack(batch, "orders/0")  # type: ignore[call-overload]  # the point of the test
    with pytest.raises(tidelog.BroadcastVchannelError):
        await broadcast.ack(sent.broadcast_id, "payments")


async def test_each_call_of_a_closed_client_says_so() -> None:
    async with server() as running, AsyncClient(running.endpoint) as client:
        await client.create_channel("orders")
        wal = client.wal()
        txn, broadcast = wal.txn("orders"), wal.broadcast()
        await txn.append(b"a")
        # An abandoned transaction does not delay closing.
        leaked = wal.txn("orders")
        await leaked.append([bytes(1_000_000)] * 2)
        async with asyncio.timeout(5):
            await client.aclose()

        for call in (
            wal.wal_name, lambda: wal.latest_mvcc_tick("orders"), lambda: wal.append("orders", b"x"),
            lambda: wal.append_messages([("orders", b"x")]), lambda: wal.append_messages([]),
            lambda: txn.append(b"x"), txn.commit, lambda: leaked.append(b"x"), leaked.commit,
            lambda: broadcast.append(["orders"], b"x"), lambda: broadcast.ack(1, "orders"),
            lambda: broadcast.block_until_resource_key_ack_once(KEY),
            lambda: broadcast.block_until_resource_key_ack_all(KEY),
        ):  # fmt: skip
            with pytest.raises(tidelog.ClosedError):
                await call()
        with pytest.raises(tidelog.ClosedError):
            wal.txn("orders")
        with pytest.raises(tidelog.ClosedError):
            wal.read("orders", message_handler=print)
        await leaked.rollback()
        assert await payloads(running, "orders") == []


async def test_an_accessor_holds_nothing(client: AsyncClient) -> None:
    async def use() -> list[weakref.ref[object]]:
        wal = client.wal()
        txn, broadcast = wal.txn("orders/0"), wal.broadcast()
        await txn.append(b"x")
        await wal.wal_name()
        return [weakref.ref(wal), weakref.ref(txn), weakref.ref(broadcast)]

    left = await use()
    gc.collect()

    assert [each() for each in left] == [None] * 3


async def test_cancelling_ends_the_wait_only(client: AsyncClient, wal: AsyncWal) -> None:
    [now] = await client.allocate_ticks()
    append = asyncio.create_task(wal.append("orders/0", b"late", barrier_tick=now + (500 << 18)))
    await client.wal_name()
    append.cancel()
    with pytest.raises(asyncio.CancelledError):
        await append

    # The client still works.
    await wal.append_messages([("orders/1", b"a"), ("orders/1", b"b")])
    assert await payloads(client, "orders/1") == [b"a", b"b"]


def test_the_synchronous_twin(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "log") as process, tidelog.Client(process.grpc) as client:
        client.create_channel("orders", vchannels=2)
        wal = client.wal()
        assert wal.wal_name() == "rocksdb"
        ticks = client.allocate_ticks(1_000_000)
        last = wal.append("orders/0", b"a", barrier_tick=ticks[-1])
        assert wal.latest_mvcc_tick("orders/0") == last.last_tick > ticks[-1]
        with pytest.raises(tidelog.LastTickMismatchError):
            wal.append("orders/0", b"never", expected_last_tick=0)
        with pytest.raises(tidelog.FencedError), wal.txn("orders/0") as fenced:
            fenced.append(b"never", fencing_token=1)
        with wal.txn("orders/0", keepalive_s=1) as txn:
            txn.append([b"b", b"c"], barrier_tick=last.last_tick)
        assert (txn.commit(), txn.vchannel) == (txn.result, "orders/0")
        assert txn.txn_id <= txn.result.first_tick
        other = wal.txn("orders/0")
        other.append(b"never")
        other.rollback()
        responses = wal.append_messages([("orders/0", b"d"), ("orders/1", b"e"), ("nowhere", b"f"), ("orders/0", b"g")])
        assert [each.error is None for each in responses] == [True, True, False, True]

        broadcast = wal.broadcast()
        sent = broadcast.append(["orders/0", "orders/1"], b"h", resource_keys=[KEY])
        batch = next(client.scan("orders/0", start=sent.tick))
        broadcast.ack(batch)
        broadcast.block_until_resource_key_ack_once(KEY, timeout_s=5)
        broadcast.ack(sent.broadcast_id, "orders/1")
        broadcast.block_until_resource_key_ack_all(KEY, timeout_s=5)

        stored = [payload for batch in client.scan("orders/0") for payload in batch.payloads]
        assert stored == [b"a", b"b", b"c", b"d", b"g", b"h"]
        client.close()
        with pytest.raises(tidelog.ClosedError):
            wal.txn("orders/0")
        with pytest.raises(tidelog.ClosedError):
            txn.append(b"x")
        with pytest.raises(tidelog.ClosedError):
            wal.append_messages([])
        with pytest.raises(tidelog.ClosedError):
            wal.read("orders/0", message_handler=print)
