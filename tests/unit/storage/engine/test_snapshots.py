"""Snapshots in the log of an engine: of what they are a copy, and which of them a process trusts."""

import shutil
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import structlog

from tidelog_server.core.errors import DataLossError, StorageFailedError
from tidelog_server.core.errors.cluster import OwnershipLostError
from tidelog_server.recordlog.engine import EngineUnavailableError, Read
from tidelog_server.recordlog.record_log import Ticket
from tidelog_server.recordlog.records import EMPTY, Kind, Position, Record, pack_record, unpack_record
from tidelog_server.storage.engine.operations import FAMILY_NUMBERS
from tidelog_server.storage.engine.snapshot_load import read_end
from tidelog_server.storage.engine.store import EngineLogStore
from tidelog_server.storage.format.keys import VIEW_KEY
from tidelog_server.storage.rocksdb.engine import close_engine, open_engine
from tidelog_testing.parts.engine_stores import (
    INCARNATION,
    append_run,
    delete_view,
    engine_in,
    make_changes,
    open_in,
    open_on,
    reopened,
    state_of,
)
from tidelog_testing.parts.entries import new_entry, read_all, run_of_entries
from tidelog_testing.parts.folder_engine import FolderEngine


def before_parts(store: EngineLogStore, monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> None:
    """Call ``act`` with the number of each part of a snapshot before it is written."""
    write_part = store._snapshots._writer.write_part

    def acting(part: int, payload: bytes, *, is_last: bool) -> Ticket:
        act(part)
        return write_part(part, payload, is_last=is_last)

    monkeypatch.setattr(store._snapshots._writer, "write_part", acting)


# -- What a snapshot is a copy of --------------------------------------------------------------------------------


def test_a_view_is_made_from_a_snapshot_and_what_follows_it(store: EngineLogStore, tmp_path: Path) -> None:
    assert make_changes(store.snapshot()) == 0
    append_run(store, 1, 90_000, 3)
    store.drop_vchannels([2])
    state = state_of(store)
    store.close()
    assert engine_in(tmp_path).bounds().begin > 0
    assert reopened(tmp_path) == (state, True)


def test_what_is_in_flight_as_it_is_taken_precedes_its_parts_and_is_replayed(
    store: EngineLogStore, tmp_path: Path
) -> None:
    for entry in run_of_entries(1, 5, first_tick=90_000):
        store.write([entry])
    make_changes(store.snapshot())
    assert [entry.header.base_tick for entry in read_all(store, 1)][-5:] == list(range(90_000, 90_055, 11))
    end = read_end(store._log, store._snapshots.newest.position or 0)
    assert end.first == end.place.next + 5
    state = state_of(store)
    store.close()
    assert reopened(tmp_path) == (state, True)


def test_groups_may_lie_between_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(open_in(tmp_path)) as store:
        store.create_vchannels([1, 2])
        # Columns in the rows of the headers, for several parts.
        store.sync(store.write(run_of_entries(1, 4_000, first_tick=100, size_bytes=500)))
        parts: list[int] = []

        def act(part: int) -> None:
            parts.append(part)
            store.sync(store.write([new_entry(2, 100 + 10 * part, size_bytes=900_000)]))
            store.trim(1, 1_000 * part)

        before_parts(store, monkeypatch, act)
        make_changes(store.snapshot())
        assert parts == [0, 1, 2, 3]
        state = state_of(store)
    assert reopened(tmp_path) == (state, True)


def test_rows_are_those_of_one_moment(store: EngineLogStore) -> None:
    frozen = store._snapshots._writer.freeze()
    append_run(store, 1, 90_000, 1)
    store.trim(2, 150)
    store.drop_vchannels([1])

    rows = Counter(family for family, _, _ in frozen.rows())
    # The trim of the first vchannel has deleted 18.
    assert (rows[FAMILY_NUMBERS["log"]], rows[FAMILY_NUMBERS["columns"]]) == (22, 22)
    frozen.close()


def test_the_newest_one_is_loaded(store: EngineLogStore, tmp_path: Path) -> None:
    for number in range(3):
        append_run(store, 1, 10_000 * (number + 1), 2)
        make_changes(store.snapshot())
    newest = store._snapshots.newest.position
    state = state_of(store)
    store.close()
    delete_view(tmp_path)
    with structlog.testing.capture_logs() as logs, closing(open_in(tmp_path)) as from_snapshot:
        assert state_of(from_snapshot) == state
        assert from_snapshot._snapshots.newest.position == newest
    assert [event["position"] for event in logs if event["event"] == "snapshot_loaded"] == [newest]


# -- Which one is trusted ------------------------------------------------------------------------------------------


class StopError(Exception):
    """A test ends a snapshot."""


def stop() -> None:
    raise StopError


def test_one_that_no_record_names_is_not_loaded(
    store: EngineLogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store._snapshots._writer, "name_snapshot", lambda _: stop())
    with pytest.raises(StopError):
        make_changes(store.snapshot())
    append_run(store, 1, 90_000, 1)
    state = state_of(store)
    store.close()
    assert engine_in(tmp_path).bounds().begin == 0
    assert reopened(tmp_path) == (state, False)


def test_parts_without_an_end_are_skipped_and_the_next_owner_makes_its_own(
    store: EngineLogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_parts(store, monkeypatch, lambda part: stop() if part == 1 else None)
    with pytest.raises(StopError):
        make_changes(store.snapshot())
    with closing(open_on(engine_in(tmp_path), tmp_path / "other")) as owner:
        state = state_of(owner)
        assert state == state_of(store)
        make_changes(owner.snapshot())
    store.close()
    assert reopened(tmp_path) == (state, True)


@pytest.mark.parametrize("until", [0, 1])
def test_a_process_that_was_replaced_ends_its_snapshot_and_stops(
    store: EngineLogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: int
) -> None:
    owners: list[EngineLogStore] = []

    def act(part: int) -> None:
        if part == until:
            owners.append(open_on(engine_in(tmp_path), tmp_path / "other"))

    before_parts(store, monkeypatch, act)
    with pytest.raises(OwnershipLostError):
        make_changes(store.snapshot())
    with pytest.raises(OwnershipLostError):
        store.write([new_entry(1, 90_000)])
    assert store._snapshots.newest.position is None
    (owner,) = owners
    append_run(owner, 1, 90_000, 1)
    state = state_of(owner)
    owner.close()
    store.close()
    assert engine_in(tmp_path).bounds().begin == 0
    assert reopened(tmp_path) == (state, False)


def test_a_replaced_process_does_not_trim(
    store: EngineLogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_snapshot = store._snapshots._writer.name_snapshot

    def claimed_before(position: Position) -> None:
        open_on(engine_in(tmp_path), tmp_path / "other").close()
        name_snapshot(position)

    state = state_of(store)
    monkeypatch.setattr(store._snapshots._writer, "name_snapshot", claimed_before)
    with pytest.raises(OwnershipLostError):
        make_changes(store.snapshot())
    assert engine_in(tmp_path).bounds().begin == 0
    store.close()
    # Its record names it, and does not exist. The snapshot does: it was confirmed.
    assert reopened(tmp_path) == (state, True)


def send(engine: FolderEngine, record: Record) -> None:
    engine.send(pack_record(record), lambda _: None)
    engine.poll(1.0)


def test_a_late_record_that_names_a_trimmed_one_is_passed_over(store: EngineLogStore, tmp_path: Path) -> None:
    make_changes(store.snapshot())
    former = store._snapshots.newest.position
    append_run(store, 1, 50_000, 2)
    store.trim(1, 50_000)
    store.trim(2, 50_000)
    make_changes(store.snapshot())
    state = state_of(store)
    store.close()
    engine = engine_in(tmp_path)
    assert former is not None
    assert former < engine.bounds().begin
    for _ in range(20):
        send(engine, Record(Kind.GROUP, INCARNATION, 0, 5, 0, 1, EMPTY, EMPTY, former, b""))
    assert reopened(tmp_path) == (state, True)


def test_a_log_without_the_snapshot_that_it_names_is_data_loss(store: EngineLogStore, tmp_path: Path) -> None:
    make_changes(store.snapshot())
    append_run(store, 1, 50_000, 2)
    store.close()
    engine = engine_in(tmp_path)
    engine.trim(engine.bounds().end - 1)
    with pytest.raises(DataLossError, match="the newest snapshot that log 'test-log' names is not there"):
        open_in(tmp_path)


def test_a_log_whose_begin_was_deleted_without_a_snapshot_is_data_loss(tmp_path: Path) -> None:
    with closing(open_in(tmp_path)) as store:
        store.metadata_rows().apply([(b"a", b"1")], [])
        store.sync()
    open_in(tmp_path).close()
    engine = engine_in(tmp_path)
    records = [(at, unpack_record(at, value)) for at, value in engine.read(0, 1 << 20).records]
    fences = [at for at, record in records if record is not None and record.kind is Kind.FENCE]
    # Behind it, a store without entries would look complete.
    engine.trim(fences[-1])
    delete_view(tmp_path)
    with pytest.raises(DataLossError, match="the log begins in term 2, at position 3, and no record names a snapshot"):
        open_in(tmp_path)


def test_a_part_that_is_damaged_is_data_loss(store: EngineLogStore, tmp_path: Path) -> None:
    make_changes(store.snapshot())
    position = store._snapshots.newest.position
    assert position is not None
    store.close()
    path = tmp_path / "log" / f"{position - 1:020}"
    path.write_bytes(path.read_bytes()[:-9] + b"damaged!!")
    delete_view(tmp_path)
    with pytest.raises(DataLossError, match=f"the record at position {position - 1} .* is damaged"):
        open_in(tmp_path)


def test_a_view_into_which_a_part_of_a_snapshot_was_loaded_is_made_again(store: EngineLogStore, tmp_path: Path) -> None:
    make_changes(store.snapshot())
    state = state_of(store)
    store.close()
    engine = open_engine(tmp_path / "view" / "db", read_only=False)
    engine.index.put(VIEW_KEY, b"loading")
    close_engine(engine)
    with structlog.testing.capture_logs() as logs, closing(open_in(tmp_path)) as opened:
        assert state_of(opened) == state
    assert [event["reason"] for event in logs if event["event"] == "view_rebuilt"] == [
        "a process ended while it loaded a snapshot into it"
    ]


# -- Views behind the begin of the log -----------------------------------------------------------------------------


def outdated(store: EngineLogStore) -> dict[str, Any]:
    """Trim everything so far, and let the log begin behind it; return the state."""
    append_run(store, 1, 50_000, 2)
    store.trim(1, 50_000)
    store.trim(2, 50_000)
    make_changes(store.snapshot())
    append_run(store, 1, 60_000, 2)
    return state_of(store)


def test_a_view_that_ends_before_the_log_begins_is_made_from_the_newest_snapshot(
    store: EngineLogStore, tmp_path: Path
) -> None:
    store.close()
    shutil.copytree(tmp_path / "view", tmp_path / "earlier")
    with closing(open_in(tmp_path)) as owner:
        state = outdated(owner)
    shutil.rmtree(tmp_path / "view")
    (tmp_path / "earlier").rename(tmp_path / "view")
    with structlog.testing.capture_logs() as logs, closing(open_in(tmp_path)) as opened:
        assert state_of(opened) == state
    assert [event["event"] for event in logs if event["event"] != "snapshot_written"] == [
        "view_rebuilt", "snapshot_loaded",
    ]  # fmt: skip


class TrimmedEngine(FolderEngine):
    """A log that is trimmed while it is read.

    Attributes:
        trim_now: Called before the read of a position, if it is set, with the position.
    """

    trim_now: Callable[[Position], None] | None = None

    def read(self, begin: Position, max_bytes: int, wait_s: float = 0.0) -> Read:
        if self.trim_now is not None:
            self.trim_now(begin)
        return super().read(begin, max_bytes, wait_s)


@pytest.mark.parametrize("has_view", [True, False])
def test_a_process_under_which_the_log_is_trimmed_begins_with_the_newest_snapshot(
    store: EngineLogStore, tmp_path: Path, has_view: bool
) -> None:
    states: list[dict[str, Any]] = []
    store.close()
    if has_view:
        shutil.copytree(tmp_path / "view", tmp_path / "other")
    store = open_in(tmp_path)
    begin = store._snapshots._writer.view.next - 1
    if has_view:
        append_run(store, 1, 40_000, 1)
    else:
        make_changes(store.snapshot())
        begin = store._snapshots.newest.position or 0

    def trim_now(position: Position) -> None:
        # With a view, as it continues; without one, as it loads the snapshot.
        if not states and position == begin:
            states.append(outdated(store))

    engine = TrimmedEngine(tmp_path / "log")
    engine.trim_now = trim_now
    with closing(store), closing(open_on(engine, tmp_path / "other")) as opened:
        assert states == [state_of(opened)]


def test_a_view_into_which_nothing_was_loaded_is_made_again(store: EngineLogStore, tmp_path: Path) -> None:
    make_changes(store.snapshot())
    state, snapshot = state_of(store), store._snapshots.newest.position
    store.close()
    delete_view(tmp_path)
    engine = TrimmedEngine(tmp_path / "log")

    def fail(position: Position) -> None:
        if position == snapshot:
            raise EngineUnavailableError("no answer")

    engine.trim_now = fail
    with pytest.raises(EngineUnavailableError, match="no answer"):
        open_on(engine, tmp_path / "view")
    with closing(open_in(tmp_path)) as opened:
        assert state_of(opened) == state


# -- Other threads ---------------------------------------------------------------------------------------------------


def test_appends_continue_while_snapshots_are_made(tmp_path: Path) -> None:
    with closing(open_in(tmp_path)) as store:
        store.create_vchannels([1])
        ended = threading.Event()
        failures: list[BaseException] = []

        def keep_snapshotting() -> None:
            try:
                while not ended.is_set():
                    assert list(store.snapshot()) == []
            except BaseException as error:  # noqa: BLE001 - the test raises it
                failures.append(error)

        thread = threading.Thread(target=keep_snapshotting)
        thread.start()
        tick = 100
        marks = []
        while store._snapshots.made < 5 and not failures:
            marks.append(store.write([new_entry(1, tick, size_bytes=1_000)]))
            tick += 10
            if len(marks) == 5:
                store.sync(marks.pop(0))
        ended.set()
        thread.join()
        store.sync()
        assert failures == []
        assert store.tail(1).last_tick == tick - 1
        state = state_of(store)
    assert reopened(tmp_path) == (state, True)


def test_a_store_is_closed_during_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_in(tmp_path)
    store.create_vchannels([1])
    append_run(store, 1, 100, 3)
    state = state_of(store)
    closing_: list[threading.Thread] = []

    def act(part: int) -> None:
        if part == 1:
            closing_.append(threading.Thread(target=store.close))
            closing_[0].start()
            while store._snapshots._writer.works:
                pass

    before_parts(store, monkeypatch, act)
    with pytest.raises(StorageFailedError, match="the store is closed"):
        make_changes(store.snapshot())
    closing_[0].join()
    assert reopened(tmp_path) == (state, False)
