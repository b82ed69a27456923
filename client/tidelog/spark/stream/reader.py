"""The stream reader that Spark calls, on the driver once per trigger and in each task."""

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidelog import ChannelNotFoundError
from tidelog.spark.errors import plainly, plainly_each
from tidelog.spark.owners import Owners
from tidelog.spark.patience import patiently
from tidelog.spark.payload_options import PayloadFormat
from tidelog.spark.read.partition import ReadPartition
from tidelog.spark.stream.admission import Limits
from tidelog.spark.stream.groups import GroupProgress
from tidelog.spark.stream.offsets import BEGINNING, Offset, offset_of
from tidelog.spark.stream.options import StreamOptions
from tidelog.spark.stream.plan import StreamPlanner

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_log = logging.getLogger("tidelog.spark")


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver, where it lives as long as the query, and reads partitions in the tasks.

    Offsets depend only on the given offsets and the log. The state kept between calls is a connection, the size of the
    last batch, and the end of ``Trigger.AvailableNow``.
    """

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._connection = options.read.connection
        self._schema = schema
        # Created on first use: the tasks get a pickled reader, and create their own clients.
        self._owners: Owners | None = None
        self._planner: StreamPlanner | None = None
        self._group: GroupProgress | None = None
        self._target: int | None = None
        self._latest: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return BEGINNING, at every start, also after a crash during the first batch."""
        return BEGINNING.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one of the limits: Spark accepts only one at a time. ``latestOffset`` respects both."""
        limits = self._options.limits
        if limits.messages:
            return ReadMaxRows(limits.messages)
        return ReadMaxBytes(limits.size_bytes) if limits.size_bytes else ReadAllAvailable()

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query: after all messages that are acknowledged now."""
        self._target = patiently(self._connection, self._opened().now)

    @plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the batch after ``start``; ``start`` itself if there is nothing to read.

        Raises:
            OffsetError: ``start`` is not a valid offset of this source.
            TidelogError: The server cannot be reached, or messages were lost and failOnDataLoss is true.
        """
        begin = offset_of(start)
        planner = self._opened()
        limits = self._limits(limit)
        if begin.is_beginning:
            # The first batch includes the messages after the start: a query that is triggered once has only this batch.
            first = patiently(self._connection, lambda: planner.first(self._target))
            found = patiently(self._connection, lambda: planner.next(first, self._target, limits))
            return (first if found is None else found[0]).begun_at(first).to_json()
        if self._group is not None:
            # Spark has processed everything before `begin`, but calls ``commit`` only when the next batch begins.
            self._group.commit(begin)
        found = patiently(self._connection, lambda: planner.next(begin, self._target, limits))
        if found is None:
            self._latest = start
            return start
        end, cut = found
        positions = {name: max(cut, tick) for name, tick in end.positions.items()}
        self._latest = Offset(cut, positions, end.created).to_json()
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end of the log when the last batch was planned, for the query's progress report."""
        return self._latest

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divide the batch from ``start`` to ``end`` into partitions.

        Raises:
            OffsetError, TidelogError: As ``latestOffset``.
        """
        begin_offset, end_offset, planner = offset_of(start), offset_of(end), self._opened()
        return patiently(self._connection, lambda: planner.partitions(begin_offset, end_offset))

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        """Yield the rows of one partition, in tick order.

        Raises:
            TidelogError: The rest of the partition cannot be read.
        """
        assert isinstance(partition, ReadPartition)
        return plainly_each(_rows(partition, self._schema, self._options.read.payloads))

    def commit(self, end: dict[str, Any]) -> None:
        """Commit ``end`` as the position of the group of the option ``commitGroup``, if it is set."""
        self._opened()
        if self._group is not None:
            self._group.commit(offset_of(end))

    def stop(self) -> None:
        """Close the connections."""
        owners, self._owners, self._planner, self._group = self._owners, None, None, None
        if owners is not None:
            owners.close()

    def _opened(self) -> StreamPlanner:
        if self._planner is None:
            self._owners = Owners(self._connection)
            self._planner = StreamPlanner(self._owners, self._options)
            if self._options.commit_group:
                self._group = GroupProgress(self._owners, self._options.commit_group, self._options.read.vchannels)
        return self._planner

    def _limits(self, limit: ReadLimit) -> Limits:
        """Return the limits of the options, or no limits if Spark requests everything."""
        match limit:
            case ReadAllAvailable():
                return Limits()
            case ReadMaxRows() | ReadMaxBytes():
                return self._options.limits
            case _:
                raise ValueError(f"Spark requested the limit {limit}, expected ReadAllAvailable, -MaxRows or -MaxBytes")


def _rows(partition: ReadPartition, schema: StructType, payloads: PayloadFormat) -> Iterator["RecordBatch"]:
    try:
        yield from partition.read(to_arrow_schema(schema, timezone="UTC"), payloads)
    except ChannelNotFoundError as error:
        text = f"the channel '{partition.channel}' was destroyed while {partition.vchannel} was read"
        if partition.fail_on_data_loss:
            raise ChannelNotFoundError(
                f"{text}. Set the option failOnDataLoss to false to continue with the remaining messages",
                values=error.values,
            ) from None
        _log.warning("%s; continuing with the rest, because failOnDataLoss is false", text)
