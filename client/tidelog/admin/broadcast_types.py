"""Arguments and results of the broadcast calls, and the conversion to protocol messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidelog.tick import Tick
from tidelog.v1 import broadcast_service_pb2 as pb

_MAX_DOMAIN_BYTES: Final = 64
_MAX_KEY_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class ResourceKey:
    """A lock that a broadcast acquires before its tick is allocated, and holds until it is finished.

    Attributes:
        domain: Namespace of the key, 1 to 64 bytes.
        key: Name in the domain, 1 to 256 bytes.
        shared: True for a shared lock, which other broadcasts may share; False for an exclusive one.
    """

    domain: str
    key: str
    shared: bool = False

    def __post_init__(self) -> None:
        for name, text, max_bytes in (("domain", self.domain, _MAX_DOMAIN_BYTES), ("key", self.key, _MAX_KEY_BYTES)):
            if not 1 <= len(text.encode()) <= max_bytes:
                raise ValueError(
                    f"the {name} {text[:max_bytes]!r} has {len(text.encode())} bytes, expected 1 to {max_bytes}"
                )


class AckMode(StrEnum):
    """The acknowledgements that a call waits for."""

    ONCE = "once"
    """That of one vchannel of one broadcast."""
    ALL = "all"
    """Those of all vchannels of all broadcasts."""


class BroadcastState(StrEnum):
    """The state of a broadcast."""

    PENDING = "pending"
    """Accepted; it will be in the log of each vchannel."""
    WAIT_ACK = "wait_ack"
    """In the log, but not yet acknowledged by all vchannels."""
    DONE = "done"
    """Acknowledged by all vchannels."""
    ABORTED = "aborted"
    """Aborted by an operator before all vchannels acknowledged it."""


@dataclass(frozen=True, slots=True)
class BroadcastResult:
    """The result of ``broadcast``.

    Attributes:
        broadcast_id: Id of the broadcast.
        tick: Tick of the message, the same on each vchannel.
        duplicate: True if an earlier attempt of the same call had appended it.
    """

    broadcast_id: int
    tick: Tick
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class BroadcastSummary:
    """A broadcast at the time of the call.

    Attributes:
        broadcast_id: Id of the broadcast.
        state: State of the broadcast.
        tick: Tick of the message; 0 while the broadcast is pending.
        vchannels: Number of vchannels that it was sent to.
        acked_vchannels: Number of vchannels that have acknowledged it, including those of destroyed channels.
        resource_keys: Keys that it holds; empty once it is finished.
        created_time_ms: Time at which it was accepted, in milliseconds since the epoch.
        finished_time_ms: Time at which it was finished, in milliseconds since the epoch; None if it is not.
        age_s: Seconds since it was accepted, by the server's clock.
        abort_reason: Reason of the abort; empty if it was not aborted.
    """

    broadcast_id: int
    state: BroadcastState
    tick: Tick
    vchannels: int
    acked_vchannels: int
    resource_keys: Sequence[ResourceKey]
    created_time_ms: int
    finished_time_ms: int | None
    age_s: float
    abort_reason: str


@dataclass(frozen=True, slots=True)
class BroadcastDescription:
    """A broadcast with its vchannels, at the time of the call.

    Attributes:
        summary: The broadcast without its vchannels.
        acked: Vchannels that have acknowledged it; empty once it is finished.
        missing: Vchannels that have not acknowledged it; empty once it is finished.
    """

    summary: BroadcastSummary
    acked: Sequence[str]
    missing: Sequence[str]


MODES: Final = {AckMode.ONCE: pb.ACK_MODE_ONCE, AckMode.ALL: pb.ACK_MODE_ALL}
STATES: Final = {
    BroadcastState.PENDING: pb.BROADCAST_STATE_PENDING,
    BroadcastState.WAIT_ACK: pb.BROADCAST_STATE_WAIT_ACK,
    BroadcastState.DONE: pb.BROADCAST_STATE_DONE,
    BroadcastState.ABORTED: pb.BROADCAST_STATE_ABORTED,
}
_OF_WIRE: Final = {wire: state for state, wire in STATES.items()}


def resource_key(key: ResourceKey) -> pb.ResourceKey:
    """Return a key as the protocol message.

    Raises:
        TypeError: ``key`` is not a ResourceKey.
    """
    if not isinstance(key, ResourceKey):
        raise TypeError(f"{key!r} is not a resource key: expected ResourceKey(domain, key)")
    return pb.ResourceKey(domain=key.domain, key=key.key, shared=key.shared)


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
