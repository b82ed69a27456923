"""An engine that admits one process at a time: who owns the log is in the log, and not in a refusal."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog_server.recordlog.engine import AppendsRefusedError, EngineUnavailableError, Report
from tidelog_server.recordlog.record_log import RecordLog, Ticket
from tidelog_server.recordlog.records import EMPTY, Position
from tidelog_server.recordlog.rules import START, FencedError, Group, Reader, TenureEndedError
from tidelog_server.runtime.clock import SystemClock
from tidelog_testing.parts.folder_engine import FolderEngine

_INCARNATION = bytes(range(16))
_SOON_S = 10.0


class ExclusiveEngine(FolderEngine):
    """A folder that refuses the appends of all processes but the one that has opened it last, as Pulsar does.

    Attributes:
        stores: How many of the records that are refused are stored nevertheless: their answer is lost.
        resumed: Number of calls of ``resume``.
        is_away: The engine does not answer ``resume``.
    """

    admitted: "ExclusiveEngine | None" = None

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._waiting: list[tuple[bytes, Report]] = []
        self._lock = threading.Lock()
        self.stores = 0
        self.resumed = 0
        self.is_away = False

    def send(self, value: bytes, report: Report) -> None:
        with self._lock:
            self._waiting.append((value, report))

    def poll(self, timeout_s: float) -> None:
        if ExclusiveEngine.admitted is None:
            ExclusiveEngine.admitted = self
        if ExclusiveEngine.admitted is not self:
            for value, _ in self._waiting[: self.stores]:
                self._store(value)
            self.stores = 0
            raise AppendsRefusedError
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for value, report in waiting:
            super().send(value, report)
        super().poll(0 if waiting else timeout_s)

    def resume(self) -> None:
        self.resumed += 1
        if self.is_away:
            raise EngineUnavailableError("it is away")
        ExclusiveEngine.admitted = self


@pytest.fixture
def engine(tmp_path: Path) -> Callable[[], ExclusiveEngine]:
    """Open a log that exists."""
    ExclusiveEngine.admitted = None
    RecordLog(ExclusiveEngine(tmp_path), SystemClock()).create(_INCARNATION)
    # As after the process has ended.
    ExclusiveEngine.admitted = None
    return lambda: ExclusiveEngine(tmp_path)


def owner_of(engine: ExclusiveEngine, term: int) -> RecordLog:
    log = RecordLog(engine, SystemClock())
    log.claim(Reader(START), 0, term, lambda _: None)
    return log


def append(log: RecordLog, count: int = 1) -> list[Ticket]:
    return [log.append(b"%d" % number, EMPTY, EMPTY, None) for number in range(count)]


def position(ticket: Ticket) -> Position:
    [group] = ticket.completed
    assert isinstance(group, Group)
    return group.position


def groups(engine: ExclusiveEngine) -> list[Position]:
    """Return the positions of the groups that a reader sees."""
    taken, _ = RecordLog(engine, SystemClock()).follow(Reader(START), 0)
    return [each.position for each in taken if isinstance(each, Group)]


@pytest.mark.parametrize("stored", [0, 1, 3])
def test_an_owner_that_was_refused_without_reason_appends_again(
    engine: Callable[[], ExclusiveEngine], stored: int
) -> None:
    own, late = engine(), engine()
    log = owner_of(own, 5)
    with pytest.raises(FencedError):
        owner_of(late, 4)
    tickets = append(log, 3)
    own.stores = stored
    assert log.wait(tickets[-1], _SOON_S)
    assert own.resumed == 1
    # What was stored and not reported is not seen twice.
    assert [position(ticket) for ticket in tickets] == groups(engine())
    assert log.wait(append(log)[0], _SOON_S)


def test_an_owner_that_was_refused_and_fenced_stops_and_appends_nothing(
    engine: Callable[[], ExclusiveEngine],
) -> None:
    own, later = engine(), engine()
    log = owner_of(own, 1)
    tickets = append(log, 2)
    # Stored, and its answer was lost: it lies before the FENCE.
    own._store(own._waiting[0][0])
    owner_of(later, 2)
    own.stores = 1
    with pytest.raises(FencedError, match="term 2"):
        log.wait(tickets[1], _SOON_S)
    assert log.wait(tickets[0], 0)
    assert own.resumed == 0
    assert groups(engine()) == [position(tickets[0])]
    with pytest.raises(FencedError):
        append(log)


def test_of_two_processes_that_end_each_other_the_one_with_the_fence_continues(
    engine: Callable[[], ExclusiveEngine],
) -> None:
    first, second = engine(), engine()
    log = owner_of(first, 1)
    for _ in range(3):
        # It opens its producer, and appends nothing.
        second.resume()
        assert log.wait(append(log)[0], _SOON_S)
    assert first.resumed == 3


def test_an_engine_that_is_away_is_asked_again(engine: Callable[[], ExclusiveEngine]) -> None:
    own, late = engine(), engine()
    log = owner_of(own, 1)
    late.resume()
    [ticket] = append(log)
    own.is_away = True
    with pytest.raises(EngineUnavailableError):
        log.wait(ticket, _SOON_S)
    own.is_away = False
    assert log.wait(ticket, _SOON_S)


def test_a_claim_that_was_refused_is_repeated(engine: Callable[[], ExclusiveEngine]) -> None:
    former, own = engine(), engine()
    owner_of(former, 1)
    log = owner_of(own, 2)
    assert own.resumed == 1
    assert log.wait(append(log)[0], _SOON_S)


def test_a_log_that_was_trimmed_beyond_what_the_owner_has_confirmed_ends_its_tenure(
    engine: Callable[[], ExclusiveEngine],
) -> None:
    own, other = engine(), engine()
    log = owner_of(own, 1)
    other.resume()
    for _ in range(3):
        other.send(b"foreign", lambda _: None)
    other.poll(0)
    other.trim(4)
    with pytest.raises(TenureEndedError, match="were asked for; the log begins at position"):
        log.wait(append(log)[0], _SOON_S)
