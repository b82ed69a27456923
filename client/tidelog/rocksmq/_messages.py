"""What goes into a queue and comes out of it, and what is wrong with what does not."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelog import InvalidRequestError, Message, StoredMessage, Tick

MAX_MSG_ID: Final = (1 << 63) - 2
"""The greatest that a message can have: there is a position behind it."""


@dataclass(frozen=True, slots=True)
class ProducerMessage:
    """One message to produce.

    Attributes:
        payload: Up to 1 MiB, possibly empty.
        properties: Up to 16 texts, 8 KiB in all. Keys that begin with an underscore are reserved.
    """

    payload: bytes
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConsumerMessage:
    """One message that was consumed.

    Attributes:
        msg_id: Its id, which is its tick: greater than those of all messages before it on the channel.
        payload: What was produced; empty stays empty.
        properties: What was produced with it.
        key: Its key, if somebody appended it with one.
        type: Its type, 0 unless somebody appended it with one.
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
    """No message of the channel has this id. Nothing moved; ``force_seek`` goes to the next one that there is."""

    @property
    def msg_id(self) -> Tick:
        """The id that was asked for."""
        return self._tick("msg_id")

    @property
    def last_msg_id(self) -> Tick:
        """The last message of the channel; 0 for none."""
        return self._tick("last_msg_id")


def checked_messages(messages: Iterable[bytes | ProducerMessage | Message]) -> list[bytes | Message]:
    """Return what to append.

    Raises:
        TypeError: It is no collection of messages, or None; a single message is none either.
    """
    if isinstance(messages, bytes | str | bytearray | Message | ProducerMessage) or not isinstance(messages, Iterable):
        raise TypeError(f"produce takes a list of bytes or ProducerMessage, not {type(messages).__name__}")
    return [_appendable(message) for message in messages]


def checked_count(count: object, what: str) -> int:
    """Return ``count``. Raises InvalidRequestError if it is not positive, TypeError if it is no integer."""
    if not isinstance(count, int) or isinstance(count, bool):
        raise TypeError(f"{what} is a number of type int, not {type(count).__name__}")
    if count < 1:
        raise InvalidRequestError(f"{what} is {count}, expected at least 1", values={"field": what})
    return count


def checked_msg_id(msg_id: object) -> Tick:
    """Return an id. Raises InvalidRequestError if no message can have it, TypeError if it is no integer."""
    if not isinstance(msg_id, int) or isinstance(msg_id, bool):
        raise TypeError(f"msg_id is the id of a message, an int, not {type(msg_id).__name__}")
    if not 0 <= msg_id <= MAX_MSG_ID:
        raise InvalidRequestError(f"msg_id is {msg_id}, expected 0 to {MAX_MSG_ID}", values={"field": "msg_id"})
    return Tick(msg_id)


def _appendable(message: bytes | ProducerMessage | Message) -> bytes | Message:
    if isinstance(message, bytes | Message):
        return message
    if isinstance(message, ProducerMessage):
        return Message(message.payload, properties=message.properties)
    raise TypeError(f"a message to produce is bytes or ProducerMessage, not {type(message).__name__}")
