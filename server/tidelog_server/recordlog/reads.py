"""Reads of a log that miss nothing: an engine may show a record later than it has reported it.

A read that returns nothing says nothing about the end of a log. The end that ``bounds`` gives does, and a read says how
far it came, also over positions that have no record.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from tidelog_server.recordlog.engine import EngineUnavailableError, Read, ReadableLog, Stored
from tidelog_server.recordlog.records import Position
from tidelog_server.runtime.clock import Clock

_SHOWN_WITHIN_S: Final = 10.0


def reads(log: ReadableLog, clock: Clock, begin: Position, end: Position, max_bytes: int) -> Iterator[Read]:
    """Read what a log has from ``begin`` up to ``end``, which is not above its end; the last read may have more.

    Args:
        log: The log.
        clock: Source of time.
        begin: Position of the first record.
        end: Position behind the last one.
        max_bytes: Bytes of each read; see ``LogEngine.read``.

    Raises:
        PositionGoneError: The engine has deleted records of it.
        EngineUnavailableError: The engine does not answer, or does not show what it has.
    """
    while begin < end:
        deadline_s = clock.monotonic_s() + _SHOWN_WITHIN_S
        while (read := log.read(begin, max_bytes)).next == begin:
            if deadline_s <= clock.monotonic_s():
                raise EngineUnavailableError(
                    f"what is at position {begin} was not shown for {_SHOWN_WITHIN_S:.0f} s, and the log ends at {end}"
                )
        yield read
        begin = read.next


def records_at(log: ReadableLog, clock: Clock, begin: Position, max_bytes: int) -> Sequence[Stored]:
    """Return the next records from ``begin`` on; empty only at the end of the log. Raises as ``reads``."""
    read = log.read(begin, max_bytes)
    while not read.records and read.next < (end := log.bounds().end):
        read = next(reads(log, clock, read.next, end, max_bytes))
    return read.records
