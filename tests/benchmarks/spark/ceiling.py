"""The maximum rate of a Spark source in Python: it creates a batch once and returns it repeatedly.

It has the columns of Tidelog's source and reads nothing, so it measures Spark's own path from Arrow to rows.
"""

import os
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidelog import Batch, Columns
from tidelog.spark.payload_options import PayloadFormat
from tidelog.spark.read.arrow import to_record_batch
from tidelog.spark.read.payloads import Payloads
from tidelog.spark.source import SCHEMA

FORMAT: Final = "tidelog-bench-ceiling"
# The same as in Tidelog's source.
_ROWS_PER_BATCH: Final = 32_768
_BYTES_PER_BATCH: Final = 4 << 20


class CeilingDataSource(DataSource):
    """``rows`` rows with payloads of ``size`` bytes in ``partitions`` equal partitions."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of Tidelog's source."""
        return SCHEMA

    def reader(self, schema: StructType) -> "_Reader":
        """Return a reader of all columns."""
        number = {name: int(self.options[name]) for name in ("rows", "size", "partitions")}
        return _Reader(number["rows"], number["size"], number["partitions"], schema)


class _Reader(DataSourceReader):
    def __init__(self, rows: int, size_bytes: int, partitions: int, schema: StructType) -> None:
        self._rows = rows
        self._size_bytes = size_bytes
        self._partitions = partitions
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        bounds = [self._rows * index // self._partitions for index in range(self._partitions + 1)]
        return [InputPartition(end - begin) for begin, end in pairwise(bounds)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = int(partition.value)
        count = max(1, min(rows, _ROWS_PER_BATCH, _BYTES_PER_BATCH // self._size_bytes))
        batch = _record_batch(count, self._size_bytes, to_arrow_schema(self._schema, timezone="UTC"))
        for begin in range(0, rows, count):
            yield batch.slice(0, min(count, rows - begin))


def _record_batch(count: int, size_bytes: int, schema: pa.Schema) -> pa.RecordBatch:
    offsets = array("i", range(0, size_bytes * (count + 1), size_bytes)).tobytes()
    columns = Columns(count, offsets, os.urandom(size_bytes * count))
    batch = Batch("bench/0", columns, range(1 << 60, (1 << 60) + count))
    return to_record_batch([batch], schema, Payloads(PayloadFormat(), schema))
