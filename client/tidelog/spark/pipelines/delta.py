"""The Delta table of an archive: a second view of the same files, for engines that know Delta and not our manifest.

``archive(..., delta=True)`` makes it in ``<root>/_delta_log``. The manifest stays the truth. Each commit of the archive
becomes one commit of Delta, in order, which adds the very same files and carries an application transaction: the name
of the archive, and the number of its commit. So the table itself says how far it is, whatever died in between, and what
is missing is published by the next run.

Importing this needs the extra ``delta``.
"""

import json
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from tidelog.spark import manifest
from tidelog.spark.manifest import Archive, ArchivedFile, ArchiveError, Commit
from tidelog.spark.names import parts_of
from tidelog.spark.pipelines.tasks import ALL_COLUMNS, arrow_schema
from tidelog.spark.ticks import LOGICAL_BITS

try:
    from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import AddAction, create_table_with_add_actions
except ImportError as missing:
    raise ArchiveError(
        "the Delta table of an archive needs the package deltalake: pip install 'tidelog[delta]'. Nothing was archived"
    ) from missing

PARTITION_BY: Final = ("channel", "vchannel")
"""Columns of the table that are folders, too."""

_CONFIGURATION: Final = {
    # Rows come from the archive only; nobody else adds to its files or deletes from them by mistake.
    "delta.appendOnly": "true",
    # VACUUM deletes files that the table has let go of, as OPTIMIZE does, or has never had, as those of a run that has
    # not committed. All of them are the archive's: with this, it deletes none unless somebody insists.
    "delta.deletedFileRetentionDuration": "interval 36500 days",
}
_NOT_NULL: Final = [field.name for field in ALL_COLUMNS if not field.nullable and field.name not in PARTITION_BY]
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


def check_table(there: Archive) -> None:
    """Refuse to go on if what lies at the root of an archive is not its Delta table, or cannot be one.

    Raises:
        ArchiveError: It is another one's table, or damaged, or ahead of the archive.
    """
    if unquote(str(there.root)) != str(there.root):
        raise ArchiveError(
            f"{there.root} has a '%' with two digits behind it, which Delta reads as another character: "
            "a Delta table needs another folder"
        )
    _opened(there)


def publish(there: Archive) -> int:
    """Add the commits of an archive that its Delta table does not have, make them durable, and return its version.

    The table is made if there is none. The caller holds ``manifest.writing``, and ``there`` has a commit.

    Raises:
        ArchiveError: The table is not of this archive, or Delta refuses.
    """
    log = there.root / manifest.DELTA_LOG
    known = _names(log)
    table = _opened(there) or _made(there)
    app = app_id(there)
    with _explained(there.root):
        missing = range((table.transaction_version(app) or 0) + 1, there.last_commit + 1)
        if missing:
            _add_columns(table)
        for number in missing:
            table.create_write_transaction(
                [*adds_of(manifest.read_commit(there.root, number))],
                "append",
                table.schema(),
                list(PARTITION_BY),
                commit_properties=CommitProperties(
                    custom_metadata={"tidelogCommit": str(number)}, app_transactions=[Transaction(app, number)]
                ),
            )
            table.update_incremental()
        _sync(log, _names(log) - known)
    return table.version()


def app_id(there: Archive) -> str:
    """Return the application that the transactions of an archive's table name; there is a commit."""
    # Of two archives that were made one after the other in one folder, each has its own.
    return f"tidelog-archive-{manifest.read_commit(there.root, 1).run}"


def adds_of(commit: Commit) -> list[AddAction]:
    """Return what Delta is told of the files of a commit."""
    made_ms = round(datetime.fromisoformat(commit.time).timestamp() * 1_000)
    return [_add_of(file, made_ms) for file in commit.files]


def _add_of(file: ArchivedFile, made_ms: int) -> AddAction:
    channel, index = parts_of(file.vchannel)
    return AddAction(
        path=file.path,
        size=file.bytes,
        partition_values={"channel": channel, "vchannel": str(index)},
        modification_time=made_ms,
        data_change=True,
        stats=json.dumps(
            {
                "numRecords": file.messages,
                "minValues": _bounds(file.first_tick),
                "maxValues": _bounds(file.last_tick),
                "nullCount": dict.fromkeys(_NOT_NULL, 0),
            }
        ),
    )


def _bounds(tick: int) -> dict[str, object]:
    """Return the statistics that a tick tells: ``timestamp`` has its milliseconds, which is what Delta keeps of one."""
    time = _EPOCH + timedelta(milliseconds=tick >> LOGICAL_BITS)
    return {"tick": tick, "timestamp": time.isoformat(timespec="milliseconds").replace("+00:00", "Z")}


def _opened(there: Archive) -> DeltaTable | None:
    """Return the table of an archive; None if there is none."""
    with _explained(there.root):
        # Without a commit, this is what a run left that died before it made the table.
        if not DeltaTable.is_deltatable(str(there.root)):
            return None
        table = DeltaTable(there.root)
        published = table.transaction_version(app_id(there)) if there.last_commit else None
    if published is None:
        raise ArchiveError(
            f"the Delta table at {there.root} is not of this archive: archive to another folder, "
            f"or remove {there.root / manifest.DELTA_LOG} if nobody needs the table"
        )
    if published > there.last_commit:
        raise ArchiveError(
            f"the Delta table at {there.root} has commit {published} of the archive, and the archive ends with "
            f"{there.last_commit}: restore the commits from a copy, or remove {there.root / manifest.DELTA_LOG} "
            "and publish anew with delta"
        )
    return table


def _made(there: Archive) -> DeltaTable:
    """Make an empty table, which names the archive from the beginning: version N will be commit N."""
    with _explained(there.root):
        create_table_with_add_actions(
            str(there.root),
            Schema.from_arrow(arrow_schema()),
            [],
            partition_by=list(PARTITION_BY),
            description="An archive of Tidelog; its manifest is in _tidelog.",
            configuration=_CONFIGURATION,
            commit_properties=CommitProperties(app_transactions=[Transaction(app_id(there), 0)]),
        )
        return DeltaTable(there.root)


def _add_columns(table: DeltaTable) -> None:
    """Add the columns that came to the source after the table was made; in older files they are NULL."""
    types = {field.name: field.type for field in table.schema().fields}
    wanted = Schema.from_arrow(arrow_schema()).fields
    for field in wanted:
        if types.get(field.name, field.type) != field.type:
            raise ArchiveError(
                f"the column '{field.name}' of the Delta table has the type {types[field.name]}, and that of the "
                f"archive {field.type}: remove {manifest.DELTA_LOG} and publish anew with delta"
            )
    added = [Field(field.name, field.type, nullable=True) for field in wanted if field.name not in types]
    if added:
        table.alter.add_columns(added)
        table.update_incremental()


@contextmanager
def _explained(root: Path) -> Iterator[None]:
    try:
        yield
    except (DeltaError, OSError) as error:
        # The lines behind the first one are a stack of addresses.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ArchiveError(
            f"the Delta table at {root} cannot be read or written ({reason}). It is a second view of the archive, "
            f"which is whole: run again, or remove {root / manifest.DELTA_LOG} and publish anew with delta"
        ) from error


def _names(log: Path) -> set[str]:
    return {path.name for path in log.iterdir() if path.is_file()} if log.is_dir() else set()


def _sync(log: Path, names: Collection[str]) -> None:
    """Make what was published durable, which delta-rs leaves to the system: what is trimmed then is in both views."""
    if not names:
        return
    # Written anew with each checkpoint.
    for name in {*names, *(_names(log) & {"_last_checkpoint"})}:
        descriptor = os.open(log / name, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    manifest.sync_folder(log)
    manifest.sync_folder(log.parent)
