"""Turns of following scans: as many as the event loop has time for.

A group of appends wakes every follower of its vchannel. A thousand followers at once would delay each step of each
append by a thousand steps. So they take turns: many while the event loop is on time, few while it is late, and
different readers alternate. A follower that waits longer delivers more at once, so throughput does not suffer.
"""

import asyncio
from collections import OrderedDict, deque
from typing import Final

from tidelog_server.core.limits import (
    FOLLOW_TICK_S,
    FOLLOW_TURN_BYTES,
    FOLLOW_TURN_ENTRIES,
    MAX_FOLLOW_TURNS_PER_TICK,
    MIN_FOLLOW_TURNS_PER_TICK,
)

# The event loop counts as late when a timer is later than this.
_LATE_S: Final = 0.002


class FollowTurns:
    """Grants turns. Lives on the event loop.

    While turns are requested, a timer measures how late the event loop is, and grants the turns of the next tick: one
    more than in the last tick while it is on time, half as many while it is late.
    """

    def __init__(self) -> None:
        self._per_tick = MAX_FOLLOW_TURNS_PER_TICK
        self._left = self._per_tick
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._due_s: float | None = None
        self._is_used = False

    async def next(self, reader: str) -> None:
        """Wait for a turn of ``reader``."""
        self._is_used = True
        if self._due_s is None:
            self._left = min(self._left, 0) + self._per_tick
            self._wait_for_tick(asyncio.get_running_loop())
        if self._left > 0 and not self._waiting:
            self._left -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        queue = self._waiting.get(reader)
        if queue is None:
            queue = self._waiting[reader] = deque()
        queue.append(turn)
        await turn

    def charge(self, size_bytes: int, entries: int) -> None:
        """Charge for the data that a turn delivers: a large delivery counts as several turns."""
        self._left -= size_bytes // FOLLOW_TURN_BYTES + entries // FOLLOW_TURN_ENTRIES

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self._due_s is not None
        if loop.time() - self._due_s > _LATE_S:
            self._per_tick = max(MIN_FOLLOW_TURNS_PER_TICK, self._per_tick // 2)
        else:
            self._per_tick = min(MAX_FOLLOW_TURNS_PER_TICK, self._per_tick + 1)
        # Turns that a large delivery overdrew are deducted from the next ticks.
        self._left = min(self._left, 0) + self._per_tick
        while self._left > 0 and self._waiting:
            self._give_one()
        if not self._is_used and not self._waiting:
            self._due_s = None
            return
        self._is_used = False
        self._wait_for_tick(loop)

    def _give_one(self) -> None:
        """Grant a turn to the reader that has waited longest."""
        reader, queue = self._waiting.popitem(last=False)
        turn = queue.popleft()
        if queue:
            self._waiting[reader] = queue
        if not turn.done():
            self._left -= 1
            turn.set_result(None)

    def _wait_for_tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due_s = loop.time() + FOLLOW_TICK_S
        loop.call_at(self._due_s, self._tick, loop)
