"""The committer commits as the traits of its store say.

Method: a node on a memory store that has the traits of one whose writes other processes confirm.
"""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from tidelog_server.core.entries import NewEntry, StagedBatch
from tidelog_server.core.errors import Effect
from tidelog_server.core.errors.cluster import OwnershipLostError
from tidelog_server.log.lone_appends import AFTER_GROUPS, FAST_SYNC_S
from tidelog_server.storage.log_store import WriteMark, WriteTraits
from tidelog_server.storage.rows import Row
from tidelog_testing.parts.batches import a_batch
from tidelog_testing.parts.clocks import SteppedClock
from tidelog_testing.parts.nodes import running_node
from tidelog_testing.parts.stores import FaultyStore
from unit.log.test_committer import append_alone, outcomes, written_and_not_synced


class ReplicatedStore(FaultyStore):
    """A store whose writes other processes confirm, five at a time; another process may replace this one.

    Attributes:
        marks: Marks of the syncs.
        threads: Names of the threads that synced.
        soon: Marks of the syncs on the event loop.
        soon_s: Seconds that each of them takes, on ``clock``; it is given up after ``FAST_SYNC_S``.
        is_replaced: True to fail the next sync.
    """

    write_traits = WriteTraits(groups_ahead=5, always_syncs=True, gives_up_syncs=True)

    def __init__(self, clock: SteppedClock | None = None) -> None:
        super().__init__()
        self._clock = clock
        self.soon: list[WriteMark] = []
        self.soon_s = 0.0
        self.marks: list[WriteMark | None] = []
        self.threads: set[str] = set()
        self.is_replaced = False

    def write(
        self, entries: Sequence[NewEntry], rows: Sequence[Row] = (), staged: Sequence[StagedBatch] = ()
    ) -> WriteMark:
        super().write(entries, rows, staged)
        return len(self.written)

    def sync(self, mark: WriteMark | None = None) -> None:
        self.marks.append(mark)
        self.threads.add(threading.current_thread().name)
        super().sync(mark)
        if self.is_replaced:
            raise OwnershipLostError("n1", effect=Effect.UNKNOWN, message="the log was claimed")

    def sync_soon(self, mark: WriteMark, within_s: float) -> bool:
        assert within_s == FAST_SYNC_S
        self.soon.append(mark)
        if self._clock is not None:
            self._clock.now_s += min(self.soon_s, FAST_SYNC_S)
        if self.soon_s > FAST_SYNC_S:
            return False
        self.sync(mark)
        return True


async def test_as_many_groups_are_ahead_as_the_store_allows_and_each_sync_has_its_mark() -> None:
    store = ReplicatedStore()
    async with running_node(store) as node:
        append = await written_and_not_synced(node, store)
        before, appends, written = len(store.written) - 1, [append], []
        for _ in range(6):
            appends.append(await node.submit("a", a_batch(b"x")))
            for _ in range(10):
                await asyncio.sleep(0)
            written.append(len(store.written) - before)
        store.may_sync.set()
        assert all(each.failure is None for each in await outcomes(appends))
        assert written == [2, 3, 4, 5, 5, 5]
        # The last two appends share a group.
        assert store.marks[-6:] == [before + number for number in range(1, 7)]


async def test_an_append_that_asks_for_no_sync_is_synced_if_the_store_needs_it() -> None:
    store = ReplicatedStore()
    async with running_node(store) as node:
        await node.create("a")
        store.synced.clear()
        append = await (await node.submit("a", a_batch(b"x"), needs_sync=False)).outcome()
        assert append.failure is None
        assert store.synced


async def test_a_job_that_only_writes_is_synced_if_the_store_needs_it() -> None:
    store = ReplicatedStore()
    async with running_node(store) as node:
        await node.create("a")
        for change in (node.log.committer.run, node.log.committer.write):
            store.marks.clear()
            await change(lambda: store.discard({(1, 50): None}))
            assert store.marks == [None]


async def test_the_event_loop_syncs_the_appends_of_a_lone_caller() -> None:
    clock = SteppedClock()
    store = ReplicatedStore(clock)
    async with running_node(store, clock=clock) as node:
        await node.create("a")
        await append_alone(node, clock, AFTER_GROUPS + 3)
        assert store.soon == store.marks[-3:]


async def test_a_sync_that_the_event_loop_gives_up_continues_in_the_thread() -> None:
    clock = SteppedClock()
    store = ReplicatedStore(clock)
    async with running_node(store, clock=clock) as node:
        await node.create("a")
        store.soon_s = 1.5 * FAST_SYNC_S
        await append_alone(node, clock, AFTER_GROUPS + 1)
        assert store.soon == store.marks[-1:]
        assert store.threads == {"tidelog-sync"}
        # A sync of the thread takes no time here, so that all of it is that of the attempt, which is not slow yet.
        store.soon_s = 0.5 * FAST_SYNC_S
        await append_alone(node, clock, 1)
        assert store.soon == store.marks[-2:]
        assert threading.current_thread().name in store.threads


async def test_a_store_that_was_replaced_stops_the_log() -> None:
    store = ReplicatedStore()
    async with running_node(store) as node:
        append = await written_and_not_synced(node, store)
        store.is_replaced = True
        store.may_sync.set()
        failed = await append.outcome()
        assert isinstance(failed.failure, OwnershipLostError)
        assert [type(failure) for failure in node.failures] == [OwnershipLostError]
        # It accepts nothing more, and says why.
        with pytest.raises(OwnershipLostError) as refused:
            await node.append("a", a_batch(b"x"))
        assert refused.value.effect is Effect.NONE
        assert node.lifecycle.describe("a").stopped_by == "the log was claimed"
