"""Transactions of an append stream: decoding, validation and submission."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from google.protobuf.message import Message

from tidelog.v1 import mailbox_service_pb2, wal_service_pb2
from tidelog.wire import protowire
from tidelog_server.core.errors import (
    BatchTooLargeError,
    EmptyBatchError,
    InvalidRequestError,
    MalformedColumnsError,
)
from tidelog_server.core.limits import (
    MAX_COMMITS_PER_TXN,
    MAX_LARGE_REQUEST_FIELDS,
    MAX_MAILBOX_BATCH,
    MAX_TXN_BATCHES,
    MAX_TXN_FIELDS,
    MAX_TXN_VCHANNELS,
    PARSE_STEP_BYTES,
)
from tidelog_server.core.message_checks import check_within
from tidelog_server.log.batch import NO_FENCING_TOKEN, UNCONDITIONAL, AppendOptions, Conditions
from tidelog_server.rpc.requests import merge_in_steps
from tidelog_server.txn.inline import TxnPart

# Tags of Transaction and TransactionPart.
_PARTS: Final = protowire.tag_of(1, protowire.LENGTH)
_POSITIONS: Final = protowire.tag_of(2, protowire.LENGTH)
_SENDS: Final = protowire.tag_of(3, protowire.LENGTH)
_ACKS: Final = protowire.tag_of(4, protowire.LENGTH)
_VCHANNEL: Final = protowire.tag_of(1, protowire.LENGTH)
_BATCHES: Final = protowire.tag_of(2, protowire.LENGTH)
_EXPECTED_LAST_TICK: Final = protowire.tag_of(3, protowire.VARINT)
_FENCING_TOKEN: Final = protowire.tag_of(4, protowire.VARINT)


@dataclass(slots=True)
class TransactionRequest:
    """A Transaction with its batches still serialised.

    Attributes:
        unparsed: Sends and acknowledgements after their first PARSE_STEP_BYTES, which are empty until ``complete``
            parses them.
        fields: Fields of the transaction and its parts.
        mailbox_bytes: Bytes of the sends and acknowledgements.
        mailbox_fields: Fields of those that follow their first PARSE_STEP_BYTES.
    """

    parts: "list[PartRequest]" = field(default_factory=list)
    positions: list[wal_service_pb2.PositionCommit] = field(default_factory=list)
    sends: list[mailbox_service_pb2.SendRequest] = field(default_factory=list)
    acks: list[mailbox_service_pb2.AckDeliveriesRequest] = field(default_factory=list)
    unparsed: list[tuple[Message, memoryview]] = field(default_factory=list)
    fields: int = 0
    mailbox_bytes: int = 0
    mailbox_fields: int = 0

    @property
    def batches(self) -> int:
        """Number of its batches."""
        return sum([len(part.batches) for part in self.parts])

    async def complete(self) -> None:
        """Parse what is unparsed, with turns for other work.

        Raises:
            InvalidRequestError: A message has too many fields.
            DecodeError, protowire.WireFormatError: One is malformed.
        """
        while self.unparsed:
            await merge_in_steps(self.unparsed[0][1], self.unparsed[0][0])
            del self.unparsed[0]

    def parse_now_or_later(self, encoded: memoryview, message: Message) -> None:
        """Parse a send or an acknowledgement into ``message``, or note it.

        Why not all later: 10 ms suffice to parse PARSE_STEP_BYTES of any content.

        Raises:
            InvalidRequestError: All of them have too many fields.
            DecodeError, protowire.WireFormatError: It is malformed.
        """
        self.mailbox_bytes += len(encoded)
        if self.mailbox_bytes <= PARSE_STEP_BYTES:
            message.MergeFromString(bytes(encoded))
        else:
            self._check_dense(encoded)
            self.unparsed.append((message, encoded))

    def count_field(self) -> None:
        """Count a field of the transaction or of a part. Raises InvalidRequestError if there are too many."""
        self.fields += 1
        if self.fields > MAX_TXN_FIELDS:
            raise InvalidRequestError(
                f"the transaction and its parts have more than {MAX_TXN_FIELDS} fields: use several transactions",
                field="transaction",
            )

    def _check_dense(self, encoded: memoryview) -> None:
        rest = MAX_LARGE_REQUEST_FIELDS - self.mailbox_fields
        self.mailbox_fields += sum(1 for _ in islice(protowire.fields(encoded), rest + 1))
        if self.mailbox_fields > MAX_LARGE_REQUEST_FIELDS:
            raise InvalidRequestError(
                f"the sends and acknowledgements of the transaction have more than {PARSE_STEP_BYTES} bytes and more "
                f"than {MAX_LARGE_REQUEST_FIELDS} fields: use several transactions",
                field="sends",
            )


@dataclass(slots=True)
class PartRequest:
    """A TransactionPart with its batches still serialised."""

    vchannel: str
    batches: list[bytes]
    conditions: Conditions


def parse_transaction(encoded: memoryview, transaction: TransactionRequest) -> None:
    """Add the fields of a serialised Transaction to ``transaction``.

    Ends with one more part, batch or position than allowed, so that no request takes long; ``check_shape`` refuses it.

    Raises:
        protowire.WireFormatError, UnicodeDecodeError, DecodeError: The bytes are not a valid Transaction.
        InvalidRequestError: It has too many sends, acknowledgements or fields.
    """
    batches = 0
    for tag, value in protowire.fields(encoded):
        transaction.count_field()
        if tag == _PARTS:
            transaction.parts.append(part := _parse_part(value, transaction))
            batches += len(part.batches)
            if len(transaction.parts) > MAX_TXN_VCHANNELS or batches > MAX_TXN_BATCHES:
                return
        elif tag == _POSITIONS:
            transaction.positions.append(wal_service_pb2.PositionCommit.FromString(bytes(value)))
            if len(transaction.positions) > MAX_COMMITS_PER_TXN:
                return
        elif tag == _SENDS:
            transaction.sends.append(send := mailbox_service_pb2.SendRequest())
            transaction.parse_now_or_later(value, send)
        elif tag == _ACKS:
            transaction.acks.append(ack := mailbox_service_pb2.AckDeliveriesRequest())
            transaction.parse_now_or_later(value, ack)
        elif tag >> 3 <= _ACKS >> 3:
            raise protowire.WireFormatError(f"field {tag >> 3} has wire type {tag & 7}")
        # Fields of later versions are skipped.
        if len(transaction.sends) + len(transaction.acks) > 2 * MAX_MAILBOX_BATCH:
            raise InvalidRequestError(
                f"the transaction has more than {2 * MAX_MAILBOX_BATCH} sends and acknowledgements: use several "
                "transactions",
                field="sends",
            )


def _parse_part(encoded: memoryview, transaction: TransactionRequest) -> PartRequest:
    part = PartRequest("", [], UNCONDITIONAL)
    expected_last_tick, fencing_token = None, NO_FENCING_TOKEN
    for tag, value in protowire.fields(encoded):
        transaction.count_field()
        if tag == _VCHANNEL:
            part.vchannel = str(value, "utf-8")
        elif tag == _BATCHES:
            part.batches.append(bytes(value))
            if len(part.batches) > MAX_TXN_BATCHES:
                break
        elif tag == _EXPECTED_LAST_TICK:
            expected_last_tick = value
        elif tag == _FENCING_TOKEN:
            fencing_token = value
        elif tag >> 3 <= _FENCING_TOKEN >> 3:
            raise protowire.WireFormatError(f"field {tag >> 3} has wire type {tag & 7}")
    if expected_last_tick is not None or fencing_token != NO_FENCING_TOKEN:
        part.conditions = Conditions(expected_last_tick, fencing_token)
    return part


def check_shape(parts: Sequence[PartRequest], options: AppendOptions, size_bytes: int, max_bytes: int) -> None:
    """Validate a transaction without looking up its vchannels. Raises InvalidRequestError or a subclass."""
    check_within(len(parts), 1, MAX_TXN_VCHANNELS, "parts", "the transaction has {value} parts or more")
    if options.conditions is not UNCONDITIONAL:
        raise InvalidRequestError(
            "the options of a transaction have a condition: set it in the part of the vchannel that it is for",
            field="options",
        )
    if not all(part.batches for part in parts):
        raise EmptyBatchError
    batches = sum(len(part.batches) for part in parts)
    if batches > MAX_TXN_BATCHES:
        raise BatchTooLargeError(actual=batches, maximum=MAX_TXN_BATCHES, unit="batches")
    if size_bytes > max_bytes:
        raise BatchTooLargeError(actual=size_bytes, maximum=max_bytes, unit="bytes")


def check_distinct(names: Sequence[str]) -> None:
    """Raise InvalidRequestError if a vchannel is named twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidRequestError(
                f"the transaction names {name} twice, perhaps once without its index: use one part per vchannel",
                field="parts",
            )
        seen.add(name)


def check_shared(parts: Sequence[TxnPart]) -> None:
    """Check that all batches of a request are divided into the same transactions. Raises MalformedColumnsError."""
    batches = [batch for part in parts for batch in part.batches]
    txns = max([batch.txns for batch in batches])
    if txns == 1:
        return
    if len(batches) > len(parts) or any(batch.txns != txns for batch in batches):
        raise MalformedColumnsError(
            "txn_ends", f"divides a batch into {txns} transactions: each part must have one batch, divided likewise"
        )
    # The ids of the transactions are consecutive from the first tick on, and must lie within the span.
    if txns > sum(batch.count for batch in batches):
        raise MalformedColumnsError("txn_ends", f"divides the messages into {txns} transactions, more than messages")
