"""Checks and sizes of messages to append: before they share a batch, so that a bad one affects no other."""

from collections.abc import Iterator, Sequence
from typing import Final, cast

from tidelog.append.message_checks import checked_bytes
from tidelog.errors import InvalidRequestError
from tidelog.message import MESSAGE_BYTES, Message
from tidelog.wire.batch import Batch

Appendable = bytes | Message
"""One message: only a payload, or a Message with key, type, properties and time."""

# Size of a message besides its payload: its offset, and a share of the overhead of the batch.
_OVERHEAD_BYTES: Final = 8
MIXED_BYTES: Final = MESSAGE_BYTES - _OVERHEAD_BYTES
"""What a payload adds to a batch that has messages with other fields, besides the size that ``measure`` returns."""


def measure(message: Appendable) -> int:
    """Return the size of ``message`` in a batch in bytes, at least 1 and at least what it takes.

    Raises:
        TypeError: The message is neither bytes nor a Message.
        InvalidRequestError: It cannot be encoded. The error names the field.
    """
    if isinstance(message, bytes):
        return len(message) + _OVERHEAD_BYTES
    if isinstance(message, Message):
        return checked_bytes(message)
    raise _type_error(message)


def in_batches(
    messages: Sequence[Appendable], *, max_bytes: int, max_messages: int
) -> Iterator[tuple[Sequence[Appendable], bool, int]]:
    """Split ``messages``, checked before, into pieces within these limits.

    Yields each piece, whether it is all plain bytes, and its approximate size in bytes. A message that exceeds
    ``max_bytes`` by itself is a separate piece.
    """
    begin = size_bytes = 0
    mixed_bytes = 0 if set(map(type, messages)) <= {bytes} else MIXED_BYTES
    for index, message in enumerate(messages):
        message_bytes = message.size_bytes if isinstance(message, Message) else measure(message) + mixed_bytes
        if index > begin and (size_bytes + message_bytes > max_bytes or index - begin == max_messages):
            piece = messages[begin:index]
            yield piece, set(map(type, piece)) <= {bytes}, size_bytes
            begin, size_bytes = index, 0
        size_bytes += message_bytes
    if begin < len(messages):
        piece = messages[begin:]
        yield piece, set(map(type, piece)) <= {bytes}, size_bytes


def measured(messages: object) -> tuple[Sequence[Appendable], bool, int]:
    """Return ``messages`` as a sequence, whether they are all plain bytes, and their approximate size in a batch.

    Raises:
        TypeError, InvalidRequestError: As ``measure``, for one of them; the error names it.
    """
    # Why not isinstance with the union: it takes longer than all the rest, and this runs for each append.
    if isinstance(messages, bytes):
        return (messages,), True, len(messages) + _OVERHEAD_BYTES
    if isinstance(messages, Message):
        return (messages,), False, measure(messages)
    if isinstance(messages, Batch):
        return messages, False, messages.columns.size_bytes
    if not isinstance(messages, Sequence):
        raise _type_error(messages)
    several = cast("Sequence[Appendable]", messages)
    return several, *measure_all(several)


def measure_all(messages: Sequence[Appendable], first: int = 0) -> tuple[bool, int]:
    """Return whether ``messages`` are all plain bytes, and their size in a batch in bytes.

    Args:
        messages: The messages.
        first: Index of the first one in the call, for the error.

    Raises:
        TypeError, InvalidRequestError: As ``measure``, for one of them; the error names it.
    """
    if set(map(type, messages)) <= {bytes}:
        payloads = cast("Sequence[bytes]", messages)
        return True, sum(map(len, payloads)) + _OVERHEAD_BYTES * len(payloads)
    if isinstance(messages, str | bytearray | memoryview):
        # A sequence, too, but not one of messages.
        raise _type_error(messages)
    size_bytes = 0
    for index, message in enumerate(messages, first):
        try:
            size_bytes += measure(message) + (MIXED_BYTES if isinstance(message, bytes) else 0)
        except (TypeError, InvalidRequestError) as error:
            raise type(error)(f"messages[{index}]: {error}") from error
    return False, size_bytes


def _type_error(found: object) -> TypeError:
    hint = ": encode it, as with .encode()" if isinstance(found, str) else ""
    if isinstance(found, bytearray | memoryview):
        hint = ": copy it with bytes(...), because it may change before it is sent"
    return TypeError(
        f"append expects bytes, a Message, a list of them or an object of Arrow, got {type(found).__name__}{hint}"
    )
