"""Token buckets: rates with a burst. Pure: the caller passes the time.

A bucket may go below zero by one amount: a request larger than the burst is allowed, and delays the requests after it.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_ANYTHING: Final = 1e-9


class Bucket:
    """A bucket of at most ``burst`` that is refilled at ``rate_per_s``.

    Invariant: the amount taken in any interval of ``t`` seconds is at most ``burst + t * rate_per_s``, plus the last
    amount taken.
    """

    __slots__ = ("_burst", "_level", "_rate_per_s", "_seen_s")

    def __init__(self, rate_per_s: float, burst: float, now_s: float) -> None:
        assert rate_per_s > 0
        assert burst > 0
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._level = burst
        self._seen_s = now_s

    def wait_s(self, now_s: float, wanted: float = _ANYTHING) -> float:
        """Return the seconds until the bucket holds ``wanted``; 0 if it does. Default: until it is not empty."""
        self._fill(now_s)
        return 0.0 if self._level >= wanted else (wanted - self._level) / self._rate_per_s

    def take(self, amount: float, now_s: float) -> None:
        """Take ``amount``. It may exceed the level, which then becomes negative."""
        self._fill(now_s)
        self._level -= amount

    def _fill(self, now_s: float) -> None:
        if now_s > self._seen_s:
            self._level = min(self._burst, self._level + (now_s - self._seen_s) * self._rate_per_s)
            self._seen_s = now_s


class Buckets:
    """One bucket per caller, in bounded memory: the least recently used bucket is evicted."""

    def __init__(self, rate_per_s: float, burst: float, max_callers: int) -> None:
        self._make: Callable[[float], Bucket] = lambda now_s: Bucket(rate_per_s, burst, now_s)
        self._max_callers = max_callers
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def of(self, caller: str, now_s: float) -> Bucket:
        """Return the bucket of a caller, which is created if needed."""
        bucket = self._buckets.get(caller)
        if bucket is None:
            if len(self._buckets) >= self._max_callers:
                self._buckets.popitem(last=False)
            bucket = self._buckets[caller] = self._make(now_s)
        else:
            self._buckets.move_to_end(caller)
        return bucket

    def wait_s(self, caller: str, now_s: float, wanted: float = _ANYTHING) -> float:
        """Return the seconds that a caller must wait; 0 if it has no bucket. Creates no bucket."""
        bucket = self._buckets.get(caller)
        return 0.0 if bucket is None else bucket.wait_s(now_s, wanted)

    def __len__(self) -> int:
        return len(self._buckets)
