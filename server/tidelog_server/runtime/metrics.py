"""The server's metrics, with the names that operators see.

Counters are incremented per group, batch or response, never per message.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from tidelog_server.runtime.clock import Clock
from tidelog_server.runtime.engine_figures import EngineFigures
from tidelog_server.runtime.grpc_labels import GRPC_LABELS
from tidelog_server.runtime.old_names import OldEngineFigures, OldName, of_method

# Each counter and histogram would have a gauge with the time at which it was made, which is that of the start.
disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations
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


class _Declared:
    """A metric that ``Metrics`` declares, and how a server makes its own."""

    def __init__(self, form: str, name: str, make: Callable[[str, CollectorRegistry], object]) -> None:
        """``form`` is the exported name, with a place for ``name``; without one, for the name of the attribute."""
        self._form = form
        self._name = name
        self._make = make

    def of(self, attribute: str, registry: CollectorRegistry) -> object:
        """Return the metric, registered."""
        return self._make(self._form.format(self._name or attribute), registry)


def _counter(text: str, *labels: str, name: str = "", form: str = "tidelog_{}_total") -> Counter:
    return cast("Counter", _Declared(form, name, lambda full, made: Counter(full, text, labels, registry=made)))


def _gauge(text: str, *labels: str, name: str = "") -> Gauge:
    return cast("Gauge", _Declared("tidelog_{}", name, lambda full, made: Gauge(full, text, labels, registry=made)))


def _labelled_gauge(text: str, label: str, name: str = "") -> LabelledGauge:
    return cast(
        "LabelledGauge", _Declared("tidelog_{}", name, lambda full, made: LabelledGauge(full, text, label, made))
    )


def _histogram(
    text: str, *labels: str, name: str = "", form: str = "tidelog_{}", buckets: Sequence[float] = _SECONDS
) -> Histogram:
    def make(full: str, registry: CollectorRegistry) -> Histogram:
        return Histogram(full, text, labels, registry=registry, buckets=buckets)

    return cast("Histogram", _Declared(form, name, make))


class Metrics:
    """All metrics of one server, in its own registry, so that tests can run several servers in a process.

    A metric is exported under the name of its attribute, unless it states another one.
    """

    # Appends, scans, transactions and retention.
    append_messages = _counter("Messages acknowledged.")
    append_bytes = _counter("Bytes of columns acknowledged.")
    append_batches = _counter("Batches acknowledged.")
    append_duplicates = _counter("Batches that were already in the log.")
    append_errors = _counter("Batches that were refused or failed, by reason.", "reason")
    scan_messages = _counter("Messages sent to scanners.")
    scan_bytes = _counter("Bytes of columns sent to scanners.")
    scan_responses = _counter("Responses sent to scanners.")
    scan_reads = _counter("Pages that scanners read, by source.", "source")
    evictions = _counter("Table entries evicted because a principal exceeded its share, by table.", "table")
    txns_ended = _counter("Staged transactions that ended, by outcome.", "how")
    retention_messages = _counter("Messages removed by retention.")
    retention_bytes = _counter("Bytes of columns removed by retention.")
    retention_lost_messages = _counter("Messages that a hard cap removed before all groups had committed them.")
    retention_lost_bytes = _counter("Bytes of columns of such messages.")
    retention_ahead_seconds = _labelled_gauge(
        "Seconds by which the newest message of a channel with retention by age lies ahead of the wall clock.",
        "channel",
    )
    log_lines_dropped = _counter("Lines of the log that were dropped because stderr was full or not read.")
    rpc_errors = _counter("Calls that failed, by method and reason.", "method", "reason")

    # The write path.
    commit_groups = _counter("Committed groups of batches: one write and at most one sync each.")
    commit_batches = _counter("Batches in committed groups.")
    commit_bytes = _counter("Bytes of columns in committed groups.")
    commit_stalls = _counter("Writes that were delayed by the engine's background work.")
    commit_group_batches = _histogram("Batches in a group.", buckets=_COUNTS)
    write_seconds = _histogram("Duration of writing a group, without its sync.")
    sync_seconds = _histogram("Duration of a sync.")
    ack_seconds = _histogram("Time from the arrival of an append to its ack.", name="append_ack_seconds")
    loop_lag_seconds = _histogram("Delay with which the event loop ran a timer.", name="event_loop_lag_seconds")

    # A log in an engine; all are 0 without one.
    log_confirm_seconds = _histogram("Time from the write of a group until the engine of the log has confirmed it.")
    log_term = _gauge("Term in which this server owns its log in an engine; each claim of the log has a greater one.")
    log_records = _gauge("Positions of the log that its engine has, about.")
    log_appended_bytes = _counter("Bytes appended to the engine of the log.")
    log_unconfirmed_bytes = _gauge("Bytes of these that the engine has not confirmed.")
    log_unconfirmed_seconds = _gauge("Time for which the oldest write waits for the engine of the log.")
    log_foreign_records = _counter("Records in the log that other programs have appended; they are skipped.")
    log_fenced_records = _counter("Records of former owners of the log, and repetitions; they are skipped.")
    log_views_rebuilt = _counter("Views of the log that could not be used and were made again from it, at a start.")

    # Broadcasts.
    broadcasts_accepted = _counter("Broadcasts accepted.")
    broadcasts_aborted = _counter("Broadcasts aborted.")
    broadcast_acks = _counter("Acknowledgements of broadcasts, one per vchannel.")
    broadcasts_open = _gauge("Unfinished broadcasts, by state.", "state")
    broadcast_tombstones = _gauge("Tombstones of finished broadcasts.")
    broadcast_oldest_seconds = _gauge("Age of the oldest open broadcast.", name="broadcast_oldest_open_seconds")
    broadcast_waiters = _gauge("Calls that wait for resource keys or acknowledgements.", "kind")

    # Groups.
    groups = _gauge("Consumer groups.")
    group_positions = _gauge("Vchannels that groups are subscribed to.")
    group_members = _gauge("Members of all groups.")
    group_commits = _counter("Committed positions of groups.")
    group_members_expired = _counter("Members evicted because they stopped responding.")
    group_assignments = _counter("Assignments of vchannels to members.")
    groups_lag_messages = _gauge("Messages that groups have not consumed.")
    groups_lag_max_seconds = _gauge("Age of the oldest message that a group has not consumed.")

    # Mailboxes.
    mailbox_events = _counter("Messages of mailboxes to which something happened, by event.", "event")
    mailbox_snapshots = _counter("Snapshots of mailboxes.")
    mailbox_copied_bytes = _counter("Bytes of messages that were copied so that the log of a mailbox can be trimmed.")
    mailbox_trims = _counter("Trims of logs of mailboxes.")
    mailbox_held_messages = _gauge("Messages in the open mailboxes of this node, by state.", "state")
    mailbox_memory_bytes = _gauge("Memory of the open mailboxes and the blobs of this node, about, without bodies.")
    mailbox_held_bytes = _gauge("Bytes of the bodies of these messages.")
    mailboxes_oldest_seconds = _gauge(
        "Age of the oldest message that can be fetched.", name="mailboxes_oldest_available_seconds"
    )
    mailboxes_open = _gauge("Mailboxes of this node whose messages are loaded.")
    mailboxes_unloadable = _gauge("Mailboxes of this node that cannot be loaded because their logs are damaged.")
    mailbox_waiting_fetches = _gauge("Fetches that wait for messages.")
    mailbox_recent_bytes = _gauge("Memory of messages that were sent or read lately.")

    # The state of the node.
    loop_lag_max_seconds = _gauge("Maximum event loop lag since the start.", name="event_loop_lag_max_seconds")
    in_flight_bytes = _gauge("Bytes of columns not yet acknowledged.", name="append_in_flight_bytes")
    channels = _gauge("Channels of this node.")
    vchannels = _gauge("Vchannels of this node.")
    scanners = _gauge("Open scans.")
    unread_bytes = _gauge("Memory of scan responses that clients have not read.")
    scans_waiting = _gauge("Scans that wait for memory of limits.max_unread_bytes.")
    open_streams = _gauge("Open streaming calls.")
    producers = _gauge("Idempotent producers in the producer table.")
    open_txns = _gauge("Open transactions.")
    staged_bytes = _gauge("Bytes of columns staged by open transactions.")
    tail_ring_bytes = _gauge("Memory used by the tail ring.")
    tick_lead_seconds = _gauge("Seconds by which the oracle is ahead of the wall clock.")
    last_tick_timestamp_seconds = _gauge("Time of the newest tick, in seconds since the epoch.")
    watermark_lag_seconds = _gauge("Seconds by which the oldest watermark is behind the clock.")
    disk_total_bytes = _gauge("Size of the file system of the data folder.")
    backup_last_success_timestamp_seconds = _gauge(
        "Time of the last backup, in seconds since the epoch; 0 if there is no backup. Absent if the server cannot "
        "make backups: on cluster nodes, and with a log in memory."
    )
    disk_free_bytes = _gauge("Free bytes in the file system of the data folder.")
    ready = _gauge("1 while the node accepts appends, as /readyz reports.")
    storage_failed = _gauge("1 after storage has failed and the log has stopped.")
    start_seconds = _gauge("Duration of the start.")
    build_info = _gauge("Always 1; the labels are the versions in use.", "version", "python", "grpcio", "rocksdict")
    engine = cast("EngineFigures", _Declared("", "", lambda _, made: EngineFigures(made)))

    # Security.
    insecure = _gauge("1 if the server accepts other machines without TLS or authentication.")
    tls_certificate_expiry = _gauge(
        "Expiry of the server's certificate, in seconds since the epoch.",
        name="tls_certificate_expiry_timestamp_seconds",
    )
    tls_reload_failures = _counter("Failed reloads of the certificate files.")
    auth_failures = _counter("Calls without valid credentials.")
    permission_denials = _counter("Requests denied for lack of a grant, by verb.", "verb")
    throttled = _counter("Requests that were delayed or refused by a quota, by quota.", "reason")
    audit_events = _counter("Events written to the audit log.")
    audit_lost = _counter("Denials that the audit log records as a count only.")
    audit_failing = _gauge("1 while the audit log cannot be written.")

    # Calls, under the names that servers of gRPC in other languages use.
    calls_started = _counter("Calls begun.", *GRPC_LABELS, name="started", form="grpc_server_{}_total")
    calls_handled = _counter("Completed calls.", *GRPC_LABELS, "grpc_code", name="handled", form="grpc_server_{}_total")
    call_seconds = _histogram(
        "Duration of unary calls.", *GRPC_LABELS, name="handling_seconds", form="grpc_server_{}", buckets=_CALL_SECONDS
    )
    calls_open = _gauge("Calls in progress, by method.", "method", name="grpc_server_open_calls")

    # HTTP.
    http_connections_ended = _counter("Connections to the HTTP port that the server closed, by reason.", "reason")
    http_requests_malformed = _counter("Malformed requests on the HTTP port.")

    # One value for each object.
    vchannel_first_tick = _labelled_gauge("First tick that is not trimmed; needs metrics.per_vchannel.", "vchannel")
    vchannel_tail_tick = _labelled_gauge("Tick of the newest durable message; needs metrics.per_vchannel.", "vchannel")
    group_lag_messages = _labelled_gauge("Messages that a group has not consumed; needs metrics.per_group.", "group")
    group_lag_seconds = _labelled_gauge(
        "Age of the oldest message that a group has not consumed; needs metrics.per_group.", "group"
    )
    mailbox_available_messages = _labelled_gauge("Messages that can be fetched; needs metrics.per_mailbox.", "mailbox")
    mailbox_leased_messages = _labelled_gauge("Messages under a lease; needs metrics.per_mailbox.", "mailbox")
    mailbox_dead_messages = _labelled_gauge("Dead messages; needs metrics.per_mailbox.", "mailbox")
    mailbox_oldest_seconds = _labelled_gauge(
        "Age of the oldest message that can be fetched; needs metrics.per_mailbox.",
        "mailbox",
        name="mailbox_oldest_available_seconds",
    )
    lease_remaining_seconds = _labelled_gauge(
        "Seconds until the node's lease expires unless etcd renews it; cluster nodes only.", "node"
    )
    standby_lag_positions = _labelled_gauge("Positions of the log of a node that this standby has not applied.", "node")
    standby_lag_seconds = _labelled_gauge("Seconds since this standby had applied all of the log of a node.", "node")

    def __init__(self, *, with_old_names: bool = False) -> None:
        """Make all metrics; with ``with_old_names``, what has another name than in the version before under both."""
        self.registry = CollectorRegistry()
        for attribute, declared in _DECLARED.items():
            setattr(self, attribute, declared.of(attribute, self.registry))
        # CPU, memory and open files of the process, under the standard Prometheus names.
        ProcessCollector(registry=self.registry)
        self._max_loop_lag_s = 0.0
        self._old_backup: OldName | None = None
        if with_old_names:
            self._add_old_names()

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format. Thread-safe; 10,000 labels take 0.1 s."""
        return generate_latest(self.registry)

    def leave_out_backups(self) -> None:
        """Remove the metric of the last backup, for a server that cannot make backups."""
        self.registry.unregister(self.backup_last_success_timestamp_seconds)
        if self._old_backup is not None:
            self.registry.unregister(self._old_backup)

    def _add_old_names(self) -> None:
        made = self.registry
        self._old_backup = OldName(
            "tidelog_backup_last_success_seconds", self.backup_last_success_timestamp_seconds, made
        )
        OldName("tidelog_last_tick_seconds", self.last_tick_timestamp_seconds, made)
        OldName("tidelog_tls_certificate_expires_seconds", self.tls_certificate_expiry, made)
        OldName("tidelog_tls_reload_failures", self.tls_reload_failures, made, kind="gauge")
        OldName("tidelog_grpc_server_handled", self.calls_handled, made, relabel=of_method)
        OldName("tidelog_grpc_server_handling_seconds", self.call_seconds, made, relabel=of_method)
        OldEngineFigures(self.engine, made)

    def record_loop_lag(self, lag_s: float) -> None:
        """Record the delay with which the event loop ran a timer."""
        self.loop_lag_seconds.observe(lag_s)
        if lag_s > self._max_loop_lag_s:
            self._max_loop_lag_s = lag_s
            self.loop_lag_max_seconds.set(lag_s)


_DECLARED: Final = {attribute: each for attribute, each in vars(Metrics).items() if isinstance(each, _Declared)}
for _attribute in _DECLARED:
    # The interpreter finds attributes of an object faster if its class does not have the name.
    delattr(Metrics, _attribute)


async def watch_event_loop(clock: Clock, metrics: Metrics) -> None:
    """Wake up every 10 ms and record the delay. Never returns."""
    while True:
        planned_s = clock.monotonic_s() + _LOOP_PERIOD_S
        await asyncio.sleep(_LOOP_PERIOD_S)
        metrics.record_loop_lag(max(0.0, clock.monotonic_s() - planned_s))
