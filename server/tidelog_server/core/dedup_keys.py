"""Deduplication keys that a mailbox remembers, as hashes. Pure; time is passed in as ticks.

The log has the keys themselves. In memory, and in snapshots, a key is 16 bytes of its hash, whatever its length: two
keys with one hash are less likely than a fault of the memory.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Final

from tidelog_server.core.limits import DEDUP_HASH_BYTES, DEDUP_KEY_MEMORY_BYTES

_TICK_BITS: Final = 64
_TICK_MASK: Final = (1 << _TICK_BITS) - 1
_HASH_BITS: Final = 8 * DEDUP_HASH_BYTES
_HASH_MASK: Final = (1 << _HASH_BITS) - 1
# Keys that one call of ``advance`` forgets: a million at once would block the event loop.
_MAX_FORGOTTEN: Final = 1_000
_HEAP_ENTRY_BYTES: Final = 72


# A send needs the hash of a key several times; a step has at most this number of messages.
@lru_cache(maxsize=2_048)
def hash_of(key: str) -> int:
    """Return the hash under which a key is remembered."""
    return int.from_bytes(blake2b(key.encode(), digest_size=DEDUP_HASH_BYTES).digest(), "little")


class DedupKeys:
    """Ids of messages by the hash of their key, each until a tick.

    All values are integers, which the garbage collector does not visit.
    """

    __slots__ = ("_found", "_heap", "_peak", "_run", "_run_until")

    def __init__(self) -> None:
        # By hash: the id, and below it the tick until which it is remembered.
        self._found: dict[int, int] = {}
        # The number for which the dictionary has room, about.
        self._peak = 0
        # Hashes in the order in which they are forgotten: those of one window come in order, and need no heap. Entries
        # of the heap have the tick above the hash.
        self._run: deque[int] = deque()
        self._run_until = 0
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._found)

    @property
    def memory_bytes(self) -> int:
        """Memory of the keys, about."""
        return DEDUP_KEY_MEMORY_BYTES * len(self._found) + _HEAP_ENTRY_BYTES * len(self._heap)

    def add(self, hashed: int, message_id: int, until: int) -> None:
        """Remember the id of a message until a tick; the key replaces an earlier one."""
        self._found[hashed] = message_id << _TICK_BITS | until
        self._peak = max(self._peak, len(self._found))
        if until >= self._run_until or not self._run:
            self._run.append(hashed)
            self._run_until = until
        else:
            heappush(self._heap, until << _HASH_BITS | hashed)

    def find(self, key: str, now: int) -> int:
        """Return the id of the message that was sent with a key that is remembered at the tick ``now``; else 0."""
        found = self._found.get(hash_of(key), 0)
        return found >> _TICK_BITS if found & _TICK_MASK > now else 0

    def advance(self, now: int) -> None:
        """Forget keys that are remembered until ``now`` at most; the next call continues after a thousand."""
        for _ in range(_MAX_FORGOTTEN):
            first = self._first()
            if first is None or first[0] > now:
                break
            until, hashed, is_of_heap = first
            if is_of_heap:
                heappop(self._heap)
            else:
                self._run.popleft()
            # A key that was added again has another entry.
            found = self._found.get(hashed)
            if found is not None and found & _TICK_MASK == until:
                del self._found[hashed]
        if 4 * len(self._found) + _MAX_FORGOTTEN < self._peak:
            # A dictionary keeps the memory of deleted items; a copy has what it needs.
            self._found, self._peak = dict(self._found), len(self._found)

    def next_until(self) -> int | None:
        """Return the tick at which the next key is forgotten; None without keys."""
        first = self._first()
        return None if first is None else first[0]

    def all(self) -> Iterator[tuple[int, int, int]]:
        """Yield the hash of each key, the id of its message, and the tick until which it is remembered."""
        return keys_of(self._found, self._found.values())

    def frozen(self) -> tuple[list[int], list[int]]:
        """Return the keys as they are now, for ``keys_of``."""
        return list(self._found), list(self._found.values())

    def _first(self) -> tuple[int, int, bool] | None:
        """Return the entry that ends first: its tick and its hash, and whether it is in the heap."""
        heap, run = self._heap, self._run
        of_run = self._found.get(run[0], 0) & _TICK_MASK if run else None
        if heap and (of_run is None or heap[0] >> _HASH_BITS < of_run):
            return heap[0] >> _HASH_BITS, heap[0] & _HASH_MASK, True
        return None if of_run is None else (of_run, run[0], False)


def keys_of(hashes: Iterable[int], found: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """Yield keys that are in memory as ``DedupKeys`` has them, as its method ``all``."""
    return ((hashed, each >> _TICK_BITS, each & _TICK_MASK) for hashed, each in zip(hashes, found, strict=True))
