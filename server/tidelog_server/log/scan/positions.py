"""The start of a scan: resolves a request to a tick, or refuses it. Pure."""

from dataclasses import dataclass, field
from typing import Final

from tidelog_server.core.errors import InvalidRequestError, PositionBeyondEndError, PositionTrimmedError
from tidelog_server.core.ticks import MAX_PHYSICAL_MS, Tick, compose


@dataclass(frozen=True, slots=True)
class StartAll:
    """At the first message that was not trimmed."""


@dataclass(frozen=True, slots=True)
class StartLatest:
    """After everything that is durable now."""


@dataclass(frozen=True, slots=True)
class StartFrom:
    """At the first message whose tick is ``tick`` or greater. A position, which must be in range.

    Attributes:
        tick: The tick.
        is_after: True if the request was "after" the previous tick, the last one read. See ``check_start_of_several``.
    """

    tick: int
    is_after: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class StartAtTime:
    """At the first message at this time or later, in milliseconds since the epoch. Always in range."""

    time_ms: int


Start = StartAll | StartLatest | StartFrom | StartAtTime


# 0 and 1 are not positions of messages: they mean the beginning, whenever the channel was created.
_LAST_BEGINNING: Final = 1


def resolve_start(
    start: Start, *, vchannel: str, trim_tick: int, watermark: int, latest_tick: int, created_tick: int = 0
) -> Tick:
    """Return the first tick to deliver.

    Args:
        start: The requested start.
        vchannel: Name for the error.
        trim_tick: First available tick of the vchannel.
        created_tick: Creation tick of its channel; 0 if a position before it means the beginning.
        watermark: Watermark of its channel.
        latest_tick: The greatest tick ever allocated.

    Raises:
        PositionTrimmedError: The position is below ``trim_tick`` or below ``created_tick``.
        PositionBeyondEndError: The position is above ``latest_tick + 1``.
    """
    match start:
        case StartAll():
            return Tick(trim_tick)
        case StartLatest():
            return Tick(watermark + 1)
        case StartAtTime(time_ms=time_ms):
            return Tick(max(trim_tick, compose(min(time_ms, MAX_PHYSICAL_MS))))
        case StartFrom(tick=tick):
            check_position(vchannel, tick, trim_tick=trim_tick, created_tick=created_tick)
            # A reader that has read everything requests the tick after the last one.
            if tick > latest_tick + 1:
                raise PositionBeyondEndError(requested_tick=tick, latest_tick=latest_tick)
            return Tick(tick)


def check_start_of_several(start: Start, vchannels: int, name: str) -> None:
    """Raise InvalidRequestError if ``start`` is after one tick for several vchannels; ``name`` is the field's.

    The copies of a broadcast have the same tick. A reader of several vchannels that stopped after one copy would skip
    the others.
    """
    if vchannels > 1 and isinstance(start, StartFrom) and start.is_after:
        raise InvalidRequestError(
            f"{name} is after one tick for {vchannels} vchannels, expected one vchannel: the copies of a broadcast "
            "have the same tick, so some of them could be skipped; set the position of each vchannel to the one that "
            f"was read there, or start at tick {start.tick} to skip everything before it",
            field=name,
        )


def check_not_trimmed(vchannel: str, tick: int, trim_tick: int) -> None:
    """Raise PositionTrimmedError if ``tick`` is below the first available tick."""
    if tick < trim_tick:
        raise PositionTrimmedError(vchannel=vchannel, requested_tick=tick, first_available_tick=trim_tick)


def check_position(vchannel: str, tick: int, *, trim_tick: int, created_tick: int) -> None:
    """Check a position that a caller sent.

    Raises:
        PositionTrimmedError: It is below the first available tick, or below the creation of the channel, so that it
            belongs to a destroyed channel of the same name.
    """
    if _LAST_BEGINNING < tick < created_tick:
        raise PositionTrimmedError.before_creation(
            vchannel=vchannel, requested_tick=tick, first_available_tick=max(trim_tick, created_tick)
        )
    check_not_trimmed(vchannel, tick, trim_tick)
