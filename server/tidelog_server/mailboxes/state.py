"""The state of a mailbox: the fold of its events. Pure; time is passed in as ticks.

Each method changes the state by one kind of event. The live server and a replay of the log call the same methods, so
both reach the same state. ``operations`` decides which events happen.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog_server.blobs.live import MessageBlobs
from tidelog_server.core.dedup_keys import DedupKeys, hash_of
from tidelog_server.core.limits import BLOB_REFERENCE_MEMORY_BYTES, ROW_MEMORY_BYTES
from tidelog_server.core.mailboxes import DeliveryStatus, MessageState
from tidelog_server.mailboxes.messages.groups import Groups
from tidelog_server.mailboxes.messages.locks import LockEnd, Locks
from tidelog_server.mailboxes.messages.order import Order
from tidelog_server.mailboxes.messages.rows import NewRow, Rows, fill, pick

# Plain integers: operations on members of an enumeration take longer.
_AVAILABLE: Final = int(MessageState.AVAILABLE)
_DELAYED: Final = int(MessageState.DELAYED)
_LEASED: Final = int(MessageState.LEASED)
_DEAD: Final = int(MessageState.DEAD)
_EXHAUSTED: Final = int(MessageState.EXHAUSTED)
_GONE: Final = int(MessageState.GONE)
_WAITING: Final = (_AVAILABLE, _DELAYED)
# Changed messages between two looks at outdated entries.
_TIDY_AFTER: Final = 256
_MEMBERS: Final = (_AVAILABLE, _DELAYED, _LEASED)


class Counts(NamedTuple):
    """Numbers of messages by state, see MailboxCounts in ``mailbox_service.proto``, and bytes of all bodies."""

    available: int = 0
    delayed: int = 0
    leased: int = 0
    dead: int = 0
    body_bytes: int = 0

    @property
    def messages(self) -> int:
        """Number of all messages."""
        return self.available + self.delayed + self.leased + self.dead


class Header(NamedTuple):
    """What a mailbox knows of a message without its body; see MessageHeader in ``mailbox_service.proto``.

    Attributes:
        due_tick, until, expires_tick: Ticks at which it is due, its lease ends, and it expires; 0 for never.
        status: How its last delivery ended, a DeliveryStatus.
    """

    message_id: int
    due_tick: int
    deliveries: int
    status: int
    priority: int
    group: str
    size_bytes: int
    state: MessageState
    until: int
    expires_tick: int


class MailboxState:
    """The messages of a mailbox and their leases.

    Invariants:
        INV-50: a message is under at most one lease, and its lock is the only one that ends it.
        INV-51: the number of deliveries of a message is the number of its leases, counted from its last redrive.
        INV-52: ``counts`` are the numbers of rows in each state.
        INV-53: of a group at most one message is leased, and when it was leased it was the oldest that was neither
            deleted nor dead. A redrive may add an older one meanwhile, which is the next.

    Attributes:
        rows: The messages.
        locks: Their locks, and locks that ended.
        groups: Ordered groups.
        keys: Deduplication keys that are remembered.
        blobs: Blobs to which messages refer.
        exhausted: Ids of messages that were delivered too often, and are to become dead.
        is_paused: True while deliveries are paused.
        now: The latest tick that the state has seen.
        order: Which message is delivered next, and when something happens to one.
        body_bytes: Bytes of all bodies.
    """

    def __init__(self) -> None:
        self.rows = Rows()
        self.locks = Locks()
        self.groups = Groups()
        self.keys = DedupKeys()
        self.blobs = MessageBlobs()
        self.exhausted: deque[int] = deque()
        self.is_paused = False
        self.now = 0
        self._numbers = [0] * (max(MessageState) + 1)
        self.body_bytes = 0
        self._untidy = 0
        self.order = Order(self.rows, self.groups)

    # -- Events --------------------------------------------------------------------------------------------

    def sent_plain(self, first_id: int, sizes: Sequence[int]) -> None:
        """Add available messages with consecutive ids and nothing but bodies of ``sizes``."""
        self.now = max(self.now, first_id + len(sizes) - 1)
        self.rows.add_plain(first_id, sizes)
        self._numbers[_AVAILABLE] += len(sizes)
        self.body_bytes += sum(sizes)
        self.order.ready.plain.extend(range(first_id, first_id + len(sizes)))

    def sent(self, new: NewRow, *, key: str = "", key_until: int = 0, blob_key: bytes = b"") -> None:
        """Add a message; its deduplication ``key`` is remembered until the tick ``key_until``.

        ``blob_key`` is the key of its body in the blob store; empty if the body is in the event.
        """
        self.now = max(self.now, new.message_id)
        state = _AVAILABLE if new.due_tick <= self.now else _DELAYED
        self.rows.add(new, state)
        self._numbers[state] += 1
        self.body_bytes += new.size_bytes
        if key:
            self.keys.add(hash_of(key), new.message_id, key_until)
        if blob_key:
            self.blobs.add(new.message_id, blob_key)
        if new.expires_tick:
            self.order.expiries.push(new.expires_tick, new.message_id)
        if new.group:
            self.groups.enter(self.groups.of(new.group))
            self.order.join(new.group, new.message_id)
        self.order.wait(len(self.rows) - 1, self.now)

    def leased(
        self, until: int, message_ids: Sequence[int], lock_ids: Sequence[bytes], at: Sequence[int] | None = None
    ) -> None:
        """Put waiting messages under leases that end at the tick ``until``.

        Args:
            until: End of the leases.
            message_ids: The messages, without repetitions.
            lock_ids: Their locks.
            at: Rows that ``take`` returned; None in a replay.
        """
        rows = self.rows
        if at is None:
            at = rows.locate_all(message_ids)
            self.order.ready.drop_first(frozenset(message_ids))
        states = pick(rows.states, at)
        delayed, available = states.count(_DELAYED), states.count(_AVAILABLE)
        assert delayed + available == len(message_ids)
        self._count(_DELAYED, _LEASED, delayed)
        self._count(_AVAILABLE, _LEASED, available)
        fill(rows.states, at, _LEASED)
        fill(rows.until, at, until)
        for row in at:
            rows.deliveries[row] += 1
        self.locks.add_all(lock_ids, message_ids)
        self.order.leases.push_all(until, message_ids)
        for row in at if len(self.groups) else ():
            if rows.groups[row]:
                group = self.groups.of(rows.groups[row])
                assert not group.in_flight
                group.in_flight, group.offered = rows.ids[row], 0
        self._tidy(len(message_ids))

    def extended(self, until: int, message_ids: Sequence[int]) -> None:
        """Let the leases of leased messages end at the tick ``until``."""
        rows = self.rows
        for message_id, row in zip(message_ids, rows.locate_all(message_ids), strict=True):
            assert rows.states[row] == _LEASED
            rows.until[row] = until
            self.order.leases.push(until, message_id)
        self._tidy(len(message_ids))

    def confirmed(self, message_ids: Sequence[int]) -> None:
        """Delete leased messages that were confirmed; each is named once."""
        rows = self.rows
        at = rows.locate_all(message_ids)
        assert pick(rows.states, at).count(_LEASED) == len(message_ids)
        self.locks.end_all(message_ids, LockEnd.ACKNOWLEDGED)
        self._numbers[_LEASED] -= len(message_ids)
        self.body_bytes -= sum(pick(rows.sizes, at))
        rows.remove_all(at)
        if self.blobs.keys:
            self.blobs.remove(message_ids)
        for row in at if len(self.groups) else ():
            if rows.groups[row]:
                self.order.leave(rows.groups[row], is_lease_over=True)
        self._tidy(len(message_ids))

    def released(self, message_id: int, how: LockEnd, due_tick: int) -> None:
        """Let a leased message wait until ``due_tick`` after it was rejected, or its lease ended."""
        row = self.rows.locate(message_id)
        self._end_lease(row, message_id, how)
        self.rows.due[row] = due_tick
        self._set_state(row, _AVAILABLE if due_tick <= self.now else _DELAYED)
        self.order.wait(row, self.now)

    def exhaust(self, message_id: int, how: LockEnd) -> None:
        """Take a leased message out of delivery: it was delivered too often, or rejected for good."""
        row = self.rows.locate(message_id)
        self._end_lease(row, message_id, how)
        self._set_state(row, _EXHAUSTED)
        self.exhausted.append(message_id)
        if number := self.rows.groups[row]:
            self.order.offer_group(self.groups.of(number))

    def buried(self, message_ids: Sequence[int]) -> None:
        """Keep exhausted messages as dead ones."""
        for row in self.rows.locate_all(message_ids):
            assert self.rows.states[row] == _EXHAUSTED
            self._set_state(row, _DEAD)
        self._forget_exhausted()

    def moved(self, message_ids: Sequence[int]) -> None:
        """Delete messages that another mailbox has received: exhausted ones, or waiting and dead ones of a redrive."""
        for row in self.rows.locate_all(message_ids):
            assert self.rows.states[row] not in (_LEASED, _GONE)
            self._remove(row)
        self._forget_exhausted()
        self._tidy(len(message_ids))

    def redriven(self, due_tick: int, message_ids: Sequence[int]) -> None:
        """Let dead messages wait again, with their deliveries counted from 0.

        Those that would have expired before ``due_tick`` do not expire any more.
        """
        rows = self.rows
        for row in rows.locate_all(message_ids):
            assert rows.states[row] == _DEAD
            message_id = rows.ids[row]
            rows.deliveries[row], rows.due[row] = 0, due_tick
            if rows.expires[row] <= due_tick:
                rows.expires[row] = 0
            rows.statuses[row] = DeliveryStatus.NOT_DELIVERED
            self._set_state(row, _AVAILABLE if due_tick <= self.now else _DELAYED)
            if number := rows.groups[row]:
                self.order.join(number, message_id)
            self.order.wait(row, self.now)

    def expired(self, message_ids: Sequence[int]) -> None:
        """Delete waiting messages whose time is over."""
        for row in self.rows.locate_all(message_ids):
            assert self.rows.states[row] in _WAITING
            self._remove(row)
        self._tidy(len(message_ids))

    def purged(self) -> None:
        """Delete all messages. Ended locks and deduplication keys are remembered."""
        self.locks.end_all(list(self.locks.by_message), LockEnd.EXPIRED)
        self.rows, self.groups = Rows(), Groups()
        self.order = Order(self.rows, self.groups)
        self.blobs.remove(list(self.blobs.keys))
        self.exhausted.clear()
        self._numbers = [0] * len(self._numbers)
        self.body_bytes = 0

    def relocated(self, message_id: int, place: int) -> None:
        """Note that the body of a message was copied to another tick of the log; skipped if the message is gone."""
        row = self.rows.find(message_id)
        if row >= 0:
            self.rows.places[row] = place

    def advance(self, now: int) -> None:
        """Make delayed messages available that are due at the tick ``now``, and forget keys whose window is over."""
        self.now = max(self.now, now)
        for row in self.order.due(self.now):
            self._set_state(row, _AVAILABLE)
            self.order.offer_row(row)
        self.keys.advance(self.now)

    # -- Questions -----------------------------------------------------------------------------------------

    def counts(self) -> Counts:
        """Return the numbers of messages by state; takes no time."""
        numbers = self._numbers
        return Counts(
            numbers[_AVAILABLE], numbers[_DELAYED], numbers[_LEASED], numbers[_DEAD] + numbers[_EXHAUSTED],
            self.body_bytes,
        )  # fmt: skip

    @property
    def oldest_id(self) -> int:
        """Id of the oldest available message; 0 without one."""
        return self.rows.ids[self.rows.states.find(_AVAILABLE)] if self._numbers[_AVAILABLE] else 0

    def header(self, row: int) -> Header:
        """Return what is known of the message in a row."""
        rows = self.rows
        return Header(
            rows.ids[row], rows.due[row], rows.deliveries[row], rows.statuses[row], rows.priorities[row],
            self.groups.name_of(rows.groups[row]), rows.sizes[row], MessageState(rows.states[row]), rows.until[row],
            rows.expires[row],
        )  # fmt: skip

    @property
    def leases(self) -> int:
        """Number of messages under a lease."""
        return self._numbers[_LEASED]

    @property
    def has_available(self) -> bool:
        """True if a message may be ready to be fetched."""
        return bool(self._numbers[_AVAILABLE] and len(self.order.ready))

    @property
    def memory_bytes(self) -> int:
        """Memory that the state takes, about; takes no time."""
        return (
            self.order.memory_bytes + ROW_MEMORY_BYTES * len(self.rows) + self.keys.memory_bytes
            + self.groups.memory_bytes + self.locks.memory_bytes + BLOB_REFERENCE_MEMORY_BYTES * len(self.blobs.keys)
        )  # fmt: skip

    # -- Parts of events -----------------------------------------------------------------------------------

    def restore(self) -> None:
        """Restore what follows from the rows; needed after a snapshot was loaded."""
        rows = self.rows
        self._numbers = [rows.states.count(state) for state in range(len(self._numbers))]
        self._numbers[_GONE] = 0
        self.body_bytes = sum(rows.sizes[row] for row in rows.live_rows()) if rows.gone else sum(rows.sizes)
        self.exhausted = deque(rows.ids[row] for row in rows.live_rows() if rows.states[row] == _EXHAUSTED)
        self.order.rebuild()

    def _set_state(self, row: int, state: int) -> None:
        states = self.rows.states
        self._count(states[row], state, 1)
        states[row] = state

    def _count(self, old: int, new: int, messages: int) -> None:
        """Count messages whose state has changed."""
        self._numbers[old] -= messages
        self._numbers[new] += messages

    def _end_lease(self, row: int, message_id: int, how: LockEnd) -> None:
        rows = self.rows
        assert rows.states[row] == _LEASED
        self.locks.end(message_id, how)
        rows.until[row] = 0
        rows.statuses[row] = DeliveryStatus.TIMEOUT if how is LockEnd.EXPIRED else DeliveryStatus.REJECTED
        if number := rows.groups[row]:
            group = self.groups.of(number)
            assert group.in_flight == message_id
            group.in_flight = 0

    def _remove(self, row: int) -> None:
        rows = self.rows
        self._numbers[rows.states[row]] -= 1
        self.body_bytes -= rows.sizes[row]
        rows.remove(row)
        if self.blobs.keys:
            self.blobs.remove((rows.ids[row],))
        if rows.groups[row]:
            self.order.leave(rows.groups[row])

    def _forget_exhausted(self) -> None:
        """Remove messages that are not exhausted any more; mostly they are the first ones."""
        exhausted = self.exhausted
        while exhausted and not self._is_exhausted(exhausted[0]):
            exhausted.popleft()
        if len(exhausted) != self._numbers[_EXHAUSTED]:
            self.exhausted = deque(filter(self._is_exhausted, exhausted))

    def _is_exhausted(self, message_id: int) -> bool:
        row = self.rows.find(message_id)
        return row >= 0 and self.rows.states[row] == _EXHAUSTED

    def _tidy(self, messages: int) -> None:
        """Remove rows of deleted messages, and entries of queues that are outdated.

        Called after the state of ``messages`` has changed; it looks at them now and then.
        """
        self._untidy += messages
        if self._untidy >= _TIDY_AFTER:
            self._untidy = 0
            self.rows.compact()
            self.order.tidy(self.locks)
