"""Operations that wait for their step: what a mailbox executes, and what its caller awaits."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from tidelog_server.core.callers import NO_TENANT, Tenant
from tidelog_server.core.errors import TidelogServerError
from tidelog_server.mailboxes.operations import Fetched, Step
from tidelog_server.storage.rows import Row

Result = TypeVar("Result")

SMALL_BYTES: Final = 256
"""Bytes of events that an operation without bodies adds, about."""


@dataclass(slots=True, eq=False)
class Call(Generic[Result]):
    """An operation on a mailbox.

    Attributes:
        execute: Decides and changes the state, in one step. It raises TidelogServerError if it is refused.
        events: Maximum number of events that it adds.
        size_bytes: Maximum size of these events.
        blob_events: Maximum number of events that it adds to the log of the blobs.
        needs_disk: True if it is refused while the disk is nearly full.
        rows: Changes of rows that are written with its events.
        done: Receives the result once everything it depends on is durable.
    """

    execute: Callable[[Step], Result]
    events: int
    size_bytes: int = SMALL_BYTES
    blob_events: int = 0
    needs_disk: bool = False
    rows: Sequence[Row] = ()
    done: "asyncio.Future[Result]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def is_open(self) -> bool:
        """True while the operation has no result and its caller has not left."""
        return not self.done.done()

    def detach(self) -> None:
        """Note that no caller awaits the result: its error is not reported as unhandled."""
        self.done.add_done_callback(_see_error)

    def fail(self, error: BaseException) -> None:
        """End the operation with an error, unless its caller has left."""
        if not self.done.done():
            self.done.set_exception(error)

    def succeed(self, result: Result) -> None:
        """End the operation with its result, unless its caller has left."""
        if not self.done.done():
            self.done.set_result(result)


def _see_error(done: "asyncio.Future[Any]") -> None:
    if not done.cancelled():
        done.exception()


@dataclass(slots=True, eq=False)
class FetchCall(Call[Fetched]):
    """A fetch that waits for messages.

    Attributes:
        wait_s: Seconds to wait for the first message.
        timer: Ends the wait.
        tenant: Tenant of the caller, to which the wait counts.
    """

    wait_s: float = 0.0
    timer: asyncio.TimerHandle | None = None
    tenant: Tenant = NO_TENANT


class WaitingFetches:
    """Fetches that wait for messages, in the order in which they came.

    Each leaves when it is served, its caller leaves, or its time is over. ``bounds`` bounds their number.
    """

    def __init__(self) -> None:
        self._calls: OrderedDict[FetchCall, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._calls)

    def __contains__(self, call: FetchCall) -> bool:
        return call in self._calls

    def add(self, call: FetchCall) -> None:
        """Let a fetch wait; it is answered without messages after ``wait_s``."""
        self._calls[call] = None
        call.timer = asyncio.get_running_loop().call_later(call.wait_s, call.succeed, Fetched((), 0))
        call.done.add_done_callback(lambda _: self.remove(call))

    def remove(self, call: FetchCall) -> None:
        """Let a fetch wait no longer; it receives no answer from here. Idempotent."""
        self._calls.pop(call, None)
        if call.timer is not None:
            call.timer.cancel()
            call.timer = None

    def first(self) -> FetchCall | None:
        """Return the oldest fetch; None without one."""
        return next(iter(self._calls), None)

    def take_all(self) -> Iterator[FetchCall]:
        """Remove and yield all fetches."""
        while (call := self.first()) is not None:
            self.remove(call)
            yield call


@dataclass(slots=True, eq=False)
class PendingStep:
    """A step between its submission and its durability.

    Attributes:
        answers: Operations and their results, in order.
    """

    answers: list[tuple[Call[Any], Any]] = field(default_factory=list)

    def settle(self, failure: TidelogServerError | None) -> list[Fetched]:
        """Answer all operations; return what was fetched for callers that have left."""
        left: list[Fetched] = []
        for call, result in self.answers:
            if failure is not None:
                call.fail(failure)
            elif call.done.cancelled() and isinstance(result, Fetched) and result.grants:
                left.append(result)
            else:
                call.succeed(result)
        return left
