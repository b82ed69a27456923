"""The requests of AppendStream: parsed without a copy of their batches, and what they need to be permitted."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from tidelog.v1 import wal_service_pb2
from tidelog.wire import protowire
from tidelog_server.core.errors import InvalidRequestError, MalformedRequestError
from tidelog_server.core.limits import MAX_APPENDS_PER_REQUEST, READ_STEP_BYTES
from tidelog_server.rpc.requests import check_fields
from tidelog_server.rpc.services.inline_transactions import TransactionRequest, parse_transaction
from tidelog_server.security.access import Access
from tidelog_server.security.grants import Verb
from tidelog_server.security.permissions import commits_need, mailboxes_need

# Tags of AppendStreamRequest.
_REQUEST_ID: Final = protowire.tag_of(1, protowire.VARINT)
_VCHANNEL: Final = protowire.tag_of(2, protowire.LENGTH)
_COLUMNS: Final = protowire.tag_of(3, protowire.LENGTH)
_OPTIONS: Final = protowire.tag_of(4, protowire.LENGTH)
_TRANSACTION: Final = protowire.tag_of(5, protowire.LENGTH)
_MORE: Final = protowire.tag_of(6, protowire.LENGTH)
_MAX_KNOWN: Final = protowire.tag_of(6, protowire.MAX_WIRE_TYPE)


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
