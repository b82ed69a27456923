"""Each WAL file grows ahead of its records, and recovery skips what is behind them.

Method: real stores, and files in a folder of their own; a limit of the process makes the file system refuse.
"""

import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tidelog_server.core.limits import KIB, MIB
from tidelog_server.storage.format.data_folder import wal_files
from tidelog_server.storage.recovery.open import open_rocksdb_log_store
from tidelog_server.storage.rocksdb.store import RocksdbLogStore
from tidelog_server.storage.rocksdb.wal_size import WalSize
from tidelog_testing.faults.damage import content_of, crashed_copy
from tidelog_testing.parts.entries import run_of_entries

LOOK = 16
ZEROS = MIB
RESERVED = 4 * MIB


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


def write_records(path: Path, size_bytes: int) -> None:
    """Write as RocksDB does when it has reached the end of the file."""
    with path.open("ab") as file:
        file.write(b"r" * size_bytes)


def test_the_newest_file_is_extended_with_zeros(folder: Path) -> None:
    wal_size = WalSize(folder)
    synced(wal_size, LOOK - 1)
    assert (folder / "000010.log").read_bytes() == b"record"
    synced(wal_size, 1)
    assert (folder / "000010.log").read_bytes() == b"record" + bytes(ZEROS)
    assert (folder / "000009.log").read_bytes() == b"old"
    # It is not extended again before a write has reached its end.
    synced(wal_size, 10 * LOOK)
    assert (folder / "000010.log").stat().st_size == 6 + ZEROS
    write_records(folder / "000010.log", 4)
    synced(wal_size)
    assert (folder / "000010.log").stat().st_size == 10 + 2 * ZEROS


def test_zeros_are_written_for_small_syncs_and_reserved_for_large_ones(folder: Path) -> None:
    wal_size, path = WalSize(folder), folder / "000010.log"
    write_records(path, LOOK * 16 * KIB - 6)
    synced(wal_size)
    assert path.stat().st_size == LOOK * 16 * KIB + ZEROS
    # RocksDB has filled the zeros after 16 syncs.
    write_records(path, 1)
    size_bytes = path.stat().st_size
    synced(wal_size)
    assert path.stat().st_size == size_bytes + RESERVED
    # After 1,000 syncs it has filled them again.
    synced(wal_size, 1_008 - LOOK)
    write_records(path, 1)
    synced(wal_size)
    assert path.stat().st_size == size_bytes + RESERVED + 1 + ZEROS


def test_the_next_file_is_extended_in_its_turn(folder: Path) -> None:
    wal_size = WalSize(folder)
    synced(wal_size)
    (folder / "000010.log").unlink()
    path = folder / "000011.log"
    path.touch()
    synced(wal_size, 2 * LOOK)
    assert path.stat().st_size == 0, "it has no records"
    write_records(path, 100)
    synced(wal_size)
    assert path.stat().st_size == 100 + ZEROS


def test_only_files_of_rocksdb_are_extended(tmp_path: Path) -> None:
    write_records(tmp_path / "notes.log", 5)
    wal_size = WalSize(tmp_path)
    synced(wal_size)
    assert (tmp_path / "notes.log").stat().st_size == 5
    write_records(tmp_path / "000003.log", 5)
    synced(wal_size)
    assert (tmp_path / "000003.log").stat().st_size == 5 + ZEROS
    assert (tmp_path / "notes.log").stat().st_size == 5


@pytest.mark.parametrize("written_bytes", [1, 8 * MIB], ids=["zeros", "reserved"])
def test_a_refusal_is_logged_once_and_ends_with_the_file(folder: Path, written_bytes: int) -> None:
    wal_size = WalSize(folder)
    for name in ("000011.log", "000012.log", "000013.log"):
        write_records(folder / name, written_bytes)
    (folder / "000012.log").rename(folder / "later")
    (folder / "000013.log").rename(folder / "last")
    with capture_logs() as logs, largest_file(1):
        synced(wal_size, 3 * LOOK)
        (folder / "later").rename(folder / "000012.log")
        synced(wal_size)
    assert [each["event"] for each in logs] == ["wal_not_extended"]
    assert logs[0]["error"] == "File too large"
    assert (folder / "000012.log").stat().st_size == written_bytes
    (folder / "last").rename(folder / "000013.log")
    synced(wal_size)
    assert (folder / "000013.log").stat().st_size == written_bytes + (ZEROS if written_bytes == 1 else RESERVED)


def test_zeros_wait_for_a_write_of_another_thread(folder: Path) -> None:
    wal_size = WalSize(folder)
    synced(wal_size, LOOK - 1)
    with ThreadPoolExecutor() as threads, wal_size.writing:
        extended = threads.submit(wal_size.before_sync)
        assert not wait([extended], 0.05).done
        write_records(folder / "000010.log", 4)
        wal_size.writing.release()
        extended.result(10)
        wal_size.writing.acquire()
    assert (folder / "000010.log").read_bytes() == b"recordrrrr" + bytes(ZEROS)


def test_writes_of_one_thread_survive_the_syncs_of_another(tmp_path: Path) -> None:
    store = open_rocksdb_log_store(tmp_path / "store")
    store.create_vchannels([1])
    entries = run_of_entries(1, 6_000, first_tick=1_000, size_bytes=1_000)

    def write_all() -> None:
        for entry in entries:
            store.write([entry])

    with ThreadPoolExecutor() as threads:
        written = threads.submit(write_all)
        while not written.done():
            store.sync()
        written.result()
    store.sync()
    (wal,) = wal_files(tmp_path / "store/db")
    assert 6_000_000 < wal.stat().st_size, "it was extended several times meanwhile"
    reopened = open_rocksdb_log_store(crashed_copy(store, tmp_path / "copy", keeps_padding=True))
    assert content_of(reopened) == content_of(store)
    assert reopened.head == store.head
    reopened.close()
    store.close()


def test_a_store_extends_its_wal_and_recovers_from_it(tmp_path: Path) -> None:
    store = open_rocksdb_log_store(tmp_path / "store")
    store.create_vchannels([1])
    tick = append_synced(store, 1_000, 2 * LOOK)
    (wal,) = wal_files(tmp_path / "store/db")
    assert ZEROS < wal.stat().st_size
    assert wal.read_bytes().endswith(bytes(ZEROS - 64 * KIB))
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
