"""Ordered groups of messages: one message of a group is under a lease at a time, the oldest first. Pure."""

from collections.abc import Callable
from heapq import heappop, heappush
from sys import getsizeof
from typing import Final

from tidelog_server.core.limits import MEMBER_MEMORY_BYTES

# Of a group beyond its name, measured in processes that hold a million of each.
GROUP_MEMORY_BYTES: Final = 360

# The members of a group are cleaned up if they are twice as many as its messages, and this number more.
_SPARE_MEMBERS: Final = 16


class MessageGroup:
    """The messages of a group.

    Attributes:
        number: Number of the group in the rows of the mailbox.
        name: Its name.
        size: Number of its messages, dead ones included.
        members: Ids of messages that are neither deleted nor dead, as a heap, and of some that left.
        in_flight: Id of the message under a lease; 0 without one.
        offered: Id of the first message, if it was offered for delivery; else 0.
    """

    __slots__ = ("in_flight", "members", "name", "number", "offered", "size")

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.size = 0
        self.members: list[int] = []
        self.in_flight = 0
        self.offered = 0

    def join(self, message_id: int) -> None:
        """Add a message that is neither deleted nor dead; ``Groups.enter`` counts a new one."""
        heappush(self.members, message_id)

    def tidy(self, is_member: Callable[[int], bool]) -> None:
        """Remove the ids of messages that left, if they are many. ``is_member`` reports which have not left."""
        if len(self.members) > 2 * self.size + _SPARE_MEMBERS:
            # A sorted list is a heap. A message that was dead for a time may be in it twice.
            self.members = sorted(filter(is_member, set(self.members)))

    def first(self, is_member: Callable[[int], bool]) -> int:
        """Return the id of the oldest message; 0 if the group is empty. ``is_member`` reports which have not left."""
        members = self.members
        while members and not is_member(members[0]):
            heappop(members)
        return members[0] if members else 0


class Groups:
    """The groups of a mailbox, by name and by number. A group exists while it has messages.

    Attributes:
        by_number: All groups.
        memory_bytes: Memory of the groups and of what they have of their messages, about.
    """

    __slots__ = ("_by_name", "_free", "_next_number", "by_number", "memory_bytes")

    def __init__(self) -> None:
        self.memory_bytes = 0
        self._by_name: dict[str, MessageGroup] = {}
        self.by_number: dict[int, MessageGroup] = {}
        self._next_number = 1
        # Numbers of removed groups, to be used again: a number has 32 bits, and a mailbox may see more groups.
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.by_number)

    def number_of(self, name: str) -> int:
        """Return the number of a group, which is created if needed; 0 for an empty name."""
        if not name:
            return 0
        group = self._by_name.get(name)
        if group is None:
            group = self.restore(self._free.pop() if self._free else self._next_number, name)
        return group.number

    def restore(self, number: int, name: str) -> MessageGroup:
        """Create a group with a number that a snapshot has."""
        assert name not in self._by_name
        assert number not in self.by_number
        group = self._by_name[name] = self.by_number[number] = MessageGroup(number, name)
        self._next_number = max(self._next_number, number + 1)
        self.memory_bytes += group_memory_bytes(name)
        return group

    def of(self, number: int) -> MessageGroup:
        """Return the group with this number, which is not 0."""
        return self.by_number[number]

    def name_of(self, number: int) -> str:
        """Return the name of a group; empty for number 0."""
        return self.by_number[number].name if number else ""

    def has(self, name: str) -> bool:
        """Return whether a group exists."""
        return name in self._by_name

    def enter(self, group: MessageGroup) -> None:
        """Count a new message."""
        group.size += 1
        self.memory_bytes += MEMBER_MEMORY_BYTES

    def leave(self, group: MessageGroup) -> bool:
        """Count a deleted message; return False if it was the last one, and the group was removed."""
        group.size -= 1
        self.memory_bytes -= MEMBER_MEMORY_BYTES
        if not group.size:
            self.memory_bytes -= group_memory_bytes(group.name)
            del self._by_name[group.name], self.by_number[group.number]
            self._free.append(group.number)
        return group.size > 0


def group_memory_bytes(name: str) -> int:
    """Return the memory of a group, about. A name may take four bytes for each of its characters."""
    return GROUP_MEMORY_BYTES + getsizeof(name)
