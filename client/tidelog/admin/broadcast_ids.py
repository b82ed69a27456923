"""Broadcast ids, allocated by the server in blocks: one round trip per id would be a third of a broadcast's time."""

import asyncio
from collections.abc import Iterator
from typing import Final

from tidelog.transport.transport import Transport
from tidelog.v1 import wal_service_pb2

_TAKEN_AT_ONCE: Final = 32
# Ids expire: the server forgets which of them it accepted, but only after much longer than this.
_USABLE_S: Final = 2.0


class BroadcastIds:
    """The ids of one client in one event loop of one process: a forked child must not use its parent's ids."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._ids: Iterator[int] = iter(())
        self._usable_until_s = 0.0

    async def take(self, timeout_s: float) -> int:
        """Return an id that no other caller ever gets. Raises as ``Transport.call``, with ``effect`` ``none``."""
        clock = asyncio.get_running_loop().time
        if clock() < self._usable_until_s and (spare := next(self._ids, None)) is not None:
            return spare
        begin_s = clock()
        request = wal_service_pb2.AllocateTicksRequest(count=_TAKEN_AT_ONCE)
        transport = self._transport
        # A close waits for the broadcast that needs the id, so it also waits for this call.
        answer = await transport.call(
            transport.wal.AllocateTicks, request, timeout_s=timeout_s, is_read=True, holds_close=True
        )
        # This may replace the rest of a block that a concurrent call stored; unused ids harm nothing.
        self._ids = iter(range(answer.first_tick, answer.first_tick + answer.count))
        self._usable_until_s = begin_s + _USABLE_S
        return next(self._ids)
