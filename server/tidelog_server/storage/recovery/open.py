"""Opens a data folder as a RocksDB log store: lock, create or check, open, check again."""

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from secrets import token_bytes
from typing import Final

import structlog

from tidelog_server.core.entries import HASH_BYTES
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.errors.storage import StorageUnreadableError
from tidelog_server.core.limits import MIB
from tidelog_server.core.ticks import NO_TICK
from tidelog_server.runtime.process_limits import check_process_limits
from tidelog_server.storage.format.codec import StoreRow, first_hash
from tidelog_server.storage.format.data_folder import (
    UNFINISHED_STAMP,
    DataFolder,
    lock_data_folder,
    wal_files,
)
from tidelog_server.storage.format.folder_errors import FolderFullError, folder_error
from tidelog_server.storage.format.head_file import Head, HeadFile
from tidelog_server.storage.log_state import LogState
from tidelog_server.storage.recovery.gate import STORE_CHECK, GateVerdict, pass_gate, quarantine
from tidelog_server.storage.rocksdb.engine import (
    Engine,
    check_options_file,
    close_engine,
    engine_errors,
    open_engine,
)
from tidelog_server.storage.rocksdb.index import StoreIndex, load_index, write_store_row
from tidelog_server.storage.rocksdb.local_writer import LocalWriter
from tidelog_server.storage.rocksdb.rows import old_places, stored_rows
from tidelog_server.storage.rocksdb.store import RocksdbLogStore
from tidelog_server.storage.rows import tables

# Free disk space needed to open a store, in addition to the size of its write-ahead log: MANIFEST, OPTIONS, LOG, HEAD.
OPEN_SPARE_BYTES: Final = 8 * MIB

_log = structlog.get_logger("tidelog_server.storage")


def open_rocksdb_log_store(path: Path, *, accept_head_loss: bool = False, check: str = STORE_CHECK) -> RocksdbLogStore:
    """Open the store in the data folder ``path``; make the folder if it is new. Blocks during recovery.

    Args:
        path: The folder.
        accept_head_loss: Accept a folder whose HEAD is lost, although its log may then be incomplete.
        check: The program that checks it first, see ``pass_gate``.

    Raises:
        ProcessLimitError: This process has too few file descriptors or too little address space for a store.
        DataFolderError: The folder cannot be used, and no data is known to be lost; see folder_errors.
        DataLossError: Synced data is missing or damaged. Nothing was modified.
    """
    check_process_limits()
    folder = lock_data_folder(path)
    try:
        is_finished = folder.is_finished()
        if is_finished:
            verdict = pass_gate(folder, accept_head_loss=accept_head_loss, check=check)
            _check_room(folder)
        else:
            verdict = _create(folder)
        return _open_behind_gate(folder, verdict)
    except OSError as error:
        folder.close()
        raise folder_error(path, error) from error
    except StorageUnreadableError as error:
        folder.close()
        raise folder_error(path, OSError(error.errno, error.values["cause"])) from error
    except BaseException:
        folder.close()
        raise


def _check_room(folder: DataFolder) -> None:
    """Check that the disk has space for what opening writes: at most all of the WAL once more, as tables.

    Why before: data that RocksDB has written when the disk is full stays there until an open succeeds.

    Raises:
        FolderFullError: It has not. Nothing was modified.
    """
    wal_bytes = sum(path.stat().st_size for path in wal_files(folder.database_path))
    needed_bytes, free_bytes = wal_bytes + OPEN_SPARE_BYTES, shutil.disk_usage(folder.path).free
    if free_bytes < needed_bytes:
        raise FolderFullError(
            f"the disk of the data folder {folder.path} has {free_bytes >> 10} KiB free, and opening the store needs "
            f"up to {needed_bytes >> 10} KiB: free some space, then start again. No data is lost"
        )


def _create(folder: DataFolder) -> GateVerdict:
    """Make an empty store. A new store needs no gate; its verdict is returned anyway."""
    folder.stamp(UNFINISHED_STAMP)
    folder.head_path.unlink(missing_ok=True)
    if folder.database_path.exists():
        shutil.rmtree(folder.database_path)
    incarnation = token_bytes(HASH_BYTES)
    store = StoreRow(incarnation, 0, 0, first_hash(incarnation), NO_TICK)
    return _filled(folder, lambda engine: write_store_row(engine, store), is_clean=True)


def make_store(path: Path, fill: Callable[[Engine], None]) -> None:
    """Make a store in the folder ``path`` from the rows that ``fill`` writes, durably. The next start checks it.

    Args:
        path: The folder; it has no store.
        fill: Writes all rows, the store's own one included.

    Raises:
        DataFolderError: The folder cannot be used.
        DataLossError: The rows are not those of a store. Or ``fill`` raises it.
        OSError: The system refused.
    """
    folder = lock_data_folder(path)
    try:
        folder.stamp(UNFINISHED_STAMP)
        _filled(folder, fill, is_clean=False)
    finally:
        folder.close()


def _filled(folder: DataFolder, fill: Callable[[Engine], object], *, is_clean: bool) -> GateVerdict:
    """Make a store from the rows that ``fill`` writes in a folder that is stamped as unfinished; return its verdict.

    The stamp of its format is the last step: after a crash before it, the next start makes the store again.
    """
    for path in (folder.database_path, folder.quarantine_path):
        folder.make_folder(path)
    with engine_errors("making the database"):
        engine = open_engine(folder.database_path, read_only=False, create=True)
        try:
            fill(engine)
            index = load_index(engine)
            head = _head_of(engine, index, None, 0)._replace(is_clean=is_clean)
            since = [table.since_format for table in tables() if next(stored_rows(engine, table), None)]
        finally:
            close_engine(engine)
    with closing(HeadFile.open(folder.head_path)) as file:
        file.write(head)
    folder.raise_format(max(since, default=1))
    return GateVerdict(head, index.digest(), [])


def _open_behind_gate(folder: DataFolder, verdict: GateVerdict) -> RocksdbLogStore:
    open_count = verdict.head.open_count + 1 if verdict.head else 1
    folder.make_folder(folder.quarantine_path)
    folder.remove_checkpoints()
    quarantine(folder, verdict.torn, open_count)
    with engine_errors("opening the database"):
        engine = open_engine(folder.database_path, read_only=False)
    try:
        check_options_file(folder.database_path)
        index = _recovered_index(engine, verdict)
        head = _head_of(engine, index, verdict.head, open_count)
        return _assemble(folder, engine, index, head)
    except BaseException:
        close_engine(engine)
        raise
    finally:
        _log_opening(folder, verdict, open_count)


def _recovered_index(engine: Engine, verdict: GateVerdict) -> StoreIndex:
    """Return the index after recovery; it must be what the read-only open saw."""
    index = load_index(engine, verdict.head)
    if index.digest() != verdict.digest:
        raise DataLossError("the database recovered to another state than in the preceding check: do not use it")
    return index


def _assemble(folder: DataFolder, engine: Engine, index: StoreIndex, head: Head) -> RocksdbLogStore:
    """Write the mark that the store is open, and assemble its parts."""
    old = old_places(engine)
    file = HeadFile.open(folder.head_path)
    try:
        file.write(head)
    except OSError:
        file.close()
        raise
    state = LogState(index.store, index.tails, index.fencing_tokens)
    return RocksdbLogStore(folder, engine, state, LocalWriter(folder, engine, file, head), old)


def _head_of(engine: Engine, index: StoreIndex, previous: Head | None, open_count: int) -> Head:
    """Return the head of the recovered store, as the mark that it is open."""
    recovered = LogState(index.store, index.tails).head
    place = next(
        ((vchannel_id, tail) for vchannel_id, tail in index.tails.items() if tail.last_sequence == recovered.sequence),
        None,
    )
    vchannel_id, base_tick, last_tick = (place[0], place[1].last_base_tick, place[1].last_tick) if place else (0, 0, 0)
    return Head(
        previous.generation + 1 if previous else 1, index.store.incarnation, open_count, recovered.sequence,
        recovered.chain_hash, last_tick, vchannel_id, base_tick, engine.db.latest_sequence_number(), False,
    )  # fmt: skip


def _log_opening(folder: DataFolder, verdict: GateVerdict, open_count: int) -> None:
    if verdict.head is None:
        _log.warning("head_loss_accepted", folder=str(folder.path))
    for torn in verdict.torn:
        _log.warning("torn_wal_quarantined", file=torn.name, offset=torn.offset, open_count=open_count)
