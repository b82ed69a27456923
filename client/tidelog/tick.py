"""Time ticks: integers that contain a time.

A tick is ``milliseconds_since_epoch << 18 | logical``: a message's id, position, time and version in one.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final, Self

LOGICAL_BITS: Final = 18
LOGICAL_MASK: Final = (1 << LOGICAL_BITS) - 1
MAX_TICK: Final = (1 << 63) - 1
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_TEXT: Final = re.compile(r"(?P<time>[^+]+T[^+]+Z)(?:\+(?P<logical>[0-9]+))?", re.ASCII)


class Tick(int):
    """A hybrid timestamp of 63 bits: an ``int``, so it compares, hashes and prints as one.

    Zero is below every tick and means "not set". ``str(tick)`` is the decimal number, which ``Tick.parse`` accepts.
    """

    __slots__ = ()

    @classmethod
    def at(cls, time: datetime, logical: int = 0) -> Self:
        """Return the tick of ``time``, rounded down to the millisecond, and ``logical`` (0 to 262,143).

        Raises:
            ValueError: ``time`` has no time zone or lies before 1970, or ``logical`` is out of range.
        """
        physical_ms = milliseconds(time)
        if not 0 <= logical <= LOGICAL_MASK:
            raise ValueError(f"the logical part is {logical}, expected 0 to {LOGICAL_MASK}")
        if not 0 <= physical_ms <= MAX_TICK >> LOGICAL_BITS:
            raise ValueError(f"{time.isoformat()} is out of range: ticks begin at 1970-01-01T00:00:00Z")
        return cls(physical_ms << LOGICAL_BITS | logical)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the tick that ``text`` denotes, in decimal or in the form of ``describe()``.

        Raises:
            ValueError: ``text`` has another form, or is not in 0 … 2**63 - 1.
        """
        if text.isascii() and text.isdecimal():
            if int(text) > MAX_TICK:
                raise ValueError(f"tick {text} is out of range: expected 0 to {MAX_TICK}")
            return cls(text)
        match = _TEXT.fullmatch(text)
        try:
            time = datetime.fromisoformat(match["time"] if match else "")
        except ValueError:
            raise ValueError(
                f"{text!r} is not a tick: expected a number, or a time such as 2026-01-31T09:30:00.250Z+7"
            ) from None
        return cls.at(time, int(match["logical"] or 0) if match else 0)

    @property
    def physical_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self >> LOGICAL_BITS

    @property
    def logical(self) -> int:
        """Counter within the millisecond, 0 to 262,143."""
        return self & LOGICAL_MASK

    @property
    def time(self) -> datetime:
        """The tick's time in UTC, to the millisecond.

        Raises:
            OverflowError: The tick lies after the year 9999; no server allocates such ticks.
        """
        return time_of(self.physical_ms)

    @property
    def message_id(self) -> bytes:
        """The id of the message with this tick: 8 bytes, big-endian, so that ids sort like ticks."""
        return self.to_bytes(8, "big")

    def describe(self) -> str:
        """Return the tick as time and counter, such as ``2026-01-31T09:30:00.250Z+7``."""
        return f"{self.time.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z+{self.logical}"

    def __repr__(self) -> str:
        return f"Tick({int(self)})"

    def __str__(self) -> str:
        return int.__repr__(self)


def milliseconds(time: datetime) -> int:
    """Return ``time`` in milliseconds since the epoch, rounded down.

    Raises:
        TypeError: ``time`` is not a datetime.
        ValueError: ``time`` has no time zone.
    """
    if not isinstance(time, datetime):
        raise TypeError(f"expected a datetime with a time zone, got {type(time).__name__}: {time!r}")
    if time.utcoffset() is None:
        raise ValueError(without_zone(time))
    return (time - EPOCH) // _MILLISECOND


def without_zone(time: datetime) -> str:
    """Return the text of the error for a time without a time zone: its two readings."""
    utc = f"{time.isoformat()}+00:00 for UTC"
    try:
        return f"{time.isoformat()} has no time zone, expected {utc}, or {time.astimezone().isoformat()} for local time"
    except (ValueError, OverflowError):
        # The first or the last day of the calendar.
        return f"{time.isoformat()} has no time zone, expected {utc}"


def time_of(physical_ms: int) -> datetime:
    """Return the instant ``physical_ms`` milliseconds after the epoch, in UTC."""
    return EPOCH + timedelta(milliseconds=physical_ms)
