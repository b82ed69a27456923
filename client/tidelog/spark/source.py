"""The data source that Spark loads: options in, schema and reader out."""

import warnings
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from tidelog.spark.options import OptionError, ReadOptions, parse_options
from tidelog.spark.plan import ReadPartition, plan
from tidelog.spark.pushdown import Pushdown, push
from tidelog.spark.sink import TidelogStreamWriter, TidelogWriter, check_write
from tidelog.spark.write_options import parse_write_options

if TYPE_CHECKING:
    from pyarrow import RecordBatch

PUSHDOWN_SETTING: Final = "spark.sql.python.filterPushdown.enabled"

SCHEMA: Final = (
    StructType()
    .add("channel", StringType(), nullable=False)
    .add("vchannel", IntegerType(), nullable=False)
    .add("tick", LongType(), nullable=False)
    .add("timestamp", TimestampType(), nullable=False)
    .add("type", IntegerType(), nullable=False)
    .add("key", BinaryType())
    .add("payload", BinaryType(), nullable=False)
    .add("properties", MapType(StringType(), StringType()), nullable=False)
)
"""The columns, in this order. ``vchannel`` is the index; ``timestamp`` is the tick's time; ``key`` may be NULL."""

MORE: Final = StructType().add("txn_id", LongType()).add("broadcast_id", LongType())
"""Columns on request: the transaction and the broadcast that a message belongs to, NULL for none."""


class TidelogDataSource(DataSource):
    """``spark.read.format("tidelog")``: messages as rows. ``tidelog.spark.options`` lists the options.

    A read returns exactly the messages of a consistent cut, each once, and fails rather than return fewer. Within a
    partition rows come in tick order; each partition is a range of one vchannel.

    ``.schema(...)`` with some of the columns reads only those, which is faster: PySpark does not tell a source written
    in Python which columns a query uses.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        # A copy: Spark says only later whether this is for reading or for writing.
        self._raw_options = dict(options)

    @cached_property
    def _read_options(self) -> ReadOptions:
        # Parsed on the driver, whose environment counts, not that of the executors.
        return parse_options(self._raw_options)

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``. Warns, when a session registers the source, if push-down is off.

        Why here: this is the only method that PySpark calls in the driver's own process.
        """
        session = SparkSession.getActiveSession()
        if session is not None and session.conf.get(PUSHDOWN_SETTING, "false") != "true":
            warnings.warn(
                f"filters on tick, timestamp, channel, vchannel and type are not pushed down to Tidelog: set "
                f"{PUSHDOWN_SETTING} to true",
                RuntimeWarning,
                stacklevel=3,
            )
        return "tidelog"

    def schema(self) -> StructType:
        """Return all columns, and those on request that the options name."""
        return StructType([*SCHEMA, *(MORE[name] for name in self._read_options.more_columns)])

    def reader(self, schema: StructType) -> "TidelogReader":
        """Return a reader of the columns in ``schema``: those of ``self.schema()`` unless the user chose some.

        Raises:
            OptionError: A column does not exist or has another type.
        """
        _check_columns(schema)
        return TidelogReader(self._read_options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> TidelogWriter:
        """Return a writer of rows with ``schema``. ``tidelog.spark.write_options`` lists its options.

        Raises:
            OptionError: An option or a column is wrong, or the log is to be overwritten.
        """
        options = parse_write_options(self._raw_options, is_stream=False)
        check_write(schema, options, overwrite=overwrite)
        return TidelogWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TidelogStreamWriter:
        """Return a writer of a stream of rows with ``schema``. As ``writer``."""
        options = parse_write_options(self._raw_options, is_stream=True)
        check_write(schema, options, overwrite=overwrite)
        return TidelogStreamWriter(options)


class TidelogReader(DataSourceReader):
    """Plans a read on the driver and performs its partitions in the tasks; in between it is pickled."""

    def __init__(self, options: Any, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._pushdown = Pushdown()
        self.pushFilters = _PushFilters(self._push)  # type: ignore[method-assign]  # see _PushFilters

    def partitions(self) -> Sequence[InputPartition]:
        """Fix the cut and divide what lies before it; the driver's only conversation with the server.

        Raises:
            TidelogError: The server cannot be reached, a channel does not exist, or the start was trimmed.
        """
        return plan(self._options, self._pushdown)

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        """Yield the rows of one partition, in tick order.

        Raises:
            TidelogError: The rest of the partition cannot be read.
        """
        # Spark makes one partition of none, and gives it no value.
        if not isinstance(partition, ReadPartition):
            return iter(())
        from tidelog.spark.read import read_partition

        return read_partition(partition, to_arrow_schema(self._schema, timezone="UTC"))

    def _push(self, filters: list[Filter]) -> Iterable[Filter]:
        self._pushdown, left = push(filters)
        return left


class _PushFilters:
    """A ``pushFilters`` that Spark takes for the inherited one while push-down is off.

    PySpark refuses any reader with a ``pushFilters`` of its own unless PUSHDOWN_SETTING is true, and it is false by
    default: without this a first read would fail. It compares ``__func__``, as a bound method has it.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, push_filters: Callable[[list[Filter]], Iterable[Filter]]) -> None:
        self._push_filters = push_filters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._push_filters(filters)


def _check_columns(schema: StructType) -> None:
    types: dict[str, DataType] = {field.name: field.dataType for field in [*SCHEMA, *MORE]}
    for field in schema:
        if types.get(field.name) != field.dataType:
            expected = ", ".join(f"{name} {kind.simpleString()}" for name, kind in types.items())
            raise OptionError(
                f"the tidelog source has no column '{field.name} {field.dataType.simpleString()}': "
                f"choose from {expected}"
            )
