"""Append and AppendStream."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from tidelog.v1 import message_pb2, wal_service_pb2
from tidelog.wire import protowire
from tidelog_server.channels.directory import Directory
from tidelog_server.core.callers import Caller
from tidelog_server.core.errors import (
    BatchTooLargeError,
    Effect,
    EmptyBatchError,
    InvalidRequestError,
    MalformedColumnsError,
    MalformedRequestError,
    ShutdownError,
    TidelogServerError,
)
from tidelog_server.core.errors.cluster import LogFailure
from tidelog_server.core.limits import MAX_BARRIER_WAIT_S, MAX_COMMITS_PER_TXN, MAX_MESSAGES_PER_BATCH
from tidelog_server.groups.groups import Groups
from tidelog_server.log.append import Append, Settled, TickedAppend
from tidelog_server.log.batch import AppendOptions, Batch
from tidelog_server.log.batch_append import BatchAppend
from tidelog_server.log.node import LogNode
from tidelog_server.log.protocols import NOTHING_JOINED, Companions, Joined, Place
from tidelog_server.rpc import status
from tidelog_server.rpc.columns.checks import check, check_encoded_here
from tidelog_server.rpc.columns.rows import encode_rows
from tidelog_server.rpc.columns.view import ColumnsView
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.draining import drain
from tidelog_server.rpc.services.commits import commits_of
from tidelog_server.rpc.services.inline_transactions import (
    TransactionRequest,
    check_distinct,
    check_shape,
    check_shared,
    parse_transaction,
)
from tidelog_server.rpc.services.mailboxes.transactions import JoinedMailboxes, MailboxTransactions
from tidelog_server.rpc.services.options import (
    caller_of,
    check_staging,
    conditions_of,
    longest_wait_s,
    needs_sync,
    producer_of,
)
from tidelog_server.rpc.services.results import result_of, transaction_result
from tidelog_server.runtime.eager import Eager
from tidelog_server.security.access import Access, current_access
from tidelog_server.security.grants import Verb
from tidelog_server.security.permissions import commits_need, mailboxes_need
from tidelog_server.txn.inline import TxnAppend, TxnPart
from tidelog_server.txn.staged import StagingAppend, Transactions
from tidelog_server.txn.table import BatchOfTxn

_ROOM_POLL_S: Final = 0.001
# Approximate memory of a request in addition to its bytes, so that a stream of tiny requests is bounded too.
_SLOT_BYTES: Final = 512

# Tags of AppendStreamRequest.
_REQUEST_ID: Final = protowire.tag_of(1, protowire.VARINT)
_VCHANNEL: Final = protowire.tag_of(2, protowire.LENGTH)
_COLUMNS: Final = protowire.tag_of(3, protowire.LENGTH)
_OPTIONS: Final = protowire.tag_of(4, protowire.LENGTH)
_TRANSACTION: Final = protowire.tag_of(5, protowire.LENGTH)
_MAX_KNOWN: Final = protowire.tag_of(5, protowire.MAX_WIRE_TYPE)


@dataclass(slots=True)
class StreamRequest:
    """An AppendStreamRequest with its batches still serialised.

    Attributes:
        transaction: The transaction, or None. If it is set, ``vchannel`` and ``columns`` must be empty.
        columns_bytes: Total bytes of all columns.
    """

    request_id: int = 0
    vchannel: str = ""
    columns: bytes = b""
    options: wal_service_pb2.AppendOptions | None = None
    transaction: TransactionRequest | None = None
    columns_bytes: int = 0

    @property
    def has_mailboxes(self) -> bool:
        """True if the transaction sends to mailboxes, or acknowledges deliveries."""
        return self.transaction is not None and bool(self.transaction.sends or self.transaction.acks)


def parse_stream_request(encoded: bytes) -> StreamRequest:
    """Return the fields of a serialised AppendStreamRequest.

    Raises:
        protowire.WireFormatError, UnicodeDecodeError, DecodeError: The bytes are not a valid AppendStreamRequest.
    """
    request = StreamRequest()
    # Repeated occurrences of an embedded message are merged: for serialised messages, concatenated.
    columns: list[memoryview] = []
    options: list[memoryview] = []
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
        elif tag <= _MAX_KNOWN:
            raise protowire.WireFormatError(f"field {tag >> 3} has wire type {tag & 7}")
        # Fields of later versions are skipped.
    # The only copy of the batch between the network and RocksDB.
    request.columns = b"".join(columns)
    request.columns_bytes = len(request.columns)
    if request.transaction is not None:
        request.columns_bytes += sum([len(batch) for part in request.transaction.parts for batch in part.batches])
    if options:
        request.options = wal_service_pb2.AppendOptions.FromString(b"".join(options))
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


class AppendCalls:
    """Handlers of Append and AppendStream."""

    def __init__(
        self,
        directory: Directory,
        transactions: Transactions,
        groups: Groups,
        node: LogNode,
        *,
        mailboxes: MailboxTransactions,
        syncs_by_default: bool,
    ) -> None:
        self._directory = directory
        self._mailboxes = mailboxes
        self._transactions = transactions
        self._groups = groups
        self._node = node
        self._syncs_by_default = syncs_by_default
        self._default_options = AppendOptions(syncs_by_default)

    async def append(self, request: wal_service_pb2.AppendRequest, context: Context) -> wal_service_pb2.AppendResponse:
        """Append one batch in row form."""
        target = self._directory.find(request.vchannel)
        if not request.messages:
            raise EmptyBatchError
        if len(request.messages) > MAX_MESSAGES_PER_BATCH:
            # Checked before the rows are encoded, which blocks the event loop.
            raise BatchTooLargeError(actual=len(request.messages), maximum=MAX_MESSAGES_PER_BATCH, unit="messages")
        batch = self._batch_of_rows(request.messages)
        self._node.admission.check_room(len(batch.columns))
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_settled(_: Append) -> None:
            if not settled.done():
                settled.set_result(None)

        append = self._append_of(target, batch, request.options, caller_of(context), on_settled)
        await self._node.shared.submit(append, longest_wait_s(context, MAX_BARRIER_WAIT_S))
        self._node.committer.commit_lone()
        await settled
        if (failure := append.failure) is not None:
            raise unknown_outcome(failure)
        if append.is_duplicate:
            self._node.metrics.append_duplicates.inc()
        return wal_service_pb2.AppendResponse(result=result_of(append))

    async def append_stream(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """Append batches of columns until the client closes its side of the stream."""
        await AppendStreamCall(self, self._node, context, caller_of(context)).run(requests)

    def parse(self, encoded: bytes) -> StreamRequest:
        """Return the fields of a request. Raises MalformedRequestError."""
        try:
            return parse_stream_request(encoded)
        except (protowire.WireFormatError, UnicodeDecodeError, DecodeError) as error:
            raise MalformedRequestError("AppendStream") from error

    async def join(self, request: StreamRequest) -> Joined:
        """Return what the transaction of a request does to mailboxes. Raises TidelogServerError."""
        if request.transaction is None:
            return NOTHING_JOINED
        return await self._mailboxes.join(request.transaction.sends, request.transaction.acks)

    def check(
        self, request: StreamRequest, caller: Caller, on_settled: Settled, joined: Joined = NOTHING_JOINED
    ) -> TickedAppend:
        """Validate a request of a stream, and return its append. Raises TidelogServerError."""
        if request.transaction is not None:
            options = self._default_options if request.options is None else self._options(request.options)
            parts = self._check_transaction(request, request.transaction, options)
            commits = commits_of(request.transaction.positions, MAX_COMMITS_PER_TXN)
            positions = self._groups.position_move(commits)
            return TxnAppend(self._node.shared, parts, options, on_settled, Companions(positions, joined))
        target = self._directory.find(request.vchannel)
        batch = self._batch(request.columns)
        if batch.txns > 1:
            raise MalformedColumnsError("txn_ends", "divides a batch that is not part of a transaction")
        return self._append_of(target, batch, request.options, caller, on_settled)

    def _append_of(
        self,
        target: Place,
        batch: Batch,
        options: wal_service_pb2.AppendOptions | None,
        caller: Caller,
        on_settled: Settled,
    ) -> TickedAppend:
        """Return the append of one batch. Raises InvalidRequestError."""
        if options is None:
            return BatchAppend(target, batch, self._default_options, on_settled)
        if options.txn_id:
            check_staging(options)
            place = BatchOfTxn(options.txn_id, caller, options.txn_sequence)
            return StagingAppend(self._transactions, place, target, batch, on_settled)
        return BatchAppend(target, batch, self._options(options), on_settled)

    def _check_transaction(
        self, request: StreamRequest, wanted: TransactionRequest, options: AppendOptions
    ) -> list[TxnPart]:
        if request.vchannel or request.columns:
            raise InvalidRequestError(
                "the request has both a transaction and a batch: put the batch into a part", field="transaction"
            )
        check_shape(wanted.parts, options, request.columns_bytes, self._node.admission.limits.max_batch_bytes)
        parts = []
        for part in wanted.parts:
            log, vchannel = self._directory.find(part.vchannel)
            parts.append(TxnPart(log, vchannel, [self._batch(columns) for columns in part.batches], part.conditions))
        check_distinct([part.vchannel.name for part in parts])
        check_shared(parts)
        return parts

    def _batch(self, columns: bytes) -> Batch:
        try:
            view = ColumnsView.parse(columns)
        except protowire.WireFormatError as error:
            raise MalformedRequestError("AppendStream") from error
        check(view, len(columns), self._node.admission.limits)
        return Batch(view.count, view.message_type, view.crc32c, columns, view.txns)

    def _batch_of_rows(self, messages: Sequence[message_pb2.Message]) -> Batch:
        columns = encode_rows(messages)
        view = ColumnsView.parse(columns)
        check_encoded_here(view, len(columns), self._node.admission.limits)
        return Batch(view.count, view.message_type, view.crc32c, columns)

    def _options(self, options: wal_service_pb2.AppendOptions) -> AppendOptions:
        """Return the validated options. Raises InvalidRequestError."""
        if options.txn_id or options.txn_sequence:
            raise InvalidRequestError(
                "txn_id and txn_sequence are for single batches of staged transactions: set neither here, or set "
                "txn_id",
                field="txn_id",
            )
        return AppendOptions(
            needs_sync(options.durability, syncs_by_default=self._syncs_by_default), options.barrier_tick,
            conditions_of(options), producer_of(options),
        )  # fmt: skip


@dataclass(slots=True, eq=False)
class _Slot:
    """A request of a stream that was not answered yet.

    Attributes:
        append: Its append, submitted or not; None until the request is validated.
        refusal: Why it was refused, at any time before the submission.
    """

    request_id: int
    size_bytes: int
    append: TickedAppend | None = None
    refusal: TidelogServerError | None = None

    @property
    def is_ready(self) -> bool:
        return self.refusal is not None or (self.append is not None and self.append.settled)


class AppendStreamCall:
    """One AppendStream: reads requests ahead of the acknowledgements, and answers in the order of the requests.

    Why not a coroutine per step: apart from the disk, the latency of a lone append is Python's overhead.

    Invariant: ``_in_flight_bytes`` is the sum over all slots, and at most the limit plus one request.
    Invariant: at most one answer is being written, because gRPC allows only one write at a time.
    """

    def __init__(self, calls: AppendCalls, node: LogNode, context: Context, caller: Caller) -> None:
        self._calls = calls
        self._node = node
        self._context = context
        self._caller = caller
        self._access = current_access()
        self._slots: deque[_Slot] = deque()
        self._in_flight_bytes = 0
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_read_to_end = False
        self._malformed: MalformedRequestError | None = None
        # True while an answer is being written; by ``_begun`` if that is set, which is awaited later.
        self._is_writing = False
        self._begun: Eager[None] | None = None

    async def run(self, requests: AsyncIterator[bytes]) -> None:
        """Serve the stream to its end.

        Raises:
            MalformedRequestError: A request is not a valid message. The requests before it are answered.
            ShutdownError: The node is shutting down. All requests that were read are answered; no other had an effect.
        """
        self._node.watchers.add(self._changed)
        try:
            async with asyncio.TaskGroup() as group:
                reader = group.create_task(self._read(requests))
                await self._answer()
                await drain(self._changed, lambda: self._is_read_to_end, self._write_answers)
                reader.cancel()
        finally:
            self._node.watchers.discard(self._changed)
            # If the call was cancelled, unanswered requests stay unanswered.
            self._slots.clear()
            self._in_flight_bytes = 0
            if self._begun is not None:
                self._begun.cancel()
        if self._malformed is not None:
            raise self._malformed
        if not self._is_read_to_end:
            self._node.admission.check_serving()
            raise ShutdownError

    async def _read(self, requests: AsyncIterator[bytes]) -> None:
        try:
            async for encoded in requests:
                if (rest := self._submit(encoded)) is not None:
                    await rest
                del encoded, rest
                if not self._has_room.is_set():
                    await self._has_room.wait()
        except MalformedRequestError as error:
            self._malformed = error
        self._is_read_to_end = True
        self._changed.set()

    def _submit(self, encoded: bytes) -> Coroutine[None, None, None] | None:
        """Submit a request, or return a coroutine that submits it.

        Why not in ``_read``: its local variables would keep the batch in memory while the stream is idle.

        Raises:
            MalformedRequestError: The request is not a valid message.
        """
        request = self._calls.parse(encoded)
        slot = self._open_slot(request.request_id, len(encoded) + _SLOT_BYTES)
        try:
            if self._access is not None:
                check_permitted(self._access, request)
            if not request.has_mailboxes and self._node.admission.has_room(request.columns_bytes):
                # Ordering: the slot has it first, because a retry may be settled before ``try_submit`` returns.
                slot.append = append = self._calls.check(request, self._caller, self._on_settled)
                if append.try_submit():
                    self._node.committer.commit_lone()
                    return None
        except TidelogServerError as error:
            self._refuse(slot, error)
            return None
        return self._submit_later(slot, request)

    async def _submit_later(self, slot: _Slot, request: StreamRequest) -> None:
        try:
            await self._wait_for_room(request.columns_bytes)
            joined = await self._calls.join(request)
            slot.append = self._calls.check(request, self._caller, self._on_settled, joined)
            await self._node.shared.submit(slot.append, MAX_BARRIER_WAIT_S)
        except TidelogServerError as error:
            self._refuse(slot, error)

    def _refuse(self, slot: _Slot, error: TidelogServerError) -> None:
        slot.refusal = error
        self._changed.set()

    def _open_slot(self, request_id: int, size_bytes: int) -> _Slot:
        slot = _Slot(request_id, size_bytes)
        self._slots.append(slot)
        self._in_flight_bytes += size_bytes
        if not self._is_under_limit():
            self._has_room.clear()
        return slot

    def _close_slot(self) -> _Slot:
        """Remove and return the oldest slot, whose answer is to be written."""
        slot = self._slots.popleft()
        self._in_flight_bytes -= slot.size_bytes
        if not self._has_room.is_set() and self._is_under_limit():
            self._has_room.set()
        return slot

    async def _wait_for_room(self, size_bytes: int) -> None:
        """Wait until the node has room. Back-pressure: meanwhile the stream is not read, so HTTP/2 stops the client."""
        admission = self._node.admission
        while not admission.has_room(size_bytes):
            admission.check()
            await asyncio.sleep(_ROOM_POLL_S)

    def _is_under_limit(self) -> bool:
        return self._in_flight_bytes < self._node.admission.limits.max_in_flight_bytes_per_stream

    def _on_settled(self, append: Append) -> None:
        """Answer immediately if this append is the oldest: the task would run one turn of the event loop later."""
        if not self._is_writing and self._slots and self._slots[0].append is append:
            self._is_writing = True
            self._begun = Eager(self._write(self._close_slot()))
        self._changed.set()

    async def _answer(self) -> None:
        """Write answers until all requests are answered and the client has closed its side, or the node stops."""
        while True:
            self._changed.clear()
            await self._write_answers()
            if not self._slots and (self._is_read_to_end or self._node.admission.is_shutting_down):
                return
            await self._changed.wait()

    async def _write_answers(self) -> None:
        """Write the answers that are ready, in order, after the one that was started."""
        if self._begun is not None:
            begun, self._begun = self._begun, None
            await begun
        self._is_writing = True
        while self._slots and self._slots[0].is_ready:
            await self._write(self._close_slot())
        self._is_writing = False

    async def _write(self, slot: _Slot) -> None:
        await self._context.write(self._answer_to(slot).SerializeToString())

    def _answer_to(self, slot: _Slot) -> wal_service_pb2.AppendStreamResponse:
        error, append = slot.refusal, slot.append
        if error is None:
            assert append is not None
            if append.failure is None:
                return self._result_of(slot.request_id, append)
            error = unknown_outcome(append.failure)
        detail = status.detail_of(error)
        self._node.metrics.append_errors.labels(status.reason_of(error)).inc()
        return wal_service_pb2.AppendStreamResponse(
            request_id=slot.request_id,
            error=wal_service_pb2.AppendError(
                code=status.code_number_of(error), message=status.text_of(error), detail=detail
            ),
        )

    def _result_of(self, request_id: int, append: TickedAppend) -> wal_service_pb2.AppendStreamResponse:
        if append.is_duplicate:
            self._node.metrics.append_duplicates.inc()
        if not isinstance(append, TxnAppend):
            return wal_service_pb2.AppendStreamResponse(request_id=request_id, result=result_of(append))
        result = transaction_result(append)
        joined = append.companions.joined
        if isinstance(joined, JoinedMailboxes) and not append.is_duplicate:
            result.sent.extend(joined.sent())
        return wal_service_pb2.AppendStreamResponse(request_id=request_id, transaction=result)


def unknown_outcome(failure: LogFailure) -> LogFailure:
    """Return the failure of an append that was in flight, with effect unknown: it may be in the log after a restart."""
    return failure.with_effect(Effect.UNKNOWN)
