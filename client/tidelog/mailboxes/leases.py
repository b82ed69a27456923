"""The leases of a worker: until when each is valid by this machine's clock, and when to extend them. Pure."""

from collections.abc import Iterable
from math import inf
from typing import Final

EXTENSIONS_PER_LEASE: Final = 3
"""All leases are extended together this often within the duration of one, so two extensions may fail."""


class LeaseTable:
    """Leases by lock. Times are in seconds of a monotonic clock.

    A lease is counted from when its fetch was answered, or its extension was requested: by the server's clock it ends
    no earlier than this, less the time that the answer to the fetch took.
    """

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self.period_s = lease_s / EXTENSIONS_PER_LEASE
        self._ends_s: dict[bytes, float] = {}

    def __len__(self) -> int:
        return len(self._ends_s)

    def add(self, locks: Iterable[bytes], now_s: float) -> None:
        """Add leases that begin now."""
        self._ends_s.update(dict.fromkeys(locks, now_s + self.lease_s))

    def remove(self, lock: bytes) -> None:
        """Remove a lease that ended; an unknown one changes nothing."""
        self._ends_s.pop(lock, None)

    def is_valid(self, lock: bytes, now_s: float) -> bool:
        """Return whether the table has the lease, and it has not ended."""
        return self._ends_s.get(lock, -inf) > now_s

    def extended(self, locks: Iterable[bytes], requested_s: float) -> None:
        """Record that leases were extended by a request sent at ``requested_s``; removed ones stay removed."""
        end_s = requested_s + self.lease_s
        for lock in locks:
            if lock in self._ends_s:
                self._ends_s[lock] = end_s

    def take_ended(self, now_s: float) -> list[bytes]:
        """Remove the leases that have ended, and return their locks."""
        ended = [lock for lock, end_s in self._ends_s.items() if end_s <= now_s]
        for lock in ended:
            del self._ends_s[lock]
        return ended

    def next_end_s(self) -> float:
        """Return the end of the lease that ends first; infinity without one."""
        return min(self._ends_s.values(), default=inf)
