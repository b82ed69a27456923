"""Broadcast states and resource keys, used by every layer."""

from enum import StrEnum
from typing import Final, NamedTuple


class BroadcastState(StrEnum):
    """State of a broadcast. In the metadata since format 1."""

    PENDING = "pending"
    """Accepted: it will be in the log of each of its vchannels despite any crash. Holds its keys."""
    WAIT_ACK = "wait_ack"
    """In the log of each of its vchannels, but not acknowledged on all. Holds its keys."""
    DONE = "done"
    """Acknowledged on all vchannels."""
    ABORTED = "aborted"
    """Aborted by an operator; its message stays in the log."""


OPEN_STATES: Final = (BroadcastState.PENDING, BroadcastState.WAIT_ACK)
"""States of unfinished broadcasts."""


class KeyName(NamedTuple):
    """Name of a resource key.

    Attributes:
        domain: Kind of the resource.
        key: The resource.
    """

    domain: str
    key: str


class ResourceKey(NamedTuple):
    """A resource key and the mode in which a broadcast requests it.

    Attributes:
        name: Name of the key.
        is_shared: True for shared mode, which other shared holders do not exclude; False for exclusive mode.
    """

    name: KeyName
    is_shared: bool

    @property
    def mode(self) -> str:
        """``shared`` or ``exclusive``."""
        return "shared" if self.is_shared else "exclusive"
