"""Positions and packs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.msgstream._messages import TsMsg


@dataclass(frozen=True, slots=True)
class MsgPosition:
    """A position in a channel.

    Attributes:
        channel_name: Name of the channel.
        msg_id: Id of a message, or of a tick between messages; as ``Tick.message_id``.
        msg_group: Subscription that received it; empty if not set.
        timestamp: Everything with this tick or a smaller one is before the position. For a message: its tick.
    """

    channel_name: str
    msg_id: bytes
    msg_group: str = ""
    timestamp: int = 0


@dataclass(slots=True)
class MsgPack:
    """Messages that travel together. For sending only ``msgs`` matters.

    Packs are equal if their messages and times are equal; positions are ignored, as several can name one place.

    Attributes:
        begin_ts: End of the previous pack: every message has a greater tick. In a plain stream equal to ``end_ts``.
        end_ts: Upper bound, inclusive, of the messages' ticks; later packs have greater ticks only.
        msgs: The messages; received ones in tick order.
        start_positions: Start of the pack, per channel.
        end_positions: Start of the next pack, per channel: store them, and pass them to ``seek``.
    """

    begin_ts: int = 0
    end_ts: int = 0
    msgs: "Sequence[TsMsg]" = ()
    start_positions: Sequence[MsgPosition] = field(default=(), compare=False)
    end_positions: Sequence[MsgPosition] = field(default=(), compare=False)

    @property
    def is_empty(self) -> bool:
        """True if the pack has no messages and only reports the passage of time."""
        return not self.msgs


def pack_of(msgs: "Iterable[TsMsg]") -> MsgPack:
    """Return a pack to send, with the times that its messages cover."""
    several = list(msgs)
    return MsgPack(
        min((msg.begin_ts for msg in several), default=0), max((msg.end_ts for msg in several), default=0), several
    )
