"""Columns that a view does not have: read from the log, through a cache of records."""

import errno
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from tidelog_server.core.errors.storage import StorageUnreadableError
from tidelog_server.recordlog.engine import EngineUnavailableError, PositionGoneError
from tidelog_server.recordlog.records import Kind, Position, Record
from tidelog_server.storage.engine.values import Reference, unpack_value

ReadRecords: TypeAlias = Callable[[Position, int], Sequence[tuple[Position, Record | None]]]
"""Returns records from a position on, up to a number of bytes: ``RecordLog.records``."""

_READ_AHEAD_BYTES: Final = 4 << 20
# More than the cache holds would push out what is read next. A record takes up to five times its bytes in the log.
_SHARE_OF_CACHE: Final = 8
# A read this few positions behind an earlier one continues it.
_NEAR: Final = 16
MAX_RUNS: Final = 64
"""How many runs of ascending reads are followed, for as many scans at a time."""
# What an object of a record takes beside its payload.
_RECORD_BYTES: Final = 512


class RecordCache:
    """Records by position, the most recently used ones, bounded by the bytes of their payloads. Any thread.

    Attributes:
        max_bytes: Maximum of ``size_bytes``.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._records: OrderedDict[Position, Record | None] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """Bytes of what is cached, about."""
        return self._bytes

    def find(self, position: Position) -> tuple[bool, Record | None]:
        """Return whether the record at ``position`` is known, and the record; None for a foreign one."""
        with self._lock:
            if position not in self._records:
                return False, None
            self._records.move_to_end(position)
            return True, self._records[position]

    def add(self, records: Sequence[tuple[Position, Record | None]]) -> None:
        """Add records, and remove those that were not used for the longest time."""
        with self._lock:
            for position, record in records:
                if position not in self._records:
                    self._records[position] = record
                    self._bytes += _bytes_of(record)
                self._records.move_to_end(position)
            while self._bytes > self.max_bytes and self._records:
                _, removed = self._records.popitem(last=False)
                self._bytes -= _bytes_of(removed)


class References:
    """Returns the columns of values of a view. Any thread."""

    def __init__(self, read: ReadRecords, cache: RecordCache, check_owned: Callable[[], None] = lambda: None) -> None:
        """``check_owned`` raises OwnershipLostError if another process owns the log."""
        self._read = read
        self._cache = cache
        self._check_owned = check_owned
        self._runs = Runs()
        self._read_ahead_bytes = max(1, min(_READ_AHEAD_BYTES, cache.max_bytes // _SHARE_OF_CACHE))

    def columns_of(self, values: list[bytes | None]) -> list[bytes | None]:
        """Return the columns of stored values; None for those that are missing or damaged.

        Raises:
            StorageUnreadableError: The engine does not answer.
            OwnershipLostError: They are no longer in the log, and another process owns it, which may have trimmed it.
            DataLossError: A record is damaged.
        """
        found: list[bytes | None] = [None] * len(values)
        referenced: list[tuple[Reference, int]] = []
        for place, value in enumerate(values):
            unpacked = None if value is None else unpack_value(value)
            if isinstance(unpacked, Reference):
                referenced.append((unpacked, place))
            else:
                found[place] = unpacked
        # In the order of the log, so that each record is read once.
        for reference, place in sorted(referenced):
            try:
                found[place] = self._columns_at(reference)
            except PositionGoneError:
                # Trimmed; the reader knows whether the entry was. That of a former owner does not.
                self._check_owned()
                found[place] = None
            except EngineUnavailableError as error:
                raise StorageUnreadableError(f"the engine of the log: {error}", errno.ETIMEDOUT) from error
        return found

    def _columns_at(self, reference: Reference) -> bytes | None:
        record = self._record_at(reference.position)
        if record is None or record.kind is not Kind.GROUP:
            return None
        columns = record.payload[reference.offset : reference.offset + reference.length]
        if len(columns) == reference.length:
            return columns
        pieces, position, left = [columns], reference.position, reference.length - len(columns)
        while left > 0 and record.part + 1 < record.parts:
            following = self._next_part(record, position)
            if following is None:
                return None
            position, record = following
            pieces.append(record.payload[:left])
            left -= len(pieces[-1])
        return None if left else b"".join(pieces)

    def _next_part(self, record: Record, position: Position) -> tuple[Position, Record] | None:
        """Return the next record of the same term with the next number; others between do not exist."""
        while (following := self._at_or_after(position + 1)) is not None:
            position, candidate = following
            if (
                candidate is not None and candidate.incarnation == record.incarnation
                and (candidate.term, candidate.number) == (record.term, record.number + 1)
            ):  # fmt: skip
                return position, candidate
        return None

    def _record_at(self, position: Position) -> Record | None:
        found = self._at_or_after(position)
        return found[1] if found is not None and found[0] == position else None

    def _at_or_after(self, position: Position) -> tuple[Position, Record | None] | None:
        is_known, record = self._cache.find(position)
        if is_known:
            return position, record
        records = self._read_from(position)
        self._cache.add(records)
        return next((each for each in records if position <= each[0]), None)

    def _read_from(self, position: Position) -> Sequence[tuple[Position, Record | None]]:
        """Read the record at ``position``; more, if it continues an earlier read."""
        behind = self._runs.continued(position)
        records = self._read(position if behind is None else behind, 1 if behind is None else self._read_ahead_bytes)
        if behind is not None and records and records[-1][0] < position:
            records = self._read(position, 1)
        if records:
            self._runs.add(records[-1][0] + 1)
        return records


class Runs:
    """Where the last reads ended: one that begins just behind continues it, by whatever thread. Any thread."""

    def __init__(self) -> None:
        # In the order in which they were added.
        self._ends: dict[Position, None] = {}
        self._lock = threading.Lock()

    def continued(self, position: Position) -> Position | None:
        """Remove and return the end of the read that one at ``position`` continues; None if it continues none."""
        with self._lock:
            near = [end for end in self._ends if end <= position < end + _NEAR]
            if not near:
                return None
            end = max(near)
            del self._ends[end]
            return end

    def add(self, end: Position) -> None:
        """Note a read that ended before ``end``."""
        with self._lock:
            self._ends.pop(end, None)
            self._ends[end] = None
            if len(self._ends) > MAX_RUNS:
                del self._ends[next(iter(self._ends))]


def _bytes_of(record: Record | None) -> int:
    return _RECORD_BYTES + (0 if record is None else len(record.payload))
