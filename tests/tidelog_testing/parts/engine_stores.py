"""Log stores in a log that is a folder of files, and what is compared of a store after its view was deleted."""

import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import structlog

from tidelog_server.core.entries import NewEntry, StagedBatch
from tidelog_server.log import node
from tidelog_server.recordlog.engine import LogEngine
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.storage.engine.open import LogName, open_engine_store
from tidelog_server.storage.engine.snapshot_plan import LIMITS, SnapshotLimits
from tidelog_server.storage.engine.store import EngineLogStore
from tidelog_server.storage.log_store import Change, LogStore, WriteMark
from tidelog_server.storage.rows import Row, tables
from tidelog_testing.parts.entries import END, place_and_columns, read_all, run_of_entries
from tidelog_testing.parts.folder_engine import FolderEngine

NAME = LogName("engine", "test-log")
INCARNATION = bytes(range(16))
OFTEN: Final = LIMITS._replace(after_bytes=20_000, ratio=3, unit_bytes=40_000)
"""Of snapshots in tests that append a few hundred KB.

A snapshot counts in what the log has grown by: with a ratio of 1, the next one is due at once.
"""
_SHORTEN_EVERY_S: Final = 0.01


class SilentEngine(FolderEngine):
    """A log in a folder that stores nothing while a test forbids it.

    Attributes:
        may_answer: Records are stored while it is set.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.may_answer = threading.Event()
        self.may_answer.set()

    def poll(self, timeout_s: float) -> None:
        """Store what was sent, unless that is forbidden for all of the time."""
        if self.may_answer.wait(timeout_s):
            super().poll(timeout_s)


def shorten_often() -> None:
    """Make the servers of this process look often whether a snapshot is due."""
    node._SHORTEN_EVERY_S = _SHORTEN_EVERY_S


def create_log(engine: LogEngine, incarnation: bytes = INCARNATION) -> None:
    """Append the first record of a log."""
    log = RecordLog(engine, SystemClock())
    log.create(incarnation)
    log.close()


def log_in(folder: Path) -> RecordLog:
    """Return the log in a folder."""
    return RecordLog(FolderEngine(folder), SystemClock())


def open_on(
    engine: LogEngine, view: Path, *, cache_bytes: int = 1 << 20, limits: SnapshotLimits = LIMITS
) -> EngineLogStore:
    """Claim the log in ``engine`` and open its store, with a view in the folder ``view``."""
    log = RecordLog(engine, SystemClock())
    return open_engine_store(view, log, NAME, cache_bytes=cache_bytes, limits=limits)


def open_in(folder: Path, *, limits: SnapshotLimits = LIMITS) -> EngineLogStore:
    """Open the store in ``folder``: the log in ``log``, which is created if it is missing, the view in ``view``."""
    if not (folder / "log").exists():
        create_log(FolderEngine(folder / "log"))
    return open_on(FolderEngine(folder / "log"), folder / "view", limits=limits)


def engine_in(folder: Path) -> FolderEngine:
    """Open the log of the store in ``folder``, as another process."""
    return FolderEngine(folder / "log")


def append_run(store: LogStore, vchannel_id: int, first_tick: int, count: int, size_bytes: int = 2_000) -> None:
    """Append entries, each in a group of its own."""
    for entry in run_of_entries(vchannel_id, count, first_tick=first_tick, size_bytes=size_bytes):
        store.sync(store.write([entry]))


def make_changes(changes: Iterable[Change]) -> int:
    """Make changes that a store asks for, as a server does; return how many."""
    made = 0
    for change in changes:
        change()
        made += 1
    return made


def loads_snapshot(open_store: Callable[[], EngineLogStore]) -> tuple[EngineLogStore, bool]:
    """Open a store; return it, and whether a snapshot was loaded into its view."""
    with structlog.testing.capture_logs() as logs:
        store = open_store()
    return store, any(event["event"] == "snapshot_loaded" for event in logs)


def sync_each_write(store: EngineLogStore) -> EngineLogStore:
    """Make a store sync each write, for tests that read what they wrote: an engine shows what is durable."""
    write = store.write

    def write_and_sync(
        entries: Sequence[NewEntry], rows: Sequence[Row] = (), staged: Sequence[StagedBatch] = ()
    ) -> WriteMark:
        mark = write(entries, rows, staged)
        store.sync(mark)
        return mark

    store.write = write_and_sync  # type: ignore[method-assign]  # of this store
    return store


def state_of(store: LogStore) -> dict[str, Any]:
    """Return everything that a store tells, but for what depends on its files."""
    ids = store.vchannel_ids()
    return {
        "head": store.head,
        "tails": {number: store.tail(number) for number in ids},
        "headers": {number: store.headers(number, 0, END, 1 << 20) for number in ids},
        "entries": {number: list(map(place_and_columns, read_all(store, number))) for number in ids},
        "chunks": {number: store.chunks(number, 0, END) for number in ids},
        "staged": store.staged(),
        "rows": {table.name: store.rows(table) for table in tables()},
    }


def delete_view(folder: Path) -> None:
    """Delete the view of the store in ``folder``, as an operator may at any time while it is closed."""
    shutil.rmtree(folder / "view")


def reopened(folder: Path) -> tuple[dict[str, Any], bool]:
    """Delete the view of the store in ``folder`` and open it; return its state, and whether a snapshot was loaded."""
    delete_view(folder)
    store, is_loaded = loads_snapshot(lambda: open_in(folder))
    with closing(store):
        return state_of(store), is_loaded


def on_engine(folder: Path, open_log: Callable[[], LogEngine]) -> Iterator[LogStore]:
    """Yield a store on a log that exists. Afterwards, compare its state with that which the log alone has.

    Then again with that of a snapshot, from which another view is made.

    Args:
        folder: Folder of the view.
        open_log: Opens the log, as another process.
    """
    view = folder / "view"
    store = sync_each_write(open_on(open_log(), view))
    yield store
    if not store._writer.works:
        # The test has closed it.
        store = open_on(open_log(), view)
    left = state_of(store)
    store.close()
    delete_view(folder)
    with closing(open_on(open_log(), view)) as from_log:
        assert state_of(from_log) == left
        make_changes(from_log.snapshot())
    delete_view(folder)
    from_snapshot, is_loaded = loads_snapshot(lambda: open_on(open_log(), view))
    with closing(from_snapshot):
        assert is_loaded
        assert state_of(from_snapshot) == left
