"""The data source that Spark loads: options in, schema and reader out."""

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

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

from tidelog.spark.archive_plan import ArchivePartition, plan_with_archive
from tidelog.spark.options import OptionError, ReadOptions, parse_options
from tidelog.spark.payload_options import CORRUPT_RECORD, PayloadFormat
from tidelog.spark.plain_errors import plainly
from tidelog.spark.plan import ReadPartition, plan
from tidelog.spark.pushdown import Pushdown, push
from tidelog.spark.sink import TidelogStreamWriter, TidelogWriter, check_write
from tidelog.spark.stream_options import parse_stream_options, refuse_stream_options
from tidelog.spark.stream_read import TidelogStreamReader
from tidelog.spark.worker_python import use_python_of_the_driver
from tidelog.spark.write_options import parse_write_options

if TYPE_CHECKING:
    from pyarrow import RecordBatch

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
"""The columns, in this order. ``vchannel`` is the index; ``timestamp`` is the tick's time; ``key`` may be NULL.

Of the option ``payloadFormat`` string or json, ``payload`` is a string or a struct, and may be NULL.
"""

MORE: Final = (
    StructType()
    .add("txn_id", LongType())
    .add("broadcast_id", LongType())
    .add("event_time", TimestampType())
    .add(CORRUPT_RECORD, BinaryType())
)
"""Columns on request: the transaction and the broadcast that a message belongs to, its event time, NULL for none; and
the bytes of a payload that could not be decoded, NULL for others."""


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
        """Return the name for ``format``. Spark asks for it to register the source, before a worker runs it."""
        use_python_of_the_driver()
        return "tidelog"

    @plainly
    def schema(self) -> StructType | str:
        """Return all columns, and those on request that the options name."""
        columns = [*SCHEMA, *(MORE[name] for name in self._read_options.more_columns)]
        payloads = self._read_options.payloads
        if payloads.kind == "binary":
            return StructType(columns)
        types = {each.name: each.dataType.simpleString() for each in columns} | {"payload": payloads.column_ddl()}
        nullable = {each.name: each.nullable for each in columns} | {"payload": payloads.may_be_null}
        return ", ".join(f"`{name}` {kind}{'' if nullable[name] else ' NOT NULL'}" for name, kind in types.items())

    @plainly
    def reader(self, schema: StructType) -> "TidelogReader":
        """Return a reader of the columns in ``schema``: those of ``self.schema()`` unless the user chose some.

        Raises:
            OptionError: A column does not exist or has another type.
        """
        refuse_stream_options(self._raw_options)
        _check_columns(schema, self._read_options.payloads)
        kind = PushingTidelogReader if self._read_options.pushes_filters else TidelogReader
        return kind(self._read_options, schema)

    @plainly
    def streamReader(self, schema: StructType) -> TidelogStreamReader:
        """Return a reader of a stream with the columns in ``schema``. ``tidelog.spark.stream_options`` lists options.

        Raises:
            OptionError: An option is wrong, or a column does not exist or has another type.
        """
        _check_columns(schema, self._read_options.payloads)
        return TidelogStreamReader(parse_stream_options(self._raw_options), schema)

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> TidelogWriter:
        """Return a writer of rows with ``schema``. ``tidelog.spark.write_options`` lists its options.

        Raises:
            OptionError: An option or a column is wrong, or the log is to be overwritten.
        """
        options = parse_write_options(self._raw_options, is_stream=False)
        check_write(schema, options, overwrite=overwrite)
        return TidelogWriter(options)

    @plainly
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

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        """Fix the cut and divide what lies before it; the driver's only conversation with the server.

        Raises:
            TidelogError: The server cannot be reached, a channel does not exist, or the start was trimmed.
            ArchiveError: The archive that the options name is not there, or is not of these channels.
        """
        if self._options.archive:
            return plan_with_archive(self._options, self._pushdown)
        return plan(self._options, self._pushdown)

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        """Yield the rows of one partition, in tick order.

        Raises:
            TidelogError: The rest of the partition cannot be read.
        """
        if isinstance(partition, ArchivePartition):
            from tidelog.spark.archive import read_archived

            return read_archived(partition, to_arrow_schema(self._schema, timezone="UTC"), self._options.payloads)
        # Spark makes one partition of none, and gives it no value.
        if not isinstance(partition, ReadPartition):
            return iter(())
        from tidelog.spark.read import read_partition

        return read_partition(partition, to_arrow_schema(self._schema, timezone="UTC"), self._options.payloads)


class PushingTidelogReader(TidelogReader):
    """A reader that takes filters from Spark: only where the user says that Spark gives each reader its own.

    Spark 4.1 to 4.3 keep what push-down leads to with the DataFrame, not with the query: a second use of the DataFrame,
    also within one query, then reads what the first one or the last one pushed, and its result is wrong. PySpark
    refuses this class while spark.sql.python.filterPushdown.enabled is false.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Return the filters that Spark must still evaluate."""
        self._pushdown, left = push(filters, payload_may_be_null=self._options.payloads.may_be_null)
        return left


def _check_columns(schema: StructType, payloads: PayloadFormat) -> None:
    types: dict[str, DataType] = {field.name: field.dataType for field in [*SCHEMA, *MORE]}
    if payloads.kind == "string":
        types["payload"] = StringType()
    for field in schema:
        if field.name == "payload":
            payloads.check_column(field.dataType, nullable=field.nullable)
            if payloads.kind == "json":
                continue
        wanted = types.get(field.name)
        if wanted is not None and wanted != field.dataType:
            raise OptionError(
                f"the column '{field.name}' of the tidelog source is {wanted.simpleString()}, not "
                f"{field.dataType.simpleString()}: read it as that and cast it"
            )
        if wanted is None:
            expected = ", ".join(f"{name} {kind.simpleString()}" for name, kind in types.items())
            raise OptionError(f"the tidelog source has no column '{field.name}': choose from {expected}")
    if CORRUPT_RECORD in schema.names:
        payloads.check_corrupt_record()
        if "payload" not in schema.names:
            raise OptionError(f"'{CORRUPT_RECORD}' is read with 'payload', whose type says what is corrupt: name both")
