"""The writers that Spark loads. They carry options to the tasks, and the results of the tasks to the driver."""

import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, cast

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from tidelog.spark.errors import OptionError
from tidelog.spark.write.options import WriteOptions

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from tidelog.spark.write.writer import Written

_BYTES: Final = (BinaryType, StringType)
_NUMBERS: Final = (ByteType, ShortType, IntegerType, LongType)
_COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "payload": _BYTES,
    "key": (*_BYTES, NullType),
    "properties": (MapType,),
    "type": _NUMBERS,
    "event_time": (TimestampType, NullType),
    "channel": (StringType,),
    "vchannel": _NUMBERS,
}


class TidelogWriter(DataSourceArrowWriter):
    """Writes a DataFrame; with exactly-once delivery all rows become visible together, or none."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        # Without an id the batch gets a unique one, so that it is still atomic.
        self._app_id = options.app_id or f"spark-{uuid.uuid4()}"

    def write(self, iterator: Iterator["RecordBatch"]) -> WriterCommitMessage:
        """Stage the rows of a task, or append them (``atLeastOnce``). Raises TidelogError or ValueError."""
        return _write(iterator, self._options, self._app_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the rows of all tasks. Raises TidelogError."""
        _commit(messages, self._options, self._app_id, self._options.app_version or 0)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Roll back the staged rows. Raises TidelogError."""
        _abort(messages, self._options)


class TidelogStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream, each atomically, with Spark's batch id as its version."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator["RecordBatch"]) -> WriterCommitMessage:
        """See TidelogWriter."""
        return _write(iterator, self._options, self._options.app_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the rows of all tasks; no effect if the batch was committed before. Raises TidelogError."""
        _commit(messages, self._options, self._options.app_id, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """See TidelogWriter."""
        _abort(messages, self._options)


def check_write(schema: StructType, options: WriteOptions, *, overwrite: bool) -> None:
    """Check the schema and mode of a write, before any row is read.

    Raises:
        OptionError: A column is missing, unknown or of another type; or ``overwrite`` is set.
    """
    if overwrite:
        raise OptionError(
            "a log cannot be overwritten: write with mode('append'), or a stream with outputMode('append')"
        )
    kinds = {field.name: field.dataType for field in schema}
    if "payload" not in kinds:
        raise OptionError(f"the rows have no column 'payload', only {', '.join(kinds)}: rename the one to write")
    for name, kind in kinds.items():
        if name not in _COLUMNS:
            raise OptionError(
                f"the rows have an unknown column '{name}': choose from {', '.join(_COLUMNS)}, and drop or encode the "
                "rest"
            )
        if not (_is_properties(kind) if name == "properties" else isinstance(kind, _COLUMNS[name])):
            expected = " or ".join(_SHOWN.get(each) or each().simpleString() for each in _COLUMNS[name])
            raise OptionError(f"the column '{name}' is {kind.simpleString()}, expected {expected}")
    if not options.channel and "channel" not in kinds:
        raise OptionError("no channel is set: use save('orders') or start('orders'), or add a column 'channel'")


_SHOWN: Final[dict[type[DataType], str]] = {MapType: "map<string,string>"}


def _is_properties(kind: DataType) -> bool:
    return isinstance(kind, MapType) and isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)


def _write(rows: Iterator["RecordBatch"], options: WriteOptions, app_id: str) -> WriterCommitMessage:
    from tidelog.spark.write.writer import write_at_least_once, write_exactly_once

    if options.delivery == "atLeastOnce":
        return write_at_least_once(rows, options)
    return write_exactly_once(rows, options, app_id)


def _commit(messages: Sequence[WriterCommitMessage | None], options: WriteOptions, app_id: str, version: int) -> None:
    from tidelog.spark.write.writer import commit

    if options.delivery == "exactlyOnce":
        commit(cast("Sequence[Written | None]", messages), options, app_id, version)


def _abort(messages: Sequence[WriterCommitMessage | None], options: WriteOptions) -> None:
    from tidelog.spark.write.writer import abort

    abort(cast("Sequence[Written | None]", messages), options)
