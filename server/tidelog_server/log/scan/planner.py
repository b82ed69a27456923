"""Plans scans: a snapshot over vchannels, divided into splits."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import islice
from typing import Final

from tidelog_server.core.entries import EntryHeader
from tidelog_server.core.errors import InvalidRequestError, PositionBeyondEndError
from tidelog_server.core.limits import MAX_SPLITS
from tidelog_server.core.ticks import Tick
from tidelog_server.log.channel_log import ChannelLog, LogContext, VchannelLog
from tidelog_server.log.scan.positions import check_position
from tidelog_server.log.scan.splits import (
    Extent,
    Split,
    SplitBounds,
    clip,
    extents_of_chunks,
    extents_of_headers,
    join,
    merged,
)
from tidelog_server.storage.format.codec import ChunkRow

# Headers that a plan reads from chunks at the edges of its range, to count exactly: about 150 ms.
MAX_EDGE_HEADERS: Final = 65_536

_POLL_S: Final = 0.002
_PAGE_HEADERS: Final = 1_024


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A scan to plan.

    Attributes:
        begin_tick: Inclusive; 0 for the first available tick.
        end_tick: Exclusive; 0 for a consistent cut made now.
        min_splits: Desired minimum number of splits; a hint.
        max_messages: Approximate maximum of messages in a split.
        max_bytes: Approximate maximum of bytes in a split.
    """

    begin_tick: int
    end_tick: int
    min_splits: int
    max_messages: int
    max_bytes: int


class ScanPlanner:
    """Plans scans over vchannels of one node."""

    def __init__(self, node: LogContext, readers: Executor) -> None:
        self._node = node
        self._readers = readers

    async def plan(
        self, targets: Sequence[tuple[ChannelLog, VchannelLog]], request: PlanRequest
    ) -> tuple[Tick, list[list[Split]]]:
        """Return the cut and the splits of each vchannel.

        The cut is consistent: every message acknowledged before the call is below it, every append that begins after
        the call gets a tick at or above it, and everything below it is durable when this returns. An ``end_tick``
        within a transaction is replaced by the transaction's first tick, so the cut never divides a transaction on
        these vchannels.

        Raises:
            PositionTrimmedError: ``begin_tick`` is not 0 and was trimmed, or is before the creation of a channel.
            PositionBeyondEndError: ``end_tick`` was never allocated.
            InvalidRequestError: There would be too many splits.
            ChannelNotExistError: A channel was destroyed meanwhile.
        """
        cut = await self._cut(targets, request.end_tick)
        ranges = [self._range(log, vchannel, request.begin_tick, cut) for log, vchannel in targets]
        loop = asyncio.get_running_loop()
        call = _Divide(self._node, [vchannel.vchannel_id for _, vchannel in targets], ranges, request)
        try:
            found = await loop.run_in_executor(self._readers, call)
        except KeyError:
            # Dropped while the index was read.
            _check_open(targets)
            raise
        # If a channel is destroyed meanwhile, its index may have been read in part.
        _check_open(targets)
        return found

    async def _cut(self, targets: Sequence[tuple[ChannelLog, VchannelLog]], end_tick: int) -> Tick:
        oracle = self._node.oracle
        if end_tick == 0:
            end_tick = await oracle.allocate(1)
        elif end_tick > oracle.now() + 1:
            # Another node of the cluster may have allocated it.
            await oracle.catch_up()
            if end_tick > oracle.now() + 1:
                raise PositionBeyondEndError(requested_tick=end_tick, latest_tick=oracle.last)
        while any(log.watermark() < end_tick - 1 for log, _ in targets):
            self._node.admission.check_storage()
            await asyncio.sleep(_POLL_S)
        return Tick(end_tick)

    def _range(self, log: ChannelLog, vchannel: VchannelLog, begin_tick: int, end_tick: int) -> tuple[int, int]:
        if begin_tick == 0:
            return vchannel.trim_tick, end_tick
        check_position(vchannel.name, begin_tick, trim_tick=vchannel.trim_tick, created_tick=log.created_tick)
        return begin_tick, end_tick


def _check_open(targets: Sequence[tuple[ChannelLog, VchannelLog]]) -> None:
    for log, _ in targets:
        log.check_open()


@dataclass(frozen=True, slots=True)
class _Divide:
    """Reads the index and divides; runs on a reader thread."""

    node: LogContext
    vchannel_ids: Sequence[int]
    ranges: Sequence[tuple[int, int]]
    request: PlanRequest

    def __call__(self) -> tuple[Tick, list[list[Split]]]:
        ranges = self._ranges_of_chunks()
        end_tick = min(end for _, end, _ in ranges)
        extents = self._extents(ranges, end_tick)
        limits = self._limits(extents)
        room = MAX_SPLITS
        splits = []
        for vchannel_id, found in zip(self.vchannel_ids, extents, strict=True):
            # Never more than the answer may have, however small the requested splits are.
            splits.append(list(islice(join(self._refine(vchannel_id, found, limits), limits), room + 1)))
            room -= len(splits[-1])
            if room < 0:
                raise InvalidRequestError(
                    f"the plan has more than {MAX_SPLITS} splits: request larger ones", field="max_messages_per_split"
                )
        return Tick(end_tick), splits

    def _ranges_of_chunks(self) -> list[tuple[int, int, Sequence[ChunkRow]]]:
        """Return each vchannel's beginning, its end according to the vchannel's transactions, and its chunks.

        The smallest end applies to all: only messages of the transaction that contains it have ticks there.
        """
        ranges: list[tuple[int, int, Sequence[ChunkRow]]] = []
        for vchannel_id, (begin_tick, end_tick) in zip(self.vchannel_ids, self.ranges, strict=True):
            chunks = self.node.store.chunks(vchannel_id, begin_tick, end_tick)
            end = end_tick
            # A cut made by the oracle is never within a transaction.
            if chunks and self.request.end_tick:
                end = self._end_before_cut_transaction(vchannel_id, max(begin_tick, chunks[-1].first_tick), end_tick)
            ranges.append((begin_tick, end, chunks))
        return ranges

    def _end_before_cut_transaction(self, vchannel_id: int, begin_tick: int, end_tick: int) -> int:
        """Return the first tick of the transaction that ``end_tick`` is within; ``end_tick`` itself outside of one."""
        last: EntryHeader | None = None
        for header in self._headers(vchannel_id, begin_tick, end_tick):
            last = header
        if last is None or last.txn is None or last.txn.last_tick < end_tick:
            return end_tick
        return last.txn.first_tick

    def _extents(self, ranges: Sequence[tuple[int, int, Sequence[ChunkRow]]], end_tick: int) -> list[list[Extent]]:
        """Return the extents of each vchannel from its beginning to ``end_tick``: chunks, or parts of them.

        A chunk at the edge of the range is counted by its headers. After MAX_EDGE_HEADERS headers, its part is
        estimated in proportion to ticks.
        """
        room = MAX_EDGE_HEADERS
        found: list[list[Extent]] = []
        for vchannel_id, (begin_tick, _, chunks) in zip(self.vchannel_ids, ranges, strict=True):
            extents: list[Extent] = []
            for chunk in chunks:
                parts = list(clip(extents_of_chunks([chunk]), begin_tick, end_tick))
                is_cut = chunk.first_tick < begin_tick or chunk.last_tick >= end_tick
                # Ticks of one batch are consecutive, so there the proportion is exact.
                if parts and is_cut and 1 < chunk.batches <= room:
                    headers = list(self._headers(vchannel_id, parts[0].first_tick, parts[0].last_tick + 1))
                    room -= len(headers)
                    parts = merged(list(clip(extents_of_headers(headers), begin_tick, end_tick)))
                extents += parts
            found.append(extents)
        return found

    def _limits(self, extents: Sequence[Sequence[Extent]]) -> SplitBounds:
        """Return the size of a split that results in about ``min_splits`` splits."""
        total_bytes = sum(extent.columns_bytes for found in extents for extent in found)
        max_bytes = self.request.max_bytes
        if self.request.min_splits > 1:
            max_bytes = min(max_bytes, max(1, -(-total_bytes // self.request.min_splits)))
        return SplitBounds(self.request.max_messages, max_bytes)

    def _refine(self, vchannel_id: int, extents: Sequence[Extent], limits: SplitBounds) -> Iterator[Extent]:
        """Divide extents that are too large for a split into single entries, or parts of them."""
        for extent in extents:
            if limits.are_exceeded_by(extent.messages, extent.columns_bytes):
                begin_tick, end_tick = extent.first_tick, extent.last_tick + 1
                headers = self._headers(vchannel_id, begin_tick, end_tick)
                yield from clip(extents_of_headers(headers, limits.max_messages), begin_tick, end_tick)
            else:
                yield extent

    def _headers(self, vchannel_id: int, begin_tick: int, end_tick: int) -> Iterator[EntryHeader]:
        while page := self.node.store.headers(vchannel_id, begin_tick, end_tick, _PAGE_HEADERS):
            yield from page
            begin_tick = page[-1].last_tick + 1
            if begin_tick >= end_tick:
                return
