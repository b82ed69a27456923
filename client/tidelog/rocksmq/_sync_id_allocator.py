"""Synchronous twin of the id allocator."""

from tidelog import Client, Tick
from tidelog.rocksmq._async_id_allocator import DEFAULT_PREFETCH, AsyncIDAllocator
from tidelog.rocksmq._behind import client_behind
from tidelog.transport.background import background


class IDAllocator:
    """Allocates ids. See ``AsyncIDAllocator``. Any thread may use it."""

    def __init__(self, client: Client, *, prefetch: int = DEFAULT_PREFETCH) -> None:
        """Create an allocator. See ``AsyncIDAllocator``."""
        self.client = client
        self._allocator = AsyncIDAllocator(client_behind(client), prefetch=prefetch)

    def alloc(self, count: int) -> tuple[Tick, Tick]:
        """Return ``count`` consecutive ids, begin and end. See ``AsyncIDAllocator.alloc``."""
        return self._allocator.take_ready(count) or background.run(self._allocator.alloc(count))

    def alloc_one(self) -> Tick:
        """Return one id. See ``AsyncIDAllocator.alloc_one``."""
        return self.alloc(1)[0]

    def update_id(self) -> None:
        """Discard prefetched ids. See ``AsyncIDAllocator.update_id``."""
        background.run(self._allocator.update_id())
