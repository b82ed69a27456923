"""Memory for responses that readers have not received yet.

gRPC holds a response until its client reads it, and the memory cannot be reclaimed from a client that does not read.
So a scan reserves memory here before it reads a page. As in a shared-memory switch, each reader may use a part of what
is *free*, so that readers that do not read never use up the memory of the others.
"""

import asyncio
from collections import OrderedDict, deque
from typing import Final

from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.limits import KIB
from tidelog_server.log.scan.follow_turns import FollowTurns

# Memory for responses that clients have not read. A reader (a principal, or an address without authentication) has at
# most 1/READER_PART of the memory that other readers leave free; a scan 1/SCAN_PART of its reader's free memory. A scan
# always gets SMALL_PAGE_BYTES. A scan that waits READ_MEMORY_WITHIN_S for memory is ended.
READER_PART: Final = 3
SCAN_PART: Final = 8
SMALL_PAGE_BYTES: Final = 64 * KIB
READ_MEMORY_WITHIN_S: Final = 30.0

# Pages that a scan reads while it writes one: one reader thread waits for the disk while another checks and copies.
PAGES_AHEAD: Final = 2
# Copies of a page while its response is written: its columns, the response made of them, and gRPC's copy of that.
_COPIES: Final = 3
# Other readers that are checked when one releases memory.
_OTHERS_LOOKED_AT: Final = 8
_RETRY_AFTER_MS: Final = 1_000


class ReadBudget:
    """The memory of all readers of a node. Lives on the event loop.

    A reader is a principal, or an address without authentication. It has at most ``1 / READER_PART`` of the memory that
    the others leave free, and a scan ``1 / SCAN_PART`` of its reader's free memory, so neither is ever left without. A
    scan that holds nothing may always have SMALL_PAGE_BYTES.

    Attributes:
        used_bytes: Memory held by all scans.
        waiting: Number of scans that wait for memory.
        turns: Turns of following scans.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.turns = FollowTurns()
        self._readers: dict[str, _Reader] = {}
        # Readers with waiting scans, the next one to check first.
        self._hungry: OrderedDict[str, _Reader] = OrderedDict()
        self.used_bytes = 0
        self.waiting = 0

    def memory(self, reader: str) -> "ReadMemory":
        """Return the memory account of a new scan of ``reader``, which holds nothing yet; the scan closes it."""
        found = self._readers.get(reader)
        if found is None:
            found = self._readers[reader] = _Reader(reader)
        found.scans += 1
        return ReadMemory(self, found)

    def free_bytes(self, reader: "_Reader") -> int:
        """Return how much more memory ``reader`` may use."""
        others = self.used_bytes - reader.used_bytes
        return max(0, (self._max_bytes - others) // READER_PART - reader.used_bytes)

    def change(self, reader: "_Reader", by_bytes: int) -> None:
        """Add to the memory of ``reader``; a release (negative) may let waiting scans continue."""
        reader.used_bytes += by_bytes
        self.used_bytes += by_bytes
        assert 0 <= reader.used_bytes <= self.used_bytes
        if by_bytes < 0 and self._hungry:
            self._feed(reader)
            for _ in range(min(_OTHERS_LOOKED_AT, len(self._hungry))):
                name, other = next(iter(self._hungry.items()))
                self._hungry.move_to_end(name)
                self._feed(other)

    def queue(self, reader: "_Reader", waiter: "_Waiter") -> None:
        """Queue a scan behind the waiting scans of its reader."""
        reader.waiters.append(waiter)
        self._hungry[reader.name] = reader
        self.waiting += 1

    def leave(self, reader: "_Reader", waiter: "_Waiter") -> None:
        """Remove a scan that no longer waits from the queue, if it is queued."""
        if waiter in reader.waiters:
            reader.waiters.remove(waiter)
            self.waiting -= 1
            assert 0 <= self.waiting
            self._feed(reader)

    def close(self, reader: "_Reader") -> None:
        """Unregister a scan; the reader is removed with its last scan."""
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
    """A principal or address, and the memory of its scans."""

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
    """The memory of one scan: pages read ahead, and those whose responses are being written.

    It holds the columns of its pages, and the copies that their responses need.
    """

    def __init__(self, budget: ReadBudget, reader: _Reader) -> None:
        self._budget = budget
        self._reader = reader
        self._columns_bytes = 0
        # Bytes of the columns that may be copied at the same time.
        self._copied_bytes = 0
        self._is_closed = False
        self._is_following = False

    def page_bytes(self) -> int:
        """Return the maximum size of a page that leaves room for ``PAGES_AHEAD``; an entry may be larger."""
        return max(1, self._part() // (_COPIES + PAGES_AHEAD))

    @property
    def holds_nothing(self) -> bool:
        """True if it holds no memory, so that ``take`` may be called."""
        return not self._columns_bytes

    def try_take(self, size_bytes: int) -> bool:
        """Reserve memory for a page of columns, written together with what is held.

        Returns:
            False if the scan or its reader has too much already.
        """
        return self._try_take(size_bytes, self._copied_bytes + size_bytes)

    def try_take_ahead(self, size_bytes: int) -> bool:
        """Reserve memory for a page of columns, written after what is held: only the largest page needs copies.

        Returns:
            False if the scan or its reader has too much already.
        """
        return self._try_take(size_bytes, max(self._copied_bytes, size_bytes))

    def _try_take(self, size_bytes: int, copied_bytes: int) -> bool:
        columns_bytes = self._columns_bytes + size_bytes
        if self._columns_bytes:
            may = _held_bytes(columns_bytes, copied_bytes) <= self._part()
        else:
            may = not self._reader.waiters and self.may_begin(size_bytes)
        if may:
            self._change(columns_bytes, copied_bytes)
        return may

    async def take(self, size_bytes: int) -> None:
        """Wait for memory for a page of columns. Called by a scan that holds nothing.

        Raises:
            RateLimitRejectedError: No memory within READ_MEMORY_WITHIN_S. The scan may be resumed.
        """
        assert self.holds_nothing
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
        """Release pages of this size together, whose responses the client has received."""
        columns_bytes = self._columns_bytes - size_bytes
        self._change(columns_bytes, min(self._copied_bytes, columns_bytes))

    def may_begin(self, size_bytes: int) -> bool:
        """Return whether a scan that holds nothing may read a page of this size."""
        needed = _COPIES * size_bytes
        # The first page of a reader may have any size: a batch may be larger than the whole budget.
        if needed <= SMALL_PAGE_BYTES or not self._reader.used_bytes:
            return True
        return needed <= self._budget.free_bytes(self._reader) // 2

    def note_taken(self, size_bytes: int) -> None:
        """Reserve a page for a scan that holds nothing, including the copies that will be made of it."""
        assert self.holds_nothing
        self._change(size_bytes, size_bytes)

    async def next_turn(self) -> None:
        """Wait for a turn of this reader's following scans."""
        self._is_following = True
        await self._budget.turns.next(self._reader.name)

    async def next_page_turn(self) -> None:
        """Wait for a turn for another page if this scan follows and has had a turn."""
        if self._is_following:
            await self.next_turn()

    def charge_turn(self, size_bytes: int, entries: int) -> None:
        """Charge for the data that a turn delivers if this scan follows and has had a turn."""
        if self._is_following:
            self._budget.turns.charge(self._reader.name, size_bytes, entries)

    def close(self) -> None:
        """Release everything. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._change(0, 0)
        self._budget.close(self._reader)

    def _part(self) -> int:
        free = self._budget.free_bytes(self._reader) + _held_bytes(self._columns_bytes, self._copied_bytes)
        return max(SMALL_PAGE_BYTES, free // SCAN_PART)

    def _change(self, columns_bytes: int, copied_bytes: int) -> None:
        # A scan releases only what it has taken, and nothing after ``close``.
        assert 0 <= copied_bytes <= columns_bytes
        before_bytes = _held_bytes(self._columns_bytes, self._copied_bytes)
        self._columns_bytes, self._copied_bytes = columns_bytes, copied_bytes
        self._budget.change(self._reader, _held_bytes(columns_bytes, copied_bytes) - before_bytes)

    def _starved(self) -> RateLimitRejectedError:
        used = self._reader.used_bytes
        return RateLimitRejectedError(
            f"the scan has waited {READ_MEMORY_WITHIN_S:.0f} s for memory: {self._reader.scans} scans of this caller "
            f"hold {used} bytes of responses that it has not read. Read them, close scans that are not needed, or "
            "raise limits.max_unread_bytes; this scan can be resumed",
            limit="unread_bytes", retry_after_ms=_RETRY_AFTER_MS,
        )  # fmt: skip


def _held_bytes(columns_bytes: int, copied_bytes: int) -> int:
    return columns_bytes + (_COPIES - 1) * copied_bytes
