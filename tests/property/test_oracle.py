"""Ticks grow strictly, for any clock and any number of restarts.

Method: the oracle with a clock that jumps both ways and metadata that outlive it, against all ticks handed out before.

Promises of docs/reference/guarantees.md: G4.
"""

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.limits import MAX_TICKS_PER_REQUEST, TICK_SAVE_AHEAD_MS
from tidelog_server.core.ticks import LOGICAL_BITS, LOGICAL_MASK, MAX_PHYSICAL_MS, NO_TICK, Tick, compose, physical_ms
from tidelog_server.log.oracle import TickOracle, TickState
from tidelog_server.log.tick_lead import MAX_TICK_LEAD_MS, MAX_TICKS_WHILE_AHEAD, allocate_for_caller
from tidelog_server.metadata.memory import MemoryMetadataStore
from tidelog_testing.parts.clocks import SetClock

KEY = "tidelog/timestamp"
START_MS = 1_700_000_000_000

steps = st.lists(
    st.one_of(
        st.tuples(st.just("clock"), st.integers(-100_000, 100_000)),
        st.tuples(st.just("allocate"), st.integers(1, 1_000_000)),
        st.tuples(st.just("now"), st.just(0)),
        st.tuples(st.just("extend"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=40,
)


async def opened(clock: SetClock, metadata: MemoryMetadataStore, floor: int = NO_TICK) -> TickOracle:
    oracle = TickOracle(clock, metadata, KEY)
    await oracle.open(Tick(floor))
    return oracle


async def saved_bound_ms(metadata: MemoryMetadataStore) -> int:
    saved = await metadata.get(KEY)
    assert saved is not None
    return int.from_bytes(saved.value, "big") // 1_000_000


@given(steps)
def test_ticks_grow_strictly_over_clock_jumps_and_restarts(steps: list[tuple[str, int]]) -> None:
    async def run() -> None:
        clock, metadata = SetClock(START_MS), MemoryMetadataStore()
        oracle = await opened(clock, metadata)
        promised = 0
        for step, number in steps:
            match step:
                case "clock":
                    clock.now_ms += number
                case "allocate":
                    first = await oracle.allocate(number)
                    assert promised < first
                    promised = first + number - 1
                case "now":
                    now = oracle.now()
                    assert promised <= now
                    promised = now
                case "extend":
                    await oracle._extend()
                case _:
                    # As after a crash: only the saved bound is left.
                    oracle = await opened(clock, metadata)
            assert physical_ms(promised) < await saved_bound_ms(metadata)

    asyncio.run(run())


@given(st.integers(0, 1 << 62), st.integers(0, 1 << 40), st.integers(1, 1 << 30), st.integers(0, 1 << 41))
def test_an_allocation_lies_below_the_bound_or_changes_nothing(last: int, wall: int, count: int, bound_ms: int) -> None:
    state = TickState(Tick(last), bound_ms)
    first = state.allocate(wall, count)
    if first is None:
        assert state.last == last
        assert physical_ms(max(last + 1, compose(wall)) + count - 1) >= bound_ms
    else:
        assert last < first
        assert compose(wall) <= first
        assert state.last == first + count - 1
        assert physical_ms(state.last) < bound_ms


def test_a_tick_is_milliseconds_and_a_counter() -> None:
    # Source: worked example A1 of the write-ahead log's specification.
    tick = compose(1_637_132_741_494, 6)
    assert tick == 429164525386203142
    assert (physical_ms(tick), tick & LOGICAL_MASK) == (1_637_132_741_494, 6)


def test_ticks_run_on_into_the_next_millisecond_when_the_counter_overflows() -> None:
    state = TickState(compose(START_MS, LOGICAL_MASK - 1), START_MS + 10)
    assert state.allocate(START_MS, 3) == compose(START_MS, LOGICAL_MASK)
    assert state.last == compose(START_MS + 1, 1)


def test_now_stops_below_the_saved_bound() -> None:
    state = TickState(NO_TICK, START_MS)
    assert state.advance(START_MS + 5_000) == compose(START_MS) - 1


async def test_a_request_for_very_many_ticks_saves_a_bound_that_holds_them() -> None:
    clock, metadata = SetClock(START_MS), MemoryMetadataStore()
    oracle = await opened(clock, metadata)
    # The clock was set back by an hour, so the last tick is ahead of the clock.
    await oracle.allocate(1)
    clock.now_ms -= 3_600_000
    count = (10 * TICK_SAVE_AHEAD_MS) << LOGICAL_BITS
    first = await oracle.allocate(count)
    assert physical_ms(first + count) < await saved_bound_ms(metadata)


async def test_a_restart_begins_above_the_greatest_tick_of_the_log() -> None:
    floor = compose(START_MS + 86_400_000, 7)
    oracle = await opened(SetClock(START_MS), MemoryMetadataStore(), floor)
    assert await oracle.allocate(1) == floor + 1


async def test_ticks_are_above_a_barrier_that_is_not_ahead_of_the_clock() -> None:
    clock = SetClock(START_MS)
    oracle = await opened(clock, MemoryMetadataStore())
    assert oracle.try_allocate(1, after=compose(START_MS)) == compose(START_MS, 1)


async def test_a_barrier_ahead_of_the_clock_is_not_handed_out() -> None:
    clock = SetClock(START_MS)
    oracle = await opened(clock, MemoryMetadataStore())
    barrier = compose(START_MS + 100, 5)
    assert oracle.try_allocate(1, barrier) is None
    clock.now_ms += 101
    assert oracle.try_allocate(1, barrier) == compose(START_MS + 101)


@pytest.mark.parametrize("ahead", [1, 1 << LOGICAL_BITS, MAX_PHYSICAL_MS << LOGICAL_BITS])
async def test_waiting_for_a_barrier_leaves_the_event_loop_free(ahead: int) -> None:
    clock = SetClock(START_MS)
    oracle = await opened(clock, MemoryMetadataStore())
    # A barrier within the oracle's current millisecond, while the clock is behind it.
    last = await oracle.allocate(1)
    clock.now_ms -= 60_000
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(oracle.allocate(1, min(last + ahead, (1 << 63) - 1)), 0.05)
    assert await oracle.allocate(1) == last + 1


async def test_concurrent_callers_get_ticks_of_their_own() -> None:
    clock = SetClock(START_MS)
    oracle = await opened(clock, MemoryMetadataStore())
    count = 1_000_000
    firsts = sorted(await asyncio.gather(*(oracle.allocate(count) for _ in range(3_000))))
    assert all(second - first >= count for first, second in itertools.pairwise(firsts))


async def test_few_ticks_are_allocated_also_while_the_clock_is_behind() -> None:
    clock = SetClock(START_MS)
    oracle = await opened(clock, MemoryMetadataStore())
    last = await allocate_for_caller(oracle, clock, MAX_TICKS_PER_REQUEST)
    clock.now_ms -= 3_600_000
    with pytest.raises(RateLimitRejectedError) as refused:
        await allocate_for_caller(oracle, clock, MAX_TICKS_WHILE_AHEAD + 1)
    assert int(refused.value.values["retry_after_ms"]) >= 3_600_000 - MAX_TICK_LEAD_MS
    assert await allocate_for_caller(oracle, clock, MAX_TICKS_WHILE_AHEAD) == last + MAX_TICKS_PER_REQUEST


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, MAX_TICKS_PER_REQUEST)), max_size=30))
def test_allocations_never_exceed_the_lead(steps: list[tuple[int, int]]) -> None:
    async def run() -> None:
        clock = SetClock(START_MS)
        oracle = await opened(clock, MemoryMetadataStore())
        # Nearly the maximum lead over the clock.
        await oracle.allocate((MAX_TICK_LEAD_MS - 50) << LOGICAL_BITS)
        for passed_ms, count in steps:
            clock.now_ms += passed_ms
            for _ in range(20):
                try:
                    first = await allocate_for_caller(oracle, clock, count)
                except RateLimitRejectedError:
                    break
                small = count <= MAX_TICKS_WHILE_AHEAD
                assert physical_ms(first + count - 1) - clock.now_ms <= MAX_TICK_LEAD_MS + small

    asyncio.run(run())
