"""The log layer of one node: builds what channel logs share, and dispatches committed groups to them."""

import asyncio
import shutil
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import structlog

from tidelog_server.core.errors import DataLossError, StorageFailedError
from tidelog_server.core.errors.cluster import LogFailure, OwnershipLostError
from tidelog_server.core.errors.storage import StorageUnreadableError
from tidelog_server.core.limits import Limits
from tidelog_server.core.ticks import physical_ms
from tidelog_server.log.append import Append
from tidelog_server.log.channel_log import Admission, ChannelLog, LogContext, VchannelLog
from tidelog_server.log.committer import GroupCommitter
from tidelog_server.log.lease_validity import LeaseValidity
from tidelog_server.log.oracle import Oracle
from tidelog_server.log.producers import ProducerTable
from tidelog_server.log.rows import WINDOWS
from tidelog_server.log.scan.read_budget import ReadBudget
from tidelog_server.log.slow_appends import SlowAppends
from tidelog_server.log.tail_ring import TailRing
from tidelog_server.log.watch_memory import WatchMemory
from tidelog_server.runtime.clock import Clock
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.storage.log_store import LogFigures, LogStore
from tidelog_server.storage.rows import Row, Table

_LOOK_AT_DISK_EVERY_S: Final = 1.0
_LOOK_AT_LOG_EVERY_S = 0.2
_SHORTEN_EVERY_S = 1.0
# In a stop an engine that has not confirmed a write for as long is silent; in a shorter one, after the least time.
_SILENT_IN_STOP_S: Final = 2.0
_LEAST_SILENT_S: Final = 1.0
_log = structlog.get_logger()


class LogNode:
    """The logs of all channels that this node owns."""

    def __init__(
        self,
        store: LogStore,
        limits: Limits,
        clock: Clock,
        metrics: Metrics,
        *,
        on_failure: Callable[[LogFailure], None],
    ) -> None:
        """Start the committer.

        Args:
            store: Store of the entries; the caller closes it after ``close``.
            limits: Limits.
            clock: Clock.
            metrics: Metrics to update.
            on_failure: Called once, when storage has failed or the node's lease has expired.
        """
        self.store = store
        self.metrics = metrics
        self.admission = Admission(limits)
        self.clock = clock
        self._is_disk_full = False
        self.has_lost_lease = False
        self._on_failure = on_failure
        # Set after trims and drops.
        self.reclaim_wanted = asyncio.Event()
        # Events set when the node begins to shut down or its log stops, to wake calls that wait for more work.
        self.watchers: set[asyncio.Event] = set()
        self._logs: dict[str, ChannelLog] = {}
        self._by_vchannel_id: dict[int, tuple[ChannelLog, VchannelLog]] = {}
        self.slow_appends = SlowAppends(clock, self.vchannel_name)
        self.committer = GroupCommitter(
            store, clock, metrics,
            slow_appends=self.slow_appends, on_committed=self._committed, on_failure=self._failed,
        )  # fmt: skip
        store.report_confirmations(metrics.log_confirm_seconds.observe)
        # Those in the metrics already.
        self._log_figures = LogFigures(0, 0, 0, 0, 0, 0, 0)
        self.shared: LogContext
        self.read_budget = ReadBudget(limits.max_unread_bytes)
        self.watch_memory = WatchMemory(lambda: self.admission.limits)
        # Called with durable changes of a table's rows, before the appends that made them are settled.
        self.on_rows: dict[Table[Any, Any], Callable[[Sequence[Row]], None]] = {}

    def hold_lease(self, lease: LeaseValidity) -> None:
        """Serve only while ``lease`` is held: this node is part of a cluster."""
        self.admission.lease = self.committer.lease = lease

    def open(self, oracle: Oracle) -> None:
        """Take ticks from ``oracle``, which is above every tick in the log."""
        ring = TailRing(self.admission.limits.tail_ring_bytes)
        producers = ProducerTable(self.store.rows(WINDOWS), self.metrics.evictions.labels("producers").inc)
        self.on_rows[WINDOWS] = producers.settled
        self.shared = LogContext(self.store, oracle, self.committer, ring, self.admission, self.clock, producers)

    def add(self, name: str, vchannel_ids: Sequence[int], created_tick: int) -> ChannelLog:
        """Open the log of a channel whose vchannels exist in the store."""
        assert name not in self._logs
        log = ChannelLog(self.shared, name, created_tick)
        self._logs[name] = log
        self.extend(log, vchannel_ids)
        return log

    def extend(self, log: ChannelLog, vchannel_ids: Sequence[int]) -> None:
        """Add vchannels that exist in the store to the log of a channel. They accept appends at once.

        INV-2 holds for them: no message gets a tick at or below a watermark that was reported before.
        """
        for vchannel in log.extend(vchannel_ids):
            # A vchannel belongs to one open channel: its entries are settled there.
            assert vchannel.vchannel_id not in self._by_vchannel_id
            self._by_vchannel_id[vchannel.vchannel_id] = (log, vchannel)
        self._count()

    async def remove(self, log: ChannelLog) -> None:
        """Close the log of a channel; its entries stay in the store."""
        await log.close()
        del self._logs[log.name]
        for vchannel in log.vchannels:
            del self._by_vchannel_id[vchannel.vchannel_id]
        self._count()

    def vchannel_name(self, vchannel_id: int) -> str | None:
        """Return the name of an open vchannel; None if no open vchannel has this id."""
        found = self._by_vchannel_id.get(vchannel_id)
        return found and found[1].name

    def watches(self, silent_s: float) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Return, by name, what watches the disk and the engine of this store; see below. None of it ends."""
        watches: dict[str, Coroutine[Any, Any, None]] = {}
        if self.store.folder is not None:
            watches["disk"] = self.watch_disk()
        if self.store.write_traits.always_syncs:
            watches["log"] = self.watch_log(silent_s)
            watches["snapshots"] = self.shorten_log()
        return watches

    async def watch_disk(self) -> None:
        """Check the free space of the data folder's disk every second. Only with a folder. Never ends."""
        assert self.store.folder is not None
        while True:
            usage = await asyncio.to_thread(shutil.disk_usage, self.store.folder)
            self.metrics.disk_total_bytes.set(usage.total)
            self.note_free_disk(usage.free)
            await asyncio.sleep(_LOOK_AT_DISK_EVERY_S)

    async def watch_log(self, silent_s: float) -> None:
        """Refuse changes while a write waits longer than ``silent_s`` for the engine of the log. Never ends."""
        while True:
            waits_s = self.store.unconfirmed_s()
            was_silent, is_silent = bool(self.admission.silent_s), waits_s > silent_s
            self.admission.silent_s = waits_s if is_silent else 0.0
            if was_silent != is_silent:
                _log.warning("log_silent" if is_silent else "log_answers_again", unconfirmed_s=round(waits_s, 1))
            await asyncio.sleep(_LOOK_AT_LOG_EVERY_S)

    async def give_up_silent(self, calls_s: float) -> None:
        """Give the writes up that wait for the engine of the log, once one has waited for a silent one in a stop.

        Not in the first ``calls_s`` seconds, in which calls wait for acknowledgements, unless the lease is lost: then
        nothing is acknowledged.
        """
        silent_s = min(_SILENT_IN_STOP_S, max(calls_s, _LEAST_SILENT_S))
        await asyncio.sleep(silent_s if self.has_lost_lease else calls_s)
        while True:
            waits_s = self.store.unconfirmed_s()
            if silent_s <= waits_s:
                break
            await asyncio.sleep(_LOOK_AT_LOG_EVERY_S)
        _log.warning("log_given_up", unconfirmed_s=round(waits_s, 1))
        if self.has_lost_lease and self.admission.lease is not None:
            self.store.give_up(OwnershipLostError(self.admission.lease.node_id))
        else:
            cause = f"the engine of the log had not confirmed a write for {waits_s:.1f} s when the server stopped"
            self.store.give_up(StorageFailedError(cause))

    async def shorten_log(self) -> None:
        """Have snapshots made, and the log shortened, when that is due. Never ends.

        On a thread of its own: a thread that reads from an engine has a connection of its own.
        """
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, thread_name_prefix="tidelog-snapshot")
        try:
            while True:
                await asyncio.sleep(_SHORTEN_EVERY_S)
                changes = self.store.shorten()
                try:
                    while (change := await loop.run_in_executor(thread, next, changes, None)) is not None:
                        await self.committer.run(change)
                except (StorageFailedError, OwnershipLostError) as error:
                    self._failed(error)
                except (DataLossError, StorageUnreadableError) as error:
                    _log.error("log_not_shortened", problem=error.message)
        finally:
            thread.shutdown(wait=False)

    def note_free_disk(self, free_bytes: int) -> None:
        """Update the free disk space, which stops or resumes appends."""
        self.admission.free_disk_bytes = free_bytes
        if self.admission.is_disk_full != self._is_disk_full:
            self._is_disk_full = not self._is_disk_full
            _log.warning("disk_nearly_full" if self._is_disk_full else "disk_has_room_again", free_bytes=free_bytes)

    async def reclaim(self) -> None:
        """Reclaim disk space after trims and drops, one run at a time. Never returns."""
        while True:
            await self.reclaim_wanted.wait()
            self.reclaim_wanted.clear()
            await asyncio.to_thread(self.store.reclaim)
            _log.debug("disk_reclaimed")

    def refresh_metrics(self) -> None:
        """Update the metrics that are not updated continuously."""
        self.committer.figures.refresh_metrics()
        metrics = self.metrics
        metrics.in_flight_bytes.set(self.admission.in_flight_bytes)
        metrics.unread_bytes.set(self.read_budget.used_bytes)
        metrics.scans_waiting.set(self.read_budget.waiting)
        metrics.producers.set(len(self.shared.producers))
        metrics.tail_ring_bytes.set(self.shared.ring.size_bytes)
        metrics.tick_lead_seconds.set(self.shared.oracle.lead_s())
        metrics.last_tick_timestamp_seconds.set(physical_ms(self.shared.oracle.last) / 1_000)
        metrics.watermark_lag_seconds.set(self._watermark_lag_s())
        metrics.storage_failed.set(0 if self.admission.failure is None else 1)
        if self.admission.free_disk_bytes is not None:
            metrics.disk_free_bytes.set(self.admission.free_disk_bytes)
        metrics.engine.replace(self.store.metrics())
        if (figures := self.store.log_figures()) is not None:
            self._refresh_log_metrics(figures)

    def _refresh_log_metrics(self, figures: LogFigures) -> None:
        metrics, before, self._log_figures = self.metrics, self._log_figures, figures
        metrics.log_term.set(figures.term)
        metrics.log_records.set(figures.records)
        metrics.log_appended_bytes.inc(figures.appended_bytes - before.appended_bytes)
        metrics.log_unconfirmed_bytes.set(figures.unconfirmed_bytes)
        metrics.log_unconfirmed_seconds.set(self.store.unconfirmed_s())
        metrics.log_foreign_records.inc(figures.foreign - before.foreign)
        metrics.log_fenced_records.inc(figures.fenced - before.fenced)
        metrics.log_views_rebuilt.inc(figures.views_rebuilt - before.views_rebuilt)

    def begin_shutdown(self) -> None:
        """Accept no new work from now on, and wake every scan and stream to notice."""
        self.admission.is_shutting_down = True
        for watcher in self.watchers:
            watcher.set()
        for log in self._logs.values():
            log.wake_all()

    def _committed(self, appends: Sequence[Append]) -> None:
        """Make a committed group readable. Ordering: before any of its acks, so an acked message can be read."""
        touched: set[VchannelLog] = set()
        for append in appends:
            for entry in append.entries:
                log, vchannel = self._by_vchannel_id[entry.vchannel_id]
                log.settle(vchannel, entry)
                touched.add(vchannel)
            for batch in append.staged:
                self.admission.note_settled(len(batch.columns))
                hit(Failpoint.TXN_STAGED)
            if append.rows:
                self._rows_committed(append.rows)
        self.read_budget.turns.note_commit()
        for vchannel in touched:
            if vchannel.followers:
                vchannel.wake_followers()

    def _rows_committed(self, rows: Sequence[Row]) -> None:
        changed: dict[Callable[[Sequence[Row]], None], list[Row]] = {}
        for row in rows:
            if (on_rows := self.on_rows.get(row.table)) is not None:
                changed.setdefault(on_rows, []).append(row)
        for on_rows, of_table in changed.items():
            on_rows(of_table)

    def hand_over(self) -> None:
        """Note that another process may own the log from now on, which is no failure. Nothing is in flight."""
        self.has_lost_lease = True

    def lose_lease(self, error: OwnershipLostError) -> None:
        """Stop serving: the lease is lost, or with the log in an engine of no use. Nothing after ``hand_over``."""
        if self.has_lost_lease:
            return
        self.has_lost_lease = True
        assert self.admission.lease is not None
        self.admission.lease.end()
        lease = self.admission.lease
        _log.warning("lease_lost", node=lease.node_id, term=lease.term, reason=error.message)
        self._fail_logs()
        self._on_failure(error)

    def _failed(self, error: LogFailure) -> None:
        if isinstance(error, OwnershipLostError) and self.admission.lease is not None:
            self.lose_lease(error)
            return
        if self.admission.failure is not None:
            return
        # The appends in flight stay in flight: no watermark passes them, so readers never see what may not be durable.
        self.admission.failure = error
        self.metrics.storage_failed.set(1)
        if isinstance(error, OwnershipLostError):
            _log.critical("log_claimed" if error.is_claimed else "log_lost", problem=error.message)
        else:
            _log.critical("storage_failed", cause=error.values["cause"])
        self._fail_logs()
        self._on_failure(error)

    def _fail_logs(self) -> None:
        """Wake everything that waits for appends, or for more work."""
        for watcher in self.watchers:
            watcher.set()
        for log in self._logs.values():
            log.fail()

    def _watermark_lag_s(self) -> float:
        """Return the age of the oldest append in flight; 0 without one, because then the watermark is current."""
        ticks = (tick for log in self._logs.values() if (tick := log.oldest_in_flight()) is not None)
        oldest = min(ticks, default=None)
        return 0.0 if oldest is None else max(0, self.clock.wall_ms() - physical_ms(oldest)) / 1_000

    def vchannel_ticks(self) -> list[tuple[str, int, int]]:
        """Return the name, the first tick that was not trimmed and the last durable tick of each vchannel."""
        return [(each.name, each.trim_tick, each.durable_tick) for _, each in self._by_vchannel_id.values()]

    def _count(self) -> None:
        self.metrics.channels.set(len(self._logs))
        self.metrics.vchannels.set(len(self._by_vchannel_id))
