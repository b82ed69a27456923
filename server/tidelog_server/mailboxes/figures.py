"""What the mailboxes of a node hold and do, for its metrics."""

from collections.abc import Mapping
from typing import Final

from tidelog_server.core.ticks import physical_ms
from tidelog_server.mailboxes.events import EventType
from tidelog_server.mailboxes.outbox import Outbox
from tidelog_server.mailboxes.state import Counts, MailboxState
from tidelog_server.runtime.metrics import Metrics

_EVENTS: Final[Mapping[EventType, tuple[str, ...]]] = {
    EventType.SENT: ("sent",),
    EventType.LEASED: ("delivered",),
    EventType.EXTENDED: ("extended",),
    EventType.CONFIRMED: ("confirmed",),
    EventType.REJECTED: ("rejected",),
    EventType.LEASE_EXPIRED: ("lease_expired",),
    EventType.MESSAGE_EXPIRED: ("expired",),
    EventType.EXHAUSTED_BY_REJECTION: ("rejected", "dead"),
    EventType.EXHAUSTED_BY_TIMEOUT: ("lease_expired", "dead"),
    EventType.REDRIVEN: ("redriven",),
    EventType.MOVED: ("redriven",),
    EventType.PURGED: ("purged",),
}
"""How the metrics call what an event does to its messages. A dead letter counts when it is taken out of delivery."""
_DUPLICATE: Final = "duplicate"


class Figures:
    """Sums over the open mailboxes of a node. Lives on the event loop.

    Invariant: ``total`` is the sum of the counts that were entered.

    Attributes:
        total: What all open mailboxes hold.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.total = Counts()
        self._metrics = metrics
        events = metrics.mailbox_events
        # Bound to their labels once, because a step counts several.
        self._counters = {int(kind): [events.labels(name) for name in names] for kind, names in _EVENTS.items()}
        self._duplicates = events.labels(_DUPLICATE)

    def happened(self, outbox: Outbox) -> None:
        """Count the events of a step, which are submitted now."""
        for kind, messages in outbox.numbers.items():
            for counter in self._counters.get(kind, ()):
                counter.inc(messages)
        if outbox.duplicates:
            self._duplicates.inc(outbox.duplicates)

    def entered(self, before: Counts, after: Counts) -> None:
        """Replace what a mailbox holds in ``total``."""
        self.total = Counts._make(total + new - old for total, new, old in zip(self.total, after, before, strict=True))

    def refresh_metrics(self, states: Mapping[str, MailboxState], now_ms: int, *, per_mailbox: bool) -> None:
        """Set the gauges; with ``per_mailbox`` also those of each open mailbox, from ``states``, by name."""
        metrics, total = self._metrics, self.total
        for state in ("available", "delayed", "leased", "dead"):
            metrics.mailbox_held_messages.labels(state).set(getattr(total, state))
        metrics.mailbox_held_bytes.set(total.body_bytes)
        metrics.mailboxes_open.set(len(states))
        ages = {name: age_s(state, now_ms) for name, state in states.items()}
        metrics.mailboxes_oldest_seconds.set(max(ages.values(), default=0.0))
        if per_mailbox:
            all_counts = [(name, state.counts()) for name, state in states.items()]
            metrics.mailbox_oldest_seconds.replace(list(ages.items()))
            metrics.mailbox_available_messages.replace([(name, float(counts.available)) for name, counts in all_counts])
            metrics.mailbox_leased_messages.replace([(name, float(counts.leased)) for name, counts in all_counts])
            metrics.mailbox_dead_messages.replace([(name, float(counts.dead)) for name, counts in all_counts])


def age_s(state: MailboxState, now_ms: int) -> float:
    """Return the seconds since the oldest available message was sent; 0 without one."""
    oldest_id = state.oldest_id
    return max(0, now_ms - physical_ms(oldest_id)) / 1_000 if oldest_id else 0.0
