"""Batches as Arrow record batches, which wrap the columns of the wire format.

Nothing here loops over messages. A batch's columns have Arrow's layout, so one batch becomes a record batch without a
copy. Several short ones are joined, because Spark's cost is per record batch, not per row.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog import Batch, Columns
from tidelog.spark.ticks import LOGICAL_BITS

_MAP: Final = pa.map_(pa.string(), pa.string())
_PAIR: Final = (pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string()))
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_US_PER_MS: Final = 1_000
_OFFSET_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class BatchRun:
    """One or more consecutive batches of the vchannel ``<channel>/<index>`` that become one record batch."""

    channel: str
    index: int
    batches: Sequence[Batch]

    @property
    def rows(self) -> int:
        """Number of messages in all batches."""
        return sum(map(len, self.batches))


def to_record_batch(run: BatchRun, schema: pa.Schema, made: Mapping[str, pa.Array] | None = None) -> pa.RecordBatch:
    """Return the rows of ``run`` in tick order, with exactly the columns of ``schema``.

    A column comes from ``made``, or else from COLUMNS. A run of one batch shares the buffers of the batch.
    """
    made = made or {}
    columns = [made[name] if name in made else COLUMNS[name](run) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _channel(run: BatchRun) -> pa.Array:
    return pa.repeat(pa.scalar(run.channel, pa.string()), run.rows)


def _vchannel(run: BatchRun) -> pa.Array:
    return pa.repeat(pa.scalar(run.index, pa.int32()), run.rows)


def _tick(run: BatchRun) -> pa.Array:
    return _joined([_ticks(batch) for batch in run.batches])


def _timestamp(run: BatchRun) -> pa.Array:
    """Return the milliseconds of the ticks, as Spark's microseconds in UTC."""
    microseconds = pc.multiply(pc.shift_right(_tick(run), LOGICAL_BITS), _US_PER_MS)
    return microseconds.view(_TIMESTAMP)


def _type(run: BatchRun) -> pa.Array:
    """Return the types as Spark's signed numbers: types of 2^31 and above are negative."""
    return _joined([_types(batch.columns) for batch in run.batches])


def _key(run: BatchRun) -> pa.Array:
    if not any(batch.columns.key_offsets for batch in run.batches):
        return pa.nulls(run.rows, pa.binary())
    return _joined([_keys(batch.columns) for batch in run.batches])


def _payload(run: BatchRun) -> pa.Array:
    return _joined([_payloads(batch.columns) for batch in run.batches])


def _properties(run: BatchRun) -> pa.Array:
    if not any(batch.columns.property_list_offsets for batch in run.batches):
        return _empty_maps(run.rows)
    return _joined([_property_maps(batch.columns) for batch in run.batches])


def _txn_id(run: BatchRun) -> pa.Array:
    return _joined([_repeated(batch.txn_id, len(batch)) for batch in run.batches])


def _event_time(run: BatchRun) -> pa.Array:
    return _joined([_event_times(batch.columns) for batch in run.batches])


def _broadcast_id(run: BatchRun) -> pa.Array:
    return _joined([_repeated(batch.broadcast_id, len(batch)) for batch in run.batches])


COLUMNS: Final[Mapping[str, Callable[[BatchRun], pa.Array]]] = {
    "channel": _channel,
    "vchannel": _vchannel,
    "tick": _tick,
    "timestamp": _timestamp,
    "type": _type,
    "key": _key,
    "payload": _payload,
    "properties": _properties,
    "txn_id": _txn_id,
    "broadcast_id": _broadcast_id,
    "event_time": _event_time,
}
"""The function that builds each column of the source."""


def _repeated(number: int | None, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(number, pa.int64()), count)


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _ticks(batch: Batch) -> pa.Array:
    ticks = batch.ticks
    return pa.arange(ticks.start, ticks.stop) if isinstance(ticks, range) else pa.array(ticks, pa.int64())


def _types(columns: Columns) -> pa.Array:
    if columns.types:
        return pa.Array.from_buffers(pa.int32(), columns.count, [None, pa.py_buffer(columns.types)])
    signed = columns.uniform_type - ((columns.uniform_type >> 31) << 32)
    return pa.repeat(pa.scalar(signed, pa.int32()), columns.count)


def _payloads(columns: Columns) -> pa.Array:
    buffers = [None, pa.py_buffer(columns.payload_offsets), pa.py_buffer(columns.payloads)]
    return pa.Array.from_buffers(pa.binary(), columns.count, buffers)


def _keys(columns: Columns) -> pa.Array:
    """Return the keys; NULL for a message without a key, which differs from an empty key."""
    if not columns.key_offsets:
        return pa.nulls(columns.count, pa.binary())
    validity = pa.py_buffer(columns.key_validity) if columns.key_validity else None
    buffers = [validity, pa.py_buffer(columns.key_offsets), pa.py_buffer(columns.keys)]
    return pa.Array.from_buffers(pa.binary(), columns.count, buffers)


def _event_times(columns: Columns) -> pa.Array:
    """Return the event times; NULL for a message without one."""
    if not columns.event_times_ms:
        return pa.nulls(columns.count, _TIMESTAMP)
    validity = pa.py_buffer(columns.event_time_validity) if columns.event_time_validity else None
    times = pa.Array.from_buffers(pa.int64(), columns.count, [validity, pa.py_buffer(columns.event_times_ms)])
    return pc.multiply(times, _US_PER_MS).view(_TIMESTAMP)


def _property_maps(columns: Columns) -> pa.Array:
    """Return the properties; an empty map, never NULL, for a message without properties."""
    if not columns.property_list_offsets:
        return _empty_maps(columns.count)
    total = len(columns.property_key_offsets) // _OFFSET_BYTES - 1
    names = _strings(total, columns.property_key_offsets, columns.property_keys)
    values = _strings(total, columns.property_value_offsets, columns.property_values)
    return _maps(columns.count, columns.property_list_offsets, names, values)


def _empty_maps(count: int) -> pa.Array:
    nothing = pa.array([], pa.string())
    return _maps(count, bytes(_OFFSET_BYTES * (count + 1)), nothing, nothing)


def _maps(count: int, offsets: bytes, names: pa.Array, values: pa.Array) -> pa.Array:
    pairs = pa.StructArray.from_arrays([names, values], fields=list(_PAIR))
    return pa.Array.from_buffers(_MAP, count, [None, pa.py_buffer(offsets)], children=[pairs])


def _strings(count: int, offsets: bytes, values: bytes | memoryview) -> pa.Array:
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(values)])
