"""Figures of committed groups, for the metrics and for the log of slow appends. On the event loop."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog_server.core.errors.cluster import LogFailure
from tidelog_server.log.append import Append
from tidelog_server.log.slow_appends import SlowAppends
from tidelog_server.runtime.clock import Clock
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.storage.log_store import WriteMark

# Groups whose figures are collected before the metrics are updated: a millisecond of work.
_MAX_FIGURES: Final = 64


@dataclass(slots=True)
class CommitGroup:
    """Appends that are committed together. The thread, if it syncs it, owns it from the end of its write until then."""

    appends: list[Append]
    size_bytes: int
    needs_sync: bool
    mark: WriteMark = 0
    write_s: float = 0.0
    sync_s: float | None = None
    failure: LogFailure | None = None


class _Figures(NamedTuple):
    """Figures of a committed group for the metrics; ``sync_s`` is None if it was not synced."""

    batches: int
    messages: int
    size_bytes: int
    write_s: float
    sync_s: float | None
    ack_s: float


class CommitFigures:
    """Collects the figures of groups: updating the metrics for each one costs four times as much.

    Attributes:
        metrics: The metrics.
    """

    def __init__(self, clock: Clock, metrics: Metrics, slow_appends: SlowAppends) -> None:
        self._clock = clock
        self.metrics = metrics
        self._slow_appends = slow_appends
        # Of groups that are not in the metrics yet.
        self._figures: list[_Figures] = []

    def note(self, group: CommitGroup) -> None:
        """Collect the figures of a group that was settled just now."""
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
        """Update the metrics."""
        figures, self._figures = self._figures, []
        metrics = self.metrics
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
