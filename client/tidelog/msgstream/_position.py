"""Positions in channels."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

FoundT = TypeVar("FoundT")


@dataclass(frozen=True, slots=True)
class MsgPosition:
    """A position in a channel.

    Attributes:
        channel_name: Name of the channel.
        msg_id: Id of a message, or of a tick between messages; as ``Tick.message_id``. On Pulsar the serialized id of a
            message.
        msg_group: Subscription that received it; empty if not set.
        timestamp: Everything with this tick or a smaller one is before the position. For a message: its tick.
    """

    channel_name: str
    msg_id: bytes
    msg_group: str = ""
    timestamp: int = 0


class PositionSource(ABC, Generic[FoundT]):
    """Where a stream received messages; it returns their positions.

    A position is created when it is asked for, because few are, and each costs a tenth of the message.
    """

    __slots__ = ()

    @abstractmethod
    def position_of(self, found: FoundT, time: int) -> MsgPosition:
        """Return the position of the message with the id ``found``, in the form of the broker, and this tick."""
