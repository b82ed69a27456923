"""The synchronous twin of the queues, and their constructor under its name in RocksMQ."""

from typing import overload

from tidelog import Client, OnEvent
from tidelog.rocksmq._async_id_allocator import AsyncIDAllocator
from tidelog.rocksmq._async_rocksmq import DEFAULT_ENDPOINT, AsyncRocksMQ
from tidelog.rocksmq._generated_consumer import RocksMQConsumer
from tidelog.rocksmq._generated_id_allocator import IDAllocator
from tidelog.rocksmq._generated_rocksmq import RocksMQCalls
from tidelog.sync.cluster import inner_of
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
        self._mq = AsyncRocksMQ(inner_of(self.client), name=name, on_event=on_event)

    def register_consumer(self, group: str, channel: str) -> RocksMQConsumer:
        """Return a consumer of a group on a channel. See ``AsyncRocksMQ.register_consumer``."""
        background.run(self._mq.register_consumer(group, channel))
        return RocksMQConsumer(self, group, channel)

    def close(self) -> None:
        """End waiting calls, and close the client if this object created it. See ``AsyncRocksMQ.aclose``."""
        background.close(self._mq.aclose())
        if self._owns_client:
            self.client.close()


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
