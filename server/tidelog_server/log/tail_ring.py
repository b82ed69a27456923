"""The tail ring: the newest durable entries of the node, in memory, bounded in bytes.

Followers that keep up read from here and never touch the store.
"""

from bisect import bisect_left
from collections import deque
from operator import attrgetter

from tidelog_server.core.entries import NewEntry
from tidelog_server.core.ticks import NO_TICK, Tick

_last_tick = attrgetter("last_tick")
_COMPACT_ABOVE = 64


class VchannelRing:
    """The entries of one vchannel that are in the ring, oldest first.

    Invariant: it holds every durable entry of the vchannel above ``floor``.
    """

    __slots__ = ("_begin", "_entries", "floor")

    def __init__(self, floor: Tick) -> None:
        self.floor = floor
        self._entries: list[NewEntry] = []
        # Entries before this index were evicted; the list is cut now and then, which keeps eviction cheap.
        self._begin = 0

    def push(self, entry: NewEntry) -> None:
        """Add the newest entry."""
        self._entries.append(entry)

    def evict_oldest(self) -> None:
        """Remove the oldest entry and raise the floor to its last tick."""
        self.floor = self._entries[self._begin].last_tick
        self._begin += 1
        if self._begin > _COMPACT_ABOVE and self._begin * 2 > len(self._entries):
            del self._entries[: self._begin]
            self._begin = 0

    def read(self, begin_tick: int, end_tick: int, max_entries: int) -> list[NewEntry] | None:
        """Return entries that overlap ``[begin_tick, end_tick)``, oldest first; None if some are no longer here."""
        if begin_tick <= self.floor and self.floor > NO_TICK:
            return None
        entries = self._entries
        first = bisect_left(entries, begin_tick, lo=self._begin, key=_last_tick)
        found = entries[first : first + max_entries]
        while found and found[-1].base_tick >= end_tick:
            found.pop()
        return found


class TailRing:
    """Bounds the columns that all vchannels together keep in memory: first in, first out."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._order: deque[tuple[VchannelRing, int]] = deque()
        self.size_bytes = 0

    def push(self, ring: VchannelRing, entry: NewEntry) -> None:
        """Add the newest durable entry of a vchannel; evicts the node's oldest ones past the bound."""
        size_bytes = len(entry.columns)
        ring.push(entry)
        self._order.append((ring, size_bytes))
        self.size_bytes += size_bytes
        while self.size_bytes > self._max_bytes:
            oldest, oldest_bytes = self._order.popleft()
            oldest.evict_oldest()
            self.size_bytes -= oldest_bytes
