"""Decides what an operation on a mailbox does: checks it, changes the state, and adds the events. Pure.

An operation is refused before it changes anything. Each function runs in one step, at one tick, ``Step.now``, from
which delays and leases are counted.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

from tidelog_server.blobs.state import BlobState
from tidelog_server.blobs.step import BlobStep
from tidelog_server.core.errors import InvalidRequestError, RateLimitRejectedError, TidelogServerError
from tidelog_server.core.errors.mailboxes import (
    AlreadyAcknowledgedError,
    BlobNotExistError,
    BodyTooLargeError,
    InvalidDelayError,
    LeaseTooLongError,
    LockExpiredError,
    LockUnknownError,
    MailboxFullError,
)
from tidelog_server.core.limits import (
    BLOB_REFERENCE_MEMORY_BYTES,
    DEDUP_KEY_MEMORY_BYTES,
    ENTRY_MEMORY_BYTES,
    LOCK_BYTES,
    MAX_MAILBOX_DELAY_MS,
    MAX_PRIORITY,
    MEMBER_MEMORY_BYTES,
    ROW_MEMORY_BYTES,
    SMALL_ENTRY_MEMORY_BYTES,
)
from tidelog_server.core.mailboxes import MailboxSettings, MessageState
from tidelog_server.core.message_checks import (
    MS_PER_YEAR_9999,
    check_count,
    check_group,
    check_headers,
    check_ms,
    check_text,
)
from tidelog_server.core.ticks import LOGICAL_BITS, compose, physical_ms
from tidelog_server.mailboxes.events import PLAIN, EventType, Sent, encode_sent, row_of
from tidelog_server.mailboxes.messages.groups import group_memory_bytes
from tidelog_server.mailboxes.messages.locks import LockEnd
from tidelog_server.mailboxes.messages.rows import Rows, pick
from tidelog_server.mailboxes.outbox import Outbox
from tidelog_server.mailboxes.state import MailboxState

# Deduplication keys that a mailbox remembers; a send with a further one is refused.
MAX_DEDUP_KEYS: Final = 1_000_000
MAX_DEDUP_KEY_BYTES: Final = 256

_PLAIN_MEMORY_BYTES: Final = ROW_MEMORY_BYTES + SMALL_ENTRY_MEMORY_BYTES

RandomBytes = Callable[[int], bytes]
"""Returns a number of random bytes."""


@dataclass(slots=True)
class Step:
    """One step of a mailbox: all that its operations need.

    Attributes:
        name: Name of the mailbox.
        settings: Its settings.
        state: Its state, changed by the operations.
        outbox: Receives the events.
        now: Tick of the step; every delay and lease is counted from it.
        random_bytes: Source of lock ids.
        check_node: Raises RateLimitRejectedError if the node does not accept a number of further messages, and of bytes
            of memory.
        blobs: Its part in the log of the blobs.
    """

    name: str
    settings: MailboxSettings
    state: MailboxState
    outbox: Outbox
    now: int
    random_bytes: RandomBytes
    check_node: Callable[[int, int], None] = lambda _messages, _bytes: None
    blobs: BlobStep = field(default_factory=lambda: BlobStep(BlobState(), 0))


class Outgoing(NamedTuple):
    """A message to send.

    Attributes:
        body: The body; empty if it is a blob that is stored already.
        headers: Headers of the application.
        delay_ms: Delay from now; None for one of the next two, or for the delay of the mailbox if they are None too.
        due_ms: Absolute time in milliseconds since the epoch.
        overdue_ms: Time for which it is due already.
        priority: 0 to 255.
        group: Name of the group; empty for no group.
        key: Deduplication key; empty for none.
        ttl_ms: Time until it expires, 0 for never; None for that of the mailbox.
        blob_key, blob_bytes: See ``events.Sent``. With a body, it is stored as a blob under this key.
    """

    body: bytes
    headers: Mapping[str, str] = {}
    delay_ms: int | None = None
    due_ms: int | None = None
    priority: int = 0
    group: str = ""
    key: str = ""
    ttl_ms: int | None = None
    blob_key: bytes = b""
    blob_bytes: int = 0
    overdue_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SentIds:
    """Result of a send: the id of each message, and the indices of duplicates."""

    ids: Sequence[int]
    duplicates: Sequence[int] = ()


class Grant(NamedTuple):
    """A message under a lease, without its body.

    Attributes:
        message_id, lock_id: The message and its lock.
        place: Tick of the message in the log that has the body.
        delivery_count: Number of deliveries, this one included.
        due_tick: Tick from which it was available.
        status: How the previous delivery ended.
        size_bytes: Size of the body.
    """

    message_id: int
    lock_id: bytes
    place: int
    delivery_count: int
    due_tick: int
    status: int
    size_bytes: int


# The constructor that the class has checks the number of fields, which takes most of its time.
_new_grant: Final[Callable[[Iterable[object]], Grant]] = partial(tuple.__new__, Grant)


@dataclass(frozen=True, slots=True)
class Fetched:
    """Result of a fetch: messages, and the tick at which their leases end."""

    grants: Sequence[Grant]
    until: int


class Rejection(NamedTuple):
    """A rejected delivery.

    Attributes:
        lock_id: Its lock.
        delay_ms: Delay until the message is available again; None for the schedule of the mailbox.
        is_final: True to make the message dead.
    """

    lock_id: bytes
    delay_ms: int | None = None
    is_final: bool = False


@dataclass(slots=True)
class LockFailures:
    """Locks that were refused, with the reasons."""

    failures: list[tuple[bytes, TidelogServerError]] = field(default_factory=list)


def _ticks(ms: int) -> int:
    return ms << LOGICAL_BITS


# -- Time passes -------------------------------------------------------------------------------------------


MAX_OVERDUE: Final = 1_000
"""Leases that one step ends, and expired messages that it removes. The next step continues."""


def pass_time(step: Step) -> None:
    """End leases and remove messages whose time is over at ``step.now``. Run before the operations of a step.

    At most MAX_OVERDUE of each; they add at most MAX_OVERDUE + 1 events. The locks of the other leases are refused, and
    the other messages are not delivered.
    """
    state = step.state
    state.advance(step.now)
    for message_id in state.order.overdue_leases(MAX_OVERDUE, state.now):
        row = state.rows.find(message_id)
        _give_back(step, message_id, LockEnd.EXPIRED, state.rows.until[row], None)
    expired = state.order.overdue_messages(MAX_OVERDUE, state.now)
    if expired:
        step.outbox.add_ids(EventType.MESSAGE_EXPIRED, expired)
        state.expired(expired)


def _give_back(
    step: Step, message_id: int, how: LockEnd, from_tick: int, delay_ms: int | None, *, is_final: bool = False
) -> None:
    """End the lease of a message without confirmation: it waits again, or is exhausted.

    Without a delay it is due since it was due before, so those that became due later do not overtake it.
    """
    state, settings = step.state, step.settings
    row = state.rows.find(message_id)
    deliveries = state.rows.deliveries[row]
    is_acknowledged = how is LockEnd.ACKNOWLEDGED
    if is_final or 0 < settings.max_deliveries <= deliveries:
        kind = EventType.EXHAUSTED_BY_REJECTION if is_acknowledged else EventType.EXHAUSTED_BY_TIMEOUT
        step.outbox.add_ids(kind, (message_id,))
        state.exhaust(message_id, how)
        return
    delay_ms = settings.backoff_after(deliveries) if delay_ms is None else delay_ms
    due_tick = from_tick + _ticks(delay_ms) if delay_ms else state.rows.due[row]
    step.outbox.add_ids(EventType.REJECTED if is_acknowledged else EventType.LEASE_EXPIRED, (message_id,), due_tick)
    state.released(message_id, how, due_tick)


# -- Send --------------------------------------------------------------------------------------------------


def check_bodies(name: str, settings: MailboxSettings, bodies: Sequence[bytes]) -> None:
    """Check messages that have only a body. Raises InvalidRequestError, BodyTooLargeError."""
    check_count("messages", len(bodies))
    largest = max(map(len, bodies))
    if largest > settings.max_body_bytes:
        index = next(index for index, body in enumerate(bodies) if len(body) == largest)
        raise BodyTooLargeError(name, size_bytes=largest, max_bytes=settings.max_body_bytes, index=index)


def check_outgoing(name: str, settings: MailboxSettings, messages: Sequence[Outgoing]) -> None:
    """Check messages with options. Raises InvalidRequestError, BodyTooLargeError, InvalidDelayError."""
    check_count("messages", len(messages))
    for index, message in enumerate(messages):
        size_bytes = message.blob_bytes or len(message.body)
        if size_bytes > settings.max_body_bytes:
            raise BodyTooLargeError(name, size_bytes=size_bytes, max_bytes=settings.max_body_bytes, index=index)
        for label, ms, max_ms in (
            ("delay_ms", message.delay_ms, MAX_MAILBOX_DELAY_MS),
            ("due_ms", message.due_ms, MS_PER_YEAR_9999),
            ("overdue_ms", message.overdue_ms, MS_PER_YEAR_9999),
            ("ttl_ms", message.ttl_ms, MAX_MAILBOX_DELAY_MS),
        ):
            if ms is not None:
                check_ms(label, ms, max_ms)
        if not 0 <= message.priority <= MAX_PRIORITY:
            raise InvalidRequestError(
                f"the priority of message {index} is {message.priority}, expected 0 to {MAX_PRIORITY}",
                field="priority",
            )
        check_group(message.group, index)
        check_text("dedup_key", message.key, MAX_DEDUP_KEY_BYTES, index)
        check_headers(message.headers, index)


def send_bodies(step: Step, bodies: Sequence[bytes]) -> SentIds:
    """Add messages that have only a body; ``check_bodies`` has accepted them.

    Raises:
        MailboxFullError, RateLimitRejectedError: The mailbox or the node has too many messages. Nothing happened.
    """
    settings = step.settings
    if settings.delay_ms or settings.ttl_ms:
        return send(step, [Outgoing(body) for body in bodies])
    _check_room(step, len(bodies), len(bodies) * _PLAIN_MEMORY_BYTES)
    first_id = step.outbox.next_tick
    step.outbox.add_sent([PLAIN + body for body in bodies])
    step.state.sent_plain(first_id, list(map(len, bodies)))
    return SentIds(range(first_id, first_id + len(bodies)))


def send(step: Step, messages: Sequence[Outgoing]) -> SentIds:
    """Add messages; ``check_outgoing`` has accepted them. Duplicates are answered with the id of the first message.

    Raises:
        TidelogServerError: See ``check_send``. Nothing happened.
    """
    check_send(step, messages)
    return add_messages(step, messages)


def check_send(step: Step, messages: Sequence[Outgoing]) -> None:
    """Check whether messages can be added now.

    Raises:
        MailboxFullError: The mailbox has too many messages.
        RateLimitRejectedError: The mailbox remembers too many deduplication keys, or the node has no room.
        InvalidDelayError: A due time is too far away.
        BlobNotExistError: A body is not stored.
    """
    known, limit_ms = _known(step, messages), physical_ms(step.now) + MAX_MAILBOX_DELAY_MS
    keys = {message.key for message in messages if message.key}.difference(known)
    count = sum(not message.key for message in messages) + len(keys)
    _check_room(step, count, _memory_bytes(step, messages, count, len(keys)))
    remembered = len(step.state.keys)
    if keys and remembered + len(keys) > MAX_DEDUP_KEYS:
        raise RateLimitRejectedError(
            f"mailbox '{step.name}' remembers {remembered} deduplication keys, the maximum is {MAX_DEDUP_KEYS}: retry "
            "later, or lower dedup_window_ms",
            limit="dedup_keys",
        )
    for message in messages:
        if message.blob_key:
            _check_blob(step, message)
        if message.due_ms is not None and message.due_ms > limit_ms:
            raise InvalidDelayError("due_ms", ms=message.due_ms, max_ms=limit_ms)


def add_messages(step: Step, messages: Sequence[Outgoing]) -> SentIds:
    """Add messages that ``check_send`` has accepted."""
    state, known = step.state, _known(step, messages)
    ids: list[int] = []
    duplicates: list[int] = []
    for index, message in enumerate(messages):
        message_id = known.get(message.key, 0) if message.key else 0
        if message_id:
            duplicates.append(index)
        else:
            if message.blob_key and message.body:
                step.blobs.put(message.blob_key, message.body)
            record, message_id = _stored(step, message), step.outbox.next_tick
            step.outbox.add_sent((encode_sent(record),))
            row = row_of(message_id, record, state.groups.number_of(record.group), message_id)
            state.sent(row, key=record.key, key_until=record.key_until, blob_key=record.blob_key)
            if message.key:
                known[message.key] = message_id
        ids.append(message_id)
    step.outbox.duplicates += len(duplicates)
    return SentIds(ids, duplicates)


def _known(step: Step, messages: Sequence[Outgoing]) -> dict[str, int]:
    """Return the ids of messages that were sent before with a key of ``messages``, by key."""
    find, now = step.state.keys.find, step.now
    return {message.key: message_id for message in messages if message.key and (message_id := find(message.key, now))}


def _stored(step: Step, message: Outgoing) -> Sent:
    """Return a message with its delays converted to ticks."""
    settings, now = step.settings, step.now
    ttl_ms = settings.ttl_ms if message.ttl_ms is None else message.ttl_ms
    body = b"" if message.blob_key else message.body
    return Sent(
        body, message.headers, _due_tick(step, message), now + _ticks(ttl_ms) if ttl_ms else 0, message.priority,
        message.group, message.key, now + _ticks(settings.dedup_window_ms) if message.key else 0, None,
        message.blob_key, message.blob_bytes,
    )  # fmt: skip


def _due_tick(step: Step, message: Outgoing) -> int:
    """Return the tick from which a message is available; 0 for its id."""
    if message.due_ms is not None:
        return max(1, compose(message.due_ms))
    if message.overdue_ms is not None:
        return max(1, step.now - _ticks(message.overdue_ms)) if message.overdue_ms else 0
    delay_ms = step.settings.delay_ms if message.delay_ms is None else message.delay_ms
    return step.now + _ticks(delay_ms) if delay_ms else 0


def _check_blob(step: Step, message: Outgoing) -> None:
    """Raise TidelogServerError if the body of a message is not a stored blob, and cannot be stored as one."""
    if message.body:
        step.blobs.check_room(message.blob_key, message.blob_bytes)
    elif step.blobs.state.find(message.blob_key) is None:
        raise BlobNotExistError(message.blob_key)


def _memory_bytes(step: Step, messages: Sequence[Outgoing], count: int, keys: int) -> int:
    """Return the memory that ``count`` new messages with a number of new keys take, about, and at least."""
    groups, settings = step.state.groups, step.settings
    size_bytes = count * (ROW_MEMORY_BYTES + ENTRY_MEMORY_BYTES) + keys * DEDUP_KEY_MEMORY_BYTES
    names = {message.group for message in messages if message.group}
    size_bytes += sum(group_memory_bytes(name) for name in names if not groups.has(name))
    for message in messages:
        if message.ttl_ms or (message.ttl_ms is None and settings.ttl_ms):
            size_bytes += ENTRY_MEMORY_BYTES
        if message.group:
            size_bytes += MEMBER_MEMORY_BYTES
        if message.blob_key:
            size_bytes += BLOB_REFERENCE_MEMORY_BYTES
    new_blobs = {message.blob_key: message.blob_bytes for message in messages if message.blob_key and message.body}
    return size_bytes + sum(step.blobs.new_memory_bytes(key, blob_bytes) for key, blob_bytes in new_blobs.items())


def _check_room(step: Step, count: int, memory_bytes: int) -> None:
    messages = step.state.rows.live
    if messages + count > step.settings.max_messages:
        raise MailboxFullError(step.name, messages=messages, max_messages=step.settings.max_messages)
    if count:
        step.check_node(count, memory_bytes)


# -- Fetch -------------------------------------------------------------------------------------------------


def lease_of(name: str, settings: MailboxSettings, lease_ms: int | None) -> int:
    """Return the duration of a lease in milliseconds. Raises LeaseTooLongError if it is out of range."""
    if lease_ms is None:
        return settings.lease_ms
    if not 1 <= lease_ms <= settings.max_lease_ms:
        raise LeaseTooLongError(name, lease_ms=lease_ms, max_lease_ms=settings.max_lease_ms)
    return lease_ms


def fetch(step: Step, max_messages: int, lease_ms: int, max_bytes: int) -> Fetched:
    """Lease the next messages: at most ``max_messages``, and at most ``max_bytes`` unless the first one has more."""
    state, until = step.state, step.now + _ticks(lease_ms)
    if state.is_paused:
        return Fetched((), until)
    at = state.order.take(min(max_messages, step.settings.max_in_flight - state.leases), max_bytes, state.now)
    if not at:
        return Fetched((), until)
    lock_ids = struct.unpack(f"{LOCK_BYTES}s" * len(at), step.random_bytes(LOCK_BYTES * len(at)))
    message_ids, grants = list(pick(state.rows.ids, at)), _grants(state.rows, at, lock_ids)
    step.outbox.add_leased(message_ids, lock_ids, until)
    state.leased(until, message_ids, lock_ids, at)
    return Fetched(grants, until)


def _grants(rows: Rows, at: Sequence[int], lock_ids: Sequence[bytes]) -> list[Grant]:
    """Return what the worker receives about the messages in some rows, before they are leased."""
    ids, places, deliveries, due = rows.ids, rows.places, rows.deliveries, rows.due
    statuses, sizes = rows.statuses, rows.sizes
    if not isinstance(at, range):
        return [
            Grant(ids[row], lock_id, places[row], deliveries[row] + 1, due[row], statuses[row], sizes[row])
            for row, lock_id in zip(at, lock_ids, strict=True)
        ]
    part = slice(at.start, at.stop)
    counts = [count + 1 for count in deliveries[part]]
    columns = (ids[part], lock_ids, places[part], counts, due[part], statuses[part], sizes[part])
    return list(map(_new_grant, zip(*columns, strict=True)))


# -- Acknowledge and extend --------------------------------------------------------------------------------


def acknowledge(step: Step, confirmed: Sequence[bytes], rejected: Sequence[Rejection]) -> LockFailures:
    """Confirm and reject deliveries, each independently of the others.

    Raises:
        InvalidRequestError, InvalidDelayError: The request is invalid. Nothing happened.
    """
    _check_acknowledge(confirmed, rejected)
    result = LockFailures()
    ids = _messages_of(step, confirmed, result)
    if ids:
        step.outbox.add_ids(EventType.CONFIRMED, ids)
        step.state.confirmed(ids)
    for rejection in rejected:
        for message_id in _messages_of(step, (rejection.lock_id,), result):
            _give_back(
                step, message_id, LockEnd.ACKNOWLEDGED, step.now, rejection.delay_ms, is_final=rejection.is_final
            )
    return result


def check_acknowledge(step: Step, confirmed: Sequence[bytes], rejected: Sequence[Rejection]) -> None:
    """Raise TidelogServerError if ``acknowledge`` would refuse a lock, or the request."""
    _check_acknowledge(confirmed, rejected)
    result = LockFailures()
    _messages_of(step, [*confirmed, *(rejection.lock_id for rejection in rejected)], result)
    for _, error in result.failures:
        raise error


def extend(step: Step, lock_ids: Sequence[bytes], lease_ms: int) -> tuple[int, LockFailures]:
    """Let leases end ``lease_ms`` from now; return the tick of the end. A lock may be named twice.

    Raises:
        InvalidRequestError: The request is invalid. Nothing happened.
    """
    check_count("locks", len(lock_ids))
    until, result = step.now + _ticks(lease_ms), LockFailures()
    ids = _messages_of(step, list(dict.fromkeys(lock_ids)), result)
    if ids:
        step.outbox.add_ids(EventType.EXTENDED, ids, until)
        step.state.extended(until, ids)
    return until, result


def _check_acknowledge(confirmed: Sequence[bytes], rejected: Sequence[Rejection]) -> None:
    check_count("locks", len(confirmed) + len(rejected))
    for rejection in rejected:
        if rejection.delay_ms is not None:
            check_ms("delay_ms", rejection.delay_ms, MAX_MAILBOX_DELAY_MS)


def _messages_of(step: Step, lock_ids: Sequence[bytes], result: LockFailures) -> Sequence[int]:
    """Return the messages under ``lock_ids``; add a failure for each lock that is not valid."""
    rows, ids = step.state.rows, step.state.locks.messages_of(lock_ids)
    if 0 not in ids and len(set(ids)) == len(ids):
        ends = pick(rows.until, rows.locate_all(ids))
        if min(ends, default=0) > step.now:
            return ids
    found = dict[int, None]()
    for lock_id, message_id in zip(lock_ids, ids, strict=True):
        if not message_id:
            result.failures.append((lock_id, _refusal(step, lock_id)))
        elif message_id in found:
            result.failures.append((lock_id, AlreadyAcknowledgedError(step.name, lock_id, message_id)))
        elif rows.until[rows.locate(message_id)] <= step.now:
            # Its time is over, and ``pass_time`` has not reached it yet.
            result.failures.append((lock_id, LockExpiredError(step.name, lock_id, message_id)))
        else:
            found[message_id] = None
    return list(found)


def _refusal(step: Step, lock_id: bytes) -> TidelogServerError:
    ended = step.state.locks.ended(lock_id)
    if ended is None:
        return LockUnknownError(step.name, lock_id)
    message_id, how = ended
    kind = LockExpiredError if how is LockEnd.EXPIRED else AlreadyAcknowledgedError
    return kind(step.name, lock_id, message_id)


# -- Administration ----------------------------------------------------------------------------------------


def purge(step: Step) -> int:
    """Delete all messages; return their number."""
    count = step.state.rows.live
    step.outbox.add(EventType.PURGED, b"", count)
    step.state.purged()
    return count


def pause(step: Step, *, is_paused: bool) -> None:
    """Pause or resume deliveries."""
    if step.state.is_paused != is_paused:
        step.outbox.add(EventType.PAUSED if is_paused else EventType.RESUMED, b"")
        step.state.is_paused = is_paused


def reenqueue(step: Step, message_ids: Iterable[int]) -> int:
    """End the leases of messages now; return the number of leases that were ended.

    Messages that are not leased are skipped. Leases whose time is over were ended by ``pass_time``.
    """
    rows, count = step.state.rows, 0
    for message_id in dict.fromkeys(message_ids):
        row = rows.find(message_id)
        if row >= 0 and rows.until[row]:
            _give_back(step, message_id, LockEnd.EXPIRED, step.now, 0)
            count += 1
    return count


def bury(step: Step, message_ids: Sequence[int]) -> None:
    """Keep exhausted messages as dead ones: the mailbox has no mailbox for dead letters."""
    step.outbox.add_ids(EventType.BURIED, message_ids)
    step.state.buried(message_ids)


def redrive_here(step: Step, message_ids: Iterable[int]) -> int:
    """Deliver dead messages of this mailbox again; return their number. Messages that are not dead are skipped."""
    rows = step.state.rows
    dead = [
        message_id
        for message_id in dict.fromkeys(message_ids)
        if (row := rows.find(message_id)) >= 0 and rows.states[row] == MessageState.DEAD
    ]
    if dead:
        step.outbox.add_ids(EventType.REDRIVEN, dead, step.now)
        step.state.redriven(step.now, dead)
    return len(dead)


def give_away(step: Step, kind: EventType, message_ids: Sequence[int]) -> None:
    """Delete messages that another mailbox receives in the same write."""
    step.outbox.add_ids(kind, message_ids)
    step.state.moved(message_ids)


def receive(step: Step, messages: Sequence[Sent]) -> None:
    """Add messages of another mailbox, regardless of the limits: they must not be lost.

    Their deduplication keys are of the mailbox that they were sent to, and are dropped.
    """
    for received in messages:
        message = replace(received, key="", key_until=0) if received.key else received
        message_id = step.outbox.next_tick
        step.outbox.add_sent((encode_sent(message),), is_moved=True)
        row = row_of(message_id, message, step.state.groups.number_of(message.group), message_id)
        step.state.sent(row, blob_key=message.blob_key)
