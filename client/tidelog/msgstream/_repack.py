"""Check packs before they are sent, divide them among channels, and encode them. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from tidelog.message import Message
from tidelog.msgstream._errors import MalformedMessageError, MessageTooLargeError, RepackError
from tidelog.msgstream._generated_messages import InsertMsg
from tidelog.msgstream._messages import TsMsg
from tidelog.msgstream._pack import MsgPack, pack_of

RepackFunc = Callable[[Sequence[TsMsg], Sequence[Sequence[int]]], Mapping[int, MsgPack]]
"""Divides messages among channels: returns a pack per channel, keyed by its index in the order of ``as_producer``.

The arguments are the messages, and per message its hash keys modulo the number of channels, see
``compute_produce_channel_indexes``; the keys themselves are in the messages.
"""


def compute_produce_channel_indexes(msgs: Iterable[TsMsg], channel_count: int) -> list[list[int]]:
    """Return, per message, the channel index of each of its hash keys: key % number of channels.

    Raises:
        ValueError: ``channel_count`` is less than 1.
    """
    if channel_count < 1:
        raise ValueError(f"channel_count is {channel_count}, expected at least 1")
    return [[key % channel_count for key in msg.hash_keys] for msg in msgs]


def default_repack(
    msgs: Sequence[TsMsg], indexes: Sequence[Sequence[int]], channel_count: int
) -> Mapping[int, MsgPack]:
    """Divide the rows of inserts by each row's key, and send every other message to the channel of its first key.

    Rows of one insert for the same channel stay one message, in order. With one channel no keys are needed.

    Raises:
        RepackError: A message has no key, an insert lacks a key for a row, or its columns differ in length.
    """
    by_channel: dict[int, list[TsMsg]] = {}
    for number, (msg, found) in enumerate(zip(msgs, indexes, strict=True)):
        if isinstance(msg, InsertMsg):
            _check_columns(msg, number, needs_keys=channel_count > 1)
        if channel_count == 1:
            by_channel.setdefault(0, []).append(msg)
        elif isinstance(msg, InsertMsg):
            for index, part in _divided(msg, found):
                by_channel.setdefault(index, []).append(part)
        elif found:
            by_channel.setdefault(found[0], []).append(msg)
        else:
            raise RepackError(
                f"message {number} of the pack, a {type(msg).__name__}, has no hash keys, so its channel is unknown: "
                "set a hash key, or set a repack function"
            )
    return {index: pack_of(each) for index, each in by_channel.items()}


def checked_packs(packs: Mapping[int, MsgPack], channel_count: int) -> Mapping[int, MsgPack]:
    """Return ``packs``, the result of a repack function, if it is valid.

    Raises:
        RepackError: A channel index is out of range, or a value is not a MsgPack.
    """
    if not isinstance(packs, Mapping):
        raise RepackError(
            f"the repack function returned {type(packs).__name__}, expected a mapping of channel index to MsgPack"
        )
    for index, pack in packs.items():
        if index not in range(channel_count):
            raise RepackError(
                f"the repack function returned a pack for channel {index!r}, expected 0 to {channel_count - 1}: the "
                "channels in the order of as_producer"
            )
        if not isinstance(pack, MsgPack):
            raise RepackError(
                f"the repack function returned {type(pack).__name__} for channel {index}: expected MsgPack"
            )
    return packs


def encoded(packs: Mapping[str, MsgPack], max_message_bytes: int) -> dict[str, Sequence[Message]]:
    """Return the encoded messages of the pack of each channel. A pack of several channels is encoded once.

    Raises:
        MalformedMessageError, MessageTooLargeError: A message cannot be sent.
    """
    parts = {id(pack): pack for pack in packs.values()}
    messages = {key: [_encoded(msg, max_message_bytes) for msg in pack.msgs] for key, pack in parts.items()}
    return {channel: messages[id(pack)] for channel, pack in packs.items()}


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


def _check_columns(msg: InsertMsg, number: int, *, needs_keys: bool) -> None:
    """Raise RepackError if rows and hash keys of ``msg`` do not match."""
    lengths = msg.column_lengths
    if needs_keys or msg.hash_keys:
        lengths = {"hash_keys": len(msg.hash_keys), **lengths}
    if len(set(lengths.values())) > 1 or (needs_keys and not msg.row_count):
        raise RepackError(
            f"message {number} of the pack, an InsertMsg, has {lengths}: expected at least one row, and one element "
            "per row in each column that is not empty"
        )


def _divided(msg: InsertMsg, indexes: Sequence[int]) -> Iterable[tuple[int, InsertMsg]]:
    """Yield the rows of ``msg``, per channel."""
    rows_by_channel: dict[int, list[int]] = {}
    for row, index in enumerate(indexes):
        rows_by_channel.setdefault(index, []).append(row)
    for index, chosen in rows_by_channel.items():
        yield index, _part(msg, chosen)


def _part(msg: InsertMsg, rows: Sequence[int]) -> InsertMsg:
    return replace(
        msg,
        hash_keys=[msg.hash_keys[row] for row in rows],
        timestamps=[msg.timestamps[row] for row in rows] if msg.timestamps else [],
        row_ids=[msg.row_ids[row] for row in rows] if msg.row_ids else [],
        row_data=[msg.row_data[row] for row in rows] if msg.row_data else [],
    )


def _encoded(msg: TsMsg, max_message_bytes: int) -> Message:
    found: object = msg.type
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 1 << 32:
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
    size_bytes = len(message.payload)
    if size_bytes > max_message_bytes:
        raise MessageTooLargeError(
            f"the {type(msg).__name__} with id {msg.id} has {size_bytes} bytes, expected at most "
            f"{max_message_bytes}: split it, or raise max_message_bytes here and in the server's limits",
            values={"size_bytes": str(size_bytes), "max_bytes": str(max_message_bytes)},
        )
    return message
