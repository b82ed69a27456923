"""A cache of stored messages of mailboxes: those used lately.

Why not the tail ring: it has batches in columns, and decoding one for each delivery takes longer than the delivery.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final

# Approximate memory of a step without its payloads, and of a payload without its bytes.
_ENTRY_BYTES: Final = 256
_PAYLOAD_BYTES: Final = 48
# Places at the beginning of a list that may be unused before they are removed.
_MAX_UNUSED: Final = 1_024


class RecentBodies:
    """The payloads of some steps of one mailbox: the latest ones, and those that were read lately."""

    __slots__ = ("_bases", "_begin", "_budget", "_steps")

    def __init__(self, budget: "BodyBudget") -> None:
        self._budget = budget
        # Base ticks of the steps, in order, from index ``_begin`` on: the oldest step is usually evicted first, and
        # removing the first item of a long list takes long.
        self._bases: list[int] = []
        self._begin = 0
        self._steps: dict[int, Sequence[bytes]] = {}

    def add(self, base_tick: int, payloads: Sequence[bytes]) -> None:
        """Add the payloads of a step; the message at ``base_tick + i`` has payload ``i``."""
        if base_tick in self._steps:
            return
        self._bases.insert(bisect_left(self._bases, base_tick, self._begin), base_tick)
        self._steps[base_tick] = payloads
        self._budget.add(self, base_tick, sum(map(len, payloads)) + _PAYLOAD_BYTES * len(payloads) + _ENTRY_BYTES)

    def get(self, tick: int) -> bytes | None:
        """Return the payload of the message at ``tick``; None if it is not in memory."""
        base, payloads = self._step_of(tick)
        return payloads[tick - base] if tick - base < len(payloads) else None

    def get_all(self, ticks: Sequence[int]) -> list[bytes] | None:
        """Return the payloads of the messages at ``ticks``; None if some are not in memory."""
        if not ticks:
            return []
        base, payloads = self._step_of(ticks[0])
        begin = ticks[0] - base
        found = list(payloads[begin : begin + len(ticks)])
        # Mostly the messages of a request have consecutive ticks in one step.
        if len(found) == len(ticks) and list(ticks) == list(range(ticks[0], ticks[0] + len(ticks))):
            return found
        found.clear()
        for tick in ticks:
            if not 0 <= tick - base < len(payloads):
                base, payloads = self._step_of(tick)
                if tick - base >= len(payloads):
                    return None
            found.append(payloads[tick - base])
        return found

    def _step_of(self, tick: int) -> tuple[int, Sequence[bytes]]:
        """Return the base tick and the payloads of the last step that begins at or before ``tick``."""
        index = bisect_right(self._bases, tick, self._begin) - 1
        if index < self._begin:
            return 0, ()
        base = self._bases[index]
        return base, self._steps[base]

    def evict(self, base_tick: int) -> None:
        """Remove a step."""
        del self._steps[base_tick]
        bases = self._bases
        if bases[self._begin] != base_tick:
            del bases[bisect_left(bases, base_tick, self._begin)]
            return
        self._begin += 1
        if self._begin >= _MAX_UNUSED and 2 * self._begin >= len(bases):
            del bases[: self._begin]
            self._begin = 0


class BodyBudget:
    """Bounds the memory of all mailboxes' payloads together: first in, first out."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._order: deque[tuple[RecentBodies, int, int]] = deque()
        self.size_bytes = 0

    def add(self, bodies: RecentBodies, base_tick: int, size_bytes: int) -> None:
        """Count a step that was added to ``bodies``, and evict the oldest steps above the bound."""
        self._order.append((bodies, base_tick, size_bytes))
        self.size_bytes += size_bytes
        self.shrink(self._max_bytes)

    def shrink(self, max_bytes: int) -> None:
        """Evict the oldest steps until at most ``max_bytes`` are left."""
        while self.size_bytes > max_bytes:
            oldest, oldest_base, oldest_bytes = self._order.popleft()
            oldest.evict(oldest_base)
            self.size_bytes -= oldest_bytes
