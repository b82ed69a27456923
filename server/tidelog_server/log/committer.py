"""Group commit for all channels of the node: one write and one sync for many appends.

The event loop writes a group, a thread syncs it; meanwhile the event loop writes the next one, so that the disk and
the CPU work at once. All appends that arrive while two groups are on their way go into the one after them. Other
changes of the store (trims, drops, metadata) run on the thread, between groups.

Why the event loop: rocksdict holds the GIL while it writes, so the loop stands still wherever that happens, and a
thread would only have to be woken for it.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar, cast

from tidelog_server.core.cluster_errors import LogFailure, OwnershipLostError
from tidelog_server.core.entries import NewEntry, StagedBatch
from tidelog_server.core.errors import Effect, StorageFailedError
from tidelog_server.core.groups import GroupKey, GroupPosition
from tidelog_server.core.limits import MAX_GROUP_BATCHES, MAX_GROUP_BYTES
from tidelog_server.core.producers import ProducerKey, ProducerWindow
from tidelog_server.core.shares import FloorChange
from tidelog_server.core.transactions import AppCommit, AppKey, TxnOutcome
from tidelog_server.log.slow_appends import SlowAppends
from tidelog_server.log.tenure import Tenure
from tidelog_server.runtime.clock import Clock
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.storage.log_store import NOTHING_BESIDE, Beside, LogStore

Result = TypeVar("Result")

# One that is synced, and one that is written meanwhile.
_MAX_GROUPS_AHEAD: Final = 2
# Entries that need no sync are synced this long after they were written, or behind what is under way then.
_IDLE_SYNC_S: Final = 1.0
_STALL_POLL_S: Final = 0.002
# Of so many groups at most are the figures kept before the metrics are brought up to date: a millisecond of work.
_MAX_FIGURES: Final = 64


WindowChange = tuple[ProducerKey, ProducerWindow | None]
"""A producer's window after a batch, or None for one that is to be forgotten."""

OutcomeChange = tuple[int, TxnOutcome | None]
"""A begun transaction and its outcome, or None for one whose outcome is to be forgotten."""

AppChange = tuple[AppKey, AppCommit | None]
"""An application and its last commit, or None for one that is to be forgotten."""

PositionChange = tuple[GroupKey, GroupPosition | None]
"""A consumer group's position, or None for one that is to be forgotten."""

Settled = Callable[["PendingAppend"], None]
"""Called once with an append whose outcome is known, on the event loop, while those behind it are not settled yet.

It must not raise: that would stop the log.
"""


@dataclass(slots=True, eq=False)
class PendingAppend:
    """An append between its tick and its acknowledgement. Changed by the event loop only.

    Attributes:
        entries: What is written, all of it or nothing, with the changes beside it.
        needs_sync: Whether the acknowledgement waits for a sync.
        on_settled: Called once on the event loop, after ``settled`` is set.
        started_s: When it was submitted, on the committer's clock, which sets it.
        settled: True once the outcome is known.
        failure: Why it was not acknowledged, if so.
        windows: What is written with the entry for its producer, if it names one.
        staged: Batches of a begun transaction that are written; then there are no entries.
        outcomes: What is written with the entries of a begun transaction.
        positions: What is written for consumer groups, with entries or alone.
        app_commits: What is written with the entries of prepared transactions.
        floors: What is written about entries of tables that are evicted with this.
        is_duplicate: Whether it repeats an append that was taken before, and is not written itself.
        repetitions: Those that repeat this one and are settled behind it.
    """

    entries: Sequence[NewEntry]
    needs_sync: bool
    on_settled: Settled
    started_s: float = field(default=0.0, init=False)
    settled: bool = False
    failure: LogFailure | None = None
    windows: Sequence[WindowChange] = ()
    staged: Sequence[StagedBatch] = ()
    outcomes: Sequence[OutcomeChange] = ()
    positions: Sequence[PositionChange] = ()
    app_commits: Sequence[AppChange] = ()
    floors: Sequence[FloorChange] = ()
    is_duplicate: bool = False
    repetitions: "list[PendingAppend] | None" = None


@dataclass(slots=True)
class _Job:
    """A change of the store other than an append; one that only writes needs no thread."""

    call: Callable[[], Any]
    done: Future[Any]
    changes_store: bool
    only_writes: bool


@dataclass(slots=True)
class _Group:
    """Appends that are committed together. It belongs to the thread from the end of its write until it is settled."""

    appends: list[PendingAppend]
    size_bytes: int
    needs_sync: bool
    write_s: float = 0.0
    sync_s: float | None = None
    failure: LogFailure | None = None


class _Figures(NamedTuple):
    """What the metrics want to know of a committed group; ``sync_s`` is None if it was not synced."""

    batches: int
    messages: int
    size_bytes: int
    write_s: float
    sync_s: float | None
    ack_s: float


class _JobExecutor(Executor):
    """Lets the metadata store run its calls as jobs. Used on the event loop."""

    def __init__(self, committer: "GroupCommitter") -> None:
        self._committer = committer

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._committer.submit_job(lambda: fn(*args, **kwargs))


class GroupCommitter:
    """Writes and syncs for a store. Everything but the sync and the jobs happens on the event loop.

    Invariant: appends are written, synced and settled in the order in which they were submitted.
    Invariant: the store is changed by one at a time: while a job runs, nothing is written.

    What waits needs no bound of its own: the log bounds the bytes in flight before it submits.
    """

    def __init__(
        self,
        store: LogStore,
        clock: Clock,
        metrics: Metrics,
        *,
        slow_appends: SlowAppends,
        on_committed: Callable[[Sequence[PendingAppend]], None],
        on_failure: Callable[[LogFailure], None],
    ) -> None:
        # Set before the first append if this node is one of several.
        self.tenure: Tenure | None = None
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._slow_appends = slow_appends
        self._on_committed = on_committed
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        # What was not handed over to the thread yet, in order.
        self._waiting: deque[PendingAppend | _Job] = deque()
        # Whether ``_advance`` is about to be called.
        self._is_due = False
        self._is_stalled = False
        self._is_closed = False
        # From then on nothing is handed over any more.
        self._has_ended = False
        # What the thread has, and the event loop did not get back.
        self._groups_ahead = 0
        self._is_job_ahead = False
        # None asks the thread to end.
        self._handed_over: queue.SimpleQueue[_Group | _Job | None] = queue.SimpleQueue()
        # Of the thread: since when something is written that nobody waits for the sync of.
        self._unsynced_since_s: float | None = None
        # Set once, by either side; read by both.
        self._failure: LogFailure | None = None
        # Of groups that the metrics do not know of yet.
        self._figures: list[_Figures] = []
        self._thread = threading.Thread(target=self._run, name="tidelog-sync", daemon=True)
        self._thread.start()
        self.executor: Executor = _JobExecutor(self)

    def submit(self, append: PendingAppend) -> None:
        """Queue an append. It is settled later, on the event loop, whatever happens."""
        # Set here, so that the time of an acknowledgement is always the difference of two readings of one clock.
        append.started_s = self._clock.monotonic_s()
        self._waiting.append(append)
        self._schedule()

    def submit_job(self, call: Callable[[], Any], *, changes_store: bool = True) -> Future[Any]:
        """Run ``call`` on the thread, after everything submitted before and with nothing else beside it.

        One that changes the store is refused once something has failed.
        """
        return self._queue_job(_Job(call, Future(), changes_store, only_writes=False))

    async def run(self, call: Callable[[], Result]) -> Result:
        """Run ``call`` as a job and return what it returns. Cancelling does not stop a started call."""
        return await asyncio.wrap_future(self.submit_job(call))

    async def write(self, call: Callable[[], Result]) -> Result:
        """Run ``call``, which writes and does not sync, in its turn and return what it returns.

        It runs on the event loop, beside the sync of what was written before, and at once if nothing waits: two
        changes of thread take longer than a small write.
        """
        if not (self._waiting or self._is_job_ahead or self._has_ended) and self._engine_is_ready():
            return cast("Result", self._change(call, changes_store=True))
        done: Future[Result] = self._queue_job(_Job(call, Future(), changes_store=True, only_writes=True))
        return await asyncio.wrap_future(done)

    async def close(self) -> None:
        """Finish everything submitted, sync, and end the thread. Does not close the store. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            try:
                await asyncio.wrap_future(self.submit_job(lambda: None, changes_store=False))
            finally:
                self._has_ended = True
                self._handed_over.put(None)
        await asyncio.to_thread(self._thread.join)

    # -- On the event loop ---------------------------------------------------------------------------------

    def _queue_job(self, job: _Job) -> Future[Any]:
        self._waiting.append(job)
        self._schedule()
        return job.done

    def _schedule(self) -> None:
        is_full = self._has_ended or self._is_job_ahead or self._groups_ahead == _MAX_GROUPS_AHEAD
        if self._waiting and not is_full and not self._is_due:
            # Not at once: what arrives in the same turn of the event loop shares the group.
            self._is_due = True
            self._loop.call_soon(self._advance)

    def _advance(self) -> None:
        self._is_due = False
        try:
            self._hand_over()
        except BaseException as error:  # noqa: BLE001 - a defect; it is told with the next group, in its turn
            self._fail_by_defect(error)
        self._schedule()

    def _hand_over(self) -> None:
        """Give the thread the next group or job. One at a time, for others want their turn too."""
        if isinstance(job := self._waiting[0], _Job):
            if job.only_writes:
                if self._engine_is_ready():
                    self._waiting.popleft()
                    self._do(job)
                return
            self._waiting.popleft()
            self._is_job_ahead = True
            self._handed_over.put(job)
        elif self._engine_is_ready():
            group = self._gather()
            self._groups_ahead += 1
            self._write(group)
            self._handed_over.put(group)

    def _engine_is_ready(self) -> bool:
        """Tell whether the engine would take a write at once; if not, come back later.

        Why: a write that RocksDB stalls holds the GIL and would stop the event loop; this does not.
        """
        if self._failure is not None or self._store.stall_reason() is None:
            self._is_stalled = False
            return True
        if not self._is_stalled:
            self._is_stalled = True
            self._metrics.commit_stalls.inc()
        self._is_due = True
        self._loop.call_later(_STALL_POLL_S, self._advance)
        return False

    def _gather(self) -> _Group:
        """Return what is committed together: the oldest append, and what fits with it."""
        waiting = self._waiting
        appends: list[PendingAppend] = []
        size_bytes = batches = 0
        needs_sync = False
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
        return _Group(appends, size_bytes, needs_sync)

    def _write(self, group: _Group) -> None:
        group.failure = self._failure or self._lapse()
        if group.failure is not None:
            return
        hit(Failpoint.BEFORE_WRITE)
        begin_s = self._clock.monotonic_s()
        entries = [entry for append in group.appends for entry in append.entries]
        beside = _beside(group.appends)
        group.failure = self._attempt(lambda: self._store.write(entries, beside))
        group.write_s = self._clock.monotonic_s() - begin_s
        hit(Failpoint.AFTER_WRITE_BEFORE_SYNC)

    def _settle(self, group: _Group) -> None:
        """Publish a group's outcome, in order."""
        self._groups_ahead -= 1
        try:
            self._publish(group)
        except BaseException as error:  # noqa: BLE001 - a defect: what it left half told must stop the log
            self._on_failure(self._fail_by_defect(error))
        # Behind the answers, which were begun or woken before.
        self._schedule()
        if group.failure is None:
            self._loop.call_soon(self._note, group)

    def _publish(self, group: _Group) -> None:
        if group.failure is None:
            self._on_committed(group.appends)
            # Ordering: behind the sync. What is in the log stays there, but nobody is told so any more.
            group.failure = self._lapse()
        if group.failure is not None:
            self._on_failure(group.failure)
        for append in group.appends:
            append.failure = group.failure
            append.settled = True
            append.on_settled(append)
            for repetition in append.repetitions or ():
                repetition.failure = group.failure
                repetition.settled = True
                repetition.on_settled(repetition)

    def _job_ended(self) -> None:
        self._is_job_ahead = False
        self._schedule()

    # -- On the thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (item := self._next()) is not None:
            if isinstance(item, _Job):
                self._do(item)
                self._loop.call_soon_threadsafe(self._job_ended)
            else:
                self._sync(item)
                self._loop.call_soon_threadsafe(self._settle, item)
        self._sync_idle()

    def _next(self) -> _Group | _Job | None:
        """Wait for work; meanwhile sync what was written without a sync when it gets old."""
        while (since_s := self._unsynced_since_s) is not None:
            left_s = since_s + _IDLE_SYNC_S - self._clock.monotonic_s()
            if 0 < left_s:
                try:
                    return self._handed_over.get(timeout=left_s)
                except queue.Empty:
                    continue
            self._sync_idle()
        return self._handed_over.get()

    def _sync(self, group: _Group) -> None:
        """Sync a written group if it must be."""
        # The sync of the group before may have failed while this one was written.
        group.failure = group.failure or self._failure
        if group.failure is None:
            begin_s = self._clock.monotonic_s()
            if group.needs_sync:
                self._try_sync(group)
                group.sync_s = self._clock.monotonic_s() - begin_s
            elif self._unsynced_since_s is None:
                self._unsynced_since_s = begin_s
        hit(Failpoint.AFTER_SYNC_BEFORE_ACK)

    def _try_sync(self, group: _Group) -> None:
        self._unsynced_since_s = None
        group.failure = self._attempt(self._store.sync)

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
        except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the one who waits
            job.done.set_exception(error)
        else:
            job.done.set_result(result)

    def _change(self, call: Callable[[], Any], *, changes_store: bool) -> Any:
        """Run a job's call and return what it returns. If storage fails, the log stops."""
        # Also where the store itself would go on, after a defect: a job may rest on what was not written then.
        if self._failure is not None and changes_store:
            raise self._failure.with_effect(Effect.NONE)
        try:
            return call()
        except StorageFailedError as error:
            self._loop.call_soon_threadsafe(self._on_failure, self._fail(error))
            raise

    def _lapse(self) -> LogFailure | None:
        """Return why the log has stopped if the node may no longer speak for its channels."""
        if self.tenure is None or self.tenure.is_held():
            return None
        return self._fail(OwnershipLostError(self.tenure.node_id))

    def _attempt(self, change: Callable[[], None]) -> LogFailure | None:
        """Run a write or a sync; return why the log has stopped if it failed."""
        try:
            change()
        except StorageFailedError as error:
            return self._fail(error)
        except BaseException as error:  # noqa: BLE001 - a defect: whoever waits must not wait for ever
            return self._fail_by_defect(error)
        return None

    def _fail(self, error: LogFailure) -> LogFailure:
        """Remember the first failure: nothing is written after it."""
        if self._failure is None:
            self._failure = error
        return self._failure

    def _fail_by_defect(self, error: BaseException) -> LogFailure:
        report = {"message": "a defect stopped the log", "exception": error}
        self._loop.call_soon_threadsafe(self._loop.call_exception_handler, report)
        return self._fail(StorageFailedError(f"a group could not be committed: {error!r}"))

    # -- Metrics, on the event loop ------------------------------------------------------------------------

    def _note(self, group: _Group) -> None:
        """Keep a group's figures for the metrics: to tell them of one at a time costs four times as much."""
        oldest = group.appends[0]
        ack_s = self._clock.monotonic_s() - oldest.started_s
        if ack_s > self._slow_appends.threshold_s:
            vchannel_ids = [entry.vchannel_id for entry in oldest.entries]
            vchannel_ids += [batch.vchannel_id for batch in oldest.staged]
            self._slow_appends.note(
                ack_s, vchannel_ids, size_bytes=group.size_bytes, write_s=group.write_s, sync_s=group.sync_s
            )
        counts = [entry.count for append in group.appends for entry in append.entries]
        self._figures.append(_Figures(len(counts), sum(counts), group.size_bytes, group.write_s, group.sync_s, ack_s))
        if len(self._figures) == _MAX_FIGURES:
            self.refresh_metrics()

    def refresh_metrics(self) -> None:
        """Bring the metrics up to date."""
        figures, self._figures = self._figures, []
        metrics = self._metrics
        metrics.commit_groups.inc(len(figures))
        metrics.commit_batches.inc(sum(figure.batches for figure in figures))
        metrics.commit_bytes.inc(sum(figure.size_bytes for figure in figures))
        metrics.append_batches.inc(sum(figure.batches for figure in figures))
        metrics.append_bytes.inc(sum(figure.size_bytes for figure in figures))
        metrics.append_messages.inc(sum(figure.messages for figure in figures))
        for figure in figures:
            metrics.commit_group_batches.observe(figure.batches)
            metrics.write_seconds.observe(figure.write_s)
            metrics.ack_seconds.observe(figure.ack_s)
            if figure.sync_s is not None:
                metrics.sync_seconds.observe(figure.sync_s)


def _beside(appends: Sequence[PendingAppend]) -> Beside:
    """Return what is written beside the entries of a group."""
    # Later changes replace earlier ones.
    windows = dict(change for append in appends for change in append.windows)
    outcomes = dict(change for append in appends for change in append.outcomes)
    positions = dict(change for append in appends for change in append.positions)
    staged = [batch for append in appends for batch in append.staged]
    app_commits = dict(change for append in appends for change in append.app_commits)
    floors = dict(change for append in appends for change in append.floors)
    beside = Beside(windows, staged, outcomes, positions, app_commits, floors)
    return beside if any(beside) else NOTHING_BESIDE
