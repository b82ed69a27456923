"""Splits cover a range exactly, do not overlap, keep the order, and respect their bounds.

Method: random runs of entries with gaps, clipped, divided and joined; the split of every tick is checked.
"""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.core.entries import EntryHeader
from tidelog_server.core.ticks import Tick
from tidelog_server.log.scan.splits import Extent, SplitBounds, clip, extents_of_headers, join

BYTES_OF_A_MESSAGE = 10


@st.composite
def headers(draw: st.DrawFn) -> list[EntryHeader]:
    found = []
    tick = draw(st.integers(1, 50))
    for count, gap in draw(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 5)), max_size=20)):
        found.append(EntryHeader(1, Tick(tick), count, 0, 0, Tick(0), 1, bytes(16), count * BYTES_OF_A_MESSAGE, 0))
        tick += count + gap
    return found


@given(headers(), st.integers(0, 300), st.integers(0, 300), st.integers(1, 30), st.integers(1, 300))
def test_splits_hold_every_message_of_the_range_once_and_in_order(
    entries: list[EntryHeader], begin: int, span: int, max_messages: int, max_bytes: int
) -> None:
    end = begin + span
    extents = list(clip(extents_of_headers(entries, max_messages), begin, end))
    bounds = SplitBounds(max_messages, max_bytes)
    splits = list(join(extents, bounds))
    ticks = [tick for entry in entries for tick in range(entry.base_tick, entry.last_tick + 1)]
    wanted = [tick for tick in ticks if begin <= tick < end]
    assert [tick for split in splits for tick in wanted if split.begin_tick <= tick < split.end_tick] == wanted
    assert all(first.end_tick <= second.begin_tick for first, second in itertools.pairwise(splits))
    assert all(begin <= split.begin_tick < split.end_tick <= end for split in splits)
    for split in splits:
        held = [tick for tick in wanted if split.begin_tick <= tick < split.end_tick]
        assert split.messages == len(held) <= max_messages
        inside = [extent for extent in extents if split.begin_tick <= extent.first_tick < split.end_tick]
        assert len(inside) == 1 or split.columns_bytes <= max_bytes


@given(headers(), st.integers(1, 30), st.integers(1, 300))
def test_splits_are_as_large_as_the_bounds_allow(entries: list[EntryHeader], most: int, max_bytes: int) -> None:
    extents = list(extents_of_headers(entries, most))
    bounds = SplitBounds(most, max_bytes)
    splits = list(join(extents, bounds))
    for split, following in itertools.pairwise(splits):
        head = next(extent for extent in extents if extent.first_tick == following.begin_tick)
        assert bounds.are_exceeded_by(split.messages + head.messages, split.columns_bytes + head.columns_bytes)


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 1_000), st.integers(0, 100), st.integers(0, 100))
def test_a_part_that_may_hold_something_is_never_said_to_be_empty(
    first: int, length: int, messages: int, begin: int, span: int
) -> None:
    extent = Extent(first, first + length, messages, messages)
    for part in clip([extent], begin, begin + span):
        assert messages == 0 or 0 < part.messages <= messages
        assert begin <= part.first_tick <= part.last_tick < begin + span
