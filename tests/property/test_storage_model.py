"""A log store behaves like a plain list of entries under any sequence of operations.

Method: a hypothesis state machine writes, trims, drops, reads and, for those on a disk, restarts; results are compared
with a model of lists.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tidelog_server.broadcast.rows import LOGGED, LoggedKey
from tidelog_server.core.entries import NewEntry, StagedBatch
from tidelog_server.core.groups import GroupKey, GroupPosition
from tidelog_server.core.producers import ProducerKey, ProducerWindow, Result
from tidelog_server.core.transactions import AppCommit, AppKey, TxnOutcome, TxnPlace, TxnRun
from tidelog_server.fold.rows import SNAPSHOTS
from tidelog_server.groups.rows import POSITIONS
from tidelog_server.log.rows import WINDOWS
from tidelog_server.storage.engine.snapshot_plan import LIMITS
from tidelog_server.storage.engine.store import EngineLogStore
from tidelog_server.storage.log_store import LogStore
from tidelog_server.storage.memory import MemoryLogStore
from tidelog_server.storage.recovery.open import open_rocksdb_log_store
from tidelog_server.txn.rows import APP_COMMITS, OUTCOMES
from tidelog_testing.parts.engine_stores import loads_snapshot, make_changes, open_in, open_on
from tidelog_testing.parts.entries import END, committed, new_entry, place_and_columns, read_all, staged_batch
from tidelog_testing.parts.folder_engine import FolderEngine
from tidelog_testing.parts.soaks import extended

IDS = [0, 1, 2]
# So that columns of short logs are written again.
_SMALL = LIMITS._replace(unit_bytes=20_000, least_use=0.6)
vchannel_ids = st.sampled_from(IDS)
txn_ids = st.integers(50, 65)
offsets = st.integers(-5, 60)


class StoreMachine(RuleBasedStateMachine):
    """The store under test, lists of all entries ever written, and the trim ticks."""

    store: LogStore

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[int, list[NewEntry]] = {}
        self.trim_ticks: dict[int, int] = {}
        self.fencing_tokens: dict[int, int] = {}
        self.windows: dict[ProducerKey, ProducerWindow] = {}
        self.positions: dict[GroupKey, GroupPosition] = {}
        self.snapshots: dict[int, int] = {}
        self.logged: dict[LoggedKey, int] = {}
        # Counts of staged messages of open transactions, by place; and the outcomes of committed ones.
        self.staged: dict[TxnPlace, list[int]] = {}
        self.outcomes: dict[int, TxnOutcome] = {}
        self.app_commits: dict[AppKey, AppCommit] = {}
        # Ids that no further transaction may use.
        self.committed: set[int] = set()
        self.sequence = 0

    def kept(self, vchannel_id: int) -> list[NewEntry]:
        return [entry for entry in self.written[vchannel_id] if self.trim_ticks[vchannel_id] <= entry.last_tick]

    def next_tick(self, vchannel_id: int) -> int:
        written = self.written[vchannel_id]
        return written[-1].last_tick + 1 if written else 100

    @rule(vchannel_id=vchannel_ids)
    def create(self, vchannel_id: int) -> None:
        self.store.create_vchannels([vchannel_id])
        self.written.setdefault(vchannel_id, [])
        self.trim_ticks.setdefault(vchannel_id, 0)

    @rule(vchannel_id=vchannel_ids)
    def drop(self, vchannel_id: int) -> None:
        gone = [key for key, position in self.positions.items() if position.vchannel_id == vchannel_id]
        self.store.drop_vchannels([vchannel_id], [POSITIONS.gone(key) for key in gone])
        for key in gone:
            del self.positions[key]
        self.written.pop(vchannel_id, None)
        self.trim_ticks.pop(vchannel_id, None)
        self.fencing_tokens.pop(vchannel_id, None)
        self.windows = {key: window for key, window in self.windows.items() if key[0] != vchannel_id}
        self.snapshots.pop(vchannel_id, None)
        self.logged = {key: tick for key, tick in self.logged.items() if key.vchannel_id != vchannel_id}
        self.staged = {place: counts for place, counts in self.staged.items() if place[0] != vchannel_id}

    @rule(plan=st.lists(st.tuples(vchannel_ids, st.integers(0, 20), st.integers(1, 12)), max_size=6))
    def write(self, plan: list[tuple[int, int, int]]) -> None:
        entries = []
        for vchannel_id, gap, count in plan:
            if vchannel_id in self.written:
                entry = new_entry(vchannel_id, self.next_tick(vchannel_id) + gap, count=count, size_bytes=count * 700)
                self.written[vchannel_id].append(entry)
                entries.append(entry)
        self.store.write(entries)
        self.store.sync()
        self.sequence += len(entries)

    @rule(vchannel_id=vchannel_ids, offset=offsets)
    def trim(self, vchannel_id: int, offset: int) -> None:
        if vchannel_id not in self.written:
            return
        before_tick = max(0, self.next_tick(vchannel_id) - offset)
        goes_through = [e for e in self.written[vchannel_id] if e.base_tick < before_tick <= e.last_tick]
        gone = [e.last_tick + 1 for e in self.written[vchannel_id] if e.last_tick < before_tick]
        trim_tick = before_tick if goes_through else max(gone, default=0)
        self.trim_ticks[vchannel_id] = max(self.trim_ticks[vchannel_id], trim_tick)
        tail = self.store.trim(vchannel_id, before_tick)
        assert tail.trim_tick == self.trim_ticks[vchannel_id]
        trimmed = len(self.written[vchannel_id]) - len(self.kept(vchannel_id))
        assert tail.trimmed_messages == sum(e.count for e in self.written[vchannel_id][:trimmed])
        assert tail.trimmed_bytes == sum(len(e.columns) for e in self.written[vchannel_id][:trimmed])

    @rule(vchannel_id=vchannel_ids, producer_id=st.sampled_from(["p", "q"]), is_kept=st.booleans())
    def change_window(self, vchannel_id: int, producer_id: str, *, is_kept: bool) -> None:
        if not self.written.get(vchannel_id):
            return
        key = (vchannel_id, producer_id)
        result = Result(self.next_tick(vchannel_id) - 1, 1, 2, is_synced=True)
        window = self.windows.get(key, ProducerWindow(0)).opened().extended(result)
        self.store.write([], WINDOWS.changes({key: window if is_kept else None}))
        self.store.sync()
        self.windows.pop(key, None)
        if is_kept:
            self.windows[key] = window

    @rule(vchannel_id=vchannel_ids, broadcast_id=st.sampled_from([1, 2]), is_kept=st.booleans())
    def change_rows_of_a_vchannel(self, vchannel_id: int, broadcast_id: int, *, is_kept: bool) -> None:
        if not self.written.get(vchannel_id):
            return
        key, tick = LoggedKey(vchannel_id, broadcast_id), self.next_tick(vchannel_id) - 1
        snapshots: dict[int, int | None] = {vchannel_id: tick if is_kept else None}
        logged: dict[LoggedKey, int | None] = {key: tick if is_kept else None}
        self.store.write([], [*SNAPSHOTS.changes(snapshots), *LOGGED.changes(logged)])
        self.store.sync()
        self.snapshots.pop(vchannel_id, None)
        self.logged.pop(key, None)
        if is_kept:
            self.snapshots[vchannel_id] = self.logged[key] = tick

    @rule(vchannel_id=vchannel_ids, group=st.sampled_from(["a", "b"]), is_kept=st.booleans())
    def change_position(self, vchannel_id: int, group: str, *, is_kept: bool) -> None:
        if vchannel_id not in self.written:
            return
        key, position = GroupKey(group, f"c/{vchannel_id}"), GroupPosition(vchannel_id, self.next_tick(vchannel_id), 1)
        self.store.write([], POSITIONS.changes({key: position if is_kept else None}))
        self.store.sync()
        self.positions.pop(key, None)
        if is_kept:
            self.positions[key] = position

    @rule(vchannel_id=vchannel_ids, txn_id=txn_ids, counts=st.lists(st.integers(1, 12), min_size=1, max_size=3))
    def stage(self, vchannel_id: int, txn_id: int, counts: list[int]) -> None:
        place = (vchannel_id, txn_id)
        if vchannel_id not in self.written or txn_id in self.committed:
            return
        staged = self.staged.setdefault(place, [])
        begin = len(staged)
        staged += counts
        self.store.write([], staged=[self.batch(place, begin + i) for i in range(len(counts))])

    def batch(self, place: TxnPlace, index: int) -> StagedBatch:
        vchannel_id, txn_id = place
        count = self.staged[place][index]
        return staged_batch(new_entry(vchannel_id, txn_id * 100 + index, size_bytes=count * 700), txn_id, index + 1)

    @rule(txn_id=txn_ids, more=st.none() | st.tuples(vchannel_ids, st.integers(1, 12)))
    def commit(self, txn_id: int, more: tuple[int, int] | None) -> None:
        """Commit; with ``more``, the last batch is staged in the same write."""
        together: list[StagedBatch] = []
        if more is not None and more[0] in self.written and txn_id not in self.committed:
            place = (more[0], txn_id)
            self.staged.setdefault(place, []).append(more[1])
            together.append(self.batch(place, len(self.staged[place]) - 1))
        places = sorted(place for place in self.staged if place[1] == txn_id)
        if not places:
            return
        tick = first_tick = max(map(self.next_tick, self.written))
        last_tick = first_tick + sum(sum(self.staged[place]) for place in places) - 1
        entries, runs = [], []
        for place in places:
            runs.append(TxnRun(place[0], sum(self.staged[place])))
            for index, count in enumerate(self.staged[place]):
                columns = self.batch(place, index).columns
                entry = replace(new_entry(place[0], tick, count=count), columns=columns)
                self.written[place[0]].append(entry)
                entries.append(committed(entry, txn_id, index + 1, first_tick, last_tick))
                tick += count
            del self.staged[place]
        self.committed.add(txn_id)
        self.outcomes[txn_id] = TxnOutcome(first_tick, True, tuple(runs))
        self.store.write(entries, OUTCOMES.changes({txn_id: self.outcomes[txn_id]}), staged=together)
        self.store.sync()
        self.sequence += len(entries)

    @rule(txn_id=txn_ids, tells=st.booleans())
    def discard(self, txn_id: int, *, tells: bool) -> None:
        places = [place for place in self.staged if place[1] == txn_id]
        self.store.discard({place: len(self.staged[place]) if tells else None for place in places})
        for place in places:
            del self.staged[place]

    @rule()
    def forget_outcomes(self) -> None:
        self.store.write([], OUTCOMES.changes(dict.fromkeys(self.outcomes)))
        self.outcomes.clear()

    @rule(
        app=st.builds(AppKey, st.sampled_from(("", "p")), st.sampled_from("ab")),
        version=st.none() | st.integers(0, 3),
        is_last=st.booleans(),
    )
    def note_app(self, app: AppKey, version: int | None, *, is_last: bool) -> None:
        """Write a commit of an application without messages, or forget the application."""
        commit = None if version is None else AppCommit(version, 90, 0, True, is_last)
        self.store.write([], APP_COMMITS.changes({app: commit}))
        self.app_commits.pop(app, None)
        if commit is not None:
            self.app_commits[app] = commit

    @rule(vchannel_id=vchannel_ids, fencing_token=st.integers(1, 5))
    def fence(self, vchannel_id: int, fencing_token: int) -> None:
        if vchannel_id in self.written:
            self.store.fence(vchannel_id, fencing_token)
            self.fencing_tokens[vchannel_id] = max(fencing_token, self.fencing_tokens.get(vchannel_id, 0))

    @rule(vchannel_id=vchannel_ids, back=offsets, length=st.integers(0, 60), max_bytes=st.integers(1, 20_000))
    def read(self, vchannel_id: int, back: int, length: int, max_bytes: int) -> None:
        if vchannel_id not in self.written:
            return
        begin_tick = max(0, self.next_tick(vchannel_id) - back)
        end_tick = begin_tick + length
        first_tick = max(begin_tick, self.trim_ticks[vchannel_id])
        expected: list[NewEntry] = []
        for entry in self.kept(vchannel_id):
            is_full = expected and sum(len(e.columns) for e in expected) >= max_bytes
            if not is_full and first_tick <= entry.last_tick and entry.base_tick < end_tick and first_tick < end_tick:
                expected.append(entry)
        found = self.store.read(vchannel_id, begin_tick, end_tick, max_bytes)
        assert list(map(place_and_columns, found)) == list(map(place_and_columns, expected))

    @invariant()
    def everything_is_there(self) -> None:
        if not hasattr(self, "store"):
            return
        assert self.store.vchannel_ids() == sorted(self.written)
        assert self.store.head.sequence == self.sequence
        assert self.store.rows(WINDOWS) == self.windows
        assert self.store.rows(POSITIONS) == self.positions
        assert self.store.rows(SNAPSHOTS) == self.snapshots
        assert self.store.rows(LOGGED) == self.logged
        assert self.store.staged() == sorted(self.staged)
        assert self.store.rows(OUTCOMES) == self.outcomes
        assert self.store.rows(APP_COMMITS) == self.app_commits
        for vchannel_id, written in self.written.items():
            found = list(map(place_and_columns, read_all(self.store, vchannel_id, max_bytes=5_000)))
            assert found == list(map(place_and_columns, self.kept(vchannel_id)))
            tail = self.store.tail(vchannel_id)
            assert (tail.batches, tail.messages) == (len(written), sum(entry.count for entry in written))
            assert tail.fencing_token == self.fencing_tokens.get(vchannel_id, 0)
            chunks = self.store.chunks(vchannel_id, 0, END)
            assert not chunks or chunks[-1].messages_before + chunks[-1].messages == tail.messages


class MemoryMachine(StoreMachine):
    @initialize()
    def open(self) -> None:
        self.store = MemoryLogStore()


class RocksdbMachine(StoreMachine):
    folder: Path

    @initialize()
    def open(self) -> None:
        self.folder = Path(mkdtemp())
        self.store = open_rocksdb_log_store(self.folder / "store")

    @rule()
    def reclaim(self) -> None:
        self.store.reclaim()

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = open_rocksdb_log_store(self.folder / "store")

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)


class EngineMachine(StoreMachine):
    """On a log in a folder; a restart may find the view, or not, and the log from its begin, or from a snapshot."""

    folder: Path

    store: EngineLogStore
    has_snapshot = False

    @initialize()
    def open(self) -> None:
        self.folder = Path(mkdtemp())
        self.store = open_in(self.folder, limits=_SMALL)

    @rule()
    def reclaim(self) -> None:
        self.store.reclaim()

    @rule(rewrites=st.booleans())
    def snapshot(self, *, rewrites: bool) -> None:
        changes = self.store.snapshot()
        # The snapshot itself is made before the first change.
        first = next(changes, None)
        self.has_snapshot = True
        if first is not None and rewrites:
            make_changes([first, *changes])

    @rule(has_view=st.booleans())
    def restart(self, *, has_view: bool) -> None:
        self.store.close()
        if not has_view:
            shutil.rmtree(self.folder / "view", ignore_errors=True)
        self.store, is_loaded = loads_snapshot(lambda: open_in(self.folder, limits=_SMALL))
        assert is_loaded or has_view or not self.has_snapshot

    @rule()
    def take_over(self) -> None:
        """Another process takes the log over, with a view of its own, and this one leaves its own behind."""
        self.store.staged()
        former, self.store = (
            self.store,
            open_on(FolderEngine(self.folder / "log"), Path(mkdtemp(dir=self.folder)), limits=_SMALL),
        )
        former.close()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)


@pytest.mark.parametrize(
    ("machine", "share"), [(MemoryMachine, 1), (RocksdbMachine, 16), extended(RocksdbMachine, 5), (EngineMachine, 10)]
)
@pytest.mark.usefixtures("small_chunks")
def test_a_store_behaves_as_a_list_does(machine: Any, share: int) -> None:
    assert settings.default is not None
    limits = settings(max_examples=settings.default.max_examples // share, stateful_step_count=25)
    run_state_machine_as_test(machine, settings=limits)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Close chunks early, so that short runs have many chunks."""
    monkeypatch.setattr("tidelog_server.storage.log_state.CHUNK_BYTES", 6_000)
