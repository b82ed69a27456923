"""Conversion of rows to columns and back, for clients without columns. Slow: for requests and responses only."""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np

from tidelog.v1 import message_pb2
from tidelog.wire.column_message import columns_to_wire
from tidelog.wire.columns import encode_messages
from tidelog_server.core.ticks import encode_message_id
from tidelog_server.log.batch import Batch
from tidelog_server.log.scan.scanner import Piece
from tidelog_server.rpc.columns.view import ColumnsView, Indices, sealed


class AuditLines:
    """Lines of the audit log as messages; see ``security.audit.LineCodec``."""

    def encode(self, lines: Sequence[bytes]) -> Batch:
        """Return a batch with one message per line."""
        columns = encode_rows([message_pb2.Message(payload=line) for line in lines])
        view = ColumnsView.parse(columns)
        return Batch(view.count, view.message_type, view.crc32c, columns)

    def last(self, piece: Piece) -> bytes:
        """Return the line of the last message."""
        view = ColumnsView.parse(piece.columns)
        offsets = view.offsets("payload_offsets")
        return bytes(view.column("payloads")[offsets[piece.end - 1] : offsets[piece.end]])


class _Row(NamedTuple):
    """A message as the codec reads it."""

    payload: bytes
    key: bytes | None
    type: int
    properties: dict[str, str]
    event_time_ms: int | None


def encode_rows(messages: Sequence[message_pb2.Message]) -> bytes:
    """Return serialised Columns with the messages and a CRC, without validation."""
    if not messages:
        return sealed(message_pb2.Columns(payload_offsets=bytes(4)))
    return columns_to_wire(encode_messages(list(map(_row_of, messages)))).SerializeToString()


def _row_of(message: message_pb2.Message) -> _Row:
    return _Row(
        message.payload,
        message.key if message.HasField("key") else None,
        message.type,
        # Sorted, so that equal messages have equal bytes.
        dict(sorted(message.properties.items())),
        message.event_time_ms if message.HasField("event_time_ms") else None,
    )


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
