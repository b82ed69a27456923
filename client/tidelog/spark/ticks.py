"""Ticks and times, as far as Spark's columns and filters need them."""

from datetime import UTC, datetime, timedelta
from typing import Final

LOGICAL_BITS: Final = 18
MAX_TICK: Final = (1 << 63) - 1
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def time_to_tick(time_ms: int) -> int:
    """Return the least tick at ``time_ms`` (milliseconds since the epoch)."""
    return time_ms << LOGICAL_BITS


def floor_ms(moment: datetime) -> int:
    """Return the last whole millisecond since the epoch that is not after ``moment``, which knows its offset."""
    return (moment - _EPOCH) // _MILLISECOND


def ceil_ms(moment: datetime) -> int:
    """Return the first whole millisecond since the epoch that is not before ``moment``, which knows its offset."""
    return -((_EPOCH - moment) // _MILLISECOND)
