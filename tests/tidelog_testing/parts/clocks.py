"""Clocks that tests set."""

import time


class SetClock:
    """Wall time that only the test moves, in either direction; monotonic time is the machine's."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = wall_ms

    def wall_ms(self) -> int:
        """Return the wall time that was set."""
        return self.now_ms

    def monotonic_s(self) -> float:
        """Return the machine's monotonic time."""
        return time.monotonic()


class SteppedClock(SetClock):
    """Monotonic time that only the test moves, too."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        super().__init__(wall_ms)
        self.now_s = 1_000.0

    def monotonic_s(self) -> float:
        """Return the time that was set."""
        return self.now_s
