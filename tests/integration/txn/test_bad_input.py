"""Every bad call on a staged transaction gets its status, its reason and a text that says what to do.

Method: one server for each test, and in it a transaction that must be as good after the refusal as before.
"""

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message as Proto

from integration.append.test_bad_input import append, check_unharmed, message
from tidelog.v1 import error_pb2
from tidelog.v1 import transaction_service_pb2 as txns
from tidelog.v1 import wal_service_pb2 as wal
from tidelog_testing.parts.fixtures import server_with
from tidelog_testing.parts.grpc_calls import Client, connected, named, refusal_of, running_server

Code = grpc.StatusCode
R = error_pb2
MAX = (1 << 63) - 1
# Stands for the transaction that a test begins.
OPEN = (1 << 63) - 2
INVALID, FAILED = Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION
# Reasons with their codes.
WRONG, UNBEGUN = (R.REASON_INVALID_ARGUMENT, INVALID), (R.REASON_TRANSACTION_NOT_EXIST, Code.NOT_FOUND)
Begin, Commit, Condition = txns.BeginTxnRequest, txns.CommitTxnRequest, txns.CommitCondition
# On a transaction that was begun for four/0 and four/1 and has one batch on four/0.
CALLS: list[tuple[str, str, Proto, int, Code, str]] = [
    ("a keepalive of half a millisecond", "BeginTxn", Begin(keepalive_us=500),
     *WRONG, "is 500 us, expected 1000 to 3600000000"),
    ("a keepalive of hours", "BeginTxn", Begin(keepalive_us=3_600_000_001), *WRONG, "expected 1000 to 3600000000"),
    ("a vchannel twice", "BeginTxn", Begin(vchannels=["one", "one/0"]), *WRONG, "names one/0 twice"),
    ("an unknown vchannel", "BeginTxn", Begin(vchannels=["nowhere"]),
     R.REASON_CHANNEL_NOT_EXIST, Code.NOT_FOUND, "create"),
    ("a wrong name", "BeginTxn", Begin(vchannels=["UPPER"]), R.REASON_INVALID_NAME, INVALID, "lowercase letter"),
    ("commit of what was never begun", "CommitTxn", Commit(txn_id=MAX), *UNBEGUN, "was not begun on this server"),
    ("commit of none", "CommitTxn", Commit(), *WRONG, "the txn_id is 0"),
    ("rollback of none", "RollbackTxn", txns.RollbackTxnRequest(), *WRONG, "the txn_id is 0"),
    ("rollback of what was never begun", "RollbackTxn", txns.RollbackTxnRequest(txn_id=MAX), *UNBEGUN, "not begun"),
    ("a sign of life of what was never begun", "KeepaliveTxn", txns.KeepaliveTxnRequest(txn_id=MAX),
     *UNBEGUN, "not begun"),
    ("description of what was never begun", "DescribeTxn", txns.DescribeTxnRequest(txn_id=MAX), *UNBEGUN, "not begun"),
    ("abort of what was never begun", "AbortTxn", txns.AbortTxnRequest(txn_id=MAX, reason="r"), *UNBEGUN, "not begun"),
    ("abort without a reason", "AbortTxn", txns.AbortTxnRequest(txn_id=OPEN), *WRONG, "say why"),
    ("abort with a long reason", "AbortTxn", txns.AbortTxnRequest(txn_id=OPEN, reason="r" * 257),
     *WRONG, "has 257 bytes, expected 1 to 256"),
    ("commit with a batch that never came", "CommitTxn", Commit(txn_id=OPEN, batches=2),
     R.REASON_TRANSACTION_INCOMPLETE, FAILED, "has 1 batches, expected 2"),
    ("commit without a batch that came", "CommitTxn", Commit(txn_id=OPEN, batches=0),
     R.REASON_TRANSACTION_INCOMPLETE, FAILED, "has 1 batches, expected 0"),
    ("two conditions for one vchannel", "CommitTxn", Commit(txn_id=OPEN, conditions=[Condition(vchannel="four/0")] * 2),
     *WRONG, "two conditions for four/0"),
    ("a condition elsewhere", "CommitTxn", Commit(txn_id=OPEN, conditions=[Condition(vchannel="one")]),
     R.REASON_VCHANNEL_NOT_IN_TRANSACTION, INVALID, "begun without one/0"),
    ("a last tick that is not", "CommitTxn",
     Commit(txn_id=OPEN, conditions=[Condition(vchannel="four/0", expected_last_tick=9)]),
     R.REASON_LAST_TICK_MISMATCH, Code.ABORTED, "expected 9"),
    ("an unknown durability", "CommitTxn", Commit(txn_id=OPEN, durability=9),  # type: ignore[arg-type]  # On purpose.
     *WRONG, "durability 9 is unknown"),
    ("a batch elsewhere", "Append", append(txn_id=OPEN), R.REASON_VCHANNEL_NOT_IN_TRANSACTION, INVALID,
     "begun without one/0"),
    ("a batch for what was never begun", "Append", append(txn_id=MAX), *UNBEGUN, "not begun"),
    ("a sequence without a transaction", "Append", append(txn_sequence=1), *WRONG, "or set txn_id"),
    ("a gap", "Append", append("four/0", txn_id=OPEN, txn_sequence=3), R.REASON_TRANSACTION_SEQUENCE_GAP, FAILED,
     "batch 3 of transaction"),
    ("other content", "Append", append("four/0", message(b"y"), txn_id=OPEN, txn_sequence=1),
     R.REASON_TRANSACTION_SEQUENCE_REUSED, FAILED, "with different content"),
    ("a barrier", "Append", append("four/0", txn_id=OPEN, barrier_tick=1), *WRONG, "set it in CommitTxn"),
    ("a durability", "Append", append("four/0", txn_id=OPEN, durability=1), *WRONG, "durability is set with txn_id"),
    ("a condition", "Append", append("four/0", txn_id=OPEN, expected_last_tick=0), *WRONG,
     "expected_last_tick is set with txn_id"),
    ("a producer", "Append", append("four/0", txn_id=OPEN, producer=wal.ProducerSequence(producer_id="p", sequence=1)),
     *WRONG, "producer is set with txn_id"),
]  # fmt: skip
server, client = server_with({"one": 1, "four": 4})


@pytest.mark.parametrize(
    ("method", "request_", "reason", "code", "text"), [row[1:] for row in CALLS], ids=[row[0] for row in CALLS]
)
async def test_a_bad_call_is_refused_and_changes_nothing(
    client: Client, method: str, request_: Any, reason: int, code: Code, text: str
) -> None:
    txn_id = await client.begin("four/0", "four/1")
    await client.append("four/0", b"x", txn_id=txn_id)
    request = type(request_).FromString(request_.SerializeToString())
    holder = request.options if method == "Append" else request
    if getattr(holder, "txn_id", 0) == OPEN:
        holder.txn_id = txn_id
    stub = client.wal.Append if method == "Append" else getattr(client.transactions, method)

    refusal = await refusal_of(stub(request))

    assert (refusal.reason, refusal.code, refusal.effect) == (reason, code.value[0], error_pb2.EFFECT_NONE)
    assert text in refusal.text
    assert await client.rows("one", "four/0") == []
    await client.commit(txn_id, batches=1)
    assert [payload for *_, payload in await client.rows("four/0")] == [b"x"]
    await check_unharmed(client)


@pytest.mark.parametrize(("length", "is_taken"), [(64, True), (65, False)])
async def test_a_client_id_has_a_bound(client: Client, length: int, *, is_taken: bool) -> None:
    if is_taken:
        await client.begin(client_id="c" * length)
        return
    refusal = await refusal_of(client.begin(client_id="c" * length))
    assert (refusal.reason, refusal.values["field"]) == (R.REASON_INVALID_ARGUMENT, "tidelog-client-id")


async def test_a_transaction_has_bounds_in_batches_and_vchannels(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog_server.txn.table.MAX_STAGED_BATCHES_PER_TXN", 3)
    monkeypatch.setattr("tidelog_server.txn.table.MAX_TXN_VCHANNELS", 2)
    txn_id = await client.begin()
    for vchannel in ("four/0", "four/0", "four/1"):
        await client.append(vchannel, b"x", txn_id=txn_id)
    refusal = await refusal_of(client.append("four/0", b"x", txn_id=txn_id))
    assert (refusal.reason, refusal.values["max_batches"]) == (R.REASON_TRANSACTION_TOO_LARGE, "3")
    other = await client.begin()
    for vchannel in ("four/0", "four/1"):
        await client.append(vchannel, b"x", txn_id=other)
    refusal = await refusal_of(client.append("four/2", b"x", txn_id=other))
    assert (refusal.reason, refusal.values["max_vchannels"]) == (R.REASON_TRANSACTION_TOO_LARGE, "2")
    await client.commit(txn_id, batches=3)
    await client.commit(other, batches=2)


@pytest.mark.parametrize("limit", ["max_open_txns", "max_open_txns_per_client"])
async def test_open_transactions_have_a_bound(limit: str) -> None:
    settings: dict[str, Any] = {f"limits__{limit}": 2}
    async with running_server(**settings) as server, connected(server) as client:
        first, second = await client.begin(client_id="a"), await client.begin(client_id="a")
        refusal = await refusal_of(client.begin(client_id="a"))
        assert (refusal.reason, refusal.code) == (R.REASON_RATE_LIMIT_REJECTED, Code.RESOURCE_EXHAUSTED.value[0])
        assert f"raise limits.{limit}" in refusal.text
        if limit == "max_open_txns_per_client":
            await client.begin(client_id="b")
        await client.transactions.RollbackTxn(txns.RollbackTxnRequest(txn_id=first), metadata=named("a"))
        third = await client.begin(client_id="a")
        assert first < second < third


async def test_all_that_is_staged_has_a_bound_and_room_comes_back() -> None:
    async with (
        running_server(
            limits__max_message_bytes=1_000,
            limits__max_batch_bytes=1_500,
            limits__max_txn_bytes=1_500,
            limits__max_staged_bytes=2_400,
        ) as server,
        connected(server) as client,
    ):
        await client.create("one")
        first, second = await client.begin(), await client.begin()
        for txn_id in (first, second):
            await client.append("one", bytes(1_000), txn_id=txn_id)
        refusal = await refusal_of(client.append("one", bytes(400), txn_id=second))
        assert (refusal.reason, refusal.values["max_bytes"]) == (R.REASON_RATE_LIMIT_REJECTED, "2400")
        await client.commit(first)
        await client.append("one", bytes(400), txn_id=second)
        await client.roll_back(second)
        third, fourth = await client.begin(), await client.begin()
        for txn_id in (third, fourth):
            async with asyncio.timeout(60):
                # What was rolled back counts until it is removed.
                while not await is_taken(client, txn_id):
                    await asyncio.sleep(0.01)


async def is_taken(client: Client, txn_id: int) -> bool:
    try:
        await client.append("one", bytes(1_000), txn_id=txn_id)
    except grpc.aio.AioRpcError:
        return False
    return True
