"""Messages to append, and messages read from the log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from tidelog.tick import Tick, milliseconds

MESSAGE_BYTES: Final = 32
"""What a message adds to a batch besides its contents, at most: its places in the columns of a batch that has all."""
PROPERTY_BYTES: Final = 8
"""What a property adds to a batch besides its texts."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message to append.

    Attributes:
        payload: Up to 1 MiB, possibly empty.
        key: Up to 1 KiB. None and empty are different.
        type: Application-defined message type, 0 to 2^32 - 1.
        properties: Up to 16 texts, 8 KiB in total. Keys that begin with an underscore are reserved.
        event_time: Application-defined time of the event, with a time zone; stored in UTC with millisecond precision,
            in the years 1 to 9999.
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
        """Size of the message in a batch of messages with all fields, in bytes: an upper bound of what it takes."""
        texts = sum(encoded_bytes(key) + encoded_bytes(value) for key, value in self.properties.items())
        overhead = MESSAGE_BYTES + PROPERTY_BYTES * len(self.properties)
        return len(self.payload) + len(self.key or b"") + texts + overhead


def encoded_bytes(text: str) -> int:
    """Return the size of ``text`` in UTF-8. Raises UnicodeEncodeError if it has a lone surrogate."""
    return len(text) if text.isascii() else len(text.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage(Message):
    """One message in the log. It is a Message, so it can be appended elsewhere unchanged.

    Attributes:
        vchannel: The vchannel that contains it.
        tick: Its id, position, time and version in one.
        txn_id: The transaction that it belongs to; None if it was not in a transaction.
        broadcast_id: The broadcast that it belongs to; None if it is not of a broadcast.
    """

    vchannel: str
    tick: Tick
    txn_id: int | None = None
    broadcast_id: int | None = None
