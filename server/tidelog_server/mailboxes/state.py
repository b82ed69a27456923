"""The state of a mailbox: the fold of its events. Pure; time is passed in as ticks.

Each method changes the state by one kind of event. The live server and a replay of the log call the same methods, so
both reach the same state. ``operations`` decides which events happen.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from tidelog_server.core.dedup_keys import DedupKeys, hash_of
from tidelog_server.core.limits import BLOB_REFERENCE_MEMORY_BYTES, ROW_MEMORY_BYTES
from tidelog_server.core.mailboxes import DeliveryStatus, MessageState
from tidelog_server.mailboxes.blobs.live import MessageBlobs
from tidelog_server.mailboxes.messages.groups import Groups, MessageGroup
from tidelog_server.mailboxes.messages.locks import LockEnd, Locks
from tidelog_server.mailboxes.messages.queues import Deadlines, ReadyQueue, needs_rebuild
from tidelog_server.mailboxes.messages.rows import MANY_ROWS, NewRow, Rows, consecutive, fill, pick

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


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of messages by state; each message is counted once.

    Attributes:
        available, delayed, leased, dead: See MailboxCounts in ``mailbox_service.proto``.
        body_bytes: Bytes of all bodies.
        oldest_id: Id of the oldest available message; 0 without one.
    """

    available: int
    delayed: int
    leased: int
    dead: int
    body_bytes: int
    oldest_id: int


class Tally(NamedTuple):
    """Numbers of messages by state, as in Counts, and bytes of all bodies."""

    available: int = 0
    delayed: int = 0
    leased: int = 0
    dead: int = 0
    body_bytes: int = 0

    @property
    def messages(self) -> int:
        """Number of all messages."""
        return self.available + self.delayed + self.leased + self.dead


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
        self._body_bytes = 0
        self._untidy = 0
        self._ready = ReadyQueue()
        self._delayed = Deadlines()
        self._leases = Deadlines()
        self._expiries = Deadlines()

    # -- Events --------------------------------------------------------------------------------------------

    def sent_plain(self, first_id: int, sizes: Sequence[int]) -> None:
        """Add available messages with consecutive ids and nothing but bodies of ``sizes``."""
        self._see(first_id + len(sizes) - 1)
        self.rows.add_plain(first_id, sizes)
        self._numbers[_AVAILABLE] += len(sizes)
        self._body_bytes += sum(sizes)
        self._ready.push_plain(range(first_id, first_id + len(sizes)))

    def sent(self, new: NewRow, *, key: str = "", key_until: int = 0, blob_key: bytes = b"") -> None:
        """Add a message; its deduplication ``key`` is remembered until the tick ``key_until``.

        ``blob_key`` is the key of its body in the blob store; empty if the body is in the event.
        """
        self._see(new.message_id)
        state = _AVAILABLE if new.due_tick <= self.now else _DELAYED
        self.rows.add(new, state)
        self._numbers[state] += 1
        self._body_bytes += new.size_bytes
        if key:
            self.keys.add(hash_of(key), new.message_id, key_until)
        if blob_key:
            self.blobs.add(new.message_id, blob_key)
        if new.expires_tick:
            self._expiries.push(new.expires_tick, new.message_id)
        if new.group:
            self.groups.enter(self.groups.of(new.group))
            self._join(new.group, new.message_id)
        self._wait(len(self.rows) - 1)

    def leased(
        self, message_ids: Sequence[int], lock_ids: Sequence[bytes], until: int, at: Sequence[int] | None = None
    ) -> None:
        """Put waiting messages under leases that end at the tick ``until``.

        Args:
            message_ids: The messages, without repetitions.
            lock_ids: Their locks.
            until: End of the leases.
            at: Rows that ``take`` returned; None in a replay.
        """
        rows = self.rows
        if at is None:
            at = rows.locate_all(message_ids)
            self._ready.drop_first(frozenset(message_ids))
        states = pick(rows.states, at)
        delayed, available = states.count(_DELAYED), states.count(_AVAILABLE)
        assert delayed + available == len(message_ids)
        self._count(_DELAYED, _LEASED, delayed)
        self._count(_AVAILABLE, _LEASED, available)
        fill(rows.states, at, _LEASED)
        fill(rows.until, at, until)
        for row in at:
            rows.deliveries[row] += 1
        self.locks.take_all(lock_ids, message_ids)
        self._leases.push_all(until, message_ids)
        for row in at if len(self.groups) else ():
            if rows.groups[row]:
                group = self.groups.of(rows.groups[row])
                assert not group.in_flight
                group.in_flight, group.offered = rows.ids[row], 0
        self._tidy(len(message_ids))

    def extended(self, message_ids: Sequence[int], until: int) -> None:
        """Let the leases of leased messages end at the tick ``until``."""
        rows = self.rows
        for message_id, row in zip(message_ids, rows.locate_all(message_ids), strict=True):
            assert rows.states[row] == _LEASED
            rows.until[row] = until
            self._leases.push(until, message_id)
        self._tidy(len(message_ids))

    def confirmed(self, message_ids: Sequence[int]) -> None:
        """Delete leased messages that were confirmed; each is named once."""
        rows = self.rows
        at = rows.locate_all(message_ids)
        assert pick(rows.states, at).count(_LEASED) == len(message_ids)
        self.locks.end_all(message_ids, LockEnd.ACKNOWLEDGED)
        self._numbers[_LEASED] -= len(message_ids)
        self._body_bytes -= sum(pick(rows.sizes, at))
        rows.remove_all(at)
        if self.blobs.keys:
            self.blobs.remove(message_ids)
        for row in at if len(self.groups) else ():
            if rows.groups[row]:
                self._leave_group(rows.groups[row], is_lease_over=True)
        self._tidy(len(message_ids))

    def released(self, message_id: int, how: LockEnd, due_tick: int) -> None:
        """Let a leased message wait until ``due_tick`` after it was rejected, or its lease ended."""
        row = self.rows.locate(message_id)
        self._end_lease(row, message_id, how)
        self.rows.due[row] = due_tick
        self._set_state(row, _AVAILABLE if due_tick <= self.now else _DELAYED)
        self._wait(row)

    def exhaust(self, message_id: int, how: LockEnd) -> None:
        """Take a leased message out of delivery: it was delivered too often, or rejected for good."""
        row = self.rows.locate(message_id)
        self._end_lease(row, message_id, how)
        self._set_state(row, _EXHAUSTED)
        self.exhausted.append(message_id)
        if number := self.rows.groups[row]:
            self._offer_group(self.groups.of(number))

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

    def redriven(self, message_ids: Sequence[int], due_tick: int) -> None:
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
                self._join(number, message_id)
            self._wait(row)

    def expired(self, message_ids: Sequence[int]) -> None:
        """Delete waiting messages whose time is over."""
        for row in self.rows.locate_all(message_ids):
            assert self.rows.states[row] in _WAITING
            self._remove(row)
        self._tidy(len(message_ids))

    def purged(self) -> None:
        """Delete all messages. Ended locks and deduplication keys are remembered."""
        self.locks.end_all([message_id for message_id, _ in self.locks.all()], LockEnd.EXPIRED)
        self.rows, self.groups = Rows(), Groups()
        self.blobs.remove(list(self.blobs.keys))
        self.exhausted.clear()
        self._numbers = [0] * len(self._numbers)
        self._body_bytes = 0
        self.rebuild()

    def relocated(self, message_id: int, place: int) -> None:
        """Note that the body of a message was copied to another tick of the log; skipped if the message is gone."""
        row = self.rows.find(message_id)
        if row >= 0:
            self.rows.places[row] = place

    def advance(self, now: int) -> None:
        """Make delayed messages available that are due at the tick ``now``, and forget keys whose window is over."""
        self._see(now)
        rows = self.rows
        for due_tick, message_id in self._delayed.pop_until(self.now):
            row = rows.find(message_id)
            if row >= 0 and rows.states[row] == _DELAYED and rows.due[row] == due_tick:
                self._set_state(row, _AVAILABLE)
                self._offer_row(row)
        self.keys.advance(self.now)

    # -- Questions -----------------------------------------------------------------------------------------

    def counts(self) -> Counts:
        """Return the numbers of messages by state; takes time for the oldest one only."""
        numbers = self._numbers
        return Counts(
            numbers[_AVAILABLE], numbers[_DELAYED], numbers[_LEASED], numbers[_DEAD] + numbers[_EXHAUSTED],
            self._body_bytes, self._oldest_available(),
        )  # fmt: skip

    def tally(self) -> "Tally":
        """Return the numbers of messages by state; takes no time."""
        numbers = self._numbers
        return Tally(
            numbers[_AVAILABLE], numbers[_DELAYED], numbers[_LEASED], numbers[_DEAD] + numbers[_EXHAUSTED],
            self._body_bytes,
        )  # fmt: skip

    @property
    def leases(self) -> int:
        """Number of messages under a lease."""
        return self._numbers[_LEASED]

    @property
    def has_available(self) -> bool:
        """True if a message may be ready to be fetched."""
        return bool(self._numbers[_AVAILABLE] and len(self._ready))

    @property
    def memory_bytes(self) -> int:
        """Memory that the state takes, about; takes no time."""
        queues = self._ready.memory_bytes + self._delayed.memory_bytes + self._leases.memory_bytes
        return (
            queues + self._expiries.memory_bytes + ROW_MEMORY_BYTES * len(self.rows) + self.keys.memory_bytes
            + self.groups.memory_bytes + self.locks.memory_bytes + BLOB_REFERENCE_MEMORY_BYTES * len(self.blobs.keys)
        )  # fmt: skip

    @property
    def body_bytes(self) -> int:
        """Bytes of all bodies."""
        return self._body_bytes

    def take(self, max_messages: int, max_bytes: int) -> Sequence[int]:
        """Take the next messages out of the order of delivery, and return their rows; the caller leases them.

        The rows are a range if they are consecutive, as those of a queue mostly are.

        Args:
            max_messages: Maximum number of messages; below 1 for no message.
            max_bytes: Maximum size of their bodies together, unless the first one is larger.
        """
        if max_messages < 1:
            return ()
        if max_messages >= MANY_ROWS and (plain := self._take_plain(max_messages, max_bytes)):
            return plain
        taken: list[int] = []
        sizes = self.rows.sizes
        for row in self._ready_rows():
            max_bytes -= sizes[row]
            if max_bytes < 0 and taken:
                self._push_ready(row)
                break
            taken.append(row)
            if len(taken) == max_messages:
                break
        return consecutive(taken)

    def _take_plain(self, max_messages: int, max_bytes: int) -> range | None:
        """Take messages that have only bodies, in consecutive rows; None if the next ones are not of this kind."""
        rows = self.rows
        message_ids = self._ready.first_plain(max_messages)
        first = rows.find(message_ids[0]) if message_ids else -1
        if first < 0:
            return None
        found = range(first, first + len(message_ids))
        part = slice(first, found.stop)
        ids = rows.ids[part]
        if (
            ids.tolist() != message_ids
            or rows.due[part] != ids
            or rows.states[part].count(_AVAILABLE) != len(found)
            or sum(rows.sizes[part]) > max_bytes
            or any(rows.expires[part])
        ):
            return None
        self._ready.drop_plain(len(found))
        return found

    def _ready_rows(self) -> Iterator[int]:
        """Remove the entries of the order of delivery, and yield the rows of those that are not outdated."""
        rows = self.rows
        ids, states, due, expires, groups = rows.ids, rows.states, rows.due, rows.expires, rows.groups
        row = last = -1
        for message_id, due_tick in self._ready.pop_all():
            # Messages are mostly delivered in the order of their rows: the next one is tried first.
            row += 1
            if row >= len(ids) or ids[row] != message_id:
                row = rows.find(message_id)
            # Of equal entries, which come one after the other, one is valid.
            if row < 0 or states[row] != _AVAILABLE or due[row] != due_tick or row == last:
                continue
            if (expires[row] or groups[row]) and not self._is_deliverable(row):
                continue
            last = row
            yield row

    def overdue_leases(self, limit: int) -> list[int]:
        """Return the ids of at most ``limit`` messages whose leases ended at or before ``now``, earliest first.

        The caller ends these leases.
        """
        rows, found = self.rows, []
        for until, message_id in islice(self._leases.pop_until(self.now), limit):
            row = rows.find(message_id)
            if row >= 0 and rows.states[row] == _LEASED and rows.until[row] == until:
                found.append(message_id)
        # An extension to the same tick leaves two equal entries.
        return list(dict.fromkeys(found))

    def overdue_messages(self, limit: int) -> list[int]:
        """Return the ids of at most ``limit`` waiting messages that expired at or before ``now``.

        The caller deletes these messages. One that expires under a lease is returned later, if its lease ends without
        a confirmation.
        """
        rows, found = self.rows, []
        for expires, message_id in islice(self._expiries.pop_until(self.now), limit):
            row = rows.find(message_id)
            if row >= 0 and rows.states[row] in _WAITING and rows.expires[row] == expires:
                found.append(message_id)
        # A message whose lease ended after it expired may have two equal entries.
        return list(dict.fromkeys(found))

    def next_tick(self) -> int | None:
        """Return the next tick at which a message is due, a lease ends or a message expires; None without one."""
        ticks = (queue.first_tick() for queue in (self._delayed, self._leases, self._expiries))
        return min((tick for tick in ticks if tick is not None), default=None)

    # -- Parts of events -----------------------------------------------------------------------------------

    def rebuild(self) -> None:
        """Rebuild the queues from the rows; needed after a snapshot was loaded."""
        rows = self.rows
        self._ready, self._delayed, self._leases, self._expiries = ReadyQueue(), Deadlines(), Deadlines(), Deadlines()
        if rows.are_plain():
            self._ready.push_plain(rows.ids)
            return
        for group in self.groups.all():
            group.offered = 0
        of_state: dict[int, list[int]] = {_AVAILABLE: [], _DELAYED: [], _LEASED: [], _DEAD: [], _EXHAUSTED: []}
        for row in rows.live_rows():
            of_state[rows.states[row]].append(row)
        self._rebuild_ready(of_state[_AVAILABLE])
        ids, expires = rows.ids, rows.expires
        self._delayed.rebuild((rows.due[row], ids[row]) for row in of_state[_DELAYED])
        self._leases.rebuild((rows.until[row], ids[row]) for row in of_state[_LEASED])
        self._expiries.rebuild((expires[row], ids[row]) for row in rows.live_rows() if expires[row])

    def _rebuild_ready(self, available: Iterable[int]) -> None:
        rows = self.rows
        ids, due, groups, priorities = rows.ids, rows.due, rows.groups, rows.priorities
        plain: list[int] = []
        for row in available:
            if groups[row] or priorities[row] or due[row] != ids[row]:
                self._offer_row(row)
            else:
                plain.append(ids[row])
        self._ready.push_plain(plain)

    def recount(self) -> None:
        """Count the rows in each state, and list the exhausted ones; needed after a snapshot was loaded."""
        rows = self.rows
        self._numbers = [rows.states.count(state) for state in range(len(self._numbers))]
        self._numbers[_GONE] = 0
        self._body_bytes = sum(rows.sizes[row] for row in rows.live_rows()) if rows.gone else sum(rows.sizes)
        self.exhausted = deque(rows.ids[row] for row in rows.live_rows() if rows.states[row] == _EXHAUSTED)

    def _see(self, tick: int) -> None:
        self.now = max(self.now, tick)

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
        self._body_bytes -= rows.sizes[row]
        rows.remove(row)
        if self.blobs.keys:
            self.blobs.remove((rows.ids[row],))
        if rows.groups[row]:
            self._leave_group(rows.groups[row])

    def _join(self, number: int, message_id: int) -> None:
        group = self.groups.of(number)
        group.join(message_id)
        group.tidy(self._is_member)

    def _leave_group(self, number: int, *, is_lease_over: bool = False) -> None:
        """Count a deleted message of a group, and offer the next one."""
        group = self.groups.of(number)
        if is_lease_over:
            group.in_flight = 0
        if self.groups.leave(group):
            self._offer_group(group)

    def _wait(self, row: int) -> None:
        """Let a message whose state was set to AVAILABLE or DELAYED wait for its turn."""
        rows = self.rows
        if rows.expires[row] and rows.expires[row] <= self.now:
            # It expired under its lease: it is found again by the next look for overdue messages.
            self._expiries.push(rows.expires[row], rows.ids[row])
        if rows.states[row] == _DELAYED:
            self._delayed.push(rows.due[row], rows.ids[row])
        if rows.groups[row]:
            # Also if this message is delayed: its lease is over, and the first of its group may be another one.
            self._offer_group(self.groups.of(rows.groups[row]))
        elif rows.states[row] == _AVAILABLE:
            self._offer_row(row)

    def _offer_row(self, row: int) -> None:
        """Offer an available message for delivery, if it is in no group or the first of its group."""
        rows = self.rows
        if number := rows.groups[row]:
            self._offer_group(self.groups.of(number))
        else:
            self._push_ready(row)

    def _push_ready(self, row: int) -> None:
        rows = self.rows
        self._ready.push(rows.ids[row], rows.due[row], rows.priorities[row])

    def _offer_group(self, group: MessageGroup) -> None:
        """Offer the first message of a group, unless one is under a lease or the first one is not due."""
        rows = self.rows
        first = group.first(self._is_member)
        if not first or group.in_flight or group.offered == first:
            return
        row = rows.find(first)
        if rows.states[row] == _AVAILABLE:
            group.offered = first
            self._ready.push(first, rows.due[row], rows.priorities[row])

    def _is_deliverable(self, row: int) -> bool:
        """Return whether an available message has not expired, and is the first of its group."""
        rows = self.rows
        if 0 < rows.expires[row] <= self.now:
            return False
        number = rows.groups[row]
        return not number or self.groups.of(number).offered == rows.ids[row]

    def _is_member(self, message_id: int) -> bool:
        row = self.rows.find(message_id)
        return row >= 0 and self.rows.states[row] in _MEMBERS

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
        """Remove rows of deleted messages, and rebuild queues whose entries are mostly outdated.

        Called after the state of ``messages`` has changed; it looks at the queues now and then.
        """
        self._untidy += messages
        if self._untidy < _TIDY_AFTER:
            return
        self._untidy, rows = 0, self.rows
        rows.compact()
        # The usual case of a queue: the oldest leases end first.
        self._leases.drop_others(self.locks.message_ids)
        if needs_rebuild(len(self._leases), self._numbers[_LEASED]):
            find = rows.find
            self._leases.rebuild((rows.until[find(message_id)], message_id) for message_id, _ in self.locks.all())
        if needs_rebuild(max(len(self._ready), len(self._delayed), len(self._expiries)), rows.live):
            self.rebuild()

    def _oldest_available(self) -> int:
        if not self._numbers[_AVAILABLE]:
            return 0
        row = self.rows.states.find(_AVAILABLE)
        return self.rows.ids[row] if row >= 0 else 0
