"""Each WAL file grows ahead of its records, and recovery skips what is behind them.

Method: real stores, and files in a folder of their own; a limit of the process makes the file system refuse.
"""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tidelog_server.core.limits import MIB
from tidelog_server.storage.format.data_folder import wal_files
from tidelog_server.storage.recovery.open import open_rocksdb_log_store
from tidelog_server.storage.rocksdb.store import RocksdbLogStore
from tidelog_server.storage.rocksdb.wal_size import WalSize
from tidelog_testing.faults.damage import content_of, crashed_copy
from tidelog_testing.parts.entries import run_of_entries

LOOK = 16


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "000009.log").write_bytes(b"old")
    (tmp_path / "000010.log").write_bytes(b"record")
    return tmp_path


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def synced(wal_size: WalSize, syncs: int = LOOK) -> None:
    for _ in range(syncs):
        wal_size.before_sync()


def append_synced(store: RocksdbLogStore, first_tick: int, count: int, size_bytes: int = 100) -> int:
    for entry in run_of_entries(1, count, first_tick=first_tick, size_bytes=size_bytes):
        store.write([entry])
        store.sync()
    return store.tail(1).last_tick + 1


def test_the_newest_file_is_extended_with_zeros(folder: Path) -> None:
    wal_size = WalSize(folder)
    synced(wal_size, LOOK - 1)
    assert (folder / "000010.log").read_bytes() == b"record"
    synced(wal_size, 1)
    assert (folder / "000010.log").read_bytes() == b"record" + bytes(4 * MIB)
    assert (folder / "000009.log").read_bytes() == b"old"
    # It is not extended again before a write has reached its end.
    synced(wal_size)
    assert (folder / "000010.log").stat().st_size == 4 * MIB + 6
    with (folder / "000010.log").open("ab") as file:
        file.write(b"more")
    synced(wal_size)
    assert (folder / "000010.log").stat().st_size == 8 * MIB + 10


def test_the_next_file_is_extended_in_its_turn(folder: Path) -> None:
    wal_size = WalSize(folder)
    synced(wal_size)
    (folder / "000010.log").unlink()
    (folder / "000011.log").touch()
    synced(wal_size, 2 * LOOK)
    assert (folder / "000011.log").stat().st_size == 4 * MIB


def test_only_files_of_rocksdb_are_extended(tmp_path: Path) -> None:
    (tmp_path / "notes.log").touch()
    wal_size = WalSize(tmp_path)
    synced(wal_size)
    assert (tmp_path / "notes.log").stat().st_size == 0
    (tmp_path / "000003.log").touch()
    synced(wal_size)
    assert (tmp_path / "000003.log").stat().st_size == 4 * MIB
    assert (tmp_path / "notes.log").stat().st_size == 0


def test_a_refusal_is_logged_once_and_ends_with_the_file(folder: Path) -> None:
    wal_size = WalSize(folder)
    with capture_logs() as logs, largest_file(MIB):
        synced(wal_size, 3 * LOOK)
        (folder / "000011.log").touch()
        synced(wal_size)
    assert [each["event"] for each in logs] == ["wal_not_extended"]
    assert logs[0]["error"] == "File too large"
    assert (folder / "000011.log").stat().st_size == 0
    (folder / "000012.log").touch()
    synced(wal_size)
    assert (folder / "000012.log").stat().st_size == 4 * MIB


def test_a_store_extends_its_wal_and_recovers_from_it(tmp_path: Path) -> None:
    store = open_rocksdb_log_store(tmp_path / "store")
    store.create_vchannels([1])
    tick = append_synced(store, 1_000, 2 * LOOK)
    (wal,) = wal_files(tmp_path / "store/db")
    assert 4 * MIB < wal.stat().st_size
    assert wal.read_bytes().endswith(bytes(3 * MIB))
    tick = append_synced(store, tick, 2 * LOOK, size_bytes=300_000)
    assert 8 * MIB < wal.stat().st_size
    # Of the three files here two have zeros behind their records; both must be read to their ends.
    for _ in range(2):
        store._engine.log.flush(True)
        tick = append_synced(store, tick, 2 * LOOK, size_bytes=9_000)
    wals = wal_files(tmp_path / "store/db")
    assert 2 <= len(wals), "the columns are still in the first WAL"

    copy = crashed_copy(store, tmp_path / "copy", keeps_padding=True)
    for path in wal_files(copy / "db"):
        with path.open("ab") as file:
            file.write(bytes(MIB))
    reopened = open_rocksdb_log_store(copy)
    assert content_of(reopened) == content_of(store)
    assert reopened.head == store.head
    reopened.close()
    store.close()
