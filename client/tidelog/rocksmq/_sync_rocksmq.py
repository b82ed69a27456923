"""Synchronous twins of the queues and the id allocator, and their constructor under its name in RocksMQ."""

from typing import overload

from tidelog import AsyncClient, Client, OnEvent, Tick
from tidelog.rocksmq._async_id_allocator import DEFAULT_PREFETCH, AsyncIDAllocator
from tidelog.rocksmq._async_rocksmq import DEFAULT_ENDPOINT, AsyncRocksMQ
from tidelog.rocksmq._generated_consumer import RocksMQConsumer
from tidelog.rocksmq._generated_rocksmq import RocksMQCalls
from tidelog.transport.background import background


class RocksMQ(RocksMQCalls):
    """Queues on a Tidelog server. See ``AsyncRocksMQ``. Any thread may use it."""

    def __init__(
        self, client: Client | str = DEFAULT_ENDPOINT, *, name: str = "", on_event: OnEvent | None = None
    ) -> None:
        """Create the queues' client. See ``AsyncRocksMQ``."""
        self.name = name
        self.client = Client(client) if isinstance(client, str) else client
        self._owns_client = isinstance(client, str)
        self._mq = AsyncRocksMQ(_client_of(self.client), name=name, on_event=on_event)

    def register_consumer(self, group: str, channel: str) -> RocksMQConsumer:
        """Return a consumer of a group on a channel. See ``AsyncRocksMQ.register_consumer``."""
        background.run(self._mq.register_consumer(group, channel))
        return RocksMQConsumer(self, group, channel)

    def close(self) -> None:
        """End waiting calls, and close the client if this object created it. See ``AsyncRocksMQ.aclose``."""
        background.run(self._mq.aclose())
        if self._owns_client:
            self.client.close()


class IDAllocator:
    """Allocates ids. See ``AsyncIDAllocator``. Any thread may use it."""

    def __init__(self, client: Client, *, prefetch: int = DEFAULT_PREFETCH) -> None:
        """Create an allocator. See ``AsyncIDAllocator``."""
        self.client = client
        self._allocator = AsyncIDAllocator(_client_of(client), prefetch=prefetch)

    def alloc(self, count: int) -> tuple[Tick, Tick]:
        """Return ``count`` consecutive ids, begin and end. See ``AsyncIDAllocator.alloc``."""
        return self._allocator.take_ready(count) or background.run(self._allocator.alloc(count))

    def alloc_one(self) -> Tick:
        """Return one id. See ``AsyncIDAllocator.alloc_one``."""
        return self.alloc(1)[0]

    def update_id(self) -> None:
        """Discard prefetched ids. See ``AsyncIDAllocator.update_id``."""
        background.run(self._allocator.update_id())


@overload
def new_rocksmq(name: str, id_allocator: AsyncIDAllocator) -> AsyncRocksMQ: ...
@overload
def new_rocksmq(name: str, id_allocator: IDAllocator) -> RocksMQ: ...
def new_rocksmq(name: str, id_allocator: AsyncIDAllocator | IDAllocator) -> AsyncRocksMQ | RocksMQ:
    """Return the queues named ``name`` on the server of ``id_allocator``, which allocates all ids. Does no I/O.

    Raises:
        TypeError: ``id_allocator`` is not one of this package's: ids of messages come from the server.
        ValueError: ``name`` is invalid.
    """
    if isinstance(id_allocator, AsyncIDAllocator):
        return AsyncRocksMQ(id_allocator.client, name=name)
    if isinstance(id_allocator, IDAllocator):
        return RocksMQ(id_allocator.client, name=name)
    raise TypeError(f"id_allocator is {type(id_allocator).__name__}, expected an IDAllocator or AsyncIDAllocator")


def _client_of(client: Client) -> AsyncClient:
    """Return the client whose calls run on the background loop."""
    return client._client  # noqa: SLF001 - shared by the twins of this package only
