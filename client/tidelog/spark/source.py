"""The data source that Spark loads: options in, schema and reader out."""

import os
import sys
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from tidelog.spark.archive.plan import plan_with_archive
from tidelog.spark.errors import OptionError, plainly, plainly_each
from tidelog.spark.journals.options import JournalOptions, parse_journal_options
from tidelog.spark.offset_options import parse_batch_options, without_offsets
from tidelog.spark.option_values import KAFKA_COLUMNS
from tidelog.spark.options import ReadOptions, parse_options, reads_journals
from tidelog.spark.payload_options import CORRUPT_RECORD, PayloadFormat
from tidelog.spark.read.partition import Partition
from tidelog.spark.read.plan import plan
from tidelog.spark.read.pushdown import Pushdown, push
from tidelog.spark.stream.options import parse_stream_options, refuse_stream_options
from tidelog.spark.stream.reader import TidelogStreamReader
from tidelog.spark.write.options import parse_write_options
from tidelog.spark.write.sink import TidelogStreamWriter, TidelogWriter, check_write

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_PYTHON_VARIABLE: Final = "PYSPARK_PYTHON"

SCHEMA: Final = (
    T.StructType()
    .add("channel", T.StringType(), nullable=False)
    .add("vchannel", T.IntegerType(), nullable=False)
    .add("tick", T.LongType(), nullable=False)
    .add("timestamp", T.TimestampType(), nullable=False)
    .add("type", T.IntegerType(), nullable=False)
    .add("key", T.BinaryType())
    .add("payload", T.BinaryType(), nullable=False)
    .add("properties", T.MapType(T.StringType(), T.StringType()), nullable=False)
)
"""The columns, in this order. ``vchannel`` is the index; ``timestamp`` is the tick's time; ``key`` may be NULL.

With the option ``payloadFormat`` string or json, ``payload`` is a string or a struct and may be NULL.
"""

JOURNAL_SCHEMA: Final = (
    T.StructType()
    .add("journal", T.StringType(), nullable=False)
    .add("begin", T.LongType(), nullable=False)
    .add("end", T.LongType(), nullable=False)
    .add("timestamp", T.TimestampType(), nullable=False)
    .add("uuid", T.StringType())
    .add("producer", T.StringType())
    .add("clock", T.LongType())
    .add("flags", T.IntegerType(), nullable=False)
    .add("payload", T.BinaryType(), nullable=False)
)
"""The columns of journals, in this order. ``begin`` is the frame's tick, ``end`` the position after it.

``uuid``, ``producer`` (12 hexadecimal digits) and ``clock`` are NULL for a message without a UUID. ``payload`` is the
whole frame.
"""

MORE: Final = (
    T.StructType()
    .add("txn_id", T.LongType())
    .add("broadcast_id", T.LongType())
    .add("event_time", T.TimestampType())
    .add(CORRUPT_RECORD, T.BinaryType())
)
"""Optional columns: transaction and broadcast of a message, its event time, and the bytes of a payload that could not
be decoded; NULL where a message has no such value."""


class TidelogDataSource(DataSource):
    """``spark.read.format("tidelog")``: messages as rows. ``tidelog.spark.options`` lists the options.

    A read returns exactly the messages of a consistent cut, each once, or fails. A partition is a range of one
    vchannel, with its rows in tick order.

    ``.schema(...)`` with some of the columns reads only those, which is faster: PySpark does not inform a Python source
    which columns a query uses.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        # Parsed later: only the method that Spark calls shows whether this is a read or a write.
        self._raw_options = dict(options)

    @cached_property
    def _read_options(self) -> ReadOptions:
        # Parsed on the driver: its environment applies, not that of the executors.
        if reads_journals(self._raw_options):
            return parse_journal_options(self._raw_options)
        return parse_options(without_offsets(self._raw_options))

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``. Spark calls this to register the source, before a worker runs it."""
        _use_python_of_the_driver()
        return "tidelog"

    @plainly
    def schema(self) -> T.StructType | str:
        """Return all columns, and the optional columns that the options name."""
        fields = JOURNAL_SCHEMA if isinstance(self._read_options, JournalOptions) else SCHEMA
        columns = [*fields, *(MORE[name] for name in self._read_options.more_columns)]
        payloads = self._read_options.payloads
        if payloads.kind == "binary":
            return T.StructType(columns)
        types = {each.name: each.dataType.simpleString() for each in columns} | {"payload": payloads.column_ddl()}
        nullable = {each.name: each.nullable for each in columns} | {"payload": payloads.may_be_null}
        return ", ".join(f"`{name}` {kind}{'' if nullable[name] else ' NOT NULL'}" for name, kind in types.items())

    @plainly
    def reader(self, schema: T.StructType) -> "TidelogReader":
        """Return a reader of the columns in ``schema``: those of ``self.schema()``, or of the user's ``.schema(...)``.

        Raises:
            OptionError: A column does not exist or has another type, or an option is for streams only.
        """
        refuse_stream_options(self._raw_options)
        options = self._read_options
        if isinstance(options, JournalOptions):
            _check_columns(schema, [*JOURNAL_SCHEMA, MORE[CORRUPT_RECORD]], options.payloads)
            return JournalReader(options, schema)
        _check_columns(schema, [*SCHEMA, *MORE], options.payloads)
        kind = PushingTidelogReader if options.pushes_filters else TidelogReader
        return kind(parse_batch_options(self._raw_options), schema)

    # Not ``plainly``: Spark then calls ``stop`` of the reader that does not exist, and shows the error of that instead.
    def streamReader(self, schema: T.StructType) -> TidelogStreamReader:
        """Return a stream reader of the columns in ``schema``. ``tidelog.spark.stream.options`` lists its options.

        Raises:
            OptionError: An option is invalid or names journals, or a column does not exist or has another type.
        """
        if reads_journals(self._raw_options):
            raise OptionError(
                "a stream cannot read journals: a micro-batch would end within transactions. Use spark.read, or the "
                "iterators of tidelog.gazette"
            )
        _check_columns(schema, [*SCHEMA, *MORE], self._read_options.payloads)
        return TidelogStreamReader(parse_stream_options(self._raw_options), schema)

    @plainly
    def writer(self, schema: T.StructType, overwrite: bool) -> TidelogWriter:
        """Return a writer of rows with ``schema``. ``tidelog.spark.write.options`` lists its options.

        Raises:
            OptionError: An option or a column is invalid, or ``overwrite`` is set.
        """
        options = parse_write_options(self._raw_options, is_stream=False)
        check_write(schema, options, overwrite=overwrite)
        return TidelogWriter(options)

    @plainly
    def streamWriter(self, schema: T.StructType, overwrite: bool) -> TidelogStreamWriter:
        """Return a stream writer of rows with ``schema``. Raises as ``writer``."""
        options = parse_write_options(self._raw_options, is_stream=True)
        check_write(schema, options, overwrite=overwrite)
        return TidelogStreamWriter(options)


class TidelogReader(DataSourceReader):
    """Plans a read on the driver and reads its partitions in the tasks, to which it is pickled."""

    def __init__(self, options: ReadOptions, schema: T.StructType) -> None:
        self._options = options
        self._schema = schema
        self._pushdown = Pushdown()

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        """Take the cut and divide the range before it into partitions; the driver's only calls to the server.

        Raises:
            TidelogError: The server cannot be reached, a channel does not exist, or the start was trimmed.
            ArchiveError: The archive does not exist, or is of other channels.
        """
        if self._options.archive:
            return plan_with_archive(self._options, self._pushdown)
        return plan(self._options, self._pushdown)

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        """Yield the rows of one partition, in tick order.

        Raises:
            TidelogError: The rest of the partition cannot be read.
        """
        # For an empty list of partitions Spark makes one partition without a value.
        if not isinstance(partition, Partition):
            return iter(())
        return plainly_each(partition.read(to_arrow_schema(self._schema, timezone="UTC"), self._options.payloads))


class PushingTidelogReader(TidelogReader):
    """A reader that accepts filters from Spark. Used only with the option ``pushFilters``.

    Why an option: Spark 4.1 to 4.3 store the result of push-down with the DataFrame, not with the query. A second use
    of the DataFrame, even within one query, then reads with the filters of the first or last use, and returns wrong
    rows. PySpark refuses this class while spark.sql.python.filterPushdown.enabled is false.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Return the filters that Spark must still evaluate."""
        self._pushdown, left = push(filters, payload_may_be_null=self._options.payloads.may_be_null)
        return left


class JournalReader(TidelogReader):
    """A reader of journals."""

    _options: JournalOptions

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        """Look up the journals, and return one partition for each.

        Raises:
            TidelogError: The server cannot be reached, or a journal does not exist or has an unknown content type.
        """
        # Imported here: other reads do not need the modules of journals.
        from tidelog.spark.journals.plan import plan_journals

        return plan_journals(self._options)


def _check_columns(schema: T.StructType, fields: Sequence[T.StructField], payloads: PayloadFormat) -> None:
    types: dict[str, T.DataType] = {field.name: field.dataType for field in fields}
    if payloads.kind == "string":
        types["payload"] = T.StringType()
    for field in schema:
        if field.name == "payload":
            payloads.check_column(field.dataType, nullable=field.nullable)
            if payloads.kind == "json":
                continue
        wanted = types.get(field.name)
        if wanted is not None and wanted != field.dataType:
            raise OptionError(
                f"the column '{field.name}' of the tidelog source is {wanted.simpleString()}, not "
                f"{field.dataType.simpleString()}: read it as {wanted.simpleString()} and cast it"
            )
        if wanted is None:
            expected = ", ".join(f"{name} {kind.simpleString()}" for name, kind in types.items())
            hint = f"use '{KAFKA_COLUMNS[field.name]}'" if field.name in KAFKA_COLUMNS else f"choose from {expected}"
            raise OptionError(f"the tidelog source has no column '{field.name}': {hint}")
    if CORRUPT_RECORD in schema.names:
        payloads.check_corrupt_record()
        if "payload" not in schema.names:
            raise OptionError(f"the schema has '{CORRUPT_RECORD}' without 'payload', whose type it depends on: add it")


def _use_python_of_the_driver() -> None:
    """In local mode, make the active session start its workers with the Python of this process.

    Spark starts workers with ``python3`` from PATH unless ``PYSPARK_PYTHON`` is set. If the driver runs in a virtual
    environment that is not activated, that is another Python, without this package. Workers on other machines are not
    changed, because their environment is unknown here.
    """
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    # The workers of a Spark Connect session run on another machine.
    if is_remote() or _PYTHON_VARIABLE in os.environ or (session := SparkSession.getActiveSession()) is None:
        return
    context: Any = session.sparkContext
    if str(context.master).startswith("local"):
        context.pythonExec = sys.executable
