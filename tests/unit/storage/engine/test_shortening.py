"""The log of an engine is shortened: when a snapshot is due, what is trimmed after it, and what is written again."""

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import structlog

from tidelog_server.core.errors.cluster import OwnershipLostError
from tidelog_server.recordlog.engine import EngineUnavailableError
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.recordlog.records import Position, unpack_record
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.storage.engine.open import open_engine_store
from tidelog_server.storage.engine.snapshot_load import read_end
from tidelog_server.storage.engine.snapshot_plan import LIMITS
from tidelog_server.storage.engine.snapshots import RETRY_AFTER_S
from tidelog_server.storage.engine.store import EngineLogStore
from tidelog_testing.parts.engine_stores import (
    NAME,
    append_run,
    create_log,
    engine_in,
    make_changes,
    open_in,
    open_on,
    reopened,
    state_of,
)
from tidelog_testing.parts.entries import (
    END,
    new_entry,
    place_and_columns,
    read_all,
    run_of_entries,
    staged_batch,
)
from tidelog_testing.parts.folder_engine import FolderEngine

SMALL = LIMITS._replace(after_bytes=100_000, unit_bytes=100_000)


def test_it_is_due_once_the_log_has_grown_and_a_restart_does_not_begin_anew(tmp_path: Path) -> None:
    made = 0
    tick = 0
    for round_ in range(8):
        with closing(open_in(tmp_path, limits=SMALL)) as store:
            store.create_vchannels([1])
            for _ in range(3):
                tick += 100
                append_run(store, 1, tick, 5)
                make_changes(store.shorten())
            if round_ % 3 == 2:
                shutil.rmtree(tmp_path / "view")
            made += store._snapshots.made
    # 240 KB of columns.
    assert made == 2


def test_a_large_snapshot_is_due_less_often(tmp_path: Path) -> None:
    with closing(open_in(tmp_path, limits=SMALL)) as store:
        store.create_vchannels([1])
        store.sync(store.write(run_of_entries(1, 400, first_tick=100, size_bytes=500)))
        make_changes(store.shorten())
        size_bytes = store._snapshots.newest.size_bytes
        assert (store._snapshots.made, size_bytes > 200_000) == (1, True)
        before = store._snapshots._writer.view.place.log_bytes
        while store._snapshots.made == 1:
            tick = store.tail(1).last_tick + 1
            store.sync(store.write([new_entry(1, tick, size_bytes=20_000)]))
            make_changes(store.shorten())
        grown_bytes = store._snapshots._writer.view.place.log_bytes - before
        assert 7 * size_bytes < grown_bytes < 10 * size_bytes


def test_the_log_is_trimmed_up_to_the_oldest_columns_in_use(store: EngineLogStore, tmp_path: Path) -> None:
    make_changes(store.snapshot())
    headers = store.headers(1, 0, END, 1)
    engine = engine_in(tmp_path)
    begin = engine.bounds().begin
    record = unpack_record(begin, engine.read(begin, 1).records[0].value)
    assert record is not None
    (columns,) = store.columns(headers)
    assert columns is not None
    assert columns in record.payload
    store.trim(1, END)
    store.trim(2, END)
    make_changes(store.snapshot())
    begin = engine.bounds().begin
    assert begin == read_end(store._log, store._snapshots.newest.position or 0).place.next - 1
    figures = {figure.name: value for figure, value in store.metrics().items()}
    assert (figures["log_snapshots"], figures["log_live_bytes"]) == (2, 0)
    assert 0 < figures["log_bytes"] < 20_000


class StubbornEngine(FolderEngine):
    """Refuses to trim while a test wants it to."""

    refuses = True

    def trim(self, before: Position) -> None:
        if self.refuses:
            raise EngineUnavailableError("no answer")
        super().trim(before)


def test_a_trim_that_the_engine_refuses_comes_with_the_next_snapshot(tmp_path: Path) -> None:
    create_log(FolderEngine(tmp_path / "log"))
    engine = StubbornEngine(tmp_path / "log")
    with closing(open_on(engine, tmp_path / "view")) as store:
        store.create_vchannels([1])
        append_run(store, 1, 100, 5)
        store.trim(1, END)
        with structlog.testing.capture_logs() as logs:
            make_changes(store.snapshot())
        assert [event["event"] for event in logs] == ["snapshot_written", "log_not_trimmed"]
        assert engine.bounds().begin == 0
        engine.refuses = False
        make_changes(store.snapshot())
        assert engine.bounds().begin > 5


def test_a_view_that_cannot_be_read_postpones_the_snapshot_and_the_store_works(tmp_path: Path) -> None:
    with closing(open_in(tmp_path, limits=SMALL)) as store:
        rows = [(b"key%05d" % number, b"%05d" % number * 200) for number in range(500)]
        store.metadata_rows().apply(rows, [])
        store.sync()
    (table,) = [path for path in (tmp_path / "view" / "db").glob("*.sst") if b"00321" * 100 in path.read_bytes()]
    table.write_bytes(table.read_bytes().replace(b"00321" * 100, b"00322" * 100))
    clock = _SettableClock()
    with closing(open_in_at(tmp_path, clock)) as store:
        for _ in range(2):
            with structlog.testing.capture_logs() as logs:
                make_changes(store.shorten())
            assert [event["event"] for event in logs] == ["snapshot_failed"]
            assert "Corruption" in logs[0]["problem"]
            store.create_vchannels([1])
            with structlog.testing.capture_logs() as logs:
                make_changes(store.shorten())
            assert logs == []
            clock.now_s += RETRY_AFTER_S


class _SettableClock(SystemClock):
    now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s


def open_in_at(folder: Path, clock: _SettableClock) -> EngineLogStore:
    return open_engine_store(folder / "view", RecordLog(engine_in(folder), clock), NAME, limits=SMALL)


# -- Columns that are written again -----------------------------------------------------------------------------------


def test_an_idle_vchannel_does_not_hold_the_log(tmp_path: Path) -> None:
    """The figure of 10 GiB in 1-GiB parts, a thousand times smaller: 3 MB in parts of 100 KB."""
    limits = LIMITS._replace(after_bytes=LIMITS.after_bytes // 10_000, unit_bytes=LIMITS.unit_bytes // 10_000)
    live_bytes = 100_000
    with closing(open_in(tmp_path, limits=limits)) as store:
        store.create_vchannels([1, 2])
        append_run(store, 2, 100, 1)
        idle = list(map(place_and_columns, read_all(store, 2)))
        rewritten = 0
        sizes: list[int] = []
        for number in range(1_500):
            append_run(store, 1, 100 + 11 * number, 1)
            rewritten += make_changes(store.shorten())
            if number % 10 == 0:
                store.trim(1, max(0, 100 + 11 * (number - live_bytes // 2_000)))
                sizes.append(sum(path.stat().st_size for path in (tmp_path / "log").iterdir()))
        assert max(sizes) < 3 * (live_bytes + 20_000) + limits.unit_bytes
        # About as often as the oldest part of the log has nothing else.
        assert 5 < rewritten < 40
        assert list(map(place_and_columns, read_all(store, 2))) == idle
        state = state_of(store)
    assert reopened(tmp_path) == (state, True)


def planned(folder: Path) -> tuple[EngineLogStore, list[Callable[[], None]]]:
    """Return a store, and the changes that write columns of its idle vchannel again."""
    store = open_in(folder, limits=SMALL)
    store.create_vchannels([1, 2])
    append_run(store, 2, 100, 2)
    append_run(store, 1, 1_000, 70)
    assert list(store.snapshot()) == []
    store.trim(1, END)
    append_run(store, 1, 10_000, 1)
    changes = list(store.snapshot())
    assert len(changes) == 1
    return store, changes


def test_what_was_deleted_meanwhile_is_not_written_again(tmp_path: Path) -> None:
    store, changes = planned(tmp_path)
    with closing(store):
        store.trim(2, 111)
        store.write([new_entry(1, 20_000)])
        make_changes(changes)
        assert [each.header.base_tick for each in read_all(store, 2)] == [111]
        rows = store._engine.columns.iter()
        rows.seek(b"")
        keys = []
        while rows.valid():
            keys.append(rows.key())
            rows.next()
        del rows
        assert len(keys) == 2
        state = state_of(store)
    assert reopened(tmp_path) == (state, True)


def test_a_read_during_which_columns_are_written_again_and_the_log_is_trimmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, changes = planned(tmp_path)
    store.close()
    with closing(open_in(tmp_path, limits=SMALL)) as store:
        headers = store.headers(2, 0, END, 10)
        resolve = store._reader._resolve
        assert resolve is not None
        calls: list[int] = []

        def late(values: list[bytes | None]) -> list[bytes | None]:
            calls.append(len(values))
            if len(calls) == 1:
                make_changes(store.snapshot())
                make_changes(store.snapshot())
                # Read as by a process whose cache is empty.
                store._snapshots._references._cache.__init__(1 << 20)  # type: ignore[misc]  # empties it
            return resolve(values)

        monkeypatch.setattr(store._reader, "_resolve", late)
        columns = store.columns(headers)
        assert calls[:2] == [2, 2]
        assert columns == [entry.columns for entry in run_of_entries(2, 2, first_tick=100, size_bytes=2_000)]
    assert changes


def test_a_former_owner_whose_columns_were_trimmed_does_not_report_a_loss(tmp_path: Path) -> None:
    with closing(open_in(tmp_path)) as former:
        former.create_vchannels([1, 2])
        append_run(former, 1, 100, 1)
        append_run(former, 2, 100, 5)
        with closing(open_on(engine_in(tmp_path), tmp_path / "other")) as owner:
            owner.trim(1, END)
            make_changes(owner.snapshot())
        headers = former.headers(1, 0, END, 1)
        # It has not appended since, so it has not learned of the other.
        with pytest.raises(OwnershipLostError):
            former.columns(headers)


def test_staged_columns_are_written_again_too(tmp_path: Path) -> None:
    with closing(open_in(tmp_path, limits=SMALL)) as store:
        store.create_vchannels([1])
        store.write([], staged=[staged_batch(new_entry(1, 100, size_bytes=3_000), 7, 1)])
        append_run(store, 1, 1_000, 70)
        make_changes(store.snapshot())
        store.trim(1, END)
        assert make_changes(store.snapshot()) == 1
        make_changes(store.snapshot())
        assert engine_in(tmp_path).bounds().begin > 60
        assert store.staged() == [(1, 7)]
        state = state_of(store)
    assert reopened(tmp_path) == (state, True)
