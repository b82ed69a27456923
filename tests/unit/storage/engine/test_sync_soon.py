"""Waits of a store for its engine that end early: those of the event loop, and those that are given up."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tidelog_server.core.errors import Effect
from tidelog_server.core.errors.cluster import OwnershipLostError
from tidelog_server.storage.engine.store import EngineLogStore
from tidelog_testing.parts.engine_stores import SilentEngine, create_log, open_in, open_on
from tidelog_testing.parts.entries import new_entry
from tidelog_testing.parts.folder_engine import FolderEngine
from unit.storage.engine.test_engine_store import ticks


@pytest.fixture
def engine(tmp_path: Path) -> SilentEngine:
    create_log(SilentEngine(tmp_path / "log"))
    return SilentEngine(tmp_path / "log")


@pytest.fixture
def store(engine: SilentEngine, tmp_path: Path) -> Iterator[EngineLogStore]:
    opened = open_on(engine, tmp_path / "view")
    opened.create_vchannels([1])
    yield opened
    opened.close()


def test_a_sync_soon_is_given_up_while_the_engine_is_silent(engine: SilentEngine, store: EngineLogStore) -> None:
    engine.may_answer.clear()
    mark = store.write([new_entry(1, 10)])
    assert not store.sync_soon(mark, 0.01)
    assert ticks(store) == []
    engine.may_answer.set()
    assert store.sync_soon(mark, 60)
    assert ticks(store) == [10]


def test_a_sync_soon_waits_for_no_other_batch_and_no_other_thread(engine: SilentEngine, store: EngineLogStore) -> None:
    with ThreadPoolExecutor(1) as thread, closing(store):
        marks = [store.write([new_entry(1, tick)]) for tick in (10, 20)]
        assert not store.sync_soon(marks[1], 60)
        engine.may_answer.clear()
        syncing = thread.submit(store.sync, marks[0])
        while store.sync_soon(marks[0], 0) or not store._engine_writer._is_confirming:
            assert not syncing.done()
        assert not store.sync_soon(marks[0], 60)
        engine.may_answer.set()
        syncing.result()
        assert store.sync_soon(marks[1], 60)
        assert ticks(store) == [10, 20]


def test_a_sync_soon_reads_nothing_of_the_log(store: EngineLogStore, tmp_path: Path) -> None:
    other = FolderEngine(tmp_path / "log")
    other.send(b"of another program", lambda _: None)
    other.poll(0)
    mark = store.write([new_entry(1, 10)])
    assert not store.sync_soon(mark, 60)
    store.sync(mark)
    assert ticks(store) == [10]
    figures = store.log_figures()
    assert figures is not None
    assert figures.foreign == 1


def test_a_store_that_was_given_up_syncs_nothing_more(store: EngineLogStore) -> None:
    mark = store.write([new_entry(1, 10)])
    store.give_up(OwnershipLostError("n1"))
    for sync in (lambda: store.sync_soon(mark, 60), lambda: store.sync(mark)):
        with pytest.raises(OwnershipLostError) as failed:
            sync()
        assert failed.value.effect is Effect.UNKNOWN
    assert ticks(store) == []


def test_a_close_that_waits_for_a_silent_engine_ends_when_the_store_is_given_up(
    engine: SilentEngine, store: EngineLogStore, tmp_path: Path
) -> None:
    engine.may_answer.clear()
    store.write([new_entry(1, 10)])
    with ThreadPoolExecutor(1) as thread:
        closing_it = thread.submit(store.close)
        while not store._engine_writer._is_confirming:
            assert not closing_it.done()
        store.give_up(OwnershipLostError("n1"))
        closing_it.result()
    with closing(open_in(tmp_path)) as again:
        assert ticks(again) in ([], [10])
