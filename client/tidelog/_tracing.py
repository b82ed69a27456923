"""Where the client tells of what it does, to whoever asked for traces. Nothing here knows OpenTelemetry.

``hooks`` is None until ``tidelog.tracing.enable`` was called; each place that has something to tell looks at it, once a
call or batch, and that is all it costs.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import Protocol

from tidelog._batch import Batch

Metadata = tuple[tuple[str, str], ...]


class Operation(Enum):
    """What a span is about."""

    APPEND = "append"
    COMMIT = "commit"
    BROADCAST = "broadcast"
    SCAN = "scan"
    CONSUME = "consume"


class Span(Protocol):
    """An operation under way."""

    @property
    def metadata(self) -> Metadata:
        """What a call carries so that the server's spans belong to this one."""
        ...

    def note(self, *, messages: int = 0, first_tick: int | None = None) -> None:
        """Add to the number of messages, and say where the first one is."""
        ...

    def end(self, error: BaseException | None = None) -> None:
        """End the span; with what went wrong, if anything."""
        ...


class Hooks(Protocol):
    """Makes spans."""

    def within(
        self, operation: Operation, destinations: Sequence[str], *, messages: int = 0, group: str = ""
    ) -> AbstractContextManager[Span]:
        """Return a block whose calls belong to a span, which ends with it."""
        ...

    def begin(self, operation: Operation, destinations: Sequence[str]) -> Span:
        """Begin a span that lasts until it is ended."""
        ...

    def consumed(self, batch: Batch, group: str) -> None:
        """Note that a consumer was given a batch."""
        ...

    def metadata(self) -> Metadata:
        """Return what a call carries so that the server's spans belong to the present one."""
        ...


hooks: Hooks | None = None
