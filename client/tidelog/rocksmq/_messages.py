"""Messages that queues accept and return, and the checks of arguments."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelog import InvalidRequestError, Message, StoredMessage, Tick
from tidelog.errors import tick_value

MAX_MSG_ID: Final = (1 << 63) - 2
"""Greatest id that a message can have: the position after it must be a valid tick."""


@dataclass(frozen=True, slots=True)
class ProducerMessage:
    """One message to produce.

    Attributes:
        payload: Up to 1 MiB, possibly empty.
        properties: Up to 16 strings, 8 KiB in total. Keys that begin with an underscore are reserved.
    """

    payload: bytes
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConsumerMessage:
    """One consumed message.

    Attributes:
        msg_id: Id of the message, which is its tick: greater than the ids of all earlier messages on the channel.
        payload: Payload as produced; an empty one stays empty.
        properties: Properties as produced.
        key: Key, if it was appended with one.
        type: Type that it was appended with, otherwise 0.
    """

    msg_id: Tick
    payload: bytes
    properties: Mapping[str, str] = field(default_factory=dict)
    key: bytes | None = None
    type: int = 0

    @classmethod
    def of(cls, stored: StoredMessage) -> "ConsumerMessage":
        """Return a message of the log."""
        return cls(stored.tick, stored.payload, stored.properties, stored.key, stored.type)


class MessageNotFoundError(InvalidRequestError):
    """No message of the channel has this id. Nothing moved; ``force_seek`` moves to the next available message."""

    msg_id = tick_value("The requested id.")
    last_msg_id = tick_value("Id of the channel's last message; 0 if it has no messages.")


def checked_messages(messages: Iterable[bytes | ProducerMessage | Message]) -> list[bytes | Message]:
    """Return what to append.

    Raises:
        TypeError: ``messages`` is None, a single message, or not a collection of messages.
    """
    if isinstance(messages, bytes | str | bytearray | Message | ProducerMessage) or not isinstance(messages, Iterable):
        raise TypeError(f"messages is {type(messages).__name__}, expected a list of bytes or ProducerMessage")
    return [_appendable(message) for message in messages]


def checked_count(count: object, what: str) -> int:
    """Return ``count``. Raises InvalidRequestError if it is not positive, TypeError if it is no integer."""
    if not isinstance(count, int) or isinstance(count, bool):
        raise TypeError(f"{what} is {type(count).__name__}, expected a number of type int")
    if count < 1:
        raise InvalidRequestError(f"{what} is {count}, expected at least 1", values={"field": what})
    return count


def checked_msg_id(msg_id: object) -> Tick:
    """Return an id. Raises InvalidRequestError if no message can have it, TypeError if it is no integer."""
    if not isinstance(msg_id, int) or isinstance(msg_id, bool):
        raise TypeError(f"msg_id is {type(msg_id).__name__}, expected the id of a message, an int")
    if not 0 <= msg_id <= MAX_MSG_ID:
        raise InvalidRequestError(f"msg_id is {msg_id}, expected 0 to {MAX_MSG_ID}", values={"field": "msg_id"})
    return Tick(msg_id)


def _appendable(message: bytes | ProducerMessage | Message) -> bytes | Message:
    if isinstance(message, bytes | Message):
        return message
    if isinstance(message, ProducerMessage):
        return Message(message.payload, properties=message.properties)
    raise TypeError(f"a message is {type(message).__name__}, expected bytes or ProducerMessage")
