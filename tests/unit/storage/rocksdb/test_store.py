"""Behaviour specific to the store on RocksDB: it survives a restart, frees disk space, stops on a failure, and detects
damage.

Method: real stores on a real disk; rows are damaged through the engine, so that RocksDB's own checks pass and only the
store's checks can detect it.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tidelog_server.core.errors import DataLossError, StorageFailedError
from tidelog_server.core.limits import MIB
from tidelog_server.core.transactions import AppCommit, AppKey, TxnOutcome, TxnRun
from tidelog_server.storage.format.codec import TailRow, pack_txn
from tidelog_server.storage.format.head_file import HeadFile, read_head
from tidelog_server.storage.format.keys import STORE_KEY, chunk_key, index_range, log_key, staged_key, tail_key, txn_key
from tidelog_server.storage.log_store import LogStore
from tidelog_server.storage.recovery.open import open_rocksdb_log_store
from tidelog_server.storage.rocksdb import pressure
from tidelog_server.storage.rocksdb import writer as rocksdb_writer
from tidelog_server.storage.rocksdb.engine import (
    COLUMNS_BUFFERS,
    FAMILIES,
    Engine,
    check_options_file,
    close_engine,
    open_engine,
)
from tidelog_server.storage.rocksdb.index import load_index
from tidelog_server.storage.rocksdb.store import RocksdbLogStore
from tidelog_server.txn.rows import APP_COMMITS, OUTCOMES
from tidelog_testing.faults.damage import crashed_copy
from tidelog_testing.parts.entries import (
    END,
    committed,
    new_entry,
    place_and_columns,
    read_all,
    run_of_entries,
    staged_batch,
)
from tidelog_testing.servers.disk import disk_bytes


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksdbLogStore]:
    opened = open_rocksdb_log_store(tmp_path / "store")
    opened.create_vchannels([1, 2])
    yield opened
    opened.close()


ETL = AppKey("", "etl")


def test_it_is_a_log_store(store: RocksdbLogStore) -> None:
    as_protocol: LogStore = store
    assert as_protocol.wal_name == "rocksdb"


def test_a_drop_leaves_the_row_of_the_store_whose_key_sorts_among_those_of_the_vchannel(tmp_path: Path) -> None:
    vchannel_id = int.from_bytes(STORE_KEY + bytes(3)) - 1
    begin_key, end_key = index_range(vchannel_id)
    assert begin_key < STORE_KEY < end_key
    with closing(open_rocksdb_log_store(tmp_path / "store")) as store:
        store.create_vchannels([vchannel_id])
        store.drop_vchannels([vchannel_id])
    with closing(open_rocksdb_log_store(tmp_path / "store")) as store:
        assert store.vchannel_ids() == []


@pytest.mark.parametrize("trims_at", [0, 1, 70, 1_100])
@pytest.mark.parametrize("entries", [1, 15, 16, 17, 63, 1_023, 1_024, 1_025, 1_100])
def test_tails_are_caught_up_at_the_start(tmp_path: Path, entries: int, trims_at: int) -> None:
    written = run_of_entries(1, entries)
    with closing(open_rocksdb_log_store(tmp_path / "store")) as store:
        store.create_vchannels([1, 2, 3])
        for number in range(0, entries, 30):
            store.write(written[number : number + 30])
            # Another vchannel, so that the last entry of the store is not the last of this one.
            store.write(run_of_entries(2, 1, first_tick=written[number].base_tick))
            if number <= trims_at < number + 30:
                store.trim(1, written[min(trims_at, entries - 1)].base_tick + 1)
        before, tails = store.head, dict(store._state.tails)
        chunks = [store.chunks(vchannel_id, 0, END) for vchannel_id in (1, 2, 3)]
    with closing(open_rocksdb_log_store(tmp_path / "store")) as store:
        assert (store.head, store._state.tails) == (before, tails)
        assert [store.chunks(vchannel_id, 0, END) for vchannel_id in (1, 2, 3)] == chunks
        store.write(run_of_entries(1, 1, first_tick=written[-1].last_tick + 1))
        assert store.tail(1).batches == entries + 1


def test_the_engine_runs_with_the_options_that_durability_needs(store: RocksdbLogStore) -> None:
    check_options_file(store.folder / "db")


def test_a_file_of_options_that_a_crash_left_half_written_is_passed_over(tmp_path: Path) -> None:
    with closing(open_rocksdb_log_store(tmp_path / "store")) as store:
        store.create_vchannels([1])
    (tmp_path / "store" / "db" / "OPTIONS-999999.dbtmp").write_bytes(b"[DBOptions]\n  paranoid_checks=fa")
    with closing(open_rocksdb_log_store(tmp_path / "store")) as store:
        assert store.vchannel_ids() == [1]


def test_another_option_is_noticed(store: RocksdbLogStore, tmp_path: Path) -> None:
    newest = max((store.folder / "db").glob("OPTIONS-*"))
    text = newest.read_text().replace("kPointInTimeRecovery", "kSkipAnyCorruptedRecords")
    (tmp_path / "OPTIONS-000001").write_text(text)
    with pytest.raises(DataLossError, match="wal_recovery_mode"):
        check_options_file(tmp_path)


def test_the_disk_of_trimmed_entries_comes_back(store: RocksdbLogStore) -> None:
    for entry in run_of_entries(1, 100, size_bytes=MIB):
        store.write([entry])
        store.sync()
    store._engine.columns.flush()
    full_bytes = disk_bytes(store.folder / "db")
    assert full_bytes > 99 * MIB
    store.trim(1, store.tail(1).last_tick - 10 * 11)
    store.reclaim()
    assert disk_bytes(store.folder / "db") < 12 * MIB
    assert len(list(read_all(store, 1, max_bytes=8 * MIB))) == 11


def test_the_disk_comes_back_although_another_vchannel_shares_the_files(store: RocksdbLogStore) -> None:
    for i, entry in enumerate(run_of_entries(1, 60, size_bytes=MIB)):
        store.write([entry, new_entry(2, 1_000 + 20 * i, size_bytes=100_000)])
        store.sync()
    store._engine.columns.flush()
    assert disk_bytes(store.folder / "db") > 60 * MIB
    store.drop_vchannels([1])
    store.reclaim()
    assert disk_bytes(store.folder / "db") < 8 * MIB
    assert len(list(read_all(store, 2))) == 60


def test_what_was_dropped_before_a_restart_is_reclaimed_after_it(tmp_path: Path) -> None:
    store = open_rocksdb_log_store(tmp_path / "store")
    store.create_vchannels([1, 2, 3])
    for entries in zip(
        run_of_entries(1, 40, size_bytes=MIB // 2), run_of_entries(3, 40, size_bytes=MIB // 2), strict=True
    ):
        store.write(entries)
        store.sync()
    store.trim(3, END)
    store.drop_vchannels([1])
    store.close()
    store = open_rocksdb_log_store(tmp_path / "store")
    store.reclaim()
    assert disk_bytes(store.folder / "db") < MIB
    store.close()


def test_a_close_ends_a_running_reclaim_and_the_next_start_finishes_it(tmp_path: Path) -> None:
    store = open_rocksdb_log_store(tmp_path / "store")
    store.create_vchannels([1, 2])
    for entry in run_of_entries(1, 150, size_bytes=MIB):
        store.write([entry, new_entry(2, entry.base_tick, size_bytes=200_000)])
        store.sync()
    store.drop_vchannels([1])
    with ThreadPoolExecutor(1) as executor:
        reclaiming = executor.submit(store.reclaim)
        while not store._reclaimer._run_lock.locked() and not reclaiming.done():
            pass
        store.close()
        reclaiming.result(timeout=240)
    store = open_rocksdb_log_store(tmp_path / "store")
    assert len(list(read_all(store, 2))) == 150
    store.reclaim()
    assert disk_bytes(store.folder / "db") < 50 * MIB
    store.close()


def test_the_engine_is_asked_whether_it_is_busy_after_a_mebibyte_and_until_it_is_not(
    store: RocksdbLogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ["busy", "busy", None]
    asked: list[str | None] = []

    def ask(_: object) -> str | None:
        asked.append(answers[len(asked)])
        return asked[-1]

    monkeypatch.setattr(rocksdb_writer, "stall_reason", ask)
    store.write(run_of_entries(1, 3, size_bytes=MIB // 4))
    assert store.stall_reason() is None
    assert asked == []
    store.write(run_of_entries(2, 1, size_bytes=MIB // 4))
    assert [store.stall_reason() for _ in range(5)] == ["busy", "busy", None, None, None]
    assert asked == answers


@pytest.mark.parametrize("name", FAMILIES)
def test_the_engine_is_busy_when_the_buffers_of_any_family_are_full(
    store: RocksdbLogStore, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = store._engine.family(name)
    buffers = {"num-immutable-mem-table": COLUMNS_BUFFERS - 1}
    assert pressure.stall_reason(store._engine) is None
    monkeypatch.setattr(pressure, "integer_property", lambda family, key: buffers.get(key, 0) if family is full else 0)
    assert name in (pressure.stall_reason(store._engine) or "")


def test_the_first_failure_stops_the_store_and_reads_go_on(store: RocksdbLogStore) -> None:
    store.write(run_of_entries(1, 3))
    store._writer.fail("the disk broke")
    store._writer.fail("a later cause")
    for attempt in (
        lambda: store.write([new_entry(1, 9_000)]),
        store.sync,
        lambda: store.trim(1, END),
        lambda: store.create_vchannels([9]),
        lambda: store.drop_vchannels([1]),
        lambda: store.metadata_rows().apply([(b"k", b"v")], []),
    ):
        with pytest.raises(StorageFailedError, match="the disk broke"):
            attempt()
    assert len(list(read_all(store, 1))) == 3


def test_a_missing_entry_is_never_passed_over(store: RocksdbLogStore) -> None:
    entries = run_of_entries(1, 5)
    store.write(entries)
    for gone in entries:
        key = log_key(1, gone.base_tick)
        header = store._engine.log.get(key)
        assert isinstance(header, bytes)
        store._engine.log.delete(key)
        for begin_tick, end_tick in ((0, END), (gone.base_tick, gone.last_tick + 1), (gone.base_tick + 3, END)):
            with pytest.raises(DataLossError) as loss:
                store.read(1, begin_tick, end_tick, 1 << 20)
            assert loss.value.values["vchannel_id"] == "1"
        store._engine.log.put(key, header)
    assert len(store.read(1, 0, END, 1 << 20)) == 5


def test_a_missing_entry_does_not_hide_its_neighbours(store: RocksdbLogStore) -> None:
    entries = run_of_entries(1, 5)
    store.write(entries)
    store._engine.log.delete(log_key(1, entries[2].base_tick))
    assert len(store.read(1, 0, entries[1].last_tick + 1, 200)) == 2
    assert len(store.read(1, entries[4].base_tick, END, 1 << 20)) == 1


def test_missing_or_exchanged_columns_are_noticed(store: RocksdbLogStore) -> None:
    first, second, third = run_of_entries(1, 3, size_bytes=5_000)
    store.write([first, second, third])
    columns = store._engine.columns
    columns.put(log_key(1, first.base_tick), second.columns)
    columns.delete(log_key(1, third.base_tick))
    for entry, problem in ((first, "damaged"), (third, "missing")):
        with pytest.raises(DataLossError, match=problem):
            store.read(1, entry.base_tick, entry.last_tick + 1, 1)
    assert store.read(1, second.base_tick, second.last_tick + 1, 1)[0].columns == second.columns


def test_damaged_columns_beside_their_header_are_noticed(store: RocksdbLogStore) -> None:
    first, second = run_of_entries(1, 2, size_bytes=100)
    store.write([first, second])
    log, key = store._engine.log, log_key(1, first.base_tick)
    row = log.get(key)
    assert isinstance(row, bytes)
    headers = store.headers(1, 0, END, 10)
    log.put(key, row[:-1] + bytes([row[-1] ^ 1]))
    with pytest.raises(DataLossError, match="columns are damaged"):
        store.read(1, first.base_tick, first.last_tick + 1, 1)
    for damaged in (row[:-1], row + b"x", row[:-100]):
        log.put(key, damaged)
        with pytest.raises(DataLossError, match="header"):
            store.headers(1, first.base_tick, first.last_tick + 1, 1)
    assert store.columns(headers) == [first.columns, second.columns]


@pytest.mark.parametrize(("size_bytes", "has_row"), [(0, False), (512, False), (513, True)])
def test_only_large_columns_have_a_row_of_their_own(store: RocksdbLogStore, size_bytes: int, has_row: bool) -> None:
    (entry,) = run_of_entries(1, 1, size_bytes=size_bytes)
    store.write([entry])
    assert (store._engine.columns.get(log_key(1, entry.base_tick)) is not None) == has_row


def test_a_header_in_the_wrong_place_is_noticed(store: RocksdbLogStore) -> None:
    first, second = run_of_entries(1, 2)
    store.write([first, second])
    header = store._engine.log.get(log_key(1, second.base_tick))
    assert isinstance(header, bytes)
    store._engine.log.put(log_key(1, first.base_tick), header)
    with pytest.raises(DataLossError, match="header"):
        store.read(1, 0, END, 1 << 20)


def test_a_missing_chunk_row_is_noticed(store: RocksdbLogStore) -> None:
    store.write(run_of_entries(1, 20, size_bytes=MIB))
    chunks = store.chunks(1, 0, END)
    for chunk in chunks[:-1]:
        key = chunk_key(1, chunk.first_tick)
        row = store._engine.index.get(key)
        assert isinstance(row, bytes)
        store._engine.index.delete(key)
        with pytest.raises(DataLossError, match="chunk"):
            store.chunks(1, 0, END)
        store._engine.index.put(key, row)


def forget_commit(engine: Engine, tail: TailRow) -> None:
    """Mark batches as not committed although they have an outcome."""
    engine.index.put(txn_key(1, 50), pack_txn(1, 50, 0))
    engine.index.put(*OUTCOMES.pack(50, TxnOutcome(tail.last_tick, True, (TxnRun(1, 1),))))


FIRST = run_of_entries(1, 1)[0].base_tick
# Each removes a row through the engine, as a lost table would, or leaves a row whose data is lost.
SPOILERS: dict[str, Callable[[Engine, TailRow], None]] = {
    "first entry of a chunk": lambda engine, _: engine.log.delete(log_key(1, FIRST)),
    "last entry": lambda engine, tail: engine.log.delete(log_key(1, tail.last_base_tick)),
    "entry behind the tail row": lambda engine, tail: engine.log.delete(log_key(1, tail.last_base_tick - 22)),
    "entry of the open chunk": lambda engine, tail: engine.log.delete(log_key(1, tail.open_first_tick)),
    "chunk row": lambda engine, _: engine.index.delete(chunk_key(1, FIRST)),
    "tail row": lambda engine, _: engine.index.delete(tail_key(1)),
    "tail row of an unused vchannel's neighbour": lambda engine, _: engine.index.put(
        tail_key(1), engine.index.get(tail_key(2))
    ),
    "store row": lambda engine, _: engine.index.delete(b"s"),
    "last columns": lambda engine, tail: engine.columns.delete(log_key(1, tail.last_base_tick)),
    "staged batch at the end": lambda engine, _: engine.staged.delete(staged_key(1, 50, 1)),
    "tail row of a vchannel with staged batches": lambda engine, _: engine.index.put(
        txn_key(9, 50), pack_txn(9, 50, 0)
    ),
    "entries up to the last tick of a transaction": lambda engine, _: engine.index.put(
        txn_key(1, 50), pack_txn(1, 50, END - 1)
    ),
    "commit of staged batches with an outcome": forget_commit,
    "entries up to the last tick of an outcome": lambda engine, _: engine.index.put(
        *OUTCOMES.pack(50, TxnOutcome(END - 1, True, (TxnRun(1, 1),)))
    ),
    "entries up to the last tick of an application's row": lambda engine, _: engine.index.put(
        *APP_COMMITS.pack(ETL, AppCommit(5, END - 3, 3, True))
    ),
    "application whose row is under another's key": lambda engine, _: engine.index.put(
        APP_COMMITS.key_of(AppKey("", "other")), APP_COMMITS.pack(ETL, AppCommit(5, FIRST, 1, True))[1]
    ),
}


def spoil(folder: Path, spoiler: Callable[[Engine, TailRow], None], *, head_follows: bool) -> None:
    """Change rows of a store that was closed; if ``head_follows``, RocksDB's count of changes does not show it."""
    engine = open_engine(folder / "db", read_only=False)
    spoiler(engine, load_index(engine).tails[1])
    sequence = engine.db.latest_sequence_number()
    close_engine(engine)
    if head_follows:
        head = read_head(folder / "HEAD")
        assert head is not None
        with closing(HeadFile.open(folder / "HEAD")) as file:
            file.write(head._replace(generation=head.generation + 1, engine_sequence=sequence))


def test_the_gate_names_the_entry_that_is_missing_behind_a_tail_row(tmp_path: Path) -> None:
    store = open_rocksdb_log_store(tmp_path / "store")
    store.create_vchannels([1])
    entries = run_of_entries(1, 5)
    store.write(entries)
    store._engine.log.delete(log_key(1, entries[2].base_tick))
    store.sync()
    crashed = crashed_copy(store, tmp_path / "crashed")
    store.close()
    with pytest.raises(DataLossError, match=f"at tick {entries[2].last_tick} is missing"):
        open_rocksdb_log_store(crashed)


@pytest.mark.parametrize("head_follows", [False, True])
@pytest.mark.parametrize("what", SPOILERS)
def test_the_gate_notices_a_missing_row(tmp_path: Path, what: str, *, head_follows: bool) -> None:
    store = open_rocksdb_log_store(tmp_path / "store")
    store.create_vchannels([1, 2])
    entries = run_of_entries(1, 22, size_bytes=MIB // 2)
    store.write(entries)
    if "staged" in what:
        last = new_entry(1, entries[-1].last_tick + 1)
        store.write([], staged=[staged_batch(last, 50, 1)])
        store.write([committed(last, 50, 1, last.base_tick, last.last_tick)])
    store.close()
    spoil(tmp_path / "store", SPOILERS[what], head_follows=head_follows)
    if what == "entry behind the tail row" and head_follows:
        # Within the open chunk, after a clean stop: the read finds it, as in closed chunks.
        with closing(open_rocksdb_log_store(tmp_path / "store")) as opened, pytest.raises(DataLossError):
            list(read_all(opened, 1))
        return
    with pytest.raises(DataLossError):
        open_rocksdb_log_store(tmp_path / "store")


def test_a_clean_stop_writes_all_tails_and_a_crash_leaves_them_behind(tmp_path: Path) -> None:
    store = open_rocksdb_log_store(tmp_path / "store")
    store.create_vchannels([1, 2, 3])
    store.write([*run_of_entries(1, 5), *run_of_entries(2, 40)])
    content = [list(map(place_and_columns, read_all(store, each))) for each in (1, 2, 3)]
    store.sync()
    crashed = crashed_copy(store, tmp_path / "crashed")
    store.close()
    for folder, is_as_closed in ((tmp_path / "store", True), (crashed, False), (crashed, True)):
        engine = open_engine(folder / "db", read_only=True)
        index = load_index(engine, read_head(folder / "HEAD"))
        assert index.is_as_closed is is_as_closed
        assert index.digest() == load_index(engine).digest()
        close_engine(engine)
        with closing(open_rocksdb_log_store(folder)) as opened:
            assert [list(map(place_and_columns, read_all(opened, each))) for each in (1, 2, 3)] == content
