"""Unique ids from ranges that are fetched ahead."""

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
    """Allocates ids, which are ticks of the server: increasing, and unique among clients, messages and restarts.

    Ids are fetched ahead, so most calls do no I/O; unused ids are simply lost. Tasks may share an allocator. A forked
    child fetches its own ids.
    """

    def __init__(self, client: AsyncClient, *, prefetch: int = DEFAULT_PREFETCH) -> None:
        """Create an allocator. Does no I/O.

        Args:
            client: Source of the ids; the caller remains responsible for closing it.
            prefetch: Number of ids per fetch, 1 to 1,000,000.

        Raises:
            ValueError: ``prefetch`` is out of range.
        """
        if not 1 <= prefetch <= MAX_PREFETCH:
            raise ValueError(f"prefetch is {prefetch}, expected 1 to {MAX_PREFETCH}")
        self.client = client
        self._prefetch = prefetch
        self._ready = _Ready()
        # Held while one task fetches for all that wait.
        self._fetching = LoopLock()

    async def alloc(self, count: int) -> tuple[Tick, Tick]:
        """Return ``count`` consecutive ids as a half-open range: begin and end.

        They are greater than all ids that this allocator returned before.

        Raises:
            InvalidRequestError: ``count`` is not in 1 to 1,000,000.
            TidelogError: The request to the server failed.
        """
        ready = self.take_ready(count)
        if ready is not None:
            return ready
        async with self._fetching.here():
            ready = self.take_ready(count)
            if ready is None:
                fetched = await self.client.allocate_ticks(max(count, self._prefetch))
                ready = self._ready.replace(fetched, count)
            return ready

    async def alloc_one(self) -> Tick:
        """Return one id. Raises as ``alloc``."""
        return (await self.alloc(1))[0]

    async def update_id(self) -> None:
        """Discard prefetched ids: later ids exceed every id and message from before this call.

        Raises:
            TidelogError: The request to the server failed.
        """
        async with self._fetching.here():
            self._ready.replace(await self.client.allocate_ticks(self._prefetch), 0)

    def take_ready(self, count: int) -> tuple[Tick, Tick] | None:
        """Return a prefetched range, or None. Thread-safe; the synchronous twin uses it too."""
        return self._ready.take(checked_count(count, "count"))


class _Ready:
    """Prefetched ids: one range. Thread-safe."""

    def __init__(self) -> None:
        self.forget()
        _all_ready.add(self)

    def forget(self) -> None:
        """Discard all ids in a forked child: the parent allocates them, and its threads may have held the lock."""
        # Guards all fields below.
        self._lock = threading.Lock()
        self._begin = self._end = 0

    def take(self, count: int) -> tuple[Tick, Tick] | None:
        """Return the first ``count`` ids; None if fewer are left."""
        with self._lock:
            if self._end - self._begin < count:
                return None
            return self._take(count)

    def replace(self, fetched: range, count: int) -> tuple[Tick, Tick]:
        """Replace the range by ``fetched``, and return its first ``count`` ids."""
        with self._lock:
            # The rest of the older range is smaller, and ids must increase.
            self._begin, self._end = fetched.start, fetched.stop
            return self._take(count)

    def _take(self, count: int) -> tuple[Tick, Tick]:
        begin, self._begin = self._begin, self._begin + count
        return Tick(begin), Tick(self._begin)


# Those in use in this process.
_all_ready: Final[WeakSet[_Ready]] = WeakSet()


def _forget_in_child() -> None:
    for ready in _all_ready:
        ready.forget()


os.register_at_fork(after_in_child=_forget_in_child)
