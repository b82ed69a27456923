"""The rules of the log: which records exist, and when an owner may count on one. Pure: no I/O, no clock.

Any process may append any record at any time: engines do not refuse those of a former owner. So readers skip them, and
an owner counts only on records that no reader skips. All processes read the same records at the same positions, and
``Reader`` is a function of them, so all of them see the same log.

1. Each record has its term, and its number within the term.
2. Record 0 of a term is a FENCE. It counts only if its term is greater than that of every FENCE before it.
3. A record with another term than the last FENCE that counts, or with another number than the next one, does not exist.
4. A process owns the log in term *t* if its own FENCE of *t* counts, and once it has read all records before it.
5. The owner confirms its records in order. One that lies directly behind what it has read or confirmed exists. If other
   records may lie between, it reads them first: if a FENCE there counts, the term is over; else they change nothing.

Proof of 5: a record of term *t* with number *n* at position *p* exists iff no FENCE with a greater term lies before
*p*, records 0 to *n* - 1 exist before it, and no copy of it does. Rule 4 shows the first condition up to the FENCE, and
each confirmation extends it to the record; numbers are confirmed in order, at growing positions. The log before *p*
does not change, so what is confirmed exists permanently. No clock occurs in this.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from tidelog_server.recordlog.records import CLAIM_BYTES, EMPTY, Kind, Mark, Position, Record, damaged


class Fence(NamedTuple):
    """A FENCE that counts.

    Attributes:
        position: Its position.
        term: The term that it begins.
        incarnation: Identity of the log.
        origin: Origin of the log, if it is its first record.
    """

    position: Position
    term: int
    incarnation: bytes
    origin: bytes = b""


class Group(NamedTuple):
    """A complete group.

    Attributes:
        positions: Positions of its parts.
        term: Its term.
        number: Number of its first part.
        payloads: Payloads of its parts.
        after: The store after it.
        snapshot: The newest complete snapshot that it names.
    """

    positions: Sequence[Position]
    term: int
    number: int
    payloads: Sequence[bytes]
    after: Mark
    snapshot: Position | None

    @property
    def position(self) -> Position:
        """Position of its first part."""
        return self.positions[0]

    @property
    def end(self) -> Position:
        """Position of its last part."""
        return self.positions[-1]


class SnapshotPart(NamedTuple):
    """A part of a snapshot.

    Attributes:
        position: Its position.
        term: Its term.
        part: Which part it is, from 0.
        is_last: Whether the snapshot ends with it.
        payload: Its rows.
    """

    position: Position
    term: int
    part: int
    is_last: bool
    payload: bytes


Taken: TypeAlias = Fence | Group | SnapshotPart
"""What a record completes."""


class ReaderState(NamedTuple):
    """What a reader knows of the log before a position, with no group begun.

    Attributes:
        incarnation: Identity of the log; empty before its first record.
        term: Term of the last FENCE that counts; -1 before the first.
        number: The next number of that term.
        mark: The store after the last group.
        snapshot: The snapshot that the last record named.
    """

    incarnation: bytes
    term: int
    number: int
    mark: Mark
    snapshot: Position | None


START: Final = ReaderState(b"", -1, 0, EMPTY, None)
"""The state before the first record of a log."""


class Reader:
    """Reads a log by rules 2 and 3, from any position whose state is known.

    Attributes:
        incarnation, term, number, mark, snapshot: As in ``ReaderState``, after the last record taken.
        claim: Identity of the claim of the last FENCE that counts; empty if this reader has not taken it.
        foreign: Number of records that are not of this log.
        fenced: Number of records that do not exist, by rules 2 and 3.
    """

    def __init__(self, state: ReaderState) -> None:
        self.incarnation, self.term, self.number, self.mark, self.snapshot = state
        self.claim = b""
        self.foreign = self.fenced = 0
        self._parts: list[tuple[Position, Record]] = []

    @property
    def state(self) -> ReaderState:
        """The state from which another reader may continue; only between groups (asserted)."""
        assert not self._parts
        return ReaderState(self.incarnation, self.term, self.number, self.mark, self.snapshot)

    def take(self, position: Position, record: Record | None) -> Taken | None:
        """Take the next record of the log; return what it completes. ``None`` stands for a foreign record.

        Raises:
            DataLossError: The record contradicts the log: records before it are missing, or were changed.
        """
        if record is None or (self.incarnation and record.incarnation != self.incarnation):
            self.foreign += 1
            return None
        if record.kind is Kind.FENCE:
            return self._take_fence(position, record)
        if record.term > self.term:
            raise damaged(position, f"it has term {record.term}, and the FENCE of that term is missing")
        if record.term < self.term or record.number != self.number:
            self.fenced += 1
            return None
        self.number += 1
        self.snapshot = record.snapshot
        if record.kind is Kind.SNAPSHOT:
            return self._take_snapshot_part(position, record)
        return self._take_part(position, record)

    def _take_fence(self, position: Position, record: Record) -> Fence | None:
        if record.term <= self.term:
            self.fenced += 1
            return None
        self.incarnation, self.claim = record.incarnation, record.payload
        self.term, self.number = record.term, 1
        # A group that the FENCE divides does not exist.
        self.fenced += len(self._parts)
        self._parts = []
        return Fence(position, record.term, record.incarnation, record.payload[CLAIM_BYTES:])

    def _take_snapshot_part(self, position: Position, record: Record) -> SnapshotPart:
        if self._parts:
            raise damaged(position, "it is a part of a snapshot, between parts of a group")
        if record.parts not in (0, record.part + 1):
            raise damaged(position, f"it is part {record.part} of {record.parts} of a snapshot")
        self._check_mark(position, record)
        return SnapshotPart(position, record.term, record.part, record.parts > 0, record.payload)

    def _take_part(self, position: Position, record: Record) -> Group | None:
        parts = self._parts[0][1].parts if self._parts else record.parts
        if record.part != len(self._parts) or record.parts != parts or record.parts <= record.part:
            raise damaged(
                position, f"it is part {record.part} of {record.parts}, expected part {len(self._parts)} of {parts}"
            )
        self._check_mark(position, record)
        self._parts.append((position, record))
        if len(self._parts) < record.parts:
            return None
        taken, self._parts = self._parts, []
        self.mark = record.after
        positions = [place for place, _ in taken]
        payloads = [part.payload for _, part in taken]
        return Group(positions, record.term, taken[0][1].number, payloads, record.after, record.snapshot)

    def _check_mark(self, position: Position, record: Record) -> None:
        if record.before != self.mark:
            raise damaged(
                position,
                f"it follows entry {record.before.sequence} with another chain hash than entry {self.mark.sequence}, "
                "the last one before it",
            )


class FencedError(Exception):
    """Another process owns the log, in a greater term: this one must stop. What was not confirmed is unknown."""

    def __init__(self, term: int, by_term: int) -> None:
        super().__init__(f"the log was claimed in term {by_term}; this process claimed it in term {term}")
        self.by_term = by_term


class TenureEndedError(Exception):
    """The engine does not say where a record is: this process must stop. What was not confirmed is unknown."""


class Tenure:
    """Confirms the records of an owner, in order, by the positions that the engine reports (rule 5).

    For engines with dense positions: the one after *p* is *p* + 1, even if some have no record. Before ``confirm(p)``
    call ``passed`` with the records at ``unread_before(p)``, and then ``all_passed(p)``. Owner and readers take records
    by the same ``Reader``.
    """

    def __init__(self, reader: Reader, fence: Position) -> None:
        """Begin the tenure of the last FENCE that ``reader`` took, once it has taken all records up to ``fence``."""
        self._reader = reader
        self._term = reader.term
        # Everything before this position was taken.
        self._expected = fence + 1

    def unread_before(self, position: Position) -> range:
        """Return the positions of the records to pass before the one at ``position``: they may be of others."""
        return range(self._expected, position)

    def passed(self, position: Position, record: Record | None) -> Taken | None:
        """Take a record that lies between two confirmed ones; return what it completes.

        It may be a copy of a record that is not confirmed yet: then the copy is the one that exists.

        Raises:
            FencedError: It is a FENCE that counts.
        """
        self._expected = position + 1
        taken = self._reader.take(position, record)
        if isinstance(taken, Fence):
            raise FencedError(self._term, taken.term)
        return taken

    def all_passed(self, position: Position) -> None:
        """Note that every record before ``position`` was passed. An engine may use positions for marks of its own."""
        self._expected = max(self._expected, position)

    def confirm(self, position: Position, record: Record) -> Taken | None:
        """Confirm the next record of this owner, which is at ``position``; return what it completes.

        Raises:
            TenureEndedError: The engine has reported a wrong position.
        """
        if record.number < self._reader.number:
            # A copy of it was passed.
            self._expected = max(self._expected, position + 1)
            return None
        if position != self._expected or record.number > self._reader.number:
            raise TenureEndedError(
                f"record {record.number} of term {self._term} is said to be at {position}; expected record "
                f"{self._reader.number} at {self._expected}"
            )
        return self.passed(position, record)
