"""A bucket grants its rate and burst, not more and not lastingly less, and its memory is bounded for many callers.

Method: hypothesis draws callers that ask, wait for the returned time, and take; time is an argument, never read.
"""

from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.runtime.buckets import Bucket, Buckets

RATES = st.floats(0.1, 1e6)
STEPS = st.lists(st.tuples(st.floats(0, 100), st.floats(0.01, 1e6)), min_size=1, max_size=60)


@given(RATES, st.floats(1, 1e6), STEPS)
def test_no_interval_gets_more_than_rate_and_burst_allow(
    rate_per_s: float, burst: float, steps: list[tuple[float, float]]
) -> None:
    now_s = 0.0
    bucket = Bucket(rate_per_s, burst, now_s)
    taken: list[tuple[float, float]] = []
    for pause_s, amount in steps:
        now_s += pause_s
        if bucket.wait_s(now_s) <= 0:
            bucket.take(amount, now_s)
            taken.append((now_s, amount))
    for first, (begin_s, _) in enumerate(taken):
        for last in range(first, len(taken)):
            # All but the last were taken while tokens were left.
            before = sum(amount for _, amount in taken[first:last])
            bound = burst + (taken[last][0] - begin_s) * rate_per_s
            assert before <= bound * (1 + 1e-9) + 1e-6


@given(RATES, st.floats(1, 1e6), st.floats(0.01, 1e7))
def test_whoever_waits_as_long_as_he_is_told_gets_something(rate_per_s: float, burst: float, amount: float) -> None:
    bucket = Bucket(rate_per_s, burst, 0.0)
    bucket.take(amount, 0.0)
    wait_s = bucket.wait_s(0.0)
    assert (wait_s > 0) == (amount >= burst)
    assert bucket.wait_s(wait_s * (1 + 1e-9) + 1e-6) == 0


@given(st.floats(1, 1e3), st.floats(0, 1e3))
def test_a_clock_that_goes_back_gives_nothing(rate_per_s: float, back_s: float) -> None:
    bucket = Bucket(rate_per_s, 1, 1e4)
    bucket.take(10, 1e4)
    assert bucket.wait_s(1e4 - back_s) == bucket.wait_s(1e4) > 0


@given(st.lists(st.integers(0, 30), max_size=200))
def test_the_caller_unused_for_longest_is_forgotten_first(callers: list[int]) -> None:
    buckets = Buckets(1, 1, max_callers=8)
    recent: list[int] = []
    for caller in callers:
        buckets.of(str(caller), 0.0).take(5, 0.0)
        recent = [*[each for each in recent if each != caller][-7:], caller]
        assert len(buckets) == len(recent)
    for caller in range(31):
        assert (buckets.wait_s(str(caller), 0.0) > 0) == (caller in recent)
