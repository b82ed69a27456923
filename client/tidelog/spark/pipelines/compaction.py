"""The latest message of each key, as of a tick, as Parquet: ``compact``."""

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pyspark.errors import PySparkException

from tidelog.spark import manifest
from tidelog.spark.names import channel_of, parts_of
from tidelog.spark.options import ReadOptions, parse_options
from tidelog.spark.owners import Owners
from tidelog.spark.pipelines.tasks import ALL_COLUMNS, OnProgress, SourceOptions, load_frame, told
from tidelog.spark.plan import cut_of, describe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Tombstones = Literal["drop", "keep"]
Unkeyed = Literal["error", "keep", "drop"]

_NOTE: Final = "_tidelog.json"
_SNAPSHOT: Final = re.compile(r"tick=\d+")
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

    A snapshot that is there is left as it is: run it again with the same ``asOfTick`` and nothing happens.

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
        TidelogError: The server cannot be reached, or a channel does not exist.
    """
    snapshots = folder_of_snapshots(output)
    texts = {name: str(value) for name, value in options.items()}
    read = parse_options(texts)
    tick, lanes = _cut(read)
    folder = snapshots / f"tick={tick}"
    made = {
        "tick": tick,
        "vchannels": lanes,
        "tombstones": tombstones,
        "unkeyed": unkeyed,
        "begin_tick": read.begin_tick,
    }
    rows = _rows_of(folder, made)
    if rows is not None:
        return CompactResult(tick, str(folder), rows, written=False)
    with told(spark, "compacting", on_progress):
        frame = latest(load_frame(spark, _as_of(texts, tick), *_COLUMNS), tombstones=tombstones, unkeyed=unkeyed)
        try:
            # Spark writes _SUCCESS when all is there; what a run that died left is overwritten.
            frame.write.mode("overwrite").parquet(str(folder))
        except PySparkException as error:
            if _MARK in str(error):
                raise UnkeyedError from None
            raise
        rows = spark.read.parquet(str(folder)).count()
    _note(folder, {**made, "rows": rows})
    return CompactResult(tick, str(folder), rows, written=True)


def folder_of_snapshots(output: str | Path) -> Path:
    """Return the absolute path of a folder that has snapshots, or nothing.

    Raises:
        CompactError: It has something else.
        OptionError: It is no folder of a file system.
    """
    folder = manifest.folder_path(output)
    others = manifest.entries_of(folder)
    if others and not any(_SNAPSHOT.fullmatch(path.name) and path.is_dir() for path in folder.iterdir()):
        raise CompactError(
            f"{folder} is not empty, and has no snapshots: it has {others}, and no folder 'tick=...'. Name a folder of "
            "snapshots, or an empty or new one"
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


def _cut(read: ReadOptions) -> tuple[int, list[str]]:
    """Return the tick of the snapshot, inclusive, and the vchannels that it is of."""
    if read.archive_only:
        lanes = manifest.load(read.archive).lanes
        names = [name for name in sorted(lanes, key=parts_of) if _is_named(name, read)]
        end_tick = read.end_tick or min((lanes[name].end_tick for name in names), default=1)
        return end_tick - 1, names
    with Owners(read.connection) as owners:
        described = describe(owners, read)[0]
        end_tick = read.end_tick or cut_of(owners, described)
    return end_tick - 1, [lane.name for lane in described]


def _is_named(vchannel: str, read: ReadOptions) -> bool:
    channel = channel_of(vchannel)
    if read.pattern is not None:
        return read.pattern.covers(channel)
    return channel in read.channels or bool({vchannel, channel} & set(read.vchannels))


def _as_of(texts: dict[str, str], tick: int) -> dict[str, str]:
    ends = {"endingtick", "endingtimestamp", "asoftick", "timestampasof"}
    return {**{name: text for name, text in texts.items() if name.lower() not in ends}, "asOfTick": str(tick)}


def _rows_of(folder: Path, made: dict[str, object]) -> int | None:
    """Return the rows of the snapshot that is there and was made so; None if there is none.

    Raises:
        CompactError: It was made otherwise.
    """
    note = folder / _NOTE
    if not note.is_file() or not (folder / "_SUCCESS").is_file():
        return None
    noted: dict[str, object] = json.loads(note.read_text())
    rows = noted.pop("rows")
    if noted != made:
        different = ", ".join(name for name in made if noted.get(name) != made[name])
        raise CompactError(
            f"{folder} is a snapshot of this tick with other {different}: choose another folder, or remove it"
        )
    assert isinstance(rows, int)
    return rows


def _note(folder: Path, values: dict[str, object]) -> None:
    """Note what the snapshot is, last of all: without it, the snapshot is made anew."""
    temporary = folder / f"{_NOTE}.new"
    with temporary.open("w") as file:
        json.dump(values, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / _NOTE)
    manifest.sync_folder(folder)
