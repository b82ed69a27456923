"""Messages: what people append, and what they read back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tidelog._tick import Tick, milliseconds


@dataclass(frozen=True, slots=True)
class Message:
    """One message to append.

    Attributes:
        payload: Up to 1 MiB, possibly empty.
        key: Up to 1 KiB. None and empty are different.
        type: The caller's own number for the kind of message, 0 to 2^32 - 1.
        properties: Up to 16 texts, 8 KiB in all. Keys that begin with an underscore are reserved.
        event_time: When the event happened according to the caller; kept to the millisecond, in UTC
            within the years 1 to 9999. Needs a time zone.
    """

    payload: bytes
    key: bytes | None = None
    type: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time: datetime | None = None

    @property
    def event_time_ms(self) -> int | None:
        """``event_time`` in milliseconds since the epoch."""
        return None if self.event_time is None else milliseconds(self.event_time)

    @property
    def size_bytes(self) -> int:
        """About how many bytes the message takes in a batch; at least its payload."""
        texts = sum(len(key) + len(value) for key, value in self.properties.items())
        return len(self.payload) + len(self.key or b"") + texts + 8


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage(Message):
    """One message as it stands in the log. It is a Message, so it can be appended elsewhere as it is.

    Attributes:
        vchannel: Where it stands.
        tick: Its id, position, time and version at once.
        txn_id: The transaction that it belongs to; None for none.
        broadcast_id: The broadcast that it is of; None for none.
    """

    vchannel: str
    tick: Tick
    txn_id: int | None = None
    broadcast_id: int | None = None
