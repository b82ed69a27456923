"""Batches as Arrow. The only module that needs pyarrow, imported when somebody asks for Arrow."""

from collections.abc import Sequence
from typing import Any, Final

from tidelog._columns import Buffer, Columns
from tidelog._tick import LOGICAL_BITS

try:
    import pyarrow as pa
    from pyarrow import compute
except ImportError as missing:
    raise ImportError("Batch.to_arrow needs pyarrow: pip install pyarrow, or tidelog[spark]") from missing

SCHEMA: Final = pa.schema(
    [
        pa.field("vchannel", pa.string(), nullable=False),
        pa.field("tick", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        # uint32 on the wire; Spark and Java have no unsigned integers.
        pa.field("type", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("properties", pa.map_(pa.string(), pa.string()), nullable=False),
    ]
)


def record_batch(vchannel: str, columns: Columns, ticks: Sequence[int]) -> pa.RecordBatch:
    """Return the messages as one record batch; buffers of ``columns`` are used as they are."""
    count = columns.count
    tick_column = pa.array(ticks, pa.int64())
    milliseconds = compute.shift_right(tick_column, LOGICAL_BITS)
    arrays = [
        pa.repeat(pa.scalar(vchannel), count),
        tick_column,
        milliseconds.view(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC")),
        _types(columns),
        _keys(columns),
        _binary(pa.binary(), count, columns.payload_offsets, columns.payloads),
        _properties(columns),
    ]
    return pa.record_batch(arrays, schema=SCHEMA)


def _binary(kind: Any, count: int, offsets: bytes, column: Buffer, validity: bytes = b"") -> Any:
    buffers = [pa.py_buffer(validity) if validity else None, pa.py_buffer(offsets), pa.py_buffer(column)]
    return pa.Array.from_buffers(kind, count, buffers)


def _types(columns: Columns) -> Any:
    if not columns.types:
        return pa.repeat(pa.scalar(columns.uniform_type, pa.int64()), columns.count)
    unsigned = pa.Array.from_buffers(pa.uint32(), columns.count, [None, pa.py_buffer(columns.types)])
    return unsigned.cast(pa.int64())


def _keys(columns: Columns) -> Any:
    if not columns.key_offsets:
        return pa.nulls(columns.count, pa.binary())
    return _binary(pa.binary(), columns.count, columns.key_offsets, columns.keys, columns.key_validity)


def _properties(columns: Columns) -> Any:
    count = columns.count
    if not columns.property_list_offsets:
        return pa.repeat(pa.scalar([], pa.map_(pa.string(), pa.string())), count)
    offsets = pa.Array.from_buffers(pa.int32(), count + 1, [None, pa.py_buffer(columns.property_list_offsets)])
    entries = len(columns.property_key_offsets) // 4 - 1
    keys = _binary(pa.string(), entries, columns.property_key_offsets, columns.property_keys)
    values = _binary(pa.string(), entries, columns.property_value_offsets, columns.property_values)
    return pa.MapArray.from_arrays(offsets, keys, values)
