"""Ids for broadcasts, taken from the server a few at a time: a round trip for each would be a third of its time."""

import asyncio
from collections.abc import Iterator
from typing import Final

from tidelog._transport import Transport
from tidelog.v1 import wal_service_pb2

_TAKEN_AT_ONCE: Final = 32
# Ids get old: the server does not remember for ever which of them were accepted, but much longer than this.
_USABLE_S: Final = 2.0


class BroadcastIds:
    """Ids of one client in one event loop of one process: a process that is forked must not take its parent's."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._ids: Iterator[int] = iter(())
        self._usable_until_s = 0.0

    async def take(self, timeout_s: float) -> int:
        """Return an id that nobody else ever gets. Raises as ``Transport.call``; effect none."""
        clock = asyncio.get_running_loop().time
        if clock() < self._usable_until_s and (spare := next(self._ids, None)) is not None:
            return spare
        begin_s = clock()
        request = wal_service_pb2.AllocateTicksRequest(count=_TAKEN_AT_ONCE)
        transport = self._transport
        # A close waits for the broadcast that the id is for.
        answer = await transport.call(
            transport.wal.AllocateTicks, request, timeout_s=timeout_s, is_read=True, holds_close=True
        )
        # Those that somebody else took meanwhile are missed by nobody.
        self._ids = iter(range(answer.first_tick, answer.first_tick + answer.count))
        self._usable_until_s = begin_s + _USABLE_S
        return next(self._ids)
