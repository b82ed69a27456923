"""Reading of one partition in a task. Imported in the task, after Spark has forked the process."""

import gc
import logging
from collections.abc import Callable, Generator, Iterator
from functools import cache
from typing import Final, TypeVar

import pyarrow as pa

from tidelog import At, Batch, Client, PositionTrimmedError
from tidelog.spark.payload_options import PayloadFormat
from tidelog.spark.read.arrow import to_record_batch
from tidelog.spark.read.partition import ReadPartition
from tidelog.spark.read.payloads import Payloads

_log = logging.getLogger("tidelog.spark")
_Item = TypeVar("_Item")

# Spark spends about 100 µs per record batch, whatever its size, and holds a few of them in memory. With twice the size
# a worker needs 20 MB more and is not measurably faster.
TARGET_ROWS: Final = 16_384
TARGET_BYTES: Final = 2 << 20


def read_partition(
    partition: ReadPartition, schema: pa.Schema, payload_format: PayloadFormat
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``partition``, in tick order, with the columns of ``schema``.

    The client prefetches while Spark processes the yielded rows, and checks the CRC of every batch.

    Raises:
        TidelogError: The rest of the partition cannot be read.
        CorruptPayloadError: A payload cannot be decoded, and ``mode`` is failfast.
    """
    yield from _read(partition, schema, Payloads(payload_format, schema))
    freeze_worker()


def _read(partition: ReadPartition, schema: pa.Schema, payloads: Payloads) -> Iterator[pa.RecordBatch]:
    with partition.connection.client() as client:
        yield from behind_trims(
            partition, partition.vchannel, lambda begin: _record_batches(client, partition, begin, schema, payloads)
        )


def behind_trims(
    partition: ReadPartition, what: str, read: Callable[[int], Iterator[_Item]]
) -> Generator[_Item, None, None]:
    """Yield what ``read`` yields from the begin of ``partition``, and behind each part that was trimmed since planning.

    Raises:
        PositionTrimmedError: It was trimmed, and the partition fails on a loss.
    """
    begin_tick: int | None = partition.begin_tick
    while begin_tick is not None:
        try:
            yield from read(begin_tick)
            begin_tick = None
        except PositionTrimmedError as error:
            if partition.fail_on_data_loss:
                raise PositionTrimmedError(
                    f"{what} was trimmed while it was read: {error}. Read again, or set the option failOnDataLoss to "
                    "false to read the remaining messages",
                    values=error.values,
                ) from None
            _log.warning("%s; reading the remaining messages, because failOnDataLoss is false", error)
            # This tick is greater than all yielded ones, so no row is repeated.
            begin_tick = error.first_available_tick


@cache
def freeze_worker() -> None:
    """Exempt all loaded objects from garbage collection, once, after the first task has loaded all modules.

    PySpark's worker collects garbage after each task, which takes 40 ms for the objects of PySpark, pyarrow and gRPC.
    The process belongs to Spark and runs only tasks.
    """
    gc.collect()
    gc.freeze()


def _record_batches(
    client: Client, partition: ReadPartition, begin_tick: int, schema: pa.Schema, payloads: Payloads
) -> Iterator[pa.RecordBatch]:
    if begin_tick >= partition.end_tick:
        return
    with client.scan(
        partition.vchannel,
        start=At.tick(begin_tick),
        until=At.inside(partition.end_tick),
        types=partition.types or None,
        # Filters on types are exact: Spark does not evaluate them again.
        hides_broadcasts=bool(partition.types),
        max_response_bytes=partition.fetch_bytes,
        created_ticks={partition.vchannel: partition.created_tick},
    ) as batches:
        for batches_of_run in _runs(batches):
            yield to_record_batch(batches_of_run, schema, payloads)


def _runs(batches: Iterator[Batch]) -> Iterator[list[Batch]]:
    """Yield runs of consecutive batches that are large enough for one record batch; the last may be shorter.

    Raises:
        PositionTrimmedError: The following messages were trimmed. All earlier ones were yielded.
    """
    run: list[Batch] = []
    rows = size_bytes = 0
    try:
        for batch in batches:
            run.append(batch)
            rows += len(batch)
            size_bytes += batch.columns.size_bytes
            if rows >= TARGET_ROWS or size_bytes >= TARGET_BYTES:
                yield run
                run, rows, size_bytes = [], 0, 0
    except PositionTrimmedError:
        if run:
            yield run
        raise
    if run:
        yield run
