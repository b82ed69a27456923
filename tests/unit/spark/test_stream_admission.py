"""Goal: a micro-batch never ends within a transaction, respects the limits, and always makes progress.

Method: an in-memory log of batches and transactions on several vchannels, planned as the server does; hypothesis draws
logs and limits. If the server counts the messages of a plan, limits are exact; if it estimates them, batches still make
progress.
"""

import itertools
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tidelog import Plan, Split, Tick
from tidelog.spark.stream.admission import COARSE, Limits, admit, furthest

SIZE = 100
"""Bytes per message."""
VCHANNELS = 4
CHUNK = 3
"""Batches per chunk of the index."""


@dataclass(frozen=True)
class Append:
    """Consecutive messages of a transaction or a batch; ``parts`` are (vchannel, number of messages)."""

    first_tick: int
    parts: tuple[tuple[int, int], ...]
    is_transaction: bool

    @property
    def end_tick(self) -> int:
        return self.first_tick + sum(count for _, count in self.parts)

    def ranges(self) -> list[tuple[int, int, int]]:
        """Return vchannel, first tick and end of each part."""
        found = []
        tick = self.first_tick
        for index, count in self.parts:
            found.append((index, tick, tick + count))
            tick += count
        return found


@dataclass(frozen=True)
class Log:
    appends: tuple[Append, ...]
    cut: int

    def clean(self, tick: int) -> int:
        """Return the end of a plan up to ``tick``, which does not divide a transaction."""
        within = [each for each in self.appends if each.is_transaction and each.first_tick < tick < each.end_tick]
        return within[0].first_tick if within else tick

    def count(self, begin: int, end: int) -> int:
        return sum(
            max(0, min(last, end) - max(first, begin)) for each in self.appends for _, first, last in each.ranges()
        )

    def ask(self, begin: int, end_tick: int, grain: Limits, *, counts: bool = True) -> Plan:
        """Plan as the server does: by chunks, and by batches if a chunk is larger than a grain.

        For a chunk that is cut it counts the messages within the range, or estimates them in proportion to the ticks.
        """
        end = self.clean(end_tick)
        splits = []
        for index in range(VCHANNELS):
            parts = [part[1:] for each in self.appends for part in each.ranges() if part[0] == index]
            for whole in (parts[i : i + CHUNK] for i in range(0, len(parts), CHUNK)):
                chunk = whole
                if counts:
                    cut = [(max(first, begin), min(last, end)) for first, last in whole]
                    chunk = [(first, last) for first, last in cut if first < last]
                    if not chunk:
                        continue
                messages = sum(last - first for first, last in chunk)
                if 0 < grain.messages < messages or 0 < grain.size_bytes < messages * SIZE:
                    extents = [piece for first, last in chunk for piece in pieces(first, last, grain.messages)]
                else:
                    extents = [(chunk[0][0], chunk[-1][1], messages)]
                splits += [
                    share(index, extent, max(extent[0], begin), min(extent[1], end))
                    for extent in extents
                    if max(extent[0], begin) < min(extent[1], end)
                ]
        return Plan(Tick(end), splits)


def pieces(first: int, last: int, most: int) -> list[tuple[int, int, int]]:
    ends = range(first, last, most or last - first)
    return [(begin, min(last, begin + ends.step), min(last, begin + ends.step) - begin) for begin in ends]


def share(index: int, extent: tuple[int, int, int], begin: int, end: int) -> Split:
    first, last, messages = extent
    part, whole = end - begin, last - first
    return Split(
        f"c/{index}", Tick(begin), Tick(end), -(-messages * part // whole), -(-messages * SIZE * part // whole), Tick(1)
    )


@st.composite
def logs(draw: st.DrawFn) -> Log:
    tick = draw(st.integers(1, 50))
    appends = []
    for _ in range(draw(st.integers(0, 24))):
        tick += draw(st.sampled_from([0, 0, 1, 7, 1_000, 1_000_000]))
        is_transaction = draw(st.booleans())
        indexes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4 if is_transaction else 1, unique=True))
        parts = tuple((index, draw(st.integers(1, 20))) for index in indexes)
        appends.append(Append(tick, parts, is_transaction))
        tick = appends[-1].end_tick
    return Log(tuple(appends), tick + draw(st.integers(0, 10_000)))


def batches(log: Log, limits: Limits, step: int, *, counts: bool = True) -> list[tuple[int, int]]:
    """Return the begin and end of each batch until the cut is reached."""
    found = []
    begin = 0
    while begin < log.cut:

        def ask(end_tick: int, grain: Limits, begin: int = begin) -> Plan:
            return log.ask(begin, end_tick, grain, counts=counts)

        end = admit(ask, begin, log.cut, limits, step)
        assert begin < end <= log.cut
        found.append((begin, end))
        begin = end
    return found


@given(logs(), st.integers(0, 300), st.integers(0, 300), st.sampled_from([1, 100, 1 << 18, 1 << 40]))
def test_batches_get_to_the_cut_tear_nothing_and_keep_to_the_limits(
    log: Log, messages: int, hundreds: int, step: int
) -> None:
    found = batches(log, Limits(messages, hundreds * SIZE), step)

    most = min([limit for limit in (messages, hundreds) if limit] or [1 << 30])
    for begin, end in found:
        count = log.count(begin, end)
        assert count or end == log.cut
        assert log.clean(end) == end
        # Only a transaction may exceed the limits, and then the batch has nothing else.
        whole = [each for each in log.appends if begin <= each.first_tick and each.end_tick <= end]
        alone = count and len([each for each in whole if each.is_transaction]) == 1 and len(whole) == 1
        assert count <= most or alone


@given(logs(), st.integers(1, 300), st.sampled_from([1, 100, 1 << 18, 1 << 40]))
def test_batches_get_on_where_the_server_only_guesses(log: Log, messages: int, step: int) -> None:
    found = batches(log, Limits(messages), step, counts=False)

    # An estimate may find messages in the gaps of a sparse chunk, so a batch may be empty, but not repeatedly.
    assert sum(not log.count(begin, end) for begin, end in found) <= len(log.appends) + 1
    assert all(log.clean(end) == end for _, end in found)


@given(st.integers(1, 32), st.lists(st.integers(1, 9), min_size=1, max_size=40))
def test_a_batch_takes_what_fits(messages: int, counts: list[int]) -> None:
    """A backlog without gaps between its batches."""
    ticks = [1 + sum(counts[:i]) for i in range(len(counts) + 1)]
    appends = [
        Append(tick, ((i % VCHANNELS, count),), is_transaction=False)
        for i, (tick, count) in enumerate(zip(ticks, counts, strict=False))
    ]
    log = Log(tuple(appends), ticks[-1])

    found = [log.count(*batch) for batch in batches(log, Limits(messages), 1 << 18)]

    assert all(count == messages for count in found[:-1])


def test_without_limits_a_batch_ends_at_the_cut_and_nothing_is_asked() -> None:
    def ask(end_tick: int, grain: Limits) -> Plan:
        raise AssertionError((end_tick, grain))

    assert admit(ask, 5, 100, Limits()) == 100


def test_a_long_backlog_is_not_looked_at_as_a_whole() -> None:
    """One thousand messages per second for a year, with 10,000 messages per batch."""
    second = 1_000 << 18
    year = 365 * 86_400 * second
    looked_at: list[int] = []

    def ask(end_tick: int, grain: Limits) -> Plan:
        messages = end_tick * 1_000 // second
        looked_at.append(messages)
        count = min(messages, -(-messages // grain.messages) if grain.messages else 1)
        ends = [end_tick * part // count for part in range(count + 1)] if count else []
        splits = [
            Split("c/0", Tick(begin), Tick(end), messages // count, messages // count * SIZE, Tick(1))
            for begin, end in itertools.pairwise(ends)
        ]
        return Plan(Tick(end_tick), splits)

    end = admit(ask, 0, year, Limits(10_000))

    assert 9_900 <= end * 1_000 / second <= 10_100
    assert max(looked_at) <= 40_000
    assert len(looked_at) <= 12


def test_the_furthest_tick_counts_shares_of_splits_as_the_server_does() -> None:
    splits = [
        Split("c/0", Tick(0), Tick(100), 100, 100, Tick(1)),
        Split("c/1", Tick(50), Tick(150), 10, 10, Tick(1)),
    ]
    assert furthest(splits, Limits(), 0, 500) == 500
    assert furthest(splits, Limits(messages=110), 0, 500) == 500
    assert furthest(splits, Limits(messages=50), 0, 500) == 50
    assert furthest(splits, Limits(size_bytes=62), 0, 500) == 60
    assert furthest(splits, Limits(messages=1), 20, 500) == 20


def test_a_grain_is_a_small_part_and_never_nothing() -> None:
    assert Limits(1, 100).grain() == Limits(1, 4)
    assert Limits().grain() == COARSE
