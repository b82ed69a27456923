"""Orders of messages: the next one to deliver, and what happens at which time. Pure.

Entries are not removed when the state of their message changes: the caller skips outdated entries, and rebuilds a
queue that has too many. All keys are integers, so that a queue of a million messages has no objects that the garbage
collector visits.
"""

from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import Final

from tidelog_server.core.limits import ENTRY_MEMORY_BYTES, MAX_PRIORITY, SMALL_ENTRY_MEMORY_BYTES

_ID_BITS: Final = 64
_ID_MASK: Final = (1 << _ID_BITS) - 1
_DEFAULT: Final = MAX_PRIORITY << 2 * _ID_BITS
# A queue is rebuilt if it has twice as many entries as there are messages, and this number more.
_SPARE_ENTRIES: Final = 1_024


def needs_rebuild(entries: int, messages: int) -> bool:
    """Return whether a queue with ``entries`` has too many outdated ones.

    Args:
        entries: Number of entries.
        messages: Number of messages that a rebuild visits, so that its time is spread over that number of entries.
    """
    return entries > 2 * messages + _SPARE_ENTRIES


class ReadyQueue:
    """Messages that can be fetched: by priority, greatest first; then by due time and id, smallest first.

    Attributes:
        plain: Ids of messages with priority 0 whose due time is their id, in order: no heap is needed for them. Each id
            that is added is greater than all added before.
    """

    __slots__ = ("_heap", "plain")

    def __init__(self) -> None:
        self.plain: deque[int] = deque()
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self.plain) + len(self._heap)

    @property
    def memory_bytes(self) -> int:
        """Memory of the entries, about."""
        return SMALL_ENTRY_MEMORY_BYTES * len(self.plain) + ENTRY_MEMORY_BYTES * len(self._heap)

    def push(self, message_id: int, due_tick: int, priority: int) -> None:
        """Add a message."""
        heappush(self._heap, (MAX_PRIORITY - priority) << 2 * _ID_BITS | due_tick << _ID_BITS | message_id)

    def first_plain(self, count: int) -> list[int]:
        """Return the first messages if ``plain`` has all in the queue; they are not removed."""
        return [] if self._heap else list(islice(self.plain, count))

    def drop_plain(self, count: int) -> None:
        """Remove that number of messages which ``first_plain`` has returned."""
        for _ in range(count):
            self.plain.popleft()

    def pop_all(self) -> Iterator[tuple[int, int]]:
        """Remove and yield the entries, as message id and due tick, until the caller stops.

        Equal entries come one after the other.
        """
        heap, plain = self._heap, self.plain
        while plain or heap:
            if heap and (not plain or heap[0] < (_DEFAULT | plain[0] << _ID_BITS | plain[0])):
                key = heappop(heap)
                yield key & _ID_MASK, key >> _ID_BITS & _ID_MASK
            else:
                message_id = plain.popleft()
                yield message_id, message_id

    def drop_first(self, message_ids: Container[int]) -> None:
        """Remove the first entries as long as they are of these messages."""
        heap, plain = self._heap, self.plain
        while plain and plain[0] in message_ids:
            plain.popleft()
        while heap and heap[0] & _ID_MASK in message_ids:
            heappop(heap)


class Deadlines:
    """Times of messages, earliest first. A message may have several entries."""

    __slots__ = ("_heap", "_run")

    def __init__(self) -> None:
        # Entries that were added in order, as those of leases of the same duration: no heap is needed for them.
        self._run: deque[int] = deque()
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._run) + len(self._heap)

    @property
    def memory_bytes(self) -> int:
        """Memory of the entries, about."""
        return ENTRY_MEMORY_BYTES * len(self)

    def push(self, tick: int, message_id: int) -> None:
        """Add an entry."""
        key, run = tick << _ID_BITS | message_id, self._run
        if not run or run[-1] <= key:
            run.append(key)
        else:
            heappush(self._heap, key)

    def push_all(self, tick: int, message_ids: Sequence[int]) -> None:
        """Add entries with the same tick."""
        begin, run = tick << _ID_BITS, self._run
        keys = [begin | message_id for message_id in message_ids]
        keys.sort()
        if not run or not keys or run[-1] <= keys[0]:
            run.extend(keys)
        else:
            for key in keys:
                heappush(self._heap, key)

    def pop_until(self, now_tick: int) -> Iterator[tuple[int, int]]:
        """Remove and yield the entries at or before ``now_tick``: tick and id, earliest first."""
        heap, run, limit = self._heap, self._run, (now_tick + 1) << _ID_BITS
        while heap or run:
            is_of_heap = not run or bool(heap and heap[0] < run[0])
            if (heap if is_of_heap else run)[0] >= limit:
                return
            key = heappop(heap) if is_of_heap else run.popleft()
            yield key >> _ID_BITS, key & _ID_MASK

    def drop_others(self, message_ids: Container[int]) -> None:
        """Remove entries of other messages than these, from the first one added to the first that is one of these."""
        run = self._run
        while run and run[0] & _ID_MASK not in message_ids:
            run.popleft()

    def first_tick(self) -> int | None:
        """Return the earliest tick; None if there are no entries."""
        first = min((entries[0] for entries in (self._heap, self._run) if entries), default=None)
        return None if first is None else first >> _ID_BITS

    def rebuild(self, entries: Iterable[tuple[int, int]]) -> None:
        """Replace all entries by those given: tick and id, in any order."""
        self._run = deque(sorted(tick << _ID_BITS | message_id for tick, message_id in entries))
        self._heap = []
