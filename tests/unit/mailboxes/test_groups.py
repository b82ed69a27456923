"""Ordered groups: one message at a time, the oldest first, in little memory.

Method: the situations in which the first message of a group changes.
"""

from tidelog_server.core.mailboxes import MailboxSettings, MessageState
from tidelog_server.mailboxes.messages.groups import Groups
from tidelog_server.mailboxes.operations import (
    Outgoing,
    Rejection,
    acknowledge,
    bury,
    check_outgoing,
    redrive_here,
)
from tidelog_testing.parts.mailboxes import SmallMailbox


def with_dead_first() -> tuple[SmallMailbox, int, int]:
    """Return a mailbox whose group has a dead message and a later one that is available."""
    mailbox = SmallMailbox()
    first, second = mailbox.send(Outgoing(b"1", group="g"), Outgoing(b"2", group="g"))
    (grant,) = mailbox.fetch(10)
    acknowledge(mailbox.step, (), [Rejection(grant.lock_id, is_final=True)])
    bury(mailbox.step, tuple(mailbox.state.exhausted))
    mailbox.later()
    return mailbox, first, second


def test_a_group_delivers_one_message_at_a_time_in_order() -> None:
    mailbox = SmallMailbox()
    sent = mailbox.send(*(Outgoing(b"x", group=group, priority=index) for index, group in enumerate("ghgh")))
    delivered = []
    for _ in range(4):
        grants = mailbox.fetch(10)
        delivered.append([grant.message_id for grant in grants])
        assert mailbox.fetch(10) == ()
        acknowledge(mailbox.step, [grants[0].lock_id], [Rejection(grant.lock_id) for grant in grants[1:]])
        mailbox.later()
    assert delivered == [[sent[1], sent[0]], [sent[3], sent[0]], [sent[0]], [sent[2]]]
    assert len(mailbox.state.groups) == 0


def test_a_delayed_message_holds_back_its_group() -> None:
    mailbox = SmallMailbox()
    first, second = mailbox.send(Outgoing(b"1", group="g", delay_ms=50), Outgoing(b"2", group="g"))
    mailbox.later(49)
    assert mailbox.fetch(10) == ()
    mailbox.later(1)
    assert [grant.message_id for grant in mailbox.fetch(10)] == [first]
    mailbox.later(101)
    (grant,) = mailbox.fetch(10)
    acknowledge(mailbox.step, [grant.lock_id], ())
    assert [grant.message_id for grant in mailbox.fetch(10)] == [second]


def test_a_redriven_message_is_the_next_of_its_group_also_if_the_one_in_flight_is_delayed() -> None:
    mailbox, first, second = with_dead_first()
    (grant,) = mailbox.fetch(10)
    assert grant.message_id == second
    assert redrive_here(mailbox.step, [first]) == 1
    assert mailbox.fetch(10) == ()
    acknowledge(mailbox.step, (), [Rejection(grant.lock_id, delay_ms=10_000)])
    assert [each.message_id for each in mailbox.fetch(10)] == [first]


def test_a_message_that_was_offered_twice_is_delivered_once() -> None:
    mailbox, first, second = with_dead_first()
    redrive_here(mailbox.step, [first])
    (grant,) = mailbox.fetch(10)
    assert grant.message_id == first
    acknowledge(mailbox.step, [grant.lock_id], ())
    assert [each.message_id for each in mailbox.fetch(10)] == [second]


def test_members_that_left_behind_the_first_one_are_forgotten() -> None:
    mailbox = SmallMailbox()
    mailbox.send(Outgoing(b"", group="g", delay_ms=10_000_000))
    for _ in range(1_000):
        mailbox.send(Outgoing(b"", group="g", ttl_ms=1))
        mailbox.later(2)
    (group,) = mailbox.state.groups.by_number.values()
    assert group.size == 1
    assert len(group.members) < 50


def test_messages_that_die_again_and_again_are_members_once() -> None:
    mailbox = SmallMailbox(MailboxSettings(max_deliveries=1))
    mailbox.send(Outgoing(b"1", group="g"), Outgoing(b"2", group="g"))
    for _ in range(500):
        # One is in flight while the other, which is dead, is redriven.
        grants = mailbox.fetch(10)
        rows = mailbox.state.rows
        redrive_here(mailbox.step, [rows.ids[row] for row in rows.live_rows() if rows.states[row] == MessageState.DEAD])
        acknowledge(mailbox.step, (), [Rejection(grant.lock_id) for grant in grants])
        bury(mailbox.step, tuple(mailbox.state.exhausted))
        mailbox.later()
    (group,) = mailbox.state.groups.by_number.values()
    assert len(group.members) < 50


def test_numbers_of_removed_groups_are_used_again() -> None:
    mailbox = SmallMailbox()
    for index in range(1_000):
        mailbox.send(Outgoing(b"", group=f"{index}", ttl_ms=1), Outgoing(b"", group=f"{index}/b", ttl_ms=1))
        assert {group.number for group in mailbox.state.groups.by_number.values()} == {1, 2}
        mailbox.later(2)
        assert len(mailbox.state.groups) == 0


def test_groups_come_back_with_their_numbers() -> None:
    groups = Groups()
    groups.restore(5, "five")
    assert (groups.number_of("six"), groups.number_of("five"), groups.number_of("")) == (6, 5, 0)
    assert (groups.name_of(6), groups.name_of(0)) == ("six", "")


def test_groups_of_expired_messages_are_removed() -> None:
    mailbox = SmallMailbox()
    messages = [Outgoing(b"", group="g", ttl_ms=5), Outgoing(b"", group="g")]
    check_outgoing("m", mailbox.settings, messages)
    _, second = mailbox.send(*messages)
    mailbox.later(5)
    assert [grant.message_id for grant in mailbox.fetch(10)] == [second]
