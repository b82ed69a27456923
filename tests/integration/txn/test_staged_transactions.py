"""Staged transactions on the protocol: begin, stage, commit, and every other end.

Method: raw calls to a server in this process, on both stores; scans say what is there.

Promises of docs/reference/guarantees.md: G24, G25.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tidelog.v1 import channel_service_pb2, error_pb2, message_pb2
from tidelog.v1 import transaction_service_pb2 as txns
from tidelog.v1 import wal_service_pb2 as wal
from tidelog_server.core import limits
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.txn import staged
from tidelog_server.txn.staged import Transactions
from tidelog_testing.parts.batches import a_columns
from tidelog_testing.parts.clocks import SteppedClock
from tidelog_testing.parts.grpc_calls import Client, connected, named, refusal_of, running_server

R = error_pb2
FOREVER_US = limits.MAX_KEEPALIVE_US


@pytest.fixture(params=["memory", "rocksdb"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    folder = tmp_path if request.param == "rocksdb" else None
    async with running_server(folder, limits__max_txn_bytes="5MiB") as server, connected(server) as client:
        await client.create("orders", vchannels=2)
        await client.create("payments")
        yield client


async def txns_of(client: Client) -> list[tuple[str, int]]:
    """Return vchannel and transaction of each message."""
    pages = await client.scan("orders/0", "orders/1", "payments/0")
    return [(row.vchannel, row.txn_id) for page in pages for row in page.rows]


async def test_staged_batches_are_there_together_once_they_are_committed(client: Client) -> None:
    before = await client.append("orders/0", b"before")
    txn_id = await client.begin()
    staged = [
        await client.append("orders/0", b"1", b"2", txn_id=txn_id),
        await client.append("payments", b"3", txn_id=txn_id),
        await client.append("orders/0", b"4", txn_id=txn_id),
    ]
    assert [(each.txn_sequence, each.first_tick, each.message_id) for each in staged] == [
        (1, 0, b""), (1, 0, b""), (2, 0, b"")
    ]  # fmt: skip
    between = await client.append("orders/0", b"between")
    assert [payload for *_, payload in await client.rows("orders/0", "payments")] == [b"before", b"between"]

    result = await client.commit(txn_id, batches=3)

    after = await client.append("orders/0", b"after")
    assert result.txn_id == txn_id
    assert result.last_tick == result.first_tick + 3
    assert [(part.first_tick, part.last_tick, part.durability) for part in result.parts] == [
        (result.first_tick, result.first_tick + 2, message_pb2.DURABILITY_SYNC),
        (result.last_tick, result.last_tick, message_pb2.DURABILITY_SYNC),
    ]
    first = result.first_tick
    assert await client.rows("orders/0", "payments") == [
        ("orders/0", before.first_tick, b"before"),
        ("orders/0", between.first_tick, b"between"),
        *[("orders/0", first + i, payload) for i, payload in enumerate([b"1", b"2", b"4"])],
        ("payments/0", result.last_tick, b"3"),
        ("orders/0", after.first_tick, b"after"),
    ]
    assert await txns_of(client) == [("orders/0", 0)] * 2 + [("orders/0", txn_id)] * 3 + [
        ("payments/0", txn_id), ("orders/0", 0)
    ]  # fmt: skip


async def test_a_repeated_commit_gives_the_first_answer(client: Client) -> None:
    txn_id = await client.begin("orders/0")
    await client.append("orders/0", b"once", txn_id=txn_id)

    several = await asyncio.gather(*(client.commit(txn_id) for _ in range(5)))
    later = await client.commit(txn_id)

    places = [[(part.first_tick, part.last_tick) for part in each.parts] for each in (*several, later)]
    assert places == [places[0]] * 6
    assert sorted(each.parts[0].duplicate for each in several) == [False, True, True, True, True]
    assert later.parts[0].duplicate
    assert len(await client.rows("orders/0")) == 1


async def test_a_rolled_back_transaction_leaves_nothing(client: Client) -> None:
    txn_id = await client.begin()
    await client.append("orders/0", b"never", txn_id=txn_id)

    await client.roll_back(txn_id)
    await client.roll_back(txn_id)

    assert await client.rows("orders/0") == []
    listed = await client.transactions.ListTxns(txns.ListTxnsRequest())
    assert not listed.txns


async def test_a_transaction_without_messages_commits_nothing(client: Client) -> None:
    txn_id = await client.begin("orders/0")

    result = await client.commit(txn_id, batches=0)

    assert result == wal.TransactionResult(txn_id=txn_id)
    assert await client.commit(txn_id) == result
    assert await client.rows("orders/0") == []


async def test_a_server_starts_again_behind_a_transaction_without_messages(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connected(server) as client:
        result = await client.commit(await client.begin())
    async with running_server(tmp_path) as server, connected(server) as client:
        assert await client.commit(result.txn_id) == result


async def test_what_ends_a_transaction_is_told_to_everybody_who_goes_on_with_it(client: Client) -> None:
    committed, rolled_back, open_ = [await client.begin() for _ in range(3)]
    await client.commit(committed)
    await client.roll_back(rolled_back)
    for txn_id, state in ((committed, "committed"), (rolled_back, "rolled back")):
        calls: list[Any] = [
            client.append("orders/0", b"x", txn_id=txn_id),
            client.transactions.KeepaliveTxn(txns.KeepaliveTxnRequest(txn_id=txn_id)),
        ]
        calls.append(client.commit(txn_id) if state == "rolled back" else client.roll_back(txn_id))
        for call in calls:
            refusal = await refusal_of(call)
            assert (refusal.reason, refusal.values["state"]) == (R.REASON_INVALID_TRANSACTION_STATE, state)
            assert refusal.effect == R.EFFECT_NONE
    await client.append("orders/0", b"x", txn_id=open_)


async def test_silence_ends_a_transaction_for_good_and_any_sign_keeps_it(client: Client) -> None:
    silent = await client.begin(keepalive_us=1_000)
    kept = await client.begin(keepalive_us=1_000_000)
    await client.append("orders/0", b"kept", txn_id=kept)
    begin_s = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() - begin_s < 2.0:
        answer = await client.transactions.KeepaliveTxn(txns.KeepaliveTxnRequest(txn_id=kept))
        assert answer.keepalive_us == 1_000_000
        await asyncio.sleep(0.02)

    for _ in range(2):
        refusal = await refusal_of(client.append("orders/0", b"late", txn_id=silent))
        assert (refusal.reason, refusal.values["cause"]) == (R.REASON_TRANSACTION_EXPIRED, "keepalive")
    for call in (client.commit(silent), client.roll_back(silent)):
        assert (await refusal_of(call)).reason == R.REASON_TRANSACTION_EXPIRED
    await client.commit(kept)
    assert [payload for *_, payload in await client.rows("orders/0")] == [b"kept"]


async def test_a_pause_of_the_server_does_not_end_a_transaction(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = await client.begin("orders/0", keepalive_us=5_000_000)
    await client.append("orders/0", b"kept", txn_id=kept)

    monkeypatch.setattr(SystemClock, "monotonic_s", lambda _: time.monotonic() + 3_600)

    assert (await client.transactions.KeepaliveTxn(txns.KeepaliveTxnRequest(txn_id=kept))).keepalive_us == 5_000_000
    await client.commit(kept)
    assert len(await client.rows("orders/0")) == 1


async def test_a_batch_with_a_sequence_is_staged_once(client: Client) -> None:
    txn_id = await client.begin()
    first = await client.append("orders/0", b"1", txn_id=txn_id, txn_sequence=1)
    repeated = await client.append("orders/0", b"1", txn_id=txn_id, txn_sequence=1)
    assert (first.duplicate, repeated.duplicate, repeated.txn_sequence) == (False, True, 1)

    reused = await refusal_of(client.append("orders/0", b"other", txn_id=txn_id, txn_sequence=1))
    gap = await refusal_of(client.append("orders/0", b"3", txn_id=txn_id, txn_sequence=3))
    other = await client.append("orders/1", b"1", txn_id=txn_id, txn_sequence=1)
    missing = await refusal_of(client.commit(txn_id, batches=3))

    assert (reused.reason, gap.reason) == (
        R.REASON_TRANSACTION_SEQUENCE_REUSED,
        R.REASON_TRANSACTION_SEQUENCE_GAP,
    )
    assert gap.values["expected_sequence"] == "2"
    assert other.txn_sequence == 1
    assert (missing.reason, missing.values["batches"]) == (R.REASON_TRANSACTION_INCOMPLETE, "2")
    await client.commit(txn_id, batches=2)
    assert [payload for *_, payload in await client.rows("orders/0", "orders/1")] == [b"1", b"1"]


async def test_many_batches_of_a_stream_are_staged_in_their_order(client: Client) -> None:
    txn_id = await client.begin()
    payloads = [b"%d" % i for i in range(1_000)]
    answers = await client.append_all(
        wal.AppendStreamRequest(
            request_id=i,
            vchannel=f"orders/{i % 2}",
            columns=a_columns([payload]),
            options=wal.AppendOptions(txn_id=txn_id, txn_sequence=i // 2 + 1),
        )
        for i, payload in enumerate(payloads)
    )
    assert [answer.result.txn_sequence for answer in answers] == [i // 2 + 1 for i in range(1_000)]

    result = await client.commit(txn_id, batches=1_000)

    assert await client.rows("orders/0", "orders/1") == [
        *[("orders/0", result.first_tick + i, payload) for i, payload in enumerate(payloads[::2])],
        *[("orders/1", result.first_tick + 500 + i, payload) for i, payload in enumerate(payloads[1::2])],
    ]


async def test_conditions_are_compared_when_it_commits_and_leave_it_open(client: Client) -> None:
    last = await client.append("orders/0", b"there")
    txn_id = await client.begin()
    await client.append("orders/0", b"a", txn_id=txn_id)
    await client.append("payments", b"b", txn_id=txn_id)

    stale = await refusal_of(
        client.commit(txn_id, conditions=[txns.CommitCondition(vchannel="orders/0", expected_last_tick=0)])
    )
    fenced = await refusal_of(
        client.commit(txn_id, conditions=[txns.CommitCondition(vchannel="payments", fencing_token=7)])
    )
    outside = await refusal_of(
        client.commit(txn_id, conditions=[txns.CommitCondition(vchannel="orders/1", expected_last_tick=0)])
    )

    assert (stale.reason, stale.values["last_tick"]) == (R.REASON_LAST_TICK_MISMATCH, str(last.last_tick))
    assert fenced.reason == R.REASON_FENCING_TOKEN_MISMATCH
    assert outside.reason == R.REASON_VCHANNEL_NOT_IN_TRANSACTION
    fresh = txns.CommitCondition(vchannel="orders/0", expected_last_tick=last.last_tick)
    await client.commit(txn_id, conditions=[fresh])
    assert [payload for *_, payload in await client.rows("orders/0", "payments")] == [b"there", b"a", b"b"]


async def test_a_barrier_lies_before_all_its_messages(client: Client) -> None:
    txn_id = await client.begin()
    await client.append("orders/0", b"a", txn_id=txn_id)
    ticks = await client.wal.AllocateTicks(wal.AllocateTicksRequest(count=1_000_000))
    barrier_tick = ticks.first_tick + 999_999

    result = await client.commit(txn_id, barrier_tick=barrier_tick)

    assert result.first_tick > barrier_tick


async def test_a_barrier_that_is_not_reached_leaves_it_open(client: Client) -> None:
    txn_id = await client.begin()
    await client.append("orders/0", b"a", txn_id=txn_id)
    now = await client.wal.AllocateTicks(wal.AllocateTicksRequest())
    request = txns.CommitTxnRequest(txn_id=txn_id, barrier_tick=now.first_tick + (3_600_000 << 18))

    refusal = await refusal_of(client.transactions.CommitTxn(request, timeout=3))

    assert refusal.reason == R.REASON_BARRIER_NOT_REACHED
    await client.append("orders/0", b"b", txn_id=txn_id)
    await client.commit(txn_id)
    assert len(await client.rows("orders/0")) == 2


async def test_a_destroyed_channel_takes_its_transactions_along(client: Client) -> None:
    txn_id, other = await client.begin(), await client.begin()
    await client.append("orders/0", b"a", txn_id=txn_id)
    await client.append("payments", b"b", txn_id=txn_id)
    await client.append("orders/0", b"c", txn_id=other)

    await client.channels.DestroyChannels(channel_service_pb2.DestroyChannelsRequest(names=["payments"]))

    refusal = await refusal_of(client.commit(txn_id))
    assert (refusal.reason, refusal.values["cause"]) == (R.REASON_TRANSACTION_EXPIRED, "channel_destroyed")
    await client.commit(other)
    assert [payload for *_, payload in await client.rows("orders/0")] == [b"c"]


async def test_operators_see_and_abort_them(client: Client) -> None:
    txn_id = await client.begin("orders/0", "payments", keepalive_us=FOREVER_US, client_id="job-7")
    request = wal.AppendRequest(
        vchannel="orders/0",
        messages=[message_pb2.Message(payload=b"abc")] * 3,
        options=wal.AppendOptions(txn_id=txn_id),
    )
    await client.wal.Append(request, metadata=named("job-7"))

    [listed] = (await client.transactions.ListTxns(txns.ListTxnsRequest())).txns
    described = (await client.transactions.DescribeTxn(txns.DescribeTxnRequest(txn_id=txn_id))).txn

    assert (described.state, described.client_id) == (txns.TXN_STATE_OPEN, "job-7")
    assert (list(described.vchannels), described.batches, described.messages) == (["orders/0", "payments/0"], 1, 3)
    assert described.keepalive_us == FOREVER_US
    assert 0 < described.expires_in_us <= FOREVER_US
    assert (listed.txn_id, listed.bytes) == (txn_id, described.bytes)
    await client.transactions.AbortTxn(txns.AbortTxnRequest(txn_id=txn_id, reason="it holds up the upgrade"))
    refusal = await refusal_of(client.wal.Append(request, metadata=named("job-7")))
    assert (refusal.reason, refusal.values["cause"]) == (R.REASON_TRANSACTION_EXPIRED, "aborted")


async def test_a_committed_one_is_described_with_its_place(client: Client) -> None:
    txn_id = await client.begin()
    await client.append("orders/1", b"a", b"b", txn_id=txn_id)
    result = await client.commit(txn_id)

    described = (await client.transactions.DescribeTxn(txns.DescribeTxnRequest(txn_id=txn_id))).txn

    assert described == txns.TxnDescription(
        txn_id=txn_id, state=txns.TXN_STATE_COMMITTED, vchannels=["orders/1"], messages=2, result=result
    )


async def test_other_clients_have_no_part_in_it(client: Client) -> None:
    txn_id = await client.begin(client_id="mine")
    append = wal.AppendRequest(
        vchannel="orders/0",
        messages=[message_pb2.Message(payload=b"x")],
        options=wal.AppendOptions(txn_id=txn_id),
    )
    for call in (
        client.wal.Append(append),
        client.wal.Append(append, metadata=named("theirs")),
        client.commit(txn_id),
        client.roll_back(txn_id),
        client.transactions.KeepaliveTxn(txns.KeepaliveTxnRequest(txn_id=txn_id)),
    ):
        assert (await refusal_of(call)).reason == R.REASON_TRANSACTION_FOREIGN
    await client.wal.Append(append, metadata=named("mine"))
    await client.transactions.CommitTxn(txns.CommitTxnRequest(txn_id=txn_id, batches=1), metadata=named("mine"))
    assert len(await client.rows("orders/0")) == 1


async def test_a_transaction_has_a_bound_in_bytes(client: Client) -> None:
    txn_id = await client.begin()
    for _ in range(5):
        await client.append("orders/0", *[bytes(1_000_000)], txn_id=txn_id)

    refusal = await refusal_of(client.append("orders/0", bytes(1_000_000), txn_id=txn_id))

    assert (refusal.reason, refusal.values["max_bytes"]) == (R.REASON_TRANSACTION_TOO_LARGE, str(5 << 20))
    await client.commit(txn_id, batches=5)
    assert len(await client.rows("orders/0")) == 5


@pytest.mark.parametrize("restarts", [1, 2])
async def test_open_transactions_end_with_the_server_and_committed_ones_are_remembered(
    tmp_path: Path, restarts: int
) -> None:
    async with running_server(tmp_path) as server, connected(server) as client:
        await client.create("orders")
        open_, committed = await client.begin(), await client.begin()
        for txn_id in (open_, committed):
            await client.append("orders", b"%d" % txn_id, bytes(10_000), txn_id=txn_id)
        result = await client.commit(committed)
        span = (result.first_tick, result.last_tick)
    for _ in range(restarts):
        async with running_server(tmp_path) as server, connected(server) as client:
            assert [tick for _, tick, _ in await client.rows("orders")] == [result.first_tick, result.last_tick]
            again = await client.commit(committed)
            assert (again.first_tick, again.last_tick, again.parts[0].duplicate) == (*span, True)
            for call in (client.commit(open_), client.append("orders", b"x", txn_id=open_)):
                refusal = await refusal_of(call)
                assert (refusal.reason, refusal.values["cause"]) == (R.REASON_TRANSACTION_EXPIRED, "forgotten")
            assert (await refusal_of(client.roll_back(committed))).reason == R.REASON_INVALID_TRANSACTION_STATE


async def test_a_commit_that_overtakes_the_answers_of_its_batches_is_there_after_restarts(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connected(server) as client:
        await client.create("orders")
        results = []
        for number in range(100):
            txn_id = await client.begin()
            appending = asyncio.ensure_future(client.append("orders", b"%d" % number, bytes(5_000), txn_id=txn_id))
            committing = asyncio.ensure_future(client.commit(txn_id))
            results.append(await committing)
            if not results[-1].parts:
                # The commit has overtaken the batch itself.
                assert (await refusal_of(appending)).reason == R.REASON_INVALID_TRANSACTION_STATE
            else:
                await appending
    ticks = [tick for result in results for part in result.parts for tick in range(part.first_tick, part.last_tick + 1)]
    assert ticks
    for _ in range(2):
        async with running_server(tmp_path) as server, connected(server) as client:
            assert [tick for _, tick, _ in await client.rows("orders")] == ticks


async def test_a_repeated_commit_needs_none_of_its_channels_any_more(client: Client) -> None:
    txn_id = await client.begin()
    for vchannel in ("payments", "orders/0"):
        await client.append(vchannel, b"x", txn_id=txn_id)
    conditions = [txns.CommitCondition(vchannel="payments", expected_last_tick=0)]
    result = await client.commit(txn_id, conditions=conditions)

    await client.channels.DestroyChannels(channel_service_pb2.DestroyChannelsRequest(names=["payments"]))

    request = txns.CommitTxnRequest(txn_id=txn_id, conditions=conditions)
    again = await client.transactions.CommitTxn(request)
    assert [part.last_tick for part in again.result.parts] == [part.last_tick for part in result.parts]
    assert list(again.vchannels) == ["", "orders/0"]


async def test_a_sign_of_life_while_it_is_being_committed_is_no_error(client: Client) -> None:
    txn_id = await client.begin()
    now = await client.wal.AllocateTicks(wal.AllocateTicksRequest())
    committing = asyncio.ensure_future(client.commit(txn_id, barrier_tick=now.first_tick + (500 << 18)))
    described = txns.DescribeTxnRequest(txn_id=txn_id)
    async with asyncio.timeout(60):
        while (await client.transactions.DescribeTxn(described)).txn.state == txns.TXN_STATE_OPEN:
            await asyncio.sleep(0)

    await client.transactions.KeepaliveTxn(txns.KeepaliveTxnRequest(txn_id=txn_id))

    await committing


async def test_open_transactions_are_listed_page_by_page(client: Client) -> None:
    ids = [await client.begin(keepalive_us=FOREVER_US, client_id=f"c{i % 2}") for i in range(250)]
    found, token, pages = [], "", 0
    while token or not pages:
        page = await client.transactions.ListTxns(txns.ListTxnsRequest(page_token=token))
        found += [txn.txn_id for txn in page.txns]
        token, pages = page.next_page_token, pages + 1
    assert (found, pages) == (ids, 3)
    refusal = await refusal_of(client.transactions.ListTxns(txns.ListTxnsRequest(page_token="x")))
    assert refusal.reason == R.REASON_INVALID_ARGUMENT


async def test_keepalives_run_out_after_a_start_that_kept_the_event_loop_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened, clock = Transactions.open, SteppedClock()

    async def open_then_block(transactions: Transactions) -> None:
        await opened(transactions)
        # The rest of the recovery, longer than a pause that counts.
        clock.now_s += 2 * staged._MAX_PAUSE_S

    monkeypatch.setattr(Transactions, "open", open_then_block)
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda _: clock.now_s)
    # Only requests find out that the keepalive has run out.
    monkeypatch.setattr(staged, "_SWEEP_EVERY_S", 3_600.0)
    async with running_server() as server, connected(server) as client:
        txn_id = await client.begin(keepalive_us=1_000)
        assert (await client.transactions.ListTxns(txns.ListTxnsRequest())).txns
        clock.now_s += 0.002
        assert not (await client.transactions.ListTxns(txns.ListTxnsRequest())).txns
        assert (await refusal_of(client.commit(txn_id))).reason == R.REASON_TRANSACTION_EXPIRED


async def test_commits_that_are_long_gone_are_not_guessed_about(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog_server.txn.table.MAX_TXN_OUTCOMES", 3)
    never = await client.begin(keepalive_us=1_000)
    ids = [await client.begin() for _ in range(6)]
    for txn_id in ids:
        await client.append("orders/0", b"x", txn_id=txn_id)
        await client.commit(txn_id)

    for txn_id in ids[:3]:
        refusal = await refusal_of(client.commit(txn_id))
        assert (refusal.reason, refusal.effect) == (R.REASON_TRANSACTION_OUTCOME_FORGOTTEN, R.EFFECT_UNKNOWN)
    for txn_id in ids[3:]:
        assert (await client.commit(txn_id)).txn_id == txn_id
    for call in (
        client.roll_back(ids[0]),
        client.append("orders/0", b"x", txn_id=ids[0]),
        client.transactions.DescribeTxn(txns.DescribeTxnRequest(txn_id=ids[0])),
    ):
        assert (await refusal_of(call)).reason == R.REASON_TRANSACTION_OUTCOME_FORGOTTEN
    # Of this one the server knows that it ended otherwise.
    assert (await refusal_of(client.commit(never))).reason == R.REASON_TRANSACTION_EXPIRED
