"""Scans: one or many vchannels in tick order, bounded or following, from the tail ring or the store."""

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from tidelog_server.core.entries import MIXED_TYPES, EntryHeader, NewEntry
from tidelog_server.core.errors import PositionTrimmedError
from tidelog_server.core.limits import KIB
from tidelog_server.core.ticks import MAX_TICK, NO_TICK, Tick, physical_ms
from tidelog_server.log.channel_log import ChannelLog, LogContext, VchannelLog, grown_since
from tidelog_server.log.scan.positions import check_not_trimmed
from tidelog_server.log.scan.read_budget import PAGES_AHEAD, ReadMemory
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.storage.log_store import VchannelTail

Result = TypeVar("Result")

# Headers that a scan reads ahead, shared among its sources: about 100 kB of memory.
_LOOK_AHEAD: Final = 1_024
_MIN_LOOK_AHEAD: Final = 16
_SECOND_PAGE_BYTES: Final = 128 * KIB
# Of a larger entry, a scan delivers this much first: the caller waits for it, and may need no more.
_FIRST_PIECE_BYTES: Final = 64 * KIB
# Maximum entries that a page examines, wanted or not: it limits the time of one step of the event loop.
_MAX_PAGE_ENTRIES: Final = 1_024
# Minimum interval at which a scan that waits for its end checks the watermark.
_END_POLL_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Piece:
    """The messages ``begin`` to ``end`` (exclusive) of an entry of one source.

    Attributes:
        source: Index of the vchannel in the scan.
        base_tick: Tick of the entry's first message, which may be before ``begin``.
        count: Messages in the entry.
        message_type: Their type, or MIXED_TYPES.
        columns: The entry's columns, as written.
        begin, end: Messages in range; the whole entry unless the scan starts or ends within it.
        txn_id: Id of its transaction; 0 outside of transactions.
        broadcast_id: Id of its broadcast; 0 outside of broadcasts.
    """

    source: int
    base_tick: Tick
    count: int
    message_type: int
    columns: bytes
    begin: int
    end: int
    txn_id: int = 0
    broadcast_id: int = 0


@dataclass(frozen=True, slots=True)
class Page:
    """The content of one response.

    Attributes:
        pieces: Pieces in tick order.
        watermark: No later page has a tick at or below it; NO_TICK if not reported.
        is_caught_up: True if everything durable in the scan's range has been delivered.
        grown: Number of vchannels of the channels that have more than the scan; then this page, without pieces, is the
            last one.
    """

    pieces: list[Piece]
    watermark: Tick
    is_caught_up: bool
    grown: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScanParameters:
    """Parameters of a scan.

    Attributes:
        ends_at_durable: True to end after what was durable at the start; then ``end_tick`` is not used.
        end_tick: Exclusive end; None to follow indefinitely.
        cuts_transactions: True if the end may divide a transaction; else a transaction is delivered only if all of it
            is below the end.
        message_types: Types to deliver; None for all.
        broadcast_types: Types of broadcasts to deliver; None for all.
        max_page_bytes: Bytes of columns at which a page ends.
        watermark_interval_s: Maximum interval between watermarks of a following scan.
        reads_ahead: False if the caller is likely to leave the scan before its end: no page is read before it asks.
        whole_channels: Channels of which the sources are all vchannels, with their number: the scan ends if they have
            more.
    """

    ends_at_durable: bool
    end_tick: int | None
    message_types: frozenset[int] | None
    max_page_bytes: int
    watermark_interval_s: float
    cuts_transactions: bool = False
    broadcast_types: frozenset[int] | None = None
    reads_ahead: bool = True
    whole_channels: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class ScanSource:
    """One vchannel of a scan, and its progress.

    Attributes:
        index: Index in the request.
        position: The next tick to deliver.
        buffer: The next entries, in order and without gaps.
        look_ahead: Number of headers to read next; it grows, so that the first message is delivered early.
    """

    index: int
    log: ChannelLog
    vchannel: VchannelLog
    position: Tick
    end_tick: int = MAX_TICK
    buffer: deque[EntryHeader | NewEntry] = field(default_factory=deque)
    look_ahead: int = _MIN_LOOK_AHEAD

    def leave_cut_transaction(self) -> None:
        """If the scan's end is within a transaction, end before it. Called with a filled buffer."""
        # No other entry has a tick of its span, so every entry after its first one belongs to it.
        last = self.buffer[-1].txn
        if last is None or last.last_tick < self.end_tick:
            return
        # Compare spans, not transactions: those that are committed together share one span.
        while self.buffer and last.first_tick <= self.buffer[-1].base_tick:
            self.end_tick = self.buffer.pop().base_tick


_Chosen = list[tuple[ScanSource, EntryHeader | NewEntry, Tick]]
"""Entries of a page, each with its source and the scan's position there."""


@dataclass(frozen=True, slots=True)
class _PageInReading:
    chosen: _Chosen
    size_bytes: int
    stored: asyncio.Future[list[bytes | None]]


class Scanner:
    """Delivers pages; used as an asynchronous context manager, by one task.

    While the caller sends a page, the next ones are read.

    Memory: the columns of ``PAGES_AHEAD`` + 1 pages, as far as ``memory`` permits, and headers of ``_LOOK_AHEAD``
    entries. The memory of a page is released when the next one is requested.
    """

    def __init__(
        self,
        node: LogContext,
        readers: Executor,
        metrics: Metrics,
        sources: Sequence[ScanSource],
        plan: ScanParameters,
        *,
        memory: ReadMemory,
    ) -> None:
        self._node = node
        self._memory = memory
        self._readers = readers
        self._metrics = metrics
        # Looked up once: a lookup takes as long as the read of a short page.
        self._ring_reads, self._store_reads = metrics.scan_reads.labels("ring"), metrics.scan_reads.labels("store")
        self._sources = sources
        self._plan = plan
        self._wake = asyncio.Event()
        self._max_look_ahead = max(_MIN_LOOK_AHEAD, _LOOK_AHEAD // len(sources))
        self._logs = list({id(source.log): source.log for source in sources}.values())
        self._reading: deque[_PageInReading] = deque()
        # The first page is one entry, because the caller waits for it; later pages grow, because it may need no more.
        self._max_page_bytes = 1
        # Without an end tick the scan ends at what is durable, which has whole transactions only.
        self._keeps_transactions_whole = plan.end_tick is not None and not plan.cuts_transactions

    async def __aenter__(self) -> "Scanner":
        self._follow()
        self._metrics.scanners.inc()
        return self

    async def __aexit__(self, *_: object) -> None:
        # Without an await: the call may be cancelled again while it ends, and the cleanup below must still run.
        for reading in self._reading:
            if not reading.stored.cancel() and not reading.stored.cancelled():
                # Retrieved, because asyncio warns of an exception that was never retrieved.
                reading.stored.exception()
        for source in self._sources:
            source.vchannel.followers.discard(self._wake)
        self._memory.close()
        self._metrics.scanners.dec()

    def _follow(self) -> None:
        """Register for the next event of any source. Ordering: before checking what is available."""
        self._wake.clear()
        for source in self._sources:
            source.vchannel.followers.add(self._wake)

    async def pages(self) -> AsyncIterator[Page]:
        """Yield pages until the end of the scan.

        Raises:
            PositionTrimmedError: A trim overtook the scan.
            ChannelNotExistError: A channel was destroyed.
            ShutdownError, OwnershipLostError: The node stops serving; the caller may resume elsewhere or later.
            DataLossError: An entry is damaged or missing.
            RateLimitRejectedError: No memory for the next page in time.
        """
        plan = self._plan
        horizon = self._horizon()
        has_begun = False
        self._set_ends()
        grown = self._grown()
        while True:
            if not plan.ends_at_durable:
                self._follow()
                previous, horizon = horizon, self._horizon()
                # INV-2: a reported watermark holds for all later pages.
                assert previous <= horizon
                # Ordering: in one step with the horizon. Vchannels that are added later have greater ticks only, so
                # everything that was reported before holds for them, too.
                grown = self._grown()
            if grown:
                yield Page([], NO_TICK, is_caught_up=False, grown=grown)
                return
            last: list[Piece] = []
            last_bytes = 0
            async for page, is_last, size_bytes in self._drain(MAX_TICK if plan.ends_at_durable else horizon + 1):
                self._memory.charge_turn(size_bytes, len(page))
                beginning, rest = ([], page) if has_begun else _with_small_beginning(page)
                has_begun = True
                if beginning:
                    yield Page(beginning, NO_TICK, is_caught_up=False)
                if is_last:
                    last, last_bytes = rest, size_bytes
                    del page, beginning, rest
                else:
                    yield Page(rest, NO_TICK, is_caught_up=False)
                    # Ordering: drop all references to the page before its memory is released to others.
                    del page, beginning, rest
                    self._memory.give_back(size_bytes)
                    await self._memory.next_page_turn()
            # The last page carries the watermark: a follower that keeps up gets one response per group.
            is_ended = plan.ends_at_durable or (plan.end_tick is not None and horizon >= plan.end_tick - 1)
            hit(Failpoint.SCAN_WATERMARK_READ)
            yield Page(last, self._watermark_to_report(horizon), is_caught_up=is_ended or self._is_caught_up())
            del last
            self._memory.give_back(last_bytes)
            if is_ended:
                return
            await self._wait(horizon)
            await self._memory.next_turn()

    def _set_ends(self) -> None:
        for source in self._sources:
            if self._plan.ends_at_durable:
                source.end_tick = source.vchannel.durable_tick + 1
            elif self._plan.end_tick is not None:
                source.end_tick = self._plan.end_tick

    def _grown(self) -> Mapping[str, int]:
        """Return the whole channels that have more vchannels than the scan, with their number."""
        return grown_since(self._plan.whole_channels, self._logs)

    def _watermark_to_report(self, horizon: Tick) -> Tick:
        """Return the watermark to report: at most the scan's end, so that a reader resuming there misses nothing."""
        if self._plan.end_tick is None:
            return horizon
        return Tick(max(NO_TICK, min(horizon, *(source.end_tick - 1 for source in self._sources))))

    def _is_caught_up(self) -> bool:
        """Return whether nothing became durable while the last pages were being sent."""
        durable = ((source.vchannel.durable_tick, source.position) for source in self._sources)
        return all(last_tick == NO_TICK or last_tick < position for last_tick, position in durable)

    async def _wait(self, horizon: Tick) -> None:
        """Wait until data may have become readable, the watermark is due, or the end may be reached."""
        timeout_s = self._plan.watermark_interval_s
        if self._plan.end_tick is not None:
            to_end_s = (physical_ms(self._plan.end_tick) - physical_ms(horizon)) / 1_000
            timeout_s = min(timeout_s, max(_END_POLL_S, to_end_s))
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return

    def _horizon(self) -> Tick:
        """Check that the scan may continue; return the tick up to which all sources are complete."""
        self._node.admission.check_serving()
        for log in self._logs:
            log.check_open()
        return min(log.watermark() for log in self._logs)

    async def _drain(self, limit_tick: int) -> AsyncIterator[tuple[list[Piece], bool, int]]:
        """Yield everything below ``limit_tick``, merged in tick order, one page at a time.

        With each page: True if it is the last one, and its bytes of columns.
        """
        merge = [
            (source.buffer[0].base_tick, source.index)
            for source in self._sources
            if source.buffer or await self._fill(source, limit_tick, 0)
        ]
        heapq.heapify(merge)
        chosen: _Chosen = []
        page_bytes = page_entries = pages_ahead = 0
        max_ahead = PAGES_AHEAD if self._plan.reads_ahead else 0
        limit_bytes = self._page_limit()
        while merge:
            source = self._sources[merge[0][1]]
            entry = source.buffer.popleft()
            page_entries += 1
            if self._is_wanted(entry):
                chosen.append((source, entry, source.position))
                page_bytes += entry.columns_bytes if isinstance(entry, EntryHeader) else len(entry.columns)
            source.position = Tick(entry.last_tick + 1)
            if source.buffer or await self._fill(source, limit_tick, page_entries):
                heapq.heapreplace(merge, (source.buffer[0].base_tick, source.index))
            else:
                heapq.heappop(merge)
            if page_bytes >= limit_bytes or page_entries >= _MAX_PAGE_ENTRIES:
                self._max_page_bytes = min(max(2 * self._max_page_bytes, _SECOND_PAGE_BYTES), self._plan.max_page_bytes)
                async for page in self._begin_page(chosen, page_bytes):
                    yield page
                    del page
                if len(self._reading) > pages_ahead:
                    # Not from the start, so that the first page is delivered early.
                    pages_ahead = min(pages_ahead + 1, max_ahead)
                    yield await self._next_page(is_last=not merge)
                # Let other tasks run even if everything came from memory, or no entry was wanted.
                await asyncio.sleep(0)
                chosen, page_bytes, page_entries, limit_bytes = [], 0, 0, self._page_limit()
                self._horizon()
        async for page in self._begin_page(chosen, page_bytes):
            yield page
        while self._reading:
            yield await self._next_page(is_last=True)

    def _page_limit(self) -> int:
        return min(self._max_page_bytes, self._memory.page_bytes())

    async def _begin_page(self, chosen: _Chosen, size_bytes: int) -> AsyncIterator[tuple[list[Piece], bool, int]]:
        """Start to read a page; until there is memory for it, yield the pages started before it."""
        if not chosen:
            return
        while not self._memory.try_take_ahead(size_bytes):
            if not self._reading:
                await self._memory.take(size_bytes)
                break
            yield await self._next_page(is_last=False)
        self._reading.append(self._read_page(chosen, size_bytes))

    async def _next_page(self, *, is_last: bool) -> tuple[list[Piece], bool, int]:
        """Wait for the page that was started first; it can be the last one only if no other was started after it."""
        reading = self._reading.popleft()
        return await _pieces(reading), is_last and not self._reading, reading.size_bytes

    def _is_wanted(self, entry: EntryHeader | NewEntry) -> bool:
        types = self._plan.broadcast_types if entry.broadcast_id else self._plan.message_types
        return types is None or entry.message_type == MIXED_TYPES or entry.message_type in types

    async def _fill(self, source: ScanSource, limit_tick: int, page_entries: int) -> bool:
        """Read ahead on a source with an empty buffer; return whether it has anything below the limit.

        ``page_entries`` is the number of entries that the page being collected has.
        """
        assert not source.buffer
        end_tick = min(limit_tick, source.end_tick)
        vchannel = source.vchannel
        if source.position >= end_tick or source.position > vchannel.durable_tick:
            return False
        check_not_trimmed(vchannel.name, source.position, vchannel.trim_tick)
        look_ahead = source.look_ahead
        source.look_ahead = min(2 * look_ahead, self._max_look_ahead)
        # From memory, about what the page needs: another read is cheap, whereas entries that wait in the buffers of
        # many scans keep their columns in memory after the ring has evicted them.
        at_most = min(look_ahead, max(_MIN_LOOK_AHEAD, 2 * page_entries))
        recent = vchannel.ring.read(source.position, end_tick, at_most)
        if recent is not None:
            self._ring_reads.inc()
            source.buffer.extend(recent)
        else:
            source.buffer.extend(await self._read_headers(source, end_tick, look_ahead))
        # The buffer continues at the position: an entry before it was delivered already.
        assert not source.buffer or source.position <= source.buffer[0].last_tick
        if source.buffer and self._keeps_transactions_whole:
            source.leave_cut_transaction()
        return bool(source.buffer)

    async def _read_headers(self, source: ScanSource, end_tick: int, look_ahead: int) -> list[EntryHeader]:
        self._store_reads.inc()
        begin_tick, vchannel, store = source.position, source.vchannel, self._node.store

        def read() -> tuple[list[EntryHeader], VchannelTail]:
            headers = store.headers(vchannel.vchannel_id, begin_tick, end_tick, look_ahead)
            return headers, store.tail(vchannel.vchannel_id)

        try:
            headers, tail = await self._in_reader(read)
        except KeyError:
            # Dropped during the read.
            source.log.check_open()
            raise
        # Trimmed during the read: the result may begin too late. Ordering: the store's own trim tick, taken after the
        # read, because a trim removes entries before the event loop learns of it.
        check_not_trimmed(vchannel.name, begin_tick, tail.trim_tick)
        source.log.check_open()
        return headers

    def _read_page(self, chosen: _Chosen, size_bytes: int) -> _PageInReading:
        """Start to read the columns that are not in memory, all in one call."""
        headers = [entry for _, entry, _ in chosen if isinstance(entry, EntryHeader)]
        if headers:
            return _PageInReading(chosen, size_bytes, self._in_reader(lambda: self._node.store.columns(headers)))
        nothing: asyncio.Future[list[bytes | None]] = asyncio.get_running_loop().create_future()
        nothing.set_result([])
        return _PageInReading(chosen, size_bytes, nothing)

    def _in_reader(self, call: Callable[[], Result]) -> asyncio.Future[Result]:
        return asyncio.get_running_loop().run_in_executor(self._readers, call)


async def _pieces(reading: _PageInReading) -> list[Piece]:
    """Wait for the columns of a page, and limit its entries to the scan's range."""
    stored = iter(await reading.stored)
    return [
        _cut(source, entry, position, next(stored) if isinstance(entry, EntryHeader) else entry.columns)
        for source, entry, position in reading.chosen
    ]


def _with_small_beginning(pieces: list[Piece]) -> tuple[list[Piece], list[Piece]]:
    """Split off the beginning of the first piece if it is large; return it and the rest, else nothing and all."""
    first = pieces[0]
    messages = max(1, _FIRST_PIECE_BYTES * first.count // max(1, len(first.columns)))
    # Not for a small rest: the split takes time too.
    if first.end - first.begin < 2 * messages:
        return [], pieces
    middle = first.begin + messages
    return [replace(first, end=middle)], [replace(first, begin=middle), *pieces[1:]]


def _cut(source: ScanSource, entry: EntryHeader | NewEntry, position: Tick, columns: bytes | None) -> Piece:
    if columns is None:
        # Trimmed or dropped since its header was read.
        source.log.check_open()
        raise PositionTrimmedError(
            vchannel=source.vchannel.name,
            requested_tick=position,
            first_available_tick=max(source.vchannel.trim_tick, entry.last_tick + 1),
        )
    begin = max(0, position - entry.base_tick)
    end = min(entry.count, source.end_tick - entry.base_tick)
    assert 0 <= begin < end
    txn_id = 0 if entry.txn is None else entry.txn.txn_id
    return Piece(
        source.index, entry.base_tick, entry.count, entry.message_type, columns, begin, end, txn_id, entry.broadcast_id
    )
