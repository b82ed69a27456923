"""Bounds of append times: no message is taken for older than it is, and each becomes too old in time."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.channels.append_times import AppendTimes
from tidelog_server.core.ticks import NO_TICK, Tick, compose, physical_ms
from tidelog_server.log.oracle import TickState

STEPS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 3)), min_size=1, max_size=60)


@given(ahead_ms=st.integers(0, 10**9), steps=STEPS, age_ms=st.integers(1, 20_000))
def test_no_message_is_too_old_before_its_time(ahead_ms: int, steps: list[tuple[int, int]], age_ms: int) -> None:
    now_ms = 10**12
    state = TickState(Tick(compose(now_ms + ahead_ms)), 1 << 45)
    times, appended = AppendTimes(), {}
    for waited_ms, appends in steps:
        now_ms += waited_ms
        for _ in range(appends):
            tick = state.allocate(now_ms, 1)
            assert tick is not None
            appended[tick] = now_ms
        expired_tick = times.expired_tick(now_ms - age_ms)
        assert all(at_ms + age_ms <= now_ms for tick, at_ms in appended.items() if tick < expired_tick)
        times.note(now_ms, state.last)
        assert all(at_ms <= times.appended_ms(tick, now_ms) <= now_ms for tick, at_ms in appended.items())
    # What was noted goes once its age is over.
    assert all(tick < times.expired_tick(now_ms) or physical_ms(tick) == now_ms for tick in appended)


def test_many_samples_keep_ages_apart() -> None:
    times, begin_ms = AppendTimes(), 10**12
    last = compose(begin_ms + 10**9)
    for number in range(10_000):
        times.note(begin_ms + number * 1_000, last + number)
    assert len(times._samples) <= 512
    for age in (1_000, 5_000, 9_000):
        expired = times.expired_tick(begin_ms + (10_000 - age) * 1_000) - last
        assert 10_000 - 1.07 * age - 2 <= expired <= 10_000 - age + 1


def test_samples_of_a_future_that_was_corrected_count_from_now() -> None:
    times = AppendTimes()
    times.note(2_000_000, compose(3_000_000))
    times.note(1_000_000, compose(3_000_000))
    assert times.expired_tick(999_999) == compose(999_999)
    assert times.expired_tick(1_000_000) == compose(3_000_000) + 1
    assert AppendTimes().expired_tick(-5) == NO_TICK
