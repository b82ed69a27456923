"""Conversion of rows to columns and back, for clients without columns. Slow: for requests and responses only."""

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, repeat

import numpy as np

from tidelog.v1 import message_pb2
from tidelog_server.core.ticks import encode_message_id
from tidelog_server.rpc.columns.view import ColumnsView, Indices, sealed


def encode_rows(messages: Sequence[message_pb2.Message]) -> bytes:
    """Return serialised Columns with the messages and a CRC, without validation."""
    columns = message_pb2.Columns(count=len(messages))
    columns.payload_offsets = _offsets([len(message.payload) for message in messages])
    columns.payloads = b"".join(message.payload for message in messages)
    if any(message.HasField("key") for message in messages):
        columns.key_offsets = _offsets([len(message.key) for message in messages])
        columns.keys = b"".join(message.key for message in messages)
        columns.key_validity = _bitmap([message.HasField("key") for message in messages])
    _encode_types(messages, columns)
    _encode_properties(messages, columns)
    if any(message.HasField("event_time_ms") for message in messages):
        columns.event_times_ms = np.array([message.event_time_ms for message in messages], "<i8").tobytes()
        columns.event_time_validity = _bitmap([message.HasField("event_time_ms") for message in messages])
    return sealed(columns)


def decode_rows(
    view: ColumnsView, indices: Indices, base_tick: int, vchannel: str, txn_id: int = 0, *, broadcast_id: int = 0
) -> Iterator[message_pb2.Row]:
    """Yield the messages at ``indices`` as rows.

    ``txn_id`` is the id of the first transaction in ``view``, or 0; ``broadcast_id`` that of its broadcast, or 0.
    """
    payload_offsets, payloads = view.offsets("payload_offsets"), view.column("payloads")
    types = view.types()
    txn_ids = (txn_id + view.txn_offsets(indices)).tolist() if view.txn_ends else repeat(txn_id)
    for index, txn_id_ in zip(indices.tolist(), txn_ids, strict=False):
        tick = base_tick + index
        message = message_pb2.Message(
            payload=bytes(payloads[payload_offsets[index] : payload_offsets[index + 1]]), type=int(types[index])
        )
        _decode_key(view, index, message)
        _decode_properties(view, index, message)
        _decode_event_time(view, index, message)
        yield message_pb2.Row(
            vchannel=vchannel, tick=tick, message_id=encode_message_id(tick), message=message, txn_id=txn_id_,
            broadcast_id=broadcast_id,
        )  # fmt: skip


def _encode_types(messages: Sequence[message_pb2.Message], columns: message_pb2.Columns) -> None:
    types = {message.type for message in messages}
    if len(types) == 1:
        columns.uniform_type = types.pop()
    else:
        columns.types = np.array([message.type for message in messages], "<u4").tobytes()


def _encode_properties(messages: Sequence[message_pb2.Message], columns: message_pb2.Columns) -> None:
    if not any(message.properties for message in messages):
        return
    # Sorted, so that equal messages have equal bytes.
    pairs = [sorted(message.properties.items()) for message in messages]
    keys = [key.encode() for properties in pairs for key, _ in properties]
    values = [value.encode() for properties in pairs for _, value in properties]
    columns.property_list_offsets = _offsets([len(properties) for properties in pairs])
    columns.property_key_offsets, columns.property_keys = _offsets(list(map(len, keys))), b"".join(keys)
    columns.property_value_offsets, columns.property_values = _offsets(list(map(len, values))), b"".join(values)


def _decode_key(view: ColumnsView, index: int, message: message_pb2.Message) -> None:
    if view.column("key_offsets") and _is_set(view.column("key_validity"), index):
        begin, end = view.offsets("key_offsets")[index : index + 2]
        message.key = bytes(view.column("keys")[begin:end])


def _decode_properties(view: ColumnsView, index: int, message: message_pb2.Message) -> None:
    if not view.column("property_list_offsets"):
        return
    begin, end = view.offsets("property_list_offsets")[index : index + 2]
    for number in range(int(begin), int(end)):
        key = _text(view, "property_key_offsets", "property_keys", number)
        message.properties[key] = _text(view, "property_value_offsets", "property_values", number)


def _decode_event_time(view: ColumnsView, index: int, message: message_pb2.Message) -> None:
    column = view.column("event_times_ms")
    if column and _is_set(view.column("event_time_validity"), index):
        message.event_time_ms = int(np.frombuffer(column, "<i8")[index])


def _text(view: ColumnsView, offsets_name: str, values_name: str, number: int) -> str:
    begin, end = view.offsets(offsets_name)[number : number + 2]
    return str(view.column(values_name)[begin:end], "utf-8")


def _is_set(bitmap: memoryview, index: int) -> bool:
    return not bitmap or bool(bitmap[index >> 3] >> (index & 7) & 1)


def _bitmap(flags: Sequence[bool]) -> bytes:
    return b"" if all(flags) else np.packbits(np.array(flags), bitorder="little").tobytes()


def _offsets(sizes: Sequence[int]) -> bytes:
    # Why not numpy: its overhead is larger than the work for a few messages.
    return struct.pack(f"<{len(sizes) + 1}i", *accumulate(sizes, initial=0))
