"""Message ids of Pulsar: their order, and their serialized form, MessageIdData of Pulsar's protocol. Pure."""

from functools import lru_cache
from typing import Final, NamedTuple

from tidelog.wire.protowire import VARINT, WireFormatError, fields, tag_of, varint_field

_LEDGER, _ENTRY, _BATCH_INDEX = (tag_of(number, VARINT) for number in (1, 2, 4))
_NEGATIVE: Final = 1 << 64


class MessageKey(NamedTuple):
    """The place of a message in a topic. Keys compare in the order of the topic.

    Attributes:
        ledger: Id of the ledger, a file of the topic; -1 before the first message.
        entry: Number of the entry in it.
        batch_index: Number of the message in the entry; -1 if the entry is one message.
    """

    ledger: int
    entry: int
    batch_index: int = -1

    def to_bytes(self) -> bytes:
        """Return the id as ``pulsar.MessageId.deserialize`` accepts it."""
        return EARLIEST_ID if self.ledger < 0 else id_bytes(self.ledger, self.entry, self.batch_index)


EARLIEST: Final = MessageKey(-1, -1)
"""The key before the first message."""
EARLIEST_ID: Final = varint_field(_LEDGER, _NEGATIVE - 1) + varint_field(_ENTRY, _NEGATIVE - 1)


def key_of_bytes(message_id: bytes) -> MessageKey:
    """Return the key of a serialized id.

    Raises:
        ValueError: ``message_id`` is not a serialized id.
    """
    try:
        found = dict(fields(message_id))
    except WireFormatError as error:
        raise ValueError(str(error)) from error
    if not found.keys() >= {_LEDGER, _ENTRY}:
        raise ValueError("it lacks the ledger or the entry")
    return MessageKey(*(_signed(found.get(tag, _NEGATIVE - 1)) for tag in (_LEDGER, _ENTRY, _BATCH_INDEX)))


def id_bytes(ledger: int, entry: int, batch_index: int) -> bytes:
    """Return the serialized id of a message; ``batch_index`` is -1 if the entry is one message."""
    if batch_index < 0:
        return _entry_bytes(ledger, entry)
    return _entry_bytes(ledger, entry) + _batch_bytes(batch_index)


# All messages of a batch share the entry, and most batches have the same indexes.
@lru_cache(maxsize=64)
def _entry_bytes(ledger: int, entry: int) -> bytes:
    return varint_field(_LEDGER, ledger) + varint_field(_ENTRY, entry)


@lru_cache(maxsize=4_096)
def _batch_bytes(batch_index: int) -> bytes:
    return varint_field(_BATCH_INDEX, batch_index)


def _signed(value: int) -> int:
    return value - _NEGATIVE if value >= _NEGATIVE // 2 else value
