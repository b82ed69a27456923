"""The one place that reads clocks."""

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
        """Return seconds since some moment."""
        return time.monotonic()
