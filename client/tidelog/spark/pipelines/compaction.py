"""The latest message of each key, as of a tick, as Parquet: ``compact``."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelog.spark.archive import manifest
from tidelog.spark.options import parse_options
from tidelog.spark.pipelines.fixed_cut import FixedCut, fix_cut
from tidelog.spark.pipelines.tasks import ALL_COLUMNS, OnProgress, SourceOptions, load_frame, reporting

Tombstones = Literal["drop", "keep"]
Unkeyed = Literal["error", "keep", "drop"]

_METADATA: Final = "_tidelog.json"
# Why not tick=N: Spark would read the parent folder as a table partitioned by `tick`, which hides the messages' column.
_PREFIX: Final = "snapshot-"
_SNAPSHOT: Final = re.compile(rf"{_PREFIX}\d+")
_COLUMNS: Final = tuple(ALL_COLUMNS.names)
_MARK: Final = "a message without a key"


class CompactError(RuntimeError):
    """A snapshot cannot be written, or the existing one has other options; the message says what to do."""


class UnkeyedError(CompactError):
    """There is a message without a key, and ``unkeyed`` is ``error``."""

    def __init__(self, keep: str = "unkeyed='keep'", drop: str = "unkeyed='drop'") -> None:
        """Name the options ``keep`` and ``drop`` in the message; by default as Python arguments."""
        super().__init__(
            f"there is {_MARK}, which cannot be compacted: use {keep} to include all such messages in the snapshot, or "
            f"{drop} to exclude them"
        )


@dataclass(frozen=True, slots=True)
class CompactResult:
    """A snapshot.

    Attributes:
        tick: The snapshot is as of this tick, inclusive.
        path: Folder with Parquet files and ``_SUCCESS``.
        rows: Number of rows.
        written: True if this run wrote it; False if it already existed.
    """

    tick: int
    path: str
    rows: int
    written: bool

    def as_record(self) -> dict[str, object]:
        """Return the result as JSON values."""
        return asdict(self)


def compact(
    spark: SparkSession,
    output: str | Path,
    options: SourceOptions,
    *,
    tombstones: Tombstones = "drop",
    unkeyed: Unkeyed = "error",
    on_progress: OnProgress | None = None,
) -> CompactResult:
    """Write the latest message of each channel and key to a folder below ``output``, named by the tick.

    Idempotent: an existing snapshot of the same tick and options is returned unchanged. Without ``asOfTick`` or
    ``timestampAsOf``, the newest snapshot of the same options is returned if nothing changed since then.

    Args:
        spark: Session that runs the job.
        output: Folder of snapshots; all executors must reach it under the same path.
        options: Options of the source; as of now without ``asOfTick`` and ``timestampAsOf``.
        tombstones: A message with a key and an empty payload deletes the key: ``drop`` excludes such keys, ``keep``
            includes the message.
        unkeyed: Handling of messages without a key: ``error`` fails, ``keep`` includes all, ``drop`` excludes all.
        on_progress: See ``OnProgress``.

    Raises:
        UnkeyedError: There is a message without a key, and ``unkeyed`` is ``error``.
        CompactError: The snapshot of this tick exists with other options, or ``output`` has other files but no
            snapshot.
        OptionError: An option is invalid, or ``output`` is not a file system path.
        ArchiveError: The archive does not exist.
        TidelogError: The server cannot be reached, a channel does not exist, or the cut lies in the future.
    """
    snapshots = folder_of_snapshots(output)
    cut = fix_cut(options)
    read = parse_options(cut.options)
    made = {
        # With creation ticks: a re-created channel has other messages at the same ticks.
        "vchannels": dict(cut.vchannels),
        "tombstones": tombstones,
        "unkeyed": unkeyed,
        "begin_tick": read.begin_tick,
        "types": sorted(read.types) if read.types is not None else None,
        "archive": read.archive,
        "archive_only": read.archive_only,
    }
    unchanged = None if cut.is_named else _snapshot_since(snapshots, cut, made)
    there = unchanged or _snapshot_at(snapshots, cut.tick, made)
    if there is not None:
        return there
    tick, folder = cut.tick, snapshots / f"{_PREFIX}{cut.tick}"
    with reporting(spark, "compacting", on_progress):
        frame = latest(load_frame(spark, cut.options, *_COLUMNS), tombstones=tombstones, unkeyed=unkeyed)
        try:
            # Spark writes _SUCCESS last. The files of a run that died are overwritten.
            frame.write.mode("overwrite").parquet(str(folder))
        except PySparkException as error:
            if _MARK in str(error):
                raise UnkeyedError from None
            raise
        rows = spark.read.parquet(str(folder)).count()
    _make_durable(folder)
    _write_metadata(folder, {"tick": tick, **made, "rows": rows})
    return CompactResult(tick, str(folder), rows, written=True)


def folder_of_snapshots(output: str | Path) -> Path:
    """Return the absolute path of a folder of snapshots, or of an empty or new folder.

    Raises:
        CompactError: The folder has other files, but no snapshot.
        OptionError: ``output`` is not a file system path.
    """
    folder = manifest.folder_path(output)
    others = manifest.entries_of(folder)
    if others and not _folders(folder):
        raise CompactError(
            f"{folder} is not empty and has no snapshots: it has {others}, but no folder '{_PREFIX}...'. Use a "
            "folder of snapshots, or an empty or new one"
        )
    return folder


def latest(frame: DataFrame, *, tombstones: Tombstones = "drop", unkeyed: Unkeyed = "error") -> DataFrame:
    """Return the latest row of each channel and key of any DataFrame with ``channel``, ``tick``, ``key``, ``payload``.

    With ``unkeyed="error"``, every action on the result fails if a row has no key.
    """
    names = frame.columns
    keyed = frame.where("key IS NOT NULL")
    if unkeyed == "error":
        keyed = frame.where(
            F.coalesce(F.col("key").isNotNull(), F.lit(False)) | F.raise_error(F.lit(_MARK)).isNotNull()
        )
    # A broadcast has one tick on several vchannels.
    order = F.struct("tick", *(["vchannel"] if "vchannel" in names else []))
    rows = keyed.groupBy("channel", "key").agg(F.max_by(F.struct(*names), order).alias("latest")).select("latest.*")
    if tombstones == "drop":
        rows = rows.where("octet_length(payload) > 0")
    return rows.unionByName(frame.where("key IS NULL")) if unkeyed == "keep" else rows


def _snapshot_at(snapshots: Path, tick: int, made: Mapping[str, object]) -> CompactResult | None:
    """Return the existing snapshot of a tick, or None.

    Raises:
        CompactError: Its options differ from ``made``.
    """
    folder = snapshots / f"{_PREFIX}{tick}"
    metadata = _metadata_of(folder)
    if metadata is None:
        return None
    different = [name for name in made if metadata.get(name) != made[name]]
    if different:
        raise CompactError(
            f"{folder} is a snapshot of this tick with other values of {', '.join(different)}: use another folder, or "
            "remove it"
        )
    return CompactResult(tick, str(folder), metadata["rows"], written=False)


def _snapshot_since(snapshots: Path, cut: FixedCut, made: Mapping[str, object]) -> CompactResult | None:
    """Return the newest snapshot with the options ``made`` if nothing changed since then, or None."""
    ticks = [int(path.name.removeprefix(_PREFIX)) for path in _folders(snapshots)]
    for tick in sorted(ticks, reverse=True):
        if cut.changed_tick <= tick <= cut.tick:
            metadata = _metadata_of(snapshots / f"{_PREFIX}{tick}")
            if metadata is not None and all(metadata.get(name) == made[name] for name in made):
                return CompactResult(tick, str(snapshots / f"{_PREFIX}{tick}"), metadata["rows"], written=False)
    return None


def _folders(snapshots: Path) -> list[Path]:
    there = snapshots.iterdir() if snapshots.is_dir() else ()
    return [path for path in there if _SNAPSHOT.fullmatch(path.name) and path.is_dir()]


def _metadata_of(folder: Path) -> dict[str, Any] | None:
    """Return the metadata of a snapshot; None if it does not exist or is incomplete."""
    file = folder / _METADATA
    if not file.is_file() or not (folder / "_SUCCESS").is_file():
        return None
    metadata: dict[str, Any] = json.loads(file.read_text())
    return metadata


def _make_durable(folder: Path) -> None:
    """Sync the files that Spark wrote to a folder, which Spark does not do."""
    for each in (*folder.iterdir(), folder, folder.parent, folder.parent.parent):
        manifest.sync(each)


def _write_metadata(folder: Path, values: dict[str, object]) -> None:
    """Persist the snapshot's metadata. Ordering: written last, because a snapshot without it is rewritten."""
    temporary = folder / f"{_METADATA}.new"
    with temporary.open("w") as file:
        json.dump(values, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / _METADATA)
    manifest.sync(folder)
