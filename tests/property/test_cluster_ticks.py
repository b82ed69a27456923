"""No tick is handed out twice in a cluster, and each node keeps the promises of its watermarks under any leader.

Method: two oracles of a cluster call the leader over a wire that loses and delays responses, with clocks that jump and
leaders that change: a new leader starts at the saved bound, a former one may still answer. The results are compared
with all ticks handed out before.

Promises of docs/reference/guarantees.md: G45.
"""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.cluster.ticks import MIN_TICK_RANGE, TICK_RANGE_AGE_S, ClusterOracle
from tidelog_server.core.errors.cluster import MetadataUnavailableError, NotLeaderError
from tidelog_server.core.limits import MAX_NODES
from tidelog_server.core.ticks import NO_TICK, physical_ms
from tidelog_server.log.oracle import TickOracle
from tidelog_server.metadata.memory import MemoryMetadataStore, SharedMemory
from tidelog_testing.parts.clocks import SteppedClock

NODES = 2
KEY = "tidelog/timestamp"

steps = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), st.integers(0, NODES - 1), st.integers(1, 400_000)),
        st.tuples(st.just("now"), st.integers(0, NODES - 1), st.just(0)),
        st.tuples(st.just("refresh"), st.integers(0, NODES - 1), st.just(0)),
        st.tuples(st.just("late answer"), st.integers(0, NODES - 1), st.just(0)),
        st.tuples(st.just("advance"), st.just(0), st.integers(1, 2_000)),
        st.tuples(st.just("set clock"), st.just(0), st.integers(-100_000, 100_000)),
        st.tuples(st.just("elect"), st.just(0), st.just(0)),
    ),
    min_size=20,
    max_size=60,
)


class Wire:
    """The connection to the leader. ``stale`` holds responses that a former leader may still send."""

    def __init__(self, clock: SteppedClock) -> None:
        self.clock = clock
        self.memory = SharedMemory(clock)
        self.leader: TickOracle | None = None
        self.former: TickOracle | None = None
        self.asks_former = False

    async def elect(self) -> None:
        self.former, self.leader = self.leader, None
        leader = TickOracle(self.clock, MemoryMetadataStore(self.memory), KEY)
        await leader.open(NO_TICK)
        self.leader = leader

    async def fetch(self, count: int) -> int:
        if self.asks_former and self.former is not None:
            # A paused leader hands out ticks up to its saved bound only.
            first = self.former.try_allocate(count)
            if first is None:
                raise NotLeaderError(node_id="", address="")
            return first
        if self.leader is None:
            raise NotLeaderError(node_id="", address="")
        return await self.leader.allocate(count)


class Model:
    """Three nodes, and the promises of their watermarks. One method per step."""

    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.wire = Wire(self.clock)
        self.nodes = [ClusterOracle(self.clock, self.wire.fetch) for _ in range(NODES)]
        self.handed_out: list[tuple[int, int]] = []
        self.promised = [0] * NODES

    async def allocate(self, index: int, count: int) -> None:
        first = await self.nodes[index].allocate(count)
        last = first + count - 1
        assert self.promised[index] < first
        assert not any(first <= other_last and other <= last for other, other_last in self.handed_out)
        self.handed_out.append((first, last))
        self.promised[index] = last

    async def now(self, index: int, _: int) -> None:
        self.promised[index] = max(self.promised[index], self.nodes[index].now())

    async def refresh(self, index: int, _: int) -> None:
        await self.nodes[index].refresh()

    async def late_answer(self, index: int, _: int) -> None:
        self.wire.asks_former = True
        await self.nodes[index].refresh()
        self.wire.asks_former = False

    async def advance(self, _: int, ms: int) -> None:
        self.clock.now_s += ms / 1_000
        self.clock.now_ms += ms

    async def set_clock(self, _: int, ms: int) -> None:
        self.clock.now_ms += ms

    async def elect(self, _: int, __: int) -> None:
        await self.wire.elect()


@given(steps)
def test_ticks_are_unique_and_promises_are_kept(steps: list[tuple[str, int, int]]) -> None:
    async def run() -> None:
        model = Model()
        await model.wire.elect()
        for step, index, number in steps:
            await getattr(model, step.replace(" ", "_"))(index, number)
        for index in range(NODES):
            await model.allocate(index, 1)

    asyncio.run(run())


async def test_a_leader_that_another_one_has_followed_refuses_without_an_effect() -> None:
    clock = SteppedClock()
    wire = Wire(clock)
    await wire.elect()
    node = ClusterOracle(clock, wire.fetch)
    assert wire.leader is not None
    node.lead(wire.leader)
    await node.allocate(1)
    await wire.elect()
    clock.now_ms += 60_000
    with pytest.raises(MetadataUnavailableError, match="another node has become the leader"):
        await node.allocate(1)


async def test_a_range_is_used_for_a_short_time_only() -> None:
    clock = SteppedClock()
    wire = Wire(clock)
    await wire.elect()
    node = ClusterOracle(clock, wire.fetch)
    first = await node.allocate(10)
    assert node.try_allocate(10) == first + 10
    clock.now_s += TICK_RANGE_AGE_S
    assert node.try_allocate(10) is None
    assert await node.allocate(10) > first + 20


async def test_a_barrier_is_exceeded() -> None:
    clock = SteppedClock()
    wire = Wire(clock)
    await wire.elect()
    node, other = ClusterOracle(clock, wire.fetch), ClusterOracle(clock, wire.fetch)
    await node.allocate(1)
    barrier = await other.allocate(1)
    assert await node.allocate(1, barrier) > barrier
    leading = ClusterOracle(clock, wire.fetch)
    assert wire.leader is not None
    leading.lead(wire.leader)
    assert await leading.allocate(1, barrier) > barrier
    assert await leading.allocate(1) > leading.now() - 1
    leading.leave_behind(1)
    assert leading.last > barrier


async def test_a_node_that_catches_up_has_passed_all_that_others_handed_out() -> None:
    wire = Wire(SteppedClock())
    await wire.elect()
    one, other = (ClusterOracle(wire.clock, wire.fetch) for _ in range(2))

    for here, there in ((one, other), (other, one)):
        last = await there.allocate(5) + 4
        if here is one:
            assert here.now() < last
        await here.catch_up()
        assert here.now() >= last


async def test_a_node_hands_out_nothing_below_a_tick_that_it_leaves_behind() -> None:
    wire = Wire(SteppedClock())
    await wire.elect()
    one, other = (ClusterOracle(wire.clock, wire.fetch) for _ in range(2))
    await one.allocate(1)
    created = await other.allocate(5) + 4

    # Without that, the next tick would be one of the older range.
    assert one.now() < created
    one.leave_behind(created)

    assert one.now() >= created
    assert await one.allocate(1) > created


async def test_barriers_use_up_no_ticks_of_a_range() -> None:
    wire = Wire(SteppedClock())
    await wire.elect()
    assert wire.leader is not None
    node = ClusterOracle(wire.clock, wire.fetch)
    await node.allocate(1)
    before = wire.leader.last

    for _ in range(1_000):
        # The second to last tick of the range.
        await node.allocate(1, node._range.end_tick - 2)

    assert wire.leader.last - before <= 1_000 * 2 * MIN_TICK_RANGE
    assert physical_ms(wire.leader.last) - physical_ms(before) <= 40


async def test_nodes_that_use_few_ticks_do_not_move_the_clock_of_the_log() -> None:
    wire = Wire(SteppedClock())
    await wire.elect()
    assert wire.leader is not None
    nodes = [ClusterOracle(wire.clock, wire.fetch) for _ in range(MAX_NODES)]
    begun_ms = wire.clock.now_ms
    for _ in range(50):
        for node in nodes:
            await node.refresh()
            await node.allocate(10)
        wire.clock.now_s += 0.02
        wire.clock.now_ms += 20
    assert wire.clock.now_ms - begun_ms == 1_000
    assert wire.leader.lead_s() <= 0.1


async def test_a_busy_node_gets_ranges_that_last() -> None:
    wire = Wire(SteppedClock())
    await wire.elect()
    node = ClusterOracle(wire.clock, wire.fetch)
    refills = 0
    fetch = node._fetch

    async def counted(count: int) -> int:
        nonlocal refills
        refills += 1
        return await fetch(count)

    node._fetch = counted
    for _ in range(100):
        await node.allocate(10_000)
    assert refills <= 15
