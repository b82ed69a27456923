"""The log layer of one node: builds what channel logs share, and dispatches committed groups to them."""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from tidelog_server.core.errors.cluster import LogFailure, OwnershipLostError
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
from tidelog_server.storage.log_store import LogStore
from tidelog_server.storage.rows import Row, Table

_LOOK_AT_DISK_EVERY_S: Final = 1.0
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
        folder: Path | None,
        on_failure: Callable[[LogFailure], None],
    ) -> None:
        """Start the committer.

        Args:
            store: Store of the entries; the caller closes it after ``close``.
            limits: Limits.
            clock: Clock.
            metrics: Metrics to update.
            folder: Data folder whose disk is watched; None if nothing is on disk.
            on_failure: Called once, when storage has failed or the node's lease has expired.
        """
        self.store = store
        self.metrics = metrics
        self.admission = Admission(limits)
        self.clock = clock
        self.folder = folder
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
        # A vchannel belongs to one open channel: its entries are settled there.
        assert name not in self._logs
        assert self._by_vchannel_id.keys().isdisjoint(vchannel_ids)
        log = ChannelLog(self.shared, name, vchannel_ids, created_tick)
        self._logs[name] = log
        for vchannel in log.vchannels:
            self._by_vchannel_id[vchannel.vchannel_id] = (log, vchannel)
        self._count()
        return log

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

    async def watch_disk(self) -> None:
        """Check the free space of the data folder's disk every second. Only with a folder. Never ends."""
        assert self.folder is not None
        while True:
            usage = await asyncio.to_thread(shutil.disk_usage, self.folder)
            self.metrics.disk_total_bytes.set(usage.total)
            self.note_free_disk(usage.free)
            await asyncio.sleep(_LOOK_AT_DISK_EVERY_S)

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
        metrics.last_tick_seconds.set(physical_ms(self.shared.oracle.last) / 1_000)
        metrics.watermark_lag_seconds.set(self._watermark_lag_s())
        metrics.storage_failed.set(0 if self.admission.failure is None else 1)
        if self.admission.free_disk_bytes is not None:
            metrics.disk_free_bytes.set(self.admission.free_disk_bytes)
        for figure, value in self.store.metrics().items():
            metrics.engine.labels(figure).set(value)

    def begin_shutdown(self) -> None:
        """Accept no new work from now on, and wake every scan and stream to notice."""
        self.admission.is_shutting_down = True
        for watcher in self.watchers:
            watcher.set()
        for log in self._logs.values():
            log.wake_all()

    async def close(self) -> None:
        """Drain and sync everything that was submitted, and end the committer's thread."""
        await self.committer.close()

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

    def lose_lease(self, error: OwnershipLostError) -> None:
        """Stop serving: the lease is lost."""
        if self.has_lost_lease:
            return
        self.has_lost_lease = True
        assert self.admission.lease is not None
        self.admission.lease.end()
        _log.warning("lease_lost", node=error.values["node_id"], term=self.admission.lease.term)
        self._fail_logs()
        self._on_failure(error)

    def _failed(self, error: LogFailure) -> None:
        if isinstance(error, OwnershipLostError):
            self.lose_lease(error)
            return
        if self.admission.failure is not None:
            return
        # The appends in flight stay in flight: no watermark passes them, so readers never see what may not be durable.
        self.admission.failure = error
        self.metrics.storage_failed.set(1)
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
