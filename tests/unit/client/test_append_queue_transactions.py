"""Batching of transactions into requests, and their outcomes. Method: drive the pure queue, with responses by hand."""

import asyncio

import pytest

from tidelog import (
    InvalidRequestError,
    LastTickMismatchError,
    Message,
    SequenceGapError,
    TidelogError,
    TransactionResult,
    UnavailableError,
)
from tidelog.append.numbering import Numbering
from tidelog.append.queue import AppendBatch, TransactionPart, TransactionSubmission
from tidelog.append.queues import AppendQueues
from tidelog.append.sizes import Appendable
from tidelog.v1 import wal_service_pb2
from tidelog.wire.append_terms import DEFAULT_TERMS
from tidelog.wire.column_message import columns_from_wire
from tidelog.wire.columns import MAX_MESSAGES_PER_BATCH, decode_payloads
from tidelog_testing.parts.append_queues import a_queue, answer, next_numbered, request_of


def submit_transaction(queue: AppendQueues, numbering: Numbering, **parts: TransactionPart) -> TransactionSubmission:
    future: asyncio.Future[TransactionResult] = asyncio.get_running_loop().create_future()
    by_vchannel = {f"{name}/0": part for name, part in parts.items()}
    submission = TransactionSubmission((), False, 10, future, parts=by_vchannel)
    queue.submit(next(iter(by_vchannel)), DEFAULT_TERMS, submission, numbering)
    return submission


def part(*messages: Appendable, expected_last_tick: int | None = None) -> TransactionPart:
    is_plain = all(isinstance(message, bytes) for message in messages)
    return TransactionPart(list(messages), is_plain, expected_last_tick=expected_last_tick)


def parts_of(batch: AppendBatch) -> dict[str, tuple[list[bytes], list[int]]]:
    """Return payloads and ends of transactions of each part."""
    found = {}
    for wire in request_of(batch).transaction.parts:
        [columns] = wire.batches
        ends = memoryview(columns.txn_ends).cast("I").tolist()
        found[wire.vchannel] = (decode_payloads(columns_from_wire(columns.SerializeToString())), ends)
    return found


def answer_transaction(queue: AppendQueues, batch: AppendBatch, *spans: tuple[int, int]) -> None:
    results = [wal_service_pb2.AppendResult(first_tick=first, last_tick=last) for first, last in spans]
    result = wal_service_pb2.TransactionResult(
        txn_id=spans[0][0], first_tick=spans[0][0], last_tick=spans[-1][1], parts=results
    )
    queue.settle(wal_service_pb2.AppendStreamResponse(request_id=batch.request_id, transaction=result), None)


async def test_transactions_that_wait_together_share_a_request_and_each_gets_its_own_place() -> None:
    queue, numbering = a_queue(), Numbering(is_independent=True)
    first = submit_transaction(queue, numbering, a=part(b"1"), b=part(b"2", b"3"))
    second = submit_transaction(queue, numbering, a=part(b"4", Message(b"5")), b=part(b"6"))

    batch = next_numbered(queue)
    assert parts_of(batch) == {"a/0": ([b"1", b"4", b"5"], [1, 3]), "b/0": ([b"2", b"3", b"6"], [2, 3])}
    answer_transaction(queue, batch, (100, 102), (103, 105))

    results = [first.future.result(), second.future.result()]
    assert [(result.txn_id, result.first_tick, result.last_tick) for result in results] == [
        (100, 100, 105), (101, 100, 105),
    ]  # fmt: skip
    assert results[1].results["a/0"].first_tick == 101
    assert results[1].results["b/0"].last_tick == 105


@pytest.mark.parametrize(
    "other",
    [
        {"a": part(b"x"), "b": part(b"y")},
        {"b": part(b"x"), "a": part(b"y")},
        {"a": part(b"x", expected_last_tick=5)},
        {"a": part(*[b""] * MAX_MESSAGES_PER_BATCH)},
    ],
    ids=["more vchannels", "others first", "a condition", "too many"],
)
async def test_transactions_that_differ_travel_apart(other: dict[str, TransactionPart]) -> None:
    queue = a_queue()
    numberings = {"a": Numbering(is_independent=True), "b": Numbering(is_independent=True)}
    submit_transaction(queue, numberings["a"], a=part(b"1"))
    submit_transaction(queue, numberings[next(iter(other))], **other)

    batches = [next_numbered(queue), next_numbered(queue)]

    assert [len(batch.submissions) for batch in batches] == [1, 1]


async def test_one_bad_transaction_harms_none_that_shared_its_request() -> None:
    queue, numbering = a_queue(), Numbering(is_independent=True)
    good, bad = (submit_transaction(queue, numbering, a=part(payload)) for payload in (b"good", b"bad"))
    answer(queue, next_numbered(queue), 0, InvalidRequestError("too large"))

    alone = [next_numbered(queue), next_numbered(queue)]
    assert [request_of(batch).options.producer.sequence for batch in alone] == [1, 2]
    answer_transaction(queue, alone[0], (7, 7))
    answer(queue, alone[1], 0, InvalidRequestError("too large"))

    assert good.future.result().txn_id == 7
    assert isinstance(bad.outcome, InvalidRequestError)
    assert queue.is_idle


async def test_a_transaction_that_cannot_be_encoded_fails_alone() -> None:
    queue, numbering = a_queue(), Numbering(is_independent=True)
    good = submit_transaction(queue, numbering, a=part(b"good"))
    bad = submit_transaction(queue, numbering, a=part(Message(b"bad", type=-1)))

    answer_transaction(queue, next_numbered(queue), (7, 7))
    assert queue.next_batch() is None

    assert good.future.result().txn_id == 7
    assert isinstance(bad.outcome, InvalidRequestError)


async def test_transactions_behind_a_refused_one_get_new_numbers() -> None:
    queue, numbering = a_queue(), Numbering(is_independent=True)
    refused = submit_transaction(queue, numbering, a=part(b"1", expected_last_tick=5))
    behind = submit_transaction(queue, numbering, a=part(b"2", expected_last_tick=6))
    sent = [next_numbered(queue), next_numbered(queue)]

    answer(queue, sent[0], 0, LastTickMismatchError("no"))
    answer(queue, sent[1], 0, SequenceGapError("gap", values={"expected_sequence": "1"}))

    again = next_numbered(queue)
    assert isinstance(refused.outcome, LastTickMismatchError)
    first, second = (request_of(batch).options.producer for batch in (sent[1], again))
    # The refused number is reused: nothing else was sent under it.
    assert (first.sequence, second.sequence) == (2, 1)
    assert first.producer_id == second.producer_id
    answer_transaction(queue, again, (9, 9))
    assert behind.future.result().txn_id == 9


async def test_a_lost_transaction_behind_a_refused_one_is_not_sent_under_another_number() -> None:
    queue, numbering = a_queue(), Numbering(is_independent=True)
    submit_transaction(queue, numbering, a=part(b"x", expected_last_tick=5))
    behind = submit_transaction(queue, numbering, a=part(b"y", expected_last_tick=6))
    for _ in range(2):
        next_numbered(queue)
    queue.interrupted(UnavailableError("lost", effect="unknown"))
    again = [next_numbered(queue), next_numbered(queue)]

    answer(queue, again[0], 0, LastTickMismatchError("no"))
    answer(queue, again[1], 0, SequenceGapError("gap", values={"expected_sequence": "1"}))

    assert queue.is_idle
    assert isinstance(behind.outcome, TidelogError)
    assert behind.outcome.effect == "unknown"
