"""Random logs of several writers that pause, repeat and reorder: what an owner confirms, every reader sees, once."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from tidelog_server.recordlog.records import EMPTY, Kind, Mark, Position, Record
from tidelog_server.recordlog.rules import (
    START,
    FencedError,
    Group,
    Reader,
    ReaderState,
    Tenure,
    TenureEndedError,
)
from tidelog_testing.faults.plants import take_without_numbers

_INCARNATION: Final = bytes(16)
_WRITERS: Final = 3
_ACTIONS: Final = st.lists(
    st.tuples(
        st.integers(0, _WRITERS - 1),
        st.sampled_from(
            ["claim", "stale claim", "send", "send parts", "deliver", "deliver", "repeat", "reorder", "confirm"]
        ),
    ),
    max_size=60,
)  # fmt: skip


def _fence(term: int, claim: bytes = b"") -> Record:
    return Record(Kind.FENCE, _INCARNATION, term, 0, 0, 1, EMPTY, EMPTY, None, claim)


@dataclass
class _Writer:
    """A process: it claims, sends, and confirms what it learns the positions of."""

    reader: Reader = field(default_factory=lambda: Reader(START))
    taken: Position = 0
    seen: list[bytes] = field(default_factory=list)
    tenure: Tenure | None = None
    mark: Mark = EMPTY
    number: int = 0
    sent: list[Record] = field(default_factory=list)
    on_the_way: deque[Record] = field(default_factory=deque)
    reported: dict[int, Position] = field(default_factory=dict)


class _World:
    """The log and its writers. ``plant`` leaves out a rule."""

    def __init__(self, plant: str = "") -> None:
        self.log: list[Record] = [_fence(0)]
        self.plant = plant
        self.writers = [_Writer() for _ in range(_WRITERS)]
        self.terms = 0
        # What each term has acknowledged, in order, and what its owner had seen when it began.
        self.acknowledged: dict[int, list[bytes]] = {}
        self.found: dict[int, list[bytes]] = {}

    def act(self, who: int, what: str) -> None:
        writer = self.writers[who]
        if "claim" in what:
            self._claim(writer, is_stale=what == "stale claim")
        elif what.startswith("send") and writer.tenure is not None:
            self._send(writer, parts=2 if what == "send parts" else 1)
        elif writer.on_the_way and what in ("deliver", "repeat", "reorder"):
            self._deliver(writer, what)
        elif what == "confirm" and writer.tenure is not None:
            try:
                self._confirm(writer)
            except (FencedError, TenureEndedError):
                writer.tenure = None

    def _claim(self, writer: _Writer, *, is_stale: bool) -> None:
        if writer.tenure is not None:
            return
        self.terms += 0 if is_stale else 1
        term = max(self.terms, 1)
        claim = bytes([len(self.log) & 0xFF, len(self.log) >> 8])
        self.log.append(_fence(term, claim))
        # What is on its way may still arrive: it belongs to an earlier term.
        writer.sent, writer.reported = [], {}
        while writer.taken < len(self.log):
            self._take(writer, writer.taken, self.log[writer.taken])
        if writer.reader.claim == claim:
            fence = len(self.log) - 1
            writer.tenure, writer.number, writer.mark = Tenure(writer.reader, fence), 1, writer.reader.mark
            assert term not in self.acknowledged, "two owners in one term"
            self.acknowledged[term] = []
            self.found[term] = list(writer.seen)

    def _take(self, writer: _Writer, position: Position, record: Record) -> Any:
        writer.taken = position + 1
        return self._noted(writer, writer.reader.take(position, record))

    def _noted(self, writer: _Writer, taken: Any) -> Any:
        if isinstance(taken, Group):
            writer.seen.append(b"".join(taken.payloads))
        return taken

    def _send(self, writer: _Writer, parts: int) -> None:
        term = writer.reader.term
        after = Mark(writer.mark.sequence + 1, bytes([term, writer.number & 0xFF]) * 8)
        for part in range(parts):
            payload = b"%d/%d;" % (term, writer.number)
            record = Record(
                Kind.GROUP, _INCARNATION, term, writer.number, part, parts, writer.mark, after, None, payload
            )
            writer.number += 1
            writer.sent.append(record)
            writer.on_the_way.append(record)
        writer.mark = after

    def _deliver(self, writer: _Writer, how: str) -> None:
        if how == "reorder" and len(writer.on_the_way) > 1:
            writer.on_the_way.rotate(-1)
            record = writer.on_the_way.popleft()
            writer.on_the_way.rotate(1)
        else:
            record = writer.on_the_way.popleft()
        for _ in range(2 if how == "repeat" else 1):
            self.log.append(record)
        if any(record is each for each in writer.sent):
            writer.reported[record.number] = len(self.log) - 1

    def _confirm(self, writer: _Writer) -> None:
        tenure = writer.tenure
        assert tenure is not None
        term = writer.reader.term
        while writer.sent and writer.sent[0].number in writer.reported:
            record = writer.sent.pop(0)
            position = writer.reported[record.number]
            if self.plant == "no rule 5":
                if record.part + 1 == record.parts:
                    self.acknowledged[term].append(b"".join(_payloads_of(record)))
                continue
            completed = [
                self._noted(writer, tenure.passed(each, self.log[each])) for each in tenure.unread_before(position)
            ]
            completed.append(self._noted(writer, tenure.confirm(position, record)))
            writer.taken = max(writer.taken, position + 1)
            for taken in completed:
                if isinstance(taken, Group):
                    self.acknowledged[term].append(b"".join(taken.payloads))

    def visible(self) -> list[tuple[int, bytes]]:
        """What a fresh reader sees: term and payload of each group."""
        reader = Reader(START)
        taken = [reader.take(position, record) for position, record in enumerate(self.log)]
        return [(each.term, b"".join(each.payloads)) for each in taken if isinstance(each, Group)]

    def check(self) -> None:
        visible = self.visible()
        for term, acknowledged in self.acknowledged.items():
            assert [payload for its, payload in visible if its == term][: len(acknowledged)] == acknowledged
            for later, found in self.found.items():
                if later > term:
                    assert set(acknowledged) <= set(found), "a later owner began without what was acknowledged"
        assert len({payload for _, payload in visible}) == len(visible), "a group is visible twice"


def _payloads_of(record: Record) -> list[bytes]:
    first = record.number - record.part
    return [b"%d/%d;" % (record.term, first + part) for part in range(record.parts)]


def _run(actions: list[tuple[int, str]], plant: str = "") -> _World:
    world = _World(plant)
    for who, what in actions:
        world.act(who, what)
    return world


@given(_ACTIONS)
@settings(max_examples=1_000)
def test_what_an_owner_confirms_every_reader_sees_once(actions: list[tuple[int, str]]) -> None:
    _run(actions).check()


@given(_ACTIONS, st.data())
def test_a_reader_that_continues_sees_what_one_from_the_start_sees(
    actions: list[tuple[int, str]], data: st.DataObject
) -> None:
    log = _run(actions).log
    reader = Reader(START)
    states: list[tuple[int, ReaderState, list[Any]]] = [(0, START, [])]
    taken: list[Any] = []
    for position, record in enumerate(log):
        taken.append(reader.take(position, record))
        if not reader._parts:
            states.append((position + 1, reader.state, list(taken)))
    begin, state, before = data.draw(st.sampled_from(states))
    other = Reader(state)
    after = [other.take(position, log[position]) for position in range(begin, len(log))]
    assert [*before, *after] == taken
    assert (other.term, other.number, other.mark) == (reader.term, reader.number, reader.mark)


def test_the_model_finds_acknowledgements_without_rule_5() -> None:
    def is_wrong(actions: list[tuple[int, str]]) -> bool:
        try:
            _run(actions, "no rule 5").check()
        except AssertionError:
            return True
        return False

    find(_ACTIONS, is_wrong, settings=settings(max_examples=20_000, database=None))


def test_the_model_finds_readers_without_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reader, "take", take_without_numbers(Reader.take))

    def is_wrong(actions: list[tuple[int, str]]) -> bool:
        world = _run(actions)
        try:
            world.check()
        except AssertionError:
            return True
        return False

    try:
        find(_ACTIONS, is_wrong, settings=settings(max_examples=20_000, database=None))
    except NoSuchExample:
        pytest.fail("readers that ignore numbers were not found wrong")
