"""What a record log needs of an engine: the contract of every implementation."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from tidelog_server.recordlog.records import Position


class Stored(NamedTuple):
    """A record as the engine has it."""

    position: Position
    value: bytes


class Read(NamedTuple):
    """What a read has returned.

    Attributes:
        records: Records, in order.
        next: Where the next read continues: the log has no other record before it, from where this one began.
    """

    records: Sequence[Stored]
    next: Position


class Bounds(NamedTuple):
    """The part of the log that the engine has: from ``begin`` up to, and without, ``end``."""

    begin: Position
    end: Position


Report: TypeAlias = Callable[[Position | Exception], None]
"""Called once with the position of a record, or with what says that it is unknown whether it was stored."""


class ReadableLog(Protocol):
    """The part of a ``LogEngine`` that reads. What an implementation does not state holds for dense positions."""

    def read(self, begin: Position, max_bytes: int, wait_s: float = 0.0) -> Read:
        """Return records from ``begin`` on. It ends with the record that brings it to ``max_bytes``, or before.

        If none is there, it waits for one, at most ``wait_s`` seconds; one thread at a time. It may return nothing, and
        come no further than ``begin``, although ``bounds`` says that there is more: see ``reads``. An engine may use
        positions for marks of its own; a read passes them.

        Raises:
            PositionGoneError: The engine has deleted records at or after ``begin``.
            EngineUnavailableError: The engine does not answer.
        """
        ...

    def bounds(self) -> Bounds:
        """Return what the engine has now.

        Raises:
            EngineUnavailableError: The engine does not answer.
        """
        ...

    def before(self, position: Position, count: int) -> Position:
        """Return the position that is ``count`` positions before ``position``; at most the begin if there are fewer.

        There may be fewer records between: an engine uses positions for marks of its own.

        Raises:
            EngineUnavailableError: The engine does not answer.
        """
        return max(0, position - count)


class LogEngine(ReadableLog, Protocol):
    """A log to which any process may append any record. Positions grow; positions of trimmed records are not reused.

    Threads: ``send`` and ``poll``, and reads that wait, may be called by any thread, one at a time each; the others by
    any thread at any time. Reports are made by ``poll``. What an implementation does not state holds for an engine that
    admits every process and gives dense positions.
    """

    def send(self, value: bytes, report: Report) -> None:
        """Append a record after all that were sent before; return at once.

        A record may be stored twice, or after a later one: readers expect it.

        Raises:
            EngineUnavailableError: Too much waits to be sent. It was not appended, and no report will be made.
        """
        ...

    def poll(self, timeout_s: float) -> None:
        """Make the reports that are due; without one, wait for one, at most ``timeout_s`` seconds.

        Raises:
            EngineUnavailableError: The engine refuses this client. Later calls report what was sent.
            AppendsRefusedError: The engine lets another process append. Nothing more is appended until ``resume``.
        """
        ...

    def resume(self) -> None:
        """After ``AppendsRefusedError``: append again, in order, all that is not reported, and what is sent later.

        It makes the engine refuse the appends of other processes. What was not reported may be stored twice.

        Raises:
            EngineUnavailableError: The engine does not answer; try again.
        """
        return

    def length(self, begin: Position, end: Position) -> int:
        """Return how many positions are between, as far as the last ``bounds`` told. Does no I/O."""
        return max(0, end - begin)

    def trim(self, before: Position) -> None:
        """Allow the engine to delete what is before ``before``; it may delete less.

        Raises:
            EngineUnavailableError: The engine does not answer.
        """
        ...

    def rest(self) -> None:
        """Release what earlier reads have left ready and none has used for a second. Called each second or so."""
        ...

    def close(self) -> None:
        """Release everything. What was sent and not reported may be stored. Idempotent."""
        ...


class EngineUnavailableError(Exception):
    """The engine does not answer; nothing is known to be wrong with the log."""


class AppendsRefusedError(Exception):
    """Another process appends, and the engine admits one at a time. Whether it owns the log is in the log."""


class LogSetupError(Exception):
    """A log, its engine or the options of its client are not as they must be. The text says what to change."""


class LogDeniedError(LogSetupError, EngineUnavailableError):
    """The engine does not permit this server an operation, which the text names.

    It ends a start. A server that runs waits, as for an engine that does not answer: the permission may come back.
    """


class LogMissingError(LogSetupError):
    """There is no log of this name. A server never creates one."""


class LogExistsError(LogSetupError):
    """There is a log of this name."""


class PositionGoneError(Exception):
    """Records that were asked for are no longer in the engine."""

    def __init__(self, position: Position, begin: Position) -> None:
        super().__init__(f"records from position {position} were asked for; the log begins at position {begin}")
        self.begin = begin
