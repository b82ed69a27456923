"""Data folders that crashed, and ways to damage their files.

A crash is simulated: the files of an open store are copied between two calls, as a power failure would leave them. (The
copy also has bytes that RocksDB wrote but did not sync, which only makes more of the log recoverable.)
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from tidelog_server.storage.format.data_folder import wal_files
from tidelog_server.storage.format.head_file import read_head
from tidelog_server.storage.log_store import LogStore
from tidelog_server.storage.recovery.open import open_rocksdb_log_store
from tidelog_server.storage.recovery.wal_scan import end_of_records
from tidelog_server.storage.rocksdb.store import RocksdbLogStore
from tidelog_testing.parts.entries import place_and_columns, read_all, run_of_entries

# Files without influence on answers, and the lock, to which a second opener writes its process id.
_UNIMPORTANT = ("LOG", "LOCK")

Content = dict[int, list[tuple[int, int, int, bytes]]]
"""The content of a store, by vchannel."""


def crashed_copy(store: RocksdbLogStore, target: Path, *, keeps_padding: bool = False) -> Path:
    """Copy the data folder of an open store, once HEAD has reached the synced state.

    Without the zeros behind the records of the WAL, unless ``keeps_padding``: damage there would prove nothing.
    """
    synced = store._engine.db.latest_sequence_number()
    while (head := read_head(store.folder / "HEAD")) is None or head.engine_sequence < synced:
        pass
    shutil.copytree(store.folder, target)
    if not keeps_padding:
        cut_padding(target)
    return target


def cut_padding(folder: Path) -> None:
    """Cut the zeros behind the records off the WAL files of a data folder."""
    for path in wal_files(folder / "db"):
        cut(path, end_of_records(path.read_bytes()))


def content_of(store: LogStore) -> Content:
    """Return all entries of all vchannels."""
    return {
        vchannel_id: list(map(place_and_columns, read_all(store, vchannel_id))) for vchannel_id in store.vchannel_ids()
    }


def digests(folder: Path) -> dict[str, str]:
    """Return the hash of every file that matters, by its path in the folder."""
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(_UNIMPORTANT)
    }


def flip_bit(path: Path, offset: int, bit: int) -> None:
    """Flip one bit in place."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


def cut(path: Path, size_bytes: int) -> None:
    """Truncate a file to its first ``size_bytes``."""
    with path.open("r+b") as file:
        file.truncate(size_bytes)


@contextmanager
def damaged(folder: Path, scratch: Path) -> Iterator[Path]:
    """Yield a copy of ``folder`` to damage; it is removed afterwards."""
    shutil.copytree(folder, scratch)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch)


def filled_store(folder: Path, *, flushed: int, unflushed: int) -> RocksdbLogStore:
    """Return a store with three vchannels; some entries are in tables and blob files, the rest only in the WAL.

    Every second entry is small enough for a table, the others are in blob files.
    """
    store = open_rocksdb_log_store(folder)
    store.create_vchannels([1, 2, 3])
    table = store.metadata_rows()
    table.apply([(b"vkey", b"value")], [])
    tick = 1_000
    for i in range(flushed + unflushed):
        if i == flushed and flushed:
            store.close()
            store = open_rocksdb_log_store(folder)
        store.write(run_of_entries(1 + i % 3, 1, first_tick=tick, size_bytes=9_000 if i % 2 else 300))
        store.sync()
        tick += 100
    return store
