"""Batches as Arrow record batches. Nothing here loops over messages. Imported on the first use of Arrow."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.tick import LOGICAL_BITS
from tidelog.wire.columns import MAX_MESSAGES_PER_BATCH, Buffer, Columns

_MAP: Final = pa.map_(pa.string(), pa.string())
_PAIR: Final = (pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string()))
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_US_PER_MS: Final = 1_000
_OFFSET_BYTES: Final = 4
SCHEMA: Final = pa.schema(
    [
        pa.field("channel", pa.string(), nullable=False),
        pa.field("vchannel", pa.int32(), nullable=False),
        pa.field("tick", pa.int64(), nullable=False),
        pa.field("timestamp", _TIMESTAMP, nullable=False),
        # uint32 on the wire; Spark and Java have no unsigned integers.
        pa.field("type", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("properties", _MAP, nullable=False),
        pa.field("txn_id", pa.int64()),
        pa.field("broadcast_id", pa.int64()),
        pa.field("event_time", _TIMESTAMP),
    ]
)
"""The columns, in this order: those of the Spark source, with the optional ones."""


class Rows(Protocol):
    """Messages of one vchannel; ``tidelog.Batch`` is one."""

    vchannel: str
    columns: Columns
    ticks: Sequence[int]
    txn_id: int | None
    broadcast_id: int | None

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class _Run:
    """Batches that become one record batch.

    Attributes:
        rows: Number of messages in all batches.
        is_shared: Whether arrays may reference the responses that contain the batches.
    """

    batches: Sequence[Rows]
    rows: int
    is_shared: bool

    def has(self, column: str) -> bool:
        """Return whether any batch has a column."""
        return any(getattr(batch.columns, column) for batch in self.batches)

    def buffer(self, column: Buffer) -> pa.Buffer:
        """Return bytes as a buffer."""
        return pa.py_buffer(column if self.is_shared else bytes(column))


def schema_of(names: Sequence[str] | None) -> pa.Schema:
    """Return the schema with these columns, in this order; with all of them for None.

    Raises:
        ValueError: There is no such column, or none is named, or one twice.
    """
    if names is None:
        return SCHEMA
    unknown = [name for name in names if name not in SCHEMA.names]
    if unknown or not names or len(set(names)) < len(names):
        wrong = f"has no column {unknown[0]!r}" if unknown else "needs at least one column, and each once"
        raise ValueError(f"a table of messages {wrong}: choose from {', '.join(SCHEMA.names)}")
    return pa.schema([SCHEMA.field(name) for name in names])


def requested(capsule: object | None) -> tuple[list[str] | None, pa.Schema | None]:
    """Return the names of the columns that a consumer has requested with the PyCapsule interface, and their schema."""
    if capsule is None:
        return None, None
    schema = pa.schema(_Requested(capsule))
    return schema.names, schema


@dataclass(frozen=True, slots=True)
class _Requested:
    """What pyarrow reads a schema from."""

    capsule: object

    def __arrow_c_schema__(self) -> object:
        return self.capsule


def record_batch(batches: Sequence[Rows], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """Return the messages of ``batches``, at least one, with the columns of ``schema``.

    One batch shares its buffers; several are joined, which copies. Without the payloads all is copied: the other
    columns would keep the response in memory.
    """
    run = _Run(batches, sum(map(len, batches)), is_shared="payload" in schema.names)
    return pa.RecordBatch.from_arrays([_COLUMNS[name](run) for name in schema.names], schema=schema)


def with_shared_views(table: pa.Table) -> pa.Table:
    """Return the table with views in its columns of texts and keys, as Polars stores them.

    Chunks that share their memory, because all their messages have the same value, share their views too; Polars would
    make views of 16 bytes for each row.
    """
    for name, kind in (("channel", pa.string_view()), ("key", pa.binary_view())):
        if (place := table.schema.get_field_index(name)) >= 0:
            table = table.set_column(place, name, _views(table.column(place), kind))
    return table


def _views(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    distinct = {_memory(chunk): chunk for chunk in column.chunks}
    views = {memory: chunk.cast(kind) for memory, chunk in distinct.items()}
    return pa.chunked_array([views[_memory(chunk)] for chunk in column.chunks], kind)


def _memory(chunk: pa.Array) -> object:
    """Return what equals that of another chunk only if both reference the same memory."""
    return len(chunk), chunk.offset, *(buffer and buffer.address for buffer in chunk.buffers())


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


@lru_cache(maxsize=16)
def _constants(value: object, kind: pa.DataType) -> pa.Array:
    if kind == _MAP:
        # Not pa.array, which imports pandas.
        nothing = pa.nulls(0, pa.string())
        return _maps(MAX_MESSAGES_PER_BATCH, bytes(_OFFSET_BYTES * (MAX_MESSAGES_PER_BATCH + 1)), nothing, nothing)
    return pa.repeat(pa.scalar(value, kind), MAX_MESSAGES_PER_BATCH)


def _repeated(value: object, kind: pa.DataType, rows: int) -> pa.Array:
    """Return ``rows`` times the same; an empty map for the type of maps. Arrays share the memory of equal ones."""
    whole, rest = divmod(rows, MAX_MESSAGES_PER_BATCH)
    constants = _constants(value, kind)
    return _joined([constants] * whole + ([constants.slice(0, rest)] if rest else []))


def _by_vchannel(kind: pa.DataType, value: Callable[[str], object]) -> Callable[[_Run], pa.Array]:
    """Return the function that repeats a value of each name of a vchannel."""

    def column(run: _Run) -> pa.Array:
        groups = [
            (value(name), sum(map(len, batches)))
            for name, batches in groupby(run.batches, lambda batch: batch.vchannel)
        ]
        return _joined([_repeated(each, kind, rows) for each, rows in groups])

    return column


def _ticks(run: _Run) -> pa.Array:
    return _joined([_ticks_of(batch.ticks) for batch in run.batches])


def _ticks_of(ticks: Sequence[int]) -> pa.Array:
    if isinstance(ticks, range):
        return pa.arange(ticks.start, ticks.stop)
    return pa.Array.from_buffers(pa.int64(), len(ticks), [None, pa.py_buffer(array("q", ticks))])


def _timestamps(run: _Run) -> pa.Array:
    return _joined([_timestamps_of(batch.ticks) for batch in run.batches])


def _timestamps_of(ticks: Sequence[int]) -> pa.Array:
    """Return the times of ascending ticks; those of one append are nearly always of one millisecond."""
    if ticks and (ms := ticks[0] >> LOGICAL_BITS) == ticks[-1] >> LOGICAL_BITS:
        return pa.repeat(pa.scalar(ms * _US_PER_MS, _TIMESTAMP), len(ticks))
    return pc.multiply(pc.shift_right(_ticks_of(ticks), LOGICAL_BITS), _US_PER_MS).view(_TIMESTAMP)


def _ids(run: _Run, ids: Sequence[int | None]) -> pa.Array:
    """Return the id of each batch, repeated for its messages."""
    if not any(each is not None for each in ids):
        return _repeated(None, pa.int64(), run.rows)
    return _joined(
        [pa.repeat(pa.scalar(each, pa.int64()), len(batch)) for each, batch in zip(ids, run.batches, strict=True)]
    )


def _types(run: _Run) -> pa.Array:
    """Return the types as signed numbers: those of 2^31 and above are negative."""
    uniform = {batch.columns.uniform_type for batch in run.batches}
    if len(uniform) == 1 and not run.has("types"):
        return _repeated(_signed(uniform.pop()), pa.int32(), run.rows)
    return _joined([_types_of(batch.columns) for batch in run.batches])


def _types_of(columns: Columns) -> pa.Array:
    if columns.types:
        return pa.Array.from_buffers(pa.int32(), columns.count, [None, pa.py_buffer(columns.types)])
    return _repeated(_signed(columns.uniform_type), pa.int32(), columns.count)


def _signed(message_type: int) -> int:
    return message_type - ((message_type >> 31) << 32)


def _optional(
    column: str, kind: pa.DataType, array_of: Callable[[_Run, Columns], pa.Array]
) -> Callable[[_Run], pa.Array]:
    """Return the function of what batches may lack: it is NULL there, or an empty map for the type of maps."""

    def made(run: _Run) -> pa.Array:
        if not run.has(column):
            return _repeated(None, kind, run.rows)
        several = [batch.columns for batch in run.batches]
        return _joined(
            [array_of(run, each) if getattr(each, column) else _repeated(None, kind, each.count) for each in several]
        )

    return made


def _keys_of(run: _Run, columns: Columns) -> pa.Array:
    """Return the keys; NULL for a message without a key, which differs from an empty key."""
    validity = pa.py_buffer(columns.key_validity) if columns.key_validity else None
    buffers = [validity, pa.py_buffer(columns.key_offsets), run.buffer(columns.keys)]
    return pa.Array.from_buffers(pa.binary(), columns.count, buffers)


def _payloads_of(columns: Columns) -> pa.Array:
    buffers = [None, pa.py_buffer(columns.payload_offsets), pa.py_buffer(columns.payloads)]
    return pa.Array.from_buffers(pa.binary(), columns.count, buffers)


def _event_times_of(_run: _Run, columns: Columns) -> pa.Array:
    """Return the event times; NULL for a message without one."""
    validity = pa.py_buffer(columns.event_time_validity) if columns.event_time_validity else None
    times = pa.Array.from_buffers(pa.int64(), columns.count, [validity, pa.py_buffer(columns.event_times_ms)])
    return pc.multiply(times, _US_PER_MS).view(_TIMESTAMP)


def _properties_of(run: _Run, columns: Columns) -> pa.Array:
    """Return the properties; an empty map, never NULL, for a message without properties."""
    total = len(columns.property_key_offsets) // _OFFSET_BYTES - 1
    names, values = (
        pa.Array.from_buffers(pa.string(), total, [None, pa.py_buffer(offsets), run.buffer(texts)])
        for offsets, texts in (
            (columns.property_key_offsets, columns.property_keys),
            (columns.property_value_offsets, columns.property_values),
        )
    )
    return _maps(columns.count, columns.property_list_offsets, names, values)


def _maps(count: int, offsets: bytes, names: pa.Array, values: pa.Array) -> pa.Array:
    pairs = pa.StructArray.from_arrays([names, values], fields=list(_PAIR))
    return pa.Array.from_buffers(_MAP, count, [None, pa.py_buffer(offsets)], children=[pairs])


_COLUMNS: Final[Mapping[str, Callable[[_Run], Any]]] = {
    "channel": _by_vchannel(pa.string(), lambda name: name.partition("/")[0]),
    "vchannel": _by_vchannel(pa.int32(), lambda name: int(name.partition("/")[2])),
    "tick": _ticks,
    "timestamp": _timestamps,
    "type": _types,
    "key": _optional("key_offsets", pa.binary(), _keys_of),
    "payload": lambda run: _joined([_payloads_of(batch.columns) for batch in run.batches]),
    "properties": _optional("property_list_offsets", _MAP, _properties_of),
    "txn_id": lambda run: _ids(run, [batch.txn_id for batch in run.batches]),
    "broadcast_id": lambda run: _ids(run, [batch.broadcast_id for batch in run.batches]),
    "event_time": _optional("event_times_ms", _TIMESTAMP, _event_times_of),
}
