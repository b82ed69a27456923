"""Operate: operations on mailboxes in one stream, executed as they arrive and answered as they become durable."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_server.core.errors import (
    InvalidRequestError,
    MalformedRequestError,
    TidelogServerError,
)
from tidelog_server.core.limits import MAX_MAILBOX_BATCH
from tidelog_server.fold.calls import Call
from tidelog_server.log.node import LogNode
from tidelog_server.mailboxes.mailbox import Mailbox
from tidelog_server.mailboxes.waiting import FetchCall
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.duplex import Duplex
from tidelog_server.rpc.open_streams import caller_of
from tidelog_server.rpc.requests import parsed_in_steps
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


_Encode = Callable[[int, Any], bytes]
"""Takes the number and the result of an operation, and returns the answer."""


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
        # The last send to each mailbox that could not be begun at once, and is not submitted yet: later ones follow it.
        self._delayed: dict[str, asyncio.Event] = {}
        # Fetches that may wait for messages, by number.
        self._waits: dict[int, tuple[Mailbox, FetchCall]] = {}

    def _close(self) -> None:
        for done in list(self._open):
            # Fetches that wait must not lease messages for a client that has left.
            done.cancel()
        self._fetches.close()

    # -- Requests ------------------------------------------------------------------------------------------

    async def _take(self, encoded: bytes) -> None:
        """Begin the operations of a request in order, in bounded steps."""
        request, size_bytes = await parsed_in_steps(pb.OperateRequest, encoded, "Operate"), len(encoded)
        operations, ended = len(request.operations), len(request.ended_waits)
        if operations + ended < 1 or max(operations, ended) > MAX_MAILBOX_BATCH:
            raise MalformedRequestError("Operate")
        if self._access is not None and operations > 1:
            # The first operation and all bytes were counted when the message arrived.
            await self._access.quota.received(0, operations - 1)
        each_bytes = _OPERATION_BYTES + size_bytes // max(1, operations)
        self._hold(operations * each_bytes, operations)
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
            must_wait = kind == "send" and (
                request.mailbox in self._delayed or self._calls.bodies.must_wait((request,))
            )
            if mailbox is not None and not must_wait:
                self._submit(slot, kind, request, mailbox)
                return
        except TidelogServerError as error:
            self._refuse(slot, error)
            return
        self._start(self._send_later(slot, request) if kind == "send" else self._begin_later(slot, kind, request))

    def _send_later(self, slot: Slot, send: pb.SendRequest) -> Coroutine[Any, Any, None]:
        """Return a coroutine that submits a send behind those to the same mailbox that precede it in the stream."""
        before, submitted = self._delayed.get(send.mailbox), asyncio.Event()
        self._delayed[send.mailbox] = submitted

        async def follow() -> None:
            try:
                await self._begin_later(slot, "send", send, before)
            finally:
                submitted.set()
                if self._delayed[send.mailbox] is submitted:
                    del self._delayed[send.mailbox]

        return follow()

    async def _begin_later(self, slot: Slot, kind: str, request: Any, before: asyncio.Event | None = None) -> None:
        try:
            mailbox = await self._calls.mailboxes.open(request.mailbox)
            if kind == "send":
                await self._calls.bodies.prepare((request,))
            if before is not None:
                await before.wait()
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

    def _call_of(self, kind: str, request: Any, mailbox: Mailbox) -> tuple[Call[Any], _Encode | None]:
        """Return the call of an operation, and what encodes its answer; None for a fetch, which needs the bodies."""
        calls = self._calls
        match kind:
            case "send":
                return calls.send_call(mailbox, request), sent_answer
            case "fetch":
                return calls.fetch_call(mailbox, request), None
            case "ack":
                return calls.ack_call(request), acked_answer
            case _:
                return calls.extend_call(mailbox, request), lambda number, result: extended_answer(number, *result)

    # -- Answers -------------------------------------------------------------------------------------------

    def _settled(self, slot: Slot, mailbox: Mailbox, encode: _Encode | None, done: "asyncio.Future[Any]") -> None:
        self._open.discard(done)
        self._waits.pop(slot.number, None)
        if done.cancelled() or self._is_closed:
            return
        try:
            result = done.result()
            if encode is None:
                self._fetches.put(slot, mailbox, result)
            else:
                self._add(encode(slot.number, result), slot)
        except TidelogServerError as error:
            self._refuse(slot, error)

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
