"""The driver of the rules of the log, where the conformance suite cannot bring the engine into the state."""

import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from tidelog_server.core.errors import DataLossError
from tidelog_server.recordlog.engine import (
    EngineUnavailableError,
    LogDeniedError,
    LogSetupError,
    PositionGoneError,
    Read,
    Report,
)
from tidelog_server.recordlog.overview import overview
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.recordlog.records import EMPTY, Kind, Mark, Position, Record, pack_record, unpack_record
from tidelog_server.recordlog.rules import (
    START,
    Fence,
    FencedError,
    Group,
    Reader,
    SnapshotPart,
    Taken,
    Tenure,
    TenureEndedError,
)
from tidelog_server.runtime.clock import SystemClock
from tidelog_testing.parts.folder_engine import FolderEngine

_INCARNATION = bytes(range(16))
_SOON_S = 10.0


def claimed(engine: FolderEngine, term: int) -> RecordLog:
    log = RecordLog(engine, SystemClock())
    log.claim(Reader(START), 0, term, lambda _: None)
    return log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log that exists."""
    RecordLog(FolderEngine(tmp_path / "log"), SystemClock()).create(_INCARNATION)
    return tmp_path / "log"


def test_a_former_owner_appends_in_its_own_term_while_it_learns_of_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reader has the next term already, and the thread that appends does not know of it yet."""
    former = claimed(FolderEngine(folder), 1)
    claimed(FolderEngine(folder), 2)
    ticket = former.append(b"1", EMPTY, EMPTY, None)
    passed = Tenure.passed

    def passed_slowly(self: Tenure, position: Position, record: Record | None) -> Taken | None:
        try:
            return passed(self, position, record)
        except FencedError:
            late = threading.Thread(target=lambda: former.append(b"late", EMPTY, EMPTY, None))
            late.start()
            late.join()
            raise

    monkeypatch.setattr(Tenure, "passed", passed_slowly)
    with pytest.raises(FencedError):
        former.wait(ticket, _SOON_S)
    monkeypatch.undo()
    engine = FolderEngine(folder)
    former.engine.poll(0)
    records = [unpack_record(*stored) for stored in engine.read(0, 1 << 20).records]
    assert [(record.term, record.payload) for record in records if record and record.kind is Kind.GROUP] == [
        (1, b"1"),
        (1, b"late"),
    ]
    reader = Reader(START)
    taken, _ = RecordLog(engine, SystemClock()).follow(reader, 0)
    assert [type(each) for each in taken] == [Fence, Fence, Fence]
    assert reader.fenced == 2


def test_a_log_is_unclaimed_until_its_first_claim(folder: Path) -> None:
    log = RecordLog(FolderEngine(folder), SystemClock())
    assert log.unclaimed() == _INCARNATION
    # A foreign record is not a claim.
    FolderEngine(folder)._store(b"foreign")
    assert log.unclaimed() == _INCARNATION
    claimed(FolderEngine(folder), 1)
    assert log.unclaimed() is None
    assert RecordLog(FolderEngine(folder.with_name("empty")), SystemClock()).unclaimed() is None


def test_each_part_of_a_snapshot_is_confirmed_by_itself(folder: Path) -> None:
    log = claimed(FolderEngine(folder), 1)
    parts = [log.append_part(part, b"rows %d" % part, EMPTY, None, is_last=part == 2) for part in range(3)]
    group = log.append(b"group", EMPTY, EMPTY, 7)
    assert log.wait(group, _SOON_S)
    taken = [part for ticket in parts for part in ticket.completed]
    assert taken == [SnapshotPart(2 + part, 1, part, part == 2, b"rows %d" % part) for part in range(3)]
    (completed,) = group.completed
    assert isinstance(completed, Group)
    assert (list(completed.payloads), completed.snapshot) == ([b"group"], 7)


def test_the_snapshots_that_the_last_records_name_come_first(folder: Path) -> None:
    engine = FolderEngine(folder)
    log = claimed(engine, 1)
    assert list(log.named_snapshots(_INCARNATION)) == []
    for snapshot in (None, *[3] * 20, *[9] * 40, 12, None):
        log.append(b"group", EMPTY, EMPTY, snapshot)
    engine.send(b"something else", lambda _: None)
    engine.send(pack_record(_part(9, 0, 1)._replace(incarnation=bytes(16), snapshot=77)), lambda _: None)
    engine.send(pack_record(_part(9, 0, 1)._replace(snapshot=5)), lambda _: None)
    engine.poll(_SOON_S)
    found = list(log.named_snapshots(_INCARNATION))
    # That of a late record first: it does not exist, and what it names does.
    assert found == [5, 12, 9, 3]
    log.trim(30)
    assert list(log.named_snapshots(_INCARNATION)) == [5, 12, 9]


class _FullEngine(FolderEngine):
    """Refuses what is sent from a moment on."""

    is_full = False

    def send(self, value: bytes, report: Report) -> None:
        if self.is_full:
            raise EngineUnavailableError("too much waits")
        super().send(value, report)


def test_a_record_that_the_engine_refuses_ends_the_tenure(folder: Path) -> None:
    engine = _FullEngine(folder)
    log = claimed(engine, 1)
    ticket = log.append(b"1", EMPTY, EMPTY, None)
    engine.is_full = True
    with pytest.raises(TenureEndedError, match="record 2 of term 1: too much waits"):
        log.append(b"2", EMPTY, EMPTY, None)
    engine.is_full = False
    # Otherwise there would be a gap in the numbers, and what follows would not exist.
    with pytest.raises(TenureEndedError):
        log.append(b"3", EMPTY, EMPTY, None)
    with pytest.raises(TenureEndedError):
        log.wait(ticket, _SOON_S)


def test_a_log_that_ends_before_what_was_read_is_data_loss(folder: Path) -> None:
    engine = FolderEngine(folder)
    claimed(engine, 1)
    reader = Reader(START)
    log = RecordLog(engine, SystemClock())
    _, begin = log.follow(reader, 0)
    before = engine.bounds()
    with pytest.raises(DataLossError, match="ends before position 2, and this process has read it up to position 3"):
        log.claim(reader, begin + 1, 2, lambda _: None)
    assert engine.bounds() == before


def test_a_claim_of_what_was_trimmed_names_where_the_log_begins(folder: Path) -> None:
    engine = FolderEngine(folder)
    log = claimed(engine, 1)
    log.wait(log.append(b"1", EMPTY, EMPTY, None), _SOON_S)
    log.trim(2)
    with pytest.raises(PositionGoneError):
        RecordLog(engine, SystemClock()).claim(Reader(START), 0, 2, lambda _: None)


class _LateEngine(FolderEngine):
    """Shows nothing for a number of reads."""

    late_reads = 0

    def read(self, begin: Position, max_bytes: int, wait_s: float = 0.0) -> Read:
        if self.late_reads:
            self.late_reads -= 1
            return Read([], begin)
        return super().read(begin, max_bytes, wait_s)


class _Running(SystemClock):
    """Each reading is a second after the one before."""

    now_s = 0.0

    def monotonic_s(self) -> float:
        self.now_s += 1
        return self.now_s


def test_a_record_that_the_engine_shows_late_is_waited_for(folder: Path) -> None:
    engine = _LateEngine(folder)
    log = RecordLog(engine, _Running())
    engine.late_reads = 5
    assert [position for position, _ in log.records(0, 1)] == [0]
    # Nothing is behind the end.
    assert log.records(1, 1) == []
    engine.late_reads = 50
    with pytest.raises(EngineUnavailableError, match="position 0 was not shown for 10 s"):
        log.records(0, 1)


def test_a_search_from_the_end_waits_for_what_the_engine_shows_late(folder: Path) -> None:
    engine = _LateEngine(folder)
    log = claimed(engine, 1)
    assert log.wait(log.append(b"1", EMPTY, EMPTY, 7), _SOON_S)
    late = RecordLog(engine, _Running())
    searches: list[Callable[[], bool]] = [
        lambda: list(late.named_snapshots(_INCARNATION)) == [7],
        lambda: late.first() is not None,
        lambda: late.unclaimed() is None,
        lambda: overview(engine, _Running())[1:] == (1, 0),
    ]
    for search in searches:
        engine.late_reads = 3
        assert search()
        engine.late_reads = 50
        with pytest.raises(EngineUnavailableError, match=r"what is at position \d was not shown for 10 s"):
            search()


def test_a_claim_waits_for_all_that_was_there(folder: Path) -> None:
    former = claimed(FolderEngine(folder), 1)
    assert former.wait(former.append(b"1", EMPTY, EMPTY, None), _SOON_S)
    engine = _LateEngine(folder)
    engine.late_reads = 5
    taken: list[Taken] = []

    def check() -> None:
        # What it sees decides whether the log is claimed.
        assert [each.payloads for each in taken if isinstance(each, Group)] == [[b"1"]]

    RecordLog(engine, _Running()).claim(Reader(START), 0, 2, taken.extend, check)


def test_what_lies_before_a_confirmed_record_is_waited_for_and_asked_again(folder: Path) -> None:
    engine = _LateEngine(folder)
    log = RecordLog(engine, _Running())
    log.claim(Reader(START), 0, 1, lambda _: None)
    stranger = FolderEngine(folder)
    stranger.send(b"something else", lambda _: None)
    stranger.poll(0)
    ticket = log.append(b"1", EMPTY, EMPTY, None)
    engine.late_reads = 50
    # A wait that cannot end lets its caller look whether the store was closed.
    with pytest.raises(EngineUnavailableError, match="position 2 was not shown for 10 s"):
        log.wait(ticket, 1_000)
    engine.late_reads = 5
    assert log.wait(ticket, 1_000)


class _SilentEngine(FolderEngine):
    """Reports what a test says, in place of positions."""

    reported: Exception | None = None

    def send(self, value: bytes, report: Report) -> None:
        if self.reported is not None:
            report(self.reported)

    def poll(self, timeout_s: float) -> None:
        """Do nothing, at once: the clock of the test runs by itself."""


def test_a_claim_that_the_engine_does_not_confirm_ends(folder: Path) -> None:
    log = RecordLog(_SilentEngine(folder), _Running())
    with pytest.raises(EngineUnavailableError, match="has not confirmed the FENCE of term 1 for 60 s"):
        log.claim(Reader(START), 0, None, lambda _: None)


def test_a_claim_that_the_engine_does_not_permit_names_the_operation(folder: Path) -> None:
    engine = _SilentEngine(folder)
    engine.reported = LogDeniedError("Kafka does not permit to write to the topic 'x'")
    with pytest.raises(LogSetupError, match="does not permit to write"):
        RecordLog(engine, SystemClock()).claim(Reader(START), 0, None, lambda _: None)
    engine.reported = EngineUnavailableError("the connection broke")
    with pytest.raises(TenureEndedError, match="the FENCE of term 1: the connection broke"):
        RecordLog(engine, SystemClock()).claim(Reader(START), 0, None, lambda _: None)


@pytest.mark.parametrize(
    ("version", "kind", "said"),
    [(2, 1, "has version 2, and this server knows versions up to 1: use"), (1, 9, "has version 1 and kind 9"),
     (0, 1, "has version 0 and kind 1")],
)  # fmt: skip
def test_a_record_of_a_version_or_kind_that_is_not_known_is_data_loss(version: int, kind: int, said: str) -> None:
    packed = pack_record(_part(1, 0, 1))
    head = packed[:4] + bytes([version, kind]) + packed[6:-4]
    with pytest.raises(DataLossError, match=f"the record at position 7 of the log cannot be used: it {said}"):
        unpack_record(7, head + crc32c(head).to_bytes(4))
    if version == 2:
        # Whatever its layout is.
        with pytest.raises(DataLossError, match=said):
            unpack_record(7, packed[:4] + b"\2")


def test_the_identity_of_a_log_is_that_of_its_first_record(tmp_path: Path) -> None:
    engine = FolderEngine(tmp_path)
    log = RecordLog(engine, SystemClock())
    assert log.first() is None
    engine.send(b"something else", lambda _: None)
    log.create(_INCARNATION)
    first = log.first()
    assert first is not None
    assert (first.incarnation, first.term) == (_INCARNATION, 0)


class _TrimmedEngine(FolderEngine):
    """A log that its owner trims before the first read."""

    is_trimmed = False

    def read(self, begin: Position, max_bytes: int, wait_s: float = 0.0) -> Read:
        if not self.is_trimmed:
            self.is_trimmed = True
            self.trim(begin + 1)
        return super().read(begin, max_bytes, wait_s)


def test_the_first_record_of_a_log_that_is_trimmed_meanwhile_is_that_behind(folder: Path) -> None:
    log = claimed(FolderEngine(folder), 3)
    assert log.wait(log.append(b"1", EMPTY, EMPTY, None), _SOON_S)
    first = RecordLog(_TrimmedEngine(folder), SystemClock()).first()
    assert first is not None
    assert (first.kind, first.term) == (Kind.FENCE, 3)


def _part(number: int, part: int, parts: int, kind: Kind = Kind.GROUP) -> Record:
    return Record(kind, _INCARNATION, 1, number, part, parts, EMPTY, EMPTY, None, b"")


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([_part(1, 0, 2), _part(2, 1, 3)], "part 1 of 3, expected part 1 of 2"),
        ([_part(1, 0, 2), _part(2, 0, 1)], "part 0 of 1, expected part 1 of 2"),
        ([_part(1, 0, 0)], "part 0 of 0"),
        ([_part(1, 0, 2), _part(2, 0, 1, Kind.SNAPSHOT)], "between parts of a group"),
        ([_part(1, 3, 7, Kind.SNAPSHOT)], "part 3 of 7 of a snapshot"),
        ([_part(1, 0, 0, Kind.SNAPSHOT)._replace(before=Mark(5, bytes(16)))], "with another chain hash"),
    ],
)
def test_parts_that_do_not_fit_are_data_loss(records: list[Record], said: str) -> None:
    reader = Reader(START)
    reader.take(0, Record(Kind.FENCE, _INCARNATION, 1, 0, 0, 1, EMPTY, EMPTY, None, b""))
    with pytest.raises(DataLossError, match=said):
        for position, record in enumerate(records, 1):
            reader.take(position, record)


@pytest.mark.parametrize("note", [lambda tenure: tenure.all_passed(5), lambda _: None])
def test_positions_without_a_record_lie_between_two_that_are_confirmed(note: Callable[[Tenure], None]) -> None:
    reader = Reader(START)
    reader.take(0, Record(Kind.FENCE, _INCARNATION, 1, 0, 0, 1, EMPTY, EMPTY, None, b""))
    tenure = Tenure(reader, 0)
    assert tenure.unread_before(5) == range(1, 5)
    # The engine has one record there, of another; three are marks of its own.
    tenure.passed(2, None)
    note(tenure)
    if tenure.unread_before(5):
        with pytest.raises(TenureEndedError):
            tenure.confirm(5, _part(1, 0, 1))
    else:
        assert isinstance(tenure.confirm(5, _part(1, 0, 1)), Group)


def test_a_log_without_a_snapshot_is_searched_in_little_memory(folder: Path) -> None:
    """As after an import: the search passes all records, in runs of thousands, which may have a MiB each."""
    log = claimed(FolderEngine(folder), 1)
    for _ in range(2_000):
        ticket = log.append(bytes(20_000), EMPTY, EMPTY, None)
        while not log.wait(ticket, 1):
            pass
    tracemalloc.start()
    try:
        assert list(log.named_snapshots(_INCARNATION)) == []
        # Two reads of 4 MiB, of a log of 40 MB.
        assert tracemalloc.get_traced_memory()[1] < 12_000_000
    finally:
        tracemalloc.stop()


class _WrongEngine(FolderEngine):
    """A log that reports a wrong position of what is sent, if the test wants that."""

    is_wrong = False

    def send(self, value: bytes, report: Report) -> None:
        is_wrong = self.is_wrong
        super().send(value, lambda reported: report(0 if is_wrong else reported))


def test_an_error_of_an_attempt_to_confirm_soon_is_raised_by_the_next_wait(folder: Path) -> None:
    engine = _WrongEngine(folder)
    log = claimed(engine, 1)
    assert log.confirm_soon(log.append(b"1", EMPTY, EMPTY, None), _SOON_S)
    engine.is_wrong = True
    ticket = log.append(b"2", EMPTY, EMPTY, None)
    for _ in range(2):
        assert not log.confirm_soon(ticket, _SOON_S)
    with pytest.raises(TenureEndedError):
        log.wait(ticket, _SOON_S)


def test_a_claim_of_another_process_is_found_by_the_wait_and_not_by_an_attempt_to_confirm_soon(folder: Path) -> None:
    log = claimed(FolderEngine(folder), 1)
    claimed(FolderEngine(folder), 2)
    ticket = log.append(b"1", EMPTY, EMPTY, None)
    assert not log.confirm_soon(ticket, _SOON_S)
    with pytest.raises(FencedError):
        log.wait(ticket, _SOON_S)
