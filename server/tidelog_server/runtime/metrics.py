"""The server's metrics, by the names that operators see.

Counters are bumped once a group, batch or response, never once a message.
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest

from tidelog_server.runtime.labelled_gauge import LabelledGauge

_SECONDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
)  # fmt: skip
# Fewer, for there is one histogram for each method.
_CALL_SECONDS: Final = (0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0)
_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 4_096)


class Metrics:
    """All metrics of one server, in a registry of its own so that tests may run several servers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._counters()
        self._write_path()
        self._broadcasts()
        self._groups()
        self._state()
        self._security()
        self._calls()
        self._http()
        self._labelled()
        # CPU, memory and open files of the process, by the names that all programs have for them.
        ProcessCollector(registry=self.registry)
        self._max_loop_lag_s = 0.0

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format. Any thread may; 10,000 labels take 0.1 s."""
        return generate_latest(self.registry)

    def leave_out_backups(self) -> None:
        """Export no time of the last backup: this server cannot make one."""
        self.registry.unregister(self.backup_last_success_seconds)

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
        self.evictions = self._counter(
            "evictions", "Entries of tables that were evicted because the principal has too many.", "table"
        )
        self.txns_ended = self._counter("txns_ended", "Begun transactions that ended, by how.", "how")
        self.retention_messages = self._counter("retention_messages", "Messages removed by retention.")
        self.retention_bytes = self._counter("retention_bytes", "Bytes of columns removed by retention.")
        self.retention_lost_messages = self._counter(
            "retention_lost_messages", "Messages that a hard cap removed before groups had committed them."
        )
        self.retention_lost_bytes = self._counter("retention_lost_bytes", "Bytes of their columns.")
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

    def _groups(self) -> None:
        self.groups = self._gauge("groups", "Consumer groups.")
        self.group_positions = self._gauge("group_positions", "Vchannels that groups are subscribed to.")
        self.group_members = self._gauge("group_members", "Members of all groups.")
        self.group_commits = self._counter("group_commits", "Positions of groups that were committed.")
        self.group_members_expired = self._counter("group_members_expired", "Members that were gone without leaving.")
        self.group_assignments = self._counter("group_assignments", "Vchannels that members were given.")

        self.groups_lag_messages = self._gauge("groups_lag_messages", "Messages that groups have not consumed.")
        self.groups_lag_max_seconds = self._gauge(
            "groups_lag_max_seconds", "Age of the oldest message that some group has not consumed."
        )

    def _calls(self) -> None:
        self.calls_handled = self._counter("grpc_server_handled", "Calls that ended, by how.", "method", "code")
        self.calls_open = self._gauge("grpc_server_open_calls", "Calls that are under way.", "method")
        self.call_seconds = Histogram(
            "tidelog_grpc_server_handling_seconds", "Time of one unary call.", ("method",), registry=self.registry,
            buckets=_CALL_SECONDS,
        )  # fmt: skip

    def _http(self) -> None:
        self.http_connections_ended = self._counter(
            "http_connections_ended", "Connections of the HTTP port that the server ended, by why.", "reason"
        )
        self.http_requests_malformed = self._counter("http_requests_malformed", "Malformed requests on the HTTP port.")

    def _labelled(self) -> None:
        self.vchannel_first_tick = self._labelled_gauge(
            "vchannel_first_tick", "First tick that was not trimmed; only with metrics.per_vchannel.", "vchannel"
        )
        self.vchannel_tail_tick = self._labelled_gauge(
            "vchannel_tail_tick", "Tick of the newest durable message; only with metrics.per_vchannel.", "vchannel"
        )
        self.group_lag_messages = self._labelled_gauge(
            "group_lag_messages", "Messages that a group has not consumed; only with metrics.per_group.", "group"
        )
        self.group_lag_seconds = self._labelled_gauge(
            "group_lag_seconds", "Age of the oldest of them; only with metrics.per_group.", "group"
        )
        self.lease_remaining_seconds = self._labelled_gauge(
            "lease_remaining_seconds", "How long the node may go on without a word from etcd; only with others.", "node"
        )

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
        self.unread_bytes = self._gauge("unread_bytes", "Memory of responses that clients of scans have not taken.")
        self.scans_waiting = self._gauge("scans_waiting", "Scans that wait for such memory.")
        self.open_streams = self._gauge("open_streams", "Calls that are streams.")
        self.producers = self._gauge("producers", "Idempotent producers that are remembered.")
        self.open_txns = self._gauge("open_txns", "Begun transactions that are open.")
        self.staged_bytes = self._gauge("staged_bytes", "Bytes of columns that open transactions have staged.")
        self.tail_ring_bytes = self._gauge("tail_ring_bytes", "Memory that the tail ring takes.")
        self.tick_lead_seconds = self._gauge("tick_lead_seconds", "How far the oracle is ahead of the wall clock.")
        self.last_tick_seconds = self._gauge("last_tick_seconds", "Time of the newest tick, since the epoch.")
        self.watermark_lag_seconds = self._gauge(
            "watermark_lag_seconds", "How far the watermark that is most behind is behind the clock."
        )
        self.disk_total_bytes = self._gauge("disk_total_bytes", "Size of the disk where the data folder is.")
        self.backup_last_success_seconds = self._gauge(
            "backup_last_success_seconds",
            "When the last backup was made, in seconds since the epoch; 0 without one. Absent where backups cannot be "
            "made: on nodes of a cluster, and with a log in memory.",
        )
        self.disk_free_bytes = self._gauge("disk_free_bytes", "Free bytes where the data folder is.")
        self.ready = self._gauge("ready", "1 while the node takes appends, as /readyz tells.")
        self.storage_failed = self._gauge("storage_failed", "1 once storage has failed and the log has stopped.")
        self.start_seconds = self._gauge("start_seconds", "How long this start took.")
        self.build_info = self._gauge("build_info", "1; what runs.", "version", "python", "grpcio", "rocksdict")
        self.engine = Gauge("tidelog_engine", "Figures of the storage engine.", ("figure",), registry=self.registry)

    def _security(self) -> None:
        self.insecure = self._gauge("insecure", "1 while other machines are let in without TLS or authentication.")
        self.tls_certificate_expires = self._gauge(
            "tls_certificate_expires_seconds", "When the server's certificate ends, in seconds since the epoch."
        )
        self.tls_reload_failures = self._gauge(
            "tls_reload_failures", "Changes of certificate files that could not be used since the start."
        )
        self.auth_failures = self._counter("auth_failures", "Calls without valid credentials.")
        self.permission_denials = self._counter("permission_denials", "Requests that permissions forbade.", "verb")
        self.throttled = self._counter("throttled", "Times that a quota held somebody back, by which.", "reason")
        self.audit_events = self._counter("audit_events", "Events written to the audit log.")
        self.audit_lost = self._counter("audit_lost", "Denials that the audit log has as a number only.")
        self.audit_failing = self._gauge("audit_failing", "1 while the audit log cannot be written.")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"tidelog_{name}_total", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"tidelog_{name}", text, labels, registry=self.registry)

    def _labelled_gauge(self, name: str, text: str, label: str) -> LabelledGauge:
        return LabelledGauge(f"tidelog_{name}", text, label, self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"tidelog_{name}", text, registry=self.registry, buckets=_SECONDS)
