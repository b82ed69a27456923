"""Packs of messages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tidelog.msgstream._messages import TsMsg
from tidelog.msgstream._position import MsgPosition


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
    msgs: Sequence[TsMsg] = ()
    start_positions: Sequence[MsgPosition] = field(default=(), compare=False)
    end_positions: Sequence[MsgPosition] = field(default=(), compare=False)

    @property
    def is_empty(self) -> bool:
        """True if the pack has no messages and only reports the passage of time."""
        return not self.msgs


def pack_of(msgs: Iterable[TsMsg]) -> MsgPack:
    """Return a pack to send, with the times that its messages cover."""
    several = list(msgs)
    return MsgPack(
        min((msg.begin_ts for msg in several), default=0), max((msg.end_ts for msg in several), default=0), several
    )
