"""Audit any amount of log, of archive, or of both as one table: ``verify``."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql.datasource import InputPartition

from tidelog import Client, DataLossError, VchannelDescription
from tidelog.spark import manifest
from tidelog.spark.archive_plan import ArchivePartition, plan_with_archive
from tidelog.spark.manifest import ArchivedLane, ArchiveError
from tidelog.spark.options import OptionError, ReadOptions, parse_options
from tidelog.spark.owners import Owners
from tidelog.spark.pipelines.checks import COLUMNS, PARTS, PartitionCheck, Sequences, check_batches
from tidelog.spark.pipelines.digest import Digest, Digests
from tidelog.spark.pipelines.tasks import (
    OnProgress,
    SourceOptions,
    arrow_schema,
    over_partitions,
    read_batches,
    rows_of,
    told,
)
from tidelog.spark.pipelines.together import (
    Finding,
    OpenBroadcast,
    check_broadcasts,
    check_open_broadcasts,
    check_sequences,
    check_transactions,
)
from tidelog.spark.plan import ReadPartition, describe, plan
from tidelog.spark.pushdown import Pushdown

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, Row, SparkSession

_EVERYTHING: Final = "*"
_ROWS: Final = 10_000


@dataclass(frozen=True, slots=True)
class LaneReport:
    """What was read of one vchannel.

    Attributes:
        vchannel: ``<channel>/<index>``.
        messages, bytes: How many; bytes are those of keys and payloads.
        first_tick, last_tick: Of its messages.
        digest, content_digest: Of its messages.
        described: How many the server says there are; None if that cannot be compared.
    """

    vchannel: str
    messages: int
    bytes: int
    first_tick: int
    last_tick: int
    digest: str
    content_digest: str
    described: int | None = None


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What an audit found.

    Attributes:
        findings: Each is something that must not be; at most some hundreds of a kind.
        undecided: What could not be proven either way, and why.
        lanes: In order of name.
        transactions, broadcasts, producers: How many were seen.
        digests: Of all messages.
        seconds: How long it took.
    """

    findings: Sequence[Finding]
    undecided: Sequence[str]
    lanes: Sequence[LaneReport]
    transactions: int
    broadcasts: int
    producers: int
    digests: Digests
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def messages(self) -> int:
        """How many were read."""
        return sum(lane.messages for lane in self.lanes)

    def as_record(self) -> dict[str, object]:
        """Return it as values that JSON has."""
        return {
            "ok": self.ok,
            "messages": self.messages,
            "bytes": sum(lane.bytes for lane in self.lanes),
            "digest": str(self.digests.full),
            "content_digest": str(self.digests.content),
            "transactions": self.transactions,
            "broadcasts": self.broadcasts,
            "producers": self.producers,
            "findings": [asdict(finding) for finding in self.findings],
            "undecided": list(self.undecided),
            "lanes": [asdict(lane) for lane in self.lanes],
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is known of the audit from the outside.

    Attributes:
        is_whole: Whether all channels are read whole, so that each transaction is.
        floor: From this tick on no vchannel was trimmed.
        before: The vchannels as the server described them; empty without a server.
        expected: Digests that the manifest has of vchannels, if the archive alone is read.
        broadcasts: Those that have not been acknowledged by all.
    """

    is_whole: bool
    floor: int = 0
    before: Mapping[str, VchannelDescription] = field(default_factory=dict)
    expected: Mapping[str, Digest] = field(default_factory=dict)
    broadcasts: Sequence[OpenBroadcast] = ()


def verify(
    spark: "SparkSession",
    options: SourceOptions,
    *,
    digest: str | None = None,
    content_digest: str | None = None,
    sequences: Sequences | None = None,
    on_progress: OnProgress | None = None,
) -> VerifyReport:
    """Read everything that ``options`` say, and return what is wrong with it.

    Args:
        spark: Runs the work.
        options: Those of the source; with ``archive`` log and archive are audited as one table, with ``archiveOnly``
            the archive alone.
        digest: What the full digest should be, if that is known.
        content_digest: The same of the content digest.
        sequences: Where producers number their messages.
        on_progress: See there.

    Raises:
        TidelogError: The server cannot be reached, or a channel does not exist. Damage is a finding, not an error.
        OptionError: An option is wrong; ``types`` is not allowed here.
        ValueError: A digest is none.
    """
    started = time.perf_counter()
    wanted = [(Digest.parse(text), name) for text, name in ((digest, "digest"), (content_digest, "content")) if text]
    read = parse_options({name: str(value) for name, value in options.items()})
    if read.types is not None:
        raise OptionError("an audit of some types would find gaps that are none: leave out the option 'types'")
    scope = _scope(read)
    partitions = plan_with_archive(read, Pushdown()) if read.archive else plan(read, Pushdown())
    with told(spark, "verifying", on_progress):
        if partitions:
            parts = _parts(spark, over_partitions(spark, partitions, _Check(sequences)))
            try:
                report = report_of(parts, is_whole=scope.is_whole, floor=scope.floor)
                missing = check_open_broadcasts(parts, scope.broadcasts)
            finally:
                parts.unpersist()
        else:
            report, missing = VerifyReport((), (), (), 0, 0, 0, Digests()), []
    more = [*missing, *_expected_findings(report, wanted), *_archive_findings(report, scope, partitions)]
    undecided = list(report.undecided)
    lanes = list(report.lanes)
    if not read.archive:
        lanes, different, moved = _compared(report, scope, read)
        more += different
        undecided += moved
    return replace(
        report, findings=[*report.findings, *more], undecided=undecided, lanes=lanes,
        seconds=time.perf_counter() - started,
    )  # fmt: skip


def verify_frame(frame: "DataFrame", *, is_whole: bool = False, sequences: Sequences | None = None) -> VerifyReport:
    """Audit any DataFrame with the columns of the source, ``txn_id`` and ``broadcast_id``, such as a copy of a log.

    Rows of a table have no order, so they are sorted first; ``is_whole`` says that all of each transaction is there.
    Each row becomes an object of Python, which takes much longer than ``verify``.
    """
    rows = frame.select(*COLUMNS).repartition("channel", "vchannel").sortWithinPartitions("channel", "vchannel", "tick")
    parts = _parts(frame.sparkSession, rows.rdd.mapPartitions(_CheckRows(sequences)))
    try:
        return report_of(parts, is_whole=is_whole)
    finally:
        parts.unpersist()


def report_of(parts: "DataFrame", *, is_whole: bool, floor: int = 0) -> VerifyReport:
    """Return what parts of all tasks tell together; see ``tidelog.spark.pipelines.checks``."""
    local = parts.where("kind IN ('lane', 'run', 'finding')").collect()
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
    lanes = _lanes([row for row in local if row.kind == "lane"])
    digests = Digests(
        Digest.total(Digest.parse(lane.digest) for lane in lanes),
        Digest.total(Digest.parse(lane.content_digest) for lane in lanes),
    )
    return VerifyReport(findings, undecided, lanes, transactions, broadcasts, producers, digests)


@dataclass(frozen=True)
class _Check:
    """What a task does with a partition of the log or of the archive."""

    sequences: Sequences | None

    def __call__(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, ReadPartition | ArchivePartition)
        check = PartitionCheck(self.sequences)
        # Of a file all columns, for each has checksums of its own; a batch of the log has one over all.
        names = () if isinstance(partition, ArchivePartition) else COLUMNS
        try:
            for batch in read_batches(partition, arrow_schema(*names)):
                yield from rows_of(check.add(batch))
        except (DataLossError, ArchiveError) as error:
            check.unreadable(partition.vchannel, error)
        yield from rows_of([check.finish()])


@dataclass(frozen=True)
class _CheckRows:
    """What a task does with rows of a DataFrame."""

    sequences: Sequences | None

    def __call__(self, rows: "Iterable[Row]") -> Iterator[tuple[Any, ...]]:
        return rows_of(check_batches(self._batches(iter(rows)), self.sequences))

    def _batches(self, rows: "Iterator[Row]") -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(*COLUMNS)
        while some := list(islice(rows, _ROWS)):
            columns = zip(*some, strict=True)
            yield pa.RecordBatch.from_arrays(
                [pa.array(_arrow_values(column), field.type) for column, field in zip(columns, schema, strict=True)],
                schema=schema,
            )


def _arrow_values(column: Sequence[Any]) -> Sequence[Any]:
    """Return a column with maps as Arrow takes them."""
    return [list(value.items()) for value in column] if isinstance(column[0], dict) else column


def _parts(spark: "SparkSession", rows: "RDD[tuple[Any, ...]]") -> "DataFrame":
    """Return the parts that tasks yield, which are computed once."""
    return spark.createDataFrame(rows, PARTS, verifySchema=False).persist(StorageLevel.DISK_ONLY)


def _scope(read: ReadOptions) -> _Scope:
    before: dict[str, VchannelDescription] = {}
    broadcasts: list[OpenBroadcast] = []
    if not read.archive_only:
        with Owners(read.connection) as owners:
            described = describe(owners, read)[0]
            for client, part in owners.by_node(described):
                broadcasts += _open_broadcasts(client, {lane.name: lane for lane in part}, read)
            before = {lane.name: lane for lane in described}
    floor = read.begin_tick
    expected: dict[str, Digest] = {}
    if read.archive:
        lanes = manifest.load(read.archive).lanes
        floor = max([floor, *(lane.begin_tick for lane in lanes.values() if lane.begin_tick > lane.created_tick)])
        if read.archive_only and not (read.begin_tick or read.end_tick):
            expected = _archived_digests(lanes)
    else:
        floor = max([floor, *(int(lane.trim_tick) for lane in before.values())])
    is_whole = read.pattern is not None and read.pattern.text == _EVERYTHING
    return _Scope(is_whole, floor, before, expected, broadcasts)


def _archived_digests(lanes: Mapping[str, ArchivedLane]) -> dict[str, Digest]:
    """Return what the manifest says of each vchannel of which all lies before the cut of any read."""
    cut = min((lane.end_tick for lane in lanes.values()), default=0)
    return {
        name: Digest.total(Digest.parse(file.digest) for file in lane.files)
        for name, lane in lanes.items()
        if all(file.last_tick < cut for file in lane.files[-1:])
    }


def _open_broadcasts(
    client: Client, lanes: Mapping[str, VchannelDescription], read: ReadOptions
) -> Iterator[OpenBroadcast]:
    """Yield what the server still knows the vchannels of, as far as it must be among what is read."""
    for summary in client.list_broadcasts():
        tick = int(summary.tick)
        if not tick or tick < read.begin_tick or (read.end_tick and tick >= read.end_tick):
            continue
        described = client.describe_broadcast(summary.broadcast_id)
        there = [name for name in (*described.acked, *described.missing) if name in lanes]
        wanted = [name for name in there if read.archive or lanes[name].trim_tick <= tick]
        yield OpenBroadcast(summary.broadcast_id, tick, frozenset(wanted))


def _lanes(rows: Sequence["Row"]) -> list[LaneReport]:
    by_name: dict[str, list[Any]] = {}
    for row in rows:
        by_name.setdefault(row.name, []).append((row, json.loads(row.more)))
    return [
        LaneReport(
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


def _overlaps(runs: Sequence["Row"]) -> Iterator[Finding]:
    """Yield a finding for each two runs of a vchannel that overlap: then a tick is there twice, or out of order."""
    for before, behind in pairwise(sorted(runs, key=lambda run: (run.name, run.a, run.b))):
        if before.name == behind.name and behind.a <= before.b:
            text = f"ticks {before.a} to {before.b} and {behind.a} to {behind.b} were read apart and overlap"
            yield Finding("overlap", before.name, behind.a, text)


def _expected_findings(report: VerifyReport, wanted: Sequence[tuple[Digest, str]]) -> Iterator[Finding]:
    for expected, name in wanted:
        found = report.digests.full if name == "digest" else report.digests.content
        if found != expected:
            yield Finding("digest", "", 0, f"the {name} digest is {found}, and {expected} was expected")


def _archive_findings(report: VerifyReport, scope: _Scope, partitions: Sequence[InputPartition]) -> Iterator[Finding]:
    """Yield a finding for each vchannel that is not what the manifest says, if the archive alone was read."""
    found = {lane.vchannel: lane.digest for lane in report.lanes}
    for name in sorted({each.vchannel for each in partitions if isinstance(each, ArchivePartition)}):
        expected, there = scope.expected.get(name), found.get(name, str(Digest()))
        if expected is not None and there != str(expected):
            text = f"the digest of what the archive has is {there}, and its manifest says {expected}"
            yield Finding("archive", name, 0, text)


def _compared(
    report: VerifyReport, scope: _Scope, read: ReadOptions
) -> tuple[list[LaneReport], list[Finding], list[str]]:
    """Return the lanes with what the server says of them, what differs, and what changed meanwhile."""
    if read.begin_tick or read.end_tick:
        return list(report.lanes), [], ["the server's counts: only a part was read"]
    with Owners(read.connection) as owners:
        after = {lane.name: lane for lane in describe(owners, read)[0]}
    counted = {lane.vchannel: lane for lane in report.lanes}
    lanes, findings, moved = [], [], []
    for name, before in sorted(scope.before.items()):
        lane = counted.get(name) or LaneReport(name, 0, 0, 0, 0, str(Digest()), str(Digest()))
        if after.get(name) != before:
            moved.append(name)
            lanes.append(lane)
            continue
        lanes.append(replace(lane, described=before.messages))
        if lane.messages != before.messages:
            text = f"{lane.messages} messages were read, and the server says that there are {before.messages}"
            findings.append(Finding("count", name, lane.first_tick, text))
    undecided = [f"the server's counts: written or trimmed meanwhile: {', '.join(moved[:10])}"] if moved else []
    return lanes, findings, undecided
