"""Append and AppendStream."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.v1 import message_pb2, wal_service_pb2
from tidelog.wire import protowire
from tidelog_server.channels.directory import Directory
from tidelog_server.core.callers import Caller
from tidelog_server.core.errors import (
    BatchTooLargeError,
    EmptyBatchError,
    InvalidRequestError,
    MalformedColumnsError,
    MalformedRequestError,
    TidelogServerError,
)
from tidelog_server.core.limits import MAX_BARRIER_WAIT_S, MAX_COMMITS_PER_TXN, MAX_MESSAGES_PER_BATCH, READ_STEP_BYTES
from tidelog_server.groups.groups import Groups
from tidelog_server.log.append import Append, Settled, TickedAppend
from tidelog_server.log.batch import AppendOptions, Batch
from tidelog_server.log.batch_append import BatchAppend
from tidelog_server.log.node import LogNode
from tidelog_server.log.protocols import NOTHING_JOINED, Companions, Joined
from tidelog_server.rpc import status
from tidelog_server.rpc.columns.checks import check
from tidelog_server.rpc.columns.rows import encode_rows
from tidelog_server.rpc.columns.view import ColumnsView
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.duplex import Duplex, Unanswered, unknown_outcome
from tidelog_server.rpc.services.append_requests import (
    StreamRequest,
    TransactionRequest,
    check_distinct,
    check_permitted,
    check_shape,
    check_shared,
    parse_in_steps,
    parse_more,
    parse_stream_request,
)
from tidelog_server.rpc.services.mailboxes.transactions import MailboxTransactions, sent_by
from tidelog_server.rpc.services.options import (
    Syncs,
    caller_of,
    check_staging,
    commits_of,
    conditions_of,
    longest_wait_s,
    needs_sync,
    producer_of,
)
from tidelog_server.rpc.services.results import error_of, result_of, transaction_result
from tidelog_server.runtime.eager import Eager
from tidelog_server.security.access import current_access
from tidelog_server.txn.inline import TxnAppend, TxnPart
from tidelog_server.txn.staged import StagingAppend, Transactions
from tidelog_server.txn.table import BatchOfTxn

# Fields of a batch in columns; the format has 17.
MAX_COLUMNS_FIELDS: Final = 128

_ROOM_POLL_S: Final = 0.001
# Approximate memory of a request in addition to its bytes, so that a stream of tiny requests is bounded too.
_SLOT_BYTES: Final = 512
# Batches of one message that are validated without a turn for other work; one transaction more. They take 10 ms.
_STEP_BATCHES: Final = 256


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
        syncs: Syncs,
    ) -> None:
        self._directory = directory
        self._mailboxes = mailboxes
        self._transactions = transactions
        self._groups = groups
        self._node = node
        self._syncs = syncs
        self._default_options = AppendOptions(needs_sync(message_pb2.DURABILITY_UNSPECIFIED, syncs))

    async def append(self, request: wal_service_pb2.AppendRequest, context: Context) -> wal_service_pb2.AppendResponse:
        """Append one batch in row form."""
        self._directory.find(request.vchannel)
        if not request.messages:
            raise EmptyBatchError
        if len(request.messages) > MAX_MESSAGES_PER_BATCH:
            # Checked before the rows are encoded, which blocks the event loop.
            raise BatchTooLargeError(actual=len(request.messages), maximum=MAX_MESSAGES_PER_BATCH, unit="messages")
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_settled(_: Append) -> None:
            if not settled.done():
                settled.set_result(None)

        encoded = StreamRequest(0, request.vchannel, encode_rows(request.messages), request.options)
        append = self.check(encoded, caller_of(context), on_settled, is_encoded_here=True)
        self._node.admission.check_room(len(encoded.columns))
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

    async def join(self, request: StreamRequest) -> Joined:
        """Return what the transaction of a request does to mailboxes. Raises TidelogServerError."""
        if request.transaction is None:
            return NOTHING_JOINED
        return await self._mailboxes.join(request.transaction.sends, request.transaction.acks)

    def check(
        self,
        request: StreamRequest,
        caller: Caller,
        on_settled: Settled,
        joined: Joined = NOTHING_JOINED,
        *,
        is_encoded_here: bool = False,
    ) -> TickedAppend:
        """Validate a request, and return its append. Raises TidelogServerError.

        The CRC of a batch that this process has encoded need not be checked.
        """
        if request.transaction is not None:
            options = self._default_options if request.options is None else self._options(request.options)
            parts = self._check_transaction(request, request.transaction, options)
            commits = commits_of(request.transaction.positions, MAX_COMMITS_PER_TXN)
            positions = self._groups.commits.position_move(commits)
            return TxnAppend(self._node.shared, parts, options, on_settled, Companions(positions, joined))
        target = self._directory.find(request.vchannel)
        batch = self._batch(request.columns, is_encoded_here=is_encoded_here)
        if batch.txns > 1:
            raise MalformedColumnsError("txn_ends", "divides a batch that is not part of a transaction")
        if request.options is None:
            return BatchAppend(target, batch, self._default_options, on_settled)
        if request.options.txn_id:
            check_staging(request.options)
            place = BatchOfTxn(request.options.txn_id, caller, request.options.txn_sequence)
            return StagingAppend(self._transactions, place, target, batch, on_settled)
        return BatchAppend(target, batch, self._options(request.options), on_settled)

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

    def _batch(self, columns: bytes, *, is_encoded_here: bool = False) -> Batch:
        try:
            view = ColumnsView.parse(columns, MAX_COLUMNS_FIELDS)
        except protowire.WireFormatError as error:
            raise MalformedRequestError("AppendStream") from error
        check(view, len(columns), self._node.admission.limits, is_encoded_here=is_encoded_here)
        return Batch(view.count, view.message_type, view.crc32c, columns, view.txns)

    def _options(self, options: wal_service_pb2.AppendOptions) -> AppendOptions:
        """Return the validated options. Raises InvalidRequestError."""
        if options.txn_id or options.txn_sequence:
            raise InvalidRequestError(
                "txn_id and txn_sequence are for single batches of staged transactions: set neither here, or set "
                "txn_id",
                field="txn_id",
            )
        return AppendOptions(
            needs_sync(options.durability, self._syncs), options.barrier_tick,
            conditions_of(options), producer_of(options),
        )  # fmt: skip


@dataclass(slots=True, eq=False)
class _Slot(Unanswered):
    """A request of a stream that was not answered yet.

    Attributes:
        is_last: It is the last one of its message, so its answer completes that of the message.
    """

    request_id: int
    size_bytes: int
    is_last: bool = True


class AppendStreamCall(Duplex):
    """One AppendStream: answers in the order of the requests.

    A message that brought several requests is answered by one message, once all of them are settled.

    Invariant: at most one answer is being written, because gRPC allows only one write at a time.
    """

    def __init__(self, calls: AppendCalls, node: LogNode, context: Context, caller: Caller) -> None:
        super().__init__(node, context)
        self._calls = calls
        self._caller = caller
        self._access = current_access()
        self._slots: deque[_Slot] = deque()
        # True while an answer is being written; by ``_begun`` if that is set, which is awaited later.
        self._is_writing = False
        self._begun: Eager[None] | None = None

    def _close(self) -> None:
        # If the call was cancelled, unanswered requests stay unanswered.
        self._slots.clear()
        if self._begun is not None:
            self._begun.cancel()

    def _take(self, encoded: bytes) -> Coroutine[None, None, None] | None:
        """Submit the requests of a message, or return a coroutine that submits them."""
        if len(encoded) > READ_STEP_BYTES:
            return self._submit_large(encoded)
        request = parse_stream_request(encoded)
        if request.more:
            return self._submit_several(request, len(encoded), parse_more(request))
        slot = _Slot(request.request_id, len(encoded) + _SLOT_BYTES)
        rest = self._submit_one(slot, request)
        if rest is None and slot.refusal is None:
            self._node.committer.commit_lone()
        return rest

    async def _submit_large(self, encoded: bytes) -> None:
        """As ``_take``, with turns for other work while the message is parsed."""
        request, others = await parse_in_steps(encoded)
        await self._submit_several(request, len(encoded), others)
        self._node.committer.commit_lone()

    async def _submit_several(self, first: StreamRequest, size_bytes: int, others: Sequence[StreamRequest]) -> None:
        """Submit the requests of one message of ``size_bytes``, each as if it came alone."""
        if self._access is not None and others:
            # The first request and all bytes were counted when the message arrived.
            await self._access.quota.received(0, len(others))
        sizes_bytes = list(map(len, first.more))
        sizes_bytes.insert(0, size_bytes - sum(sizes_bytes))
        batches = 0
        for place, request in enumerate((first, *others)):
            slot = _Slot(request.request_id, sizes_bytes[place] + _SLOT_BYTES, is_last=place == len(others))
            if (rest := self._submit_one(slot, request)) is not None:
                await rest
            batches += 1 if request.transaction is None else request.transaction.batches
            # Each may have a thousand messages of mailboxes, without a wait for anything.
            if others and (rest is not None or batches > _STEP_BATCHES):
                batches = 0
                await asyncio.sleep(0)

    def _submit_one(self, slot: _Slot, request: StreamRequest) -> Coroutine[None, None, None] | None:
        """Submit a request, or return a coroutine that submits it."""
        self._slots.append(slot)
        self._hold(slot.size_bytes)
        try:
            if self._access is not None:
                check_permitted(self._access, request)
            if not request.has_mailboxes and self._node.admission.has_room(request.columns_bytes):
                # Ordering: the slot has it first, because a retry may be settled before ``try_submit`` returns.
                slot.append = append = self._calls.check(request, self._caller, self._on_settled)
                if append.try_submit():
                    return None
        except TidelogServerError as error:
            self._refuse(slot, error)
            return None
        return self._submit_later(slot, request)

    async def _submit_later(self, slot: _Slot, request: StreamRequest) -> None:
        try:
            await self._wait_for_room(request.columns_bytes)
            joined = await self._calls.join(request)
            slot.append = append = self._calls.check(request, self._caller, self._on_settled, joined)
            await self._node.shared.submit(append, MAX_BARRIER_WAIT_S)
        except TidelogServerError as error:
            self._refuse(slot, error)

    def _refuse(self, slot: _Slot, error: TidelogServerError) -> None:
        slot.refusal = error
        self._changed.set()

    def _close_slots(self, count: int) -> list[_Slot]:
        """Remove and return the oldest slots, whose answers are to be written."""
        slots = [self._slots.popleft() for _ in range(count)]
        self._let_go(sum([slot.size_bytes for slot in slots]), count)
        return slots

    def _ready_slots(self) -> int:
        """Return the number of requests of the oldest message if all of them are settled, otherwise 0."""
        for count, slot in enumerate(self._slots, 1):
            if not slot.is_ready:
                return 0
            if slot.is_last:
                return count
        return 0

    async def _wait_for_room(self, size_bytes: int) -> None:
        """Wait until the node has room. Back-pressure: meanwhile the stream is not read, so HTTP/2 stops the client."""
        admission = self._node.admission
        while not admission.has_room(size_bytes):
            admission.check()
            await asyncio.sleep(_ROOM_POLL_S)

    def _on_settled(self, append: Append) -> None:
        """Answer immediately if this append is the oldest, and alone in its message: the task would run later."""
        if not self._is_writing and self._slots and self._slots[0].append is append and self._slots[0].is_last:
            self._is_writing = True
            self._begun = Eager(self._write(self._close_slots(1)))
        self._changed.set()

    async def _write_answers(self) -> None:
        """Write the answers that are ready, in order, after the one that was started."""
        if self._begun is not None:
            begun, self._begun = self._begun, None
            await begun
        self._is_writing = True
        while count := self._ready_slots():
            await self._write(self._close_slots(count))
        self._is_writing = False

    async def _write(self, slots: Sequence[_Slot]) -> None:
        """Write the answers to the requests of a message."""
        answer = self._answer_to(slots[0])
        if len(slots) > 1:
            answer.more.extend([self._answer_to(slot) for slot in slots[1:]])
        await self._context.write(answer.SerializeToString())

    def _answer_to(self, slot: _Slot) -> wal_service_pb2.AppendStreamResponse:
        error, append, request_id = slot.error, slot.append, slot.request_id
        if error is not None:
            self._node.metrics.append_errors.labels(status.reason_of(error)).inc()
            return wal_service_pb2.AppendStreamResponse(request_id=request_id, error=error_of(error))
        assert append is not None
        if append.is_duplicate:
            self._node.metrics.append_duplicates.inc()
        if not isinstance(append, TxnAppend):
            return wal_service_pb2.AppendStreamResponse(request_id=request_id, result=result_of(append))
        result = transaction_result(append)
        if not append.is_duplicate:
            result.sent.extend(sent_by(append.companions.joined))
        return wal_service_pb2.AppendStreamResponse(request_id=request_id, transaction=result)
