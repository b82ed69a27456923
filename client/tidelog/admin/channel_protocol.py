"""Conversion of channels between the client's types and protocol messages."""

from datetime import timedelta
from typing import Final

from tidelog.admin.channel_types import (
    ChannelDescription,
    OwnerDescription,
    Retention,
    RetentionChange,
    RetentionCut,
    VchannelDescription,
)
from tidelog.tick import Tick
from tidelog.v1 import channel_service_pb2 as pb

_MILLISECOND: Final = timedelta(milliseconds=1)
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
