"""What is said of broadcasts on every layer: states, and the keys that they hold."""

from enum import StrEnum
from typing import Final, NamedTuple


class BroadcastState(StrEnum):
    """How far a broadcast is. In the metadata since format 1."""

    PENDING = "pending"
    """Accepted: it will be in the log of each of its vchannels, whatever crashes. Holds its keys."""
    WAIT_ACK = "wait_ack"
    """In the log of each of its vchannels, and not acknowledged by all. Holds its keys."""
    DONE = "done"
    """Acknowledged by all."""
    ABORTED = "aborted"
    """Given up by an operator; its message stays in the log."""


OPEN_STATES: Final = (BroadcastState.PENDING, BroadcastState.WAIT_ACK)
"""Those of broadcasts that are not finished."""


class KeyName(NamedTuple):
    """What a resource key is known by.

    Attributes:
        domain: What kind of thing it names.
        key: The thing.
    """

    domain: str
    key: str


class ResourceKey(NamedTuple):
    """A key as a broadcast wants it.

    Attributes:
        name: Which one.
        is_shared: Whether others may hold it as well, if they share it too.
    """

    name: KeyName
    is_shared: bool

    @property
    def mode(self) -> str:
        """``shared`` or ``exclusive``."""
        return "shared" if self.is_shared else "exclusive"
