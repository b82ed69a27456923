"""Decides whether the event loop syncs a group itself. Pure: times are arguments.

A hand-over to the thread and back costs a lone append 60 to 70 µs, a tenth of its time. It lets the event loop work
during the sync, which is worth nothing while one caller appends, waits for the answer, and appends again. So the loop
syncs a group once the last ones had one append each, none of which came sooner than a caller could have reacted to the
answer before, and once their syncs were fast. The first group that differs ends that.

The engine of a log may answer as fast as a disk, but not as evenly. A sync of it on the event loop ends after a time,
so it is worth while if most are fast.
"""

from math import inf
from typing import Final

AFTER_GROUPS: Final = 32
"""Number of consecutive lone appends after which the event loop syncs."""
FAST_SYNC_S: Final = 0.001
"""Longest sync that may hold the event loop."""
MAX_SLOW: Final = 0.5
"""Greatest share of slow syncs among those that can be given up."""
_SLOW_AMONG: Final = 16
TURNAROUND_S: Final = 50e-6
"""An append that is submitted sooner after an answer was under way before it, so there are several."""
MAX_LONE_BYTES: Final = 64 << 10
LOOK_AROUND_EVERY: Final = 16
"""Every sixteenth lone append waits for the next step of the event loop, as all appends of several callers do: requests
that arrived during a sync then form a group, which ends the count."""


class LoneAppends:
    """Counts consecutive lone appends."""

    __slots__ = ("_gives_up", "_in_a_row", "_settled_s", "_slow")

    def __init__(self, *, gives_up: bool) -> None:
        """``gives_up``: whether a sync on the event loop is given up after ``FAST_SYNC_S``."""
        self._gives_up = gives_up
        self._in_a_row = 0
        # Share of slow syncs among about the last 16.
        self._slow = 0.0
        self._settled_s = -inf

    @property
    def commits_at_once(self) -> bool:
        """True if the next append is to be committed in the step of the event loop that submits it."""
        return self._in_a_row >= AFTER_GROUPS and self._in_a_row % LOOK_AROUND_EVERY != 0

    def syncs_here(self, *, is_alone: bool, appends: int, size_bytes: int, submitted_s: float) -> bool:
        """Count a group whose oldest append was submitted at ``submitted_s``; return whether the event loop syncs it.

        ``is_alone`` if the group needs a sync and nothing else waits or is in flight.
        """
        is_lone = (
            is_alone and appends == 1 and size_bytes <= MAX_LONE_BYTES
            and submitted_s - self._settled_s >= TURNAROUND_S
        )  # fmt: skip
        self._in_a_row = self._in_a_row + 1 if is_lone else 0
        return self._in_a_row > AFTER_GROUPS and self._slow <= MAX_SLOW

    def note_settled(self, now_s: float, sync_s: float | None) -> None:
        """Record that a group was settled and answered; ``sync_s`` is None if it was not synced."""
        self._settled_s = now_s
        is_slow = sync_s is None or sync_s > FAST_SYNC_S
        if self._gives_up:
            self._slow += (is_slow - self._slow) / _SLOW_AMONG
        elif is_slow:
            self._in_a_row = 0
