"""Times as RFC 3339 text with up to nine digits of a second, which ids of messages and locks are calculated from.

The server needs them too, so they are in ``tidelog.wire``.
"""

from datetime import UTC, datetime

from tidelog.wire.go_times import ZERO_TIME, ExactTime, exact_time, format_time, parse_time

__all__ = ["ZERO_TIME", "ExactTime", "exact_time", "format_time", "parse_time", "utc_now"]


def utc_now() -> datetime:
    """Return the time of the machine's clock."""
    return datetime.now(UTC)
