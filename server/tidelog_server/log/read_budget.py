"""What readers may take of the node's memory for responses that they have not taken.

gRPC keeps a response until its client takes it, and nothing can take it back from a client that does not read. So a
scan asks here before it reads a page. The rule is that of a switch's shared buffer: who asks gets a part of what is
*free*, so that no number of readers that do not read uses up what another one needs.
"""

import asyncio
from collections import OrderedDict, deque
from typing import Final

from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.limits import (
    READ_MEMORY_WITHIN_S,
    READER_PART,
    SCAN_PART,
    SMALL_PAGE_BYTES,
)
from tidelog_server.log.follow_turns import FollowTurns

# A page while its response is written: its columns, the response made of them, and gRPC's copy of that.
_COPIES: Final = 3
# Other readers that are looked at when one gives memory back.
_OTHERS_LOOKED_AT: Final = 8
_RETRY_AFTER_MS: Final = 1_000


class ReadBudget:
    """The memory of all readers of a node. Lives on the event loop.

    A reader is a principal, or an address without authentication. It has at most a ``READER_PART``-th of what the
    others leave, and a scan a ``SCAN_PART``-th of what its reader has free, so neither is ever left without. A scan
    that holds nothing may always have SMALL_PAGE_BYTES.

    Attributes:
        used_bytes: Held by all scans.
        waiting: Scans that wait for memory.
        turns: Of following scans.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.turns = FollowTurns()
        self._readers: dict[str, _Reader] = {}
        # Readers with scans that wait, the next to be looked at first.
        self._hungry: OrderedDict[str, _Reader] = OrderedDict()
        self.used_bytes = 0
        self.waiting = 0

    def memory(self, reader: str) -> "ReadMemory":
        """Return what a new scan of ``reader`` holds, which is nothing yet; the scan closes it."""
        found = self._readers.get(reader)
        if found is None:
            found = self._readers[reader] = _Reader(reader)
        found.scans += 1
        return ReadMemory(self, found)

    def free_bytes(self, reader: "_Reader") -> int:
        """Return how much more ``reader`` may have."""
        others = self.used_bytes - reader.used_bytes
        return max(0, (self._max_bytes - others) // READER_PART - reader.used_bytes)

    def change(self, reader: "_Reader", by_bytes: int) -> None:
        """Note that a scan of ``reader`` holds more, or less: then others get their turn."""
        reader.used_bytes += by_bytes
        self.used_bytes += by_bytes
        if by_bytes < 0 and self._hungry:
            self._feed(reader)
            for _ in range(min(_OTHERS_LOOKED_AT, len(self._hungry))):
                name, other = next(iter(self._hungry.items()))
                self._hungry.move_to_end(name)
                self._feed(other)

    def queue(self, reader: "_Reader", waiter: "_Waiter") -> None:
        """Have a scan wait behind the others of its reader."""
        reader.waiters.append(waiter)
        self._hungry[reader.name] = reader
        self.waiting += 1

    def leave(self, reader: "_Reader", waiter: "_Waiter") -> None:
        """Take a scan that does not wait any more out of the queue, if it is there."""
        if waiter in reader.waiters:
            reader.waiters.remove(waiter)
            self.waiting -= 1
            self._feed(reader)

    def close(self, reader: "_Reader") -> None:
        """Forget a reader with its last scan."""
        reader.scans -= 1
        if not reader.scans:
            del self._readers[reader.name]

    def _feed(self, reader: "_Reader") -> None:
        while reader.waiters and reader.waiters[0].memory.may_begin(reader.waiters[0].size_bytes):
            waiter = reader.waiters.popleft()
            self.waiting -= 1
            if not waiter.granted.done():
                waiter.memory.note_taken(waiter.size_bytes)
                waiter.granted.set_result(None)
        if not reader.waiters:
            self._hungry.pop(reader.name, None)


class _Reader:
    """A principal, and what its scans have."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.scans = 0
        self.used_bytes = 0
        self.waiters: deque[_Waiter] = deque()


class _Waiter:
    """A scan that holds nothing and waits for its next page."""

    def __init__(self, memory: "ReadMemory", size_bytes: int) -> None:
        self.memory = memory
        self.size_bytes = size_bytes
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class ReadMemory:
    """What one scan holds: pages that are read ahead, and the one whose response is written."""

    def __init__(self, budget: ReadBudget, reader: _Reader) -> None:
        self._budget = budget
        self._reader = reader
        self._held_bytes = 0
        self._is_closed = False
        self._is_following = False

    def page_bytes(self) -> int:
        """Return how large a page is to be at most; a single entry may be larger."""
        return max(1, self._part() // _COPIES)

    def try_take(self, size_bytes: int) -> bool:
        """Take memory for a page of columns, unless this scan holds enough already."""
        if self._held_bytes:
            may = self._held_bytes + _COPIES * size_bytes <= self._part()
        else:
            may = not self._reader.waiters and self.may_begin(size_bytes)
        if may:
            self.note_taken(size_bytes)
        return may

    async def take(self, size_bytes: int) -> None:
        """Wait for memory for a page of columns. Called by a scan that holds nothing.

        Raises:
            RateLimitRejectedError: There was no memory for too long. The scan may be resumed.
        """
        assert not self._held_bytes
        if self.try_take(size_bytes):
            return
        waiter = _Waiter(self, size_bytes)
        self._budget.queue(self._reader, waiter)
        try:
            async with asyncio.timeout(READ_MEMORY_WITHIN_S):
                await waiter.granted
        except TimeoutError:
            raise self._starved() from None
        finally:
            self._budget.leave(self._reader, waiter)

    def give_back(self, size_bytes: int) -> None:
        """Note that the client has taken the response with a page of this size."""
        self._change(-_COPIES * size_bytes)

    def may_begin(self, size_bytes: int) -> bool:
        """Return whether a scan that holds nothing may read a page of this size."""
        needed = _COPIES * size_bytes
        # The first page of a reader may be of any size: a batch may be larger than all that there is.
        if needed <= SMALL_PAGE_BYTES or not self._reader.used_bytes:
            return True
        return needed <= self._budget.free_bytes(self._reader) // 2

    def note_taken(self, size_bytes: int) -> None:
        """Note that the scan holds a page more, with the copies that will be made of it."""
        self._change(_COPIES * size_bytes)

    async def next_turn(self) -> None:
        """Wait until it is the turn of a scan of this reader that follows."""
        self._is_following = True
        await self._budget.turns.next(self._reader.name)

    async def next_page_turn(self) -> None:
        """Wait for a turn for another page, if this is a scan that follows and has had a turn."""
        if self._is_following:
            await self.next_turn()

    def charge_turn(self, size_bytes: int, entries: int) -> None:
        """Note what the turn of a scan delivers, if it is one that follows and has had a turn."""
        if self._is_following:
            self._budget.turns.charge(size_bytes, entries)

    def close(self) -> None:
        """Give everything back. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._change(-self._held_bytes)
        self._budget.close(self._reader)

    def _part(self) -> int:
        free = self._budget.free_bytes(self._reader) + self._held_bytes
        return max(SMALL_PAGE_BYTES, free // SCAN_PART)

    def _change(self, by_bytes: int) -> None:
        self._held_bytes += by_bytes
        self._budget.change(self._reader, by_bytes)

    def _starved(self) -> RateLimitRejectedError:
        used = self._reader.used_bytes
        return RateLimitRejectedError(
            f"the scan has waited {READ_MEMORY_WITHIN_S:.0f} s for memory: {self._reader.scans} scans of this caller "
            f"hold {used} bytes of responses that it has not read. Read them, close the scans that are not needed, or "
            "have limits.max_unread_bytes raised; this scan can be resumed",
            limit="unread_bytes", retry_after_ms=_RETRY_AFTER_MS,
        )  # fmt: skip
