"""Encodes the submissions of a batch, and divides the server's answer among them. Pure."""

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, pairwise
from typing import cast

from tidelog.append.numbering import StagedNumbering
from tidelog.append.queue import AppendBatch, Submission, TransactionPart, TransactionSubmission
from tidelog.append.sizes import Appendable
from tidelog.errors import ServerError, TidelogError
from tidelog.message import Message
from tidelog.types import AppendResult, TransactionResult
from tidelog.v1 import wal_service_pb2
from tidelog.wire import protocol as _wire
from tidelog.wire.batch import Batch
from tidelog.wire.column_parts import with_txn_ends
from tidelog.wire.columns import MAX_MESSAGES_PER_BATCH, Columns, encode_messages, encode_payloads


def encode(submissions: list[Submission]) -> Columns | bytes:
    """Return the encoded submissions: columns, or for transactions the bytes of ``_wire.transaction_field``."""
    transactions = [submission for submission in submissions if isinstance(submission, TransactionSubmission)]
    if transactions:
        # A transaction with companions does not share its request.
        return _wire.transaction_field(_wire_parts(transactions), transactions[0].companions)
    if len(submissions) == 1 and isinstance(submissions[0].messages, Batch):
        return submissions[0].messages.columns
    if all(submission.is_plain for submission in submissions):
        payloads = [cast("Sequence[bytes]", submission.messages) for submission in submissions]
        return encode_payloads(payloads[0] if len(payloads) == 1 else list(chain.from_iterable(payloads)))
    return encode_messages(list(chain.from_iterable(as_messages(s.messages) for s in submissions)))


def results(
    submissions: list[Submission], response: wal_service_pb2.AppendStreamResponse
) -> Iterable[AppendResult | TransactionResult]:
    """Return the result of each submission, from the answer to all of them."""
    if isinstance(submissions[0], TransactionSubmission):
        counts = [
            {vchannel: len(part.messages) for vchannel, part in submission.parts.items()}
            for submission in submissions
            if isinstance(submission, TransactionSubmission)
        ]
        return _wire.transaction_results(counts, response.transaction)
    whole = _wire.append_result(response.result)
    if len(submissions) == 1:
        return (whole,)
    ends = list(accumulate(submission.count for submission in submissions))
    return (whole.part(begin, end) for begin, end in pairwise([0, *ends]))


def wrong_answer(batch: AppendBatch, response: wal_service_pb2.AppendStreamResponse) -> TidelogError | None:
    """Return an error if the answer does not fit ``batch``; None if it does."""
    if isinstance(batch.queue.numbering, StagedNumbering):
        number = response.result.txn_sequence
        if number == batch.sequence:
            return None
        return ServerError(f"the server staged batch {batch.sequence} under number {number}", effect="unknown")
    first = batch.submissions[0]
    result: wal_service_pb2.AppendResult | wal_service_pb2.TransactionResult = response.result
    has_parts = True
    if isinstance(first, TransactionSubmission):
        result = response.transaction
        has_parts = len(response.transaction.parts) == len(first.parts)
    ticks = result.last_tick - result.first_tick + 1
    if ticks == batch.count and has_parts:
        return None
    return ServerError(f"the server assigned {ticks} ticks to {batch.count} messages", effect="unknown")


def as_messages(messages: Sequence[Appendable]) -> list[Message]:
    """Return ``messages`` with plain payloads wrapped in Message."""
    return [message if isinstance(message, Message) else Message(message) for message in messages]


def _wire_parts(transactions: list[TransactionSubmission]) -> list[_wire.WirePart]:
    first = transactions[0]
    if len(transactions) > 1:
        return [_shared_part(vchannel, [each.parts[vchannel] for each in transactions]) for vchannel in first.parts]
    return [
        _wire.WirePart(
            vchannel,
            [
                _encode_messages(part.messages[begin : begin + MAX_MESSAGES_PER_BATCH], is_plain=part.is_plain)
                for begin in range(0, len(part.messages), MAX_MESSAGES_PER_BATCH)
            ],
            part.expected_last_tick,
            part.fencing_token,
        )
        for vchannel, part in first.parts.items()
    ]


def _shared_part(vchannel: str, parts: list[TransactionPart]) -> _wire.WirePart:
    messages = list(chain.from_iterable(part.messages for part in parts))
    columns = _encode_messages(messages, is_plain=all(part.is_plain for part in parts))
    return _wire.WirePart(vchannel, [with_txn_ends(columns, list(accumulate(len(part.messages) for part in parts)))])


def _encode_messages(messages: Sequence[Appendable], *, is_plain: bool) -> Columns:
    return encode_payloads(cast("Sequence[bytes]", messages)) if is_plain else encode_messages(as_messages(messages))
