"""Conversion of broadcasts between the client's types and protocol messages; a part of ``tidelog.wire.protocol``."""

from collections.abc import Iterable
from typing import Final

from tidelog.admin.broadcast_types import (
    AckMode,
    BroadcastDescription,
    BroadcastResult,
    BroadcastState,
    BroadcastSummary,
    ResourceKey,
)
from tidelog.tick import Tick
from tidelog.v1 import broadcast_service_pb2 as pb

_MODES: Final = {AckMode.ONCE: pb.ACK_MODE_ONCE, AckMode.ALL: pb.ACK_MODE_ALL}
_STATES: Final = {
    BroadcastState.PENDING: pb.BROADCAST_STATE_PENDING,
    BroadcastState.WAIT_ACK: pb.BROADCAST_STATE_WAIT_ACK,
    BroadcastState.DONE: pb.BROADCAST_STATE_DONE,
    BroadcastState.ABORTED: pb.BROADCAST_STATE_ABORTED,
}
_OF_WIRE: Final = {wire: state for state, wire in _STATES.items()}


def resource_key(key: ResourceKey) -> pb.ResourceKey:
    """Return a key as the protocol message.

    Raises:
        TypeError: ``key`` is not a ResourceKey.
    """
    if not isinstance(key, ResourceKey):
        raise TypeError(f"{key!r} is not a resource key: expected ResourceKey(domain, key)")
    return pb.ResourceKey(domain=key.domain, key=key.key, shared=key.shared)


def ack_mode(mode: AckMode) -> pb.AckMode:
    """Return a mode as the protocol's value. Raises ValueError if it is invalid."""
    return _MODES[AckMode(mode)]


def states(wanted: Iterable[BroadcastState]) -> list[pb.BroadcastState]:
    """Return states as the protocol's values."""
    return [_STATES[state] for state in wanted]


def result(wire: pb.BroadcastResponse) -> BroadcastResult:
    """Return the result in a protocol message."""
    return BroadcastResult(wire.broadcast_id, Tick(wire.tick), wire.duplicate)


def summary(wire: pb.BroadcastSummary) -> BroadcastSummary:
    """Return the summary in a protocol message."""
    return BroadcastSummary(
        broadcast_id=wire.broadcast_id,
        state=_OF_WIRE[wire.state],
        tick=Tick(wire.tick),
        vchannels=wire.vchannels,
        acked_vchannels=wire.acked_vchannels,
        resource_keys=tuple(ResourceKey(key.domain, key.key, key.shared) for key in wire.resource_keys),
        created_time_ms=wire.created_time_ms,
        finished_time_ms=wire.finished_time_ms or None,
        age_s=wire.age_ms / 1_000,
        abort_reason=wire.abort_reason,
    )


def description(wire: pb.DescribeBroadcastResponse) -> BroadcastDescription:
    """Return the description in a protocol message."""
    return BroadcastDescription(summary(wire.summary), tuple(wire.acked), tuple(wire.missing))
