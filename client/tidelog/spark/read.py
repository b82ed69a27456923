"""Reading: what one task does with its partition. Imported in the task, where the process has already been forked."""

import gc
import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Final

import pyarrow as pa

from tidelog import At, Batch, Client, NotOwnerError, PositionTrimmedError, UnavailableError
from tidelog.spark.arrow import BatchRun, to_record_batch
from tidelog.spark.owners import owner_of
from tidelog.spark.patience import patiently
from tidelog.spark.payload_options import PayloadFormat
from tidelog.spark.payloads import Payloads
from tidelog.spark.plan import ReadPartition

_log = logging.getLogger("tidelog.spark")

# Spark pays about 100 µs for each record batch whatever its size, and holds a few of them in memory at once: of twice
# the size a worker has 20 MB more, and is not measurably faster.
_TARGET_ROWS: Final = 16_384
_TARGET_BYTES: Final = 2 << 20
# Of 4 MiB, more than twice as many pages are new to the process: malloc gives such blocks back each time.
_RESPONSE_BYTES: Final = 2 << 20


def read_partition(
    partition: ReadPartition, schema: pa.Schema, payload_format: PayloadFormat
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``partition``, in tick order, with the columns of ``schema``.

    The client receives ahead while Spark takes what was yielded, and checks the CRC of every batch.

    Raises:
        TidelogError: The rest of the partition cannot be read.
        CorruptPayloadError: A payload is not of the format, and that is to fail the read.
    """
    payloads = Payloads(payload_format, schema)
    is_begun = False
    try:
        for rows in _read(partition, schema, payloads):
            is_begun = True
            yield rows
    except (NotOwnerError, UnavailableError):
        # What was yielded cannot be taken back: then Spark's next attempt at the task comes here.
        if partition.seeds is None or is_begun:
            raise
        seeds = partition.seeds
        found = patiently(seeds, lambda: owner_of(seeds, partition.channel))
        if found == partition.connection:
            raise
        _log.warning(
            "%s is at %s now, no longer at %s", partition.vchannel, found.endpoint, partition.connection.endpoint
        )
        yield from _read(replace(partition, connection=found), schema, payloads)
    _freeze_worker()


def _read(partition: ReadPartition, schema: pa.Schema, payloads: Payloads) -> Iterator[pa.RecordBatch]:
    with partition.connection.client() as client:
        begin_tick: int | None = partition.begin_tick
        while begin_tick is not None:
            try:
                yield from _record_batches(client, partition, begin_tick, schema, payloads)
                begin_tick = None
            except PositionTrimmedError as error:
                if partition.fail_on_data_loss:
                    raise _lost(partition, error) from None
                _log.warning("%s; reading what is left, because failOnDataLoss is false", error)
                # It lies beyond everything that was yielded: nothing comes twice.
                begin_tick = error.first_available_tick


@cache
def _freeze_worker() -> None:
    """Take what this process has loaded out of garbage collection, once, when its first task has loaded everything.

    PySpark's worker collects after each task, for which it looks at every object of PySpark, pyarrow and gRPC: 40 ms.
    The process is Spark's own and runs nothing but tasks.
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
        # A WHERE is exact: Spark does not look at the types again.
        hides_broadcasts=bool(partition.types),
        max_response_bytes=_RESPONSE_BYTES,
        created_ticks={partition.vchannel: partition.created_tick},
    ) as batches:
        for batches_of_run in _runs(batches):
            rows = BatchRun(partition.channel, partition.index, batches_of_run)
            yield to_record_batch(rows, schema, payloads.columns(rows))


def _runs(batches: Iterator[Batch]) -> Iterator[list[Batch]]:
    """Yield consecutive batches together that are large enough for one record batch; the last may be short.

    Raises:
        PositionTrimmedError: What follows was trimmed. All that came before was yielded.
    """
    run: list[Batch] = []
    rows = size_bytes = 0
    try:
        for batch in batches:
            run.append(batch)
            rows += len(batch)
            size_bytes += batch.columns.size_bytes
            if rows >= _TARGET_ROWS or size_bytes >= _TARGET_BYTES:
                yield run
                run, rows, size_bytes = [], 0, 0
    except PositionTrimmedError:
        if run:
            yield run
        raise
    if run:
        yield run


def _lost(partition: ReadPartition, error: PositionTrimmedError) -> PositionTrimmedError:
    return PositionTrimmedError(
        f"{partition.vchannel} was trimmed while it was read: {error}. Read again, or set the option failOnDataLoss to "
        "false to read what is left",
        values=error.values,
    )
