"""The partitions of a read. The driver makes them, and Spark pickles them to the tasks, which read them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import InputPartition

from tidelog.spark.connection import Connection
from tidelog.spark.options import DEFAULT_FETCH_BYTES
from tidelog.spark.payload_options import PayloadFormat

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Schema


class Partition(InputPartition, ABC):
    """The part of one task: a range of ticks of one vchannel, from the log or from an archive."""

    _reader: ClassVar[str]
    """The module whose ``read_partition`` reads it."""

    @property
    @abstractmethod
    def vchannel(self) -> str:
        """``<channel>/<index>``."""

    def read(self, schema: "Schema", payloads: PayloadFormat) -> Iterator["RecordBatch"]:
        """Yield the rows in tick order, with the columns of ``schema``. Runs in a task.

        Raises:
            TidelogError, ArchiveError: The rest of the partition cannot be read.
            CorruptPayloadError: A payload cannot be decoded, and ``mode`` is failfast.
        """
        # By name, at the first use: the driver, which only plans, needs none of what the readers import.
        rows: Iterator[RecordBatch] = import_module(self._reader).read_partition(self, schema, payloads)
        return rows


@dataclass(frozen=True)
class ReadPartition(Partition):
    """The ticks ``[begin_tick, end_tick)`` of one vchannel of the log.

    Attributes:
        connection: Server or node to read from.
        channel, index: The vchannel.
        begin_tick, end_tick: Half-open range of ticks.
        types: Message types to read; empty for all.
        fail_on_data_loss: True if a trim since planning is an error.
        created_tick: Creation tick of the channel, so that a re-created channel is not read instead.
        fetch_bytes: Approximate size of a response.
    """

    _reader: ClassVar[str] = "tidelog.spark.read.reader"

    connection: Connection
    channel: str
    index: int
    begin_tick: int
    end_tick: int
    types: tuple[int, ...]
    fail_on_data_loss: bool
    created_tick: int
    fetch_bytes: int = DEFAULT_FETCH_BYTES

    @property
    def vchannel(self) -> str:
        """``<channel>/<index>``."""
        return f"{self.channel}/{self.index}"
