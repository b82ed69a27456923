"""Group commit for all channels of the node: one write and one sync for many appends.

The event loop writes a group, and a thread syncs it. Meanwhile the event loop writes the next one, so that the disk
and the CPU work at the same time. All appends that arrive while as many groups are in flight as the store allows
form the next group. Other changes of the store (trims, drops, metadata) run on the thread, between groups.

The event loop also syncs the appends of a lone caller, see ``lone_appends``, if the store allows it.

Why the event loop: rocksdict holds the GIL during a write, so the loop is blocked in any case, and waking a thread
would only add to that.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, TypeVar, cast

from tidelog_server.core.errors import Effect, StorageFailedError
from tidelog_server.core.errors.cluster import LogFailure, OwnershipLostError
from tidelog_server.core.limits import MAX_GROUP_BATCHES, MAX_GROUP_BYTES
from tidelog_server.log.append import Append, rows_of
from tidelog_server.log.commit_figures import CommitFigures, CommitGroup
from tidelog_server.log.lease_validity import LeaseValidity
from tidelog_server.log.lone_appends import FAST_SYNC_S, LoneAppends
from tidelog_server.log.slow_appends import SlowAppends
from tidelog_server.runtime.clock import Clock
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.storage.log_store import LogStore
from tidelog_server.storage.rows import Row

Result = TypeVar("Result")

# Entries that need no sync are synced this long after they were written, or after the work in progress then.
_IDLE_SYNC_S: Final = 1.0
_STALL_POLL_S: Final = 0.002


@dataclass(slots=True)
class _Job:
    """A change of the store other than an append; one that only writes needs no thread."""

    call: Callable[[], Any]
    done: Future[Any]
    changes_store: bool
    only_writes: bool


class _Turn(Enum):
    """What the event loop does about the work that waits."""

    IDLE = auto()
    """Nothing is scheduled: nothing waits, or enough groups are ahead."""
    DUE = auto()
    """``_advance`` runs in the next step, or ``commit_lone`` runs it before."""
    STALLED = auto()
    """The engine would stall a write; ``_advance`` checks it again soon."""
    JOB = auto()
    """The thread runs a job, and nothing else is handed over."""


class _Life(Enum):
    """How long work is handed over: until everything that was submitted before ``close`` is done."""

    OPEN = auto()
    CLOSING = auto()
    ENDED = auto()


class _JobExecutor(Executor):
    """Executor that runs the metadata store's calls as jobs. Used on the event loop."""

    def __init__(self, committer: "GroupCommitter") -> None:
        self._committer = committer

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._committer.submit_job(lambda: fn(*args, **kwargs))


class GroupCommitter:
    """Writes to a store and syncs it. Everything but syncs and jobs happens on the event loop.

    Invariant: appends are written, synced and settled in the order of submission.
    Invariant: the store has one writer at a time: while a job runs, nothing is written.

    The queue needs no bound: the log limits the bytes in flight before it submits.

    Attributes:
        figures: What it has committed, for the metrics.
    """

    def __init__(
        self,
        store: LogStore,
        clock: Clock,
        metrics: Metrics,
        *,
        slow_appends: SlowAppends,
        on_committed: Callable[[Sequence[Append]], None],
        on_failure: Callable[[LogFailure], None],
    ) -> None:
        # Set before the first append if this node is part of a cluster.
        self.lease: LeaseValidity | None = None
        self._store = store
        self._traits = store.write_traits
        self._clock = clock
        self.figures = CommitFigures(clock, metrics, slow_appends)
        self._on_committed = on_committed
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        # Work not yet handed over to the thread, in order.
        self._waiting: deque[Append | _Job] = deque()
        self._turn = _Turn.IDLE
        # The scheduled ``_advance`` while the turn is DUE.
        self._due: asyncio.Handle | None = None
        self._life = _Life.OPEN
        # Groups handed over to the thread and not yet returned.
        self._groups_ahead = 0
        # None ends the thread.
        self._handed_over: queue.SimpleQueue[CommitGroup | _Job | None] = queue.SimpleQueue()
        # Time of the oldest write that no append waits to be synced. Set by the thread; while it is None and the
        # thread has no work, the event loop may sync.
        self._unsynced_since_s: float | None = None
        # Set once, by the thread or the event loop; read by both.
        self._failure: LogFailure | None = None
        self._lone_appends = LoneAppends(gives_up=self._traits.gives_up_syncs)
        self._thread = threading.Thread(target=self._run, name="tidelog-sync", daemon=True)
        self._thread.start()
        self.executor: Executor = _JobExecutor(self)

    def submit(self, append: Append) -> None:
        """Queue an append. It is always settled later, on the event loop."""
        assert not append.settled
        # Set here, so that both times of an acknowledgement are readings of the same clock.
        append.started_s = self._clock.monotonic_s()
        self._waiting.append(append)
        self._schedule()

    def commit_lone(self) -> None:
        """Write what waits now if it is a lone caller's append, and not in the next step of the event loop.

        For a caller that has submitted and submits nothing else in this step. If the loop syncs it too, it is settled
        when this returns.
        """
        if self._turn is _Turn.DUE and self._lone_appends.commits_at_once and len(self._waiting) == 1:
            assert self._due is not None
            self._due.cancel()
            self._advance()

    def stop_by_defect(self, error: BaseException) -> LogFailure:
        """Stop the log because of a bug in its caller, whose state may contradict the log; return the cause.

        Nothing that is submitted later is written. A restart replays what is durable.
        """
        failure = self._fail_by_defect(error)
        self._on_failure(failure)
        return failure

    def submit_rows(self, rows: Sequence[Row]) -> Coroutine[Any, Any, None]:
        """Queue changes of rows that come without an entry; return what waits until they are durable.

        They are queued when this returns, and share the write and the sync of the appends around them. The coroutine
        must be awaited.

        Raises:
            StorageFailedError, OwnershipLostError: The coroutine raises it if the log stopped; the effect is unknown.
        """
        done: asyncio.Future[Append] = self._loop.create_future()
        self.submit(Append((), True, done.set_result, rows=rows))
        return _durable(done)

    def submit_job(
        self, call: Callable[[], Any], *, changes_store: bool = True, only_writes: bool = False
    ) -> Future[Any]:
        """Run ``call`` after everything submitted before and without concurrent writes.

        It runs on the thread, unless it ``only_writes``. A job that changes the store is refused after a failure.
        """
        job = _Job(call, Future(), changes_store, only_writes)
        self._waiting.append(job)
        self._schedule()
        return job.done

    async def run(self, call: Callable[[], Result]) -> Result:
        """Run ``call`` as a job and return its result. Cancelling does not stop a call that has started."""
        return await asyncio.wrap_future(self.submit_job(call))

    async def write(self, call: Callable[[], Result]) -> Result:
        """Run ``call``, which writes and does not sync, in order, and return its result.

        It runs on the event loop, concurrently with the sync of earlier writes, and at once if nothing waits: two
        thread switches take longer than a small write.

        If the store always syncs, it runs as a job that does: a write that nothing syncs would never be confirmed.
        """
        if self._traits.always_syncs:
            return await self.run(call)
        if not self._waiting and self._turn is _Turn.IDLE and self._life is not _Life.ENDED and self._engine_is_ready():
            return cast("Result", self._change(call, changes_store=True))
        return await asyncio.wrap_future(self.submit_job(call, only_writes=True))

    async def drained(self) -> None:
        """Wait until everything that was submitted before is settled or has failed."""
        await asyncio.wrap_future(self.submit_job(lambda: None, changes_store=False))

    async def close(self) -> None:
        """Drain everything submitted, sync, and end the thread. Does not close the store. Idempotent."""
        if self._life is _Life.OPEN:
            self._life = _Life.CLOSING
            try:
                await self.drained()
            finally:
                self._life = _Life.ENDED
                self._handed_over.put(None)
        await asyncio.to_thread(self._thread.join)

    # -- On the event loop ---------------------------------------------------------------------------------

    def _schedule(self) -> None:
        may_hand_over = self._turn is _Turn.IDLE and self._life is not _Life.ENDED
        if self._waiting and may_hand_over and self._groups_ahead < self._traits.groups_ahead:
            # Not at once: appends that arrive in the same step of the event loop share the group.
            self._turn = _Turn.DUE
            self._due = self._loop.call_soon(self._advance)

    def _advance(self) -> None:
        assert self._turn in (_Turn.DUE, _Turn.STALLED)
        assert self._waiting
        if self._turn is _Turn.DUE:
            self._turn = _Turn.IDLE
        try:
            self._hand_over()
        except BaseException as error:  # noqa: BLE001 - a bug; it is reported with the next group, in order
            self._turn = _Turn.IDLE
            self._fail_by_defect(error)
        self._schedule()

    def _hand_over(self) -> None:
        """Hand the next group or job to the thread. One at a time, so that other tasks get their turn."""
        if isinstance(job := self._waiting[0], _Job):
            if job.only_writes:
                if self._engine_is_ready():
                    self._waiting.popleft()
                    self._do(job)
                return
            self._waiting.popleft()
            self._turn = _Turn.JOB
            self._handed_over.put(job)
        elif self._engine_is_ready():
            group = self._gather()
            assert self._groups_ahead < self._traits.groups_ahead
            syncs_here = self._syncs_here(group)
            self._groups_ahead += 1
            self._write(group)
            if syncs_here and self._sync(group, soon=True):
                self._settle(group)
            else:
                self._handed_over.put(group)

    def _syncs_here(self, group: CommitGroup) -> bool:
        is_thread_idle = self._groups_ahead == 0 and self._unsynced_since_s is None
        return self._lone_appends.syncs_here(
            is_alone=group.needs_sync and is_thread_idle and not self._waiting,
            appends=len(group.appends),
            size_bytes=group.size_bytes,
            submitted_s=group.appends[0].started_s,
        )

    def _engine_is_ready(self) -> bool:
        """Return whether the engine would accept a write without a stall; if not, schedule another check.

        The caller hands over what waits first, or must queue its work if this returns False.
        Why: a write that RocksDB stalls holds the GIL and would block the event loop; waiting here does not.
        """
        if self._failure is not None or self._store.stall_reason() is None:
            self._turn = _Turn.IDLE
            return True
        if self._turn is _Turn.IDLE:
            self._turn = _Turn.STALLED
            self.figures.metrics.commit_stalls.inc()
        self._loop.call_later(_STALL_POLL_S, self._advance)
        return False

    def _gather(self) -> CommitGroup:
        """Return the next group: the oldest append, and those that fit with it."""
        waiting = self._waiting
        appends: list[Append] = []
        size_bytes = batches = 0
        needs_sync = self._traits.always_syncs
        while waiting and batches < MAX_GROUP_BATCHES:
            item = waiting[0]
            if isinstance(item, _Job):
                break
            grown_bytes = size_bytes
            for entry in item.entries:
                grown_bytes += len(entry.columns)
            for batch in item.staged:
                grown_bytes += len(batch.columns)
            grown_batches = batches + len(item.entries) + len(item.staged)
            if appends and (grown_bytes > MAX_GROUP_BYTES or grown_batches > MAX_GROUP_BATCHES):
                break
            size_bytes, batches = grown_bytes, grown_batches
            needs_sync = needs_sync or item.needs_sync
            appends.append(item)
            waiting.popleft()
        assert appends
        return CommitGroup(appends, size_bytes, needs_sync)

    def _write(self, group: CommitGroup) -> None:
        group.failure = self._failure or self._lease_lost()
        if group.failure is not None:
            return
        hit(Failpoint.BEFORE_WRITE)
        begin_s = self._clock.monotonic_s()
        entries = [entry for append in group.appends for entry in append.entries]
        staged = [batch for append in group.appends for batch in append.staged]
        rows = rows_of(group.appends)

        def write() -> None:
            group.mark = self._store.write(entries, rows, staged)

        group.failure = self._attempt(write)
        group.write_s = self._clock.monotonic_s() - begin_s
        hit(Failpoint.AFTER_WRITE_BEFORE_SYNC)

    def _settle(self, group: CommitGroup) -> None:
        """Publish a group's outcome, in order."""
        assert self._groups_ahead > 0
        self._groups_ahead -= 1
        try:
            self._publish(group)
        except BaseException as error:  # noqa: BLE001 - a bug: a partly published group must stop the log
            self._on_failure(self._fail_by_defect(error))
        # After the answers: what waited meanwhile comes sooner after this than a reaction to an answer.
        self._lone_appends.note_settled(self._clock.monotonic_s(), group.sync_s)
        # After the answers, whose tasks were started or woken before.
        self._schedule()
        if group.failure is None:
            self._loop.call_soon(self.figures.note, group)

    def _publish(self, group: CommitGroup) -> None:
        if group.failure is None:
            self._on_committed(group.appends)
            # Ordering: after the sync. The entries stay in the log, but they are no longer acknowledged.
            group.failure = self._lease_lost()
        if group.failure is not None:
            self._on_failure(group.failure)
        for append in group.appends:
            # Each append is settled once: its answer has been sent then.
            assert not append.settled
            append.failure = group.failure
            append.settled = True
            append.on_settled(append)
            for repetition in append.repetitions or ():
                repetition.failure = group.failure
                repetition.settled = True
                repetition.on_settled(repetition)

    def _job_ended(self) -> None:
        assert self._turn is _Turn.JOB
        self._turn = _Turn.IDLE
        self._schedule()

    # -- On the thread; a group also on the event loop, see _syncs_here -------------------------------------

    def _run(self) -> None:
        while (item := self._next()) is not None:
            if isinstance(item, _Job):
                self._do(item)
                self._loop.call_soon_threadsafe(self._job_ended)
            else:
                self._sync(item)
                self._loop.call_soon_threadsafe(self._settle, item)
        self._sync_idle()

    def _next(self) -> CommitGroup | _Job | None:
        """Wait for work; meanwhile sync writes that have waited _IDLE_SYNC_S for a sync."""
        while (since_s := self._unsynced_since_s) is not None:
            left_s = since_s + _IDLE_SYNC_S - self._clock.monotonic_s()
            if 0 < left_s:
                try:
                    return self._handed_over.get(timeout=left_s)
                except queue.Empty:
                    continue
            self._sync_idle()
        return self._handed_over.get()

    def _sync(self, group: CommitGroup, *, soon: bool = False) -> bool:
        """Sync a written group if it needs that; return False if ``soon``, and the thread has to continue it."""
        # The sync of the previous group may have failed while this one was written.
        group.failure = group.failure or self._failure
        is_over = True

        def sync() -> None:
            nonlocal is_over
            if soon:
                is_over = self._store.sync_soon(group.mark, FAST_SYNC_S)
            else:
                self._store.sync(group.mark)

        if group.failure is None:
            begin_s = self._clock.monotonic_s()
            if group.needs_sync:
                self._unsynced_since_s = None
                group.failure = self._attempt(sync)
                group.sync_s = (group.sync_s or 0.0) + self._clock.monotonic_s() - begin_s
            elif self._unsynced_since_s is None:
                self._unsynced_since_s = begin_s
        if is_over:
            hit(Failpoint.AFTER_SYNC_BEFORE_ACK)
        return is_over

    def _sync_idle(self) -> None:
        is_due, self._unsynced_since_s = self._unsynced_since_s is not None, None
        if not is_due or self._failure is not None:
            return
        failure = self._attempt(self._store.sync)
        if failure is not None:
            self._loop.call_soon_threadsafe(self._on_failure, failure)

    # -- On either side ------------------------------------------------------------------------------------

    def _do(self, job: _Job) -> None:
        if not job.done.set_running_or_notify_cancel():
            return
        try:
            result = self._change(job.call, changes_store=job.changes_store)
        except BaseException as error:  # noqa: BLE001 - every error is passed to the caller that waits
            job.done.set_exception(error)
        else:
            job.done.set_result(result)

    def _change(self, call: Callable[[], Any], *, changes_store: bool) -> Any:
        """Run a job's call, sync if the store always does, and return the result. A storage failure stops the log."""
        # Even if the store itself still works, after a bug: a job may depend on a write that failed.
        if self._failure is not None and changes_store:
            raise self._failure.with_effect(Effect.NONE)
        try:
            result = call()
            if changes_store and self._traits.always_syncs:
                self._store.sync()
        except (StorageFailedError, OwnershipLostError) as error:
            self._loop.call_soon_threadsafe(self._on_failure, self._fail(error))
            raise
        return result

    def _lease_lost(self) -> LogFailure | None:
        """Return the cause if the node's lease has expired; the log then stops."""
        if self.lease is None or self.lease.is_held():
            return None
        return self._fail(OwnershipLostError(self.lease.node_id))

    def _attempt(self, change: Callable[[], None]) -> LogFailure | None:
        """Run a write or a sync; return the cause if it failed, which stops the log."""
        try:
            change()
        except (StorageFailedError, OwnershipLostError) as error:
            return self._fail(error)
        except BaseException as error:  # noqa: BLE001 - a bug: waiting callers must not wait indefinitely
            return self._fail_by_defect(error)
        return None

    def _fail(self, error: LogFailure) -> LogFailure:
        """Store the first failure: nothing is written after it."""
        if self._failure is None:
            self._failure = error
        return self._failure

    def _fail_by_defect(self, error: BaseException) -> LogFailure:
        report = {"message": "a bug stopped the log", "exception": error}
        self._loop.call_soon_threadsafe(self._loop.call_exception_handler, report)
        return self._fail(StorageFailedError(f"a group could not be committed: {error!r}"))


async def _durable(done: "asyncio.Future[Append]") -> None:
    # Shielded: the committer settles the append even if the caller is cancelled.
    append = await asyncio.shield(done)
    if append.failure is not None:
        raise append.failure.with_effect(Effect.UNKNOWN)
