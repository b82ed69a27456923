"""Operations that wait for their step: what a folded log executes, and what its caller awaits."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, TypeVar

from tidelog_server.storage.rows import Row

Result = TypeVar("Result")

SMALL_BYTES: Final = 256
"""Bytes of events that an operation without bodies adds, about."""


@dataclass(slots=True, eq=False)
class Call(Generic[Result]):
    """An operation.

    Attributes:
        execute: Decides and changes the state, in one step. It raises TidelogServerError if it is refused.
        events: Maximum number of events that it adds.
        size_bytes: Maximum size of these events.
        joined_events: Maximum number of events that it adds to another log, in the same write.
        needs_disk: True if it is refused while the disk is nearly full.
        rows: Changes of rows that are written with its events.
        done: Receives the result once everything it depends on is durable.
        can_wait: True if it may wait for a later step after it was executed.
    """

    can_wait: ClassVar[bool] = False

    execute: Callable[[Any], Result]
    events: int
    size_bytes: int = SMALL_BYTES
    joined_events: int = 0
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


Answers = list[tuple[Call[Any], Any]]
"""The operations of a step and their results, in order, between its submission and its durability."""
