"""The constructor by its name in RocksMQ."""

from typing import overload

from tidelog.rocksmq._async_id_allocator import AsyncIDAllocator
from tidelog.rocksmq._async_rocksmq import AsyncRocksMQ
from tidelog.rocksmq._sync_id_allocator import IDAllocator
from tidelog.rocksmq._sync_rocksmq import RocksMQ


@overload
def new_rocksmq(name: str, id_allocator: AsyncIDAllocator) -> AsyncRocksMQ: ...
@overload
def new_rocksmq(name: str, id_allocator: IDAllocator) -> RocksMQ: ...
def new_rocksmq(name: str, id_allocator: AsyncIDAllocator | IDAllocator) -> AsyncRocksMQ | RocksMQ:
    """Return the queues called ``name`` on the server that ``id_allocator`` asks, which gives all ids. Does no I/O.

    Raises:
        TypeError: It is no allocator of this package: ids of messages are the server's.
        ValueError: The name is none.
    """
    if isinstance(id_allocator, AsyncIDAllocator):
        return AsyncRocksMQ(id_allocator.client, name=name)
    if isinstance(id_allocator, IDAllocator):
        return RocksMQ(id_allocator.client, name=name)
    raise TypeError(f"id_allocator is an IDAllocator or AsyncIDAllocator, not {type(id_allocator).__name__}")
