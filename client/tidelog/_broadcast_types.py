"""What the calls of broadcasts take and return."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidelog._tick import Tick

_MAX_DOMAIN_BYTES: Final = 64
_MAX_KEY_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class ResourceKey:
    """A name that a broadcast holds from before its tick was taken until it is finished.

    Attributes:
        domain: What kind of thing it names, 1 to 64 bytes.
        key: The thing, 1 to 256 bytes.
        shared: Whether other broadcasts may hold it as well, if they share it too.
    """

    domain: str
    key: str
    shared: bool = False

    def __post_init__(self) -> None:
        for name, text, max_bytes in (("domain", self.domain, _MAX_DOMAIN_BYTES), ("key", self.key, _MAX_KEY_BYTES)):
            if not 1 <= len(text.encode()) <= max_bytes:
                raise ValueError(f"the {name} {text[:max_bytes]!r} has not 1 to {max_bytes} bytes")


class AckMode(StrEnum):
    """Which acknowledgements are waited for."""

    ONCE = "once"
    """One vchannel of one of the broadcasts."""
    ALL = "all"
    """All of them."""


class BroadcastState(StrEnum):
    """How far a broadcast is."""

    PENDING = "pending"
    """Accepted; it will be in the log of each vchannel."""
    WAIT_ACK = "wait_ack"
    """In the log, and not acknowledged by all."""
    DONE = "done"
    """Acknowledged by all."""
    ABORTED = "aborted"
    """Given up."""


@dataclass(frozen=True, slots=True)
class BroadcastResult:
    """Where a broadcast is.

    Attributes:
        broadcast_id: Its number.
        tick: Of its message, on each of its vchannels.
        duplicate: Whether an earlier try of the same call had put it there.
    """

    broadcast_id: int
    tick: Tick
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class BroadcastSummary:
    """A broadcast as it stood when it was listed.

    Attributes:
        broadcast_id: Its number.
        state: How far it is.
        tick: Of its message; 0 while it is pending.
        vchannels: For how many it is.
        acked_vchannels: How many of them have acknowledged, those of destroyed channels included.
        resource_keys: What it holds; empty once it is finished.
        created_time_ms: When it was accepted, in milliseconds since the epoch.
        finished_time_ms: When it was finished; None if it is not.
        age_s: How long ago it was accepted, by the server's clock.
        abort_reason: Why it was aborted; empty if it was not.
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
    """A broadcast as it stood when it was described.

    Attributes:
        summary: All but its vchannels.
        acked: Vchannels that have acknowledged; empty once it is finished.
        missing: Vchannels that have not; empty once it is finished.
    """

    summary: BroadcastSummary
    acked: Sequence[str]
    missing: Sequence[str]
