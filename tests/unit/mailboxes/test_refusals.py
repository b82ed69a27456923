"""Each refusal of a mailbox has its own error, and nothing has changed after it.

Method: the state and the events before and after a refused operation.
"""

from collections.abc import Callable
from copy import deepcopy

import pytest

from tidelog_server.core.dedup_keys import hash_of
from tidelog_server.core.errors import InvalidRequestError, RateLimitRejectedError
from tidelog_server.core.errors.mailboxes import (
    AlreadyAcknowledgedError,
    BodyTooLargeError,
    InvalidDelayError,
    LeaseTooLongError,
    LockExpiredError,
    LockUnknownError,
    MailboxFullError,
)
from tidelog_server.core.limits import (
    LOCK_BYTES,
    MAX_ENDED_LOCKS,
    MAX_MAILBOX_BATCH,
    MAX_MAILBOX_DELAY_MS,
    MAX_PRIORITY,
)
from tidelog_server.core.mailboxes import MailboxSettings, MessageState
from tidelog_server.core.message_checks import MAX_MESSAGE_GROUP_BYTES, MAX_MESSAGE_HEADERS, MAX_MESSAGE_HEADERS_BYTES
from tidelog_server.core.ticks import LOGICAL_BITS
from tidelog_server.mailboxes.operations import (
    MAX_DEDUP_KEY_BYTES,
    MAX_DEDUP_KEYS,
    MAX_OVERDUE,
    Outgoing,
    Rejection,
    acknowledge,
    check_bodies,
    check_outgoing,
    extend,
    fetch,
    lease_of,
    pause,
    purge,
    redrive_here,
    reenqueue,
    send,
    send_bodies,
)
from tidelog_server.mailboxes.state import MailboxState
from tidelog_testing.parts.mailboxes import START_MS, SmallMailbox

YEAR_10000_MS = 253_402_300_800_000
UNKNOWN = b"?" * LOCK_BYTES


def contents(state: MailboxState) -> list[object]:
    columns = [bytes(getattr(state.rows, name)) for name in ("ids", "due", "until", "states", "deliveries", "statuses")]
    groups = [group.name for group in state.groups.by_number.values()]
    locks = [list(state.locks.by_message.items()), list(state.locks.all_ended())]
    return deepcopy([columns, state.counts(), groups, locks, list(state.keys.all()), list(state.exhausted), state.now])


def is_refused(mailbox: SmallMailbox, error: type[Exception], match: str, request: Callable[[], object]) -> None:
    outbox = mailbox.step.outbox
    before = contents(mailbox.state), outbox.next_tick, list(outbox.payloads)
    with pytest.raises(error, match=match):
        request()
    assert (contents(mailbox.state), outbox.next_tick, list(outbox.payloads)) == before


# -- Requests that are invalid by themselves ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "error", "match"),
    [
        (Outgoing(b"123456"), BodyTooLargeError, "body of message 1 has 6 bytes, .* at most 5"),
        (Outgoing(b"", blob_key=b"k", blob_bytes=6), BodyTooLargeError, "body of message 1 has 6 bytes"),
        (Outgoing(b"", delay_ms=-1), InvalidDelayError, "delay_ms is -1 ms"),
        (Outgoing(b"", delay_ms=MAX_MAILBOX_DELAY_MS + 1), InvalidDelayError, "delay_ms is 31622400001 ms"),
        (Outgoing(b"", due_ms=-1), InvalidDelayError, "due_ms is -1 ms"),
        (Outgoing(b"", due_ms=YEAR_10000_MS), InvalidDelayError, "due_ms is 253402300800000 ms"),
        (Outgoing(b"", ttl_ms=-1), InvalidDelayError, "ttl_ms is -1 ms"),
        (Outgoing(b"", ttl_ms=MAX_MAILBOX_DELAY_MS + 1), InvalidDelayError, "ttl_ms is"),
        (Outgoing(b"", priority=-1), InvalidRequestError, "priority of message 1 is -1, expected 0 to 255"),
        (Outgoing(b"", priority=MAX_PRIORITY + 1), InvalidRequestError, "priority of message 1 is 256"),
        (Outgoing(b"", group="ü" * 129), InvalidRequestError, "group of message 1 has 258 bytes, at most 256"),
        (Outgoing(b"", key="k" * (MAX_DEDUP_KEY_BYTES + 1)), InvalidRequestError, "dedup_key of message 1 has 257"),
        (
            Outgoing(b"", {str(number): "" for number in range(MAX_MESSAGE_HEADERS + 1)}),
            InvalidRequestError, "message 1 has 65 headers",
        ),
        (Outgoing(b"", {"a": "b" * MAX_MESSAGE_HEADERS_BYTES}), InvalidRequestError, "1 headers with 8193 bytes"),
    ],
)  # fmt: skip
def test_an_invalid_message_is_refused(message: Outgoing, error: type[Exception], match: str) -> None:
    settings = MailboxSettings(max_body_bytes=5)
    with pytest.raises(error, match=match):
        check_outgoing("m", settings, [Outgoing(b"12345"), message])


def test_messages_at_the_limits_are_accepted() -> None:
    settings = MailboxSettings(max_body_bytes=5)
    headers = {str(number): "" for number in range(MAX_MESSAGE_HEADERS)}
    longest = Outgoing(
        b"12345", headers, MAX_MAILBOX_DELAY_MS, None, MAX_PRIORITY, "g" * MAX_MESSAGE_GROUP_BYTES,
        "k" * MAX_DEDUP_KEY_BYTES, MAX_MAILBOX_DELAY_MS,
    )  # fmt: skip
    check_outgoing("m", settings, [longest] * MAX_MAILBOX_BATCH)
    check_outgoing("m", settings, [Outgoing(b"", due_ms=0), Outgoing(b"", due_ms=YEAR_10000_MS - 1)])
    check_bodies("m", settings, [b"12345"] * MAX_MAILBOX_BATCH)


def test_invalid_bodies_are_refused() -> None:
    settings = MailboxSettings(max_body_bytes=5)
    with pytest.raises(BodyTooLargeError, match="body of message 1 has 7 bytes"):
        check_bodies("m", settings, [b"", b"1234567", b"123456"])
    for bodies in ([], [b""] * (MAX_MAILBOX_BATCH + 1)):
        with pytest.raises(InvalidRequestError, match=rf"has {len(bodies)} messages, expected 1 to 1000"):
            check_bodies("m", settings, bodies)
        with pytest.raises(InvalidRequestError, match=rf"has {len(bodies)} messages, expected 1 to 1000"):
            check_outgoing("m", settings, [Outgoing(body) for body in bodies])


def test_a_lease_has_a_range() -> None:
    settings = MailboxSettings(lease_ms=7, max_lease_ms=50)
    assert [lease_of("m", settings, lease_ms) for lease_ms in (None, 1, 50)] == [7, 1, 50]
    for lease_ms in (-1, 0, 51):
        with pytest.raises(LeaseTooLongError, match=f"lease is {lease_ms} ms, mailbox 'm' allows 1 to 50"):
            lease_of("m", settings, lease_ms)


# -- Requests that the state refuses -----------------------------------------------------------------------


def test_a_send_beyond_the_maximum_is_refused_whole() -> None:
    mailbox = SmallMailbox(MailboxSettings(max_messages=3))
    mailbox.send(Outgoing(b"1"), Outgoing(b"2", key="k"))
    mailbox.later()
    step = mailbox.step
    is_refused(mailbox, MailboxFullError, "holds 2 messages, .* at most 3", lambda: send_bodies(step, [b"3", b"4"]))
    two = [Outgoing(b"3", group="new"), Outgoing(b"4", key="new")]
    is_refused(mailbox, MailboxFullError, "holds 2 messages", lambda: send(step, two))
    # Duplicates take no room.
    ids = send(step, [Outgoing(b"2", key="k"), Outgoing(b"3", key="l"), Outgoing(b"3", key="l")])
    assert ids.duplicates == [0, 2]
    is_refused(mailbox, MailboxFullError, "holds 3 messages", lambda: send_bodies(step, [b"4"]))


def test_a_time_that_is_too_far_away_is_refused() -> None:
    mailbox = SmallMailbox()
    now_ms = mailbox.step.now >> LOGICAL_BITS
    far = [Outgoing(b"1", group="new"), Outgoing(b"2", due_ms=now_ms + MAX_MAILBOX_DELAY_MS + 1)]
    check_outgoing("m", mailbox.settings, far)
    is_refused(mailbox, InvalidDelayError, "due_ms is", lambda: send(mailbox.step, far))
    mailbox.send(Outgoing(b"1", due_ms=now_ms + MAX_MAILBOX_DELAY_MS))
    assert mailbox.state.counts().delayed == 1


def test_a_key_beyond_the_maximum_is_refused() -> None:
    mailbox = SmallMailbox()
    until = mailbox.step.now + (1_000 << LOGICAL_BITS)
    for number in range(MAX_DEDUP_KEYS):
        mailbox.state.keys.add(hash_of(str(number)), 1, until)
    with pytest.raises(RateLimitRejectedError, match="remembers 1000000 deduplication keys"):
        send(mailbox.step, [Outgoing(b"", key="new")])
    assert (mailbox.state.rows.live, mailbox.step.outbox.next_tick) == (0, mailbox.step.outbox.base)
    assert send(mailbox.step, [Outgoing(b"", key="5")]).duplicates == [0]
    mailbox.later(1_000)
    while mailbox.state.keys.next_until() is not None:
        mailbox.state.advance(mailbox.step.now)
    mailbox.send(Outgoing(b"", key="new"))


def test_an_invalid_request_about_locks_is_refused_whole() -> None:
    mailbox = SmallMailbox()
    mailbox.send(Outgoing(b""))
    (grant,) = mailbox.fetch()
    step, lock_id = mailbox.step, grant.lock_id
    many = [lock_id] * (MAX_MAILBOX_BATCH + 1)
    requests: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (InvalidRequestError, "has 0 locks", lambda: acknowledge(step, (), ())),
        (InvalidRequestError, "has 1001 locks", lambda: acknowledge(step, many[1:], [Rejection(lock_id)])),
        (InvalidDelayError, "delay_ms is -1 ms", lambda: acknowledge(step, [lock_id], [Rejection(UNKNOWN, -1)])),
        (InvalidRequestError, "has 0 locks", lambda: extend(step, (), 5)),
        (InvalidRequestError, "has 1001 locks", lambda: extend(step, many, 5)),
    ]
    for error, match, request in requests:
        is_refused(mailbox, error, match, request)


# -- Locks -------------------------------------------------------------------------------------------------


def failure_of(mailbox: SmallMailbox, lock_id: bytes) -> Exception:
    """Return why a lock is refused, by each operation, which changes nothing."""
    before = contents(mailbox.state), mailbox.step.outbox.next_tick
    results = [
        acknowledge(mailbox.step, [lock_id], ()), acknowledge(mailbox.step, (), [Rejection(lock_id, is_final=True)]),
        extend(mailbox.step, [lock_id], 1_000)[1],
    ]  # fmt: skip
    assert (contents(mailbox.state), mailbox.step.outbox.next_tick) == before
    assert [len(result.failures) for result in results] == [1, 1, 1]
    errors = [result.failures[0] for result in results]
    assert {lock for lock, _ in errors} == {lock_id}
    assert len({(type(error), str(error)) for _, error in errors}) == 1
    return errors[0][1]


def test_a_lock_is_refused_for_its_own_reason() -> None:
    mailbox, other = SmallMailbox(), SmallMailbox()
    other.step.random_bytes = lambda size: b"o" * size
    other.send(Outgoing(b""))
    foreign = other.fetch()[0].lock_id
    mailbox.send(*[Outgoing(b"")] * 5)
    confirmed, rejected, timed_out, ended, purged = (grant.lock_id for grant in mailbox.fetch(5))
    for unknown in (foreign, UNKNOWN, b"", confirmed[:-1], confirmed + b"\0"):
        assert isinstance(failure_of(mailbox, unknown), LockUnknownError)
    acknowledge(mailbox.step, [confirmed], [Rejection(rejected)])
    extend(mailbox.step, [ended, purged], 10_000)
    for acknowledged in (confirmed, rejected):
        assert isinstance(failure_of(mailbox, acknowledged), AlreadyAcknowledgedError)
    mailbox.later(100)
    assert isinstance(failure_of(mailbox, timed_out), LockExpiredError)
    leased = mailbox.state.locks.by_message.items()
    assert reenqueue(mailbox.step, [message_id for message_id, lock in leased if lock == ended]) == 1
    assert isinstance(failure_of(mailbox, ended), LockExpiredError)
    assert purge(mailbox.step) == 4
    assert isinstance(failure_of(mailbox, purged), LockExpiredError)


def test_a_lock_is_unknown_when_many_others_have_ended_since() -> None:
    mailbox = SmallMailbox()
    mailbox.send(Outgoing(b""))
    first = mailbox.fetch()[0].lock_id
    acknowledge(mailbox.step, [first], ())
    for _ in range(MAX_ENDED_LOCKS):
        mailbox.send(Outgoing(b""))
        acknowledge(mailbox.step, [mailbox.fetch()[0].lock_id], ())
    assert isinstance(failure_of(mailbox, first), LockUnknownError)


def test_a_lock_that_is_named_twice_is_acknowledged_once_and_extended() -> None:
    mailbox = SmallMailbox()
    mailbox.send(Outgoing(b""), Outgoing(b""))
    first, second = (grant.lock_id for grant in mailbox.fetch(2))
    until, result = extend(mailbox.step, [first, second, first], 500)
    assert (result.failures, list(mailbox.state.rows.until)) == ([], [until, until])
    failures = acknowledge(mailbox.step, [first, first, second], [Rejection(second)]).failures
    assert [(lock_id, type(error)) for lock_id, error in failures] == [
        (first, AlreadyAcknowledgedError), (second, AlreadyAcknowledgedError),
    ]  # fmt: skip
    assert mailbox.state.rows.live == 0


def test_no_lease_is_valid_and_no_message_delivered_after_its_time_when_many_end_at_once() -> None:
    mailbox = SmallMailbox()
    total = 2 * MAX_OVERDUE + 500
    for _ in range(total // 500):
        mailbox.send(*[Outgoing(b"", ttl_ms=50)] * 500, *[Outgoing(b"")] * 500)
    grants = mailbox.fetch(2 * total, lease_ms=20)
    assert len(grants) == 2 * total
    mailbox.later(20)
    # A step ends a part of the leases, the earliest first.
    assert mailbox.state.leases == 2 * total - MAX_OVERDUE
    last = grants[-1]
    assert isinstance(failure_of(mailbox, last.lock_id), LockExpiredError)
    assert len(mailbox.fetch(total, lease_ms=1_000)) == MAX_OVERDUE
    mailbox.later(30)
    leased = mailbox.state.leases
    fetched = fetch(mailbox.step, total, 1_000, 1 << 40).grants
    rows = mailbox.state.rows
    assert all(not rows.expires[rows.locate(grant.message_id)] for grant in fetched)
    assert mailbox.state.leases == leased + len(fetched)
    for _ in range(20):
        mailbox.later()
    waiting = (MessageState.AVAILABLE, MessageState.DELAYED)
    assert all(not rows.expires[row] for row in rows.live_rows() if rows.states[row] in waiting)
    assert mailbox.replayed().counts() == mailbox.state.counts()


# -- Operations without an effect ----------------------------------------------------------------------------


def test_operations_without_an_effect_add_no_event() -> None:
    mailbox = SmallMailbox()
    mailbox.send(Outgoing(b"", delay_ms=50))
    mailbox.later()
    assert mailbox.fetch(10) == ()
    assert reenqueue(mailbox.step, [1, mailbox.state.rows.ids[0]]) == 0
    assert redrive_here(mailbox.step, [1, mailbox.state.rows.ids[0]]) == 0
    pause(mailbox.step, is_paused=False)
    assert mailbox.step.outbox.next_tick == mailbox.step.outbox.base
    pause(mailbox.step, is_paused=True)
    mailbox.later(50)
    assert mailbox.state.counts().available == 1
    assert mailbox.fetch(10) == ()
    assert mailbox.step.outbox.next_tick == mailbox.step.outbox.base
    assert mailbox.step.now >> LOGICAL_BITS == START_MS + 51
