"""Hooks through which the client reports its operations, for traces and metrics. It does not depend on OpenTelemetry.

``hooks`` is None until ``tidelog.tracing.enable`` or ``enable_metrics`` is called. Without, the only cost is one check
of ``hooks`` per call or batch.
"""

from collections.abc import Callable, Sequence
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
    PROCESS = "process"


class Span(Protocol):
    """An operation in progress."""

    @property
    def metadata(self) -> Metadata:
        """Call metadata that makes the server's spans children of this one."""

    def note(self, *, messages: int = 0, first_tick: int | None = None) -> None:
        """Add to the number of messages, and record the tick of the first one."""

    def end(self, error: BaseException | None = None) -> None:
        """End the span, and record ``error`` if it failed."""


class Hooks(Protocol):
    """Creates spans, and measures. ``endpoint`` is the address of the server in each call."""

    def within(
        self, operation: Operation, destinations: Sequence[str], endpoint: str, *, messages: int = 0
    ) -> AbstractContextManager[Span]:
        """Return a context manager for a span; calls in the block belong to it, and it ends with the block."""

    def begin(self, operation: Operation, destinations: Sequence[str], endpoint: str, *, group: str = "") -> Span:
        """Begin a span that lasts until ``Span.end``; with ``group`` for a consumer, which reports deliveries."""

    def sends(self, vchannel: str, endpoint: str) -> Callable[[int, BaseException | None], None] | None:
        """Measure a batch sent now. Return what to call with its number of messages and its error; None if nothing."""

    def consumed(self, batch: Batch, group: str, endpoint: str) -> None:
        """Record that a consumer delivered a batch."""

    def processed(
        self, vchannels: Sequence[str], group: str, endpoint: str, duration_s: float, error: BaseException | None
    ) -> None:
        """Record how long the caller of a consumer took for batches of ``vchannels``, and why it failed."""

    def metadata(self) -> Metadata:
        """Return call metadata that makes the server's spans children of the current one."""


hooks: Hooks | None = None
