"""Ids that nobody else gets, from ranges that are fetched ahead."""

import os
import threading
from typing import Final
from weakref import WeakSet

from tidelog import AsyncClient, Tick
from tidelog.rocksmq._loop_lock import LoopLock
from tidelog.rocksmq._messages import checked_count

DEFAULT_PREFETCH: Final = 1_000
MAX_PREFETCH: Final = 1_000_000


class AsyncIDAllocator:
    """Gives out ids, which are ticks of the server: unique among all clients, messages and restarts, and growing.

    Ids are fetched ahead, so most calls do no I/O; what is not used is missed by nobody. Tasks may share one. A forked
    child fetches its own.
    """

    def __init__(self, client: AsyncClient, *, prefetch: int = DEFAULT_PREFETCH) -> None:
        """Fetch nothing yet.

        Args:
            client: Where ids come from; it stays the caller's.
            prefetch: How many are fetched at a time, 1 to 1,000,000.

        Raises:
            ValueError: ``prefetch`` is out of range.
        """
        if not 1 <= prefetch <= MAX_PREFETCH:
            raise ValueError(f"prefetch is {prefetch}, expected 1 to {MAX_PREFETCH}")
        self.client = client
        self._prefetch = prefetch
        self._ready = _Ready()
        # Held by the one who fetches, for all who wait.
        self._fetching = LoopLock()

    async def alloc(self, count: int) -> tuple[Tick, Tick]:
        """Return ``count`` consecutive ids as a range, begin and end; its end is not part of it.

        They are greater than all that this allocator gave out before.

        Raises:
            InvalidRequestError: The count is below 1 or above 1,000,000.
            TidelogError: The server cannot be asked.
        """
        ready = self.take_ready(count)
        if ready is not None:
            return ready
        async with self._fetching.here():
            ready = self.take_ready(count)
            if ready is None:
                fetched = await self.client.allocate_ticks(max(count, self._prefetch))
                ready = self._ready.begin_anew(fetched, count)
            return ready

    async def alloc_one(self) -> Tick:
        """Return one id. Raises as ``alloc``."""
        return (await self.alloc(1))[0]

    async def update_id(self) -> None:
        """Drop what was fetched ahead: ids that come from now on exceed every id and message of before this call.

        Raises:
            TidelogError: The server cannot be asked.
        """
        async with self._fetching.here():
            self._ready.begin_anew(await self.client.allocate_ticks(self._prefetch), 0)

    def take_ready(self, count: int) -> tuple[Tick, Tick] | None:
        """Return a range that is here, or None; any thread may ask. For the synchronous twin too."""
        return self._ready.take(checked_count(count, "count"))


class _Ready:
    """Ids that were fetched and not given out: one range. Any thread may use it."""

    def __init__(self) -> None:
        self.forget()
        _all_ready.add(self)

    def forget(self) -> None:
        """Forget all, in a forked child: the parent gives these out, and one of its threads may have had the lock."""
        # Guards all below.
        self._lock = threading.Lock()
        self._begin = self._end = 0

    def take(self, count: int) -> tuple[Tick, Tick] | None:
        """Return the first ``count`` of them; None if there are fewer."""
        with self._lock:
            if self._end - self._begin < count:
                return None
            return self._take(count)

    def begin_anew(self, fetched: range, count: int) -> tuple[Tick, Tick]:
        """Put what was fetched in the place of what is there, and return its first ``count``."""
        with self._lock:
            # What is left of an older range is smaller, and ids grow.
            self._begin, self._end = fetched.start, fetched.stop
            return self._take(count)

    def _take(self, count: int) -> tuple[Tick, Tick]:
        begin, self._begin = self._begin, self._begin + count
        return Tick(begin), Tick(self._begin)


# Of this process, as long as somebody uses them.
_all_ready: Final[WeakSet[_Ready]] = WeakSet()


def _forget_in_child() -> None:
    for ready in _all_ready:
        ready.forget()


os.register_at_fork(after_in_child=_forget_in_child)
