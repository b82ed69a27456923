"""Checks and encodes packs before they are sent. Pure."""

from collections.abc import Sequence

from tidelog.message import Message
from tidelog.msgstream._errors import MalformedMessageError, MessageTooLargeError
from tidelog.msgstream._messages import InsertMsg, TsMsg
from tidelog.msgstream._pack import MsgPack


def encoded(pack: MsgPack, max_message_bytes: int) -> list[Message]:
    """Return the encoded messages of a pack.

    Raises:
        MalformedMessageError, MessageTooLargeError: A message cannot be sent.
    """
    return [_encoded(msg, max_message_bytes) for msg in pack.msgs]


def is_empty(pack: object) -> bool:
    """Return whether a pack has no messages.

    Raises:
        TypeError: ``pack`` is not a MsgPack.
        MalformedMessageError: ``pack`` contains something that is not a message.
    """
    if not isinstance(pack, MsgPack):
        raise TypeError(f"the pack is {type(pack).__name__}, expected a MsgPack: MsgPack(msgs=[...])")
    found: Sequence[object] = pack.msgs
    invalid = [each for each in found if not isinstance(each, TsMsg)]
    if invalid:
        raise MalformedMessageError(f"a message of the pack is {type(invalid[0]).__name__}: expected a TsMsg")
    return pack.is_empty


def _encoded(msg: TsMsg, max_message_bytes: int) -> Message:
    if not 0 <= msg.type < 1 << 32:
        raise MalformedMessageError(
            f"the {type(msg).__name__} with id {msg.id} has type {msg.type}: expected 0 to {(1 << 32) - 1}, "
            "such as a MsgType"
        )
    if isinstance(msg, InsertMsg) and len(set(msg.column_lengths.values())) > 1:
        # Reached by broadcasts, and by the results of repack functions.
        raise MalformedMessageError(
            f"the InsertMsg with id {msg.id} has columns of different lengths, {msg.column_lengths}: expected one "
            "element per row in each column that is not empty"
        )
    message = Message(msg.marshal(), type=int(msg.type))
    if message.size_bytes > max_message_bytes:
        raise MessageTooLargeError(
            f"the {type(msg).__name__} with id {msg.id} has {message.size_bytes} bytes, expected at most "
            f"{max_message_bytes}: split it, or raise max_message_bytes here and in the server's limits",
            values={"size_bytes": str(message.size_bytes), "max_bytes": str(max_message_bytes)},
        )
    return message
