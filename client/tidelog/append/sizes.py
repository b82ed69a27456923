"""Type checks and sizes of messages to append."""

from collections.abc import Iterator, Sequence
from typing import cast

from tidelog.message import Message

Appendable = bytes | Message
"""One message: only a payload, or a Message with key, type, properties and time."""

# Size of a message besides its payload: its offset, and a share of the overhead of the batch.
_OVERHEAD_BYTES = 8


def measure(message: Appendable) -> int:
    """Return the approximate size of ``message`` in a batch in bytes, at least 1.

    Raises:
        TypeError: The message is neither bytes nor a Message.
    """
    if isinstance(message, bytes):
        return len(message) + _OVERHEAD_BYTES
    if isinstance(message, Message):
        return message.size_bytes
    raise _type_error(message)


def in_batches(
    messages: Sequence[Appendable], *, max_bytes: int, max_messages: int
) -> Iterator[tuple[Sequence[Appendable], bool, int]]:
    """Split ``messages``, checked before, into pieces within these limits.

    Yields each piece, whether it is all plain bytes, and its approximate size in bytes. A message that exceeds
    ``max_bytes`` by itself is a separate piece.
    """
    begin = size_bytes = 0
    for index, message in enumerate(messages):
        message_bytes = measure(message)
        if index > begin and (size_bytes + message_bytes > max_bytes or index - begin == max_messages):
            piece = messages[begin:index]
            yield piece, set(map(type, piece)) <= {bytes}, size_bytes
            begin, size_bytes = index, 0
        size_bytes += message_bytes
    if begin < len(messages):
        piece = messages[begin:]
        yield piece, set(map(type, piece)) <= {bytes}, size_bytes


def measured(messages: Appendable | Sequence[Appendable]) -> tuple[Sequence[Appendable], bool, int]:
    """Return ``messages`` as a sequence, whether they are all plain bytes, and their approximate size in a batch.

    Raises:
        TypeError: One of them is neither bytes nor a Message.
    """
    # Why not isinstance with the union: it takes longer than all the rest, and this runs for each append.
    if isinstance(messages, bytes):
        return (messages,), True, len(messages) + _OVERHEAD_BYTES
    if isinstance(messages, Message):
        return (messages,), False, messages.size_bytes
    if not isinstance(messages, Sequence):
        raise _type_error(messages)
    several = cast("Sequence[Appendable]", messages)
    return several, *measure_all(several)


def measure_all(messages: Sequence[Appendable]) -> tuple[bool, int]:
    """Return whether ``messages`` are all plain bytes, and their approximate size in a batch in bytes.

    Raises:
        TypeError: One of them is neither bytes nor a Message.
    """
    if set(map(type, messages)) <= {bytes}:
        payloads = cast("Sequence[bytes]", messages)
        return True, sum(map(len, payloads)) + _OVERHEAD_BYTES * len(payloads)
    return False, sum(map(measure, messages))


def _type_error(found: object) -> TypeError:
    return TypeError(f"append expects bytes, a Message or a list of them, got {type(found).__name__}")
