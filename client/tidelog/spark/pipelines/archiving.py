"""Archive channels to Parquet, each message once: ``archive``.

A run takes a consistent cut over all its channels, writes the messages since the previous run to new files, and adds
one commit that names them (``tidelog.spark.archive.manifest``). Readers see the files only after the commit: a run that
dies leaves orphan files, which the next run removes.
"""

import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tidelog import ChannelDescription, VchannelDescription
from tidelog.spark.archive import manifest
from tidelog.spark.archive.manifest import Archive, ArchivedFile, ArchivedRange, Commit
from tidelog.spark.archive.plan import begin_behind, check_channels, plan_from
from tidelog.spark.errors import ArchiveError, OptionError
from tidelog.spark.names import channel_of
from tidelog.spark.options import ReadOptions, parse_options
from tidelog.spark.owners import Owners
from tidelog.spark.patience import patiently
from tidelog.spark.payload_options import AS_THEY_ARE
from tidelog.spark.pipelines.digest import Digests, digest_batch
from tidelog.spark.pipelines.tasks import OnProgress, SourceOptions, arrow_schema, over_partitions, reporting
from tidelog.spark.pipelines.trim import Trimmed, trim_archived
from tidelog.spark.read.partition import Partition, ReadPartition
from tidelog.spark.read.plan import created_ticks, cut_of, describe, sizes_of, until_known
from tidelog.spark.read.pushdown import Pushdown

_ATTEMPTS: Final = "attempts"
_FILE_NAME: Final = re.compile(r"\d{20}-([0-9a-f]{32})-[0-9a-f]{8}\.parquet")
# A row group is the unit that a reader loads; a file is the unit that it may skip.
_GROUP_BYTES: Final = 64 << 20
_GROUP_ROWS: Final = 1 << 20
_FILE_BYTES: Final = 512 << 20
# Columns with few distinct values. For payloads a dictionary costs time and saves no space.
_DICTIONARIES: Final = ["channel", "vchannel", "type"]


@dataclass(frozen=True, slots=True)
class ArchiveTotals:
    """Totals of one run, or of a whole archive.

    Attributes:
        commit: Number of the last commit; 0 for an empty archive.
        messages, bytes, files: Number of messages, total size of the files, number of files.
        digests: Digests of the messages.
    """

    commit: int
    messages: int
    bytes: int
    files: int
    digests: Digests

    def as_record(self) -> dict[str, object]:
        """Return the totals as JSON values, with the names of a run's record."""
        return {
            "commit": self.commit,
            "messages": self.messages,
            "files": self.files,
            "bytes": self.bytes,
            "digest": str(self.digests.full),
            "content_digest": str(self.digests.content),
        }


@dataclass(frozen=True, slots=True)
class ArchiveResult(ArchiveTotals):
    """The totals of what a run added, and of the archive after it; ``commit`` is 0 if there was nothing to archive.

    Attributes:
        end_ticks: End of the archive by vchannel: everything below is archived.
        removed_files: Number of removed files of runs that died.
        archive: Totals of the archive.
        delta_version: Version of the Delta table, which is up to date; None if the archive has no Delta table.
        trimmed: Result of the trim, by vchannel; empty without ``trim``.
        seconds: Duration of the run.
    """

    end_ticks: Mapping[str, int]
    removed_files: int
    archive: ArchiveTotals
    delta_version: int | None = None
    trimmed: Mapping[str, Trimmed] = field(default_factory=dict)
    seconds: float = 0.0

    def as_record(self) -> dict[str, object]:
        """Return the result as JSON values."""
        return {
            **ArchiveTotals.as_record(self),
            "removed_files": self.removed_files,
            "archive": self.archive.as_record(),
            "delta_version": self.delta_version,
            "trimmed": {name: vchannel.as_record() for name, vchannel in self.trimmed.items()},
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True)
class StagedRun:
    """The written but uncommitted part of a run.

    Attributes:
        run: Id of the run.
        ranges: Range to add, by vchannel.
        files: Written files, which are durable.
    """

    run: str
    ranges: Mapping[str, ArchivedRange]
    files: Sequence[ArchivedFile]


def archive(
    spark: SparkSession,
    root: str | Path,
    options: SourceOptions,
    *,
    trim: bool = False,
    delta: bool = False,
    on_progress: OnProgress | None = None,
) -> ArchiveResult:
    """Add the messages that the channels of ``options`` received since the last run to the archive at ``root``.

    Args:
        spark: Session that runs the job; all its executors must reach ``root`` under the same path.
        root: Folder of the archive; created if it does not exist.
        options: Options of the source: the connection, and ``channel``, ``channels``, ``channelPattern`` or
            ``vchannels``. With ``failOnDataLoss=false`` a run continues if messages were trimmed before they were
            archived, and records the gap.
        trim: Trim the archived messages from the log afterwards, after verifying their files.
        delta: Create a Delta table of the archive's files, in ``<root>/_delta_log``. Once it exists, every run adds to
            it, with or without this.
        on_progress: See ``OnProgress``.

    Raises:
        ArchiveError: Another run is writing, the archive is of other channels, or messages were lost. Or there is a
            Delta table that is not of this archive, or the extra ``delta`` is not installed.
        TidelogError: The server cannot be reached, or a channel does not exist.
        OptionError: An option is invalid, or would exclude messages; or ``root`` is not a file system path.
    """
    started = time.perf_counter()
    read = archive_options(options)
    folder = manifest.folder_path(root)
    with manifest.writing(folder):
        there = manifest.load(folder, must_exist=False)
        publish = delta_publisher(there, is_wanted=delta)
        removed = remove_orphans(there)
        staged = stage(spark, there, read, on_progress)
        if staged.files:
            check_still_there(staged, read)
            commit(there, staged)
            there = manifest.load(folder)
        # Includes commits of runs that died before this step. Ordering: before anything is trimmed.
        version = publish(there) if publish and there.last_commit else None
        trimmed = trim_archived(spark, there, read, on_progress) if trim else {}
    return ArchiveResult(
        there.last_commit if staged.files else 0,
        *_counted(staged.files),
        end_ticks={name: there.vchannels[name].end_tick for name in staged.ranges if name in there.vchannels},
        removed_files=removed,
        archive=ArchiveTotals(there.last_commit, *_counted(there.files)),
        delta_version=version,
        trimmed=trimmed,
        seconds=time.perf_counter() - started,
    )


def archive_options(options: SourceOptions) -> ReadOptions:
    """Parse the options of a run. Raises OptionError if one is invalid, or would exclude messages."""
    read = parse_options(options)
    if read.begin_tick or read.end_tick or read.types is not None or read.archive:
        raise OptionError(
            "an archive has all messages of its channels: remove the options that begin with 'starting' and 'ending', "
            "'asOfTick', 'timestampAsOf', 'types' and 'archive'"
        )
    return read


def stage(spark: SparkSession, there: Archive, read: ReadOptions, on_progress: OnProgress | None = None) -> StagedRun:
    """Write unarchived messages to files, without a commit. The caller must hold ``manifest.writing``."""
    run = uuid.uuid4().hex
    ranges, partitions = _plan(there, read)
    if not partitions:
        return StagedRun(run, ranges, ())
    _record_attempt(there.root, run)
    for vchannel in {partition.vchannel for partition in partitions}:
        manifest.make_folder(there.root / manifest.vchannel_folder(vchannel))
    with reporting(spark, "archiving", on_progress):
        rows = over_partitions(spark, partitions, partial(_write, there.root, run)).collect()
    files = [ArchivedFile(*row) for row in rows]
    return StagedRun(run, ranges, sorted(files, key=lambda file: (file.vchannel, file.first_tick)))


def check_still_there(staged: StagedRun, read: ReadOptions) -> None:
    """Raise ArchiveError if a channel that was read was destroyed and re-created meanwhile.

    Each task has read the planned channel, or failed. But an archive of a destroyed channel cannot be continued.
    """
    names = sorted({channel_of(vchannel) for vchannel in staged.ranges})

    def look() -> Mapping[str, int]:
        with Owners(read.connection) as owners:
            return created_ticks(owners.describe(names, ignore_missing=True))

    created = patiently(read.connection, lambda: until_known(look))
    for vchannel, added in staged.ranges.items():
        channel = channel_of(vchannel)
        if created.get(channel, added.created_tick) != added.created_tick:
            raise ArchiveError(
                f"the channel '{channel}' was destroyed while it was archived, and re-created at tick "
                f"{created[channel]}: nothing was committed; archive the new channel to another folder"
            )


def commit(there: Archive, staged: StagedRun) -> Commit:
    """Add the staged files to the archive, atomically.

    Raises:
        ArchiveError: A file is missing or has another size, or another commit was added meanwhile.
    """
    for file in staged.files:
        path = there.root / file.path
        if not path.is_file() or path.stat().st_size != file.bytes:
            raise ArchiveError(f"{path} is missing, or not as it was written: nothing was committed; run again")
    added = Commit(
        number=there.last_commit + 1,
        run=staged.run,
        time=datetime.now(UTC).isoformat(timespec="milliseconds"),
        ranges=staged.ranges,
        files=staged.files,
    )
    # Validates the ranges and files before they are persisted.
    manifest.fold(there.root, [*_commits(there), added])
    manifest.append(there.root, added)
    # Files of failed tasks of this run.
    remove_orphans(manifest.load(there.root))
    return added


def remove_orphans(there: Archive) -> int:
    """Remove the files of runs that started and never committed, and return their number.

    Removes only files of recorded runs; other files may belong to another program. The caller must hold
    ``manifest.writing``, so none of these runs is alive.
    """
    attempts = {path.name: path for path in (there.root / manifest.FOLDER / _ATTEMPTS).glob("*") if path.is_file()}
    if not attempts:
        return 0
    known = {there.root / file.path for file in there.files}
    removed = 0
    for path in (there.root / manifest.DATA).glob("channel=*/vchannel=*/*.parquet"):
        name = _FILE_NAME.fullmatch(path.name)
        if name and name[1] in attempts and path not in known:
            path.unlink()
            removed += 1
    for path in attempts.values():
        path.unlink()
    return removed


def delta_publisher(there: Archive, *, is_wanted: bool) -> Callable[[Archive], int] | None:
    """Return the function that publishes to the archive's Delta table; None if there is no table and none is wanted."""
    # An existing table is always updated: readers would take a stale one for the archive, and miss messages silently.
    if not is_wanted and not (there.root / manifest.DELTA_LOG).is_dir():
        return None
    from tidelog.spark.pipelines.delta import check_table, publish

    check_table(there)
    return publish


def _plan(there: Archive, read: ReadOptions) -> tuple[dict[str, ArchivedRange], list[ReadPartition]]:
    """Return the ranges that a commit would add, by vchannel, and the partitions of the log to read."""

    def look() -> tuple[list[VchannelDescription], list[ChannelDescription], int]:
        with Owners(read.connection) as owners:
            vchannels, channels = describe(owners, read)
            check_channels(there, channels)
            return vchannels, channels, cut_of(owners, vchannels, sizes=sizes_of(read, channels))

    vchannels, channels, end_tick = patiently(read.connection, lambda: until_known(look))
    created = created_ticks(channels)
    ranges, begins = {}, {}
    for each in vchannels:
        ranges[each.name] = _range(there, each, end_tick, created[channel_of(each.name)], read)
        begins[each.name] = max(ranges[each.name].begin_tick, int(each.trim_tick))
    # A trim after planning is always an error, because the ranges do not include it.
    return ranges, plan_from(begins, end_tick, replace(read, fail_on_data_loss=True), Pushdown())


def _range(
    there: Archive, vchannel: VchannelDescription, end_tick: int, created_tick: int, read: ReadOptions
) -> ArchivedRange:
    archived = there.vchannels.get(vchannel.name)
    if archived is None:
        # The creation tick is less than that of any message. Why not 0: the plan would not notice a concurrent trim.
        return ArchivedRange(max(int(vchannel.trim_tick), created_tick), end_tick, created_tick)
    if vchannel.trim_tick <= begin_behind(vchannel, archived.end_tick):
        return ArchivedRange(archived.end_tick, end_tick, created_tick)
    if read.fail_on_data_loss:
        raise ArchiveError(
            f"{vchannel.name} was trimmed up to tick {vchannel.trim_tick}, but the archive ends before "
            f"{archived.end_tick}: the messages between are lost. Set the option failOnDataLoss to false to archive "
            "the remaining ones"
        )
    return ArchivedRange(int(vchannel.trim_tick), end_tick, created_tick, int(vchannel.trim_tick))


def _counted(files: Sequence[ArchivedFile]) -> tuple[int, int, int, Digests]:
    """Return messages, bytes, files and digests."""
    digests = Digests.of((file.digest, file.content_digest) for file in files)
    return sum(file.messages for file in files), sum(file.bytes for file in files), len(files), digests


def _commits(there: Archive) -> Iterator[Commit]:
    """Yield one commit with the ranges of a whole archive, against which a new commit can be validated."""
    if there.vchannels:
        ranges = {
            name: ArchivedRange(vchannel.begin_tick, vchannel.end_tick, vchannel.created_tick)
            for name, vchannel in there.vchannels.items()
        }
        yield Commit(there.last_commit, "", "", ranges, ())


def _record_attempt(root: Path, run: str) -> None:
    folder = root / manifest.FOLDER / _ATTEMPTS
    manifest.make_folder(folder)
    (folder / run).touch()
    manifest.sync(folder)


def _write(root: Path, run: str, partition: Partition) -> Iterator[tuple[Any, ...]]:
    """Write one partition of the log to files, and yield their records; the work of one task."""
    writer = _Writer(root, run, partition.vchannel)
    for batch in partition.read(arrow_schema(), AS_THEY_ARE):
        writer.add(batch)
        if writer.size_bytes >= _FILE_BYTES:
            yield astuple(writer.finish())
    if writer.messages:
        yield astuple(writer.finish())


class _Writer:
    """Writes rows of one vchannel, which come in tick order, to consecutive files."""

    def __init__(self, root: Path, run: str, vchannel: str) -> None:
        self._root = root
        self._run = run
        self._vchannel = vchannel
        self._file: pq.ParquetWriter | None = None
        self._begin()

    def _begin(self) -> None:
        self._group: list[pa.RecordBatch] = []
        self._group_rows = self._group_bytes = 0
        self._digests = Digests()
        self._first_tick = self._last_tick = 0
        self.messages = self.size_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Write the rows of ``batch``, which is not empty."""
        ticks = batch.column("tick")
        if not self.messages:
            self._first_tick = ticks[0].as_py()
        self._last_tick = ticks[-1].as_py()
        self._digests = self._digests.plus(digest_batch(batch))
        self.messages += batch.num_rows
        self._group.append(batch)
        self._group_rows += batch.num_rows
        self._group_bytes += batch.nbytes
        if self._group_rows >= _GROUP_ROWS or self._group_bytes >= _GROUP_BYTES:
            self._write_group()

    def finish(self) -> ArchivedFile:
        """Sync the file and return its record; further rows start a new file."""
        self._write_group()
        assert self._file is not None
        self._file.close()
        self._file = None
        manifest.sync(self._path)
        manifest.sync(self._path.parent)
        file = ArchivedFile(
            path=str(self._path.relative_to(self._root)),
            vchannel=self._vchannel,
            first_tick=self._first_tick,
            last_tick=self._last_tick,
            messages=self.messages,
            bytes=self._path.stat().st_size,
            digest=str(self._digests.full),
            content_digest=str(self._digests.content),
        )
        self._begin()
        return file

    def _write_group(self) -> None:
        if not self._group:
            return
        if self._file is None:
            # Unique per attempt of a task, so that two attempts never write to the same file.
            name = f"{self._first_tick:020d}-{self._run}-{uuid.uuid4().hex[:8]}.parquet"
            self._path = self._root / manifest.vchannel_folder(self._vchannel) / name
            self._file = pq.ParquetWriter(
                self._path, self._group[0].schema, compression="zstd", use_dictionary=_DICTIONARIES,
                write_page_checksum=True,
            )  # fmt: skip
        self._file.write_table(pa.Table.from_batches(self._group), row_group_size=_GROUP_ROWS)
        self.size_bytes += self._group_bytes
        self._group = []
        self._group_rows = self._group_bytes = 0
