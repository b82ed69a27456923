"""The operations of a stream Operate, and the queue in which they wait and are answered. Pure: no I/O, no clock.

An operation is encoded once, as a whole element of OperateRequest: its number stays the same when it is sent again, and
a request is the concatenation of its operations.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from itertools import count
from math import inf
from typing import Any, Final

from tidelog.errors import (
    AppendUnknownError,
    DeadlineError,
    InvalidRequestError,
    TidelogError,
    UnauthenticatedError,
    UnavailableError,
    copy_of,
)
from tidelog.transport.calls import closed_error
from tidelog.transport.pipeline import After, Queue
from tidelog.transport.status import error_of_answer
from tidelog.transport.transport import deadline_error
from tidelog.v1 import error_pb2
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog.wire.protowire import varint

MAX_OPERATIONS: Final = 1_000
"""Operations of one request, and of each kind in flight: those that wait for messages, and all others."""
_REQUEST_BYTES: Final = 1 << 20
_OPERATION: Final = b"\x0a"
_NUMBER: Final = b"\x08"
_ENDED_WAIT: Final = b"\x10"


class Action(IntEnum):
    """What an operation does, by the field number of its request."""

    SEND = 2
    FETCH = 3
    ACK = 4
    EXTEND = 5


_FIELDS: Final = {call: bytes((call << 3 | 2,)) for call in Action}
_NAMES: Final = {
    Action.SEND: "the send",
    Action.FETCH: "the fetch",
    Action.ACK: "the acknowledgement",
    Action.EXTEND: "the extension",
}


class Operation:
    """A call in a stream.

    Attributes:
        number: Its number in the stream.
        encoded: Its element of OperateRequest.
        call: What it does.
        deadline_s: When it fails, by the clock of the event loop.
        future: Receives the answer. The awaiting caller may cancel it.
        waits: Whether it is a fetch that may wait for messages.
        is_repeatable: Whether it is sent again when its answer was lost.
        was_sent: Whether it may have reached the server.
        was_repeated: Whether it was sent again after its answer had been lost.
        abandoned: Called with the answer if the caller no longer waits for it.
    """

    __slots__ = (
        "abandoned", "call", "deadline_s", "encoded", "future", "is_repeatable", "number", "waits", "was_repeated",
        "was_sent",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        call: Action,
        request: bytes,
        future: "asyncio.Future[Any]",
        *,
        deadline_s: float = inf,
        waits: bool = False,
        is_repeatable: bool = True,
        abandoned: Callable[[Any], None] | None = None,
    ) -> None:
        fields = _NUMBER + varint(number) + _FIELDS[call] + varint(len(request))
        self.number = number
        self.encoded = b"".join((_OPERATION, varint(len(fields) + len(request)), fields, request))
        self.call = call
        self.deadline_s = deadline_s
        self.future = future
        self.waits = waits
        self.is_repeatable = is_repeatable
        self.abandoned = abandoned
        self.was_sent = self.was_repeated = False

    def fail(self, error: TidelogError) -> None:
        """Fail the operation with a copy of ``error``, whose effect is unknown if the operation may have been sent."""
        if not self.future.done():
            self.future.set_exception(copy_of(error, "unknown" if self.was_sent else "none"))

    def abandon(self) -> None:
        """Note that the caller was cancelled, possibly after the answer had come."""
        future = self.future
        if self.abandoned is not None and future.done() and not future.cancelled() and future.exception() is None:
            self.abandoned(future.result())

    def refuse_size(self, max_bytes: float) -> None:
        """Fail the operation because it is larger than the server accepts."""
        self.was_sent = self.was_repeated
        size_bytes = len(self.encoded)
        self.fail(
            InvalidRequestError(
                f"{_NAMES[self.call]} has {size_bytes} bytes, at most {max_bytes:.0f} are allowed: send fewer messages",
                values={"bytes": str(size_bytes), "max_bytes": f"{max_bytes:.0f}"},
            )
        )

    def lose(self, why: object) -> None:
        """Fail the operation, which was sent, because its outcome is unknown."""
        if not self.future.done():
            self.future.set_exception(_unknown(self.call, why))


class OperationQueue(Queue):
    """Operations of one stream after another. Those that wait for messages never delay others."""

    # Each operation has a deadline.
    gives_up = False

    def __init__(self, *, max_bytes: int, timeout_s: float) -> None:
        """Create the queue; at most about ``max_bytes`` of operations are in flight at a time.

        ``timeout_s`` is the timeout of an operation for the texts of errors.
        """
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._numbers = count(1)
        # The waiting ones by whether they wait for messages; those to be sent again are in front.
        self._waiting: dict[bool, deque[Operation]] = {False: deque(), True: deque()}
        self._in_flight: dict[int, Operation] = {}
        self._fetches_in_flight = 0
        self._bytes_in_flight = 0
        # Fetches in flight whose callers have left: the server ends their waits.
        self._ended_waits: deque[int] = deque()

    @property
    def is_idle(self) -> bool:
        """Whether no caller waits for an operation."""
        return all(operation.future.done() for operation in self._all())

    @property
    def has_waiting(self) -> bool:
        """Whether operations wait to be sent, or ends of waits."""
        return any(self._waiting.values()) or bool(self._ended_waits)

    @property
    def has_waits(self) -> bool:
        """Whether fetches that wait for messages are in flight, even if their callers have left."""
        return self._fetches_in_flight > 0

    def next_number(self) -> int:
        """Return the number of a new operation."""
        return next(self._numbers)

    def put(self, operation: Operation) -> None:
        """Add an operation, behind all others of its kind."""
        self._waiting[operation.waits].append(operation)

    def next_request(self) -> bytes | None:
        """Return the next OperateRequest, encoded, and count its operations as in flight; None without one."""
        ended = self._take_ended_waits()
        encoded: list[bytes] = []
        size_bytes = 0
        for waits in (False, True):
            waiting = self._waiting[waits]
            while waiting and len(encoded) < MAX_OPERATIONS and size_bytes < _REQUEST_BYTES and self._has_room(waits):
                operation = waiting.popleft()
                if operation.future.done():
                    continue
                operation.was_sent = True
                self._in_flight[operation.number] = operation
                self._fetches_in_flight += waits
                self._bytes_in_flight += len(operation.encoded)
                encoded.append(operation.encoded)
                size_bytes += len(operation.encoded)
        return b"".join(encoded + ended) if encoded or ended else None

    def _take_ended_waits(self) -> list[bytes]:
        """Remove some of the fetches whose waits are to be ended, and return their numbers, encoded."""
        ended: list[bytes] = []
        while self._ended_waits and len(ended) < MAX_OPERATIONS:
            number = self._ended_waits.popleft()
            # It may have been answered meanwhile.
            if number in self._in_flight:
                ended.append(_ENDED_WAIT + varint(number))
        return ended

    def _has_room(self, waits: bool) -> bool:
        fetches = self._fetches_in_flight
        if (fetches if waits else len(self._in_flight) - fetches) >= MAX_OPERATIONS:
            return False
        return self._bytes_in_flight < self._max_bytes

    def leave(self, operation: Operation) -> None:
        """Note that the caller of an operation has left: the server ends its wait, if it has one."""
        operation.abandon()
        if operation.waits and operation.number in self._in_flight:
            self._ended_waits.append(operation.number)

    def answered(self, response: pb.OperateResponse) -> After:
        """Settle the operations that ``response`` answers."""
        after = After.CONTINUE
        for result in response.results:
            self.settle(result)
            if result.HasField("error") and result.error.detail.reason == error_pb2.REASON_ON_SHUTDOWN:
                after = After.FINISH
        return after

    def settle(self, result: pb.OperationResult) -> None:
        """Settle the operation that ``result`` answers."""
        operation = self._in_flight.pop(result.number, None)
        if operation is None:
            return
        self._fetches_in_flight -= operation.waits
        self._bytes_in_flight -= len(operation.encoded)
        kind = result.WhichOneof("answer")
        answer = getattr(result, kind) if kind else None
        if operation.future.done():
            if kind != "error" and operation.abandoned is not None:
                operation.abandoned(answer)
        elif kind == "error":
            error = error_of_answer(result.error)
            # After a refusal without effect, the next attempt is a first one.
            operation.was_sent = operation.was_repeated or error.effect != "none"
            operation.future.set_exception(error)
        else:
            operation.future.set_result(answer)

    def may_pass(self, error: TidelogError, *, can_renew_token: bool) -> bool:
        """Return whether the next stream may succeed."""
        return isinstance(error, UnavailableError) or (can_renew_token and isinstance(error, UnauthenticatedError))

    def interrupted(self, reason: TidelogError, max_request_bytes: float = inf) -> None:
        """Handle the end of a stream: put unanswered operations in front again, or fail them as unknown.

        Those larger than ``max_request_bytes`` were refused by gRPC, which ended the stream.
        """
        lost = list(self._in_flight.values())
        self._in_flight.clear()
        self._ended_waits.clear()
        self._fetches_in_flight = self._bytes_in_flight = 0
        for operation in reversed(lost):
            if len(operation.encoded) > max_request_bytes:
                operation.refuse_size(max_request_bytes)
            elif operation.is_repeatable:
                operation.was_repeated = True
                self._waiting[operation.waits].appendleft(operation)
            else:
                operation.lose(reason)

    def refused(self, error: TidelogError) -> None:
        """Fail all operations that wait to be sent."""
        self.unreachable(error, may_pass=False)

    def unreachable(self, error: TidelogError, *, may_pass: bool) -> None:
        """Fail all operations that wait to be sent; if the error may pass, not those that were sent before.

        These are retried until their deadline: whether they had an effect is unknown.
        """
        for waiting in self._waiting.values():
            several = list(waiting)
            waiting.clear()
            for operation in several:
                if may_pass and operation.was_sent:
                    waiting.append(operation)
                else:
                    operation.fail(error)

    def end_waits(self) -> None:
        """Fail all fetches that wait for messages: the client is being closed."""
        error = closed_error()
        for operation in self._all():
            if operation.waits and not operation.future.done():
                operation.fail(error)
                self.leave(operation)

    def closed(self, why: str) -> None:
        """Fail everything: sends that were sent as unknown, all others as closed."""
        error = closed_error()
        for operation in self._all():
            if operation.was_sent and operation.call is Action.SEND:
                operation.lose(why)
            else:
                operation.fail(error)

    def expire(self, now_s: float) -> float:
        """Fail operations whose deadline has passed; return the next deadline, infinity without one."""
        next_s = inf
        for operation in self._all():
            if operation.future.done():
                continue
            if operation.deadline_s > now_s:
                next_s = min(next_s, operation.deadline_s)
            elif operation.waits and operation.was_repeated:
                # Its wait began again on another stream.
                operation.future.set_result(pb.FetchResponse())
                self.leave(operation)
            elif not operation.was_sent:
                operation.future.set_exception(deadline_error(_NAMES[operation.call], self._timeout_s))
            elif operation.is_repeatable:
                operation.future.set_exception(_late(operation.call, self._timeout_s))
                self.leave(operation)
            else:
                operation.lose(f"within {self._timeout_s:.1f} s")
        return next_s

    def _all(self) -> list[Operation]:
        return [*self._in_flight.values(), *self._waiting[False], *self._waiting[True]]


def _unknown(call: Action, why: object) -> AppendUnknownError:
    text = f"{_NAMES[call]} was sent but not answered ({why}): its messages may or may not be in the mailbox"
    return AppendUnknownError(text, effect="unknown")


def _late(call: Action, timeout_s: float) -> DeadlineError:
    text = f"{_NAMES[call]} was sent but not answered within {timeout_s:.1f} s: it may have taken effect"
    return DeadlineError(text, effect="unknown")
