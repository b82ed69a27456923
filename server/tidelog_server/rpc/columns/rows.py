"""Conversion of rows to columns and back, for clients without columns. Slow: for requests and responses only."""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

from tidelog.v1 import message_pb2
from tidelog.wire.column_message import columns_from_wire, columns_to_wire
from tidelog.wire.columns import (
    decode_event_times_ms,
    decode_keys,
    decode_payloads,
    decode_properties,
    decode_types,
    encode_messages,
)
from tidelog_server.core.ticks import encode_message_id
from tidelog_server.rpc.columns.view import ColumnsView, Indices, sealed, select


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
    """Yield the messages at ``indices``, in ascending order, as rows.

    ``txn_id`` is the id of the first transaction in ``view``, or 0; ``broadcast_id`` that of its broadcast, or 0.
    """
    if not len(indices):
        return
    columns = columns_from_wire(select(view, indices))
    messages = zip(
        decode_payloads(columns), decode_keys(columns), decode_types(columns), decode_properties(columns),
        decode_event_times_ms(columns), strict=True,
    )  # fmt: skip
    txn_ids = (txn_id + view.txn_offsets(indices)).tolist() if view.txn_ends else repeat(txn_id)
    for index, txn_id_, (payload, key, type_, properties, time_ms) in zip(
        indices.tolist(), txn_ids, messages, strict=False
    ):
        tick = base_tick + index
        message = message_pb2.Message(
            payload=payload, key=key, type=type_, properties=properties, event_time_ms=time_ms
        )
        yield message_pb2.Row(
            vchannel=vchannel, tick=tick, message_id=encode_message_id(tick), message=message, txn_id=txn_id_,
            broadcast_id=broadcast_id,
        )  # fmt: skip
