"""The messages of a mailbox in memory: one row each, in columns, about 60 bytes. Pure.

Why columns: a million objects take five times the memory, and the garbage collector visits them; and a snapshot of
columns is a few copies of memory.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator, Sequence
from itertools import compress
from typing import Final, NamedTuple, TypeAlias

from tidelog_server.core.mailboxes import DeliveryStatus, MessageState

# Rows of deleted messages are removed once they are half of all, and at least this number.
_MIN_GONE: Final = 1_024
_WIDE: Final = ("ids", "due", "expires", "until", "places")
_MEDIUM: Final = ("deliveries", "groups", "sizes")
_NARROW: Final = ("states", "statuses", "priorities")
COLUMNS: Final = (*_WIDE, *_MEDIUM, *_NARROW)
"""The names of the columns, in the order in which snapshots have them."""
MANY_ROWS: Final = 8
"""Rows from which on a slice of a column takes less time than the values one by one."""
ROW_BYTES: Final = 8 * len(_WIDE) + 4 * len(_MEDIUM) + len(_NARROW)
"""Size of a row in a snapshot."""
# A plain integer: comparisons with a member of an enumeration take longer.
_GONE: Final = int(MessageState.GONE)


Column: TypeAlias = "array[int] | bytearray"


class NewRow(NamedTuple):
    """A message that was sent.

    Attributes:
        message_id: Its tick.
        due_tick: Tick from which it is available.
        expires_tick: Tick at which it expires; 0 for never.
        priority: Its priority.
        group: Number of its group; 0 for no group.
        size_bytes: Size of its body.
        place: Tick of the message in the log that has its body.
    """

    message_id: int
    due_tick: int
    expires_tick: int
    priority: int
    group: int
    size_bytes: int
    place: int


def consecutive(rows: list[int]) -> Sequence[int]:
    """Return the same rows, as a range if they are many and consecutive: ``pick`` and ``fill`` are fast then."""
    if len(rows) >= MANY_ROWS and rows[-1] - rows[0] == len(rows) - 1:
        found = range(rows[0], rows[-1] + 1)
        if rows == list(found):
            return found
    return rows


def pick(column: Column, rows: Sequence[int]) -> Sequence[int]:
    """Return the values of rows in a column."""
    if isinstance(rows, range):
        return column[rows.start : rows.stop]
    return [column[row] for row in rows]


def fill(column: Column, rows: Sequence[int], value: int) -> None:
    """Set the values of rows in a column."""
    if not isinstance(rows, range):
        for row in rows:
            column[row] = value
    elif isinstance(column, bytearray):
        column[rows.start : rows.stop] = bytes((value,)) * len(rows)
    else:
        column[rows.start : rows.stop] = array(column.typecode, (value,)) * len(rows)


class Rows:
    """Rows in the order of their ids. A row number is valid until the next call of ``compact``.

    Attributes:
        ids: Ids, growing.
        due: Ticks from which messages are available.
        expires: Ticks at which messages expire; 0 for never.
        until: Ticks at which leases end; 0 without a lease.
        places: Ticks of the messages in the log that have the bodies.
        deliveries: Numbers of deliveries.
        groups: Numbers of groups; 0 for no group.
        sizes: Sizes of bodies in bytes.
        states, statuses: MessageState and DeliveryStatus of each message.
        priorities: Priorities.
        gone: Number of rows whose state is GONE.
    """

    __slots__ = (*COLUMNS, "gone")

    def __init__(self) -> None:
        self.ids = array("Q")
        self.due = array("Q")
        self.expires = array("Q")
        self.until = array("Q")
        self.places = array("Q")
        self.deliveries = array("I")
        self.groups = array("I")
        self.sizes = array("I")
        self.states = bytearray()
        self.statuses = bytearray()
        self.priorities = bytearray()
        self.gone = 0

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def live(self) -> int:
        """Number of messages."""
        return len(self.ids) - self.gone

    def find(self, message_id: int) -> int:
        """Return the row of a message; -1 if the mailbox does not have it."""
        row = bisect_left(self.ids, message_id)
        if row == len(self.ids) or self.ids[row] != message_id or self.states[row] == _GONE:
            return -1
        return row

    def locate(self, message_id: int) -> int:
        """Return the row of a message that the mailbox has. Raises KeyError if it does not have it."""
        row = self.find(message_id)
        if row < 0:
            raise KeyError(f"the mailbox does not have message {message_id}")
        return row

    def locate_all(self, message_ids: Sequence[int]) -> Sequence[int]:
        """Return the rows of messages that the mailbox has; a range if they are many and consecutive.

        Raises:
            KeyError: The mailbox does not have one of them.
        """
        if len(message_ids) >= MANY_ROWS:
            first = self.locate(message_ids[0])
            found = range(first, first + len(message_ids))
            part = slice(first, found.stop)
            if self.ids[part].tolist() == list(message_ids) and _GONE not in self.states[part]:
                return found
        return [self.locate(message_id) for message_id in message_ids]

    def add(self, new: NewRow, state: int) -> None:
        """Add a message whose id is greater than all before."""
        assert not self.ids or self.ids[-1] < new.message_id
        self.ids.append(new.message_id)
        self.due.append(new.due_tick)
        self.expires.append(new.expires_tick)
        self.until.append(0)
        self.places.append(new.place)
        self.deliveries.append(0)
        self.groups.append(new.group)
        self.sizes.append(new.size_bytes)
        self.states.append(state)
        self.statuses.append(DeliveryStatus.NOT_DELIVERED)
        self.priorities.append(new.priority)

    def add_plain(self, first_id: int, sizes: Sequence[int]) -> None:
        """Add available messages with consecutive ids that have a body and nothing else; their place is their id."""
        assert not self.ids or self.ids[-1] < first_id
        count = len(sizes)
        ids, zeros = array("Q", range(first_id, first_id + count)), bytes(8 * count)
        for column in (self.ids, self.due, self.places):
            column.extend(ids)
        for column in (self.expires, self.until):
            column.frombytes(zeros)
        for column in (self.deliveries, self.groups):
            column.frombytes(zeros[: 4 * count])
        self.sizes.extend(sizes)
        self.states += bytes((MessageState.AVAILABLE,)) * count
        self.statuses += bytes((DeliveryStatus.NOT_DELIVERED,)) * count
        self.priorities += zeros[:count]

    def after(self, message_id: int, states: Container[int], limit: int) -> list[int]:
        """Return at most ``limit`` rows of messages in one of ``states`` whose ids are above ``message_id``."""
        # At the speed of memory: a Python loop over a million rows would block the event loop.
        wanted = self.states.translate(bytes(state in states for state in range(256)))
        found, row = list[int](), wanted.find(1, bisect_right(self.ids, message_id))
        while row >= 0 and len(found) < limit:
            found.append(row)
            row = wanted.find(1, row + 1)
        return found

    def ids_after(self, message_id: int, excluded: Container[int], limit: int) -> "tuple[array[int], int]":
        """Look at the next ``limit`` rows above an id; return the ids in no state of ``excluded``, and the last id.

        The last id is 0 if there are no more rows.
        """
        begin = bisect_right(self.ids, message_id)
        ids, states = self.ids[begin : begin + limit], self.states[begin : begin + limit]
        wanted = states.translate(bytes(state not in excluded and state != _GONE for state in range(256)))
        return array("Q", compress(ids, wanted)), ids[-1] if ids else 0

    def remove(self, row: int) -> None:
        """Mark a row as gone."""
        assert self.states[row] != _GONE
        self.states[row] = _GONE
        self.gone += 1

    def remove_all(self, rows: Sequence[int]) -> None:
        """Mark rows as gone."""
        fill(self.states, rows, _GONE)
        self.gone += len(rows)

    def compact(self) -> None:
        """Remove the rows of deleted messages if they are half of all."""
        if self.gone >= _MIN_GONE and 2 * self.gone >= len(self.ids):
            self.remove_gone()

    def remove_gone(self) -> None:
        """Remove the rows of deleted messages."""
        if not self.gone:
            return
        # `lstrip` counts the rows that are gone at the beginning at the speed of memory.
        begin = len(self.states) - len(self.states.lstrip(_GONE_BYTE))
        if begin == self.gone:
            # The usual case of a queue: the oldest messages are deleted first.
            for name in COLUMNS:
                del getattr(self, name)[:begin]
        else:
            keep = self.states.translate(_IS_LIVE)
            for name in COLUMNS:
                column = getattr(self, name)
                kept = compress(column, keep)
                setattr(self, name, bytearray(kept) if isinstance(column, bytearray) else array(column.typecode, kept))
        self.gone = 0

    def live_flags(self) -> bytearray:
        """Return 1 for each message and 0 for each row of a deleted one."""
        return self.states.translate(_IS_LIVE)

    def live_rows(self) -> Iterator[int]:
        """Yield the rows of messages, in order of id."""
        states = self.states
        return (row for row in range(len(states)) if states[row] != _GONE)

    def are_plain(self) -> bool:
        """Return whether all rows are as ``add_plain`` adds them."""
        return (
            self.states.count(MessageState.AVAILABLE) == len(self.states)
            and self.due == self.ids
            and not any(self.expires)
            and not any(self.groups)
            and not any(self.priorities)
        )


_GONE_BYTE: Final = bytes((_GONE,))
# Translates states to 1 for live rows and 0 for others.
_IS_LIVE: Final = bytes(0 if state == _GONE else 1 for state in range(256))
