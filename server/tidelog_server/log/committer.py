"""Group commit for all channels of the node: one write and one sync for many appends.

Two threads take turns, hand over hand: while one syncs a group, the other writes the next one, so that the disk and
the CPU work at once. All appends that arrive while a group is written or synced go into the next one. Other changes
of the store (trims, drops, metadata) take both turns, between groups.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from tidelog_server.core.entries import NewEntry
from tidelog_server.core.errors import StorageFailedError, TidelogServerError
from tidelog_server.core.limits import MAX_GROUP_BATCHES, MAX_GROUP_BYTES
from tidelog_server.runtime.clock import Clock
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.storage.log_store import LogStore

Result = TypeVar("Result")

_THREADS: Final = 2
# Entries that need no sync are synced this long after they were written, at the latest.
_IDLE_SYNC_S: Final = 1.0
_STALL_POLL_S: Final = 0.002
# Of so many groups at most are the figures kept before the metrics are brought up to date: a millisecond of work.
_MAX_FIGURES: Final = 64


Settled = Callable[["PendingAppend"], None]
"""Called once with an append whose outcome is known, on the event loop."""


@dataclass(slots=True, eq=False)
class PendingAppend:
    """An append between its tick and its acknowledgement. Changed by the event loop only.

    Attributes:
        entry: What is written.
        needs_sync: Whether the acknowledgement waits for a sync.
        on_settled: Called once on the event loop, after ``settled`` is set.
        started_s: When it was submitted, monotonic.
        settled: True once the outcome is known.
        failure: Why it was not acknowledged, if so.
    """

    entry: NewEntry
    needs_sync: bool
    on_settled: Settled
    started_s: float
    settled: bool = False
    failure: StorageFailedError | None = None


@dataclass(slots=True)
class _Job:
    """Work for a writing thread other than an append."""

    call: Callable[[], Any]
    done: Future[Any]


@dataclass(slots=True)
class _Group:
    """Appends that were committed together, on their way back to the event loop."""

    appends: list[PendingAppend]
    size_bytes: int
    write_s: float
    sync_s: float | None
    failure: StorageFailedError | None


class _Figures(NamedTuple):
    """What the metrics want to know of a committed group; ``sync_s`` is None if it was not synced."""

    batches: int
    messages: int
    size_bytes: int
    write_s: float
    sync_s: float | None
    ack_s: float


class _WriterExecutor(Executor):
    """Lets the metadata store run its calls on a writing thread."""

    def __init__(self, committer: "GroupCommitter") -> None:
        self._committer = committer

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._committer.submit_job(lambda: fn(*args, **kwargs))


class GroupCommitter:
    """The writing threads of a store.

    Invariant: appends are written, synced and settled in the order in which they were submitted. A thread asks for
    the sync turn while it holds the write turn, so groups sync in the order in which they were written.

    The queue needs no bound of its own: the log bounds the bytes in flight before it submits.
    """

    def __init__(
        self,
        store: LogStore,
        clock: Clock,
        metrics: Metrics,
        on_committed: Callable[[Sequence[PendingAppend]], None],
        on_failure: Callable[[StorageFailedError], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._on_committed = on_committed
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        # None asks the threads to end.
        self._queue: queue.SimpleQueue[PendingAppend | _Job | None] = queue.SimpleQueue()
        self._write_turn = threading.Lock()
        self._sync_turn = threading.Lock()
        # Guarded by the write turn: what was taken from the queue but did not fit into a group.
        self._carried: PendingAppend | _Job | None = None
        # Guarded by the sync turn.
        self._unsynced_since_s: float | None = None
        # Set once, by a thread that holds a turn; read by all.
        self._failure: StorageFailedError | None = None
        # Of groups that the metrics do not know of yet.
        self._figures: list[_Figures] = []
        self._threads = [
            threading.Thread(target=self._run, name=f"tidelog-writer-{number}", daemon=True)
            for number in range(_THREADS)
        ]
        for thread in self._threads:
            thread.start()
        self.executor: Executor = _WriterExecutor(self)

    def submit(self, append: PendingAppend) -> None:
        """Queue an append. It is settled later, on the event loop, whatever happens."""
        self._queue.put(append)

    def submit_job(self, call: Callable[[], Any]) -> Future[Any]:
        """Run ``call`` on a writing thread, after everything submitted before and with nothing else beside it."""
        done: Future[Any] = Future()
        self._queue.put(_Job(call, done))
        return done

    async def run(self, call: Callable[[], Result]) -> Result:
        """Run ``call`` as a job and return what it returns. Cancelling does not stop a started call."""
        return await asyncio.wrap_future(self.submit_job(call))

    async def close(self) -> None:
        """Finish everything submitted, sync, and end the threads. Does not close the store."""
        self._queue.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _run(self) -> None:
        try:
            self._take_turns()
        except BaseException as error:
            # A defect: whoever waits must not wait for ever.
            failure = self._fail(StorageFailedError(f"a writing thread failed: {error!r}"))
            self._loop.call_soon_threadsafe(self._on_failure, failure)
            raise

    def _take_turns(self) -> None:
        while True:
            with self._write_turn:
                item = self._next()
                if item is None:
                    # For the other thread.
                    self._queue.put(None)
                    break
                if isinstance(item, _Job):
                    with self._sync_turn:
                        self._do(item)
                    continue
                group = self._write(self._gather(item))
                # Ordering: asked for before the write turn is given away, see the invariant.
                self._sync_turn.acquire()
            try:
                self._sync(group)
            finally:
                self._sync_turn.release()
        with self._sync_turn:
            self._sync_idle()

    def _next(self) -> PendingAppend | _Job | None:
        """Wait for work; meanwhile sync what was written without a sync when it gets old."""
        carried, self._carried = self._carried, None
        if carried is not None:
            return carried
        while True:
            try:
                # Always with an end: the other thread may only now be noting that its group needs a sync later.
                return self._queue.get(timeout=_IDLE_SYNC_S)
            except queue.Empty:
                with self._sync_turn:
                    self._sync_idle()

    def _gather(self, first: PendingAppend) -> list[PendingAppend]:
        """Return ``first`` and what is committed with it; what does not fit is carried over."""
        appends = [first]
        size_bytes = len(first.entry.columns)
        while len(appends) < MAX_GROUP_BATCHES:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            if item is None:
                self._queue.put(None)
                break
            if isinstance(item, _Job) or size_bytes + len(item.entry.columns) > MAX_GROUP_BYTES:
                self._carried = item
                break
            appends.append(item)
            size_bytes += len(item.entry.columns)
        return appends

    def _write(self, appends: list[PendingAppend]) -> _Group:
        size_bytes = sum(len(append.entry.columns) for append in appends)
        group = _Group(appends, size_bytes, 0.0, None, self._failure)
        if group.failure is not None:
            return group
        self._wait_for_engine()
        hit(Failpoint.BEFORE_WRITE)
        begin_s = self._clock.monotonic_s()
        try:
            self._store.write([append.entry for append in appends])
        except StorageFailedError as error:
            group.failure = self._fail(error)
        group.write_s = self._clock.monotonic_s() - begin_s
        hit(Failpoint.AFTER_WRITE_BEFORE_SYNC)
        return group

    def _sync(self, group: _Group) -> None:
        """Sync a written group if it must be, and send it back to the event loop."""
        # The sync of the group before may have failed while this one was written.
        group.failure = group.failure or self._failure
        if group.failure is None:
            begin_s = self._clock.monotonic_s()
            if any(append.needs_sync for append in group.appends):
                self._try_sync(group)
                group.sync_s = self._clock.monotonic_s() - begin_s
            elif self._unsynced_since_s is None:
                self._unsynced_since_s = begin_s
            elif begin_s - self._unsynced_since_s > _IDLE_SYNC_S:
                self._try_sync(group)
        hit(Failpoint.AFTER_SYNC_BEFORE_ACK)
        self._loop.call_soon_threadsafe(self._settle, group)

    def _try_sync(self, group: _Group) -> None:
        self._unsynced_since_s = None
        try:
            self._store.sync()
        except StorageFailedError as error:
            group.failure = self._fail(error)

    def _wait_for_engine(self) -> None:
        # Why here: a write that RocksDB stalls holds the GIL and would stop the event loop; this wait does not.
        if self._store.stall_reason() is None:
            return
        self._metrics.commit_stalls.inc()
        while self._store.stall_reason() is not None:
            time.sleep(_STALL_POLL_S)  # noqa: TID251 - the writing thread has nothing else to do

    def _sync_idle(self) -> None:
        if self._unsynced_since_s is None or self._failure is not None:
            return
        self._unsynced_since_s = None
        try:
            self._store.sync()
        except StorageFailedError as error:
            failure = self._fail(error)
            self._loop.call_soon_threadsafe(self._on_failure, failure)

    def _do(self, job: _Job) -> None:
        if not job.done.set_running_or_notify_cancel():
            return
        try:
            result = job.call()
        except TidelogServerError as error:
            if isinstance(error, StorageFailedError):
                self._loop.call_soon_threadsafe(self._on_failure, self._fail(error))
            job.done.set_exception(error)
        except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the one who waits
            job.done.set_exception(error)
        else:
            job.done.set_result(result)

    def _fail(self, error: StorageFailedError) -> StorageFailedError:
        """Remember the first failure: nothing is written after it."""
        if self._failure is None:
            self._failure = error
        return self._failure

    def _settle(self, group: _Group) -> None:
        """Publish a group's outcome on the event loop, in order."""
        if group.failure is None:
            self._on_committed(group.appends)
        else:
            self._on_failure(group.failure)
        for append in group.appends:
            append.failure = group.failure
            append.settled = True
            append.on_settled(append)
        if group.failure is None:
            self._note(group)

    def _note(self, group: _Group) -> None:
        """Keep a group's figures for the metrics, which learn of many at once: here they would be in the way."""
        ack_s = self._clock.monotonic_s() - group.appends[0].started_s
        messages = sum(append.entry.count for append in group.appends)
        self._figures.append(
            _Figures(len(group.appends), messages, group.size_bytes, group.write_s, group.sync_s, ack_s)
        )
        if len(self._figures) == _MAX_FIGURES:
            # Behind the answers, which were woken before.
            self._loop.call_soon(self.refresh_metrics)

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
