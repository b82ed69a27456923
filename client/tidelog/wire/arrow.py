"""Converts batches to and from Arrow. The only module that needs pyarrow; imported on the first use of Arrow."""

from collections.abc import Sequence
from typing import Any, Final

from tidelog.tick import LOGICAL_BITS
from tidelog.wire.columns import Buffer, Columns, with_crc

try:
    import pyarrow as pa
    from pyarrow import compute
except ImportError as missing:
    raise ImportError("Arrow batches need pyarrow: run `pip install pyarrow`") from missing

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_US_PER_MS: Final = 1_000
_MIN_TYPE: Final = -(1 << 31)
_MAX_TYPE: Final = (1 << 32) - 1
SCHEMA: Final = pa.schema(
    [
        pa.field("vchannel", pa.string(), nullable=False),
        pa.field("tick", pa.int64(), nullable=False),
        pa.field("timestamp", _TIMESTAMP, nullable=False),
        # uint32 on the wire; Spark and Java have no unsigned integers.
        pa.field("type", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("properties", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("event_time", _TIMESTAMP),
    ]
)


def record_batch(vchannel: str, columns: Columns, ticks: Sequence[int]) -> pa.RecordBatch:
    """Return the messages as one record batch, which shares the buffers of ``columns``."""
    count = columns.count
    tick_column = pa.array(ticks, pa.int64())
    milliseconds = compute.shift_right(tick_column, LOGICAL_BITS)
    arrays = [
        pa.repeat(pa.scalar(vchannel), count),
        tick_column,
        milliseconds.view(pa.timestamp("ms", tz="UTC")).cast(_TIMESTAMP),
        _types(columns),
        _keys(columns),
        _binary(pa.binary(), count, columns.payload_offsets, columns.payloads),
        _properties(columns),
        _event_times(columns),
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


def _event_times(columns: Columns) -> Any:
    """Return the event times as timestamps in microseconds; NULL for a message without event time."""
    if not columns.event_times_ms:
        return pa.nulls(columns.count, _TIMESTAMP)
    validity = pa.py_buffer(columns.event_time_validity) if columns.event_time_validity else None
    times = pa.Array.from_buffers(pa.int64(), columns.count, [validity, pa.py_buffer(columns.event_times_ms)])
    return compute.multiply(times, _US_PER_MS).view(_TIMESTAMP)


def columns_of(batch: pa.RecordBatch, first_row: int = 0) -> Columns:
    """See ``columns_from_arrow``."""
    if not batch.num_rows:
        raise ValueError("the batch has no rows, expected at least one")
    names = batch.schema.names
    if "payload" not in names:
        raise ValueError(f"the batch has no column 'payload', only {', '.join(names) or 'none'}")
    payload_offsets, payloads = _split(_bytes_of(batch, "payload"))
    key_offsets, keys, key_validity = _encoded_keys(batch) if "key" in names else (b"", b"", b"")
    uniform_type, types = _encoded_types(batch, first_row) if "type" in names else (0, b"")
    properties = _encoded_properties(batch) if "properties" in names else (b"",) * 5
    times, time_validity = _encoded_event_times(batch) if "event_time" in names else (b"", b"")
    return with_crc(
        Columns(
            batch.num_rows, payload_offsets, payloads, key_offsets, keys, key_validity, uniform_type, types,
            *properties, times, time_validity,
        )
    )  # fmt: skip


def _bytes_of(batch: pa.RecordBatch, name: str, *, nulls_are_fine: bool = False) -> pa.Array:
    """Return a column as binary."""
    column = batch.column(name)
    kind = column.type
    if pa.types.is_null(kind):
        column = column.cast(pa.binary())
    elif pa.types.is_string(kind):
        column = column.view(pa.binary())
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        column = column.cast(pa.binary())
    elif not pa.types.is_binary(kind):
        raise ValueError(f"the column '{name}' is {kind}, expected binary or string")
    if column.null_count and not nulls_are_fine:
        raise ValueError(f"the column '{name}' has {column.null_count} NULLs in {len(column)} rows: replace them")
    return column


def _split(column: pa.Array) -> tuple[bytes, memoryview | bytes]:
    """Return the offsets, rebased to 0, and the bytes of a binary array without NULLs."""
    _, offsets, values = column.buffers()
    return _from_zero(
        pa.Array.from_buffers(pa.int32(), len(column) + 1, [None, offsets], offset=column.offset),
        memoryview(values) if values is not None else b"",
    )


def _from_zero(offsets: pa.Array, values: memoryview | bytes) -> tuple[bytes, memoryview | bytes]:
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return _numbers(compute.subtract(offsets, pa.scalar(first, pa.int32())) if first else offsets), values[first:last]


def _numbers(array: pa.Array) -> bytes:
    """Return the little-endian bytes of an array of numbers without NULLs."""
    width = array.type.bit_width // 8
    return memoryview(array.buffers()[1])[width * array.offset : width * (array.offset + len(array))].tobytes()


def _encoded_keys(batch: pa.RecordBatch) -> tuple[bytes, memoryview | bytes, bytes]:
    column = _bytes_of(batch, "key", nulls_are_fine=True)
    if column.null_count == len(column):
        return b"", b"", b""
    if not column.null_count:
        return *_split(column), b""
    return *_split(compute.fill_null(column, b"")), _validity(column)


def _validity(column: pa.Array) -> bytes:
    """Return the validity bitmap of an array, starting at its first item."""
    bitmap = compute.is_valid(column).buffers()[1]
    return memoryview(bitmap)[: (len(column) + 7) // 8].tobytes()


def _check_types(column: pa.Array, first_row: int) -> None:
    """Check that a column has types of messages.

    Raises:
        ValueError: It has no integers, or one that does not fit into 32 bits. The error names its row.
    """
    if not pa.types.is_integer(column.type):
        raise ValueError(f"the column 'type' is {column.type}, expected an integer")
    lowest, highest = compute.min_max(column).as_py().values()
    if lowest is None or (lowest >= _MIN_TYPE and highest <= _MAX_TYPE):
        return
    wrong = lowest if lowest < _MIN_TYPE else highest
    row = first_row + compute.index(column, pa.scalar(wrong, column.type)).as_py()
    raise ValueError(
        f"the type of row {row} is {wrong}, expected 0 to {_MAX_TYPE}, or the same as a signed number from {_MIN_TYPE}"
    )


def _encoded_types(batch: pa.RecordBatch, first_row: int) -> tuple[int, bytes]:
    column = batch.column("type")
    _check_types(column, first_row)
    # Negative ones stand for 2^31 and above, because Spark has no unsigned integers.
    wide = compute.fill_null(column, 0).cast(pa.int64())
    types = compute.bit_wise_and(wide, _MAX_TYPE).cast(pa.uint32())
    lowest, highest = compute.min_max(types).as_py().values()
    return (lowest, b"") if lowest == highest else (0, _numbers(types))


def _encoded_properties(batch: pa.RecordBatch) -> tuple[bytes, bytes, memoryview | bytes, bytes, memoryview | bytes]:
    column = batch.column("properties")
    kind = column.type
    if not (pa.types.is_map(kind) and _is_text(kind.key_type) and _is_text(kind.item_type)):
        raise ValueError(f"the column 'properties' is {kind}, expected map<string, string>")
    # Spark creates maps of large strings if spark.sql.execution.arrow.useLargeVarTypes is true.
    if pa.types.is_large_string(kind.key_type) or pa.types.is_large_string(kind.item_type):
        kind = pa.map_(pa.string(), pa.string())
        column = column.cast(kind)
    if column.null_count:
        column = compute.fill_null(column, pa.scalar([], kind))
    offsets = column.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if first == last:
        return b"", b"", b"", b"", b""
    keys, values = column.keys.slice(first, last - first), column.items.slice(first, last - first)
    if values.null_count:
        raise ValueError("the column 'properties' has a NULL value: leave out the property")
    list_offsets = _numbers(compute.subtract(offsets, pa.scalar(first, pa.int32())) if first else offsets)
    return (list_offsets, *_split(keys.view(pa.binary())), *_split(values.view(pa.binary())))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _encoded_event_times(batch: pa.RecordBatch) -> tuple[bytes, bytes]:
    """Return event times in milliseconds, rounded down as in Message, and their validity bitmap."""
    column = batch.column("event_time")
    if not pa.types.is_null(column.type) and not (pa.types.is_timestamp(column.type) and column.type.tz is not None):
        raise ValueError(f"the column 'event_time' is {column.type}, expected a timestamp with a time zone")
    if column.null_count == len(column):
        return b"", b""
    try:
        # Rounds down, as Message does. Why not a cast: it rounds towards zero, or fails.
        floored = compute.floor_temporal(column.cast(pa.timestamp(column.type.unit, tz="UTC")), unit="millisecond")
        times = floored.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise ValueError("the column 'event_time' has a time outside the years 1 to 9999") from error
    return _numbers(compute.fill_null(times, 0)), _validity(column) if column.null_count else b""
