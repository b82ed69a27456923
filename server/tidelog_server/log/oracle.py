"""The tick oracle: allocates ticks that grow strictly, across restarts and clock jumps.

Source: the timestamp oracle of Milvus: an upper bound of the allocated ticks is saved three seconds ahead, so that a
restart begins above it without a write for each tick.
"""

import asyncio
from dataclasses import dataclass
from typing import Final, Protocol

from tidelog_server.core.limits import TICK_SAVE_AHEAD_MS
from tidelog_server.core.ticks import LOGICAL_BITS, MAX_TICK, NO_TICK, Tick, compose, physical_ms
from tidelog_server.metadata.store import MetadataStore, Put
from tidelog_server.runtime.clock import Clock

_NANOSECONDS_PER_MS: Final = 1_000_000
# The saved bound is moved once this much of its lead is used up.
_USED_UP_MS: Final = TICK_SAVE_AHEAD_MS // 3
_POLL_S: Final = 0.2
# Why poll at all: the wall clock moves towards the bound even without allocations.
assert TICK_SAVE_AHEAD_MS - _USED_UP_MS > 2 * _POLL_S * 1_000


class Oracle(Protocol):
    """Allocates the ticks of a node. Lives on the event loop."""

    @property
    def last(self) -> Tick:
        """The greatest tick that was allocated, or that a watermark has passed."""
        ...

    def try_allocate(self, count: int, after: int = NO_TICK) -> Tick | None:
        """Return the first of ``count`` consecutive ticks above ``after`` at once; None if not possible now.

        Ticks are never allocated ahead of the clock, so an ``after`` in the future returns None.
        """
        ...

    async def allocate(self, count: int, after: int = NO_TICK) -> Tick:
        """Return the first of ``count`` consecutive ticks above ``after``; waits for the clock to pass ``after``.

        Cancelling has no effect on the oracle.
        """
        ...

    async def prepare(self, count: int, after: int = NO_TICK) -> None:
        """Get, or wait for, what ``try_allocate`` lacks; then call it again.

        Cancelling has no effect on the oracle.
        """
        ...

    def now(self) -> Tick:
        """Return the greatest tick such that no tick at or below it will be allocated any more."""
        ...

    async def catch_up(self) -> None:
        """Advance ``now`` to at least every tick that any node of the cluster has allocated before this call.

        Cancelling has no effect on the oracle.
        """
        ...

    def leave_behind(self, tick: int) -> None:
        """Never allocate a tick at or below ``tick``, which this or another node has allocated."""
        ...

    def lead_s(self) -> float:
        """Return the lead over the wall clock in seconds: large after the clock was set back."""
        ...

    async def run(self) -> None:
        """Maintain what ``try_allocate`` needs. Never ends."""
        ...


@dataclass(slots=True)
class TickState:
    """The last tick allocated, and the bound of allocation. Pure.

    Invariant: every allocated tick is at most ``last`` and its physical part is below ``bound_ms``.

    Attributes:
        last: Greatest tick that was allocated or that a watermark has passed.
        bound_ms: Saved bound; exclusive limit of the physical part of a tick.
    """

    last: Tick
    bound_ms: int

    def allocate(self, wall_ms: int, count: int, after: int = NO_TICK) -> Tick | None:
        """Return the first of ``count`` consecutive new ticks above ``after``; None if they would exceed the bound.

        If the logical part overflows, the ticks continue in the next millisecond.
        """
        assert 0 < count
        first = max(self.last + 1, compose(wall_ms), after + 1)
        last = first + count - 1
        if physical_ms(last) >= self.bound_ms:
            return None
        self.last = Tick(last)
        return Tick(first)

    def advance(self, wall_ms: int) -> Tick:
        """Move ``last`` up to the wall clock without an allocation, and return it.

        No tick at or below the result will ever be allocated: that is what an idle channel's watermark promises.
        """
        self.last = Tick(max(self.last, min(compose(wall_ms), compose(self.bound_ms) - 1)))
        return self.last

    def next_bound_ms(self, wall_ms: int, room_ms: int = 0, ahead_ms: int = TICK_SAVE_AHEAD_MS) -> int | None:
        """Return the bound to save now; None while there is enough room beyond ``room_ms``."""
        frontier_ms = max(wall_ms, physical_ms(self.last)) + room_ms
        if self.bound_ms - frontier_ms >= ahead_ms - _USED_UP_MS:
            return None
        return frontier_ms + ahead_ms


class TickOracle:
    """The oracle of a single node, or of the node that leads: TickState plus the saved bound. See ``Oracle``."""

    def __init__(
        self, clock: Clock, metadata: MetadataStore, key: str, *, save_ahead_ms: int = TICK_SAVE_AHEAD_MS
    ) -> None:
        """Save the bound under ``key``, ``ahead_ms`` ahead: the time that the metadata may be unavailable."""
        self._clock = clock
        self._metadata = metadata
        self._key = key
        self._save_ahead_ms = save_ahead_ms
        self._revision = 0
        self._state = TickState(NO_TICK, 0)
        self._extending = asyncio.Lock()

    async def open(self, floor: Tick) -> None:
        """Start above the saved bound and above ``floor`` (the greatest tick in the log)."""
        saved = await self._metadata.get(self._key)
        self._revision = saved.revision if saved else 0
        saved_ms = int.from_bytes(saved.value, "big") // _NANOSECONDS_PER_MS if saved else 0
        last = max(floor, compose(saved_ms))
        self._state = TickState(Tick(last), physical_ms(last))
        await self._extend()

    @property
    def last(self) -> Tick:
        return self._state.last

    def try_allocate(self, count: int, after: int = NO_TICK) -> Tick | None:
        wall_ms = self._clock.wall_ms()
        if after > max(self._state.last, compose(wall_ms)):
            return None
        return self._state.allocate(wall_ms, count, after)

    async def allocate(self, count: int, after: int = NO_TICK) -> Tick:
        while (first := self.try_allocate(count, after)) is None:
            await self.prepare(count, after)
        return first

    async def prepare(self, count: int, after: int = NO_TICK) -> None:
        """See Oracle. Waits at most 0.2 s."""
        frontier = max(compose(self._clock.wall_ms()), self._state.last)
        if after > frontier:
            # At least a millisecond, even within the same one: after the clock was set back, that one lasts.
            ahead_ms = max(1, physical_ms(after) - physical_ms(frontier))
            await asyncio.sleep(min(ahead_ms / 1_000, _POLL_S))
        else:
            await self._extend(count)

    def now(self) -> Tick:
        return self._state.advance(self._clock.wall_ms())

    async def catch_up(self) -> None:
        """See Oracle. Nothing to do: a single node, or every other node has its ticks from here."""

    def leave_behind(self, tick: int) -> None:
        """See Oracle. Nothing to do: every tick was allocated here."""

    def lead_s(self) -> float:
        return max(0, physical_ms(self._state.last) - self._clock.wall_ms()) / 1_000

    async def run(self) -> None:
        """Keep the saved bound ahead. Never ends."""
        while True:
            await asyncio.sleep(_POLL_S)
            await self._extend()

    async def _extend(self, count: int = 0) -> None:
        async with self._extending:
            # A request for many ticks may itself need several milliseconds of logical parts.
            room_ms = count >> LOGICAL_BITS
            bound_ms = self._state.next_bound_ms(self._clock.wall_ms(), room_ms, self._save_ahead_ms)
            if bound_ms is None:
                return
            # The saved bound never moves back: a restart begins at it.
            assert self._state.bound_ms < bound_ms
            assert compose(bound_ms) < MAX_TICK
            value = (bound_ms * _NANOSECONDS_PER_MS).to_bytes(8, "big")
            # Compared, so that of two nodes that both believe to lead only one succeeds.
            self._revision = await self._metadata.commit([Put(self._key, value, self._revision)])
            # Ordering: only a bound that is on disk may be used.
            self._state.bound_ms = bound_ms
