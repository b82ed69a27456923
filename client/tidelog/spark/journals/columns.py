"""Messages of a journal as Arrow record batches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.gazette import NIL_UUID, get_clock, get_flags, uuid_text
from tidelog.spark.journals.frames import Frame
from tidelog.spark.read.payloads import Payloads
from tidelog.spark.ticks import LOGICAL_BITS

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_US_PER_MS: Final = 1_000
_NODE_MASK: Final = (1 << 48) - 1


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive delivered messages of one journal.

    Attributes:
        journal: Name of the journal.
        begins: Position of each frame.
        frames: The frames.
    """

    journal: str
    begins: Sequence[int]
    frames: Sequence[Frame]


def to_record_batch(rows: Rows, schema: pa.Schema, payloads: Payloads) -> pa.RecordBatch:
    """Return rows with exactly the columns of ``schema``.

    Raises:
        CorruptPayloadError: A payload cannot be decoded, and ``mode`` is failfast.
    """
    made: Mapping[str, pa.Array] = {}
    if payloads.needed:
        made = payloads.decoded(_payload(rows), lambda row: (f"journal {rows.journal}", rows.begins[row]))
    columns = [made[name] if name in made else _COLUMNS[name](rows) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _journal(rows: Rows) -> pa.Array:
    return pa.repeat(pa.scalar(rows.journal, pa.string()), len(rows.frames))


def _begin(rows: Rows) -> pa.Array:
    return pa.array(rows.begins, pa.int64())


def _end(rows: Rows) -> pa.Array:
    return pc.add(_begin(rows), 1)


def _timestamp(rows: Rows) -> pa.Array:
    return pc.multiply(pc.shift_right(_begin(rows), LOGICAL_BITS), _US_PER_MS).view(_TIMESTAMP)


def _uuid(rows: Rows) -> pa.Array:
    texts = [None if each.uuid == NIL_UUID else uuid_text(each.uuid) for each in rows.frames]
    return pa.array(texts, pa.string())


def _producer(rows: Rows) -> pa.Array:
    texts = [None if each.uuid == NIL_UUID else f"{each.uuid.int & _NODE_MASK:012x}" for each in rows.frames]
    return pa.array(texts, pa.string())


def _clock(rows: Rows) -> pa.Array:
    """Return the clocks as Spark's signed numbers: those of 2^63 and above, after the year 3409, are negative."""
    clocks = [None if each.uuid == NIL_UUID else get_clock(each.uuid) for each in rows.frames]
    return pa.array(clocks, pa.uint64()).view(pa.int64())


def _flags(rows: Rows) -> pa.Array:
    return pa.array([get_flags(each.uuid) for each in rows.frames], pa.int32())


def _payload(rows: Rows) -> pa.Array:
    return pa.array([each.payload for each in rows.frames], pa.binary())


_COLUMNS: Final[Mapping[str, Callable[[Rows], pa.Array]]] = {
    "journal": _journal,
    "begin": _begin,
    "end": _end,
    "timestamp": _timestamp,
    "uuid": _uuid,
    "producer": _producer,
    "clock": _clock,
    "flags": _flags,
    "payload": _payload,
}
"""The function that builds each column."""
