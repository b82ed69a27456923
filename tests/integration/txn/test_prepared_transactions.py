"""Prepared transactions on the protocol: several clients stage, one of all commits what they have, once.

Method: raw calls to a server in this process, on both stores; scans say what is there.

Promises of docs/reference/guarantees.md: G47.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tidelog.v1 import channel_service_pb2, error_pb2, message_pb2
from tidelog.v1 import transaction_service_pb2 as txns
from tidelog.v1 import wal_service_pb2 as wal
from tidelog_server.rpc.services.transactions import MAX_PREPARED_TXNS
from tidelog_server.txn import applications
from tidelog_server.txn import prepared as prepared_module
from tidelog_server.txn.applications import MAX_QUERY_ID_BYTES
from tidelog_server.txn.prepared import MAX_PREPARED_KEEPALIVE_US
from tidelog_testing.parts.grpc_calls import Client, Refusal, connected, named, refusal_of, running_server
from tidelog_testing.parts.stores import FaultyStore

R = error_pb2
FOREVER_US = MAX_PREPARED_KEEPALIVE_US
APP = "etl"


@pytest.fixture(params=["memory", "rocksdb"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    folder = tmp_path if request.param == "rocksdb" else None
    async with running_server(folder) as server, connected(server) as client:
        await client.create("orders", vchannels=2)
        await client.create("payments")
        yield client


async def begun(client: Client, client_id: str, *batches: tuple[str, bytes], **begin: Any) -> int:
    """Begin a transaction with one batch for each vchannel and payload."""
    txn_id = await client.begin(client_id=client_id, **begin)
    for vchannel, payload in batches:
        request = wal.AppendRequest(
            vchannel=vchannel,
            messages=[message_pb2.Message(payload=payload)],
            options=wal.AppendOptions(txn_id=txn_id),
        )
        await client.wal.Append(request, metadata=named(client_id))
    return txn_id


async def prepare(client: Client, txn_id: int, client_id: str, **fields: Any) -> int:
    """Prepare a transaction for ``APP``; return its keepalive."""
    request = txns.PrepareTxnRequest(**{"txn_id": txn_id, "app_id": APP, **fields})
    answer = await client.transactions.PrepareTxn(request, metadata=named(client_id))
    keepalive_us: int = answer.keepalive_us
    return keepalive_us


async def prepared(client: Client, client_id: str, *batches: tuple[str, bytes], **fields: Any) -> txns.PreparedTxn:
    """Begin and prepare a transaction that stays for a day."""
    txn_id = await begun(client, client_id, *batches)
    assert await prepare(client, txn_id, client_id, **{"keepalive_us": FOREVER_US, **fields}) > 0
    return txns.PreparedTxn(txn_id=txn_id, client_id=client_id)


async def commit(
    client: Client, version: int, *named_txns: txns.PreparedTxn, app_id: str = APP, **fields: Any
) -> txns.CommitPreparedTxnsResponse:
    request = txns.CommitPreparedTxnsRequest(txns=named_txns, app_id=app_id, app_version=version, **fields)
    answer: txns.CommitPreparedTxnsResponse = await client.transactions.CommitPreparedTxns(request)
    return answer


async def roll_back(client: Client, *named_txns: txns.PreparedTxn) -> None:
    await client.transactions.RollbackPreparedTxns(txns.RollbackPreparedTxnsRequest(txns=named_txns))


async def states(client: Client) -> dict[int, int]:
    """Return the state of each open transaction."""
    listed = await client.transactions.ListTxns(txns.ListTxnsRequest())
    return {txn.txn_id: txn.state for txn in listed.txns}


async def payloads(client: Client) -> list[bytes]:
    return [payload for *_, payload in await client.rows("orders/0", "orders/1", "payments/0")]


def of_first(answer: txns.CommitPreparedTxnsResponse) -> txns.CommitPreparedTxnsResponse:
    """Return the answer without saying whether it repeats another one."""
    first = txns.CommitPreparedTxnsResponse()
    first.CopyFrom(answer)
    first.duplicate = False
    return first


async def state_of_refused(client: Client, version: int, *named_txns: txns.PreparedTxn, **fields: Any) -> str:
    refusal = await refusal_of(commit(client, version, *named_txns, **fields))
    assert (refusal.reason, refusal.effect) == (R.REASON_INVALID_TRANSACTION_STATE, R.EFFECT_NONE)
    return refusal.values["state"]


async def test_what_several_clients_prepared_is_committed_as_one_run_of_ticks(client: Client) -> None:
    second = await prepared(client, "b", ("orders/0", b"b1"), ("payments/0", b"b2"))
    first = await prepared(client, "a", ("orders/0", b"a1"), ("orders/1", b"a2"), ("orders/0", b"a3"))
    await client.append("orders/0", b"between")
    assert await payloads(client) == [b"between"]
    assert await states(client) == {second.txn_id: txns.TXN_STATE_PREPARED, first.txn_id: txns.TXN_STATE_PREPARED}

    answer = await commit(client, 7, first, second)

    tick = answer.first_tick
    assert answer == txns.CommitPreparedTxnsResponse(
        first_tick=tick, last_tick=tick + 4, messages=5, durability=message_pb2.DURABILITY_SYNC
    )
    assert (await client.rows("orders/0", "orders/1", "payments/0"))[1:] == [
        ("orders/0", tick, b"a1"), ("orders/0", tick + 1, b"a3"), ("orders/1", tick + 2, b"a2"),
        ("orders/0", tick + 3, b"b1"), ("payments/0", tick + 4, b"b2"),
    ]  # fmt: skip
    pages = await client.scan("orders/0", "orders/1", "payments/0")
    assert [row.txn_id for page in pages for row in page.rows] == [0, *[first.txn_id] * 3, *[second.txn_id] * 2]
    assert await states(client) == {}
    described = await client.transactions.DescribeTxn(txns.DescribeTxnRequest(txn_id=second.txn_id))
    assert described.txn.state == txns.TXN_STATE_COMMITTED


async def test_no_scan_that_ends_within_a_common_commit_delivers_a_part_of_it(client: Client) -> None:
    named_txns = [await prepared(client, name, ("orders/0", name.encode())) for name in ("a", "b", "c")]
    answer = await commit(client, 0, *named_txns)

    for end_tick in range(answer.first_tick, answer.last_tick + 1):
        assert await client.rows("orders/0", end=wal.ScanEnd(before_tick=end_tick)) == []
        plan = await client.wal.PlanScan(wal.PlanScanRequest(vchannels=["orders/0"], end_tick=end_tick))
        assert [split.messages for split in plan.splits] == []
    assert len(await client.rows("orders/0", end=wal.ScanEnd(before_tick=answer.last_tick + 1))) == 3


async def test_a_prepared_transaction_takes_no_batches_and_no_commit_of_its_own(client: Client) -> None:
    txn = await prepared(client, "a", ("orders/0", b"1"))
    alone = txns.CommitTxnRequest(txn_id=txn.txn_id)
    another = wal.AppendRequest(
        vchannel="orders/0", messages=[message_pb2.Message(payload=b"2")], options=wal.AppendOptions(txn_id=txn.txn_id)
    )

    for call in (
        client.transactions.CommitTxn(alone, metadata=named("a")),
        client.wal.Append(another, metadata=named("a")),
    ):
        refusal = await refusal_of(call)
        assert (refusal.reason, refusal.values["state"]) == (R.REASON_INVALID_TRANSACTION_STATE, "prepared")

    assert (await commit(client, 0, txn)).messages == 1
    assert await payloads(client) == [b"1"]


async def test_a_transaction_is_prepared_whole_once_and_with_messages(client: Client) -> None:
    txn_id = await begun(client, "a", ("orders/0", b"1"), ("orders/0", b"2"), keepalive_us=5_000_000)
    empty = await client.begin("orders/0", client_id="a")

    missing = await refusal_of(prepare(client, txn_id, "a", batches=3))
    none = await refusal_of(prepare(client, empty, "a"))
    assert (missing.reason, missing.values["batches"]) == (R.REASON_TRANSACTION_INCOMPLETE, "2")
    assert (none.reason, none.values["field"]) == (R.REASON_INVALID_ARGUMENT, "txn_id")
    assert (await states(client))[txn_id] == txns.TXN_STATE_OPEN

    assert await prepare(client, txn_id, "a", batches=2, app_version=4) == 5_000_000
    assert await prepare(client, txn_id, "a", batches=2, app_version=4, keepalive_us=FOREVER_US) == FOREVER_US
    for other in ({"app_id": "other"}, {"app_version": 5}, {}):
        refusal = await refusal_of(prepare(client, txn_id, "a", **{"batches": 2, **other}))
        assert (refusal.reason, refusal.values["state"]) == (R.REASON_INVALID_TRANSACTION_STATE, "prepared")
    foreign = await refusal_of(prepare(client, txn_id, "b", app_version=4))
    assert foreign.reason == R.REASON_TRANSACTION_FOREIGN
    assert (await commit(client, 4, txns.PreparedTxn(txn_id=txn_id, client_id="a"))).messages == 2


async def test_the_same_version_again_gives_the_first_answer_and_ends_the_new_ones(client: Client) -> None:
    first = await commit(client, 3, await prepared(client, "a", ("orders/0", b"once")))
    again = await prepared(client, "b", ("orders/0", b"again"))

    repeated = await commit(client, 3, again)

    assert repeated.duplicate
    assert of_first(repeated) == first
    # And again under the same names, as a client does that has not received the answer.
    assert await commit(client, 3, again) == repeated
    assert await payloads(client) == [b"once"]
    assert await state_of_refused(client, 4, again) == "rolled back"


async def test_repetitions_at_once_make_one_commit(client: Client) -> None:
    several = [await prepared(client, f"c{i}", ("orders/0", b"%d" % i)) for i in range(8)]

    answers = await asyncio.gather(*(commit(client, 1, txn) for txn in several))

    assert sorted(answer.duplicate for answer in answers) == [False] + [True] * 7
    assert len({of_first(answer).SerializeToString() for answer in answers}) == 1
    assert len(await payloads(client)) == 1
    assert await states(client) == {}


async def test_a_lower_version_is_refused(client: Client) -> None:
    await commit(client, 5)
    late = await prepared(client, "a", ("orders/0", b"late"), app_version=4)

    refusal = await refusal_of(commit(client, 4, late))

    assert (refusal.reason, refusal.effect) == (R.REASON_APP_VERSION_PASSED, R.EFFECT_NONE)
    assert refusal.values == {"app_id": APP, "app_version": "4", "last_version": "5"}
    assert await states(client) == {late.txn_id: txns.TXN_STATE_PREPARED}


async def test_a_commit_ends_what_earlier_tries_have_left_behind_and_nothing_else(client: Client) -> None:
    chosen = await prepared(client, "a", ("orders/0", b"chosen"))
    left = [
        await prepared(client, "b", ("orders/0", b"unknown version")),
        await prepared(client, "b", ("orders/0", b"this version"), app_version=2),
        await prepared(client, "b", ("orders/0", b"an earlier one"), app_version=1),
    ]
    kept = [
        await prepared(client, "b", ("orders/0", b"a later one"), app_version=3),
        await prepared(client, "b", ("orders/0", b"another application"), app_id="other"),
    ]
    open_ = await begun(client, "b", ("orders/0", b"not prepared"))

    await commit(client, 2, chosen)

    assert list(await states(client)) == [*(txn.txn_id for txn in kept), open_]
    assert [await state_of_refused(client, 9, txn) for txn in left] == ["rolled back"] * 3
    assert await payloads(client) == [b"chosen"]


async def test_a_repetition_that_comes_late_leaves_alone_what_is_meant_for_the_next_version(client: Client) -> None:
    txn = await prepared(client, "a", ("orders/0", b"1"))
    first = await commit(client, 1, txn)
    following = await prepared(client, "a", ("orders/0", b"2"))

    assert of_first(await commit(client, 1, txn)) == first

    assert (await commit(client, 2, following)).messages == 1
    assert await payloads(client) == [b"1", b"2"]


async def test_only_what_was_prepared_for_it_is_in_a_commit(client: Client) -> None:
    good = await prepared(client, "a", ("orders/0", b"good"))
    elsewhere = await prepared(client, "a", ("orders/0", b"x"), app_id="other")
    later = await prepared(client, "a", ("orders/0", b"x"), app_version=8)
    open_ = txns.PreparedTxn(txn_id=await begun(client, "a", ("orders/0", b"x")), client_id="a")
    foreign = txns.PreparedTxn(txn_id=elsewhere.txn_id, client_id="b")
    before = await states(client)

    for wrong in (elsewhere, later, open_):
        assert await state_of_refused(client, 1, good, wrong) == "not prepared for this commit"
    assert (await refusal_of(commit(client, 1, good, foreign))).reason == R.REASON_TRANSACTION_FOREIGN
    unknown = txns.PreparedTxn(txn_id=good.txn_id + 10_000, client_id="a")
    assert (await refusal_of(commit(client, 1, good, unknown))).reason == R.REASON_TRANSACTION_NOT_EXIST

    assert (await states(client), await payloads(client)) == (before, [])
    assert not (await commit(client, 1, good)).duplicate


async def test_two_applications_do_not_know_of_each_other(client: Client) -> None:
    one = await prepared(client, "a", ("orders/0", b"one"))
    two = await prepared(client, "a", ("orders/0", b"two"), app_id="other")

    answers = await asyncio.gather(commit(client, 5, one), commit(client, 2, two, app_id="other"))

    assert [answer.duplicate for answer in answers] == [False, False]
    assert sorted(await payloads(client)) == [b"one", b"two"]
    assert (await commit(client, 2, two, app_id="other")).first_tick == answers[1].first_tick
    assert (await refusal_of(commit(client, 2))).reason == R.REASON_APP_VERSION_PASSED


async def test_a_version_without_transactions_is_noted(client: Client) -> None:
    answer = await commit(client, 3)
    late = await prepared(client, "a", ("orders/0", b"too late"))

    assert answer == txns.CommitPreparedTxnsResponse(durability=message_pb2.DURABILITY_SYNC)
    assert (await commit(client, 3)).duplicate
    assert await mismatch_of(client, 3, late) == "messages"
    assert await payloads(client) == []


async def mismatch_of(client: Client, version: int, *named_txns: txns.PreparedTxn, **fields: Any) -> str:
    refusal = await refusal_of(commit(client, version, *named_txns, **fields))
    assert (refusal.reason, refusal.effect) == (R.REASON_APP_COMMIT_MISMATCH, R.EFFECT_NONE)
    assert (refusal.values["app_id"], refusal.values["app_version"]) == (APP, str(version))
    return refusal.values["mismatch"]


async def test_a_repetition_with_other_messages_or_vchannels_is_refused_and_stays_prepared(client: Client) -> None:
    first = await commit(client, 3, await prepared(client, "a", ("orders/0", b"1"), ("orders/1", b"2")))

    for wrong, batches in (
        ("messages", []),
        ("messages", [("orders/0", b"1")]),
        ("messages", [("orders/0", b"1"), ("orders/1", b"2"), ("orders/1", b"3")]),
        ("vchannels", [("payments/0", b"1"), ("payments/0", b"2")]),
        ("vchannels", [("orders/0", b"1"), ("orders/0", b"2")]),
    ):
        txn = [await prepared(client, "a", *batches)] if batches else []
        assert await mismatch_of(client, 3, *txn) == wrong
        assert set(await states(client)) == {each.txn_id for each in txn}
        await roll_back(client, *txn)

    assert await payloads(client) == [b"1", b"2"]
    again = [await prepared(client, "a", (name, b"again")) for name in ("orders/1", "orders/0")]
    assert of_first(await commit(client, 3, *again)) == first


async def test_a_commit_may_allow_other_vchannels_of_the_same_channels(client: Client) -> None:
    first = await commit(client, 3, await prepared(client, "a", ("orders/0", b"1")), any_vchannel=True)

    moved = await prepared(client, "a", ("orders/1", b"1"))
    assert of_first(await commit(client, 3, moved)) == first
    elsewhere = await prepared(client, "a", ("payments/0", b"1"))
    assert await mismatch_of(client, 3, elsewhere, any_vchannel=True) == "channels"


async def test_a_channel_of_the_same_name_that_was_made_again_is_another_one(client: Client) -> None:
    await commit(client, 3, await prepared(client, "a", ("payments/0", b"1")), any_vchannel=True)
    await client.channels.DestroyChannels(channel_service_pb2.DestroyChannelsRequest(names=["payments"]))
    await client.create("payments")

    again = await prepared(client, "a", ("payments/0", b"1"))

    assert await mismatch_of(client, 3, again) == "channels"


async def test_versions_of_another_query_are_refused_whether_they_are_lower_equal_or_greater(client: Client) -> None:
    await commit(client, 3, await prepared(client, "a", ("orders/0", b"first life")), query_id="one")

    for query_id in ("two", ""):
        for version in (0, 3, 4):
            txn = await prepared(client, "a", ("orders/0", b"second life"))
            assert await mismatch_of(client, version, txn, query_id=query_id) == "query"
            await roll_back(client, txn)

    following = await prepared(client, "a", ("orders/0", b"goes on"))
    assert not (await commit(client, 4, following, query_id="one")).duplicate
    assert await payloads(client) == [b"first life", b"goes on"]


async def test_an_application_that_named_no_query_may_name_one_from_then_on(client: Client) -> None:
    await commit(client, 3)

    await commit(client, 4, query_id="one")

    assert await mismatch_of(client, 5) == "query"
    refusal = await refusal_of(commit(client, 5, app_id="other", query_id="x" * (MAX_QUERY_ID_BYTES + 1)))
    assert (refusal.reason, refusal.values["field"]) == (R.REASON_INVALID_ARGUMENT, "query_id")


async def test_silence_ends_a_prepared_transaction_and_a_sign_of_life_keeps_it(client: Client) -> None:
    silent = await prepared(client, "a", ("orders/0", b"silent"), keepalive_us=1_000)
    kept = await prepared(client, "a", ("orders/0", b"kept"), keepalive_us=1_000_000)
    begin_s = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() - begin_s < 1.5:
        request = txns.KeepaliveTxnRequest(txn_id=kept.txn_id)
        answer = await client.transactions.KeepaliveTxn(request, metadata=named("a"))
        assert answer.keepalive_us == 1_000_000
        await asyncio.sleep(0.02)

    refusal = await refusal_of(commit(client, 0, silent, kept))

    assert (refusal.reason, refusal.values["cause"]) == (R.REASON_TRANSACTION_EXPIRED, "keepalive")
    assert (await commit(client, 0, kept)).messages == 1
    assert await payloads(client) == [b"kept"]


async def test_prepared_transactions_are_rolled_back_by_whoever_knows_them(client: Client) -> None:
    one, two = [await prepared(client, name, ("orders/0", b"never")) for name in ("a", "b")]
    kept = await prepared(client, "a", ("orders/0", b"kept"))

    foreign = await refusal_of(roll_back(client, txns.PreparedTxn(txn_id=one.txn_id, client_id="b"), two))
    assert foreign.reason == R.REASON_TRANSACTION_FOREIGN
    assert len(await states(client)) == 3
    await client.transactions.RollbackTxn(txns.RollbackTxnRequest(txn_id=one.txn_id), metadata=named("a"))
    for _ in range(2):
        await roll_back(client, one, two)

    assert await states(client) == {kept.txn_id: txns.TXN_STATE_PREPARED}
    await commit(client, 0, kept)
    committed = await refusal_of(roll_back(client, two, kept))
    open_ = txns.PreparedTxn(txn_id=await begun(client, "a", ("orders/0", b"open")), client_id="a")
    not_prepared = await refusal_of(roll_back(client, open_))
    assert (committed.values["state"], not_prepared.values["state"]) == ("committed", "not prepared")
    assert await payloads(client) == [b"kept"]


async def test_an_operator_ends_a_prepared_transaction(client: Client) -> None:
    txn = await prepared(client, "a", ("orders/0", b"never"))

    await client.transactions.AbortTxn(txns.AbortTxnRequest(txn_id=txn.txn_id, reason="stuck"))

    assert (await refusal_of(commit(client, 0, txn))).values["cause"] == "aborted"


async def test_a_destroyed_channel_takes_its_transactions_along_and_leaves_the_others(client: Client) -> None:
    gone = await prepared(client, "a", ("orders/0", b"gone"), ("payments/0", b"gone"))
    kept = await prepared(client, "a", ("orders/0", b"kept"))

    await client.channels.DestroyChannels(channel_service_pb2.DestroyChannelsRequest(names=["payments"]))

    refusal = await refusal_of(commit(client, 0, kept, gone))
    assert (refusal.reason, refusal.values["cause"]) == (R.REASON_TRANSACTION_EXPIRED, "channel_destroyed")
    assert await states(client) == {kept.txn_id: txns.TXN_STATE_PREPARED}
    assert (await commit(client, 0, kept)).messages == 1


async def test_a_channel_that_is_destroyed_during_a_commit_ends_it_and_leaves_the_others(client: Client) -> None:
    gone, kept = [await prepared(client, "a", (name, b"x")) for name in ("payments/0", "orders/0")]
    # The clock of the server reaches the barrier within the wait, but not at once.
    barrier_tick = await now(client) + (400 << 18)
    committing = asyncio.ensure_future(commit(client, 1, kept, gone, barrier_tick=barrier_tick))
    while txns.TXN_STATE_COMMITTING not in (await states(client)).values():
        await asyncio.sleep(0.001)

    await client.channels.DestroyChannels(channel_service_pb2.DestroyChannelsRequest(names=["payments"]))

    assert (await refusal_of(committing)).reason == R.REASON_CHANNEL_NOT_EXIST
    assert await states(client) == {kept.txn_id: txns.TXN_STATE_PREPARED}
    assert not (await commit(client, 1, kept)).duplicate


async def now(client: Client) -> int:
    answer = await client.wal.AllocateTicks(wal.AllocateTicksRequest(count=1))
    tick: int = answer.first_tick
    return tick


async def test_a_barrier_is_waited_for_and_one_too_far_away_leaves_all_prepared(client: Client) -> None:
    txn = await prepared(client, "a", ("orders/0", b"1"))
    latest = await now(client)

    request = txns.CommitPreparedTxnsRequest(txns=[txn], app_id=APP, app_version=1, barrier_tick=latest + (1 << 40))
    refusal = await refusal_of(client.transactions.CommitPreparedTxns(request, timeout=1.0))
    assert (refusal.reason, refusal.effect) == (R.REASON_BARRIER_NOT_REACHED, R.EFFECT_NONE)
    assert await states(client) == {txn.txn_id: txns.TXN_STATE_PREPARED}

    barrier_tick = latest + (1 << 18)
    assert (await commit(client, 1, txn, barrier_tick=barrier_tick)).first_tick > barrier_tick


async def test_a_version_waits_for_the_one_before_which_waits_for_its_barrier(client: Client) -> None:
    one, two = [await prepared(client, "a", ("orders/0", b"%d" % i), app_version=i) for i in (1, 2)]
    barrier_tick = await now(client) + (200 << 18)
    first = asyncio.ensure_future(commit(client, 1, one, barrier_tick=barrier_tick))
    while txns.TXN_STATE_COMMITTING not in (await states(client)).values():
        await asyncio.sleep(0.001)
    busy = await refusal_of(roll_back(client, one))
    assert busy.values["state"] == "being committed"

    second = await commit(client, 2, two)

    assert second.first_tick > (await first).last_tick > barrier_tick


async def test_a_restart_ends_what_is_prepared_and_remembers_what_was_committed(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connected(server) as client:
        await client.create("orders")
        once = await prepared(client, "a", ("orders/0", b"once"))
        first = await commit(client, 3, once, query_id="one")
        noted = await commit(client, 9, app_id="empty")
        lost = await prepared(client, "a", ("orders/0", b"lost"))
    for _ in range(2):
        async with running_server(tmp_path) as server, connected(server) as client:
            gone = await refusal_of(commit(client, 4, lost, query_id="one"))
            assert (gone.reason, gone.values["cause"]) == (R.REASON_TRANSACTION_EXPIRED, "forgotten")
            await roll_back(client, lost)
            repeated = await commit(client, 3, await prepared(client, "a", ("orders/0", b"again")), query_id="one")
            assert (repeated.duplicate, of_first(repeated)) == (True, first)
            # As the client of the first commit does, whose answer was lost with the server.
            assert await commit(client, 3, once, query_id="one") == repeated
            unknown = await refusal_of(commit(client, 3, lost, query_id="one"))
            assert (unknown.reason, unknown.values["cause"]) == (R.REASON_TRANSACTION_EXPIRED, "forgotten")
            assert await mismatch_of(client, 3, query_id="one") == "messages"
            assert await mismatch_of(client, 3, query_id="two") == "query"
            empty = await commit(client, 9, app_id="empty")
            assert (empty.duplicate, of_first(empty)) == (True, noted)
            passed = await refusal_of(commit(client, 2, query_id="one"))
            assert passed.values["last_version"] == "3"
            assert [payload for *_, payload in await client.rows("orders/0")] == [b"once"]


async def test_a_commit_that_storage_fails_has_an_unknown_outcome_for_everybody_who_repeats_it() -> None:
    store = FaultyStore()
    async with running_server(store=store) as server, connected(server) as client:
        await client.create("orders")
        txn = await prepared(client, "a", ("orders/0", b"1"))
        store.fails_at_sync = len(store.synced) + 1

        first = await refusal_of(commit(client, 1, txn))
        repeated = await refusal_of(commit(client, 1, txn))
        other = await refusal_of(commit(client, 1, app_id="other"))

    assert (first.reason, first.effect) == (R.REASON_STORAGE_FAILED, R.EFFECT_UNKNOWN)
    assert (repeated.reason, repeated.effect) == (R.REASON_STORAGE_FAILED, R.EFFECT_UNKNOWN)
    # Of another application it is known that nothing was committed.
    assert (other.reason, other.effect) == (R.REASON_STORAGE_FAILED, R.EFFECT_NONE)


async def test_more_applications_than_are_remembered_push_out_who_has_not_committed_for_longest(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applications, "MAX_APPS", 3)
    for version, app_id in enumerate(["a", "b", "c", "a", "d"]):
        await commit(client, version, app_id=app_id)

    for app_id, version in (("a", 3), ("c", 2), ("d", 4)):
        assert (await commit(client, version, app_id=app_id)).duplicate
    for refused in (commit(client, 1, app_id="b"), commit(client, 1, app_id="never seen")):
        refusal = await refusal_of(refused)
        assert (refusal.reason, refusal.effect) == (R.REASON_APPLICATION_FORGOTTEN, R.EFFECT_UNKNOWN)
    assert not (await commit(client, 1, app_id="b", is_first=True)).duplicate
    assert (await commit(client, 1, app_id="b")).duplicate


async def test_no_number_of_applications_that_make_no_other_commit_pushes_out_one_that_may(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applications, "MAX_APPS", 1)
    monkeypatch.setattr(applications, "MAX_FINISHED_APPS", 2)
    await commit(client, 7)
    for number in range(3):
        await commit(client, 0, app_id=f"once-{number}", is_last=True)

    assert (await commit(client, 7)).duplicate
    assert (await commit(client, 0, app_id="once-2", is_last=True)).duplicate
    assert (await refusal_of(commit(client, 0, app_id="once-0", is_last=True))).reason == R.REASON_APPLICATION_FORGOTTEN
    assert not (await commit(client, 0, app_id="once-0", is_last=True, is_first=True)).duplicate


async def test_too_many_transactions_or_batches_are_refused_and_stay_prepared(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared_module, "MAX_PREPARED_BATCHES", 3)
    several = [await prepared(client, "a", ("orders/0", b"1"), ("orders/1", b"2")) for _ in range(2)]

    refusal = await refusal_of(commit(client, 0, *several))
    many = [txns.PreparedTxn(txn_id=i, client_id="a") for i in range(1, MAX_PREPARED_TXNS + 2)]

    assert (refusal.reason, refusal.effect) == (R.REASON_BATCH_TOO_LARGE, R.EFFECT_NONE)
    assert refusal.values == {"batches": "4", "max_batches": "3"}
    for call in (commit(client, 0, *many), roll_back(client, *many)):
        assert (await refusal_of(call)).values["field"] == "txns"
    assert len(await states(client)) == 2
    assert (await commit(client, 0, several[0])).messages == 2


def is_refused_field(refusal: Refusal, field: str) -> bool:
    return (refusal.reason, refusal.effect, refusal.values["field"]) == (
        R.REASON_INVALID_ARGUMENT, R.EFFECT_NONE, field
    )  # fmt: skip


async def test_bad_input_is_refused(client: Client) -> None:
    txn_id = await begun(client, "a", ("orders/0", b"1"))
    for fields, field in (
        ({"app_id": ""}, "app_id"),
        ({"app_id": "x" * 129}, "app_id"),
        ({"app_id": "ü" * 65}, "app_id"),
        ({"app_id": "a\nb"}, "app_id"),
        ({"app_version": 1 << 63}, "app_version"),
        ({"keepalive_us": 999}, "keepalive_us"),
        ({"keepalive_us": FOREVER_US + 1}, "keepalive_us"),
    ):
        assert is_refused_field(await refusal_of(prepare(client, txn_id, "a", **fields)), field), fields
    assert is_refused_field(await refusal_of(prepare(client, 0, "a")), "txn_id")
    assert await states(client) == {txn_id: txns.TXN_STATE_OPEN}
    await prepare(client, txn_id, "a")
    txn = txns.PreparedTxn(txn_id=txn_id, client_id="a")

    for call, field in (
        (commit(client, 0, txn, app_id=""), "app_id"),
        (commit(client, 0, txn, app_id="x" * 129), "app_id"),
        (commit(client, 1 << 63, txn), "app_version"),
        (commit(client, 0, txn, txn), "txns"),
        (commit(client, 0, txns.PreparedTxn(client_id="a")), "txn_id"),
        (roll_back(client, txn, txn), "txns"),
        (roll_back(client, txns.PreparedTxn()), "txn_id"),
    ):
        assert is_refused_field(await refusal_of(call), field), field
    assert (await commit(client, (1 << 63) - 1, txn)).messages == 1
