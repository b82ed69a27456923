"""Start and end positions of scans."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, Self

from tidelog.tick import MAX_TICK, Tick, milliseconds

Kind = Literal[
    "earliest", "latest", "tick", "after", "message_id", "after_message_id", "time", "watermark", "follow", "inside"
]


@dataclass(frozen=True, slots=True)
class At:
    """A position in a vchannel. Create one with the class methods below.

    Starts: ``earliest``, ``latest``, ``tick``, ``after``, ``message_id``, ``after_message_id``, ``time``, ``ago``.
    Ends: ``watermark``, ``follow``; and ``tick``, ``time`` and ``ago``, which are exclusive: a transaction is delivered
    only if all of it lies before the end. ``inside`` is an end that may split a transaction, for the parts of a larger
    read: ``until=At.inside(t)`` and ``start=At.tick(t)`` meet without gap or overlap.
    """

    kind: Kind
    value: int | bytes | None = None

    @classmethod
    def earliest(cls) -> Self:
        """Return the start at the first message that was not trimmed."""
        return cls("earliest")

    @classmethod
    def latest(cls) -> Self:
        """Return the start after the last message that is durable when the scan is opened."""
        return cls("latest")

    @classmethod
    def tick(cls, tick: int) -> Self:
        """Return the position of the first message with this tick or a greater one; as an end, it is exclusive."""
        return cls("tick", _checked(tick))

    @classmethod
    def inside(cls, tick: int) -> Self:
        """Return the end before the first message with this tick or a greater one, even within a transaction."""
        return cls("inside", _checked(tick))

    @classmethod
    def after(cls, tick: int) -> Self:
        """Return the start at the first message with a greater tick, to resume a reader of one vchannel.

        A scan of several vchannels refuses it, because the copies of a broadcast share a tick. Resume it with
        ``start=scan.positions``.
        """
        return cls("after", _checked(tick))

    @classmethod
    def message_id(cls, message_id: bytes) -> Self:
        """Return the start at the message with this id, or the first after it."""
        return cls("message_id", message_id)

    @classmethod
    def after_message_id(cls, message_id: bytes) -> Self:
        """Return the start at the first message after the one with this id; for one vchannel only, as ``after``."""
        return cls("after_message_id", message_id)

    @classmethod
    def time(cls, time: datetime | int) -> Self:
        """Return the position of the first message at or after ``time``, a datetime with zone or epoch milliseconds."""
        return cls("time", time if isinstance(time, int) else milliseconds(time))

    @classmethod
    def ago(cls, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> Self:
        """Return the position at the given duration before now, by this machine's clock."""
        return cls.time(datetime.now(UTC) - timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds))

    @classmethod
    def watermark(cls) -> Self:
        """Return the end after every message that is acknowledged when the scan is opened."""
        return cls("watermark")

    @classmethod
    def follow(cls) -> Self:
        """Return the end that is never reached: the scan follows the log."""
        return cls("follow")


EARLIEST: Final = At.earliest()
LATEST: Final = At.latest()
WATERMARK: Final = At.watermark()
FOLLOW: Final = At.follow()

Start = At | Tick | datetime
"""A start of a scan; a tick is inclusive, a datetime needs a time zone."""

End = At | Tick | datetime
"""An end of a scan, exclusive."""

Positions = Mapping[str, Tick]
"""For each vchannel, by its full name, the tick up to which everything was read; 0 if nothing was read.

As a start, the scan begins after these ticks, and at the first available message where the tick is 0. There must be a
position for each vchannel of the scan; others are ignored."""


def position(at: At | Tick | datetime) -> At:
    """Return ``at`` as a position.

    Raises:
        ValueError: A datetime without time zone.
        TypeError: Any other type, such as a plain number, whose unit is unknown.
    """
    match at:
        case At():
            return at
        case Tick():
            return At.tick(at)
        case datetime():
            return At.time(at)
        case _:
            raise TypeError(f"expected a position, At(...), Tick(...) or a datetime, got {type(at).__name__}")


def positions_of(start: Positions) -> dict[str, int]:
    """Return the positions of ``start`` by full names, checked.

    Raises:
        ValueError: It is empty, or a position is not in 0 … 2**63 - 1.
        TypeError: A name is not a string, or a position is not an integer.
    """
    if not start:
        raise ValueError("the start has no positions: add one for each vchannel of the scan")
    return {_name(name): _tick(name, tick) for name, tick in start.items()}


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the start has a position for {name!r}, expected the name of a vchannel")
    return name if "/" in name else f"{name}/0"


def _tick(name: str, tick: object) -> Tick:
    if not isinstance(tick, int):
        raise TypeError(f"the position of {name} is of type {type(tick).__name__}, expected a Tick")
    if not 0 <= tick <= MAX_TICK:
        raise ValueError(f"the position of {name} is {tick}, expected a tick, 0 to {MAX_TICK}")
    return Tick(tick)


def _checked(tick: int) -> Tick:
    if not 0 <= tick <= MAX_TICK:
        raise ValueError(f"tick {tick} is out of range: expected 0 to {MAX_TICK}")
    return Tick(tick)
