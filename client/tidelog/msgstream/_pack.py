"""Positions and packs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.msgstream._messages import TsMsg


@dataclass(frozen=True, slots=True)
class MsgPosition:
    """A place in a channel.

    Attributes:
        channel_name: The channel.
        msg_id: The id of a message, or of a tick between messages; as ``Tick.message_id``.
        msg_group: The subscription that met it; empty for none.
        timestamp: Everything with this tick or a smaller one lies before the place. Of a message: its tick.
    """

    channel_name: str
    msg_id: bytes
    msg_group: str = ""
    timestamp: int = 0


@dataclass(slots=True)
class MsgPack:
    """Messages that travel together. To be sent only ``msgs`` counts.

    Packs are equal when they have the same messages and times: there are several positions for one place.

    Attributes:
        begin_ts: Where the pack before ended: every message has a greater tick. Of a plain stream: as ``end_ts``.
        end_ts: Every message has this tick or a smaller one, and none of the later packs has.
        msgs: The messages; received ones in tick order.
        start_positions: For each channel, where the pack begins.
        end_positions: For each channel, where the next pack begins: what to keep, and to give to ``seek``.
    """

    begin_ts: int = 0
    end_ts: int = 0
    msgs: "Sequence[TsMsg]" = ()
    start_positions: Sequence[MsgPosition] = field(default=(), compare=False)
    end_positions: Sequence[MsgPosition] = field(default=(), compare=False)

    @property
    def is_empty(self) -> bool:
        """Whether it only says that time has passed."""
        return not self.msgs


def pack_of(msgs: "Iterable[TsMsg]") -> MsgPack:
    """Return a pack to send, with the times that its messages speak of."""
    several = list(msgs)
    return MsgPack(
        min((msg.begin_ts for msg in several), default=0), max((msg.end_ts for msg in several), default=0), several
    )
