"""Scans of vchannels of several nodes, merged in tick order."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from tidelog.errors import ClosedError
from tidelog.read.scan import ScanCore
from tidelog.read.scan_plan import ScanArguments
from tidelog.read.scanned import Scanned, Signal
from tidelog.tick import MAX_TICK, Tick
from tidelog.transport.stream_end import look_at
from tidelog.wire.batch import Batch

_NO_BATCH: Final = MAX_TICK + 1


class MergedCore(Scanned):
    """The scans of several nodes as one; see ``Scanned``.

    A batch is delivered once each other node has a later one, or a watermark at or above its first tick: that node then
    has nothing earlier. The ticks of a batch are consecutive, so no batch of another node lies within it.
    """

    def __init__(self, open_: Callable[[], Awaitable[Sequence[ScanCore]]], plan: ScanArguments) -> None:
        """Create a scan; ``open_`` returns the scans of the nodes."""
        self.caught_up: Signal = asyncio.Event()
        self._open = open_
        self.plan = plan
        self._cores: Sequence[ScanCore] | None = None
        self._ended: set[ScanCore] = set()
        # A cancelled ``fetch`` leaves them, so that no response is lost.
        self._steps: dict[ScanCore, asyncio.Task[bool]] = {}
        self._is_closed = False

    def __repr__(self) -> str:
        if self._cores is None:
            return "that is not opened yet"
        return f"of {len(self.positions)} vchannels on {len(self._cores)} nodes"

    @property
    def has_batch(self) -> bool:
        return self._first_tick < _NO_BATCH and not self._behind()

    @property
    def watermark(self) -> Tick:
        open_ = [core.watermark for core in self._cores or () if core not in self._ended]
        return min(open_, default=max((core.watermark for core in self._cores or ()), default=Tick(0)))

    @property
    def positions(self) -> Mapping[str, Tick]:
        if self._cores is None:
            return {vchannel: Tick(tick) for vchannel, tick in (self.plan.positions or {}).items()}
        return {vchannel: tick for core in self._cores for vchannel, tick in core.positions.items()}

    async def fetch(self) -> bool:
        await self._opened()
        while not self.has_batch:
            behind = self._behind()
            if not behind:
                return False
            await self._step(behind)
        return True

    def take(self) -> Batch:
        batch = self._first().take()
        self._note()
        return batch

    def peek(self) -> Batch:
        return self._first().peek()

    @property
    def has_ended(self) -> bool:
        return self._cores is not None and not self.has_batch and all(core in self._ended for core in self._cores)

    def mark(self) -> Callable[[], None]:
        marks = {core: core.mark() for core in self._cores or ()}

        def restore() -> None:
            for core in self._cores or ():
                # A core that was opened since has delivered nothing before.
                marks.get(core, core.forget)()

        return restore

    async def enter(self) -> None:
        if self.plan.start.kind == "latest" and self.plan.positions is None:
            await asyncio.gather(*(core.enter() for core in await self._opened()))
            self._note()

    def end(self) -> None:
        self._is_closed = True
        for core in self._cores or ():
            core.end()

    async def aclose(self) -> None:
        self.end()
        steps, self._steps = self._steps, {}
        for step in steps.values():
            step.cancel()
        if steps:
            await asyncio.wait(steps.values())
        for core in self._cores or ():
            await core.aclose()

    async def _opened(self) -> Sequence[ScanCore]:
        if self._is_closed:
            raise ClosedError("the scan is closed: start another with start=scan.positions")
        if self._cores is None:
            self._cores = await self._open()
        return self._cores

    def _first(self) -> ScanCore:
        """Return the scan with the earliest batch that was received; there must be one."""
        return min((core for core in self._cores or () if core.has_batch), key=lambda core: core.peek().ticks[0])

    @property
    def _first_tick(self) -> int:
        return min((core.peek().ticks[0] for core in self._cores or () if core.has_batch), default=_NO_BATCH)

    def _behind(self) -> list[ScanCore]:
        """Return the scans that may still have a batch before the earliest one that was received."""
        first = self._first_tick
        return [
            core
            for core in self._cores or ()
            if not core.has_batch and core not in self._ended and core.watermark < first
        ]

    async def _step(self, behind: Sequence[ScanCore]) -> None:
        """Wait until one of these scans has received a response, or has ended."""
        if len(behind) == 1 and behind[0] not in self._steps:
            # As a scan of one node: its own wait can be cancelled, so it needs no task.
            if not await behind[0].next_response():
                self._ended.add(behind[0])
            self._note()
            return
        for core in behind:
            if core not in self._steps:
                self._steps[core] = asyncio.create_task(core.next_response(), name="tidelog-scan-step")
                # Its error is raised by the next ``fetch``, if there is one.
                self._steps[core].add_done_callback(look_at)
        await asyncio.wait([self._steps[core] for core in behind], return_when=asyncio.FIRST_COMPLETED)
        for core in behind:
            if self._steps[core].done() and not self._steps.pop(core).result():
                self._ended.add(core)
        self._note()

    def _note(self) -> None:
        cores = self._cores or ()
        if all(core in self._ended or (core.caught_up.is_set() and not core.has_batch) for core in cores):
            self.caught_up.set()
        else:
            self.caught_up.clear()
