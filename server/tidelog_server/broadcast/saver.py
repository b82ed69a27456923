"""State that all broadcast calls share: the table, the keys and the waiters; and how changes are persisted."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog_server.broadcast.keys import ResourceKeys
from tidelog_server.broadcast.records import Progress, Tombstone
from tidelog_server.broadcast.rows import LOGGED, LoggedKey
from tidelog_server.broadcast.store import MAX_FORGOTTEN_AT_ONCE, BroadcastRecords
from tidelog_server.broadcast.table import BroadcastTable, Task
from tidelog_server.core.callers import Tenant
from tidelog_server.core.usage import Usage
from tidelog_server.log.node import LogNode
from tidelog_server.log.protocols import Place
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.runtime.tasks import TaskOwner

# Calls that wait for keys or acknowledgements.
MAX_BROADCAST_WAITERS: Final = 10_000
# Sum over all waiting calls: about 200 bytes each.
MAX_WATCHED_BROADCASTS: Final = 200_000
# Delay until the metadata records that a broadcast is in the log, unless an acknowledgement comes first: no call waits.
BROADCAST_NOTE_WITHIN_S: Final = 0.01
TOMBSTONE_SWEEP_INTERVAL_S: Final = 5 * 60.0


def awaitable() -> "asyncio.Future[Any]":
    """Return a future whose exception need not be retrieved: its waiters may have been cancelled."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    return future


@dataclass(slots=True, eq=False)
class LiveBroadcast:
    """A broadcast from just before its acceptance until WAIT_ACK is persisted.

    Attributes:
        targets: Its vchannels.
        outcome: Resolves to the message's tick once the message is durable.
        has_left: Set once WAIT_ACK is persisted, or once that is known to fail.
    """

    task: Task
    targets: Sequence[Place]
    outcome: "asyncio.Future[int]" = field(default_factory=awaitable)
    has_left: asyncio.Event = field(default_factory=asyncio.Event)


class BroadcastSaver:
    """The broadcasts of a node, shared by all calls. Lives on the event loop.

    Attributes:
        table: All broadcasts that are not forgotten.
        keys: Holders and waiters of resource keys.
        live: Broadcasts that have not reached WAIT_ACK, by id.
        in_doubt: Ids of broadcasts in an unknown state after a storage failure.
        unneeded: Rows of broadcasts whose records have their ticks; the next write deletes them.
        waiters_usage: Waiting calls of each tenant.
        now_ms: Returns the wall clock, in milliseconds since the epoch.
    """

    def __init__(self, node: LogNode, tasks: TaskOwner, store: BroadcastRecords) -> None:
        self.table = BroadcastTable()
        self.keys = ResourceKeys()
        self.live: dict[int, LiveBroadcast] = {}
        self.in_doubt: set[int] = set()
        self.unneeded: list[LoggedKey] = []
        self.waiters_usage = Usage()
        self.now_ms = node.shared.clock.wall_ms
        self._node = node
        self._tasks = tasks
        self._store = store
        # Broadcasts whose pending change no caller waits for; saved after BROADCAST_NOTE_WITHIN_S.
        self._deferred: list[Task] = []
        # Open broadcasts with a save in flight, and the futures of callers that wait for the next save.
        self._savers: dict[int, list[asyncio.Future[None]]] = {}
        # Events to set when a broadcast changes.
        self._watchers: dict[int, set[asyncio.Event]] = {}
        # Watched ids, summed over all calls.
        self._watched_usage = Usage()
        self._sweep_due = asyncio.Event()

    # -- Persisting ----------------------------------------------------------------------------------------

    async def saved(self, task: Task) -> None:
        """Wait until the current pending state of ``task`` is durable. Cancelling ends the wait only."""
        if not task.is_aligned:
            self._start_saving(task)
            done: asyncio.Future[None] = awaitable()
            self._savers[task.record.broadcast_id].append(done)
            await asyncio.shield(done)

    def save_soon(self, task: Task) -> None:
        """Persist the pending state of ``task`` within BROADCAST_NOTE_WITHIN_S, or with an earlier awaited save.

        Why deferred: a restart recovers this state from the log, so it need not delay other work on the event loop.
        """
        if not self._deferred:
            asyncio.get_running_loop().call_later(BROADCAST_NOTE_WITHIN_S, self._save_deferred)
        self._deferred.append(task)

    def _save_deferred(self) -> None:
        deferred, self._deferred = self._deferred, []
        if not self._tasks.is_closed:
            for task in deferred:
                if not task.is_aligned:
                    self._start_saving(task)

    def _start_saving(self, task: Task) -> None:
        broadcast_id = task.record.broadcast_id
        if broadcast_id not in self._savers:
            self._savers[broadcast_id] = []
            self._tasks.start("broadcast", self._save(task))

    async def _save(self, task: Task) -> None:
        """Persist the pending state until it equals the durable one. At most one of these runs per broadcast."""
        broadcast_id = task.record.broadcast_id
        due: list[asyncio.Future[None]] = []
        try:
            while not task.is_aligned:
                pending = task.pending
                due, self._savers[broadcast_id] = self._savers[broadcast_id], []
                await self._store.save(task, pending)
                self._apply(task, pending)
                _resolve(due)
        except BaseException as error:
            for done in (*due, *self._savers.pop(broadcast_id)):
                _reject(done, error)
            if (live := self.live.get(broadcast_id)) is not None:
                self.fail(live, error)
            raise
        _resolve(self._savers.pop(broadcast_id))

    def _apply(self, task: Task, durable: Progress | Tombstone) -> None:
        """Publish a state that has become durable."""
        before, broadcast_id = task.durable, task.record.broadcast_id
        assert isinstance(before, Progress)
        has_left = before.tick < durable.tick
        hit(Failpoint.BROADCAST_MID_WAIT_ACK if has_left else Failpoint.BROADCAST_MID_ACK)
        self.table.apply(task, durable)
        self._node.metrics.broadcast_acks.inc(durable.acked - before.acked)
        if has_left:
            self.live.pop(broadcast_id).has_left.set()
            self.unneeded.append(task.logged_key)
        if isinstance(durable, Tombstone):
            self.release(broadcast_id)
            if self.table.has_excess:
                self._sweep_due.set()
        self._wake(broadcast_id)

    def fail(self, live: LiveBroadcast, error: BaseException) -> None:
        """Wake all waiters of a broadcast that this process cannot finish."""
        self.live.pop(live.task.record.broadcast_id, None)
        self.in_doubt.add(live.task.record.broadcast_id)
        _reject(live.outcome, error)
        live.has_left.set()
        self._wake(live.task.record.broadcast_id)

    async def sweep(self) -> None:
        """Delete old tombstones and rows that are no longer needed in the background. Never returns."""
        while True:
            try:
                async with asyncio.timeout(TOMBSTONE_SWEEP_INTERVAL_S):
                    await self._sweep_due.wait()
            except TimeoutError:
                if self.unneeded:
                    await self._node.committer.submit_rows([LOGGED.gone(key) for key in self.take_unneeded()])
            self._sweep_due.clear()
            await self._forget_tombstones()

    async def _forget_tombstones(self) -> None:
        table = self.table
        while (forgotten := table.forget_some(self.now_ms(), MAX_FORGOTTEN_AT_ONCE)).broadcast_ids:
            self._node.metrics.evictions.labels("broadcasts").inc(forgotten.evicted)
            await self._store.forget(forgotten.broadcast_ids, forgotten.floors)
            table.forget(forgotten.broadcast_ids)

    def take_unneeded(self) -> list[LoggedKey]:
        """Return the rows that are no longer needed, for a write that is about to delete them."""
        unneeded, self.unneeded = self.unneeded, []
        return unneeded

    # -- Waiting -------------------------------------------------------------------------------------------

    @contextmanager
    def watching(self, broadcast_ids: Sequence[int], tenant: Tenant) -> Iterator[asyncio.Event]:
        """Yield an event that is set when one of the broadcasts changes, or when the node shuts down.

        Raises:
            RateLimitRejectedError: Too many calls or ids wait, in total or of ``tenant``.
        """
        changed, watched = asyncio.Event(), set(broadcast_ids)
        percent = self._node.admission.limits.max_principal_percent
        for what, usage, amount, maximum in (
            ("calls", self.waiters_usage, 1, MAX_BROADCAST_WAITERS),
            ("ids", self._watched_usage, len(watched), MAX_WATCHED_BROADCASTS),
        ):
            usage.check(
                tenant, amount, maximum, percent, unit=f"{what} that wait for broadcasts", name=what,
                full=f"{{total}} {what} would wait for keys or acknowledgements, at most {{maximum}} may: retry later",
            )  # fmt: skip
        self.waiters_usage.add(tenant, 1)
        self._watched_usage.add(tenant, len(watched))
        self._node.watchers.add(changed)
        for broadcast_id in watched:
            self._watchers.setdefault(broadcast_id, set()).add(changed)
        try:
            yield changed
        finally:
            self.waiters_usage.add(tenant, -1)
            self._watched_usage.add(tenant, -len(watched))
            self._node.watchers.discard(changed)
            for broadcast_id in watched:
                watchers = self._watchers[broadcast_id]
                watchers.discard(changed)
                if not watchers:
                    del self._watchers[broadcast_id]

    def release(self, broadcast_id: int) -> None:
        """Release the keys that a broadcast holds or waits for; wake the new holders and its watchers."""
        for owner in self.keys.release(broadcast_id):
            self._wake(owner)
        self._wake(broadcast_id)

    def _wake(self, broadcast_id: int) -> None:
        for changed in self._watchers.get(broadcast_id, ()):
            changed.set()


def _resolve(waiting: Iterable["asyncio.Future[None]"]) -> None:
    for done in waiting:
        if not done.done():
            done.set_result(None)


def _reject(done: "asyncio.Future[Any]", error: BaseException) -> None:
    if done.done():
        return
    if isinstance(error, Exception):
        done.set_exception(error)
    else:
        done.cancel()
