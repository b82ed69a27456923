"""The one place that reads clocks, and what is made of them."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time, which may jump, and monotonic time, which never does."""

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch. May jump, in both directions."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds since some moment. Never goes back."""
        ...


class SystemClock:
    """The clocks of the machine."""

    __slots__ = ()

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Return seconds since some moment, those included in which the machine slept: leases run out meanwhile."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class AwakeClock:
    """The time that passed while this process could do its work.

    A process that is stopped, or whose machine sleeps, cannot hear its clients, so their time shall not run out
    meanwhile: between two beats at most ``max_step_s`` passes here. Lives on the event loop.
    """

    def __init__(self, clock: Clock, max_step_s: float) -> None:
        self._clock = clock
        self._max_step_s = max_step_s
        self._beat_s = clock.monotonic_s()
        self._awake_s = 0.0

    def now_s(self) -> float:
        """Return seconds since this was made. Never goes back."""
        return self._awake_s + min(self._clock.monotonic_s() - self._beat_s, self._max_step_s)

    def beat(self) -> None:
        """Note that work gets done; call it more often than every ``max_step_s``."""
        self._awake_s = self.now_s()
        self._beat_s = self._clock.monotonic_s()
