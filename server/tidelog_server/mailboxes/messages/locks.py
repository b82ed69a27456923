"""Locks of deliveries: those of leased messages, and those that ended lately. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import islice
from typing import Final

from tidelog_server.core.limits import ENDED_LOCK_MEMORY_BYTES, MAX_ENDED_LOCKS

# Measured in processes that hold a million of each, as the memory of all that mailboxes hold in core/limits.py.
LEASE_MEMORY_BYTES: Final = 184


class LockEnd(IntEnum):
    """How a lock ended. On disk in snapshots."""

    ACKNOWLEDGED = 1
    EXPIRED = 2


class Locks:
    """Locks by id, and the lock of each leased message.

    Invariant: a message has at most one lock, and a lock at most one message.

    Attributes:
        by_message: The lock of each leased message, by id.
    """

    __slots__ = ("_ended", "_ended_earlier", "_half", "_messages", "by_message")

    def __init__(self) -> None:
        self._messages: dict[bytes, int] = {}
        self.by_message: dict[int, bytes] = {}
        # Message ids of ended locks, negative for leases that expired, in two generations: to forget a generation takes
        # less time than to forget each lock.
        self._ended: dict[bytes, int] = {}
        self._ended_earlier: dict[bytes, int] = {}
        # Ended locks of a generation.
        self._half = MAX_ENDED_LOCKS // 2

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def memory_bytes(self) -> int:
        """Memory of the locks of leased messages, and of ended ones, about."""
        ended = len(self._ended) + len(self._ended_earlier)
        return LEASE_MEMORY_BYTES * len(self._messages) + ENDED_LOCK_MEMORY_BYTES * ended

    def remember(self, maximum: int) -> None:
        """Remember at most ``maximum`` ended locks from now on, at least 2, and forget older ones."""
        if self._half == maximum // 2:
            return
        self._half = maximum // 2
        if len(self._ended) >= self._half:
            self._ended_earlier, self._ended = _last(self._ended, self._half), {}
        else:
            self._ended_earlier = _last(self._ended_earlier, self._half)

    def add(self, lock_id: bytes, message_id: int) -> None:
        """Add the lock of a message that has no lock."""
        self.add_all((lock_id,), (message_id,))

    def add_all(self, lock_ids: Sequence[bytes], message_ids: Sequence[int]) -> None:
        """Add the locks of messages that have no lock."""
        count = len(self._messages) + len(lock_ids)
        self._messages.update(zip(lock_ids, message_ids, strict=True))
        self.by_message.update(zip(message_ids, lock_ids, strict=True))
        assert len(self._messages) == len(self.by_message) == count

    def message_of(self, lock_id: bytes) -> int:
        """Return the id of the message under a lock; 0 if the lock is unknown or has ended."""
        return self._messages.get(lock_id, 0)

    def messages_of(self, lock_ids: Iterable[bytes]) -> list[int]:
        """Return what ``message_of`` returns, for each lock."""
        get = self._messages.get
        return [get(lock_id, 0) for lock_id in lock_ids]

    def end(self, message_id: int, how: LockEnd) -> None:
        """End the lock of a leased message. Raises KeyError if it has no lock."""
        self.end_all((message_id,), how)

    def end_all(self, message_ids: Sequence[int], how: LockEnd) -> None:
        """End the locks of leased messages. Raises KeyError if one has no lock."""
        lock_ids = list(map(self.by_message.pop, message_ids))
        for lock_id in lock_ids:
            del self._messages[lock_id]
        ended = message_ids if how is LockEnd.ACKNOWLEDGED else [-message_id for message_id in message_ids]
        begin = 0
        while begin < len(lock_ids):
            end = begin + self._half - len(self._ended)
            self._ended.update(zip(lock_ids[begin:end], ended[begin:end], strict=True))
            begin = end
            self._age()

    def ended(self, lock_id: bytes) -> tuple[int, LockEnd] | None:
        """Return the message and the end of a lock; None if that is not known."""
        found = self._ended.get(lock_id) or self._ended_earlier.get(lock_id)
        return None if found is None else _decode_end(found)

    def restore_ended(self, lock_id: bytes, message_id: int, how: LockEnd) -> None:
        """Remember an ended lock that a snapshot has."""
        self._ended[lock_id] = message_id if how is LockEnd.ACKNOWLEDGED else -message_id
        self._age()

    def all_ended(self) -> Iterator[tuple[bytes, int, LockEnd]]:
        """Yield the lock, message id and end of each remembered lock, oldest first.

        They are at most the maximum of ``remember``, MAX_ENDED_LOCKS by default, and at least the last half of it.
        """
        for generation in (self._ended_earlier, self._ended):
            for lock_id, found in generation.items():
                yield (lock_id, *_decode_end(found))

    def _age(self) -> None:
        if len(self._ended) >= self._half:
            self._ended_earlier, self._ended = self._ended, {}


def _last(ended: dict[bytes, int], number: int) -> dict[bytes, int]:
    """Return the ``number`` newest of some ended locks."""
    return dict(islice(ended.items(), max(0, len(ended) - number), None))


def _decode_end(found: int) -> tuple[int, LockEnd]:
    return (found, LockEnd.ACKNOWLEDGED) if found > 0 else (-found, LockEnd.EXPIRED)
