"""A mailbox takes memory for its messages, and not for its history.

Method: many cycles of one message, with times that leave outdated entries behind, against fixed bounds; and a replay of
the same log.
"""

from collections.abc import Callable
from random import Random

import pytest

from tidelog_server.core.limits import MAX_ENDED_LOCKS
from tidelog_server.core.mailboxes import MailboxSettings
from tidelog_server.mailboxes.messages.order import Order
from tidelog_server.mailboxes.operations import Outgoing, Rejection, acknowledge, extend, purge, send
from tidelog_server.mailboxes.state import MailboxState
from tidelog_testing.parts.mailboxes import SmallMailbox

CYCLES = 12_000
REPLAYED_CYCLES = 6_000
# Twice the few messages of a cycle, the spare entries of a queue, and those between two looks at it.
MAX_ENTRIES = 1_400
# Rows are removed when at least 1,024 are of deleted messages.
MAX_ROWS = 2_200


def check_sizes(state: MailboxState) -> None:
    queues = [
        len(queue) for queue in (state.order.ready, state.order.delayed, state.order.leases, state.order.expiries)
    ]
    assert max(queues) <= MAX_ENTRIES
    assert len(state.rows) <= MAX_ROWS
    assert len(state.locks) <= 10
    assert len(list(state.locks.all_ended())) <= MAX_ENDED_LOCKS
    assert len(state.keys) <= 1_100
    assert len(state.exhausted) <= 10
    assert len(state.groups) <= 10


def confirm(mailbox: SmallMailbox, _: int) -> None:
    """Send, fetch and confirm a message that expires late, under a long lease."""
    send(mailbox.step, [Outgoing(b"x", ttl_ms=10_000_000)])
    (grant,) = mailbox.fetch(1, 1_000_000)
    acknowledge(mailbox.step, [grant.lock_id], ())


def extend_and_confirm(mailbox: SmallMailbox, _: int) -> None:
    send(mailbox.step, [Outgoing(b"x", group="g", priority=3)])
    (grant,) = mailbox.fetch(1, 1_000_000)
    extend(mailbox.step, [grant.lock_id, grant.lock_id], 2_000_000)
    acknowledge(mailbox.step, [grant.lock_id], ())


def reject(mailbox: SmallMailbox, number: int) -> None:
    """Deliver the same message again and again, at once or after a delay."""
    if not mailbox.state.rows.live:
        send(mailbox.step, [Outgoing(b"x", ttl_ms=10_000_000)])
    for grant in mailbox.fetch(1, 1_000_000):
        acknowledge(mailbox.step, (), [Rejection(grant.lock_id, delay_ms=number % 2)])


def expire(mailbox: SmallMailbox, number: int) -> None:
    """Send messages that expire long before they are due."""
    send(mailbox.step, [Outgoing(b"x", delay_ms=10_000_000, ttl_ms=1, group=f"{number}", key=f"{number}")])


@pytest.mark.parametrize("cycle", [confirm, extend_and_confirm, reject, expire])
def test_a_long_history_leaves_nothing_behind(cycle: Callable[[SmallMailbox, int], None]) -> None:
    mailbox = SmallMailbox(MailboxSettings(dedup_window_ms=1_000))
    for number in range(CYCLES):
        mailbox.keeps_events = number < REPLAYED_CYCLES
        cycle(mailbox, number)
        mailbox.later()
        if number % 1_000 == 0:
            check_sizes(mailbox.state)
        if number == REPLAYED_CYCLES - 1:
            check_sizes(mailbox.replayed())
    check_sizes(mailbox.state)


class CountedOrder(Order):
    """Counts how often its queues were rebuilt."""

    rebuilds = 0

    def rebuild(self) -> None:
        self.rebuilds += 1
        super().rebuild()


def test_a_mailbox_with_many_waiting_messages_replays_a_history_in_linear_time() -> None:
    # A rebuild visits all rows. Entries of delivered messages are dropped without it.
    mailbox = SmallMailbox()
    for _ in range(20):
        mailbox.send(*[Outgoing(b"")] * 1_000)
        mailbox.later()
    for number in range(5_000):
        confirm(mailbox, number)
        mailbox.later()
    replayed = MailboxState()
    order = replayed.order = CountedOrder(replayed.rows, replayed.groups)
    mailbox.replay(replayed)
    assert replayed.counts() == mailbox.state.counts()
    assert order.rebuilds == 0
    assert len(order.ready) <= 20_000 + MAX_ENTRIES


def test_a_mailbox_of_random_work_stays_small() -> None:
    mailbox, chance = SmallMailbox(MailboxSettings(max_deliveries=5, dedup_window_ms=1_000)), Random(1)
    mailbox.keeps_events = False
    for number in range(5_000):
        if mailbox.state.rows.live < 8:
            send(mailbox.step, [Outgoing(b"x", key=f"{number}", ttl_ms=chance.choice([0, 3, 10_000_000]))])
        for grant in mailbox.fetch(3, chance.choice([1, 1_000])):
            rejection = Rejection(grant.lock_id, chance.choice([None, 0, 10_000]), is_final=chance.random() < 0.1)
            is_confirmed = chance.random() < 0.5
            acknowledge(mailbox.step, [grant.lock_id] if is_confirmed else (), () if is_confirmed else [rejection])
        if number % 500 == 499:
            purge(mailbox.step)
        mailbox.later()
    assert len(mailbox.state.rows) <= MAX_ROWS
    assert max(len(queue) for queue in (mailbox.state.order.ready, mailbox.state.order.leases)) <= MAX_ENTRIES
