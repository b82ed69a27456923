"""Reading of archived files as Arrow, and the adjustment of a cut to archived transactions."""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.spark.archive.files import open_inside
from tidelog.spark.archive.manifest import Archive, ArchivedFile
from tidelog.spark.archive.partition import ArchivePartition
from tidelog.spark.errors import ArchiveError
from tidelog.spark.payload_options import PayloadFormat
from tidelog.spark.read.payloads import Payloads

_ROWS: Final = 32_768
_UINT32: Final = 1 << 32
_SIGN: Final = 1 << 31


def read_partition(
    partition: ArchivePartition, schema: pa.Schema, payload_format: PayloadFormat
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``partition``, in tick order, with the columns of ``schema``. Verifies the page checksums.

    Raises:
        ArchiveError: The file is missing or damaged, or its size or number of rows differs from the manifest.
        CorruptPayloadError: A payload cannot be decoded, and ``mode`` is failfast.
    """
    payloads = Payloads(payload_format, schema)
    needed = {*schema.names, "tick", *(("type",) if partition.types else ()), *payloads.needed}
    types = pa.array([value - _UINT32 if value >= _SIGN else value for value in partition.types], pa.int32())
    for batch in _batches(partition, needed):
        rows = batch.filter(pc.is_in(batch.column("type"), types)) if partition.types else batch
        if rows.num_rows:
            made = payloads.decoded(partial(_payloads, rows), partial(_place, partition, rows))
            columns = [made[field.name] if field.name in made else _column(rows, field) for field in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _payloads(rows: pa.RecordBatch) -> pa.BinaryArray:
    return rows.column("payload").cast(pa.binary())


def _place(partition: ArchivePartition, rows: pa.RecordBatch, row: int) -> tuple[str, int]:
    return partition.vchannel, rows.column("tick")[row].as_py()


def end_before_transaction(archive: Archive, end_tick: int) -> int:
    """Return ``end_tick``, or the first tick of the archived transaction that spans it.

    Transactions committed in one request may enclose each other, so that tick may lie within another one: repeat.
    """
    while True:
        begun = _transactions_behind(archive, end_tick)
        first = min(_first_ticks(archive, begun, end_tick), default=end_tick) if len(begun) else end_tick
        if first == end_tick:
            return end_tick
        end_tick = first


def _transactions_behind(archive: Archive, end_tick: int) -> pa.Array:
    """Return the transaction ids of each vchannel's first archived message at or after ``end_tick``."""
    found = set()
    for each in archive.vchannels.values():
        file = next((file for file in each.files if file.last_tick >= end_tick), None)
        if file is not None:
            batch = next(_ids(archive, file, end_tick, file.last_tick + 1))
            found.add(batch.column("txn_id")[0].as_py())
    return pa.array(sorted(found - {None}), pa.int64())


def _first_ticks(archive: Archive, transactions: pa.Array, end_tick: int) -> Iterator[int]:
    """Yield, for each vchannel with any, the first tick of the transactions before ``end_tick``."""
    for each in archive.vchannels.values():
        for file in reversed([file for file in each.files if file.first_tick < end_tick]):
            ticks = [
                tick
                for batch in _ids(archive, file, file.first_tick, end_tick)
                for tick in batch.filter(pc.is_in(batch.column("txn_id"), transactions)).column("tick").to_pylist()
            ]
            if ticks:
                yield min(ticks)
            # A transaction may continue in the previous file only if it includes the first message of this one.
            if not ticks or min(ticks) > file.first_tick:
                break


def _ids(archive: Archive, file: ArchivedFile, begin_tick: int, end_tick: int) -> Iterator[pa.RecordBatch]:
    return _batches(ArchivePartition(str(archive.root), file, begin_tick, end_tick), {"tick", "txn_id"})


def _batches(partition: ArchivePartition, names: set[str]) -> Iterator[pa.RecordBatch]:
    """Yield non-empty batches of a partition's ticks and all types, with the named columns that the file has."""
    path, begin_tick, end_tick = Path(partition.path), partition.begin_tick, partition.end_tick
    try:
        with (
            os.fdopen(open_inside(partition.root, partition.file.path), "rb") as stored,
            pq.ParquetFile(stored, page_checksum_verification=True) as file,
        ):
            _check_size(file, os.fstat(stored.fileno()).st_size, partition.file)
            groups = range(file.num_row_groups) if partition.is_whole else _row_groups(file, begin_tick, end_tick)
            columns = [name for name in file.schema_arrow.names if name in names]
            if not groups:
                return
            for batch in file.iter_batches(_ROWS, row_groups=groups, columns=columns):
                ticks = batch.column("tick")
                if ticks[0].as_py() < begin_tick or ticks[-1].as_py() >= end_tick:
                    inside = pc.and_(pc.greater_equal(ticks, begin_tick), pc.less(ticks, end_tick))
                    batch = batch.filter(inside)  # noqa: PLW2901 - the same rows, but for the ends
                if batch.num_rows:
                    yield batch
    except FileNotFoundError as error:
        raise ArchiveError(f"the archived file {path} is missing: restore it from a copy") from error
    except (OSError, pa.ArrowException) as error:
        raise ArchiveError(f"the archived file {path} is damaged ({error}): restore it from a copy") from error


def _check_size(file: pq.ParquetFile, bytes_: int, expected: ArchivedFile) -> None:
    if (bytes_, file.metadata.num_rows) != (expected.bytes, expected.messages):
        raise ArchiveError(
            f"the archived file {expected.path} has {bytes_} bytes and {file.metadata.num_rows} messages, expected "
            f"{expected.bytes} and {expected.messages} by the manifest: restore it from a copy"
        )


def _row_groups(file: pq.ParquetFile, begin_tick: int, end_tick: int) -> Sequence[int]:
    schema = file.metadata.schema
    place = next(place for place in range(file.metadata.num_columns) if schema.column(place).path == "tick")

    def overlaps(group: int) -> bool:
        # Any: pyarrow returns values of the column's type.
        statistics: Any = file.metadata.row_group(group).column(place).statistics
        return statistics is None or (statistics.min < end_tick and statistics.max >= begin_tick)

    return [group for group in range(file.num_row_groups) if overlaps(group)]


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    place = batch.schema.get_field_index(field.name)
    if place < 0:
        # The column was added to the source after the file was written.
        return pa.nulls(batch.num_rows, field.type)
    return batch.column(place).cast(field.type)
