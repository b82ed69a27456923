"""Disk usage of the audit log: which denials are recorded, and the reserve for a full disk. Pure."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from tidelog_server.core.limits import LOST_EVENT_INTERVAL_S, MAX_REMEMBERED_CALLERS, MIB
from tidelog_server.runtime.buckets import Bucket, Buckets

# Refusals that become events, per principal or address and in total. Others are counted, and the counts of some callers
# are reported periodically.
MAX_REFUSAL_EVENTS_PER_CALLER_PER_S: Final = 1
MAX_REFUSAL_EVENTS_PER_CALLER_AT_ONCE: Final = 10
MAX_REFUSAL_EVENTS_PER_S: Final = 20
MAX_REFUSAL_EVENTS_AT_ONCE: Final = 100
MAX_LOST_CALLERS: Final = 16
# Bytes that audited calls may write while the disk is too full for appends; at most a quarter of the free-disk limit.
AUDIT_RESERVE_BYTES: Final = 8 * MIB

OTHERS: Final = "(others)"
# Disk space of an event in addition to its line: its header, the write-ahead log, and both again for compaction.
_OVERHEAD_BYTES: Final = 512


class Refusals:
    """Decides which denials become events, and counts the others by caller.

    Attributes:
        lost: Number of denials that were counted and not written.
    """

    def __init__(self, now_s: float) -> None:
        self._callers = Buckets(
            MAX_REFUSAL_EVENTS_PER_CALLER_PER_S, MAX_REFUSAL_EVENTS_PER_CALLER_AT_ONCE, MAX_REMEMBERED_CALLERS
        )
        self._node = Bucket(MAX_REFUSAL_EVENTS_PER_S, MAX_REFUSAL_EVENTS_AT_ONCE, now_s)
        self._by_caller: Counter[str] = Counter()
        self._told_s = float("-inf")
        self.lost = 0

    def admits(self, caller: str, now_s: float) -> bool:
        """Return whether a denial is written; if so, charge it to its caller and to the node."""
        own = self._callers.of(caller, now_s)
        if own.wait_s(now_s, 1) > 0 or self._node.wait_s(now_s, 1) > 0:
            return False
        own.take(1, now_s)
        self._node.take(1, now_s)
        return True

    def lose(self, caller: str, count: int = 1) -> None:
        """Count denials that are not written."""
        self.lost += count
        known = caller in self._by_caller or len(self._by_caller) < MAX_LOST_CALLERS
        self._by_caller[caller if known else OTHERS] += count

    def due_in_s(self, now_s: float) -> float | None:
        """Return the seconds until the count of lost denials may be written; None if it is 0."""
        return max(0.0, self._told_s + LOST_EVENT_INTERVAL_S - now_s) if self.lost else None

    def take_lost(self, now_s: float) -> dict[str, object]:
        """Return the event with the counts of lost denials, and reset the counts."""
        event: dict[str, object] = {"event": "lost", "denials": self.lost, "callers": dict(self._by_caller)}
        self.lost, self._told_s = 0, now_s
        self._by_caller.clear()
        return event

    def give_back(self, event: Mapping[str, object]) -> None:
        """Add the counts of an event that could not be written."""
        callers = event["callers"]
        assert isinstance(callers, dict)
        for caller, count in callers.items():
            self.lose(caller, count)


class DiskReserve:
    """The bytes that audited calls may write while appends are refused because the disk is nearly full.

    Half of it is for administrators, who free disk space, so that other principals cannot use it up.
    """

    def __init__(self) -> None:
        self._used_bytes = 0

    def refill(self) -> None:
        """Reset the reserve, because the disk has space again."""
        self._used_bytes = 0

    def take(self, line_bytes: int, min_free_disk_bytes: int, *, is_administrator: bool) -> bool:
        """Return whether an event may be written; if so, charge it to the reserve."""
        whole = min(AUDIT_RESERVE_BYTES, min_free_disk_bytes // 4)
        used = self._used_bytes + 2 * line_bytes + _OVERHEAD_BYTES
        if used > (whole if is_administrator else whole // 2):
            return False
        self._used_bytes = used
        return True
