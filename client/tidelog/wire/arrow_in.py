"""Arrow data as columns, without an object per message. Imported on the first use of Arrow."""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.wire.columns import MAX_MESSAGES_PER_BATCH, Columns, with_crc

_MIN_TYPE: Final = -(1 << 31)
_MAX_TYPE: Final = (1 << 32) - 1
_MAP: Final = pa.map_(pa.string(), pa.string())
_PAIR: Final = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())])
_CAST_TO_BINARY: Final = (
    pa.types.is_null, pa.types.is_large_string, pa.types.is_large_binary, pa.types.is_fixed_size_binary,
    pa.types.is_string_view, pa.types.is_binary_view,
)  # fmt: skip
_COLUMNS: Final = ("payload", "key", "type", "properties", "event_time")


def columns_of(batch: pa.RecordBatch, first_row: int = 0) -> Columns:
    """See ``columns_from_arrow``."""
    if not batch.num_rows:
        raise ValueError("the batch has no rows, expected at least one")
    names = _names_of(batch)
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


def _names_of(batch: pa.RecordBatch) -> list[str]:
    """Return the names of the columns that are read."""
    names = batch.schema.names
    if "payload" not in names:
        raise ValueError(f"the batch has no column 'payload', only {', '.join(names) or 'none'}")
    return [name for name in _COLUMNS if name in names]


def record_batches(data: Any) -> Iterator[pa.RecordBatch]:
    """Yield what ``data`` has, an object with an Arrow C interface: the columns of messages, and no empty batch.

    Raises:
        ValueError: It has no columns, as an array, or no column ``payload``.
    """
    is_stream = hasattr(data, "__arrow_c_stream__")
    for batch in pa.RecordBatchReader.from_stream(data) if is_stream else [pa.record_batch(data)]:
        if batch.num_rows:
            yield batch.select(_names_of(batch))


def pieces(data: Any, *, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield ``data`` as record batches that a batch of the log can hold, of at most ``max_bytes`` unless of one row.

    Short ones are joined. Raises as ``record_batches``.
    """
    run: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in record_batches(data):
        if run and (rows + batch.num_rows > MAX_MESSAGES_PER_BATCH or size_bytes + batch.nbytes > max_bytes):
            yield from cut(pa.concat_batches(run), max_bytes=max_bytes)
            run, rows, size_bytes = [], 0, 0
        run.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
    if run:
        yield from cut(pa.concat_batches(run), max_bytes=max_bytes)


def cut(batch: pa.RecordBatch, *, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield slices with at most as many rows as a batch of the log, and ``max_bytes``; a larger row is one alone."""
    rows = batch.num_rows
    if rows == 1 or (rows <= MAX_MESSAGES_PER_BATCH and batch.nbytes <= max_bytes):
        yield batch
        return
    # Halved by rows, not cut at a fixed number: large messages may be adjacent.
    yield from cut(batch.slice(0, rows // 2), max_bytes=max_bytes)
    yield from cut(batch.slice(rows // 2), max_bytes=max_bytes)


def _bytes_of(batch: pa.RecordBatch, name: str, *, nulls_are_fine: bool = False) -> pa.Array:
    """Return a column as binary."""
    column = batch.column(name)
    if pa.types.is_dictionary(column.type):
        # Not the other way round: no kernel takes from views.
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(pa.binary())).dictionary_decode()
    kind = column.type
    if pa.types.is_string(kind):
        column = column.view(pa.binary())
    elif any(is_kind(kind) for is_kind in _CAST_TO_BINARY):
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
    return _numbers(pc.subtract(offsets, pa.scalar(first, pa.int32())) if first else offsets), values[first:last]


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
    return *_split(pc.fill_null(column, b"")), _validity(column)


def _validity(column: pa.Array) -> bytes:
    """Return the validity bitmap of an array, starting at its first item."""
    bitmap = pc.is_valid(column).buffers()[1]
    return memoryview(bitmap)[: (len(column) + 7) // 8].tobytes()


def _check_types(column: pa.Array, first_row: int) -> None:
    """Check that a column has types of messages.

    Raises:
        ValueError: It has no integers, or one that does not fit into 32 bits. The error names its row.
    """
    if not pa.types.is_integer(column.type):
        raise ValueError(f"the column 'type' is {column.type}, expected an integer")
    lowest, highest = pc.min_max(column).as_py().values()
    if lowest is None or (lowest >= _MIN_TYPE and highest <= _MAX_TYPE):
        return
    wrong = lowest if lowest < _MIN_TYPE else highest
    row = first_row + pc.index(column, pa.scalar(wrong, column.type)).as_py()
    raise ValueError(
        f"the type of row {row} is {wrong}, expected 0 to {_MAX_TYPE}, or the same as a signed number from {_MIN_TYPE}"
    )


def _encoded_types(batch: pa.RecordBatch, first_row: int) -> tuple[int, bytes]:
    column = batch.column("type")
    _check_types(column, first_row)
    # Negative ones stand for 2^31 and above, because Spark has no unsigned integers.
    wide = pc.fill_null(column, 0).cast(pa.int64())
    types = pc.bit_wise_and(wide, _MAX_TYPE).cast(pa.uint32())
    lowest, highest = pc.min_max(types).as_py().values()
    return (lowest, b"") if lowest == highest else (0, _numbers(types))


def _encoded_properties(batch: pa.RecordBatch) -> tuple[bytes, bytes, memoryview | bytes, bytes, memoryview | bytes]:
    column = _maps_of(batch.column("properties"))
    if column.null_count:
        column = pc.fill_null(column, pa.scalar([], column.type))
    offsets = column.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if first == last:
        return b"", b"", b"", b"", b""
    keys, values = column.keys.slice(first, last - first), column.items.slice(first, last - first)
    if values.null_count:
        raise ValueError("the column 'properties' has a NULL value: leave out the property")
    list_offsets = _numbers(pc.subtract(offsets, pa.scalar(first, pa.int32())) if first else offsets)
    return (list_offsets, *_split(keys.view(pa.binary())), *_split(values.view(pa.binary())))


def _maps_of(column: pa.Array) -> pa.Array:
    """Return a column of properties as maps of strings.

    Spark makes maps of large strings with spark.sql.execution.arrow.useLargeVarTypes; Polars makes lists of structs.
    """
    kind = column.type
    if pa.types.is_null(kind):
        return column.cast(_MAP)
    texts: list[pa.DataType] = []
    if pa.types.is_map(kind):
        texts = [kind.key_type, kind.item_type]
    elif (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_struct(kind.value_type):
        texts = [field.type for field in kind.value_type if field.name in ("key", "value")]
    if len(texts) != 2 or not all(map(_is_text, texts)):
        raise ValueError(f"the column 'properties' is {kind}, expected map<string, string>")
    if pa.types.is_map(kind):
        return column if all(map(pa.types.is_string, texts)) else column.cast(_MAP)
    lists = column.cast(pa.list_(_PAIR))
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(lists), 0))
    pairs = lists.flatten()
    return pa.MapArray.from_arrays(
        pa.concat_arrays([pa.array([0], pa.int32()), ends]),
        pc.struct_field(pairs, "key"),
        pc.struct_field(pairs, "value"),
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _encoded_event_times(batch: pa.RecordBatch) -> tuple[bytes, bytes]:
    """Return event times in milliseconds, rounded down as in Message, and their validity bitmap."""
    column = batch.column("event_time")
    if not pa.types.is_null(column.type) and not (pa.types.is_timestamp(column.type) and column.type.tz is not None):
        raise ValueError(f"the column 'event_time' is {column.type}, expected a timestamp with a time zone")
    if column.null_count == len(column):
        return b"", b""
    try:
        # Rounds down, as Message does. Why not a cast: it rounds towards zero, or fails.
        floored = pc.floor_temporal(column.cast(pa.timestamp(column.type.unit, tz="UTC")), unit="millisecond")
        times = floored.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise ValueError("the column 'event_time' has a time outside the years 1 to 9999") from error
    return _numbers(pc.fill_null(times, 0)), _validity(column) if column.null_count else b""
