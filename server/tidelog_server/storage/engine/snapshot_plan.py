"""When a snapshot is due, what of the log is in use, and what follows from that. Pure: no I/O, no clock.

An engine deletes only the begin of a log. So its size depends on the oldest columns that a row refers to: a message
that is never trimmed would hold everything behind it. Where little of the oldest part of the log is in use, those
columns are written again, and the part is deleted with the next snapshot.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog_server.recordlog.records import Position

MAX_MARKS: Final = 4_096
"""Maximum number of marks of a log: at the limits, one for each 64 MiB."""


class SnapshotLimits(NamedTuple):
    """When snapshots are made, and columns are written again.

    Attributes:
        after_bytes: Minimum number of bytes by which the log grows between two snapshots.
        ratio: The same, as a multiple of the size of the last snapshot: what they take of the log is at most its
            inverse.
        unit_bytes: Size of the oldest part of the log, of which it is looked how much is in use.
        least_use: Share of the part below which what is in use is written again.
    """

    after_bytes: int = 64 << 20
    ratio: int = 8
    unit_bytes: int = 1 << 30
    least_use: float = 0.25


LIMITS: Final = SnapshotLimits()


class LogMark(NamedTuple):
    """A position, and how many bytes of the log are before it, trimmed ones included."""

    position: Position
    log_bytes: int


class LogUse(NamedTuple):
    """What of a log is in use as of a snapshot.

    Attributes:
        trim_before: The log before it is of no use, once a record names the snapshot.
        rewrite_before: Columns before it are to be written again; None if none are.
        begin_bytes: Bytes of the log before ``trim_before``, about.
        live_bytes: Bytes of the columns that rows refer to.
        marks: Marks of the log from ``trim_before`` on, to be stored in the snapshot; never empty.
    """

    trim_before: Position
    rewrite_before: Position | None
    begin_bytes: int
    live_bytes: int
    marks: Sequence[LogMark]


def is_due(limits: SnapshotLimits, grown_bytes: int, last_bytes: int) -> bool:
    """Return whether a snapshot is due.

    Args:
        limits: Limits.
        grown_bytes: Bytes by which the log has grown since the place of the last snapshot, or since its begin.
        last_bytes: Size of the last snapshot; 0 without one.
    """
    return max(limits.after_bytes, limits.ratio * last_bytes) <= grown_bytes


class UseCounter:
    """Counts the references to a log, between marks. Positions are as in references: 16 bytes, which sort like them."""

    def __init__(self, marks: Sequence[LogMark]) -> None:
        """``marks``: those of the log, at growing positions; the last one is the place of the snapshot."""
        self._marks = marks
        self._keys = [mark.position.to_bytes(16, "big") for mark in marks]
        self._used_bytes = [0] * len(marks)
        self._oldest: bytes | None = None

    def note(self, position: bytes, length: int) -> None:
        """Count a reference to ``length`` bytes at ``position``."""
        self._used_bytes[max(0, bisect_right(self._keys, position) - 1)] += length
        if self._oldest is None or position < self._oldest:
            self._oldest = position

    def result(self, limits: SnapshotLimits) -> LogUse:
        """Return what is in use, once all references are counted."""
        marks, end = self._marks, self._marks[-1]
        # The record before the place exists, so that the log never begins with one that does not.
        trim_before = end.position - 1
        if self._oldest is not None:
            trim_before = min(trim_before, int.from_bytes(self._oldest, "big"))
        first = max(0, bisect_right(self._keys, trim_before.to_bytes(16, "big")) - 1)
        begin_bytes = marks[first].log_bytes
        return LogUse(
            trim_before, self._rewrite_before(limits, first), begin_bytes, sum(self._used_bytes),
            thinned(marks[first:]),
        )  # fmt: skip

    def _rewrite_before(self, limits: SnapshotLimits, first: int) -> Position | None:
        begin_bytes = self._marks[first].log_bytes
        for behind in range(first + 1, len(self._marks)):
            part_bytes = self._marks[behind].log_bytes - begin_bytes
            if limits.unit_bytes <= part_bytes:
                used_bytes = sum(self._used_bytes[first:behind])
                # Without use, the part is trimmed anyway.
                is_sparse = 0 < used_bytes < limits.least_use * part_bytes
                return self._marks[behind].position if is_sparse else None
        return None


def thinned(marks: Sequence[LogMark]) -> Sequence[LogMark]:
    """Return marks, every other one as often as there are too many; the first one stays."""
    while len(marks) > MAX_MARKS:
        marks = marks[::2]
    return marks
