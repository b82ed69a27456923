"""The server's metrics, with the names that operators see.

Counters are incremented per group, batch or response, never per message.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from tidelog_server.runtime.clock import Clock

_SECONDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
)  # fmt: skip
# Fewer, because there is one histogram per method.
_CALL_SECONDS: Final = (0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0)
_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 4_096)
_LOOP_PERIOD_S: Final = 0.01


class LabelledGauge(Collector):
    """A gauge with one label. All values are replaced together, so deleted objects are not exported."""

    def __init__(self, name: str, text: str, label: str, registry: CollectorRegistry) -> None:
        self._name: Final = name
        self._text: Final = text
        self._label: Final = label
        self._values: Sequence[tuple[str, float]] = ()
        registry.register(self)

    def replace(self, values: Sequence[tuple[str, float]]) -> None:
        """Set all (label, value) pairs. The sequence is stored, not copied: do not modify it afterwards."""
        self._values = values

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauge without values, for its registration."""
        yield GaugeMetricFamily(self._name, self._text, labels=(self._label,))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauge with its values."""
        family = GaugeMetricFamily(self._name, self._text, labels=(self._label,))
        for label, value in self._values:
            family.add_metric((label,), value)
        yield family


class Metrics:
    """All metrics of one server, in its own registry, so that tests can run several servers in a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._counters()
        self._write_path()
        self._broadcasts()
        self._groups()
        self._mailboxes()
        self._state()
        self._security()
        self._calls()
        self._http()
        self._labelled()
        # CPU, memory and open files of the process, under the standard Prometheus names.
        ProcessCollector(registry=self.registry)
        self._max_loop_lag_s = 0.0

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format. Thread-safe; 10,000 labels take 0.1 s."""
        return generate_latest(self.registry)

    def leave_out_backups(self) -> None:
        """Remove the metric of the last backup, for a server that cannot make backups."""
        self.registry.unregister(self.backup_last_success_seconds)

    def record_loop_lag(self, lag_s: float) -> None:
        """Record the delay with which the event loop ran a timer."""
        self.loop_lag_seconds.observe(lag_s)
        if lag_s > self._max_loop_lag_s:
            self._max_loop_lag_s = lag_s
            self.loop_lag_max_seconds.set(lag_s)

    def _counters(self) -> None:
        self.append_messages = self._counter("append_messages", "Messages acknowledged.")
        self.append_bytes = self._counter("append_bytes", "Bytes of columns acknowledged.")
        self.append_batches = self._counter("append_batches", "Batches acknowledged.")
        self.append_duplicates = self._counter("append_duplicates", "Batches that were already in the log.")
        self.append_errors = self._counter("append_errors", "Batches that were refused or failed, by reason.", "reason")
        self.scan_messages = self._counter("scan_messages", "Messages sent to scanners.")
        self.scan_bytes = self._counter("scan_bytes", "Bytes of columns sent to scanners.")
        self.scan_responses = self._counter("scan_responses", "Responses sent to scanners.")
        self.scan_reads = self._counter("scan_reads", "Pages that scanners read, by source.", "source")
        self.evictions = self._counter(
            "evictions", "Table entries evicted because a principal exceeded its share, by table.", "table"
        )
        self.txns_ended = self._counter("txns_ended", "Staged transactions that ended, by outcome.", "how")
        self.retention_messages = self._counter("retention_messages", "Messages removed by retention.")
        self.retention_bytes = self._counter("retention_bytes", "Bytes of columns removed by retention.")
        self.retention_lost_messages = self._counter(
            "retention_lost_messages", "Messages that a hard cap removed before all groups had committed them."
        )
        self.retention_lost_bytes = self._counter("retention_lost_bytes", "Bytes of columns of such messages.")
        self.retention_ahead_seconds = self._labelled_gauge(
            "retention_ahead_seconds",
            "Seconds by which the newest message of a channel with retention by age lies ahead of the wall clock.",
            "channel",
        )
        self.log_lines_dropped = self._counter(
            "log_lines_dropped", "Lines of the log that were dropped because stderr was full or not read."
        )
        self.rpc_errors = self._counter("rpc_errors", "Calls that failed, by method and reason.", "method", "reason")

    def _broadcasts(self) -> None:
        self.broadcasts_accepted = self._counter("broadcasts_accepted", "Broadcasts accepted.")
        self.broadcasts_aborted = self._counter("broadcasts_aborted", "Broadcasts aborted.")
        self.broadcast_acks = self._counter("broadcast_acks", "Acknowledgements of broadcasts, one per vchannel.")
        self.broadcasts_open = self._gauge("broadcasts_open", "Unfinished broadcasts, by state.", "state")
        self.broadcast_tombstones = self._gauge("broadcast_tombstones", "Tombstones of finished broadcasts.")
        self.broadcast_oldest_seconds = self._gauge(
            "broadcast_oldest_open_seconds", "Age of the oldest open broadcast."
        )
        self.broadcast_waiters = self._gauge(
            "broadcast_waiters", "Calls that wait for resource keys or acknowledgements.", "kind"
        )

    def _groups(self) -> None:
        self.groups = self._gauge("groups", "Consumer groups.")
        self.group_positions = self._gauge("group_positions", "Vchannels that groups are subscribed to.")
        self.group_members = self._gauge("group_members", "Members of all groups.")
        self.group_commits = self._counter("group_commits", "Committed positions of groups.")
        self.group_members_expired = self._counter(
            "group_members_expired", "Members evicted because they stopped responding."
        )
        self.group_assignments = self._counter("group_assignments", "Assignments of vchannels to members.")

        self.groups_lag_messages = self._gauge("groups_lag_messages", "Messages that groups have not consumed.")
        self.groups_lag_max_seconds = self._gauge(
            "groups_lag_max_seconds", "Age of the oldest message that a group has not consumed."
        )

    def _mailboxes(self) -> None:
        self.mailbox_events = self._counter(
            "mailbox_events", "Messages of mailboxes to which something happened, by event.", "event"
        )
        self.mailbox_snapshots = self._counter("mailbox_snapshots", "Snapshots of mailboxes.")
        self.mailbox_copied_bytes = self._counter(
            "mailbox_copied_bytes", "Bytes of messages that were copied so that the log of a mailbox can be trimmed."
        )
        self.mailbox_trims = self._counter("mailbox_trims", "Trims of logs of mailboxes.")
        self.mailbox_held_messages = self._gauge(
            "mailbox_held_messages", "Messages in the open mailboxes of this node, by state.", "state"
        )
        self.mailbox_memory_bytes = self._gauge(
            "mailbox_memory_bytes",
            "Memory of the open mailboxes and the blobs of this node, about, without bodies.",
        )
        self.mailbox_held_bytes = self._gauge("mailbox_held_bytes", "Bytes of the bodies of these messages.")
        self.mailboxes_oldest_seconds = self._gauge(
            "mailboxes_oldest_available_seconds", "Age of the oldest message that can be fetched."
        )
        self.mailboxes_open = self._gauge("mailboxes_open", "Mailboxes of this node whose messages are loaded.")
        self.mailboxes_unloadable = self._gauge(
            "mailboxes_unloadable", "Mailboxes of this node that cannot be loaded because their logs are damaged."
        )
        self.mailbox_waiting_fetches = self._gauge("mailbox_waiting_fetches", "Fetches that wait for messages.")
        self.mailbox_recent_bytes = self._gauge(
            "mailbox_recent_bytes", "Memory of messages that were sent or read lately."
        )

    def _calls(self) -> None:
        self.calls_handled = self._counter(
            "grpc_server_handled", "Completed calls, by method and status code.", "method", "code"
        )
        self.calls_open = self._gauge("grpc_server_open_calls", "Calls in progress, by method.", "method")
        self.call_seconds = Histogram(
            "tidelog_grpc_server_handling_seconds", "Duration of unary calls.", ("method",), registry=self.registry,
            buckets=_CALL_SECONDS,
        )  # fmt: skip

    def _http(self) -> None:
        self.http_connections_ended = self._counter(
            "http_connections_ended", "Connections to the HTTP port that the server closed, by reason.", "reason"
        )
        self.http_requests_malformed = self._counter("http_requests_malformed", "Malformed requests on the HTTP port.")

    def _labelled(self) -> None:
        self.vchannel_first_tick = self._labelled_gauge(
            "vchannel_first_tick", "First tick that is not trimmed; needs metrics.per_vchannel.", "vchannel"
        )
        self.vchannel_tail_tick = self._labelled_gauge(
            "vchannel_tail_tick", "Tick of the newest durable message; needs metrics.per_vchannel.", "vchannel"
        )
        self.group_lag_messages = self._labelled_gauge(
            "group_lag_messages", "Messages that a group has not consumed; needs metrics.per_group.", "group"
        )
        self.group_lag_seconds = self._labelled_gauge(
            "group_lag_seconds",
            "Age of the oldest message that a group has not consumed; needs metrics.per_group.",
            "group",
        )
        self.mailbox_available_messages = self._labelled_gauge(
            "mailbox_available_messages", "Messages that can be fetched; needs metrics.per_mailbox.", "mailbox"
        )
        self.mailbox_leased_messages = self._labelled_gauge(
            "mailbox_leased_messages", "Messages under a lease; needs metrics.per_mailbox.", "mailbox"
        )
        self.mailbox_dead_messages = self._labelled_gauge(
            "mailbox_dead_messages", "Dead messages; needs metrics.per_mailbox.", "mailbox"
        )
        self.mailbox_oldest_seconds = self._labelled_gauge(
            "mailbox_oldest_available_seconds",
            "Age of the oldest message that can be fetched; needs metrics.per_mailbox.",
            "mailbox",
        )
        self.lease_remaining_seconds = self._labelled_gauge(
            "lease_remaining_seconds",
            "Seconds until the node's lease expires unless etcd renews it; cluster nodes only.",
            "node",
        )

    def _write_path(self) -> None:
        self.commit_groups = self._counter(
            "commit_groups", "Committed groups of batches: one write and at most one sync each."
        )
        self.commit_batches = self._counter("commit_batches", "Batches in committed groups.")
        self.commit_bytes = self._counter("commit_bytes", "Bytes of columns in committed groups.")
        self.commit_stalls = self._counter("commit_stalls", "Writes that were delayed by the engine's background work.")
        self.commit_group_batches = Histogram(
            "tidelog_commit_group_batches", "Batches in a group.", registry=self.registry, buckets=_COUNTS
        )
        self.write_seconds = self._histogram("write_seconds", "Duration of writing a group, without its sync.")
        self.sync_seconds = self._histogram("sync_seconds", "Duration of a sync.")
        self.ack_seconds = self._histogram("append_ack_seconds", "Time from the arrival of an append to its ack.")
        self.loop_lag_seconds = self._histogram(
            "event_loop_lag_seconds", "Delay with which the event loop ran a timer."
        )

    def _state(self) -> None:
        self.loop_lag_max_seconds = self._gauge("event_loop_lag_max_seconds", "Maximum event loop lag since the start.")
        self.in_flight_bytes = self._gauge("append_in_flight_bytes", "Bytes of columns not yet acknowledged.")
        self.channels = self._gauge("channels", "Channels of this node.")
        self.vchannels = self._gauge("vchannels", "Vchannels of this node.")
        self.scanners = self._gauge("scanners", "Open scans.")
        self.unread_bytes = self._gauge("unread_bytes", "Memory of scan responses that clients have not read.")
        self.scans_waiting = self._gauge("scans_waiting", "Scans that wait for memory of limits.max_unread_bytes.")
        self.open_streams = self._gauge("open_streams", "Open streaming calls.")
        self.producers = self._gauge("producers", "Idempotent producers in the producer table.")
        self.open_txns = self._gauge("open_txns", "Open transactions.")
        self.staged_bytes = self._gauge("staged_bytes", "Bytes of columns staged by open transactions.")
        self.tail_ring_bytes = self._gauge("tail_ring_bytes", "Memory used by the tail ring.")
        self.tick_lead_seconds = self._gauge(
            "tick_lead_seconds", "Seconds by which the oracle is ahead of the wall clock."
        )
        self.last_tick_seconds = self._gauge(
            "last_tick_seconds", "Time of the newest tick, in seconds since the epoch."
        )
        self.watermark_lag_seconds = self._gauge(
            "watermark_lag_seconds", "Seconds by which the oldest watermark is behind the clock."
        )
        self.disk_total_bytes = self._gauge("disk_total_bytes", "Size of the file system of the data folder.")
        self.backup_last_success_seconds = self._gauge(
            "backup_last_success_seconds",
            "Time of the last backup, in seconds since the epoch; 0 if there is no backup. Absent if the server cannot "
            "make backups: on cluster nodes, and with a log in memory.",
        )
        self.disk_free_bytes = self._gauge("disk_free_bytes", "Free bytes in the file system of the data folder.")
        self.ready = self._gauge("ready", "1 while the node accepts appends, as /readyz reports.")
        self.storage_failed = self._gauge("storage_failed", "1 after storage has failed and the log has stopped.")
        self.start_seconds = self._gauge("start_seconds", "Duration of the start.")
        self.build_info = self._gauge(
            "build_info", "Always 1; the labels are the versions in use.", "version", "python", "grpcio", "rocksdict"
        )
        self.engine = Gauge("tidelog_engine", "Figures of the storage engine.", ("figure",), registry=self.registry)

    def _security(self) -> None:
        self.insecure = self._gauge("insecure", "1 if the server accepts other machines without TLS or authentication.")
        self.tls_certificate_expires = self._gauge(
            "tls_certificate_expires_seconds", "Expiry of the server's certificate, in seconds since the epoch."
        )
        self.tls_reload_failures = self._gauge(
            "tls_reload_failures", "Failed reloads of the certificate files since the start."
        )
        self.auth_failures = self._counter("auth_failures", "Calls without valid credentials.")
        self.permission_denials = self._counter(
            "permission_denials", "Requests denied for lack of a grant, by verb.", "verb"
        )
        self.throttled = self._counter(
            "throttled", "Requests that were delayed or refused by a quota, by quota.", "reason"
        )
        self.audit_events = self._counter("audit_events", "Events written to the audit log.")
        self.audit_lost = self._counter("audit_lost", "Denials that the audit log records as a count only.")
        self.audit_failing = self._gauge("audit_failing", "1 while the audit log cannot be written.")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"tidelog_{name}_total", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"tidelog_{name}", text, labels, registry=self.registry)

    def _labelled_gauge(self, name: str, text: str, label: str) -> LabelledGauge:
        return LabelledGauge(f"tidelog_{name}", text, label, self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"tidelog_{name}", text, registry=self.registry, buckets=_SECONDS)


async def watch_event_loop(clock: Clock, metrics: Metrics) -> None:
    """Wake up every 10 ms and record the delay. Never returns."""
    while True:
        planned_s = clock.monotonic_s() + _LOOP_PERIOD_S
        await asyncio.sleep(_LOOP_PERIOD_S)
        metrics.record_loop_lag(max(0.0, clock.monotonic_s() - planned_s))
