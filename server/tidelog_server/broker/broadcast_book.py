"""What the calls of broadcasts share: the table, the keys, who waits for what, and how changes become durable."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tidelog_server.broker.broadcast_records import Progress, Tombstone
from tidelog_server.broker.broadcast_store import MAX_FORGOTTEN_AT_ONCE, BroadcastStore
from tidelog_server.broker.broadcast_table import BroadcastTable, Task
from tidelog_server.broker.resource_keys import ResourceKeys
from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.limits import (
    BROADCAST_NOTE_WITHIN_S,
    MAX_BROADCAST_WAITERS,
    MAX_WATCHED_BROADCASTS,
    TOMBSTONE_SWEEP_INTERVAL_S,
)
from tidelog_server.core.producers import ProducerKey
from tidelog_server.core.tenants import Tenant
from tidelog_server.core.usage import Usage
from tidelog_server.log.broadcast import Target, window_key
from tidelog_server.log.node import LogNode
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.runtime.tasks import TaskOwner
from tidelog_server.storage.log_store import Beside


def awaitable() -> "asyncio.Future[Any]":
    """Return a future whose failure may stay unseen: those who waited for it may be gone."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    return future


@dataclass(slots=True, eq=False)
class Live:
    """A broadcast from just before its acceptance until it is durably in WAIT_ACK.

    Attributes:
        targets: Its vchannels.
        outcome: The tick, once the message is durable.
        has_left: Set at the end of this time, or when it will never come.
    """

    task: Task
    targets: Sequence[Target]
    outcome: "asyncio.Future[int]" = field(default_factory=awaitable)
    has_left: asyncio.Event = field(default_factory=asyncio.Event)


class BroadcastBook:
    """The broadcasts of a node, shared by all calls. Lives on the event loop.

    Attributes:
        table: What is known of them.
        keys: Who holds which key.
        live: Those on their way to WAIT_ACK.
        unsure: Those that storage failed under: nobody knows how far they got.
        stale_windows: Of those that are there; they are removed with the next write.
    """

    def __init__(self, node: LogNode, tasks: TaskOwner, store: BroadcastStore) -> None:
        self.table = BroadcastTable()
        self.keys = ResourceKeys()
        self.live: dict[int, Live] = {}
        self.unsure: set[int] = set()
        self.stale_windows: list[ProducerKey] = []
        self.waiters_usage = Usage()
        self._node = node
        self._tasks = tasks
        self._store = store
        # Broadcasts of which something is to be saved before long, for nobody waits for it.
        self._noted: list[Task] = []
        # Open broadcasts of which something is on its way to the metadata, and who waits for what comes after it.
        self._savers: dict[int, list[asyncio.Future[None]]] = {}
        # Who looks again when something happens to a broadcast.
        self._watchers: dict[int, set[asyncio.Event]] = {}
        # Over all who watch, each with all of its.
        self._watched_usage = Usage()
        self._sweep_wanted = asyncio.Event()

    def now_ms(self) -> int:
        """Return the wall clock, in milliseconds since the epoch."""
        return self._node.shared.clock.wall_ms()

    # -- Making things durable -----------------------------------------------------------------------------

    async def saved(self, task: Task) -> None:
        """Wait until everything that is wanted of ``task`` now is durable. Cancelling ends the wait only."""
        if not task.is_aligned:
            self._start_saving(task)
            done: asyncio.Future[None] = awaitable()
            self._savers[task.record.broadcast_id].append(done)
            await asyncio.shield(done)

    def save_soon(self, task: Task) -> None:
        """Make durable before long what is wanted of ``task``; with what somebody waits for, if that comes first.

        Why: a restart finds it out by itself, so whoever has the next turn of the event loop should not wait for it.
        """
        if not self._noted:
            asyncio.get_running_loop().call_later(BROADCAST_NOTE_WITHIN_S, self._save_noted)
        self._noted.append(task)

    def _save_noted(self) -> None:
        noted, self._noted = self._noted, []
        if not self._tasks.is_closed:
            for task in noted:
                if not task.is_aligned:
                    self._start_saving(task)

    def _start_saving(self, task: Task) -> None:
        broadcast_id = task.record.broadcast_id
        if broadcast_id not in self._savers:
            self._savers[broadcast_id] = []
            self._tasks.start("broadcast", self._save(task))

    async def _save(self, task: Task) -> None:
        """Make durable what is wanted, until nothing else is. One of these runs for a broadcast."""
        broadcast_id = task.record.broadcast_id
        due: list[asyncio.Future[None]] = []
        try:
            while not task.is_aligned:
                wanted = task.wanted
                due, self._savers[broadcast_id] = self._savers[broadcast_id], []
                await self._store.save(task, wanted)
                self._apply(task, wanted)
                _resolve(due)
        except BaseException as error:
            for done in (*due, *self._savers.pop(broadcast_id)):
                _reject(done, error)
            if (live := self.live.get(broadcast_id)) is not None:
                self.fail(live, error)
            raise
        _resolve(self._savers.pop(broadcast_id))

    def _apply(self, task: Task, durable: Progress | Tombstone) -> None:
        """Let everybody see what has become durable."""
        before, broadcast_id = task.durable, task.record.broadcast_id
        assert isinstance(before, Progress)
        has_left = before.tick < durable.tick
        hit(Failpoint.BROADCAST_MID_WAIT_ACK if has_left else Failpoint.BROADCAST_MID_ACK)
        self.table.apply(task, durable)
        self._node.metrics.broadcast_acks.inc(durable.acked - before.acked)
        if has_left:
            self.live.pop(broadcast_id).has_left.set()
            self.stale_windows.append(window_key(task.record.vchannel_ids[0], broadcast_id))
        if isinstance(durable, Tombstone):
            self.release(broadcast_id)
            if self.table.has_excess:
                self._sweep_wanted.set()
        self._wake(broadcast_id)

    def fail(self, live: Live, error: BaseException) -> None:
        """Let nobody wait for a broadcast that this process will not bring any further."""
        self.live.pop(live.task.record.broadcast_id, None)
        self.unsure.add(live.task.record.broadcast_id)
        _reject(live.outcome, error)
        live.has_left.set()
        self._wake(live.task.record.broadcast_id)

    async def sweep(self) -> None:
        """Forget old broadcasts, and the windows of those that need none, for ever."""
        while True:
            try:
                async with asyncio.timeout(TOMBSTONE_SWEEP_INTERVAL_S):
                    await self._sweep_wanted.wait()
            except TimeoutError:
                await self._forget_windows()
            self._sweep_wanted.clear()
            await self._forget_tombstones()

    async def _forget_tombstones(self) -> None:
        table = self.table
        while (forgotten := table.forget_some(self.now_ms(), MAX_FORGOTTEN_AT_ONCE)).broadcast_ids:
            self._node.metrics.evictions.labels("broadcasts").inc(forgotten.evicted)
            await self._store.forget(forgotten.broadcast_ids, forgotten.floors)
            table.forget(forgotten.broadcast_ids)

    async def _forget_windows(self) -> None:
        if not self.stale_windows:
            return
        changes = dict(map(self._node.shared.producers.remove, self.stale_windows))
        self.stale_windows.clear()
        await self._node.committer.run(lambda: self._node.store.write([], Beside(changes)))

    @property
    def waiters(self) -> int:
        """How many calls wait."""
        return self.waiters_usage.total

    # -- Waiting -------------------------------------------------------------------------------------------

    @contextmanager
    def watching(self, broadcast_ids: Sequence[int], tenant: Tenant) -> Iterator[asyncio.Event]:
        """Yield an event that is set when something happens to one of the broadcasts, or the node shuts down.

        Raises:
            RateLimitRejectedError: Too many wait, of all or of ``tenant``.
        """
        changed, watched = asyncio.Event(), set(broadcast_ids)
        percent = self._node.admission.limits.max_principal_percent
        for what, usage, amount, maximum in (
            ("calls", self.waiters_usage, 1, MAX_BROADCAST_WAITERS),
            ("ids", self._watched_usage, len(watched), MAX_WATCHED_BROADCASTS),
        ):
            if (total := usage.total + amount) > maximum:
                raise RateLimitRejectedError(
                    f"{total} {what} would wait for keys or acknowledgements, at most {maximum} may: wait and repeat",
                    **{what: total, f"max_{what}": maximum},
                )
            usage.check_share(tenant, amount, maximum, percent, f"{what} that wait for broadcasts")
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
        """Give back what a broadcast holds or waits for, and wake whoever has keys now, and whoever watched it."""
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
