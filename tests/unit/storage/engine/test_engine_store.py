"""A store whose log is in an engine: what readers see, who may write, and what becomes of its view."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import structlog
from rocksdict import ColumnFamily, WriteBatch

from tidelog_server.core.errors import DataLossError, Effect, StorageFailedError
from tidelog_server.core.errors.cluster import OwnershipLostError
from tidelog_server.log.rows import WINDOWS
from tidelog_server.recordlog.engine import EngineUnavailableError, Report
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.recordlog.rules import FencedError
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.storage.engine.open import LogName, open_engine_store
from tidelog_server.storage.engine.store import EngineLogStore
from tidelog_server.storage.engine.writer import EngineWriter
from tidelog_server.storage.format.folder_errors import DataFolderError, FolderInUseError
from tidelog_server.storage.format.keys import VIEW_KEY, index_range, log_end_key, log_key, tail_key
from tidelog_server.storage.log_store import LogStore, WriteTraits
from tidelog_server.storage.recovery.open import open_rocksdb_log_store
from tidelog_server.storage.rocksdb.engine import close_engine, open_engine
from tidelog_server.storage.rocksdb.index import load_index
from tidelog_testing.parts.engine_stores import (
    NAME,
    SilentEngine,
    append_run,
    create_log,
    delete_view,
    make_changes,
    open_in,
    open_on,
    state_of,
)
from tidelog_testing.parts.entries import END, new_entry, place_and_columns, read_all, run_of_entries
from tidelog_testing.parts.folder_engine import FolderEngine, Unruly


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EngineLogStore]:
    opened = open_in(tmp_path)
    opened.create_vchannels([1, 2])
    yield opened
    opened.close()


def ticks(store: LogStore, vchannel_id: int = 1) -> list[int]:
    return [entry.header.base_tick for entry in read_all(store, vchannel_id)]


def test_it_is_a_log_store(store: EngineLogStore) -> None:
    as_protocol: LogStore = store
    assert as_protocol.wal_name == "engine"
    assert as_protocol.write_traits == WriteTraits(5, always_syncs=True, gives_up_syncs=True)


def test_readers_see_what_is_durable_and_the_head_counts_what_was_written(store: EngineLogStore) -> None:
    first = store.write([new_entry(1, 10, size_bytes=5_000)])
    second = store.write([new_entry(1, 20), new_entry(2, 20)])
    assert (ticks(store), store.tail(1).batches, store.head.sequence) == ([], 0, 3)
    store.sync(first)
    assert (ticks(store), ticks(store, 2), store.tail(1).last_tick) == ([10], [], 19)
    store.sync(second)
    assert (ticks(store), ticks(store, 2), store.tail(1).last_tick) == ([10, 20], [20], 29)


def test_a_sync_without_a_mark_covers_everything_and_a_write_of_nothing_is_covered(store: EngineLogStore) -> None:
    marks = [store.write([new_entry(1, tick)]) for tick in (10, 20, 30)]
    assert store.write([]) == marks[-1]
    store.sync()
    assert ticks(store) == [10, 20, 30]
    for mark in marks:
        store.sync(mark)


def test_a_trim_of_what_was_not_synced_waits_for_it(store: EngineLogStore) -> None:
    store.write(run_of_entries(1, 40, size_bytes=2_000))
    last = run_of_entries(1, 40)[-1]
    tail = store.trim(1, last.base_tick)
    assert (tail.trim_tick, ticks(store)) == (last.base_tick - 1, [last.base_tick])


def test_trims_together_are_one_record(store: EngineLogStore, tmp_path: Path) -> None:
    for vchannel_id in (1, 2):
        store.sync(store.write(run_of_entries(vchannel_id, 5, first_tick=100)))
    end = FolderEngine(tmp_path / "log").bounds().end
    tails = store.trim_all({1: 125, 2: END})
    assert (tails[1].trim_tick, tails[2].trim_tick, ticks(store, 2)) == (125, 154, [])
    assert FolderEngine(tmp_path / "log").bounds().end == end + 1


def test_a_group_of_several_parts_is_read_as_it_was_written(tmp_path: Path) -> None:
    sizes = [300, 700_000, 2_500_000, 512, 513, 1_000_000]
    written = [new_entry(1, 100 * number, size_bytes=size_bytes) for number, size_bytes in enumerate(sizes, 1)]
    with closing(open_in(tmp_path)) as store:
        store.create_vchannels([1])
        store.sync(store.write(written))
        assert list(map(place_and_columns, read_all(store, 1))) == list(map(place_and_columns, written))
    delete_view(tmp_path)
    with closing(open_in(tmp_path)) as store:
        assert list(map(place_and_columns, read_all(store, 1))) == list(map(place_and_columns, written))


# -- Takeover --------------------------------------------------------------------------------------------------


def test_a_claim_ends_the_store_of_the_former_owner_and_loses_nothing_acknowledged(
    store: EngineLogStore, tmp_path: Path
) -> None:
    store.sync(store.write([new_entry(1, 10)]))
    store.write([new_entry(1, 20)])
    with closing(open_on(FolderEngine(tmp_path / "log"), tmp_path / "other")) as owner:
        assert ticks(owner) == [10]
        late = store.write([new_entry(1, 30)])
        with pytest.raises(OwnershipLostError, match="claimed the log 'test-log', in term 2") as raised:
            store.sync(late)
        assert raised.value.effect is Effect.UNKNOWN
        # Nothing more is written, and reads continue with what was durable.
        for change in (
            lambda: store.write([new_entry(1, 40)]), store.sync, lambda: store.trim(1, 15),
            lambda: store.create_vchannels([9]), lambda: store.fence(1, 1), lambda: store.drop_vchannels([1]),
        ):  # fmt: skip
            with pytest.raises(OwnershipLostError):
                change()
        assert ticks(store) == [10]
        # In the place of the former owner's entry, which does not exist.
        mine = [new_entry(1, 10), new_entry(1, 20, size_bytes=77), new_entry(1, 40)]
        owner.sync(owner.write(mine[1:]))
        assert list(map(place_and_columns, read_all(owner, 1))) == list(map(place_and_columns, mine))
    with closing(open_in_other_view(tmp_path)) as third:
        assert list(map(place_and_columns, read_all(third, 1))) == list(map(place_and_columns, mine))
        assert third.head.sequence == 3


def open_in_other_view(folder: Path) -> EngineLogStore:
    shutil.rmtree(folder / "other")
    return open_on(FolderEngine(folder / "log"), folder / "other")


def test_owners_take_turns_and_all_see_the_same(tmp_path: Path) -> None:
    open_in(tmp_path).close()
    open_stores: list[EngineLogStore] = []
    acknowledged: list[int] = []
    for turn in range(12):
        engine = FolderEngine(tmp_path / "log", Unruly(repeated=0.2, seed=turn))
        store = open_on(engine, tmp_path / f"view-{turn % 5}-{turn}")
        open_stores.append(store)
        store.create_vchannels([1])
        assert set(acknowledged) <= set(ticks(store))
        for former in open_stores[:-1]:
            with pytest.raises(OwnershipLostError):
                former.sync(former.write([new_entry(1, former.tail(1).last_tick + 1_000)]))
        for _ in range(3):
            entry = new_entry(1, store.tail(1).last_tick + 1, size_bytes=900)
            try:
                store.sync(store.write([entry]))
            except OwnershipLostError:
                # The unruly engine has reported the copy of a record that was not the first.
                break
            acknowledged.append(entry.base_tick)
    for store in open_stores:
        store.close()
    with closing(open_in(tmp_path)) as last:
        found = ticks(last)
    assert len(set(found)) == len(found)
    assert set(acknowledged) <= set(found)
    assert len(acknowledged) > 20


def test_a_greater_term_is_claimed_and_the_same_is_refused(store: EngineLogStore, tmp_path: Path) -> None:
    def claim(term: int) -> EngineLogStore:
        log = RecordLog(FolderEngine(tmp_path / "log"), SystemClock())
        return open_engine_store(tmp_path / "other", log, NAME, term=term)

    claim(7).close()
    with pytest.raises(FencedError):
        claim(7)
    # The folder is free again.
    claim(8).close()


# -- The engine fails ------------------------------------------------------------------------------------------


class FaultyEngine(FolderEngine):
    """An engine that a test stops.

    Attributes:
        silent_for: Number of polls that do nothing, and of reads that fail.
        error: What the next records get instead of a position.
    """

    silent_for = 0
    error: Exception | None = None

    def send(self, value: bytes, report: Report) -> None:
        if self.error is None:
            super().send(value, report)
        else:
            report(self.error)

    def poll(self, timeout_s: float) -> None:
        if self.silent_for:
            self.silent_for -= 1
            return
        super().poll(timeout_s)


def test_a_silent_engine_is_waited_for(tmp_path: Path) -> None:
    create_log(FolderEngine(tmp_path / "log"))
    engine = FaultyEngine(tmp_path / "log")
    with closing(open_on(engine, tmp_path / "view")) as store:
        store.create_vchannels([1])
        engine.silent_for = 20
        store.sync(store.write([new_entry(1, 10)]))
        assert engine.silent_for == 0
        assert ticks(store) == [10]


def test_a_record_of_unknown_outcome_stops_the_store(tmp_path: Path) -> None:
    create_log(FolderEngine(tmp_path / "log"))
    engine = FaultyEngine(tmp_path / "log")
    with closing(open_on(engine, tmp_path / "view")) as store:
        store.create_vchannels([1])
        engine.error = EngineUnavailableError("the connection broke")
        mark = store.write([new_entry(1, 10)])
        with pytest.raises(
            OwnershipLostError, match=r"'test-log' has a record of .* \(record 2 of term 1: the connection broke\)"
        ) as raised:
            store.sync(mark)
        assert (raised.value.effect, raised.value.is_claimed) == (Effect.UNKNOWN, False)
        engine.error = None
        with pytest.raises(OwnershipLostError) as refused:
            store.write([new_entry(1, 20)])
        assert (refused.value.effect, refused.value.is_claimed) == (Effect.NONE, False)


def test_a_former_owner_whose_records_were_trimmed_learns_of_the_claim(store: EngineLogStore, tmp_path: Path) -> None:
    store.sync(store.write([new_entry(1, 10)]))
    with closing(open_on(FolderEngine(tmp_path / "log"), tmp_path / "other")) as owner:
        make_changes(owner.snapshot())
        append_run(owner, 1, 20, 40)
        make_changes(owner.snapshot())
        # It begins behind all that the former owner has read, and behind the claim.
        assert FolderEngine(tmp_path / "log").bounds().begin > store._engine_writer.end + 1
        with pytest.raises(OwnershipLostError, match="claimed the log 'test-log', in term 2") as raised:
            store.sync(store.write([new_entry(1, 10_000)]))
        assert raised.value.is_claimed


def test_a_log_that_another_program_has_trimmed_was_not_claimed(store: EngineLogStore, tmp_path: Path) -> None:
    store.sync(store.write([new_entry(1, 10)]))
    stranger = FolderEngine(tmp_path / "log")
    for _ in range(3):
        stranger.send(b"something else", lambda _: None)
    stranger.poll(0)
    stranger.trim(stranger.bounds().end)
    with pytest.raises(OwnershipLostError, match=r"records from position \d+ were asked for") as raised:
        store.sync(store.write([new_entry(1, 100)]))
    assert not raised.value.is_claimed


# -- The view --------------------------------------------------------------------------------------------------


def fill(folder: Path) -> dict[str, object]:
    """Fill a store, and return its state."""
    with closing(open_in(folder)) as store:
        store.create_vchannels([1, 2, 3])
        for entry in run_of_entries(1, 40, size_bytes=3_000):
            store.write([entry, new_entry(2, entry.base_tick, size_bytes=20)])
        store.write([], [])
        store.trim(1, 1_100)
        store.drop_vchannels([3])
        store.fence(2, 7)
        # After the trim, which has written the tail: its row has not all of these.
        store.write(run_of_entries(1, 5, first_tick=1_600, size_bytes=3_000))
        store.metadata_rows().apply([(b"a", b"1"), (b"b", b"2")], [b"c"])
        return {**state_of(store), "metadata": store.metadata_rows().scan()}


def state_after(folder: Path) -> tuple[dict[str, object], list[str]]:
    """Open the store in ``folder``; return its state, and why its view was made again."""
    with structlog.testing.capture_logs() as logs, closing(open_in(folder)) as store:
        state = {**state_of(store), "metadata": store.metadata_rows().scan()}
    return state, [str(event["reason"]) for event in logs if event["event"] == "view_rebuilt"]


def delete_database(view: Path) -> None:
    shutil.rmtree(view / "db")


def damage_manifest(view: Path) -> None:
    for path in (view / "db").glob("MANIFEST-*"):
        path.write_bytes(b"damaged")


def name_another_log(view: Path) -> None:
    (view / "FORMAT").write_text("tidelog view format 1\nanother-log\n")


def name_a_later_format(view: Path) -> None:
    (view / "FORMAT").write_text("tidelog view format 9\ntest-log\n")


def change_rows(view: Path, change: Callable[[WriteBatch, dict[str, ColumnFamily]], None]) -> None:
    engine = open_engine(view / "db", read_only=False)
    batch = WriteBatch(raw_mode=True)
    change(batch, dict(engine.handles))
    engine.db.write(batch)
    del batch
    close_engine(engine)


def lose_a_tail(view: Path) -> None:
    change_rows(view, lambda batch, handles: batch.delete(tail_key(1), handles["index"]))


def lose_the_last_entries(view: Path) -> None:
    change_rows(view, lambda batch, handles: batch.delete_range(log_key(1, 1_630), log_key(2, 0), handles["log"]))


def damage_the_place(view: Path) -> None:
    change_rows(view, lambda batch, handles: batch.put(VIEW_KEY, b"damaged", handles["index"]))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (shutil.rmtree, ""),
        (delete_database, "its database is missing"),
        (damage_manifest, "opening the view failed"),
        (name_another_log, "it is a view of the log 'another-log'"),
        (name_a_later_format, "it has the format 'tidelog view format 9'"),
        (lose_a_tail, "its vchannels have 40 entries of 80"),
        (lose_the_last_entries, "at tick 1653 is missing or does not match the tail row"),
        (damage_the_place, "the row that says up to where the view has the log is damaged"),
    ],
)
def test_a_view_that_is_missing_damaged_or_foreign_is_made_again(
    tmp_path: Path, damage: Callable[[Path], None], reason: str
) -> None:
    state = fill(tmp_path)
    damage(tmp_path / "view")
    found, reasons = state_after(tmp_path)
    assert found == state
    assert len(reasons) == (damage is not shutil.rmtree)
    assert reason in "".join(reasons)
    assert state_after(tmp_path) == (state, [])


def filled_and_crashed(folder: Path) -> tuple[dict[str, object], Path]:
    """Fill a store and close it; return its state, and a view that a crash before the close would have left."""
    with closing(open_in(folder)) as store:
        store.create_vchannels([1, 2, 3])
        store.write([*run_of_entries(1, 5), *run_of_entries(2, 40)])
        store.sync()
        shutil.copytree(store.folder, folder / "crashed")
        return {**state_of(store), "metadata": []}, folder / "crashed"


def has_all_tails(view: Path, entries: int) -> bool:
    engine = open_engine(view / "db", read_only=True)
    index = load_index(engine, sequence=entries)
    assert index.digest() == load_index(engine).digest()
    close_engine(engine)
    return index.is_as_closed


def use(view: Path, folder: Path) -> None:
    """Use another view of the same log."""
    shutil.rmtree(folder / "view")
    view.rename(folder / "view")


def test_a_clean_stop_writes_all_tails_into_the_view_and_a_crash_leaves_them_behind(tmp_path: Path) -> None:
    state, crashed = filled_and_crashed(tmp_path)
    assert has_all_tails(tmp_path / "view", 45)
    assert state_after(tmp_path) == (state, [])
    assert not has_all_tails(crashed, 45)
    use(crashed, tmp_path)
    assert state_after(tmp_path) == (state, [])
    assert has_all_tails(tmp_path / "view", 45)


def test_a_view_that_a_crash_left_without_its_last_entries_is_made_again(tmp_path: Path) -> None:
    state, crashed = filled_and_crashed(tmp_path)
    use(crashed, tmp_path)
    change_rows(
        tmp_path / "view",
        lambda batch, handles: batch.delete_range(log_key(1, 0), log_end_key(1), handles["log"]),
    )
    assert state_after(tmp_path) == (state, ["its vchannels have 40 entries of 45"])


def test_the_place_of_the_view_outlives_the_drop_of_the_vchannel_whose_keys_are_around_it(tmp_path: Path) -> None:
    vchannel_id = int.from_bytes(VIEW_KEY + bytes(3)) - 1
    begin_key, end_key = index_range(vchannel_id)
    assert begin_key < VIEW_KEY < end_key
    with closing(open_in(tmp_path)) as store:
        store.create_vchannels([vchannel_id])
        store.drop_vchannels([vchannel_id])
        state = state_of(store)
    found, reasons = state_after(tmp_path)
    assert ({**found, "metadata": 0}, reasons) == ({**state, "metadata": 0}, [])


def test_a_shorter_view_is_continued_where_it_ends(tmp_path: Path) -> None:
    fill(tmp_path)
    shutil.copytree(tmp_path / "view", tmp_path / "earlier")
    with closing(open_in(tmp_path)) as store:
        store.sync(store.write([new_entry(1, 90_000)], WINDOWS.changes({})))
        state = {**state_of(store), "metadata": store.metadata_rows().scan()}
    delete_view(tmp_path)
    (tmp_path / "earlier").rename(tmp_path / "view")
    assert state_after(tmp_path) == (state, [])


def test_another_log_of_the_same_name_is_data_loss_and_the_view_is_unchanged(tmp_path: Path) -> None:
    fill(tmp_path)
    shutil.rmtree(tmp_path / "log")
    RecordLog(FolderEngine(tmp_path / "log"), SystemClock()).create(bytes(range(1, 17)))
    with pytest.raises(DataLossError, match=r"is another one than the view in .* has seen"):
        open_in(tmp_path)
    assert (tmp_path / "view" / "db" / "CURRENT").exists()
    # The log was not claimed either.
    assert FolderEngine(tmp_path / "log").bounds() == (0, 1)


class WatchedEngine(SilentEngine):
    """Notes whether it is used after it was closed."""

    was_used_late = False

    def poll(self, timeout_s: float) -> None:
        super().poll(timeout_s)
        self.was_used_late = self.was_used_late or self._is_closed


def test_a_close_waits_for_a_sync_of_another_thread(tmp_path: Path) -> None:
    create_log(FolderEngine(tmp_path / "log"))
    engine = WatchedEngine(tmp_path / "log")
    store = open_on(engine, tmp_path / "view")
    store.create_vchannels([1])
    engine.may_answer.clear()
    mark = store.write([new_entry(1, 10)])
    ended: list[Exception] = []

    def sync() -> None:
        try:
            store.sync(mark)
        except StorageFailedError as error:
            ended.append(error)

    thread = threading.Thread(target=sync)
    thread.start()
    assert isinstance(store._writer, EngineWriter)
    while not store._writer._is_confirming:
        thread.join(0.001)
    store._writer.fail("the disk broke")
    store.close()
    thread.join()
    assert [error.values["cause"] for error in ended if isinstance(error, StorageFailedError)] == ["the disk broke"]
    assert not engine.was_used_late


def test_a_log_that_has_lost_its_end_is_data_loss_and_the_view_is_unchanged(tmp_path: Path) -> None:
    fill(tmp_path)
    records = sorted(path for path in (tmp_path / "log").iterdir() if path.name.isdecimal())
    for path in records[-3:]:
        path.unlink()
    with pytest.raises(DataLossError, match="the log ends before position"):
        open_in(tmp_path)
    assert (tmp_path / "view" / "db" / "CURRENT").exists()


def test_a_log_that_was_never_created_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataLossError, match="has no first record"):
        open_on(FolderEngine(tmp_path / "log"), tmp_path / "view")
    assert FolderEngine(tmp_path / "log").bounds() == (0, 0)


def test_a_data_folder_is_no_view_and_a_view_no_data_folder(tmp_path: Path) -> None:
    open_rocksdb_log_store(tmp_path / "store").close()
    create_log(FolderEngine(tmp_path / "log"))
    with pytest.raises(DataFolderError, match="is a data folder, which is not the view of a log"):
        open_on(FolderEngine(tmp_path / "log"), tmp_path / "store")
    open_rocksdb_log_store(tmp_path / "store").close()
    open_in(tmp_path).close()
    with pytest.raises(DataFolderError, match="is the view of a log in an engine, which is no data folder: choose"):
        open_rocksdb_log_store(tmp_path / "view")
    open_in(tmp_path).close()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(DataFolderError, match="has other files"):
        open_on(FolderEngine(tmp_path / "log"), tmp_path / "full")


def test_a_folder_has_one_view_at_a_time(store: EngineLogStore, tmp_path: Path) -> None:
    with pytest.raises(FolderInUseError):
        open_on(FolderEngine(tmp_path / "log"), tmp_path / "view")
    # The log was not claimed.
    store.sync(store.write([new_entry(1, 10)]))


def test_columns_that_the_log_has_lost_are_data_loss_unless_they_were_trimmed(tmp_path: Path) -> None:
    with closing(open_in(tmp_path)) as store:
        store.create_vchannels([1])
        positions = []
        for tick in (100, 200, 300):
            positions.append(FolderEngine(tmp_path / "log").bounds().end)
            store.sync(store.write([new_entry(1, tick, size_bytes=5_000)]))
    engine = FolderEngine(tmp_path / "log")
    with closing(open_on(engine, tmp_path / "view")) as store:
        headers = store.headers(1, 0, END, 10)
        engine.trim(positions[1])
        with pytest.raises(DataLossError, match="vchannel id 1, ticks 100 to 109: an entry's columns are missing"):
            store.columns(headers)
        store.trim(1, 200)
        columns = store.columns(headers)
        assert [each is None for each in columns] == [True, False, False]
        assert ticks(store) == [200, 300]


def test_the_name_of_a_log_is_part_of_its_errors(tmp_path: Path) -> None:
    create_log(FolderEngine(tmp_path / "log"))
    log = RecordLog(FolderEngine(tmp_path / "log"), SystemClock())
    with closing(open_engine_store(tmp_path / "view", log, LogName("kafka", "tidelog.single.n1"))) as store:
        assert store.wal_name == "kafka"
        store.create_vchannels([1])
        with closing(
            open_engine_store(tmp_path / "other", RecordLog(FolderEngine(tmp_path / "log"), SystemClock()), NAME)
        ):
            with pytest.raises(OwnershipLostError, match=r"tidelog\.single\.n1"):
                store.fence(1, 1)
