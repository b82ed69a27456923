"""Ids of messages: their order, and their serialized form, MessageIdData of Pulsar's protocol. Pure.

A message of a stream is a message of Pulsar, or one of a pack, which is one message of Pulsar. Its number in the pack
is a field that Pulsar does not have, and skips.
"""

from typing import Any, Final, NamedTuple

from tidelog.wire.protowire import VARINT, WireFormatError, fields, tag_of, varint_field

_LEDGER, _ENTRY, _BATCH_INDEX, _NUMBER = (tag_of(number, VARINT) for number in (1, 2, 4, 1_000))
_NEGATIVE: Final = 1 << 64


class MessageKey(NamedTuple):
    """The place of a message in a topic. Keys compare in the order of the topic.

    Attributes:
        ledger: Id of the ledger, a file of the topic; -1 before the first message.
        entry: Number of the entry in it.
        batch_index: Number of Pulsar's message in the entry; -1 if the entry is one message.
        number: Number of the message in its pack; -1 for the whole of Pulsar's message.
    """

    ledger: int
    entry: int
    batch_index: int = -1
    number: int = -1

    @property
    def whole(self) -> "MessageKey":
        """The key of Pulsar's message."""
        return self._replace(number=-1)

    def to_bytes(self) -> bytes:
        """Return the id as ``pulsar.MessageId.deserialize`` accepts it."""
        if self.ledger < 0:
            return EARLIEST_ID
        message_id = varint_field(_LEDGER, self.ledger) + varint_field(_ENTRY, self.entry)
        if self.batch_index >= 0:
            message_id += varint_field(_BATCH_INDEX, self.batch_index)
        return message_id if self.number < 0 else message_id + varint_field(_NUMBER, self.number)


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
    return MessageKey(*(_signed(found.get(tag, _NEGATIVE - 1)) for tag in (_LEDGER, _ENTRY, _BATCH_INDEX, _NUMBER)))


def ids_of_pack(pack: MessageKey, number: int) -> list[bytes]:
    """Return the ids of the messages of a pack, from its key and their number."""
    prefix = pack.whole.to_bytes()
    return [prefix + varint_field(_NUMBER, each) for each in range(number)]


def key_of(message_id: Any, number: int = -1) -> MessageKey:
    """Return the key of an id of the library and a number in its pack."""
    return MessageKey(message_id.ledger_id(), message_id.entry_id(), message_id.batch_index(), number)


def _signed(value: int) -> int:
    return value - _NEGATIVE if value >= _NEGATIVE // 2 else value
