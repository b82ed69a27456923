"""The requests of AppendStream: parsed without a copy of their batches, checked, and what they need to be permitted."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from google.protobuf.message import DecodeError, Message

from tidelog.v1 import mailbox_service_pb2, wal_service_pb2
from tidelog.wire import protowire
from tidelog_server.core.errors import (
    BatchTooLargeError,
    EmptyBatchError,
    InvalidRequestError,
    MalformedColumnsError,
    MalformedRequestError,
)
from tidelog_server.core.limits import (
    MAX_COMMITS_PER_TXN,
    MAX_LARGE_REQUEST_FIELDS,
    MAX_MAILBOX_BATCH,
    MAX_TXN_VCHANNELS,
    PARSE_STEP_BYTES,
    READ_STEP_BYTES,
)
from tidelog_server.core.message_checks import check_within
from tidelog_server.log.batch import NO_FENCING_TOKEN, UNCONDITIONAL, AppendOptions, Conditions
from tidelog_server.rpc.requests import check_fields, merge_in_steps
from tidelog_server.security.access import Access
from tidelog_server.security.grants import Verb
from tidelog_server.security.permissions import commits_need, mailboxes_need
from tidelog_server.txn.inline import TxnPart

# Appends that share a message of a stream: they are submitted in one step of the event loop.
MAX_APPENDS_PER_REQUEST: Final = 256
# In a transaction sent in one request: each takes about 40 us of the event loop.
MAX_TXN_BATCHES: Final = 512
# Fields of a transaction of AppendStream and of its parts, together, without those of its batches. The other limits
# allow half as many.
MAX_TXN_FIELDS: Final = 8_192

# Tags of AppendStreamRequest.
_REQUEST_ID: Final = protowire.tag_of(1, protowire.VARINT)
_VCHANNEL: Final = protowire.tag_of(2, protowire.LENGTH)
_COLUMNS: Final = protowire.tag_of(3, protowire.LENGTH)
_OPTIONS: Final = protowire.tag_of(4, protowire.LENGTH)
_TRANSACTION: Final = protowire.tag_of(5, protowire.LENGTH)
_MORE: Final = protowire.tag_of(6, protowire.LENGTH)
_MAX_KNOWN: Final = protowire.tag_of(6, protowire.MAX_WIRE_TYPE)
# Tags of Transaction and TransactionPart.
_PARTS: Final = protowire.tag_of(1, protowire.LENGTH)
_POSITIONS: Final = protowire.tag_of(2, protowire.LENGTH)
_SENDS: Final = protowire.tag_of(3, protowire.LENGTH)
_ACKS: Final = protowire.tag_of(4, protowire.LENGTH)
_PART_VCHANNEL: Final = protowire.tag_of(1, protowire.LENGTH)
_PART_BATCHES: Final = protowire.tag_of(2, protowire.LENGTH)
_PART_EXPECTED_LAST_TICK: Final = protowire.tag_of(3, protowire.VARINT)
_PART_FENCING_TOKEN: Final = protowire.tag_of(4, protowire.VARINT)


# -- Transactions ----------------------------------------------------------------------------------------------


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
        if tag == _PART_VCHANNEL:
            part.vchannel = str(value, "utf-8")
        elif tag == _PART_BATCHES:
            part.batches.append(bytes(value))
            if len(part.batches) > MAX_TXN_BATCHES:
                break
        elif tag == _PART_EXPECTED_LAST_TICK:
            expected_last_tick = value
        elif tag == _PART_FENCING_TOKEN:
            fencing_token = value
        elif tag >> 3 <= _PART_FENCING_TOKEN >> 3:
            raise protowire.WireFormatError(f"field {tag >> 3} has wire type {tag & 7}")
    if expected_last_tick is not None or fencing_token != NO_FENCING_TOKEN:
        part.conditions = Conditions(expected_last_tick, fencing_token)
    return part


# -- Requests --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class StreamRequest:
    """An AppendStreamRequest with its batches still serialised.

    Attributes:
        transaction: The transaction, or None. If it is set, ``vchannel`` and ``columns`` must be empty.
        columns_bytes: Total bytes of all columns.
        more: The further requests of its message, serialised.
    """

    request_id: int = 0
    vchannel: str = ""
    columns: bytes = b""
    options: wal_service_pb2.AppendOptions | None = None
    transaction: TransactionRequest | None = None
    columns_bytes: int = 0
    more: Sequence[memoryview] = ()

    @property
    def has_mailboxes(self) -> bool:
        """True if the transaction sends to mailboxes, or acknowledges deliveries."""
        return self.transaction is not None and bool(self.transaction.sends or self.transaction.acks)


def parse_stream_request(encoded: bytes | memoryview) -> StreamRequest:
    """Return the fields of a serialised AppendStreamRequest; see ``TransactionRequest.unparsed``.

    Raises:
        InvalidRequestError: A message has more than MAX_APPENDS_PER_REQUEST requests, or a transaction is too large.
        MalformedRequestError: The bytes are not a valid AppendStreamRequest.
    """
    request = StreamRequest()
    # Repeated occurrences of an embedded message are merged: for serialised messages, concatenated.
    columns: list[memoryview] = []
    options: list[memoryview] = []
    more: list[memoryview] = []
    try:
        for tag, value in protowire.fields(encoded):
            if tag == _REQUEST_ID:
                request.request_id = value
            elif tag == _VCHANNEL:
                request.vchannel = str(value, "utf-8")
            elif tag == _COLUMNS:
                columns.append(value)
            elif tag == _OPTIONS:
                options.append(value)
            elif tag == _TRANSACTION:
                # Repeated occurrences are merged, as above.
                request.transaction = request.transaction or TransactionRequest()
                parse_transaction(value, request.transaction)
            elif tag == _MORE:
                _add(more, value)
            elif tag <= _MAX_KNOWN:
                raise protowire.WireFormatError(f"field {tag >> 3} has wire type {tag & 7}")
            # Fields of later versions are skipped.
        return _completed(request, columns, options, more)
    except (protowire.WireFormatError, UnicodeDecodeError, DecodeError) as error:
        raise MalformedRequestError("AppendStream") from error


def parse_more(request: StreamRequest) -> list[StreamRequest]:
    """Return the further requests of the message of a request. Raises InvalidRequestError."""
    others = [parse_stream_request(encoded) for encoded in request.more]
    _check_nested(others)
    return others


async def parse_in_steps(encoded: bytes) -> tuple[StreamRequest, list[StreamRequest]]:
    """Return the requests of a message above READ_STEP_BYTES: the first one, and the further ones.

    Other work has turns between them, and between the parts of one that sends to mailboxes.

    Raises:
        InvalidRequestError: The message is invalid.
    """
    _check_fields(encoded)
    first = parse_stream_request(encoded)
    await _complete(first)
    others, read_bytes = [], 0
    for more in first.more:
        _check_fields(more)
        others.append(other := parse_stream_request(more))
        if other.transaction is not None:
            await _complete(other)
        read_bytes += len(more)
        if read_bytes > READ_STEP_BYTES:
            read_bytes = 0
            await asyncio.sleep(0)
    _check_nested(others)
    return first, others


def _check_fields(encoded: bytes | memoryview) -> None:
    """Check the number of fields of a request above READ_STEP_BYTES. Raises InvalidRequestError."""
    try:
        check_fields(encoded, READ_STEP_BYTES)
    except protowire.WireFormatError as error:
        raise MalformedRequestError("AppendStream") from error


async def _complete(request: StreamRequest) -> None:
    """Parse what is unparsed of a request. Raises InvalidRequestError."""
    if request.transaction is not None:
        try:
            await request.transaction.complete()
        except (protowire.WireFormatError, DecodeError) as error:
            raise MalformedRequestError("AppendStream") from error


def _check_nested(others: Sequence[StreamRequest]) -> None:
    """Raise InvalidRequestError if a further request of a message has further ones."""
    if any(other.more for other in others):
        raise InvalidRequestError(
            "a request in `more` has `more` itself: list all requests in the first one", field="more"
        )


def _add(more: list[memoryview], encoded: memoryview) -> None:
    if len(more) + 1 == MAX_APPENDS_PER_REQUEST:
        raise InvalidRequestError(
            f"a message has more than {MAX_APPENDS_PER_REQUEST} requests: send the others in further messages",
            field="more", maximum=MAX_APPENDS_PER_REQUEST,
        )  # fmt: skip
    more.append(encoded)


def _completed(
    request: StreamRequest, columns: list[memoryview], options: list[memoryview], more: list[memoryview]
) -> StreamRequest:
    """Return the request with its fields that may be in several parts."""
    # The only copy of the batch between the network and RocksDB.
    request.columns = b"".join(columns)
    request.columns_bytes = len(request.columns)
    if request.transaction is not None:
        request.columns_bytes += sum([len(batch) for part in request.transaction.parts for batch in part.batches])
    if options:
        request.options = wal_service_pb2.AppendOptions.FromString(b"".join(options))
    if more:
        request.more = more
    return request


# -- Checks ----------------------------------------------------------------------------------------------------


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


def check_permitted(access: Access, request: StreamRequest) -> None:
    """Check the permissions on the vchannels and groups that a request names. Raises PermissionDeniedError."""
    if request.transaction is None:
        access.require(Verb.APPEND, request.vchannel)
        if request.options is not None and request.options.txn_id:
            access.require(Verb.TXN, request.vchannel)
        return
    for part in request.transaction.parts:
        access.require(Verb.TXN, part.vchannel)
        access.require(Verb.APPEND, part.vchannel)
    for verb, name in commits_need(request.transaction.positions):
        access.require(verb, name)
    for verb, name in mailboxes_need(request.transaction):
        access.require(verb, name)
