"""The tick oracle: hands out ticks that grow strictly, across restarts and clocks that jump.

Source: the timestamp oracle of Milvus: an upper bound of what was handed out is saved three seconds ahead,
so that a restart begins above it without a write for each tick.
"""

import asyncio
from dataclasses import dataclass
from typing import Final, Protocol

from tidelog_server.core.limits import TICK_SAVE_AHEAD_MS
from tidelog_server.core.ticks import LOGICAL_BITS, MAX_TICK, NO_TICK, Tick, compose, physical_ms
from tidelog_server.metadata.store import MetadataStore, Put
from tidelog_server.runtime.clock import Clock

_NANOSECONDS_PER_MS: Final = 1_000_000
# The saved bound is moved once it is nearer than it was put by so much.
_USED_UP_MS: Final = TICK_SAVE_AHEAD_MS // 3
_POLL_S: Final = 0.2
# Why poll at all: the wall clock moves towards the bound even when nobody asks for ticks.
assert TICK_SAVE_AHEAD_MS - _USED_UP_MS > 2 * _POLL_S * 1_000


class Oracle(Protocol):
    """Hands out the ticks of a node. Lives on the event loop."""

    @property
    def last(self) -> Tick:
        """The greatest tick that was handed out or promised away."""
        ...

    def try_allocate(self, count: int, after: int = NO_TICK) -> Tick | None:
        """Return the first of ``count`` consecutive ticks above ``after`` at once, or None: then call ``allocate``.

        Ticks are only handed out up to now, so None for an ``after`` in the future.
        """
        ...

    async def allocate(self, count: int, after: int = NO_TICK) -> Tick:
        """Return the first of ``count`` consecutive ticks above ``after``; waits for the clock to pass ``after``.

        Cancelling leaves nothing behind.
        """
        ...

    async def prepare(self, count: int, after: int = NO_TICK) -> None:
        """Get, or wait for, what ``try_allocate`` lacks: then it may be asked again.

        Cancelling leaves nothing behind.
        """
        ...

    def now(self) -> Tick:
        """Return a tick such that nothing at or below it will be handed out any more, as late as possible."""
        ...

    async def catch_up(self) -> None:
        """Have ``now`` reach all that any node of the cluster has handed out before this call.

        Cancelling leaves nothing behind.
        """
        ...

    def leave_behind(self, tick: int) -> None:
        """Hand out nothing at or below ``tick``, which was handed out before, by this node or another."""
        ...

    def lead_s(self) -> float:
        """Return how many seconds the oracle is ahead of the wall clock: great after the clock was set back."""
        ...

    async def run(self) -> None:
        """Keep ready what ``try_allocate`` needs, for ever."""
        ...


@dataclass(slots=True)
class TickState:
    """What was handed out, and up to where handing out is allowed. Pure.

    Invariant: every tick handed out is at most ``last`` and its physical part is below ``bound_ms``.

    Attributes:
        last: Greatest tick that was handed out or that a watermark has passed.
        bound_ms: Saved bound; no tick has this physical part or a greater one.
    """

    last: Tick
    bound_ms: int

    def allocate(self, wall_ms: int, count: int, after: int = NO_TICK) -> Tick | None:
        """Return the first of ``count`` consecutive new ticks above ``after``; None if the bound is in the way.

        When the logical part overflows, the ticks run on into the next millisecond.
        """
        first = max(self.last + 1, compose(wall_ms), after + 1)
        last = first + count - 1
        if physical_ms(last) >= self.bound_ms:
            return None
        self.last = Tick(last)
        return Tick(first)

    def advance(self, wall_ms: int) -> Tick:
        """Move ``last`` up to the wall clock without handing anything out, and return it.

        Nothing at or below the result will ever be handed out: that is what an idle channel's watermark promises.
        """
        self.last = Tick(max(self.last, min(compose(wall_ms), compose(self.bound_ms) - 1)))
        return self.last

    def bound_wanted_ms(self, wall_ms: int, room_ms: int = 0, ahead_ms: int = TICK_SAVE_AHEAD_MS) -> int | None:
        """Return the bound that should be saved now, or None while there is room enough beyond ``room_ms``."""
        frontier_ms = max(wall_ms, physical_ms(self.last)) + room_ms
        if self.bound_ms - frontier_ms >= ahead_ms - _USED_UP_MS:
            return None
        return frontier_ms + ahead_ms


class TickOracle:
    """The oracle of a single node, or of the node that leads: TickState plus the saved bound. See ``Oracle``."""

    def __init__(
        self, clock: Clock, metadata: MetadataStore, key: str, *, save_ahead_ms: int = TICK_SAVE_AHEAD_MS
    ) -> None:
        """Keep the bound under ``key``, so far ahead: as long as the metadata may be silent."""
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
        """See Oracle."""
        return self._state.last

    def try_allocate(self, count: int, after: int = NO_TICK) -> Tick | None:
        """See Oracle."""
        wall_ms = self._clock.wall_ms()
        if after > max(self._state.last, compose(wall_ms)):
            return None
        return self._state.allocate(wall_ms, count, after)

    async def allocate(self, count: int, after: int = NO_TICK) -> Tick:
        """See Oracle."""
        while (first := self.try_allocate(count, after)) is None:
            await self.prepare(count, after)
        return first

    async def prepare(self, count: int, after: int = NO_TICK) -> None:
        """See Oracle. Waits 0.2 s at most."""
        frontier = max(compose(self._clock.wall_ms()), self._state.last)
        if after > frontier:
            # At least a millisecond, also within the same one: after the clock was set back, that one lasts.
            ahead_ms = max(1, physical_ms(after) - physical_ms(frontier))
            await asyncio.sleep(min(ahead_ms / 1_000, _POLL_S))
        else:
            await self._extend(count)

    def now(self) -> Tick:
        """See Oracle."""
        return self._state.advance(self._clock.wall_ms())

    async def catch_up(self) -> None:
        """See Oracle. There is nobody else, or it has everything from here."""

    def leave_behind(self, tick: int) -> None:
        """See Oracle. Everything that was handed out is behind."""

    def lead_s(self) -> float:
        """See Oracle."""
        return max(0, physical_ms(self._state.last) - self._clock.wall_ms()) / 1_000

    async def run(self) -> None:
        """Keep the saved bound ahead, for ever."""
        while True:
            await asyncio.sleep(_POLL_S)
            await self._extend()

    async def _extend(self, count: int = 0) -> None:
        async with self._extending:
            # A request for many ticks may itself need several milliseconds' worth of logical parts.
            room_ms = count >> LOGICAL_BITS
            wanted_ms = self._state.bound_wanted_ms(self._clock.wall_ms(), room_ms, self._save_ahead_ms)
            if wanted_ms is None:
                return
            assert compose(wanted_ms) < MAX_TICK
            value = (wanted_ms * _NANOSECONDS_PER_MS).to_bytes(8, "big")
            # Compared, so that of two who believe that they lead only one gets on.
            self._revision = await self._metadata.commit([Put(self._key, value, self._revision)])
            # Ordering: only a bound that is on disk may be used.
            self._state.bound_ms = wanted_ms
