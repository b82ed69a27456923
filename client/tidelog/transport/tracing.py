"""Hooks through which the client reports its operations for tracing. This module does not depend on OpenTelemetry.

``hooks`` is None until ``tidelog.tracing.enable`` is called. Without tracing, the only cost is one check of ``hooks``
per call or batch.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import Protocol

from tidelog.wire.batch import Batch

Metadata = tuple[tuple[str, str], ...]


class Operation(Enum):
    """Kind of operation of a span."""

    APPEND = "append"
    COMMIT = "commit"
    BROADCAST = "broadcast"
    SCAN = "scan"
    CONSUME = "consume"


class Span(Protocol):
    """An operation in progress."""

    @property
    def metadata(self) -> Metadata:
        """Call metadata that makes the server's spans children of this one."""
        ...

    def note(self, *, messages: int = 0, first_tick: int | None = None) -> None:
        """Add to the number of messages, and record the tick of the first one."""
        ...

    def end(self, error: BaseException | None = None) -> None:
        """End the span, and record ``error`` if it failed."""
        ...


class Hooks(Protocol):
    """Creates spans."""

    def within(
        self, operation: Operation, destinations: Sequence[str], *, messages: int = 0, group: str = ""
    ) -> AbstractContextManager[Span]:
        """Return a context manager for a span; calls in the block belong to it, and it ends with the block."""
        ...

    def begin(self, operation: Operation, destinations: Sequence[str]) -> Span:
        """Begin a span that lasts until ``Span.end``."""
        ...

    def consumed(self, batch: Batch, group: str) -> None:
        """Record that a consumer delivered a batch."""
        ...

    def metadata(self) -> Metadata:
        """Return call metadata that makes the server's spans children of the current one."""
        ...


hooks: Hooks | None = None
