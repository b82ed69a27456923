"""The scans of a consumer: they follow its vchannels, as ``ScanLayout`` decides."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Final

from tidelog.groups.scan_layout import ScanLayout, ScanPart
from tidelog.read.reader_watch import ReaderWatch
from tidelog.read.scan import ScanCore
from tidelog.read.scan_plan import ScanArguments
from tidelog.read.scan_sources import Begin
from tidelog.transport.transport import Transport
from tidelog.wire.batch import Batch

_QUIET_S: Final = 1.0
"""Time without a change after which as few scans as possible replace all."""


class _Scan:
    """A scan, and the wait for its next batch, if there is one."""

    def __init__(self, part: ScanPart, core: ScanCore) -> None:
        self.part = part
        self.core = core
        self.fetching: asyncio.Task[bool] | None = None

    @property
    def has_batch(self) -> bool:
        """Whether it has a batch to deliver, and is not waiting.

        The synchronous consumer takes batches on the caller's thread, while other scans wait on that of the event loop.
        """
        return self.core.has_batch and (self.fetching is None or self.fetching.done())


class ConsumerScans:
    """The scans of a consumer. Lives on one event loop.

    Attributes:
        is_due: Whether scans are to be replaced; then call ``follow``.
    """

    def __init__(
        self,
        transport: Callable[[], Transport],
        plan: ScanArguments,
        watch: ReaderWatch,
        on_due: Callable[[], None],
        group: str,
    ) -> None:
        """Start without vchannels.

        Args:
            transport: Returns the client's connections.
            plan: Plan of the scans.
            watch: Receives the state of the connections.
            on_due: Called when ``is_due`` was set because nothing has changed for a while.
            group: Name of the consumer's group.
        """
        self.is_due = False
        self._transport = transport
        self._plan = plan
        self._watch = watch
        self._on_due = on_due
        self._group = group
        self._layout = ScanLayout()
        # The next one to deliver first.
        self._scans: deque[_Scan] = deque()
        # Fires once nothing has changed for a while; None if there are as few scans as possible.
        self._quiet_timer: asyncio.TimerHandle | None = None
        self._is_quiet = False

    def __len__(self) -> int:
        """Return the number of vchannels that are delivered."""
        return len(self._layout.part_of)

    @property
    def has_batch(self) -> bool:
        """Whether ``take`` has a batch to return."""
        return any(scan.has_batch for scan in self._scans)

    def take(self) -> Batch:
        """Return the next batch; there must be one. The scans take turns."""
        while not self._scans[0].has_batch:
            self._scans.rotate(-1)
        return self._scans[0].core.take()

    def fetches(self) -> list[asyncio.Task[bool]]:
        """Return the waits for the next batches, one of each scan."""
        fetches = []
        for scan in self._scans:
            if scan.fetching is None:
                scan.fetching = asyncio.create_task(scan.core.fetch(), name="tidelog-consumer-fetch")
            fetches.append(scan.fetching)
        return fetches

    def take_fetched(self) -> bool:
        """Return whether a wait of ``fetches`` has ended; raise its error if it failed."""
        has_ended = False
        for scan in self._scans:
            if scan.fetching is not None and scan.fetching.done():
                fetching, scan.fetching = scan.fetching, None
                fetching.result()
                has_ended = True
        return has_ended

    def drop(self, vchannels: Collection[str]) -> None:
        """Deliver nothing more of these vchannels."""
        dropped = self._layout.drop(vchannels)
        for scan in self._scans:
            if (names := dropped.get(scan.part)) is not None:
                scan.core.drop(names)
                self.is_due = self.is_due or scan.part.is_worn
        if dropped:
            self._wait_for_quiet()

    async def follow(self, ticks: Mapping[str, int]) -> None:
        """Deliver these vchannels: those that no scan has yet, from their ticks.

        Args:
            ticks: For each vchannel the first tick that was not delivered. It must have those of all scans.
        """
        replaced = set(self._layout.parts if self._is_quiet else self._layout.to_replace())
        self.is_due = self._is_quiet = False
        await self._close(replaced)
        added = self._layout.add(ticks)
        for part in added:
            begins = {name: Begin.tick(ticks[name]) for name in part.names}
            self._scans.append(_Scan(part, ScanCore.at(self._transport, begins, self._plan, self._watch, self._group)))
        if added:
            self._watch.reads(list(ticks))
            self._wait_for_quiet()

    async def aclose(self) -> None:
        """Close all scans; ``follow`` opens others."""
        self._stop_timer()
        self.is_due = self._is_quiet = False
        await self._close(set(self._layout.parts))

    async def _close(self, parts: Collection[ScanPart]) -> None:
        # All that has an effect is in the first step, so that this may be cancelled.
        closed = [scan for scan in self._scans if scan.part in parts]
        self._scans = deque(scan for scan in self._scans if scan.part not in parts)
        for scan in closed:
            self._layout.remove(scan.part)
            if scan.fetching is not None:
                scan.fetching.cancel()
            scan.core.end()
        fetches = [scan.fetching for scan in closed if scan.fetching is not None]
        await asyncio.gather(*fetches, return_exceptions=True)
        for scan in closed:
            await scan.core.aclose()

    def _wait_for_quiet(self) -> None:
        """Restart the wait for a while without a change, if there is then something to replace."""
        self._stop_timer()
        if not self._layout.is_minimal:
            self._quiet_timer = asyncio.get_running_loop().call_later(_QUIET_S, self._be_quiet)

    def _be_quiet(self) -> None:
        self._quiet_timer = None
        self.is_due = self._is_quiet = True
        self._on_due()

    def _stop_timer(self) -> None:
        if self._quiet_timer is not None:
            self._quiet_timer.cancel()
            self._quiet_timer = None
