"""AwakeClock does not advance while the process is paused. Method: a clock that the test sets."""

import pytest

from tidelog_server.runtime.clock import AwakeClock


class MovedClock:
    """Monotonic time that advances only when the test sets it."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def wall_ms(self) -> int:
        raise AssertionError("AwakeClock must not read the wall time")

    def monotonic_s(self) -> float:
        return self.now_s


def test_time_passes_as_on_the_clock_while_it_beats() -> None:
    clock = MovedClock()
    awake = AwakeClock(clock, max_step_s=0.5)

    for _ in range(10):
        clock.now_s += 0.3
        assert awake.now_s() == pytest.approx(clock.now_s - 1_000)
        awake.beat()

    assert awake.now_s() == pytest.approx(3.0)


@pytest.mark.parametrize("is_asked_first", [False, True])
def test_of_a_pause_one_step_passes(*, is_asked_first: bool) -> None:
    clock = MovedClock()
    awake = AwakeClock(clock, max_step_s=0.5)

    clock.now_s += 3_600
    if is_asked_first:
        assert awake.now_s() == pytest.approx(0.5)
    awake.beat()

    assert awake.now_s() == pytest.approx(0.5)
    clock.now_s += 0.2
    assert awake.now_s() == pytest.approx(0.7)
