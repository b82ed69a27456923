"""The constructor under its name in RocksMQ."""

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
