"""Positions in channels."""

from dataclasses import dataclass


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
