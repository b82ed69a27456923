"""The order of delivery of a mailbox's messages, and the times at which something happens to them. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from tidelog_server.core.mailboxes import MessageState
from tidelog_server.mailboxes.messages.groups import Groups, MessageGroup
from tidelog_server.mailboxes.messages.locks import Locks
from tidelog_server.mailboxes.messages.queues import Deadlines, ReadyQueue, needs_rebuild
from tidelog_server.mailboxes.messages.rows import MANY_ROWS, Rows, consecutive

# Plain integers: operations on members of an enumeration take longer.
_AVAILABLE: Final = int(MessageState.AVAILABLE)
_DELAYED: Final = int(MessageState.DELAYED)
_LEASED: Final = int(MessageState.LEASED)
_DEAD: Final = int(MessageState.DEAD)
_EXHAUSTED: Final = int(MessageState.EXHAUSTED)
_WAITING: Final = (_AVAILABLE, _DELAYED)
_MEMBERS: Final = (_AVAILABLE, _DELAYED, _LEASED)


class Order:
    """Which message is delivered next, and which is due, loses its lease or expires next.

    It follows from the rows and the groups. Their state changes without it, so its entries may be outdated.

    Attributes:
        ready: Messages that can be fetched.
        delayed: Messages that are due later.
        leases: Ends of leases.
        expiries: Times at which messages expire.
    """

    __slots__ = ("_groups", "_rows", "delayed", "expiries", "leases", "ready")

    def __init__(self, rows: Rows, groups: Groups) -> None:
        self._rows = rows
        self._groups = groups
        self.ready = ReadyQueue()
        self.delayed, self.leases, self.expiries = Deadlines(), Deadlines(), Deadlines()

    @property
    def memory_bytes(self) -> int:
        """Memory of the entries, about."""
        deadlines = self.delayed.memory_bytes + self.leases.memory_bytes + self.expiries.memory_bytes
        return self.ready.memory_bytes + deadlines

    def next_tick(self) -> int | None:
        """Return the next tick at which a message is due, a lease ends or a message expires; None without one."""
        ticks = (queue.first_tick() for queue in (self.delayed, self.leases, self.expiries))
        return min((tick for tick in ticks if tick is not None), default=None)

    # -- Delivery --------------------------------------------------------------------------------------------

    def take(self, max_messages: int, max_bytes: int, now: int) -> Sequence[int]:
        """Take the next messages out of the order of delivery, and return their rows; the caller leases them.

        The rows are a range if they are consecutive, as those of a queue mostly are.

        Args:
            max_messages: Maximum number of messages; below 1 for no message.
            max_bytes: Maximum size of their bodies together, unless the first one is larger.
            now: The present tick: expired messages are skipped.
        """
        if max_messages < 1:
            return ()
        if max_messages >= MANY_ROWS and (plain := self._take_plain(max_messages, max_bytes)):
            return plain
        taken: list[int] = []
        sizes = self._rows.sizes
        for row in self._ready_rows(now):
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
        rows = self._rows
        message_ids = self.ready.first_plain(max_messages)
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
        self.ready.drop_plain(len(found))
        return found

    def _ready_rows(self, now: int) -> Iterator[int]:
        """Remove the entries of the order of delivery, and yield the rows of those that are not outdated."""
        rows = self._rows
        ids, states, due, expires, groups = rows.ids, rows.states, rows.due, rows.expires, rows.groups
        row = last = -1
        for message_id, due_tick in self.ready.pop_all():
            # Messages are mostly delivered in the order of their rows: the next one is tried first.
            row += 1
            if row >= len(ids) or ids[row] != message_id:
                row = rows.find(message_id)
            # Of equal entries, which come one after the other, one is valid.
            if row < 0 or states[row] != _AVAILABLE or due[row] != due_tick or row == last:
                continue
            if (expires[row] or groups[row]) and not self._is_deliverable(row, now):
                continue
            last = row
            yield row

    def overdue_leases(self, limit: int, now: int) -> list[int]:
        """Return the ids of at most ``limit`` messages whose leases ended at or before ``now``, earliest first.

        The caller ends these leases.
        """
        rows, found = self._rows, []
        for until, message_id in islice(self.leases.pop_until(now), limit):
            row = rows.find(message_id)
            if row >= 0 and rows.states[row] == _LEASED and rows.until[row] == until:
                found.append(message_id)
        # An extension to the same tick leaves two equal entries.
        return list(dict.fromkeys(found))

    def overdue_messages(self, limit: int, now: int) -> list[int]:
        """Return the ids of at most ``limit`` waiting messages that expired at or before ``now``.

        The caller deletes these messages. One that expires under a lease is returned later, if its lease ends without
        a confirmation.
        """
        rows, found = self._rows, []
        for expires, message_id in islice(self.expiries.pop_until(now), limit):
            row = rows.find(message_id)
            if row >= 0 and rows.states[row] in _WAITING and rows.expires[row] == expires:
                found.append(message_id)
        # A message whose lease ended after it expired may have two equal entries.
        return list(dict.fromkeys(found))

    # -- Changes of messages -----------------------------------------------------------------------------------

    def due(self, now: int) -> Iterator[int]:
        """Remove and yield the rows of delayed messages that are due at the tick ``now``."""
        rows = self._rows
        for due_tick, message_id in self.delayed.pop_until(now):
            row = rows.find(message_id)
            if row >= 0 and rows.states[row] == _DELAYED and rows.due[row] == due_tick:
                yield row

    def join(self, number: int, message_id: int) -> None:
        """Add a message to its group."""
        group = self._groups.of(number)
        group.join(message_id)
        group.tidy(self._is_member)

    def leave(self, number: int, *, is_lease_over: bool = False) -> None:
        """Count a deleted message of a group, and offer the next one."""
        group = self._groups.of(number)
        if is_lease_over:
            group.in_flight = 0
        if self._groups.leave(group):
            self.offer_group(group)

    def wait(self, row: int, now: int) -> None:
        """Let a message whose state was set to AVAILABLE or DELAYED wait for its turn."""
        rows = self._rows
        if rows.expires[row] and rows.expires[row] <= now:
            # It expired under its lease: it is found again by the next look for overdue messages.
            self.expiries.push(rows.expires[row], rows.ids[row])
        if rows.states[row] == _DELAYED:
            self.delayed.push(rows.due[row], rows.ids[row])
        if rows.groups[row]:
            # Also if this message is delayed: its lease is over, and the first of its group may be another one.
            self.offer_group(self._groups.of(rows.groups[row]))
        elif rows.states[row] == _AVAILABLE:
            self.offer_row(row)

    def offer_row(self, row: int) -> None:
        """Offer an available message for delivery, if it is in no group or the first of its group."""
        rows = self._rows
        if number := rows.groups[row]:
            self.offer_group(self._groups.of(number))
        else:
            self._push_ready(row)

    def _push_ready(self, row: int) -> None:
        rows = self._rows
        self.ready.push(rows.ids[row], rows.due[row], rows.priorities[row])

    def offer_group(self, group: MessageGroup) -> None:
        """Offer the first message of a group, unless one is under a lease or the first one is not due."""
        rows = self._rows
        first = group.first(self._is_member)
        if not first or group.in_flight or group.offered == first:
            return
        row = rows.find(first)
        if rows.states[row] == _AVAILABLE:
            group.offered = first
            self.ready.push(first, rows.due[row], rows.priorities[row])

    def _is_deliverable(self, row: int, now: int) -> bool:
        """Return whether an available message has not expired, and is the first of its group."""
        rows = self._rows
        if 0 < rows.expires[row] <= now:
            return False
        number = rows.groups[row]
        return not number or self._groups.of(number).offered == rows.ids[row]

    def _is_member(self, message_id: int) -> bool:
        row = self._rows.find(message_id)
        return row >= 0 and self._rows.states[row] in _MEMBERS

    def rebuild(self) -> None:
        """Rebuild the queues from the rows; needed after a snapshot was loaded."""
        rows = self._rows
        self.ready, self.delayed, self.leases, self.expiries = ReadyQueue(), Deadlines(), Deadlines(), Deadlines()
        if rows.are_plain():
            self.ready.plain.extend(rows.ids)
            return
        for group in self._groups.by_number.values():
            group.offered = 0
        of_state: dict[int, list[int]] = {_AVAILABLE: [], _DELAYED: [], _LEASED: [], _DEAD: [], _EXHAUSTED: []}
        for row in rows.live_rows():
            of_state[rows.states[row]].append(row)
        self._rebuild_ready(of_state[_AVAILABLE])
        ids, expires = rows.ids, rows.expires
        self.delayed.rebuild((rows.due[row], ids[row]) for row in of_state[_DELAYED])
        self.leases.rebuild((rows.until[row], ids[row]) for row in of_state[_LEASED])
        self.expiries.rebuild((expires[row], ids[row]) for row in rows.live_rows() if expires[row])

    def _rebuild_ready(self, available: Iterable[int]) -> None:
        rows = self._rows
        ids, due, groups, priorities = rows.ids, rows.due, rows.groups, rows.priorities
        plain: list[int] = []
        for row in available:
            if groups[row] or priorities[row] or due[row] != ids[row]:
                self.offer_row(row)
            else:
                plain.append(ids[row])
        self.ready.plain.extend(plain)

    def tidy(self, locks: Locks) -> None:
        """Rebuild queues whose entries are mostly outdated. ``locks`` are those of the leased messages."""
        rows = self._rows
        # The usual case of a queue: the oldest leases end first.
        self.leases.drop_others(locks.by_message)
        if needs_rebuild(len(self.leases), len(locks)):
            find = rows.find
            self.leases.rebuild((rows.until[find(message_id)], message_id) for message_id in locks.by_message)
        if needs_rebuild(max(len(self.ready), len(self.delayed), len(self.expiries)), rows.live):
            self.rebuild()
