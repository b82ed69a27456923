"""A log in Pulsar whose records are in several ledgers: positions jump between them, and order is all that is used."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest

from tidelog_server.recordlog.engine import PositionGoneError, Read
from tidelog_server.recordlog.overview import overview
from tidelog_server.recordlog.pulsar import PulsarEngine, place_of
from tidelog_server.recordlog.pulsar_access import PulsarAccess
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.recordlog.records import EMPTY, Position
from tidelog_server.recordlog.rules import START, FencedError, Group, Reader
from tidelog_server.runtime.clock import SystemClock
from tidelog_testing.servers.pulsar import PulsarProcess

_SOON_S = 30.0
_INCARNATION = bytes(range(16))


class _Log:
    """A log, with one owner for all ledgers."""

    def __init__(self, access: PulsarAccess, pulsar: PulsarProcess, topic: str) -> None:
        access.create(topic)
        self.access = access
        self.topic = topic
        self._pulsar = pulsar
        self._opened = ExitStack()
        self.engine = self.another()
        self.log = RecordLog(self.engine, SystemClock())
        self.log.create(_INCARNATION, access.check(topic))
        self.reader = Reader(START)
        self.log.claim(self.reader, self.log.bounds().begin, None, lambda _: None)

    def another(self) -> PulsarEngine:
        return self._opened.enter_context(closing(self.access.engine(self.topic)))

    def append(self, payload: bytes, snapshot: Position | None = None) -> Position:
        ticket = self.log.append(payload, EMPTY, EMPTY, snapshot)
        assert self.log.wait(ticket, _SOON_S)
        group = ticket.completed[0]
        assert isinstance(group, Group)
        return group.position

    def begin_ledger(self) -> None:
        self._pulsar.close_ledger(f"persistent://{self.access.namespace}/{self.topic}")

    def close(self) -> None:
        self._opened.close()


@pytest.fixture
def log(pulsar: PulsarProcess, namespace: str, request: pytest.FixtureRequest) -> Iterator[_Log]:
    with closing(_Log(pulsar.access(namespace), pulsar, request.node.name)) as made:
        yield made


def test_an_owner_and_readers_continue_in_the_next_ledger(log: _Log) -> None:
    positions = []
    for number in range(4):
        positions += [log.append(b"%d.%d" % (number, each)) for each in range(3)]
        log.begin_ledger()
    assert sorted(positions) == positions
    assert len({place_of(each)[0] for each in positions}) == 4

    other = log.another()
    begin, end = other.bounds()
    found = []
    while begin < end:
        read = other.read(begin, 1)
        found += [each.position for each in read.records]
        begin = read.next
    assert found[-len(positions) :] == positions
    # Nothing follows, although the topic has an empty ledger now.
    assert other.read(begin, 1) == other.read(begin, 1, 0.05) == Read([], begin)


def test_what_the_end_tells_is_found_before_an_empty_ledger(log: _Log) -> None:
    snapshots = [log.append(b"1"), log.append(b"2")]
    log.append(b"3", snapshots[0])
    log.begin_ledger()
    log.append(b"4", snapshots[1])
    log.begin_ledger()
    log.begin_ledger()
    other = log.another()
    assert overview(other, SystemClock()).term == 1
    named = RecordLog(other, SystemClock()).named_snapshots(_INCARNATION)
    assert list(named) == [snapshots[1], snapshots[0]]
    end = other.bounds().end
    shown = _positions(other)
    assert [other.before(end, count) for count in range(1, len(shown) + 1)] == shown[::-1]
    assert other.before(end, 1_000) == other.bounds().begin
    assert other.length(*other.bounds()) == len(shown)


def _positions(engine: PulsarEngine) -> list[Position]:
    begin, end = engine.bounds()
    found: list[Position] = []
    while begin < end:
        read = engine.read(begin, 1 << 20)
        found += [each.position for each in read.records]
        begin = read.next
    return found


def test_a_trim_in_an_earlier_ledger_and_one_of_a_whole_ledger(log: _Log) -> None:
    first = [log.append(b"1"), log.append(b"2")]
    log.begin_ledger()
    second = log.append(b"3")
    log.log.trim(first[1])
    assert log.log.bounds().begin == first[1]
    log.log.trim(second)
    other = log.another()
    assert first[1] < other.bounds().begin <= second
    with pytest.raises(PositionGoneError):
        other.read(first[1], 1)
    assert [each.position for each in other.read(other.bounds().begin, 1).records] == [second]
    # A late trim of a former owner does not bring records back.
    other.trim(first[1])
    assert first[1] < other.bounds().begin


def test_a_process_that_is_refused_and_still_owns_the_log_continues(log: _Log) -> None:
    """A late claim in a smaller term ends the producer of the owner, and not its tenure."""
    late = log.another()
    with pytest.raises(FencedError):
        RecordLog(late, SystemClock()).claim(Reader(START), log.log.bounds().begin, 1, lambda _: None)
    tickets = [log.log.append(b"%d" % number, EMPTY, EMPTY, None) for number in range(20)]
    assert log.log.wait(tickets[-1], _SOON_S)
    assert all(ticket.completed for ticket in tickets)


def test_a_claim_while_the_owner_is_refused_ends_its_tenure(log: _Log) -> None:
    owner = RecordLog(log.another(), SystemClock())
    owner.claim(Reader(START), log.log.bounds().begin, None, lambda _: None)
    ticket = log.log.append(b"late", EMPTY, EMPTY, None)
    with pytest.raises(FencedError, match="claimed in term 2; this process claimed it in term 1"):
        log.log.wait(ticket, _SOON_S)
    group = owner.append(b"mine", EMPTY, EMPTY, None)
    assert owner.wait(group, _SOON_S)


def test_a_reader_that_waits_gets_the_next_record_and_one_that_rests_reads_on(log: _Log) -> None:
    first = log.append(b"1")
    other = log.another()
    read = other.read(first, 1 << 20)
    assert other.read(read.next, 1 << 20, 0.01) == Read([], read.next)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.read, read.next, 1 << 20, _SOON_S)
        second = log.append(b"2")
        assert [each.position for each in waiting.result().records] == [second]
    time.sleep(1.1)
    other.rest()
    third = log.append(b"3")
    assert [each.position for each in other.read(second + 1, 1 << 20).records] == [third]
