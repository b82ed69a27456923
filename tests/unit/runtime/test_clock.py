"""AwakeClock does not advance while the process is paused, and SystemClock does while the machine is suspended.

Method: a clock that the test sets; for SystemClock, the clock of the system that it reads.
"""

import runpy
import time

import pytest

from tidelog_server.runtime import clock as clocks
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


def test_monotonic_time_is_that_of_a_clock_that_counts_suspension(monkeypatch: pytest.MonkeyPatch) -> None:
    assert clocks._SINCE_BOOT == time.CLOCK_BOOTTIME
    assert clocks.SystemClock().monotonic_s() == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME), abs=10)

    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    elsewhere = runpy.run_path(clocks.__file__)
    assert elsewhere["_SINCE_BOOT"] == time.CLOCK_MONOTONIC
    assert elsewhere["SystemClock"]().monotonic_s() == pytest.approx(time.clock_gettime(time.CLOCK_MONOTONIC), abs=10)
