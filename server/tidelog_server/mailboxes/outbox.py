"""Events that a step of a mailbox writes, in order. Pure.

The messages of the step have consecutive ticks from ``base`` on, one for each event; the id of a sent message is its
tick.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from tidelog_server.fold import events
from tidelog_server.mailboxes.events import EventType, Leased, MessageIds, encode_ids, encode_leased

_Open = tuple[EventType, int]


class Outbox(events.Outbox):
    """The events of one step. Its changes are the number of messages that they concern.

    Events of the same kind that follow one another share a message of the log.

    Attributes:
        numbers: Number of messages that each kind of event concerns, as of ``close``; messages of another mailbox are
            not counted as sent.
        duplicates: Messages that were sent before, and were not added again.
    """

    __slots__ = ("_ids", "_locks", "_open", "duplicates", "numbers")

    def __init__(self, base: int) -> None:
        super().__init__(base)
        self.numbers: dict[int, int] = {}
        self.duplicates = 0
        # The event that further ones of its kind may join, and what it has so far.
        self._open: _Open | None = None
        self._ids: list[int] = []
        self._locks: list[bytes] = []

    @property
    def next_tick(self) -> int:
        """Tick of the next message. An open event is closed."""
        self.close()
        return self.base + len(self.payloads)

    def add(self, kind: int, payload: bytes, messages: int = 0) -> int:
        """Add an event that shares its message with no other, and concerns a number of ``messages``."""
        self.close()
        self._put(kind, payload)
        if messages:
            self._number(kind, messages)
        return self.base + len(self.payloads) - 1

    def add_sent(self, payloads: Sequence[bytes], *, is_moved: bool = False) -> None:
        """Add sent messages, or with ``is_moved`` those of another mailbox; the first one has ``next_tick``."""
        self.close()
        self.types += (EventType.SENT,) * len(payloads)
        self.changes += len(payloads)
        self.payloads += payloads
        if not is_moved:
            self._number(EventType.SENT, len(payloads))

    def add_ids(self, kind: EventType, message_ids: Iterable[int], tick: int = 0) -> None:
        """Add an event of messages, with the tick that its kind has; see ``events.MessageIds``."""
        self._join((kind, tick))
        self._ids += message_ids

    def add_leased(self, message_ids: Iterable[int], lock_ids: Iterable[bytes], until: int) -> None:
        """Add leases that end at the same tick."""
        self._join((EventType.LEASED, until))
        self._ids += message_ids
        self._locks += lock_ids

    def close(self) -> None:
        """Complete the last message."""
        if self._open is None:
            return
        (kind, tick), self._open = self._open, None
        if kind is EventType.LEASED:
            self._put(kind, encode_leased(Leased(tick, self._ids, self._locks)))
        else:
            self._put(kind, encode_ids(MessageIds(tick, self._ids)))
        self.changes += len(self._ids)
        self._number(kind, len(self._ids))
        self._ids, self._locks = [], []

    def _join(self, event: _Open) -> None:
        if self._open != event or len(self._ids) >= _MAX_IDS:
            self.close()
            self._open = event

    def _number(self, kind: int, messages: int) -> None:
        self.numbers[kind] = self.numbers.get(kind, 0) + messages

    def _put(self, kind: int, payload: bytes) -> None:
        self.types.append(kind)
        self.payloads.append(payload)


# Messages of one event; a further one begins another event. The limit keeps a message of the log small.
_MAX_IDS: Final = 10_000
