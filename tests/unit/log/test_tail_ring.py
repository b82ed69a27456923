"""The tail ring contains the newest entries within its bound, and reports when requested entries were evicted.

Method: a state machine against plain lists, with the bound so small that nearly every push evicts.
"""

import gc

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidelog_server.core.entries import NewEntry
from tidelog_server.core.ticks import NO_TICK, Tick
from tidelog_server.log.tail_ring import ENTRY_BYTES, TailRing, VchannelRing

MAX_BYTES = 100 + 5 * ENTRY_BYTES
LANES = 3


def an_entry(lane: int, tick: int, count: int, size_bytes: int) -> NewEntry:
    return NewEntry(lane, Tick(tick), count, 0, 0, bytes(size_bytes))


class RingMachine(RuleBasedStateMachine):
    """The ring against all entries ever pushed, of which the newest within the bound are in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.ring = TailRing(MAX_BYTES)
        self.lanes = [VchannelRing(lane, NO_TICK) for lane in range(LANES)]
        self.pushed: list[NewEntry] = []
        self.tick = 1

    def held(self) -> list[NewEntry]:
        """Return the entries that fit: the longest newest run within the bound."""
        held: list[NewEntry] = []
        size_bytes = 0
        for entry in reversed(self.pushed):
            size_bytes += len(entry.columns) + ENTRY_BYTES
            if size_bytes > MAX_BYTES:
                break
            held.insert(0, entry)
        return held

    @rule(lane=st.integers(0, LANES - 1), gap=st.integers(0, 3), count=st.integers(1, 4), size=st.integers(0, 130))
    def push(self, lane: int, gap: int, count: int, size: int) -> None:
        entry = an_entry(lane, self.tick + gap, count, size)
        self.tick = entry.last_tick + 1
        self.pushed.append(entry)
        self.ring.push(self.lanes[lane], entry)

    @rule(times=st.integers(50, 200))
    def push_many_tiny_ones(self, times: int) -> None:
        """Enough that the lists of the rings are compacted."""
        for number in range(times):
            self.push(number % LANES, 0, 1, 1)

    @rule(lane=st.integers(0, LANES - 1), back=st.integers(0, 60), span=st.integers(0, 60), most=st.integers(1, 20))
    def read(self, lane: int, back: int, span: int, most: int) -> None:
        begin = max(1, self.tick - back)
        found = self.lanes[lane].read(Tick(begin), Tick(begin + span), most)
        wanted = [
            entry
            for entry in self.pushed
            if entry.vchannel_id == lane and begin <= entry.last_tick and entry.base_tick < begin + span
        ]
        held = self.held()
        if found is None:
            lost = [entry for entry in self.pushed[: len(self.pushed) - len(held)] if entry.vchannel_id == lane]
            assert begin <= lost[-1].last_tick, "it has everything from there on"
        else:
            assert found == wanted[:most]
            assert all(entry in held for entry in found)

    @invariant()
    def the_bound_holds(self) -> None:
        assert self.ring.size_bytes == sum(len(entry.columns) + ENTRY_BYTES for entry in self.held())
        assert self.ring.size_bytes <= MAX_BYTES


TestRing = RingMachine.TestCase
TestRing.settings = settings(max_examples=30, stateful_step_count=25)


def test_a_lane_that_was_there_before_the_start_has_only_what_came_since() -> None:
    lane = VchannelRing(0, floor=Tick(10))
    ring = TailRing(MAX_BYTES)
    ring.push(lane, an_entry(0, 12, 2, 1))
    assert lane.read(Tick(10), Tick(100), 10) is None
    assert lane.read(Tick(11), Tick(100), 10) == [an_entry(0, 12, 2, 1)]


def test_the_garbage_collector_does_not_look_at_what_the_ring_keeps() -> None:
    lane = VchannelRing(0, NO_TICK)
    ring = TailRing(1 << 20)
    gc.collect()
    before = len(gc.get_objects())
    for tick in range(1, 2_001):
        ring.push(lane, an_entry(0, tick * 1_000_000, 1, 10))
    gc.collect()
    assert len(gc.get_objects()) - before < 100
