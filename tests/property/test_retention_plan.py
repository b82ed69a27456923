"""Retention plans keep their promises for any channel. Method: random chunks, bounds and groups, checked by rules.

The rules are those of ``core.retention`` and the README, restated for single chunks without the plan's own code.

Promises of docs/reference/guarantees.md: G40, G41.
"""

from dataclasses import dataclass
from itertools import accumulate

from hypothesis import example, given
from hypothesis import strategies as st

from tidelog_server.channels.retention_plan import TrimCut, VchannelView, bytes_over, plan_cuts
from tidelog_server.core.retention import Retention
from tidelog_server.core.ticks import Tick
from tidelog_server.storage.format.codec import ChunkRow
from tidelog_server.storage.log_store import VchannelTail

GROUP_AT_NOTHING = 1


@dataclass(frozen=True)
class Lane:
    """A vchannel: sizes and last ticks of its chunks, and the position of its slowest group."""

    sizes: list[int]
    last_ticks: list[int]
    pinned_tick: int | None

    def chunks(self) -> list[ChunkRow]:
        firsts = [1, *(tick + 1 for tick in self.last_ticks)]
        begins = [0, *accumulate(self.sizes)]
        return [
            ChunkRow(first, last, last, 0, 0, 1, size, size, 0, begin, begin, b"")
            for first, last, size, begin in zip(firsts, self.last_ticks, self.sizes, begins, strict=False)
        ]

    def view(self, retention: Retention, over_bytes: int, expired_tick: int) -> VchannelView:
        """Return the vchannel's view, with no more chunks than the store would have read."""
        seen: list[ChunkRow] = []
        for chunk in self.chunks():
            seen.append(chunk)
            if expired_tick <= chunk.last_tick and over_bytes <= chunk.bytes_before + chunk.columns_bytes:
                break
        total = sum(self.sizes)
        last_tick = self.last_ticks[-1] if self.last_ticks else 0
        tail = VchannelTail(Tick(0), Tick(last_tick), len(self.sizes), total, total, 0, 0)
        return VchannelView(tail, seen, self.pinned_tick)

    def is_pinned(self, chunk: ChunkRow) -> bool:
        return self.pinned_tick is not None and self.pinned_tick <= chunk.last_tick


@st.composite
def lanes(draw: st.DrawFn) -> list[Lane]:
    """Draw one to four vchannels whose ticks are distinct, as within a channel."""
    count = draw(st.integers(1, 4))
    ticks = draw(st.lists(st.integers(2, 200), unique=True, max_size=20))
    owners = [draw(st.integers(0, count - 1)) for _ in ticks]
    drawn = []
    for index in range(count):
        own = sorted(tick for tick, owner in zip(ticks, owners, strict=True) if owner == index)
        sizes = [draw(st.integers(1, 50)) for _ in own]
        drawn.append(Lane(sizes, own, draw(st.none() | st.integers(GROUP_AT_NOTHING, 210))))
    return drawn


@st.composite
def retentions(draw: st.DrawFn) -> Retention:
    size = draw(st.sampled_from([0, 1, 10, 100, 300]))
    hard = draw(st.sampled_from([0, 1, 10, 100, 300, 900]))
    return Retention(draw(st.sampled_from([0, 1])), size, max(hard, size) if hard else 0)


def planned(channel: list[Lane], retention: Retention, expired_tick: int) -> dict[int, TrimCut]:
    bytes_left = sum(sum(lane.sizes) for lane in channel)
    over_bytes = bytes_over(retention, bytes_left)
    views = [lane.view(retention, over_bytes, expired_tick) for lane in channel]
    return {cut.index: cut for cut in plan_cuts(retention, views, expired_tick)}


def gone(channel: list[Lane], cuts: dict[int, TrimCut]) -> list[tuple[Lane, ChunkRow]]:
    return [
        (lane, chunk)
        for index, lane in enumerate(channel)
        for chunk in lane.chunks()
        if index in cuts and chunk.last_tick < cuts[index].tick
    ]


@given(lanes(), retentions(), st.integers(0, 210))
def test_cuts_lie_behind_whole_chunks_and_count_them(channel: list[Lane], retention: Retention, age_tick: int) -> None:
    cuts = planned(channel, retention, age_tick if retention.age_ms else 0)
    for index, cut in cuts.items():
        own = [chunk for lane, chunk in gone(channel, cuts) if lane is channel[index]]
        lost = [chunk for chunk in own if channel[index].is_pinned(chunk)]
        assert cut.tick == own[-1].last_tick + 1
        assert cut.messages == cut.bytes == sum(chunk.columns_bytes for chunk in own)
        assert cut.lost_messages == cut.lost_bytes == sum(chunk.columns_bytes for chunk in lost)
        assert cut.is_past_pin == bool(lost)


@given(lanes(), retentions(), st.integers(0, 210))
def test_nothing_goes_without_a_reason(channel: list[Lane], retention: Retention, age_tick: int) -> None:
    expired_tick = age_tick if retention.age_ms else 0
    cuts = planned(channel, retention, expired_tick)
    removed = gone(channel, cuts)
    by_cap_alone = []
    for lane, chunk in removed:
        newer_bytes = sum(
            other.columns_bytes for each in channel for other in each.chunks() if chunk.last_tick < other.last_tick
        )
        is_beyond = bool(retention.bytes) and retention.bytes <= newer_bytes
        if lane.is_pinned(chunk) or not (chunk.last_tick < expired_tick or is_beyond):
            by_cap_alone.append(chunk)
    if by_cap_alone:
        # No more than the cap requires: without the last of them the cap would be exceeded.
        total = sum(sum(lane.sizes) for lane in channel)
        removed_bytes = sum(chunk.columns_bytes for _, chunk in removed)
        assert 0 < retention.hard_bytes < total
        assert total - removed_bytes + max(chunk.columns_bytes for chunk in by_cap_alone) > retention.hard_bytes


@given(lanes(), retentions(), st.integers(0, 210))
def test_what_may_go_goes_unless_it_is_held(channel: list[Lane], retention: Retention, age_tick: int) -> None:
    expired_tick = age_tick if retention.age_ms else 0
    cuts = planned(channel, retention, expired_tick)
    kept = [(lane, chunk) for lane in channel for chunk in lane.chunks() if (lane, chunk) not in gone(channel, cuts)]
    for lane, chunk in kept:
        newer_bytes = sum(
            other.columns_bytes for each in channel for other in each.chunks() if chunk.last_tick < other.last_tick
        )
        is_beyond = bool(retention.bytes) and retention.bytes <= newer_bytes
        assert lane.is_pinned(chunk) or not (chunk.last_tick < expired_tick or is_beyond)


@given(lanes(), retentions(), st.integers(0, 210))
@example([Lane([5], [3], 1), Lane([5], [9], None)], Retention(0, 0, 5), 0)
def test_the_hard_cap_holds_and_takes_what_is_held_last(
    channel: list[Lane], retention: Retention, age_tick: int
) -> None:
    cuts = planned(channel, retention, age_tick if retention.age_ms else 0)
    removed = gone(channel, cuts)
    left_bytes = sum(sum(lane.sizes) for lane in channel) - sum(chunk.columns_bytes for _, chunk in removed)
    if retention.hard_bytes:
        assert left_bytes <= retention.hard_bytes
    if any(lane.is_pinned(chunk) for lane, chunk in removed):
        kept = [(lane, chunk) for lane in channel for chunk in lane.chunks() if (lane, chunk) not in removed]
        assert all(lane.is_pinned(chunk) for lane, chunk in kept)


def test_without_settings_nothing_goes() -> None:
    assert planned([Lane([5, 5], [3, 9], None)], Retention(), 0) == {}


def test_what_was_told_before_a_crash_is_not_counted_again() -> None:
    lane = Lane([5, 6, 7], [10, 20, 30], 1)
    view = lane.view(Retention(hard_bytes=1), 17, 0)
    (cut,) = plan_cuts(Retention(hard_bytes=7), [VchannelView(view.tail, view.chunks, 1, reported_tick=11)], 0)
    assert (cut.tick, cut.messages, cut.lost_messages, cut.is_past_pin) == (21, 11, 6, True)


def test_a_trim_between_two_looks_is_not_counted_twice() -> None:
    chunks = Lane([10, 10], [10, 20], None).chunks()
    # The tail includes the trim of the first chunk; the chunks were read before that trim.
    tail = VchannelTail(Tick(11), Tick(20), 2, 20, 20, 10, 10)
    assert plan_cuts(Retention(bytes=10), [VchannelView(tail, chunks)], 0) == []
    (cut,) = plan_cuts(Retention(hard_bytes=5), [VchannelView(tail, chunks)], 0)
    assert (cut.tick, cut.bytes) == (21, 10)
