"""The tail ring: the newest durable entries of the node, in memory, bounded in bytes.

Followers that keep up read from here and never from the store.

Entries are plain tuples of numbers and bytes, which the garbage collector stops tracking because they refer to nothing
else. As objects, a hundred thousand of them would block the event loop for 0.1 s in each full collection.
"""

from bisect import bisect_left
from collections import deque
from operator import itemgetter
from typing import Final

from tidelog_server.core.entries import NewEntry, TxnSpan
from tidelog_server.core.ticks import NO_TICK, Tick

ENTRY_BYTES: Final = 256
"""Approximate memory of an entry without its columns, counted so that many tiny entries are bounded too."""

_Kept = tuple[Tick, Tick, int, int, int, bytes, int, int, int, int]
"""Last tick, base tick, count, message type, CRC-32C, columns, the fields of TxnSpan or zeros, and the broadcast id."""
_last_tick = itemgetter(0)
_base_tick = itemgetter(1)
_COLUMNS: Final = 5
_NO_TXN: Final = (0, 0, 0)
_EVICTED: Final[_Kept] = (NO_TICK, NO_TICK, 0, 0, 0, b"", *_NO_TXN, 0)
_COMPACT_ABOVE: Final = 64


class VchannelRing:
    """The entries of one vchannel that are in the ring, oldest first.

    Invariant: it holds every durable entry of the vchannel above ``floor``.
    """

    __slots__ = ("_begin", "_entries", "_vchannel_id", "floor")

    def __init__(self, vchannel_id: int, floor: Tick) -> None:
        self._vchannel_id = vchannel_id
        self.floor = floor
        self._entries: list[_Kept] = []
        # Entries before this index were evicted; the list is compacted occasionally, so that eviction is cheap.
        self._begin = 0

    def push(self, entry: NewEntry) -> None:
        """Add the newest entry."""
        assert self.floor < entry.base_tick
        txn_id, first_tick, last_tick = entry.txn or _NO_TXN
        self._entries.append(
            (
                entry.last_tick, entry.base_tick, entry.count, entry.message_type, entry.columns_crc32c, entry.columns,
                txn_id, first_tick, last_tick, entry.broadcast_id,
            )
        )  # fmt: skip

    def evict_oldest(self) -> int:
        """Remove the oldest entry and raise the floor to its last tick; return the length of its columns."""
        assert self._begin < len(self._entries)
        oldest = self._entries[self._begin]
        self.floor = max(self.floor, _last_tick(oldest))
        self._entries[self._begin] = _EVICTED
        self._begin += 1
        if self._begin > _COMPACT_ABOVE and self._begin * 2 > len(self._entries):
            del self._entries[: self._begin]
            self._begin = 0
        return len(oldest[_COLUMNS])

    def read(self, begin_tick: int, end_tick: int, max_entries: int) -> list[NewEntry] | None:
        """Return entries that overlap ``[begin_tick, end_tick)``, oldest first; None if some were evicted."""
        if begin_tick <= self.floor and self.floor > NO_TICK:
            return None
        entries = self._entries
        first = bisect_left(entries, begin_tick, lo=self._begin, key=_last_tick)
        end = bisect_left(entries, end_tick, lo=first, hi=min(first + max_entries, len(entries)), key=_base_tick)
        return [self._entry(kept) for kept in entries[first:end]]

    def _entry(self, kept: _Kept) -> NewEntry:
        _, base_tick, count, message_type, crc, columns, txn_id, first_tick, last_tick, broadcast_id = kept
        txn = TxnSpan(txn_id, first_tick, last_tick) if txn_id else None
        return NewEntry(self._vchannel_id, base_tick, count, message_type, crc, columns, txn, None, broadcast_id)


class TailRing:
    """Bounds the memory of all vchannels' rings together: first in, first out."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._order: deque[VchannelRing] = deque()
        self.size_bytes = 0

    def push(self, ring: VchannelRing, entry: NewEntry) -> None:
        """Add the newest durable entry of a vchannel; evict the node's oldest entries above the bound.

        An entry with staged columns is not added, and the entries before it become unavailable.
        """
        if entry.staged is not None:
            # Its columns are not in memory, so it and everything before it are read from the store.
            ring.floor = entry.last_tick
            return
        ring.push(entry)
        self._order.append(ring)
        self.size_bytes += len(entry.columns) + ENTRY_BYTES
        while self.size_bytes > self._max_bytes:
            self.size_bytes -= self._order.popleft().evict_oldest() + ENTRY_BYTES
        assert 0 <= self.size_bytes
