"""Ticks of a cluster: the leader hands out ranges, and each node allocates from its range.

A range expires after TICK_RANGE_AGE_S, so the ticks of different nodes stay close to each other and to the clock. The
leader persists a bound above every tick that it hands out, as a single node does, and the next leader starts above that
bound. So no tick is handed out twice, even if a former leader still answers; nodes discard its late responses.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from tidelog_server.core.errors.cluster import MetadataUnavailableError, NotLeaderError
from tidelog_server.core.ticks import NO_TICK, Tick, physical_ms
from tidelog_server.log.oracle import TickOracle
from tidelog_server.metadata.store import RevisionConflictError
from tidelog_server.runtime.clock import Clock

# Ticks that a node of a cluster gets from the leader at once: twice the number it used of the previous range, at most
# those of a millisecond. Why not always that: a node asks 50 times a second, and 20 nodes would move the clock of the
# log faster than time passes.
MIN_TICK_RANGE: Final = 1 << 12
TICK_RANGE: Final = 1 << 18
# A range is used for TICK_RANGE_AGE_S; a node waits TICK_RANGE_WAIT_S for a leader.
TICK_RANGE_AGE_S: Final = 1.0
TICK_RANGE_WAIT_S: Final = 3.0

# How often the range is replaced while ticks are used or watermarks are requested.
_REFRESH_S: Final = 0.02
_PAUSE_S: Final = 0.05
_MAX_NAP_S: Final = 0.2

Fetch = Callable[[int], Awaitable[int]]
"""Requests a number of ticks from the leader and returns the first.

Raises NotLeaderError or MetadataUnavailableError, or OwnershipLostError if another process has registered as this node.
"""


class TickRange(NamedTuple):
    """Consecutive ticks that this node may hand out.

    Attributes:
        begin_tick: First tick of the range.
        end_tick: First tick after the range.
        ends_s: Monotonic time at which the range expires.
    """

    begin_tick: int
    end_tick: int
    ends_s: float


class ClusterOracle:
    """The oracle of one node of a cluster. Lives on the event loop; see ``log.oracle.Oracle``.

    Invariant: every tick handed out is above ``last`` and within the range, and the range was requested less than
    TICK_RANGE_AGE_S ago.

    Attributes:
        leading: The cluster's oracle if this node is the leader; otherwise None.
        is_wanted: Set to request a new range soon.
    """

    def __init__(self, clock: Clock, fetch: Fetch) -> None:
        self._clock = clock
        self._fetch = fetch
        self.leading: TickOracle | None = None
        self._last = NO_TICK
        self._range = TickRange(0, 0, 0.0)
        self.is_wanted = asyncio.Event()
        self._fetching = asyncio.Lock()
        # Why the latest request for ticks failed.
        self._last_failure = ""

    def lead(self, oracle: TickOracle) -> None:
        """Allocate from ``oracle`` from now on: this node has become the leader."""
        assert self.leading is None
        self.leading = oracle
        self.is_wanted.set()

    @property
    def last(self) -> Tick:
        """The greatest tick that this node has handed out or ruled out."""
        return self._last if self.leading is None else self.leading.last

    def try_allocate(self, count: int, after: int = NO_TICK) -> Tick | None:
        """See Oracle."""
        if self.leading is not None:
            return self.leading.try_allocate(count, after)
        # Why not skip within the range to pass a barrier: a caller would use up more ticks than it gets.
        first, end = self._last + 1, self._last + 1 + count
        if after > self._last:
            return None
        found = self._range
        if found.end_tick < end or found.ends_s <= self._clock.monotonic_s():
            return None
        self._last = Tick(end - 1)
        self.is_wanted.set()
        return Tick(first)

    async def allocate(self, count: int, after: int = NO_TICK) -> Tick:
        """See Oracle."""
        while (first := self.try_allocate(count, after)) is None:
            await self.prepare(count, after)
        return first

    async def prepare(self, count: int, after: int = NO_TICK) -> None:
        """See Oracle.

        Raises:
            MetadataUnavailableError: No leader answered in time, or another node has become leader. Nothing happened.
            OwnershipLostError: The node has lost its lease. Nothing happened.
        """
        if self.leading is not None:
            try:
                await self.leading.prepare(count, after)
            except RevisionConflictError as error:
                raise MetadataUnavailableError("another node has become the leader") from error
            return
        before = self._range
        async with self._fetching:
            # Another task may have fetched a range meanwhile.
            if self._range is before:
                await self._refill(count)
        # A barrier above the start of a fresh range lies in the leader's future. The wait is computed from ticks
        # because this node's own clock may be wrong.
        if (beyond := after - self._last) > 0:
            await asyncio.sleep(min(max(1, physical_ms(Tick(beyond))) / 1_000, _MAX_NAP_S))

    def now(self) -> Tick:
        """See Oracle."""
        if self.leading is not None:
            return self.leading.now()
        self.is_wanted.set()
        return self._last

    async def catch_up(self) -> None:
        """See Oracle.

        Raises:
            MetadataUnavailableError: No leader answered in time. Nothing happened.
        """
        if self.leading is None:
            async with self._fetching:
                await self._refill(0)

    def leave_behind(self, tick: int) -> None:
        """See Oracle. The current range may begin below ``tick`` if another node handed out ``tick`` since."""
        self._last = Tick(max(self._last, tick))

    def lead_s(self) -> float:
        """See Oracle."""
        return max(0, physical_ms(self.last) - self._clock.wall_ms()) / 1_000

    async def run(self) -> None:
        """Refresh the range while ticks are used or watermarks are requested. Never returns."""
        while True:
            if self.leading is not None:
                await self.leading.run()
            self.is_wanted.clear()
            await self.is_wanted.wait()
            await asyncio.sleep(_REFRESH_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Replace the range by one that begins at the leader's current tick, if the leader answers.

        Raises:
            OwnershipLostError: Another process has registered as this node.
        """
        if self.leading is None:
            async with self._fetching:
                await self._try_refill()

    async def _refill(self, count: int) -> None:
        deadline_s = self._clock.monotonic_s() + TICK_RANGE_WAIT_S
        while not await self._try_refill(count):
            if self._clock.monotonic_s() >= deadline_s:
                raise MetadataUnavailableError.without_ticks(TICK_RANGE_WAIT_S, self._last_failure)
            await asyncio.sleep(_PAUSE_S)

    async def _try_refill(self, count: int = 0) -> bool:
        """Replace the range and return True if the leader answered. The rest of the old range is never handed out."""
        if self.leading is not None:
            return True
        asked_s = self._clock.monotonic_s()
        used = self._last + 1 - self._range.begin_tick
        wanted = max(MIN_TICK_RANGE, min(2 * used, TICK_RANGE), 2 * count)
        try:
            first = await self._fetch(wanted)
        except (NotLeaderError, MetadataUnavailableError) as error:
            self._last_failure = error.values.get("cause") or error.message
            return False
        # A slow response may be below ticks that were handed out meanwhile: discard it.
        if first <= self._last:
            self._last_failure = f"it returned ticks from {first}, not above this node's last tick {self._last}"
            return False
        self._last = Tick(first - 1)
        self._range = TickRange(first, first + wanted, asked_s + TICK_RANGE_AGE_S)
        return True
