"""Operate: operations on mailboxes in one stream, executed as they arrive and answered as they become durable."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog.wire.protowire import WireFormatError
from tidelog_server.core.errors import (
    InvalidRequestError,
    MalformedRequestError,
    TidelogServerError,
)
from tidelog_server.core.limits import MAX_MAILBOX_BATCH, PARSE_STEP_BYTES
from tidelog_server.fold.calls import Call
from tidelog_server.log.node import LogNode
from tidelog_server.mailboxes.mailbox import Mailbox
from tidelog_server.mailboxes.waiting import FetchCall
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.duplex import Duplex
from tidelog_server.rpc.open_streams import caller_of
from tidelog_server.rpc.requests import merge_in_steps
from tidelog_server.rpc.services.mailboxes.answers import (
    acked_answer,
    error_answer,
    extended_answer,
    sent_answer,
)
from tidelog_server.rpc.services.mailboxes.calls import MessageCalls
from tidelog_server.rpc.services.mailboxes.fetch_answers import FetchAnswers, Slot
from tidelog_server.security.access import Access, current_access
from tidelog_server.security.grants import Verb

# Operations of a stream that were not answered yet; further requests are not read meanwhile.
_MAX_OPERATIONS: Final = 4_000
# Answers in one response, about: a large one would delay the first of them.
_MAX_RESULTS: Final = 512
_MAX_RESULT_BYTES: Final = 1 << 20

# Messages and locks of operations after which other work on the event loop has a turn: some 8 ms.
_STEP_PARTS: Final = 2 * MAX_MAILBOX_BATCH
# Approximate memory of an operation in addition to its bytes.
_OPERATION_BYTES: Final = 512


class _Answer(NamedTuple):
    """An answer that is not written yet.

    Attributes:
        encoded: The answer.
        slot: Its operation.
        taken_bytes: Memory that was reserved for it.
    """

    encoded: bytes
    slot: Slot
    taken_bytes: int = 0


_Encode = Callable[[Slot, Mailbox, Any], bytes | None]
"""Takes an operation, its mailbox and its result, and returns the answer; None if it follows later."""


class OperateCalls:
    """Handler of Operate."""

    def __init__(self, calls: MessageCalls, node: LogNode) -> None:
        self._calls = calls
        self._node = node

    async def operate(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """Execute operations until the client closes its side of the stream."""
        await OperateStream(self._calls, self._node, context).run(requests)


class OperateStream(Duplex):
    """One Operate call.

    Why not a task per operation: it would cost as much as the operation. The bodies in answers that the client has not
    read are within the memory of all readers of the node (``ReadBudget``).
    """

    _max_unanswered = _MAX_OPERATIONS

    def __init__(self, calls: MessageCalls, node: LogNode, context: Context) -> None:
        super().__init__(node, context)
        self._calls = calls
        self._access: Access | None = current_access()
        self._answers: list[_Answer] = []
        memory = node.read_budget.memory(caller_of(context))
        # Tasks are for operations that could not be begun or answered at once.
        self._fetches = FetchAnswers(calls, memory, self._add, self._start)
        # Operations that were submitted and have no result yet.
        self._open: set[asyncio.Future[Any]] = set()
        # Fetches that may wait for messages, by number.
        self._waits: dict[int, tuple[Mailbox, FetchCall]] = {}

    def _close(self) -> None:
        for done in list(self._open):
            # Fetches that wait must not lease messages for a client that has left.
            done.cancel()
        self._fetches.close()

    # -- Requests ------------------------------------------------------------------------------------------

    def _take(self, encoded: bytes) -> Coroutine[Any, Any, None]:
        if len(encoded) <= PARSE_STEP_BYTES:
            return self._begin_all(_parsed(encoded), len(encoded))
        return self._take_large(encoded)

    async def _take_large(self, encoded: bytes) -> None:
        await self._begin_all(await _parsed_in_steps(encoded), len(encoded))

    async def _begin_all(self, request: pb.OperateRequest, size_bytes: int) -> None:
        """Begin the operations of a request in order, in bounded steps."""
        count = len(request.operations)
        if self._access is not None and count > 1:
            # The first operation and all bytes were counted when the message arrived.
            await self._access.quota.received(0, count - 1)
        each_bytes = _OPERATION_BYTES + size_bytes // max(1, count)
        self._hold(count * each_bytes, count)
        parts = 0
        for operation in request.operations:
            more = _parts(operation)
            if parts and parts + more > _STEP_PARTS:
                parts = 0
                await asyncio.sleep(0)
            parts += more
            self._begin(operation, Slot(operation.number, each_bytes))
        for number in request.ended_waits:
            self._end_wait(number)

    def _begin(self, operation: pb.Operation, slot: Slot) -> None:
        """Submit an operation, at once if its mailbox is open."""
        kind = operation.WhichOneof("call")
        try:
            if kind is None:
                raise InvalidRequestError("an operation has no call: set one", field="call")
            request = getattr(operation, kind)
            if self._access is not None:
                self._access.require(Verb.MAILBOX_SEND if kind == "send" else Verb.MAILBOX_RECEIVE, request.mailbox)
            mailbox = self._calls.mailboxes.opened_by_name(request.mailbox)
            if mailbox is not None and not (kind == "send" and self._calls.bodies.must_wait((request,))):
                self._submit(slot, kind, request, mailbox)
                return
        except TidelogServerError as error:
            self._refuse(slot, error)
            return
        self._start(self._begin_later(slot, kind, request))

    async def _begin_later(self, slot: Slot, kind: str, request: Any) -> None:
        try:
            mailbox = await self._calls.mailboxes.open(request.mailbox)
            if kind == "send":
                await self._calls.bodies.prepare((request,))
            self._submit(slot, kind, request, mailbox)
        except TidelogServerError as error:
            self._refuse(slot, error)

    def _submit(self, slot: Slot, kind: str, request: Any, mailbox: Mailbox) -> None:
        """Submit an operation. Raises TidelogServerError if it is invalid."""
        call, encode = self._call_of(kind, request, mailbox)
        self._open.add(call.done)
        if isinstance(call, FetchCall) and call.wait_s > 0:
            self._waits[slot.number] = (mailbox, call)
        call.done.add_done_callback(lambda done: self._settled(slot, mailbox, encode, done))
        mailbox.submit(call)

    def _end_wait(self, number: int) -> None:
        # A fetch whose mailbox is being opened is not known here: it waits, and its client returns what it gets.
        if number in self._waits:
            mailbox, call = self._waits[number]
            mailbox.end_wait(call)

    def _call_of(self, kind: str, request: Any, mailbox: Mailbox) -> tuple[Call[Any], _Encode]:
        calls = self._calls
        match kind:
            case "send":
                return calls.send_call(mailbox, request), self._sent
            case "fetch":
                return calls.fetch_call(mailbox, request), self._fetched
            case "ack":
                return calls.ack_call(request), self._acked
            case _:
                return calls.extend_call(mailbox, request), self._extended

    # -- Answers -------------------------------------------------------------------------------------------

    def _settled(self, slot: Slot, mailbox: Mailbox, encode: _Encode, done: "asyncio.Future[Any]") -> None:
        self._open.discard(done)
        self._waits.pop(slot.number, None)
        if done.cancelled() or self._is_closed:
            return
        try:
            answer = encode(slot, mailbox, done.result())
        except TidelogServerError as error:
            self._refuse(slot, error)
        else:
            if answer is not None:
                self._add(answer, slot)

    def _sent(self, slot: Slot, _log: Mailbox, sent: Any) -> bytes:
        return sent_answer(slot.number, sent)

    def _acked(self, slot: Slot, _log: Mailbox, failures: Any) -> bytes:
        return acked_answer(slot.number, failures)

    def _extended(self, slot: Slot, _log: Mailbox, extended: Any) -> bytes:
        until, failures = extended
        return extended_answer(slot.number, until, failures)

    def _fetched(self, slot: Slot, mailbox: Mailbox, fetched: Any) -> None:
        self._fetches.put(slot, mailbox, fetched)

    def _refuse(self, slot: Slot, error: TidelogServerError) -> None:
        self._add(error_answer(slot.number, error), slot)

    def _add(self, encoded: bytes, slot: Slot, taken_bytes: int = 0) -> None:
        self._answers.append(_Answer(encoded, slot, taken_bytes))
        self._changed.set()

    # -- Responses -----------------------------------------------------------------------------------------

    async def _write_answers(self) -> None:
        while answers := self._answers:
            written = size_bytes = 0
            for answer in answers[:_MAX_RESULTS]:
                size_bytes += len(answer.encoded)
                written += 1
                if size_bytes >= _MAX_RESULT_BYTES:
                    break
            taken = answers[:written]
            del answers[:written]
            self._let_go(sum(answer.slot.size_bytes for answer in taken), written)
            await self._context.write(b"".join([answer.encoded for answer in taken]))
            self._fetches.note_written(sum(answer.taken_bytes for answer in taken))
            if self._access is not None:
                await self._access.quota.sent(size_bytes)


def _parts(operation: pb.Operation) -> int:
    """Return how much there is to convert in an operation: its messages or locks, and itself."""
    match operation.WhichOneof("call"):
        case "send":
            return 1 + len(operation.send.messages) + len(operation.send.bodies)
        case "ack":
            return 1 + len(operation.ack.confirmed) + len(operation.ack.rejected)
        case "extend":
            return 1 + len(operation.extend.lock_ids)
        case _:
            return 1


def _parsed(encoded: bytes) -> pb.OperateRequest:
    """Return a request of at most PARSE_STEP_BYTES. Raises MalformedRequestError."""
    try:
        request = pb.OperateRequest.FromString(encoded)
    except DecodeError as error:
        raise MalformedRequestError("Operate") from error
    _check_count(request)
    return request


async def _parsed_in_steps(encoded: bytes) -> pb.OperateRequest:
    """Return a request. Raises InvalidRequestError or a subclass."""
    request = pb.OperateRequest()
    try:
        await merge_in_steps(encoded, request)
    except (DecodeError, WireFormatError) as error:
        raise MalformedRequestError("Operate") from error
    _check_count(request)
    return request


def _check_count(request: pb.OperateRequest) -> None:
    operations, ended = len(request.operations), len(request.ended_waits)
    if operations + ended < 1 or max(operations, ended) > MAX_MAILBOX_BATCH:
        raise MalformedRequestError("Operate")
