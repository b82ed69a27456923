"""Messages of a journal as Arrow record batches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.gazette import NIL_UUID, get_clock, get_flags, uuid_text
from tidelog.spark.journals.frames import Frame
from tidelog.spark.read.arrow import timestamps
from tidelog.spark.read.payloads import Payloads

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
    made = payloads.decoded(lambda: _payload(rows), lambda row: (f"journal {rows.journal}", rows.begins[row]))
    columns = [made[name] if name in made else _COLUMNS[name](rows) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _begins(rows: Rows) -> pa.Array:
    return pa.array(rows.begins, pa.int64())


def _payload(rows: Rows) -> pa.Array:
    return pa.array([each.payload for each in rows.frames], pa.binary())


def _of_uuid(rows: Rows, read: Callable[[UUID], object], kind: pa.DataType) -> pa.Array:
    """Return what ``read`` returns for each UUID, NULL for a frame without one."""
    return pa.array([None if each.uuid == NIL_UUID else read(each.uuid) for each in rows.frames], kind)


_COLUMNS: Final[Mapping[str, Callable[[Rows], pa.Array]]] = {
    "journal": lambda rows: pa.repeat(pa.scalar(rows.journal, pa.string()), len(rows.frames)),
    "begin": _begins,
    "end": lambda rows: pc.add(_begins(rows), 1),
    "timestamp": lambda rows: timestamps(_begins(rows)),
    "uuid": lambda rows: _of_uuid(rows, uuid_text, pa.string()),
    "producer": lambda rows: _of_uuid(rows, lambda uuid: f"{uuid.int & _NODE_MASK:012x}", pa.string()),
    # As Spark's signed numbers: those of 2^63 and above, after the year 3409, are negative.
    "clock": lambda rows: _of_uuid(rows, get_clock, pa.uint64()).view(pa.int64()),
    "flags": lambda rows: pa.array([get_flags(each.uuid) for each in rows.frames], pa.int32()),
    "payload": _payload,
}
"""The function that builds each column."""
