"""Times and durations as Go writes them: RFC 3339 text with up to nine digits of a second, and ``1m30s``.

A ``datetime`` has microseconds. Text is accepted wherever nanoseconds count, and keeps them.
Source: pandora's API, version of January 2020, and the package time of Go.
"""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, NamedTuple

from tidelog.tick import without_zone

ZERO_TIME: Final = "0001-01-01T00:00:00Z"
"""What pandora prints for a time that is not set."""

# `datetime.fromisoformat` accepts further forms of ISO 8601.
_TEXT: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:[.,]([0-9]+))?(?:Z|[+-][0-9]{2}:[0-5][0-9])"
)
_UNITS_NS: Final = {
    "ns": 1, "us": 1_000, "\u00b5s": 1_000, "\u03bcs": 1_000, "ms": 1_000_000, "s": 1_000_000_000,
    "m": 60_000_000_000, "h": 3_600_000_000_000,
}  # fmt: skip
_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_DURATION: Final = re.compile(f"([+-]?)((?:{_PART.pattern.replace('(', '(?:')})+|0)")
_MAX_DURATION_NS: Final = (1 << 63) - 1


class ExactTime(NamedTuple):
    """An aware ``datetime`` with the three digits that it has no place for."""

    time: datetime
    nanoseconds: int
    """0 to 999, behind the microseconds."""

    def __str__(self) -> str:
        """Return the time as RFC 3339 text, without zeros at the end of the second, in its own time zone."""
        digits = f"{self.time.microsecond:06}{self.nanoseconds:03}".rstrip("0")
        second = self.time.replace(microsecond=0, tzinfo=None).isoformat()
        return f"{second}{'.' if digits else ''}{digits}{_offset_text(self.time)}"


def exact_time(time: datetime | str) -> ExactTime:
    """Return a time exactly.

    Raises:
        ValueError: A ``datetime`` has no time zone, or a text is not RFC 3339.
    """
    if isinstance(time, datetime):
        if time.utcoffset() is None:
            raise ValueError(f"the time {without_zone(time)}")
        return ExactTime(time, 0)
    match = _TEXT.fullmatch(time)
    try:
        if match is None:
            raise ValueError("its form is another one")
        parsed = datetime.fromisoformat(time)
    except ValueError as error:
        raise ValueError(f"the time {time!r} is invalid, expected RFC 3339 such as 2014-06-30T12:00:00.5Z") from error
    return ExactTime(parsed, int((match[1] or "")[6:9].ljust(3, "0")))


def format_time(time: datetime | str) -> str:
    """Return a time as RFC 3339 text, without zeros at the end of the second. See ``exact_time``."""
    return str(exact_time(time))


def parse_time(text: str) -> datetime:
    """Return the time of RFC 3339 text, without nanoseconds below a microsecond. See ``exact_time``."""
    return exact_time(text).time


def _offset_text(time: datetime) -> str:
    offset = time.utcoffset() or timedelta()
    if not offset:
        return "Z"
    hours, minutes = divmod(abs(offset) // timedelta(minutes=1), 60)
    return f"{'-' if offset < timedelta() else '+'}{hours:02}:{minutes:02}"


def exact_time_of_ns(epoch_ns: int) -> ExactTime:
    """Return the time a number of nanoseconds after the epoch, in UTC."""
    microseconds, nanoseconds = divmod(epoch_ns, 1_000)
    return ExactTime(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds), nanoseconds)


def epoch_ns_of(time: ExactTime) -> int:
    """Return the nanoseconds from the epoch to a time."""
    microseconds = (time.time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return microseconds * 1_000 + time.nanoseconds


def parse_duration(text: str) -> int:
    """Return the nanoseconds of a duration such as ``1m30s``, ``-1.5h`` or ``0``. Digits below 1 ns are dropped.

    Raises:
        ValueError: The text is not a duration, or one of more than 292 years.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"the duration {text!r} is invalid, expected numbers with units such as 1m30s or -1.5h")
    total = sum(int(Decimal(number) * _UNITS_NS[unit]) for number, unit in _PART.findall(match[2]))
    if total > _MAX_DURATION_NS:
        raise ValueError(f"the duration {text!r} is too long, expected at most {_MAX_DURATION_NS} ns")
    return -total if match[1] == "-" else total


def format_duration(duration_ns: int) -> str:
    """Return a duration such as ``1m30s``, ``1.5s``, ``20ms`` or ``0s``."""
    sign, left_ns = ("-", -duration_ns) if duration_ns < 0 else ("", duration_ns)
    if left_ns < _UNITS_NS["s"]:
        unit = "ms" if left_ns >= _UNITS_NS["ms"] else "\u00b5s" if left_ns >= _UNITS_NS["us"] else "ns"
        return f"{sign}{_decimal(left_ns, _UNITS_NS[unit])}{unit}" if left_ns else "0s"
    minutes, left_ns = divmod(left_ns, _UNITS_NS["m"])
    hours, minutes = divmod(minutes, 60)
    text = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{text}{_decimal(left_ns, _UNITS_NS['s'])}s"


def _decimal(value_ns: int, unit_ns: int) -> str:
    """Return ``value_ns / unit_ns`` without zeros at the end."""
    whole, fraction = divmod(value_ns, unit_ns)
    digits = f"{fraction:0{len(str(unit_ns)) - 1}}".rstrip("0") if fraction else ""
    return f"{whole}.{digits}" if digits else str(whole)
