"""A log of records: claimed by one process at a time, read by any. The driver of ``rules``."""

import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog_server.core.errors import DataLossError
from tidelog_server.recordlog.engine import (
    AppendsRefusedError,
    Bounds,
    EngineUnavailableError,
    LogEngine,
    LogSetupError,
    PositionGoneError,
    Read,
    Stored,
)
from tidelog_server.recordlog.reads import reads, records_at
from tidelog_server.recordlog.records import (
    CLAIM_BYTES,
    EMPTY,
    MAX_PAYLOAD_BYTES,
    Kind,
    Mark,
    Position,
    Record,
    pack_record,
    unpack_record,
)
from tidelog_server.recordlog.rules import START, Fence, FencedError, Reader, Taken, Tenure, TenureEndedError
from tidelog_server.runtime.clock import Clock

_READ_BYTES: Final = 4 << 20
# How many of the last records are searched for the position of a snapshot at first, and at once at most.
_LAST_RECORDS: Final = 4
_MOST_RECORDS: Final = 4_096
_POLL_S: Final = 0.1
# The election of a leader in the engine may take half of it.
_CLAIMED_WITHIN_S: Final = 60.0


@dataclass(slots=True, eq=False)
class Ticket:
    """Records of one append, on their way.

    Attributes:
        number: Number of the last of them.
        is_confirmed: True once they are confirmed.
        completed: What they completed by then.
    """

    number: int
    is_confirmed: bool = False
    completed: list[Taken] = field(default_factory=list)


class RecordLog:
    """A log in an engine, seen by one process.

    Threads: ``append`` by one thread at a time, ``wait`` by one thread at a time, ``claim`` by neither meanwhile.

    Attributes:
        engine: What has the log.
        close: Releases it. What was not confirmed may be in the log.
        clock: Source of time.
        begin: First position that the engine has, as far as this process knows.
        is_abandoned: Returns whether what reads much of the log is to end, with EngineUnavailableError.
    """

    def __init__(self, engine: LogEngine, clock: Clock) -> None:
        """Take ownership of ``engine``. Does no I/O."""
        self.engine = engine
        self.close = engine.close
        self.clock = clock
        self.begin: Position = 0
        self.is_abandoned: Callable[[], bool] = lambda: False
        self._reader: Reader | None = None
        self._tenure: Tenure | None = None
        # Of the tenure: the reader has those of another one once it has taken the FENCE that ends it.
        self._incarnation, self._term = b"", 0
        self._next_number = 0
        # Sent and not confirmed, in order of their numbers, with what the engine reported.
        self._sent: deque[_Sent] = deque()
        self._tickets: deque[Ticket] = deque()
        self._ended: Exception | None = None

    def bounds(self) -> Bounds:
        """Return the first position that the engine has, and that of the next record."""
        bounds = self.engine.bounds()
        self.begin = bounds.begin
        return bounds

    @property
    def foreign(self) -> int:
        """Number of records that the owner has skipped because they are not of this log."""
        return 0 if self._reader is None else self._reader.foreign

    @property
    def fenced(self) -> int:
        """Number of records that the owner has skipped because they do not exist, by the rules."""
        return 0 if self._reader is None else self._reader.fenced

    def trim(self, before: Position) -> None:
        """Allow the engine to delete what is before ``before``."""
        self.engine.trim(before)
        self.begin = max(self.begin, before)

    def first(self) -> Record | None:
        """Return the first record of the log that the engine has; None without one.

        Raises:
            DataLossError: The record is damaged.
            EngineUnavailableError: The engine does not answer.
        """
        while True:
            try:
                found = self._records_of(self.engine.bounds(), 1)
                return next((record for _, record in found if record is not None), None)
            except PositionGoneError:
                # Its owner has trimmed the log meanwhile.
                continue

    def unclaimed(self) -> bytes | None:
        """Return the identity of a log that has its first record only; None if it has more. Raises as ``first``.

        Foreign records do not count.
        """
        reader = Reader(START)
        for position, record in self._records_of(self.engine.bounds()):
            reader.take(position, record)
            if reader.term > 0:
                return None
        return reader.incarnation or None

    def create(self, incarnation: bytes, origin: bytes = b"") -> None:
        """Append the first record: it gives the log its identity, and says where the log was made.

        Args:
            incarnation: Identity of the log.
            origin: Id that the engine gave it, ``ORIGIN_BYTES``; empty if the engine gives none.
        """
        self._report_of(_fence(incarnation, 0, origin))

    def records(self, begin: Position, max_bytes: int) -> list[tuple[Position, Record | None]]:
        """Return the records from ``begin`` on, about ``max_bytes``; None for a foreign one. Empty only without any.

        Raises:
            PositionGoneError: The engine has deleted records at or after ``begin``.
            EngineUnavailableError: The engine does not answer.
            DataLossError: A record is damaged.
        """
        stored = records_at(self.engine, self.clock, begin, max_bytes)
        return [(position, unpack_record(position, value)) for position, value in stored]

    def named_snapshots(self, incarnation: bytes) -> Iterator[Position]:
        """Yield the positions of snapshots that records name, each once: those of the last records first.

        Every record counts, whether it exists by the rules or not: each owner has named what was confirmed.

        Args:
            incarnation: Identity of the log.

        Raises:
            PositionGoneError: The log was trimmed meanwhile.
            EngineUnavailableError, DataLossError: As ``records``.
        """
        named: set[Position] = set()
        for records in self._from_the_end(incarnation):
            found = {record.snapshot for record in records if record.snapshot is not None}
            yield from sorted(found - named, reverse=True)
            named |= found

    def _from_the_end(self, incarnation: bytes) -> Iterator[list[Record]]:
        """Yield the records of a log in runs, the last run first, without payloads: a run may have gigabytes of them.

        Raises as ``named_snapshots``.
        """
        begin, end = self.bounds()
        count = _LAST_RECORDS
        while begin < end:
            first = max(begin, self.engine.before(end, count))
            yield [
                record._replace(payload=b"")
                for _, record in self._records_of(Bounds(first, end))
                if record is not None and record.incarnation == incarnation
            ]
            end, count = first, min(2 * count, _MOST_RECORDS)

    def _records_of(self, bounds: Bounds, max_bytes: int = _READ_BYTES) -> Iterator[tuple[Position, Record | None]]:
        """Yield all records of a part of the log; None for a foreign one. Raises as ``records``."""
        for read in self._reads(*bounds, max_bytes):
            for position, value in read.records:
                if position < bounds.end:
                    yield position, unpack_record(position, value)

    def _reads(self, begin: Position, end: Position, max_bytes: int) -> Iterator[Read]:
        for read in reads(self.engine, self.clock, begin, end, max_bytes):
            if self.is_abandoned():
                raise EngineUnavailableError("this process does not follow the log any more")
            yield read

    def replay(
        self,
        reader: Reader,
        begin: Position,
        end: Position,
        apply: Callable[[Sequence[Taken]], object],
    ) -> None:
        """Take the records of ``[begin, end)``; call ``apply`` with what they complete.

        Args:
            reader: Takes them.
            begin: Position of the first record to take.
            end: Position behind the last one, which the log has.
            apply: Called once for each read.

        Raises:
            PositionGoneError, EngineUnavailableError: As ``records``.
            DataLossError: The log contradicts itself.
        """
        for read in self._reads(begin, end, _READ_BYTES):
            apply(self._take(reader, (each for each in read.records if each.position < end)))

    def follow(self, reader: Reader, begin: Position, wait_s: float = 0.0) -> tuple[list[Taken], Position]:
        """Take some records from ``begin`` on; return what they complete, and where to continue.

        If that is ``begin``, nothing was shown, at least for ``wait_s`` seconds.
        """
        read = self.engine.read(begin, _READ_BYTES, wait_s)
        return self._take(reader, read.records), read.next

    def claim(
        self,
        reader: Reader,
        begin: Position,
        term: int | None,
        apply: Callable[[Sequence[Taken]], None],
        check: Callable[[], None] = lambda: None,
    ) -> Position:
        """Own the log from now on; return the position behind the FENCE.

        Args:
            reader: What this process has taken of the log; it becomes that of the owner.
            begin: Position of the first record that it has not taken.
            term: Term, above every earlier one; None for the next one.
            apply: Called with what the records up to the FENCE complete.
            check: Called once ``apply`` has what the log has now; it raises to leave the log unchanged.

        Raises:
            FencedError: The log has a FENCE of the same term or of a greater one.
            TenureEndedError: The engine does not say where the FENCE is.
            PositionGoneError: The engine has deleted records at or after ``begin``.
            EngineUnavailableError: The engine does not answer, or does not confirm the FENCE. That may be stored later,
                as one of an owner that appends nothing.
            DataLossError: The log has no first record, contradicts itself, or ends before ``begin``.
        """
        end = self.engine.bounds().end
        if end < begin:
            raise DataLossError(
                f"the log ends before position {end}, and this process has read it up to position {begin}: its end "
                "was lost, or it is another log of the same name",
                position=end,
            )
        self.replay(reader, begin, end, apply)
        if not reader.incarnation:
            raise DataLossError("the log has no first record: it was never created, or its begin was deleted")
        check()
        while True:
            record = _fence(reader.incarnation, reader.term + 1 if term is None else term)
            fence = self._report_of(record)
            self.replay(reader, end, fence + 1, apply)
            end = fence + 1
            if reader.claim == record.payload:
                break
            if term is not None:
                raise FencedError(record.term, reader.term)
        self._reader, self._tenure = reader, Tenure(reader, fence)
        self._incarnation, self._term, self._next_number = reader.incarnation, reader.term, 1
        return end

    def append(self, payload: bytes, before: Mark, after: Mark, snapshot: Position | None) -> Ticket:
        """Append a group, in as many records as it needs; return at once.

        Raises:
            FencedError, TenureEndedError: As ``wait``, before: nothing was appended. Or the engine has refused a record
                now: then it is unknown what was appended.
        """
        payloads = _parts(payload)
        parts = [(part, len(payloads), each) for part, each in enumerate(payloads)]
        return self._append(Kind.GROUP, parts, before, after, snapshot)

    def append_part(self, part: int, payload: bytes, mark: Mark, snapshot: Position | None, *, is_last: bool) -> Ticket:
        """Append a part of a snapshot, in one record; return at once. Raises as ``append``."""
        assert len(payload) <= MAX_PAYLOAD_BYTES
        parts = [(part, part + 1 if is_last else 0, payload)]
        return self._append(Kind.SNAPSHOT, parts, mark, mark, snapshot)

    def _append(
        self,
        kind: Kind,
        parts: Sequence[tuple[int, int, bytes]],
        before: Mark,
        after: Mark,
        snapshot: Position | None,
    ) -> Ticket:
        assert self._tenure is not None
        if self._ended is not None:
            raise self._ended
        ticket = Ticket(self._next_number + len(parts) - 1)
        # Ordering: before they are sent, because another thread may confirm them at once.
        self._tickets.append(ticket)
        for part, of_parts, payload in parts:
            self._send(
                Record(
                    kind, self._incarnation, self._term, self._next_number, part, of_parts, before, after,
                    snapshot, payload,
                )
            )  # fmt: skip
        return ticket

    def _send(self, record: Record) -> None:
        sent = _Sent(record)
        self._sent.append(sent)
        self._next_number += 1
        try:
            self.engine.send(pack_record(record), sent.report)
        except EngineUnavailableError as error:
            # Its number is missing now, so no later record would exist.
            self._ended = TenureEndedError(f"record {record.number} of term {record.term}: {error}")
            raise self._ended from error

    def wait(self, ticket: Ticket, timeout_s: float) -> bool:
        """Return whether all records up to those of ``ticket`` were confirmed within ``timeout_s`` seconds.

        What was confirmed exists, also if the tenure has ended after it.

        Raises:
            FencedError: Another process owns the log.
            TenureEndedError: The engine does not say where a record is.
            DataLossError: The log contradicts itself.
            EngineUnavailableError: The engine does not answer; try again.
        """
        deadline_s = self.clock.monotonic_s() + timeout_s
        while not self._is_confirmed(ticket):
            left_s = deadline_s - self.clock.monotonic_s()
            if left_s <= 0:
                return False
            self._poll(min(left_s, _POLL_S))
        return True

    def confirm_soon(self, ticket: Ticket, timeout_s: float) -> bool:
        """As ``wait``, but False, too, if the log must be read first, or after an error, which ``wait`` raises."""
        deadline_s = self.clock.monotonic_s() + timeout_s
        try:
            while not ticket.is_confirmed and self._ended is None:
                reported = self._sent[0].reported
                if reported is None:
                    left_s = deadline_s - self.clock.monotonic_s()
                    if left_s <= 0:
                        break
                    self.engine.poll(left_s)
                elif isinstance(reported, Exception) or self._unread_before(reported):
                    break
                else:
                    self._confirm_next(reported)
        except (AppendsRefusedError, EngineUnavailableError, TenureEndedError, DataLossError):
            pass
        return ticket.is_confirmed

    def _poll(self, timeout_s: float) -> None:
        """As ``LogEngine.poll``; if another process appends, find out whether it owns the log, and continue if not."""
        try:
            self.engine.poll(timeout_s)
        except AppendsRefusedError:
            if self._tenure is not None:
                self._pass_others()
            if self._ended is None:
                self.engine.resume()

    def _pass_others(self) -> None:
        """Take what others have appended up to the end of the log: a FENCE that counts ends the tenure.

        What this process has appended without a report lies between: it exists, too.
        """
        try:
            self._confirm_reported()
            self._pass_before(self.engine.bounds().end)
        except (FencedError, TenureEndedError, DataLossError) as error:
            # The next look at what is confirmed raises it.
            self._ended = error

    def _is_confirmed(self, ticket: Ticket) -> bool:
        """Confirm what the engine has reported; return whether all of ``ticket`` was confirmed. Raises as ``wait``."""
        if not ticket.is_confirmed:
            try:
                self._confirm_reported()
            except (FencedError, TenureEndedError, DataLossError):
                # It is raised for the records behind.
                if not ticket.is_confirmed:
                    raise
        return ticket.is_confirmed

    def _take(self, reader: Reader, records: Iterable[Stored]) -> list[Taken]:
        """Take records; return what they complete."""
        taken = (reader.take(position, unpack_record(position, value)) for position, value in records)
        return [each for each in taken if each is not None]

    def _confirm_reported(self) -> None:
        if self._ended is not None:
            raise self._ended
        while self._sent and (reported := self._sent[0].reported) is not None:
            self._confirm_next(reported)

    def _confirm_next(self, reported: Position | Exception) -> None:
        """Confirm the first record that was sent and not confirmed, which was reported. Raises as ``wait``."""
        record = self._sent[0].record
        try:
            if isinstance(reported, Exception):
                raise TenureEndedError(f"record {record.number} of term {record.term}: {reported}") from reported
            self._confirm(reported, record)
        except (FencedError, TenureEndedError, DataLossError) as error:
            self._ended = error
            raise
        # Ordering: last, because an engine that does not answer leaves the record to the next attempt.
        self._sent.popleft()

    def _confirm(self, position: Position, record: Record) -> None:
        assert self._tenure is not None
        if self._unread_before(position):
            self._pass_before(position)
        self._tenure.all_passed(position)
        self._completed(self._tenure.confirm(position, record))

    def _pass_before(self, position: Position) -> None:
        """Take what lies before ``position`` and was not taken. Raises as ``wait``."""
        assert self._tenure is not None
        between = self._unread_before(position)
        try:
            for stored in self._records_of(Bounds(between.start, between.stop)):
                self._completed(self._tenure.passed(*stored))
        except PositionGoneError as error:
            # Only a later owner trims what this one has not confirmed; or another program has deleted it.
            if (term := self._greatest_term()) > self._term:
                raise FencedError(self._term, term) from error
            raise TenureEndedError(f"record {self._sent[0].record.number} of term {self._term}: {error}") from error

    def _unread_before(self, position: Position) -> range:
        assert self._tenure is not None
        return self._tenure.unread_before(position)

    def _greatest_term(self) -> int:
        """Return the greatest term of a record that the engine has, looking from the end for one above this owner's."""
        term = 0
        while True:
            try:
                for records in self._from_the_end(self._incarnation):
                    term = max([term, *(record.term for record in records)])
                    if term > self._term:
                        return term
            except PositionGoneError:
                # Its owner trims it now.
                continue
            return term

    def _completed(self, taken: Taken | None) -> None:
        assert self._reader is not None
        if taken is not None:
            # A FENCE that counts ends the tenure, and nothing of the term is completed without this process.
            assert not isinstance(taken, Fence)
            self._tickets[0].completed.append(taken)
        # A snapshot completes with each of its parts, a group with the last one.
        while self._tickets and self._tickets[0].number < self._reader.number:
            self._tickets.popleft().is_confirmed = True

    def _report_of(self, record: Record) -> Position:
        sent = _Sent(record)
        deadline_s = self.clock.monotonic_s() + _CLAIMED_WITHIN_S
        self.engine.send(pack_record(record), sent.report)
        while sent.reported is None:
            if deadline_s <= self.clock.monotonic_s():
                raise EngineUnavailableError(
                    f"the engine has not confirmed the FENCE of term {record.term} for {_CLAIMED_WITHIN_S:.0f} s"
                )
            self._poll(_POLL_S)
        if isinstance(sent.reported, LogSetupError):
            raise sent.reported
        if isinstance(sent.reported, Exception):
            raise TenureEndedError(f"the FENCE of term {record.term}: {sent.reported}") from sent.reported
        return sent.reported


@dataclass(slots=True, eq=False)
class _Sent:
    record: Record
    reported: Position | Exception | None = None

    def report(self, reported: Position | Exception) -> None:
        self.reported = reported


def _fence(incarnation: bytes, term: int, origin: bytes = b"") -> Record:
    payload = secrets.token_bytes(CLAIM_BYTES) + origin
    return Record(Kind.FENCE, incarnation, term, 0, 0, 1, EMPTY, EMPTY, None, payload)


def _parts(payload: bytes) -> list[bytes]:
    if len(payload) <= MAX_PAYLOAD_BYTES:
        return [payload]
    return [payload[at : at + MAX_PAYLOAD_BYTES] for at in range(0, len(payload), MAX_PAYLOAD_BYTES)]
