"""The Delta table of an archive: a second view of the same files, for engines that read Delta but not our manifest.

``archive(..., delta=True)`` creates it in ``<root>/_delta_log``. The manifest stays authoritative. Each commit of the
archive becomes one Delta commit, in order, which adds the same files and has an application transaction: the id of the
archive and the number of its commit. So the table records which commits it has, and the next run publishes those that
a run that died did not.

Importing this module requires the extra ``delta``.
"""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from tidelog.spark.archive import manifest
from tidelog.spark.archive.manifest import Archive, ArchivedFile, Commit
from tidelog.spark.errors import ArchiveError
from tidelog.spark.names import parts_of
from tidelog.spark.pipelines.tasks import ALL_COLUMNS, arrow_schema
from tidelog.spark.ticks import iso_time

try:
    from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import AddAction, create_table_with_add_actions
except ImportError as missing:
    raise ArchiveError(
        "the Delta table of an archive needs the package deltalake: run `pip install '.[delta]'` in a clone of Tidelog."
        " Nothing was archived"
    ) from missing

PARTITION_BY: Final = ("channel", "vchannel")
"""Partition columns of the table, which are part of the file paths."""

_CONFIGURATION: Final = {
    # Only the archive adds rows; this prevents other writers from deleting or updating rows by mistake.
    "delta.appendOnly": "true",
    # VACUUM deletes files that the table no longer has, for example after OPTIMIZE, and files that it never had, such
    # as those of an uncommitted run. All of them belong to the archive. With this, VACUUM deletes none unless forced.
    "delta.deletedFileRetentionDuration": "interval 36500 days",
}
_NOT_NULL: Final = [field.name for field in ALL_COLUMNS if not field.nullable and field.name not in PARTITION_BY]


def check_table(there: Archive) -> None:
    """Check that the Delta table at an archive's root is that of the archive, or can be created.

    Raises:
        ArchiveError: The table is of another archive, is damaged, or is ahead of this archive; or Delta cannot use
            the path.
    """
    if unquote(str(there.root)) != str(there.root):
        raise ArchiveError(
            f"{there.root} has a '%' followed by two digits, which Delta decodes as another character: "
            "use another folder for a Delta table"
        )
    _opened(there)


def publish(there: Archive) -> int:
    """Publish the archive's commits that its Delta table lacks, sync them, and return the table's version.

    Creates the table if it does not exist. The caller must hold ``manifest.writing``, and ``there`` must have a commit.

    Raises:
        ArchiveError: The table is not of this archive, or Delta fails.
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
    """Return the application id in the transactions of an archive's table; the archive must have a commit."""
    # Unique, even if an archive was removed and another one created in the same folder.
    return f"tidelog-archive-{manifest.read_commit(there.root, 1).run}"


def adds_of(commit: Commit) -> list[AddAction]:
    """Return Delta's add actions for the files of a commit."""
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
    """Return the statistics of a tick. ``timestamp`` has milliseconds, which is the precision of Delta's statistics."""
    return {"tick": tick, "timestamp": iso_time(tick)}


def _opened(there: Archive) -> DeltaTable | None:
    """Return the table of an archive; None if it does not exist."""
    with _explained(there.root):
        # A folder without a Delta commit is left by a run that died before it created the table.
        if not DeltaTable.is_deltatable(str(there.root)):
            return None
        table = DeltaTable(there.root)
        published = table.transaction_version(app_id(there)) if there.last_commit else None
    if published is None:
        raise ArchiveError(
            f"the Delta table at {there.root} is not of this archive: archive to another folder, "
            f"or remove {there.root / manifest.DELTA_LOG} if the table is not needed"
        )
    if published > there.last_commit:
        raise ArchiveError(
            f"the Delta table at {there.root} has commit {published} of the archive, but the archive ends with "
            f"{there.last_commit}: restore the commits from a copy, or remove {there.root / manifest.DELTA_LOG} "
            "and publish again with delta"
        )
    return table


def _made(there: Archive) -> DeltaTable:
    """Create an empty table with the archive's application id, as version 0: version N is commit N."""
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
    """Add columns that the source got after the table was created; in older files they are NULL."""
    types = {field.name: field.type for field in table.schema().fields}
    wanted = Schema.from_arrow(arrow_schema()).fields
    for field in wanted:
        if types.get(field.name, field.type) != field.type:
            raise ArchiveError(
                f"the column '{field.name}' of the Delta table has the type {types[field.name]}, expected "
                f"{field.type} as in the archive: remove {manifest.DELTA_LOG} and publish again with delta"
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
        # The lines after the first one are a stack of addresses.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ArchiveError(
            f"the Delta table at {root} cannot be read or written ({reason}). The archive itself is intact: run "
            f"again, or remove {root / manifest.DELTA_LOG} and publish again with delta"
        ) from error


def _names(log: Path) -> set[str]:
    return {path.name for path in log.iterdir() if path.is_file()} if log.is_dir() else set()


def _sync(log: Path, names: Collection[str]) -> None:
    """Sync the published commits, which delta-rs does not do, so that trimmed messages are durable in both views."""
    if not names:
        return
    # _last_checkpoint is rewritten by each checkpoint.
    for name in {*names, *(_names(log) & {"_last_checkpoint"})}:
        manifest.sync(log / name)
    manifest.sync(log)
    manifest.sync(log.parent)
