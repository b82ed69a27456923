"""The stages of an operation add up to its time; an operation that lacks a point has no stages."""

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.budget import durations_of

times = st.integers(0, 1_000)


@given(times, times, st.lists(st.lists(times, max_size=20).map(sorted), max_size=5))
def test_the_stages_of_an_operation_add_up_to_it(begin: int, length: int, points: list[list[int]]) -> None:
    end = begin + length
    durations = durations_of((begin, end), points)
    moment = begin
    for of_point in points:
        later = of_point[bisect_left(of_point, moment) :]
        moment = later[0] if later else end + 1
    if moment > end:
        assert durations is None
    else:
        assert durations is not None
        assert sum(durations) == length
        assert min(durations) >= 0
        assert len(durations) == len(points) + 1
