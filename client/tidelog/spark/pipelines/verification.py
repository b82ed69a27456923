"""Audit of a log, an archive, or both as one table: ``verify``."""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession

from tidelog import DataLossError
from tidelog.spark.archive.partition import ArchivePartition
from tidelog.spark.archive.plan import plan_with_archive
from tidelog.spark.errors import ArchiveError, OptionError
from tidelog.spark.options import ReadOptions, parse_options
from tidelog.spark.payload_options import AS_THEY_ARE
from tidelog.spark.pipelines.checks import COLUMNS, PARTS, PartitionCheck, Sequences, check_batches
from tidelog.spark.pipelines.cross_checks import (
    Finding,
    check_broadcasts,
    check_open_broadcasts,
    check_sequences,
    check_transactions,
)
from tidelog.spark.pipelines.digest import Digest, Digests
from tidelog.spark.pipelines.expectations import compared, digest_findings, not_compared, scope_of
from tidelog.spark.pipelines.reports import VchannelReport, VerifyReport
from tidelog.spark.pipelines.tasks import (
    OnProgress,
    SourceOptions,
    arrow_schema,
    over_partitions,
    reporting,
    rows_of,
)
from tidelog.spark.read.partition import Partition
from tidelog.spark.read.plan import plan
from tidelog.spark.read.pushdown import Pushdown

if TYPE_CHECKING:
    from pyspark import RDD

_ROWS: Final = 10_000


def verify(
    spark: SparkSession,
    options: SourceOptions,
    *,
    digest: str | None = None,
    content_digest: str | None = None,
    sequences: Sequences | None = None,
    on_progress: OnProgress | None = None,
) -> VerifyReport:
    """Read all messages that ``options`` select, and return the findings.

    Args:
        spark: Session that runs the job.
        options: Options of the source; ``archive`` audits log and archive as one table, ``archiveOnly`` only the
            archive.
        digest: Expected full digest, 32 hexadecimal digits.
        content_digest: Expected content digest, 32 hexadecimal digits.
        sequences: Properties in which producers number their messages.
        on_progress: See ``OnProgress``.

    Raises:
        TidelogError: The server cannot be reached, or a channel does not exist. Damage is a finding, not an error.
        OptionError: An option is invalid; ``types`` is not allowed here.
        ValueError: A digest is not 32 hexadecimal digits.
    """
    started = time.perf_counter()
    wanted = [(Digest.parse(text), name) for text, name in ((digest, "digest"), (content_digest, "content")) if text]
    read = verify_options(options)
    scope = scope_of(read)
    partitions = plan_with_archive(read, Pushdown()) if read.archive else plan(read, Pushdown())
    with reporting(spark, "verifying", on_progress):
        if partitions:
            parts = _parts(spark, over_partitions(spark, partitions, partial(_check, sequences)))
            try:
                report = report_of(parts, is_whole=scope.is_whole, floor=scope.floor)
                missing = check_open_broadcasts(parts, scope.broadcasts)
            finally:
                parts.unpersist()
        else:
            report, missing = VerifyReport((), (), (), 0, 0, 0, Digests()), []
    more = [*missing, *digest_findings(report, wanted)]
    undecided = [*report.undecided, *scope.undecided, *not_compared(partitions)]
    vchannels = list(report.vchannels)
    if not read.archive:
        vchannels, different, moved = compared(report, scope, read)
        more += different
        undecided += moved
    return replace(
        report, findings=[*report.findings, *more], undecided=undecided, vchannels=vchannels,
        seconds=time.perf_counter() - started,
    )  # fmt: skip


def verify_options(options: SourceOptions) -> ReadOptions:
    """Parse the options of an audit. Raises OptionError if one is invalid, or would exclude messages."""
    read = parse_options(options)
    if read.types is not None:
        raise OptionError("an audit of only some types would report false gaps: remove the option 'types'")
    return read


def verify_frame(frame: DataFrame, *, is_whole: bool = False, sequences: Sequences | None = None) -> VerifyReport:
    """Audit any DataFrame with the columns of the source, ``txn_id`` and ``broadcast_id``, such as a copy of a log.

    The rows are sorted first. Set ``is_whole`` if every transaction is complete in the frame. Each row becomes a Python
    object, which takes much longer than ``verify``.
    """
    rows = frame.select(*COLUMNS).repartition("channel", "vchannel").sortWithinPartitions("channel", "vchannel", "tick")
    parts = _parts(frame.sparkSession, rows.rdd.mapPartitions(partial(_check_rows, sequences)))
    try:
        return report_of(parts, is_whole=is_whole)
    finally:
        parts.unpersist()


def report_of(parts: DataFrame, *, is_whole: bool, floor: int = 0) -> VerifyReport:
    """Return the report of the parts of all tasks; see ``tidelog.spark.pipelines.checks``."""
    local = parts.where("kind IN ('vchannel', 'run', 'finding')").collect()
    findings = [Finding(name=row.name, tick=row.a, **json.loads(row.more)) for row in local if row.kind == "finding"]
    findings += _overlaps([row for row in local if row.kind == "run"])
    kinds = {row.kind for row in parts.select("kind").distinct().collect()}
    transactions = broadcasts = producers = 0
    undecided: list[str] = []
    if "txn" in kinds:
        transactions, torn, undecided = check_transactions(parts, is_whole=is_whole, floor=floor)
        findings += torn
    if "broadcast" in kinds:
        broadcasts, broken = check_broadcasts(parts)
        findings += broken
    if "sequence" in kinds:
        producers, missing = check_sequences(parts)
        findings += missing
    vchannels = _reports([row for row in local if row.kind == "vchannel"])
    digests = Digests.of((each.digest, each.content_digest) for each in vchannels)
    return VerifyReport(findings, undecided, vchannels, transactions, broadcasts, producers, digests)


def _check(sequences: Sequences | None, partition: Partition) -> Iterator[tuple[Any, ...]]:
    """Yield the parts of a partition of the log or of the archive, in a task."""
    check = PartitionCheck(sequences)
    # All columns of a file, because each has its own checksums; a batch of the log has one for all columns.
    names = () if isinstance(partition, ArchivePartition) else COLUMNS
    try:
        for batch in partition.read(arrow_schema(*names), AS_THEY_ARE):
            yield from rows_of(check.add(batch))
        if isinstance(partition, ArchivePartition) and partition.is_whole:
            check.compare(partition.file)
    except (DataLossError, ArchiveError) as error:
        check.unreadable(partition.vchannel, error)
    yield from rows_of([check.finish()])


def _check_rows(sequences: Sequences | None, rows: Iterable[Row]) -> Iterator[tuple[Any, ...]]:
    """Yield the parts of rows of a DataFrame, in a task."""
    return rows_of(check_batches(_batches(iter(rows)), sequences))


def _batches(rows: Iterator[Row]) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(*COLUMNS)
    while some := list(islice(rows, _ROWS)):
        columns = zip(*some, strict=True)
        yield pa.RecordBatch.from_arrays(
            [pa.array(_arrow_values(column), field.type) for column, field in zip(columns, schema, strict=True)],
            schema=schema,
        )


def _arrow_values(column: Sequence[Any]) -> Sequence[Any]:
    """Return a column, with maps as the lists of pairs that Arrow accepts."""
    return [list(value.items()) for value in column] if isinstance(column[0], dict) else column


def _parts(spark: SparkSession, rows: "RDD[tuple[Any, ...]]") -> DataFrame:
    """Return the parts that tasks yield, persisted so that they are computed once."""
    return spark.createDataFrame(rows, PARTS, verifySchema=False).persist(StorageLevel.DISK_ONLY)


def _reports(rows: Sequence[Row]) -> list[VchannelReport]:
    by_name: dict[str, list[Any]] = {}
    for row in rows:
        by_name.setdefault(row.name, []).append((row, json.loads(row.more)))
    return [
        VchannelReport(
            name,
            messages=sum(row.n for row, _ in found),
            bytes=sum(more["bytes"] for _, more in found),
            first_tick=min(row.a for row, _ in found),
            last_tick=max(row.b for row, _ in found),
            digest=str(Digest.total(Digest.parse(more["digest"]) for _, more in found)),
            content_digest=str(Digest.total(Digest.parse(more["content"]) for _, more in found)),
        )
        for name, found in sorted(by_name.items())
    ]


def _overlaps(runs: Sequence[Row]) -> Iterator[Finding]:
    """Yield a finding for each pair of overlapping runs of a vchannel: a tick is repeated or out of order."""
    for before, behind in pairwise(sorted(runs, key=lambda run: (run.name, run.a, run.b))):
        if before.name == behind.name and behind.a <= before.b:
            text = f"ticks {before.a} to {before.b} and {behind.a} to {behind.b} were read separately and overlap"
            yield Finding("overlap", before.name, behind.a, text)
