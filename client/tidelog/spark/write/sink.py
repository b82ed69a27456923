"""The writers that Spark loads. They carry options to the tasks, and the results of the tasks to the driver."""

import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, cast

from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tidelog.spark.errors import OptionError, plainly
from tidelog.spark.option_values import KAFKA_COLUMNS
from tidelog.spark.write.options import WriteOptions

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from tidelog.spark.write.writer import Written

_BYTES: Final = (T.BinaryType, T.StringType)
_NUMBERS: Final = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_COLUMNS: Final[dict[str, tuple[type[T.DataType], ...]]] = {
    "payload": _BYTES,
    "key": (*_BYTES, T.NullType),
    "properties": (T.MapType,),
    "type": _NUMBERS,
    "event_time": (T.TimestampType, T.NullType),
    "channel": (T.StringType,),
    "vchannel": _NUMBERS,
}


class _Tasks:
    """What both writers do: a task writes its rows, and the driver commits or rolls back those of all tasks."""

    _options: WriteOptions
    _app_id: str

    @plainly
    def write(self, iterator: Iterator["RecordBatch"]) -> WriterCommitMessage:
        """Stage the rows of a task, or append them (``atLeastOnce``). Raises TidelogError or ValueError."""
        from tidelog.spark.write.writer import write_at_least_once, write_exactly_once

        if self._options.delivery == "atLeastOnce":
            return write_at_least_once(iterator, self._options)
        return write_exactly_once(iterator, self._options, self._app_id)

    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int | None = None) -> None:
        """Commit the rows of all tasks; no effect if the batch was committed before. Raises TidelogError."""
        from tidelog.spark.write.writer import commit

        if self._options.delivery == "exactlyOnce":
            version = batchId if batchId is not None else self._options.app_version or 0
            commit(cast("Sequence[Written | None]", messages), self._options, self._app_id, version)

    @plainly
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int | None = None) -> None:
        """Roll back the staged rows. Raises TidelogError."""
        del batchId
        from tidelog.spark.write.writer import abort

        abort(cast("Sequence[Written | None]", messages), self._options)


class TidelogWriter(_Tasks, DataSourceArrowWriter):
    """Writes a DataFrame; with exactly-once delivery all rows become visible together, or none."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        # Without an id the batch gets a unique one, so that it is still atomic.
        self._app_id = options.app_id or f"spark-{uuid.uuid4()}"


class TidelogStreamWriter(_Tasks, DataSourceStreamArrowWriter):
    """Writes the batches of a stream, each atomically, with Spark's batch id as its version."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._app_id = options.app_id


def check_write(schema: T.StructType, options: WriteOptions, *, overwrite: bool) -> None:
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
        advice = _renamed("value") if "value" in kinds else "rename the one to write"
        raise OptionError(f"the rows have no column 'payload', only {', '.join(kinds)}: {advice}")
    for name, kind in kinds.items():
        if name not in _COLUMNS:
            choice = f"choose from {', '.join(_COLUMNS)}, and drop or encode the rest"
            advice = _renamed(name) if KAFKA_COLUMNS.get(name) in _COLUMNS else choice
            raise OptionError(f"the rows have an unknown column '{name}': {advice}")
        if not (_is_properties(kind) if name == "properties" else isinstance(kind, _COLUMNS[name])):
            expected = " or ".join(_SHOWN.get(each) or each().simpleString() for each in _COLUMNS[name])
            raise OptionError(f"the column '{name}' is {kind.simpleString()}, expected {expected}")
    if not options.channel and "channel" not in kinds:
        raise OptionError("no channel is set: use save('orders') or start('orders'), or add a column 'channel'")


def _renamed(name: str) -> str:
    return f"write df.withColumnRenamed('{name}', '{KAFKA_COLUMNS[name]}')"


_SHOWN: Final[dict[type[T.DataType], str]] = {T.MapType: "map<string,string>"}


def _is_properties(kind: T.DataType) -> bool:
    return (
        isinstance(kind, T.MapType)
        and isinstance(kind.keyType, T.StringType)
        and isinstance(kind.valueType, T.StringType)
    )
