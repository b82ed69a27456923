"""Descriptions of channels, their retention, and the conversion to protocol messages."""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypedDict

from tidelog.tick import Tick
from tidelog.v1 import channel_service_pb2 as pb
from tidelog.wire.html import html_table

_MILLISECOND: Final = timedelta(milliseconds=1)
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_DURATION_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SIZE: Final = re.compile(r"(\d{1,20}(?:\.\d{1,20}(?=\s*[kmgt]))?)\s*([kmgt]i?b?|b?)", re.ASCII | re.IGNORECASE)
_SIZE_PREFIXES: Final = "bkmgt"
_MAX_AGE_MS: Final = 1 << 43
_MAX_BYTES: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class OwnerDescription:
    """Creator of a channel, for information only; each text at most 256 bytes."""

    role: str = ""
    address: str = ""
    description_text: str = ""


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits beyond which the server deletes a channel's oldest messages; None means no limit.

    The server deletes whole chunks, of about 4 MiB or 1,024 batches of a vchannel, with a short delay. It retains what
    a consumer group has not committed, unless ``hard_bytes`` is exceeded. ``Retention.of`` also accepts texts.

    Attributes:
        age: Maximum age of a message; whole milliseconds, at least 1.
        bytes: Number of newest bytes to retain, over all vchannels of the channel; at least 1.
        hard_bytes: Hard cap: beyond this, delete the oldest data even if a consumer group has not read it; not below
            ``bytes``. ``VchannelDescription.cut`` reports what was deleted this way.
    """

    age: timedelta | None = None
    bytes: int | None = None
    hard_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.age is not None and not 1 <= self.age // _MILLISECOND <= _MAX_AGE_MS:
            raise ValueError(f"retention.age is {self.age}, expected 1 ms to 2^43 ms, or None for no limit")
        for name, size_bytes in (("bytes", self.bytes), ("hard_bytes", self.hard_bytes)):
            if size_bytes is not None and not 1 <= size_bytes <= _MAX_BYTES:
                raise ValueError(f"retention.{name} is {size_bytes}, expected 1 to 2^60, or None for no limit")
        if self.bytes is not None and self.hard_bytes is not None and self.hard_bytes < self.bytes:
            raise ValueError(f"retention.hard_bytes is {self.hard_bytes}, below retention.bytes, which is {self.bytes}")

    @classmethod
    def of(
        cls,
        age: timedelta | str | None = None,
        bytes: int | str | None = None,
        hard_bytes: int | str | None = None,
    ) -> "Retention":
        """Return a retention from texts: ages such as ``3d`` or ``1h30m``, sizes such as ``1GiB`` or ``500MB``.

        Raises:
            ValueError: A text is not a valid age or size, or a number is out of range.
        """
        return cls(
            parse_age(age) if isinstance(age, str) else age,
            parse_size(bytes) if isinstance(bytes, str) else bytes,
            parse_size(hard_bytes) if isinstance(hard_bytes, str) else hard_bytes,
        )


class ChannelSettings(TypedDict, total=False):
    """Settings of new channels.

    Attributes:
        vchannels: Number of vchannels of each channel; default None, which makes 1, and with ``if_not_exists`` accepts
            an existing channel with any number.
        owner: Creator, for information only; default None.
        retention: Retention; default None, which keeps all messages.
    """

    vchannels: int | None
    owner: OwnerDescription | None
    retention: Retention | None


class CreateOptions(ChannelSettings, total=False):
    """Options of the creation of channels.

    Attributes:
        if_not_exists: Accept channels that exist, and do not change them; default False.
    """

    if_not_exists: bool


class RetentionChange(TypedDict, total=False):
    """Settings of a Retention to change: an absent setting is not changed, None removes a limit."""

    age: timedelta | None
    bytes: int | None
    hard_bytes: int | None


def parse_age(text: str) -> timedelta:
    """Return the duration that a text such as ``90s``, ``1h30m``, ``250ms`` or ``2d`` denotes. Raises ValueError."""
    try:
        age = duration_of(text)
    except OverflowError:
        raise ValueError(f"'{text[:40]}' is not a valid age: it exceeds {timedelta.max.days} days") from None
    if age is None:
        raise ValueError(f"'{text}' is not a valid age: use a form such as 90s, 1h30m, 250ms or 3d")
    return age


def duration_of(text: str) -> timedelta | None:
    """Return the duration that a text such as ``1h30m`` denotes; None for another form. Raises OverflowError."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return timedelta(seconds=sum(float(number) * _DURATION_UNITS_S[unit] for number, unit in parts))


def parse_size(text: str) -> int:
    """Return the bytes in ``4096``, ``1GiB`` (2^30), ``1GB`` (10^9) or ``1.5G`` (as GiB). Raises ValueError."""
    found = _SIZE.fullmatch(text.strip(" \t"))
    if found is None:
        raise ValueError(f"'{text}' is not a valid size: use a form such as 4096, 500MB, 1GiB or 1.5GiB")
    number, unit = found[1], found[2].lower()
    exponent = _SIZE_PREFIXES.index(unit[:1] or "b")
    base = 1_000 if len(unit) == 2 and unit.endswith("b") else 1_024
    return int(float(number) * base**exponent) if "." in number else int(number) * base**exponent


@dataclass(frozen=True, slots=True)
class RetentionCut:
    """Messages that ``Retention.hard_bytes`` has deleted from a vchannel before consumer groups had committed them.

    Attributes:
        messages: Number of messages since the channel was created, counted in whole chunks.
        bytes: Size of their columns.
        until_tick: Exclusive upper bound of their ticks.
        groups: Groups that were furthest behind at each cut, without repetition; the last 16.
    """

    messages: int
    bytes: int
    until_tick: Tick
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VchannelDescription:
    """State of one vchannel at the time of the call.

    Attributes:
        name: ``<channel>/<index>``.
        trim_tick: Every message below this tick was trimmed; 0 if nothing was trimmed.
        last_tick: Tick of the last message ever appended; 0 if nothing was appended.
        messages: Number of messages that are still stored.
        bytes: Size of the columns that are still stored.
        fencing_token: The current fencing token; 0 if it was never set.
        cut: Messages that retention deleted before consumer groups had committed them; None if it never did.
    """

    name: str
    trim_tick: Tick
    last_tick: Tick
    messages: int
    bytes: int
    fencing_token: int = 0
    cut: RetentionCut | None = None


@dataclass(frozen=True, slots=True)
class ChannelGrowth:
    """An addition of vchannels to a channel.

    Attributes:
        tick: Every message on the added vchannels has a greater tick.
        vchannels: Number of vchannels before.
    """

    tick: Tick
    vchannels: int


@dataclass(frozen=True, slots=True)
class ChannelDescription:
    """State of one channel at the time of the call.

    Attributes:
        name: Name of the channel.
        owner: Its creator.
        created_tick: Tick at which it was created.
        watermark: Everything at or below this tick is durable and readable, and nothing will be added there.
        stopped_by: Reason why the channel stopped accepting appends; empty while it accepts them.
        vchannels: Its vchannels, in order of index.
        retention: Its retention limits.
        growths: When vchannels were added, oldest first.
    """

    name: str
    owner: OwnerDescription
    created_tick: Tick
    watermark: Tick
    stopped_by: str
    vchannels: tuple[VchannelDescription, ...]
    retention: Retention = Retention()
    growths: tuple[ChannelGrowth, ...] = ()

    def _repr_html_(self) -> str:
        rows = ((each.name, each.messages, each.bytes, each.trim_tick, each.last_tick) for each in self.vchannels)
        names = ("vchannel", "messages", "bytes", "trim_tick", "last_tick")
        return html_table(f"channel {self.name}", names, rows, len(self.vchannels))


_FOR_EVER: Final = Retention()


def owner_to_wire(owner: OwnerDescription | None) -> pb.OwnerDescription | None:
    """Return the creator of a channel as the protocol message."""
    if owner is None:
        return None
    return pb.OwnerDescription(role=owner.role, address=owner.address, description_text=owner.description_text)


def retention_to_wire(retention: Retention | None) -> pb.Retention | None:
    """Return the retention of new channels as the protocol message."""
    if retention is None or retention == _FOR_EVER:
        return None
    return pb.Retention(age_ms=_age_ms(retention.age), bytes=retention.bytes or 0, hard_bytes=retention.hard_bytes or 0)


def retention_change(change: Retention | RetentionChange) -> pb.RetentionChange:
    """Return the settings to change: all of a Retention, else those that are present.

    Raises:
        ValueError: A setting is unknown or out of range.
    """
    if isinstance(change, Retention):
        change = {"age": change.age, "bytes": change.bytes, "hard_bytes": change.hard_bytes}
    if unknown := change.keys() - RetentionChange.__annotations__.keys():
        raise ValueError(f"unknown retention setting {sorted(unknown)[0]!r}: expected age, bytes or hard_bytes")
    # Each setting is checked by itself; the server, which knows the others, checks the combination.
    wire = pb.RetentionChange()
    if "age" in change:
        wire.age_ms = _age_ms(Retention(age=change["age"]).age)
    if "bytes" in change:
        wire.bytes = Retention(bytes=change["bytes"]).bytes or 0
    if "hard_bytes" in change:
        wire.hard_bytes = Retention(hard_bytes=change["hard_bytes"]).hard_bytes or 0
    return wire


def channel_description(wire: pb.ChannelDescription) -> ChannelDescription:
    """Return the description in a protocol message."""
    return ChannelDescription(
        name=wire.name,
        owner=OwnerDescription(wire.owner.role, wire.owner.address, wire.owner.description_text),
        created_tick=Tick(wire.created_tick),
        watermark=Tick(wire.watermark),
        stopped_by=wire.stopped_by,
        vchannels=tuple(map(_vchannel_description, wire.vchannels)),
        retention=_retention(wire.retention) if wire.HasField("retention") else _FOR_EVER,
        growths=tuple(ChannelGrowth(Tick(each.tick), each.vchannels) for each in wire.growths) if wire.growths else (),
    )


def _vchannel_description(wire: pb.VchannelDescription) -> VchannelDescription:
    return VchannelDescription(
        wire.name, Tick(wire.trim_tick), Tick(wire.last_tick), wire.messages, wire.bytes, wire.fencing_token,
        _cut(wire.cut) if wire.HasField("cut") else None,
    )  # fmt: skip


def _cut(wire: pb.RetentionCut) -> RetentionCut:
    return RetentionCut(wire.messages, wire.bytes, Tick(wire.until_tick), tuple(wire.groups))


def _retention(wire: pb.Retention) -> Retention:
    return Retention(wire.age_ms * _MILLISECOND if wire.age_ms else None, wire.bytes or None, wire.hard_bytes or None)


def _age_ms(age: timedelta | None) -> int:
    return age // _MILLISECOND if age is not None else 0
