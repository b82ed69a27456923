"""What producers and workers know of a mailbox, and whether the next answer can be true.

The checker of `tests/crash/test_kill_deliveries.py`. It knows nothing of the server but its answers. Times are those of
the server's answers: the end of a lease less its duration is the time at which it began.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

MAX_DELIVERIES = 3


@dataclass(slots=True)
class Lease:
    """A delivery.

    Attributes:
        message_id, lock_id, group: The message, its lock and its group.
        count: Number of its deliveries, this one included.
        begin_ms, until_ms: Time of the lease, as far as it was answered.
        may_be_over: True once its end was requested.
    """

    message_id: int
    lock_id: bytes
    group: str
    count: int
    begin_ms: int
    until_ms: int
    may_be_over: bool = False


@dataclass
class Ledger:
    """The messages of a mailbox and their deliveries.

    Attributes:
        bodies: Bodies that were sent, whatever the answer.
        sent: Ids by body, of answered sends and of deliveries.
        confirmed: Messages whose confirmation was answered.
        maybe_confirmed: Messages whose confirmation was not answered.
        finals: Messages that were rejected for good, whatever the answer.
        dead: Original ids of dead letters.
        leases: The last lease of each message.
        groups: The last leases of the messages of each group, without those that were confirmed.
        seen: Numbers of events, for a test to prove that it tested something.
    """

    bodies: set[bytes] = field(default_factory=set)
    sent: dict[bytes, int] = field(default_factory=dict)
    confirmed: set[int] = field(default_factory=set)
    maybe_confirmed: set[int] = field(default_factory=set)
    finals: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    leases: dict[int, Lease] = field(default_factory=dict)
    groups: dict[str, dict[int, Lease]] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)

    def sends(self, bodies: Iterable[bytes]) -> None:
        """Note that bodies are about to be sent, each under itself as the deduplication key."""
        self.bodies.update(bodies)

    def was_sent(self, body: bytes, message_id: int) -> None:
        """Note the id of a message, from the answer to a send or from a delivery."""
        assert body in self.bodies
        assert self.sent.setdefault(body, message_id) == message_id, f"{body!r} is in the mailbox twice"

    def delivered(self, delivery: Any, until_ms: int, lease_ms: int) -> Lease:
        """Check a delivery, and return its lease."""
        self.was_sent(delivery.body, delivery.id)
        lease = Lease(
            delivery.id, delivery.lock_id, delivery.group, delivery.delivery_count, until_ms - lease_ms, until_ms
        )
        assert delivery.id not in self.confirmed, f"{lease} of a message that was confirmed"
        assert delivery.id not in self.dead, f"{lease} of a dead letter"
        assert 1 <= lease.count <= MAX_DELIVERIES, f"{lease} after the last delivery"
        for other in self._rivals(lease):
            assert other.may_be_over or other.until_ms <= lease.begin_ms, f"{lease} during {other}"
        before = self.leases.get(delivery.id)
        assert before is None or before.count < lease.count, f"{lease} after {before}"
        self.leases[delivery.id] = lease
        if lease.group:
            self.groups.setdefault(lease.group, {})[delivery.id] = lease
        self.seen["deliveries"] += 1
        self.seen["redeliveries"] += before is not None
        return lease

    def _rivals(self, lease: Lease) -> list[Lease]:
        """Return the leases that must be over when another one begins: of the same message or group."""
        if lease.group:
            return list(self.groups.get(lease.group, {}).values())
        return [self.leases[lease.message_id]] if lease.message_id in self.leases else []

    def extended(self, lease: Lease, until_ms: int) -> None:
        """Check the answer to an extension."""
        last = self.leases[lease.message_id]
        assert last is lease or until_ms <= last.begin_ms, f"{lease} was extended to {until_ms} during {last}"
        # A later request of another worker cannot shorten it: only this worker has the lock.
        lease.until_ms = until_ms
        self.seen["extensions"] += 1

    def was_confirmed(self, lease: Lease) -> None:
        """Check the answer to a confirmation."""
        assert self.leases[lease.message_id] is lease, f"{lease} was confirmed after {self.leases[lease.message_id]}"
        assert lease.message_id not in self.confirmed, f"{lease} was confirmed twice"
        self.confirmed.add(lease.message_id)
        self.maybe_confirmed.discard(lease.message_id)
        if lease.group:
            del self.groups[lease.group][lease.message_id]
        self.seen["confirmations"] += 1

    def is_dead_letter(self, delivery: Any) -> None:
        """Check a message in the mailbox for dead letters."""
        origin = delivery.dead_letter
        self.was_sent(delivery.body, origin.id)
        assert origin.id not in self.dead, f"message {origin.id} is a dead letter twice"
        assert origin.id not in self.confirmed, f"message {origin.id} was confirmed and is a dead letter"
        if origin.id not in self.finals:
            assert origin.delivery_count == MAX_DELIVERIES, f"message {origin.id}: {origin}"
        last = self.leases.get(origin.id)
        assert last is None or last.count <= origin.delivery_count
        self.dead.add(origin.id)
        self.seen["dead letters"] += 1

    def check_end(self, answered: Iterable[int]) -> None:
        """Check, once both mailboxes are empty, that no message whose send was answered is lost."""
        lost = set(answered) - self.confirmed - self.maybe_confirmed - self.dead
        assert not lost, f"{len(lost)} messages are lost, such as {min(lost)}: {self.leases.get(min(lost))}"

    def check_counts(self, present: int, answered: int) -> None:
        """Check the number of messages in both mailboxes, while no request is in flight."""
        at_least = answered - len(self.confirmed) - len(self.maybe_confirmed)
        at_most = len(self.bodies) - len(self.confirmed)
        assert at_least <= present <= at_most, f"{present} messages, expected {at_least} to {at_most}"
