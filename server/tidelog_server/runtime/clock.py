"""The clocks. No other module reads the system's clocks."""

import time
from typing import Final, Protocol

_SINCE_BOOT: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The clock that runs while the machine is suspended: on Linux CLOCK_BOOTTIME.

Systems without it, such as macOS, have CLOCK_MONOTONIC, which runs during suspension there.
"""


class Clock(Protocol):
    """Wall time, which may jump, and monotonic time, which does not."""

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch. May jump in both directions."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds since an arbitrary time. Never decreases."""
        ...


class SystemClock:
    """The clocks of the machine."""

    __slots__ = ()

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Return seconds since boot, including suspension of the machine: leases expire during it."""
        return time.clock_gettime(_SINCE_BOOT)


class AwakeClock:
    """The time that passed while this process was running.

    A process that is stopped, or on a suspended machine, cannot receive calls, so clients must not time out meanwhile:
    this clock advances at most ``max_step_s`` between two beats. Lives on the event loop.
    """

    def __init__(self, clock: Clock, max_step_s: float) -> None:
        self._clock = clock
        self._max_step_s = max_step_s
        self._beat_s = clock.monotonic_s()
        self._awake_s = 0.0

    def now_s(self) -> float:
        """Return seconds since construction. Never decreases."""
        return self._awake_s + min(self._clock.monotonic_s() - self._beat_s, self._max_step_s)

    def beat(self) -> None:
        """Record that the process runs. Call it more often than every ``max_step_s``."""
        self._awake_s = self.now_s()
        self._beat_s = self._clock.monotonic_s()
