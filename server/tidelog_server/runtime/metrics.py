"""The server's metrics, by the names that operators see.

Counters are bumped once a group, batch or response, never once a message.
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

_SECONDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
)  # fmt: skip
_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 4_096)


class Metrics:
    """All metrics of one server, in a registry of its own so that tests may run several servers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._counters()
        self._write_path()
        self._broadcasts()
        self._state()
        self._max_loop_lag_s = 0.0

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self.registry)

    def record_loop_lag(self, lag_s: float) -> None:
        """Record how much too late the event loop ran a timer."""
        self.loop_lag_seconds.observe(lag_s)
        if lag_s > self._max_loop_lag_s:
            self._max_loop_lag_s = lag_s
            self.loop_lag_max_seconds.set(lag_s)

    def _counters(self) -> None:
        self.append_messages = self._counter("append_messages", "Messages acknowledged.")
        self.append_bytes = self._counter("append_bytes", "Bytes of columns acknowledged.")
        self.append_batches = self._counter("append_batches", "Batches acknowledged.")
        self.append_duplicates = self._counter("append_duplicates", "Batches that repeated one in the log.")
        self.append_errors = self._counter("append_errors", "Batches refused or failed.", "reason")
        self.scan_messages = self._counter("scan_messages", "Messages sent to scanners.")
        self.scan_bytes = self._counter("scan_bytes", "Bytes of columns sent to scanners.")
        self.scan_responses = self._counter("scan_responses", "Responses sent to scanners.")
        self.scan_reads = self._counter("scan_reads", "Pages that scanners read, by where from.", "source")
        self.txns_ended = self._counter("txns_ended", "Begun transactions that ended, by how.", "how")
        self.rpc_errors = self._counter("rpc_errors", "Calls that ended with an error.", "method", "reason")

    def _broadcasts(self) -> None:
        self.broadcasts_accepted = self._counter("broadcasts_accepted", "Broadcasts accepted.")
        self.broadcasts_aborted = self._counter("broadcasts_aborted", "Broadcasts aborted.")
        self.broadcast_acks = self._counter("broadcast_acks", "Vchannels that acknowledged a broadcast.")
        self.broadcasts_open = self._gauge("broadcasts_open", "Broadcasts not yet finished.", "state")
        self.broadcast_tombstones = self._gauge("broadcast_tombstones", "Finished broadcasts that are remembered.")
        self.broadcast_oldest_seconds = self._gauge(
            "broadcast_oldest_open_seconds", "Age of the oldest open broadcast."
        )
        self.broadcast_waiters = self._gauge("broadcast_waiters", "Calls that wait for keys or acks.", "kind")

    def _write_path(self) -> None:
        self.commit_groups = self._counter("commit_groups", "Groups committed: one write and at most one sync each.")
        self.commit_batches = self._counter("commit_batches", "Batches in committed groups.")
        self.commit_bytes = self._counter("commit_bytes", "Bytes of columns in committed groups.")
        self.commit_stalls = self._counter("commit_stalls", "Times a write waited for the engine's background work.")
        self.commit_group_batches = Histogram(
            "tidelog_commit_group_batches", "Batches in a group.", registry=self.registry, buckets=_COUNTS
        )
        self.write_seconds = self._histogram("write_seconds", "Time of one write of a group, without its sync.")
        self.sync_seconds = self._histogram("sync_seconds", "Time of one sync.")
        self.ack_seconds = self._histogram("append_ack_seconds", "Time from an append's arrival to its ack.")
        self.loop_lag_seconds = self._histogram("event_loop_lag_seconds", "How late the event loop ran a timer.")

    def _state(self) -> None:
        self.loop_lag_max_seconds = self._gauge("event_loop_lag_max_seconds", "The greatest such lag so far.")
        self.in_flight_bytes = self._gauge("append_in_flight_bytes", "Bytes of columns not yet acknowledged.")
        self.channels = self._gauge("channels", "Channels of this node.")
        self.vchannels = self._gauge("vchannels", "Vchannels of this node.")
        self.scanners = self._gauge("scanners", "Open scans.")
        self.producers = self._gauge("producers", "Idempotent producers that are remembered.")
        self.open_txns = self._gauge("open_txns", "Begun transactions that are open.")
        self.staged_bytes = self._gauge("staged_bytes", "Bytes of columns that open transactions have staged.")
        self.tail_ring_bytes = self._gauge("tail_ring_bytes", "Memory that the tail ring takes.")
        self.tick_lead_seconds = self._gauge("tick_lead_seconds", "How far the oracle is ahead of the wall clock.")
        self.disk_free_bytes = self._gauge("disk_free_bytes", "Free bytes where the data folder is.")
        self.storage_failed = self._gauge("storage_failed", "1 once storage has failed and the log has stopped.")
        self.start_seconds = self._gauge("start_seconds", "How long this start took.")
        self.engine = Gauge("tidelog_engine", "Figures of the storage engine.", ("figure",), registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"tidelog_{name}_total", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"tidelog_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"tidelog_{name}", text, registry=self.registry, buckets=_SECONDS)
