"""The latest message of each key, as of a tick, as Parquet: ``compact``."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pyspark.errors import PySparkException

from tidelog.spark import manifest
from tidelog.spark.options import parse_options
from tidelog.spark.pipelines.cuts import Cut, fix_cut
from tidelog.spark.pipelines.tasks import ALL_COLUMNS, OnProgress, SourceOptions, load_frame, told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Tombstones = Literal["drop", "keep"]
Unkeyed = Literal["error", "keep", "drop"]

_NOTE: Final = "_tidelog.json"
# Not tick=N: Spark would read a folder above as a table with a column of that name, in place of the messages' own.
_PREFIX: Final = "snapshot-"
_SNAPSHOT: Final = re.compile(rf"{_PREFIX}\d+")
_COLUMNS: Final = tuple(ALL_COLUMNS.names)
_MARK: Final = "a message without a key"


class CompactError(RuntimeError):
    """A snapshot cannot be made, or one that is there was made otherwise; the message says what to do."""


class UnkeyedError(CompactError):
    """There is a message without a key, and nothing was said of such messages."""

    def __init__(self, keep: str = "unkeyed='keep'", drop: str = "unkeyed='drop'") -> None:
        """Take the words in which a caller says what becomes of them: those of Python, if nothing is given."""
        super().__init__(
            f"there is {_MARK}, which cannot be compacted: say {keep} to have all of them in the snapshot, or {drop} "
            "to leave them out"
        )


@dataclass(frozen=True, slots=True)
class CompactResult:
    """A snapshot.

    Attributes:
        tick: It is the state as of this tick, inclusive.
        path: Its folder: Parquet files and ``_SUCCESS``.
        rows: How many it has.
        written: Whether this run made it; else it was there.
    """

    tick: int
    path: str
    rows: int
    written: bool

    def as_record(self) -> dict[str, object]:
        """Return it as values that JSON has."""
        return asdict(self)


def compact(
    spark: "SparkSession",
    output: str | Path,
    options: SourceOptions,
    *,
    tombstones: Tombstones = "drop",
    unkeyed: Unkeyed = "error",
    on_progress: OnProgress | None = None,
) -> CompactResult:
    """Write the latest message of each channel and key to a folder of ``output`` that is named by the tick.

    A snapshot that is there is left as it is: run it again with the same ``asOfTick`` and nothing happens. So it is
    without one, if nothing came since the last snapshot that was made with the same options: that is returned.

    Args:
        spark: Runs the work.
        output: Folder of snapshots; all executors reach it under the same path.
        options: Those of the source; as of now unless ``asOfTick`` or ``timestampAsOf`` says otherwise.
        tombstones: A message with a key and an empty payload deletes the key: ``drop`` leaves such keys out, ``keep``
            has the message itself.
        unkeyed: What becomes of messages without a key: ``error`` fails, ``keep`` has them all, ``drop`` none.
        on_progress: See there.

    Raises:
        UnkeyedError: There is a message without a key and nothing was said of them.
        CompactError: The snapshot of this tick that is there was made with other options, or ``output`` is a folder of
            something else.
        OptionError: An option is wrong, or ``output`` is no folder of a file system.
        ArchiveError: There is no archive.
        TidelogError: The server cannot be reached, a channel does not exist, or the cut lies in the future.
    """
    snapshots = folder_of_snapshots(output)
    cut = fix_cut(options)
    read = parse_options(cut.options)
    made = {
        # Another channel of the same name has other messages at the same ticks.
        "vchannels": dict(cut.lanes),
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
    with told(spark, "compacting", on_progress):
        frame = latest(load_frame(spark, cut.options, *_COLUMNS), tombstones=tombstones, unkeyed=unkeyed)
        try:
            # Spark writes _SUCCESS when all is there; what a run that died left is overwritten.
            frame.write.mode("overwrite").parquet(str(folder))
        except PySparkException as error:
            if _MARK in str(error):
                raise UnkeyedError from None
            raise
        rows = spark.read.parquet(str(folder)).count()
    _make_durable(folder)
    _note(folder, {"tick": tick, **made, "rows": rows})
    return CompactResult(tick, str(folder), rows, written=True)


def folder_of_snapshots(output: str | Path) -> Path:
    """Return the absolute path of a folder that has snapshots, or nothing.

    Raises:
        CompactError: It has something else.
        OptionError: It is no folder of a file system.
    """
    folder = manifest.folder_path(output)
    others = manifest.entries_of(folder)
    if others and not _folders(folder):
        raise CompactError(
            f"{folder} is not empty, and has no snapshots: it has {others}, and no folder '{_PREFIX}...'. Name a "
            "folder of snapshots, or an empty or new one"
        )
    return folder


def latest(frame: "DataFrame", *, tombstones: Tombstones = "drop", unkeyed: Unkeyed = "error") -> "DataFrame":
    """Return the latest row of each channel and key of any DataFrame with ``channel``, ``tick``, ``key``, ``payload``.

    With ``unkeyed="error"``, whatever is done with the rows fails if one has no key.
    """
    from pyspark.sql import functions as F

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
    """Return the snapshot of a tick that is there; None if there is none.

    Raises:
        CompactError: It was made otherwise than ``made``.
    """
    folder = snapshots / f"{_PREFIX}{tick}"
    noted = _noted(folder)
    if noted is None:
        return None
    different = [name for name in made if noted.get(name) != made[name]]
    if different:
        raise CompactError(
            f"{folder} is a snapshot of this tick with other {', '.join(different)}: choose another folder, or remove "
            "it"
        )
    return CompactResult(tick, str(folder), noted["rows"], written=False)


def _snapshot_since(snapshots: Path, cut: Cut, made: Mapping[str, object]) -> CompactResult | None:
    """Return the newest snapshot that was made as ``made`` says and since when nothing changed; None for none."""
    ticks = [int(path.name.removeprefix(_PREFIX)) for path in _folders(snapshots)]
    for tick in sorted(ticks, reverse=True):
        if cut.changed_tick <= tick <= cut.tick:
            noted = _noted(snapshots / f"{_PREFIX}{tick}")
            if noted is not None and all(noted.get(name) == made[name] for name in made):
                return CompactResult(tick, str(snapshots / f"{_PREFIX}{tick}"), noted["rows"], written=False)
    return None


def _folders(snapshots: Path) -> list[Path]:
    there = snapshots.iterdir() if snapshots.is_dir() else ()
    return [path for path in there if _SNAPSHOT.fullmatch(path.name) and path.is_dir()]


def _noted(folder: Path) -> dict[str, Any] | None:
    """Return what a snapshot says of itself; None if there is none, or a part of one."""
    note = folder / _NOTE
    if not note.is_file() or not (folder / "_SUCCESS").is_file():
        return None
    noted: dict[str, Any] = json.loads(note.read_text())
    return noted


def _make_durable(folder: Path) -> None:
    """Make what Spark wrote to a folder durable, which it does not do itself."""
    for path in folder.iterdir():
        with path.open("rb") as written:
            os.fsync(written.fileno())
    for each in (folder, folder.parent, folder.parent.parent):
        manifest.sync_folder(each)


def _note(folder: Path, values: dict[str, object]) -> None:
    """Note what the snapshot is, last of all: without it, the snapshot is made anew."""
    temporary = folder / f"{_NOTE}.new"
    with temporary.open("w") as file:
        json.dump(values, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / _NOTE)
    manifest.sync_folder(folder)
