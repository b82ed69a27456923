"""Keeps a folded log short: snapshots, copies of old bodies, and trims.

A snapshot is written once the events since the last one would take long to replay. Then everything below it can be
trimmed, except the bodies to which the state refers. If more than half of the log is of no use, because a few old
bodies hold it back, these are copied to its end first. So a log is at most about twice as large as its bodies and a
snapshot, and LOG_SLACK_BYTES.

Source of the copies: the segment cleaning of log-structured file systems (Rosenblum and Ousterhout, 1992).
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

from tidelog_server.core.limits import MIB
from tidelog_server.core.ticks import Tick
from tidelog_server.fold.calls import Call
from tidelog_server.fold.log import FoldLog, FoldStep
from tidelog_server.fold.pages import PAGE_BYTES, Frozen
from tidelog_server.fold.rows import SNAPSHOTS
from tidelog_server.log.node import LogNode
from tidelog_server.runtime.failpoints import Failpoint, hit

# A snapshot is due after this number of changes, and twice as many as there are items in the state; or after these
# bytes, and as many as the last one had.
SNAPSHOT_AFTER_CHANGES: Final = 100_000
SNAPSHOT_AFTER_BYTES: Final = 64 * MIB
_SNAPSHOT_RATIO: Final = 2
# A log is trimmed if it has at least this number of bytes.
TRIM_ABOVE_BYTES: Final = 8 * MIB
# A log is cleaned if it has more than twice the bytes of its bodies and the snapshot, and this number more.
CLEAN_ABOVE_BYTES: Final = 16 * MIB
LOG_SLACK_BYTES: Final = SNAPSHOT_AFTER_BYTES + CLEAN_ABOVE_BYTES
"""What a log may have beyond twice its bodies and a snapshot."""

Log = TypeVar("Log", bound=FoldLog[Any, Any])
Old = TypeVar("Old")


class Keeper(ABC, Generic[Log, Old]):
    """Keeps the logs of one feature short, one at a time. Lives on the event loop."""

    def __init__(
        self,
        node: LogNode,
        *,
        on_snapshot: Callable[[], None] = lambda: None,
        on_trim: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_snapshot`` and ``on_trim`` are called after each, to count them."""
        self._node = node
        self._on_snapshot = on_snapshot
        self._on_trim = on_trim
        # Of two snapshots at a time, the older one could be completed last, when the log is trimmed above it.
        self._keeps = asyncio.Lock()

    # -- What differs between features -----------------------------------------------------------------------

    @abstractmethod
    def _items(self, log: Log) -> int:
        """Return the number of items in the state, for each of which a snapshot takes time."""

    @abstractmethod
    def _used_bytes(self, log: Log) -> int:
        """Return the bytes of the log that the bodies take, about."""

    @abstractmethod
    def _oldest_place(self, log: Log, end_tick: int) -> int:
        """Return the smallest tick below ``end_tick`` at which a body lies; ``end_tick`` without one."""

    @abstractmethod
    def _old(self, log: Log, end_tick: int) -> Iterator[Sequence[Old]]:
        """Yield the bodies below ``end_tick`` in parts, to be copied one after another; an empty part for a pause."""

    @abstractmethod
    async def _copy(self, log: Log, part: Sequence[Old]) -> tuple[int, int]:
        """Copy bodies to the end of the log; return the size of the copies, and that in terms of ``_used_bytes``."""

    # Whether the state can be asked for its oldest body again and again, so that a long copy is trimmed meanwhile.
    _trims_while_copying = True
    # Whether a replay takes time for the bytes of events.
    _counts_bytes = True

    # -- What is the same --------------------------------------------------------------------------------------

    def is_due(self, log: Log) -> bool:
        """Return whether a log has grown enough for a snapshot. Takes no time."""
        if log.changes > max(SNAPSHOT_AFTER_CHANGES, _SNAPSHOT_RATIO * self._items(log)):
            return True
        return self._counts_bytes and log.written_bytes > max(SNAPSHOT_AFTER_BYTES, log.snapshot_bytes)

    async def keep(self, log: Log) -> None:
        """Write a snapshot, and trim the log as far as possible.

        Raises:
            TidelogServerError: The log is closed, or it failed. What was done is consistent.
        """
        async with self._keeps:
            await self.write_snapshot(log)
            if self.is_mostly_garbage(log):
                await self.copy_old(log)
                await self.write_snapshot(log)

    async def write_snapshot(self, log: Log) -> None:
        """Write a snapshot, and trim what neither it nor a body needs."""
        written_bytes, changes = log.written_bytes, log.changes
        log.written_bytes = log.changes = 0
        try:
            oldest_place = await self._write_pages(log)
        except BaseException:
            # It is still due.
            log.written_bytes += written_bytes
            log.changes += changes
            raise
        await self.trim(log, oldest_place)

    async def _write_pages(self, log: Log) -> int:
        """Write the pages of a snapshot; the last one also sets the tick from which the next start loads.

        Return the tick of the oldest body to which it refers, or its own. What lies below was of no use before the
        snapshot: a restore to a tick after it needs nothing below.
        """
        kind = log.fold.snapshot_kind

        def first_page(step: FoldStep) -> tuple[int, Frozen, int]:
            frozen, tick = log.fold.freeze(log.state), step.outbox.next_tick
            step.outbox.add(kind, frozen.next_page())
            return tick, frozen, self._oldest_place(log, tick)

        def next_page(step: FoldStep) -> None:
            step.outbox.add(kind, frozen.next_page())

        # In the step of the first page, no event comes between the state and its snapshot.
        tick, frozen, oldest_place = await log.run(Call(first_page, 1, PAGE_BYTES))
        hit(Failpoint.FOLD_SNAPSHOT_PAGE)
        for _ in range(1, frozen.pages - 1):
            await log.run(Call(next_page, 1, PAGE_BYTES))
            hit(Failpoint.FOLD_SNAPSHOT_PAGE)
        # The row of a snapshot of one page is written without an event of its own.
        last = Call(next_page if frozen.pages > 1 else lambda _: None, 1, PAGE_BYTES)
        last.rows = (SNAPSHOTS.row(log.place.vchannel.vchannel_id, tick),)
        await log.run(last)
        log.snapshot_tick, log.snapshot_bytes = tick, frozen.size_bytes
        self._on_snapshot()
        return oldest_place

    async def trim(self, log: Log, tick: int) -> None:
        """Remove the events below ``tick``, which must not exceed the snapshot, unless they are too few."""
        log.check_open()
        vchannel = log.place.vchannel
        if tick <= vchannel.trim_tick or self._kept_bytes(log) < TRIM_ABOVE_BYTES:
            return
        # Ordering: set before the trim is submitted, as for other trims.
        vchannel.trim_tick = Tick(tick)
        tail = await self._node.committer.run(lambda: self._node.store.trim(vchannel.vchannel_id, tick))
        vchannel.trim_tick = Tick(tail.trim_tick)
        self._node.reclaim_wanted.set()
        self._on_trim()

    def is_mostly_garbage(self, log: Log) -> bool:
        """Return whether more than half of a log is of no use."""
        log.check_open()
        used_bytes = log.copied_ratio * self._used_bytes(log) + log.snapshot_bytes
        return self._kept_bytes(log) > 2 * used_bytes + CLEAN_ABOVE_BYTES

    def _kept_bytes(self, log: Log) -> int:
        """Return the bytes of a log that are not trimmed."""
        tail = self._node.store.tail(log.place.vchannel.vchannel_id)
        return tail.columns_bytes - tail.trimmed_bytes

    async def copy_old(self, log: Log) -> None:
        """Copy every body that lies below the present end of the log to the end that it has then."""
        copied_bytes = used_bytes = untrimmed_bytes = 0
        for part in self._old(log, log.place.vchannel.submitted_tick + 1):
            if not part:
                # A turn for others.
                await asyncio.sleep(0)
                continue
            size_bytes, part_bytes = await self._copy(log, part)
            hit(Failpoint.FOLD_COPIED)
            copied_bytes += size_bytes
            used_bytes += part_bytes
            untrimmed_bytes += size_bytes
            if untrimmed_bytes >= CLEAN_ABOVE_BYTES and self._trims_while_copying:
                # So that the copies of a large log need little disk space.
                await self.trim(log, self._oldest_place(log, log.snapshot_tick))
                untrimmed_bytes = 0
        if copied_bytes:
            log.copied_ratio = max(1.0, copied_bytes / used_bytes)
