"""Rows of tables in RocksDB: in their old forms, damaged, and of unknown tables."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog_server.broadcast.rows import LOGGED, LoggedKey
from tidelog_server.core.errors import DataLossError, StorageFailedError
from tidelog_server.core.groups import GroupKey, GroupPosition
from tidelog_server.core.producers import ProducerWindow, Result
from tidelog_server.core.shares import FloorKey, FloorTable
from tidelog_server.core.transactions import AppCommit, AppKey, TxnOutcome
from tidelog_server.fold.rows import SNAPSHOTS
from tidelog_server.groups.rows import POSITIONS
from tidelog_server.log.rows import WINDOWS
from tidelog_server.storage.format.durable_files import replace_file
from tidelog_server.storage.format.seals import sealed
from tidelog_server.storage.recovery.open import open_rocksdb_log_store
from tidelog_server.storage.rocksdb.engine import close_engine, open_engine, scan
from tidelog_server.storage.rocksdb.store import RocksdbLogStore
from tidelog_server.storage.rows import Table, tables
from tidelog_server.txn.rows import APP_COMMITS, FLOORS, OUTCOMES
from tidelog_testing.parts.entries import new_entry

Rows = dict[tuple[str, bytes], bytes]
FORMAT_1 = b"tidelog data format 1\n"
FORMAT_2 = b"tidelog data format 2\n"
END = 109
"""Last tick of the only entry of each vchannel."""

SNAPSHOT_KEY = b"_fold/mailbox/0/current_id"
SNAPSHOT = sealed(SNAPSHOT_KEY, struct.pack(">BIQQ", 1, 1, 101, 5))
LOGGED_KEY = b"\x00\x00\x00\x02_broadcast-77"
IN_LOG = sealed(LOGGED_KEY, struct.pack(">BQQQIIB", 1, 0, 1, 102, 1, 9, 1))
NOT_IN_LOG = sealed(LOGGED_KEY, struct.pack(">BQQ", 1, 0, 0))
OLD: Rows = {("groups", SNAPSHOT_KEY): SNAPSHOT, ("producers", LOGGED_KEY): IN_LOG}

EXAMPLES: dict[Table[Any, Any], tuple[Any, Any]] = {
    WINDOWS: ((1, "p"), ProducerWindow(0).extended(Result(100, 1, 7, is_synced=True))),
    POSITIONS: (GroupKey("billing", "orders/0"), GroupPosition(1, 101, 5)),
    OUTCOMES: (50, TxnOutcome(100, True, ())),
    APP_COMMITS: (AppKey("", "etl"), AppCommit(5, 100, 1, True)),
    FLOORS: (FloorKey(FloorTable.OUTCOMES, b""), 7),
    SNAPSHOTS: (1, 101),
    LOGGED: (LoggedKey(2, 77), 102),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A stopped store with the vchannels 1 and 2, and an entry on each."""
    store = open_rocksdb_log_store(tmp_path / "store")
    store.create_vchannels([1, 2])
    store.write([new_entry(1, 90, count=END - 90 + 1)])
    store.write([new_entry(2, 90, count=END - 90 + 1)])
    store.close()
    return tmp_path / "store"


def put(folder: Path, rows: Rows) -> None:
    """Add rows to a stopped store, as an earlier server of format 1 would have written them."""
    engine = open_engine(folder / "db", read_only=False)
    for (family, key), value in rows.items():
        engine.family(family).put(key, value)
    close_engine(engine)
    replace_file(folder / "FORMAT", FORMAT_1)


def stored(folder: Path) -> Rows:
    """Return the rows of tables of a stopped store."""
    ranges: dict[str, tuple[bytes, bytes | None]] = {
        "groups": (b"", None), "producers": (b"", None), "index": (b"r", b"s"),
    }  # fmt: skip
    engine = open_engine(folder / "db", read_only=True)
    rows = {(name, key): value for name, limits in ranges.items() for key, value in scan(engine.family(name), *limits)}
    close_engine(engine)
    return rows


def present(table: Table[Any, Any], key: Any, value: Any) -> Rows:
    """Return a row in its present form."""
    row_key, packed = table.pack(key, value)
    return {(table.family, row_key): packed}


def changed(folder: Path, change: Callable[[RocksdbLogStore], object]) -> Rows:
    """Open a store, change it, and return its rows after it was closed."""
    store = open_rocksdb_log_store(folder)
    change(store)
    store.close()
    return stored(folder)


def test_there_is_an_example_of_each_table() -> None:
    assert list(EXAMPLES) == tables()


def test_rows_in_old_forms_are_read_and_a_start_rewrites_none(folder: Path) -> None:
    put(folder, OLD)
    for _ in range(2):
        store = open_rocksdb_log_store(folder)
        assert store.rows(SNAPSHOTS) == {1: 101}
        assert store.rows(LOGGED) == {LoggedKey(2, 77): 102}
        assert not store.rows(POSITIONS)
        assert not store.rows(WINDOWS)
        store.close()
        assert stored(folder) == OLD
        assert (folder / "FORMAT").read_bytes() == FORMAT_1


def test_a_change_of_such_a_row_replaces_it_and_raises_the_format(folder: Path) -> None:
    put(folder, OLD)
    rows = changed(folder, lambda store: store.write([], [SNAPSHOTS.row(1, 103)]))
    assert rows == {("producers", LOGGED_KEY): IN_LOG, **present(SNAPSHOTS, 1, 103)}
    assert (folder / "FORMAT").read_bytes() == FORMAT_2
    rows = changed(folder, lambda store: store.write([], [LOGGED.gone(LoggedKey(2, 77))]))
    assert rows == present(SNAPSHOTS, 1, 103)


def test_the_deletion_of_such_a_row_leaves_the_format(folder: Path) -> None:
    put(folder, OLD)
    rows = changed(folder, lambda store: store.write([], [LOGGED.gone(LoggedKey(2, 77)), SNAPSHOTS.gone(1)]))
    assert rows == {}
    assert (folder / "FORMAT").read_bytes() == FORMAT_1


def test_such_rows_go_with_their_vchannel(folder: Path) -> None:
    put(folder, OLD)
    assert changed(folder, lambda store: store.drop_vchannels([1])) == {("producers", LOGGED_KEY): IN_LOG}
    assert changed(folder, lambda store: store.drop_vchannels([2])) == {}


def test_rows_of_other_tables_leave_the_format(folder: Path) -> None:
    put(folder, {})
    others = [table.row(*row) for table, row in EXAMPLES.items() if table.since_format == 1]
    assert len(others) == 5
    changed(folder, lambda store: store.write([], others))
    assert (folder / "FORMAT").read_bytes() == FORMAT_1


def test_a_window_of_a_broadcast_without_a_result_means_that_it_is_not_in_the_log(folder: Path) -> None:
    put(folder, {("producers", LOGGED_KEY): NOT_IN_LOG})
    store = open_rocksdb_log_store(folder)
    assert store.rows(LOGGED) == {}
    store.close()
    added = present(LOGGED, LoggedKey(2, 77), 105)
    assert changed(folder, lambda store: store.write([], [LOGGED.row(LoggedKey(2, 77), 105)])) == added
    assert changed(folder, lambda store: store.write([], [LOGGED.gone(LoggedKey(2, 77))])) == {}


def test_such_a_window_of_a_vchannel_that_does_not_exist_is_refused(folder: Path) -> None:
    key = b"\x00\x00\x00\x09" + LOGGED_KEY[4:]
    put(folder, {("producers", key): sealed(key, NOT_IN_LOG[:-4])})
    with pytest.raises(DataLossError, match="vchannel id 9, which does not exist"):
        open_rocksdb_log_store(folder)


def test_a_folder_and_its_checkpoints_get_format_2_with_the_first_row_that_needs_it(folder: Path) -> None:
    store = open_rocksdb_log_store(folder)
    before, _ = store.checkpoint("before")
    assert (before / "FORMAT").read_bytes() == (folder / "FORMAT").read_bytes() == FORMAT_1
    store.write([], [SNAPSHOTS.row(1, 101)])
    after, _ = store.checkpoint("after")
    assert (after / "FORMAT").read_bytes() == (folder / "FORMAT").read_bytes() == FORMAT_2
    store.close()


@pytest.mark.parametrize("place", OLD)
def test_a_damaged_row_in_an_old_form_is_refused(folder: Path, place: tuple[str, bytes]) -> None:
    for at in (0, 5, len(OLD[place]) - 1):
        damaged = bytearray(OLD[place])
        damaged[at] ^= 1
        put(folder, {place: bytes(damaged)})
        with pytest.raises(DataLossError, match="is damaged"):
            open_rocksdb_log_store(folder)


@pytest.mark.parametrize("table", EXAMPLES, ids=lambda table: table.name)
def test_the_gate_refuses_a_damaged_row_of_any_table(folder: Path, table: Table[Any, Any]) -> None:
    [(place, packed)] = present(table, *EXAMPLES[table]).items()
    put(folder, {place: packed})
    open_rocksdb_log_store(folder).close()
    for at in range(0, len(packed), 3):
        damaged = bytearray(packed)
        damaged[at] ^= 1
        put(folder, {place: bytes(damaged)})
        with pytest.raises(DataLossError, match=rf"the row of {table.name} with the key .* is damaged"):
            open_rocksdb_log_store(folder)


@pytest.mark.parametrize("table", EXAMPLES, ids=lambda table: table.name)
def test_a_row_of_a_later_version_is_refused(folder: Path, table: Table[Any, Any]) -> None:
    [((family, key), packed)] = present(table, *EXAMPLES[table]).items()
    put(folder, {(family, key): sealed(key, b"\x09" + packed[1:-4])})
    with pytest.raises(DataLossError, match="version 9, which this server does not know"):
        open_rocksdb_log_store(folder)


@pytest.mark.parametrize("table", [SNAPSHOTS, LOGGED, WINDOWS], ids=lambda table: table.name)
def test_a_row_beyond_the_end_of_its_vchannel_is_refused(folder: Path, table: Table[Any, Any]) -> None:
    key, value = EXAMPLES[table]
    later = ProducerWindow(0).extended(Result(END, 2, 7, is_synced=True)) if table is WINDOWS else END + 1
    put(folder, present(table, key, value))
    open_rocksdb_log_store(folder).close()
    put(folder, present(table, key, later))
    with pytest.raises(DataLossError, match=f"ends at {END}"):
        open_rocksdb_log_store(folder)


def test_a_row_of_a_vchannel_that_does_not_exist_is_refused(folder: Path) -> None:
    put(folder, present(SNAPSHOTS, 9, 0))
    with pytest.raises(DataLossError, match="vchannel id 9, which does not exist"):
        open_rocksdb_log_store(folder)


@pytest.mark.parametrize("key", [b"r\x08\x00\x00\x00\x01", b"r\x06\x00\x00\x01", b"z"])
def test_a_row_of_an_unknown_table_is_refused(folder: Path, key: bytes) -> None:
    put(folder, {("index", key): sealed(key, b"\x01")})
    with pytest.raises(DataLossError, match=f"unknown key {key.hex()}: use the server that wrote it"):
        open_rocksdb_log_store(folder)


def test_a_format_that_cannot_be_written_stops_the_store_before_the_row_is(folder: Path) -> None:
    put(folder, {})
    store = open_rocksdb_log_store(folder)
    # In the place of the file that replaces FORMAT.
    (folder / "FORMAT.new").mkdir()
    for _ in range(2):
        with pytest.raises(StorageFailedError, match=r"writing FORMAT: .*Is a directory"):
            store.write([new_entry(1, 200)], [SNAPSHOTS.row(1, 101)])
    store.close()
    (folder / "FORMAT.new").rmdir()
    assert stored(folder) == {}
    assert (folder / "FORMAT").read_bytes() == FORMAT_1
    store = open_rocksdb_log_store(folder)
    assert store.tail(1).last_tick == END
    store.close()
