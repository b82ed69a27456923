"""Batches as Arrow record batches for Spark, with decoded payloads.

Several short batches are joined, because Spark's cost is per record batch, not per row.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog import Batch, arrow_from_batches
from tidelog.spark.read.payloads import Payloads
from tidelog.spark.ticks import LOGICAL_BITS

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_US_PER_MS: Final = 1_000


def to_record_batch(batches: Sequence[Batch], schema: pa.Schema, payloads: Payloads) -> pa.RecordBatch:
    """Return the rows of consecutive batches of one vchannel in tick order, with exactly the columns of ``schema``.

    Raises:
        CorruptPayloadError: A payload cannot be decoded, and ``mode`` is failfast.
    """
    names = dict.fromkeys([*(name for name in schema.names if name not in payloads.made), *payloads.needed])
    rows = arrow_from_batches(batches, list(names))
    made = payloads.decoded(
        lambda: rows.column("payload"),
        lambda row: (batches[0].vchannel, arrow_from_batches(batches, ["tick"]).column("tick")[row].as_py()),
    )
    columns = [made[name] if name in made else rows.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def timestamps(ticks: pa.Array) -> pa.Array:
    """Return the milliseconds of ticks, as Spark's microseconds in UTC."""
    return pc.multiply(pc.shift_right(ticks, LOGICAL_BITS), _US_PER_MS).view(_TIMESTAMP)
