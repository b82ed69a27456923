"""What the end of a log tells, without reading all of it."""

from typing import Final, NamedTuple

from tidelog_server.recordlog.engine import Bounds, ReadableLog
from tidelog_server.recordlog.reads import reads
from tidelog_server.recordlog.records import Kind, Position, Record, unpack_record
from tidelog_server.runtime.clock import Clock

# An engine may use positions for marks of its own, and other programs may append records.
_MAX_POSITIONS: Final = 32


class Overview(NamedTuple):
    """The end of a log.

    Attributes:
        bounds: What the engine has.
        term: Term of the last record; None if the last positions have no record of a log.
        sequence: Number of entries up to the last record of rows among the last positions; None without one.
    """

    bounds: Bounds
    term: int | None
    sequence: int | None


def overview(log: ReadableLog, clock: Clock) -> Overview:
    """Return what the last records of a log tell.

    Raises:
        EngineUnavailableError: The engine does not answer, or does not show what it has.
        PositionGoneError: The log was trimmed meanwhile.
        DataLossError: A record is damaged.
    """
    bounds = log.bounds()
    term: int | None = None
    position = bounds.end
    for _ in range(_MAX_POSITIONS):
        if position <= bounds.begin:
            break
        position = max(bounds.begin, log.before(position, 1))
        if (record := _record_at(log, clock, position)) is None:
            continue
        term = record.term if term is None else term
        if record.kind is not Kind.FENCE:
            return Overview(bounds, term, record.after.sequence)
    return Overview(bounds, term, None)


def _record_at(log: ReadableLog, clock: Clock, position: Position) -> Record | None:
    found = (each for read in reads(log, clock, position, position + 1, 1) for each in read.records)
    return next((unpack_record(*each) for each in found if each.position == position), None)
