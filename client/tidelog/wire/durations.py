"""Checks of durations, for client, command line and server: a finite number of seconds, within bounds. Pure."""

import math
from datetime import timedelta
from typing import Final

Duration = float | timedelta
"""A duration that the caller of a method gives: a number of seconds, or a timedelta."""
MAX_SECONDS: Final = 3_155_760_000.0
"""Maximum of every duration: 100 years. Timers of Python and gRPC overflow beyond about three times as much."""


def check_seconds(
    name: str, value: object, *, minimum: float = 0.0, maximum: float = MAX_SECONDS, may_be_minimum: bool = True
) -> float:
    """Return ``value``, a number of seconds or a timedelta, in seconds.

    Args:
        name: Name of the argument, for the error.
        value: The duration.
        minimum: The least duration that is accepted, or with ``may_be_minimum=False`` the greatest that is too short.
        maximum: The greatest duration that is accepted.
        may_be_minimum: Whether ``minimum`` is accepted.

    Raises:
        TypeError: It is neither a number nor a timedelta.
        ValueError: It is not finite, or not within the bounds.
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r:.80}, expected seconds or a timedelta")
    # Why not one comparison: NaN compares as false with everything.
    if math.isnan(value) or not minimum <= value <= maximum or (value == minimum and not may_be_minimum):
        least = f"{minimum:g} or more" if may_be_minimum else f"more than {minimum:g}"
        raise ValueError(f"{name} is {value!r:.80}, expected {least}, at most {maximum:.15g} seconds")
    return value


def seconds_or(name: str, value: Duration | None, default: float) -> float:
    """Return ``default`` if ``value`` is None, else as ``check_seconds``."""
    return default if value is None else check_seconds(name, value)


def seconds_of(name: str, duration: object) -> float:
    """Return a duration in seconds; it may be negative. Raises as ``check_seconds``."""
    return check_seconds(name, duration, minimum=-MAX_SECONDS)
