"""Conversions between ticks and times for Spark's columns and filters."""

from datetime import UTC, datetime, timedelta
from typing import Final

from tidelog import Tick

LOGICAL_BITS: Final = 18
MAX_TICK: Final = (1 << 63) - 1
END_OF_TIME: Final = MAX_TICK + 1
"""An exclusive end after all ticks."""
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def time_to_tick(time_ms: int) -> int:
    """Return the smallest tick at ``time_ms`` (milliseconds since the epoch)."""
    return time_ms << LOGICAL_BITS


def floor_ms(moment: datetime) -> int:
    """Return milliseconds since the epoch, rounded down. ``moment`` must have an offset."""
    return (moment - _EPOCH) // _MILLISECOND


def ceil_ms(moment: datetime) -> int:
    """Return milliseconds since the epoch, rounded up. ``moment`` must have an offset."""
    return -((_EPOCH - moment) // _MILLISECOND)


def iso_text(moment: datetime) -> str:
    """Return a time as ISO 8601 with milliseconds, in UTC."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_time(tick: int) -> str:
    """Return the time of a tick as ``iso_text``."""
    return iso_text(Tick(tick).time)
