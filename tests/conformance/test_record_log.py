"""Every engine under the rules of the log: who owns it, which records exist, what is trimmed."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from tidelog_server.core.errors import DataLossError
from tidelog_server.recordlog.engine import AppendsRefusedError, LogEngine, PositionGoneError, Report
from tidelog_server.recordlog.kafka import KafkaEngine
from tidelog_server.recordlog.pulsar import PulsarEngine
from tidelog_server.recordlog.record_log import RecordLog, Ticket
from tidelog_server.recordlog.records import EMPTY, MAX_PAYLOAD_BYTES, Mark, Position
from tidelog_server.recordlog.rules import START, FencedError, Group, Reader, Taken, TenureEndedError
from tidelog_server.runtime.clock import SystemClock
from tidelog_testing.faults.plants import take_without_numbers
from tidelog_testing.parts.folder_engine import FolderEngine, Unruly
from tidelog_testing.servers.kafka import KafkaProcesses
from tidelog_testing.servers.pulsar import PulsarProcess

_INCARNATION: Final = bytes(range(16))
_SOON_S: Final = 30.0
Open: TypeAlias = Callable[[], LogEngine]


@pytest.fixture(params=["folder", "kafka", "pulsar"])
def open_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Open the same log any number of times, each as another process."""
    opened: list[LogEngine] = []
    if request.param == "folder":
        make: Open = partial(FolderEngine, tmp_path / "log")
    elif request.param == "pulsar":
        broker: PulsarProcess = request.getfixturevalue("pulsar")
        access = broker.access()
        topic = request.node.name.partition("[")[0]
        access.create(topic)
        make = partial(access.engine, topic)
    else:
        kafka: KafkaProcesses = request.getfixturevalue("kafka")
        topic = request.node.name.partition("[")[0]
        kafka.create_topic(topic)
        make = partial(KafkaEngine, kafka.servers, topic)

    def opening() -> LogEngine:
        opened.append(make())
        return opened[-1]

    yield opening
    for engine in opened:
        engine.close()


class _Process:
    """A process that follows a log, and may own it."""

    def __init__(self, engine: LogEngine) -> None:
        self.engine = engine
        self.log = RecordLog(engine, SystemClock())
        self.reader = Reader(START)
        self.next = engine.bounds().begin
        self.taken: list[Taken] = []
        self.mark = EMPTY

    def claim(self, term: int) -> Position:
        self.next = self.log.claim(self.reader, self.next, term, self.taken.extend)
        self.mark = self.reader.mark
        return self.next

    def append(self, payload: bytes) -> Ticket:
        after = Mark(self.mark.sequence + 1, payload[:16].ljust(16, b"\0"))
        ticket = self.log.append(payload, self.mark, after, None)
        self.mark = after
        return ticket

    def appended(self, payload: bytes) -> Group:
        ticket = self.append(payload)
        assert self.log.wait(ticket, _SOON_S)
        group = ticket.completed[0]
        assert isinstance(group, Group)
        return group

    def follow(self) -> list[bytes]:
        """Return the payloads of all groups taken, up to the end of the log; an engine may show it late."""
        end = self.engine.bounds().end
        while self.next < end:
            taken, self.next = self.log.follow(self.reader, self.next)
            self.taken += taken
        return payloads(self.taken)


def payloads(taken: Sequence[Taken]) -> list[bytes]:
    return [b"".join(each.payloads) for each in taken if isinstance(each, Group)]


@pytest.fixture
def process(open_engine: Open) -> Callable[[], _Process]:
    """Begin a process on a log that exists."""
    first = RecordLog(open_engine(), SystemClock())
    first.create(_INCARNATION)

    def begin() -> _Process:
        return _Process(open_engine())

    return begin


def test_a_group_is_read_as_it_was_appended_at_growing_positions(process: Callable[[], _Process]) -> None:
    owner, other = process(), process()
    fence = owner.claim(1)
    first, second = owner.appended(b"first"), owner.appended(b"second")

    assert fence <= first.position == first.end < second.position
    assert other.follow() == [b"first", b"second"]
    assert other.reader.state == owner.reader.state
    assert other.reader.incarnation == _INCARNATION


def test_groups_in_flight_are_confirmed_in_order(process: Callable[[], _Process]) -> None:
    owner = process()
    owner.claim(1)
    tickets = [owner.append(b"%d" % number) for number in range(20)]
    assert owner.log.wait(tickets[-1], _SOON_S)
    assert [payloads(ticket.completed) for ticket in tickets] == [[b"%d" % number] for number in range(20)]


def test_a_large_group_lies_in_parts_and_exists_with_the_last(process: Callable[[], _Process]) -> None:
    owner, other = process(), process()
    owner.claim(1)
    large = bytes(range(256)) * (3 * MAX_PAYLOAD_BYTES // 256 + 1)
    group = owner.appended(large)

    assert [len(part) for part in group.payloads] == [MAX_PAYLOAD_BYTES] * 3 + [len(large) - 3 * MAX_PAYLOAD_BYTES]
    assert other.follow() == [large]


def test_a_claim_in_a_greater_term_ends_the_earlier_tenure(process: Callable[[], _Process]) -> None:
    former, owner = process(), process()
    former.claim(1)
    former.appended(b"before")
    owner.claim(2)
    assert payloads(owner.taken) == [b"before"]

    ticket = former.append(b"late")
    with pytest.raises(FencedError, match="term 2; this process claimed it in term 1"):
        former.log.wait(ticket, _SOON_S)
    with pytest.raises(FencedError):
        former.append(b"later")
    owner.appended(b"after")

    assert process().follow() == [b"before", b"after"]


def test_what_lies_before_the_claim_of_another_is_confirmed_after_it(process: Callable[[], _Process]) -> None:
    former, owner = process(), process()
    former.claim(1)
    before = former.append(b"before")
    assert former.log.wait(former.append(b"also before"), _SOON_S)
    # Known to be stored, and not asked for until the log has another owner.
    stored = former.append(b"stored")
    while len(owner.follow()) < 3:
        former.engine.poll(0.05)
    owner.claim(2)
    late = former.append(b"late")
    with suppress(AppendsRefusedError):
        while former.log._sent[-1].reported is None:
            former.engine.poll(0.05)
    assert former.log.wait(stored, _SOON_S)
    assert former.log.wait(before, 0.0)
    with pytest.raises(FencedError):
        former.log.wait(late, _SOON_S)
    assert former.log.wait(stored, 0.0)


def test_a_claim_in_the_same_or_a_smaller_term_is_refused(process: Callable[[], _Process]) -> None:
    owner = process()
    owner.claim(5)
    for term in (5, 4, 1, 0):
        with pytest.raises(FencedError):
            process().claim(term)
    # Their FENCEs lie between, and change nothing.
    owner.appended(b"still mine")
    assert process().follow() == [b"still mine"]


def test_of_two_claims_at_once_one_wins(process: Callable[[], _Process]) -> None:
    for term in range(1, 6):
        both = [process(), process()]
        barrier = threading.Barrier(2)
        won: list[_Process] = []

        def claim(each: _Process, term: int, barrier: threading.Barrier, won: list[_Process]) -> None:
            barrier.wait()
            try:
                each.claim(term)
            except FencedError:
                return
            won.append(each)

        threads = [threading.Thread(target=claim, args=(each, term, barrier, won)) for each in both]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        won[0].appended(b"%d" % term)
    assert process().follow() == [b"1", b"2", b"3", b"4", b"5"]


def test_a_group_that_a_claim_divides_does_not_exist(
    process: Callable[[], _Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = process()
    owner.claim(1)
    send = owner.engine.send
    stored: list[Position | Exception] = []

    def send_and_claim(value: bytes, report: Report) -> None:
        """Send a part; once the first one is stored, another process claims the log."""

        def reported(what: Position | Exception) -> None:
            stored.append(what)
            report(what)

        is_first = not stored
        send(value, reported)
        while not stored:
            owner.engine.poll(0.1)
        if is_first:
            process().claim(2)

    monkeypatch.setattr(owner.engine, "send", send_and_claim)
    ticket = owner.append(bytes(2 * MAX_PAYLOAD_BYTES))
    with pytest.raises(FencedError):
        owner.log.wait(ticket, _SOON_S)
    reader = process()
    assert reader.follow() == []
    # The first part, which the claim has cut off; and the second, which came after it, unless the engine refused it.
    assert reader.reader.fenced == (1 if isinstance(owner.engine, PulsarEngine) else 2)


def test_foreign_records_are_skipped_and_counted(process: Callable[[], _Process], open_engine: Open) -> None:
    owner, stranger = process(), open_engine()
    owner.claim(1)
    stored: list[Position | Exception] = []
    for value in (b"", b"something else", b"TLo"):
        stranger.send(value, stored.append)
    RecordLog(stranger, SystemClock()).create(bytes(16))
    while len(stored) < 3:
        stranger.poll(0.1)
    owner.appended(b"mine")
    assert owner.reader.foreign == 4

    other = process()
    assert other.follow() == [b"mine"]
    assert other.reader.foreign == 4


def test_a_damaged_record_is_data_loss(process: Callable[[], _Process], open_engine: Open) -> None:
    owner, stranger = process(), open_engine()
    owner.claim(1)
    group = owner.appended(b"payload")
    (stored,) = stranger.read(group.position, 1).records
    stranger.send(stored.value[:-5] + b"?" + stored.value[-4:], lambda _: None)
    stranger.poll(_SOON_S)
    with pytest.raises(DataLossError, match=r"position \d+ .* damaged"):
        process().follow()


def test_a_reader_continues_where_another_ended(process: Callable[[], _Process]) -> None:
    owner, first, second = process(), process(), process()
    owner.claim(1)
    owner.appended(b"1")
    assert first.follow() == [b"1"]
    second.reader, second.next = Reader(first.reader.state), first.next
    owner.appended(b"2")
    assert second.follow() == [b"2"]
    assert first.follow() == [b"1", b"2"]


def test_a_read_has_at_least_one_record_and_ends_at_the_limit(
    process: Callable[[], _Process], open_engine: Open
) -> None:
    owner, engine = process(), open_engine()
    owner.claim(1)
    groups = [owner.appended(bytes(1_000)) for _ in range(40)]
    begin = groups[0].position
    assert engine.read(begin, 1).records[0].position == begin
    assert len(engine.read(begin, 3_000).records) < 40
    found = []
    end = engine.bounds().end
    while begin < end:
        stored, begin = engine.read(begin, 3_000)
        found += [each.position for each in stored]
    assert found == [group.position for group in groups]
    assert engine.read(begin, 3_000) == ([], end)


def test_a_read_that_waits_returns_the_next_record_or_nothing_after_its_time(
    process: Callable[[], _Process], open_engine: Open
) -> None:
    owner, engine = process(), open_engine()
    owner.claim(1)
    begin = engine.bounds().end
    begun_s = time.monotonic()
    # Until it has reached the end, and then at the end.
    while time.monotonic() < begun_s + 1.0:
        assert engine.read(begin, 1, 0.2) == ([], begin)
    assert time.monotonic() - begun_s > 1.0
    with ThreadPoolExecutor(1) as thread:
        for number in range(3):
            waiting = thread.submit(engine.read, begin, 1, _SOON_S)
            group = owner.appended(b"%d" % number)
            [stored], behind = waiting.result()
            assert (stored.position, behind) == (group.position, group.position + 1)
            begin = behind


def test_a_trim_deletes_what_is_before_a_position(process: Callable[[], _Process], open_engine: Open) -> None:
    owner, engine = process(), open_engine()
    owner.claim(1)
    groups = [owner.appended(b"%d" % number) for number in range(5)]
    owner.log.trim(groups[3].position)
    assert owner.log.bounds().begin == groups[3].position
    with pytest.raises(PositionGoneError) as caught:
        engine.read(groups[2].position, 1)
    assert caught.value.begin == groups[3].position
    assert [each.position for each in engine.read(groups[3].position, 1 << 20).records] == [
        groups[3].position,
        groups[4].position,
    ]
    # A trim of what is gone changes nothing, and appends continue at greater positions.
    owner.log.trim(groups[1].position)
    assert owner.appended(b"more").position > groups[4].position


def test_the_snapshots_that_records_name_are_found_from_the_end(process: Callable[[], _Process]) -> None:
    owner = process()
    owner.claim(1)
    assert list(owner.log.named_snapshots(_INCARNATION)) == []
    tickets = [owner.log.append(b"group", EMPTY, EMPTY, snapshot) for snapshot in (None, 1, *[2] * 30, None)]
    tickets.append(owner.log.append_part(0, b"rows", EMPTY, 2, is_last=False))
    assert owner.log.wait(tickets[-1], _SOON_S)
    process().claim(2)
    assert list(process().log.named_snapshots(_INCARNATION)) == [2, 1]


def test_a_wait_ends_after_its_time(process: Callable[[], _Process]) -> None:
    owner = process()
    owner.claim(1)
    ticket = owner.append(b"payload")
    owner.log.wait(ticket, 0.0)
    assert owner.log.wait(ticket, _SOON_S)


def test_owners_that_alternate_confirm_only_what_readers_see(process: Callable[[], _Process]) -> None:
    """Two processes take the log from each other; each continues until it notices that."""
    both = [process(), process()]
    acknowledged: list[bytes] = []
    unfinished: list[tuple[_Process, list[tuple[bytes, Ticket]]]] = []
    for term in range(1, 31):
        who = both[term % 2] = process()
        who.claim(term)
        assert set(acknowledged) <= set(payloads(who.taken))
        for former, sent in unfinished:
            _confirm(former, sent, acknowledged)
        unfinished = [(who, [(payload, who.append(payload)) for payload in (b"%d.%d" % (term, n) for n in range(5))])]
        if term % 3:
            _confirm(who, unfinished[0][1][:2], acknowledged)
            unfinished[0][1][:2] = []
    visible = process().follow()
    assert len(set(visible)) == len(visible)
    assert set(acknowledged) <= set(visible)
    assert len(acknowledged) > 20


def _confirm(process: _Process, sent: list[tuple[bytes, Ticket]], acknowledged: list[bytes]) -> None:
    for payload, ticket in sent:
        try:
            assert process.log.wait(ticket, _SOON_S)
        except (FencedError, TenureEndedError):
            return
        acknowledged.append(payload)


def _unruly_terms(folder: Path, unruly: Unruly) -> tuple[list[bytes], list[bytes], int]:
    """Let 80 owners follow each other; return what was acknowledged, what is visible, and how many ended early."""
    RecordLog(FolderEngine(folder), SystemClock()).create(_INCARNATION)
    acknowledged: list[bytes] = []
    ended = 0
    for term in range(1, 81):
        owner = _Process(FolderEngine(folder, replace(unruly, seed=term)))
        owner.claim(term)
        assert set(acknowledged) <= set(payloads(owner.taken))
        sent = [(payload, owner.append(payload)) for payload in (b"%d.%d" % (term, number) for number in range(8))]
        before = len(acknowledged)
        _confirm(owner, sent, acknowledged)
        ended += len(acknowledged) < before + 8
    return acknowledged, _Process(FolderEngine(folder)).follow(), ended


_UNRULY: Final = Unruly(repeated=0.1, repeated_late=0.1, held_back=0.02, lost=0.01)


def test_an_unruly_engine_repeats_and_reorders_and_no_group_is_seen_twice(tmp_path: Path) -> None:
    acknowledged, visible, ended = _unruly_terms(tmp_path, _UNRULY)
    assert len(set(visible)) == len(visible)
    assert [each for each in visible if each in set(acknowledged)] == acknowledged
    # The engine was unruly, and most tenures outlived it.
    assert 0 < ended < 60


def test_a_reader_that_ignores_numbers_sees_groups_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acknowledged, _, _ = _unruly_terms(tmp_path, _UNRULY)
    monkeypatch.setattr(Reader, "take", take_without_numbers(Reader.take))
    visible = _Process(FolderEngine(tmp_path)).follow()
    assert len(set(visible)) < len(visible)
    assert [each for each in visible if each in set(acknowledged)] != acknowledged
