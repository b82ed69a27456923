"""Divide the deliveries of a reader into packs of a time-tick stream. Pure: no clock, no I/O.

**The grid.** Time is divided into intervals of equal length, starting at the epoch. Interval k contains the ticks whose
milliseconds are in [k × length, (k + 1) × length); its *end* is the last of these ticks. The end of an interval thus
depends only on the length, and packs do not depend on when a reader started.

**When an interval is complete.** A reader delivers in tick order, so the arrival of a batch proves that everything
before its first tick has arrived; the reader also reports watermarks. Neither splits a transaction: a watermark never
lies within one, and while batches may still belong to one transaction, arrival proves nothing (``_note_arrival``).

**Where a pack ends.** At the end of its interval, after a DropCollection, or after the message with which its payloads
reach ``max_bytes``, whichever is first. If that lies within a transaction, the pack ends after the whole transaction,
and the next pack begins there. The messages alone decide, so every reader finds the same ends.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final, Self

from tidelog.msgstream._backends.log import Delivered
from tidelog.msgstream._generated_types import MsgType
from tidelog.tick import LOGICAL_BITS

_ENDS_PACK: Final = int(MsgType.DROP_COLLECTION)


@dataclass(frozen=True, slots=True)
class Grid:
    """The intervals of time.

    Attributes:
        interval_ms: Length of an interval, in milliseconds.
    """

    interval_ms: int

    def end_of(self, tick: int) -> int:
        """Return the last tick of the interval that contains ``tick``."""
        return self._first_of(self._index(tick) + 1) - 1

    def end_before(self, tick: int) -> int:
        """Return the last tick of the previous interval; -1 if ``tick`` is in the first."""
        return self._first_of(self._index(tick)) - 1

    def last_end(self, tick: int) -> int:
        """Return the greatest interval end that is at most ``tick``; -1 if there is no such end."""
        return self.end_before(tick + 1)

    def _index(self, tick: int) -> int:
        return (tick >> LOGICAL_BITS) // self.interval_ms

    def _first_of(self, index: int) -> int:
        return (index * self.interval_ms) << LOGICAL_BITS


@dataclass(frozen=True, slots=True)
class Piece:
    """The messages [begin, end) of a batch.

    Attributes:
        drop_tick: Tick of the first DropCollection in the range; None without one.
    """

    batch: Delivered
    begin: int
    end: int
    size_bytes: int
    drop_tick: int | None

    @property
    def first_tick(self) -> int:
        """Tick of the first message."""
        return self.batch.ticks[self.begin]

    @property
    def last_tick(self) -> int:
        """Tick of the last message."""
        return self.batch.ticks[self.end - 1]


@dataclass(frozen=True, slots=True)
class RawPack:
    """A pack whose messages are not decoded yet.

    Attributes:
        begin_tick: Lower bound of the messages' ticks, exclusive.
        end_tick: Upper bound of the messages' ticks, inclusive.
        pieces: The messages, in tick order.
        next_ticks: Tick of the first message after the pack, for each channel where it is known.
        size_bytes: Size of the payloads.
        ends_early: True if it ends with a DropCollection.
    """

    begin_tick: int
    end_tick: int
    pieces: tuple[Piece, ...]
    next_ticks: Mapping[str, int]
    size_bytes: int = 0
    ends_early: bool = False

    @property
    def first_tick(self) -> int:
        """Tick of the first message; ``begin_tick`` without one."""
        return self.pieces[0].first_tick if self.pieces else self.begin_tick

    def merged(self, following: Self) -> Self:
        """Return this pack and the one that follows it as one."""
        return replace(
            following, begin_tick=self.begin_tick, pieces=self.pieces + following.pieces,
            size_bytes=self.size_bytes + following.size_bytes,
        )  # fmt: skip


class PackAssembler:
    """Divides the deliveries of a reader into packs.

    It holds the messages of one pack, or of one transaction if that is more, and the rest of the last delivery. After
    each delivery, call ``next_pack`` until it returns None.
    """

    def __init__(self, grid: Grid, starts: Mapping[str, int], max_bytes: int) -> None:
        """Begin after ``starts``, a tick per channel: messages up to these ticks are skipped."""
        self._grid = grid
        self._starts = starts
        self._max_bytes = max_bytes
        self._begin = min(starts.values())
        # Everything up to this tick has arrived, and no transaction spans it.
        self._complete = self._begin
        self._pieces: deque[Piece] = deque()
        self._first_ticks: dict[str, deque[int]] = {channel: deque() for channel in starts}
        # Ids of transactions that may have further batches, and the last tick of their batches.
        self._open_txns: set[int] = set()
        self._last_tick = 0

    def add(self, batch: Delivered) -> None:
        """Add a batch; its ticks are at least those of earlier batches."""
        self._note_arrival(batch.ticks[0], batch.ticks[-1], batch.txn_id)
        begin = bisect_right(batch.ticks, self._starts[batch.vchannel])
        if begin < len(batch.ticks):
            piece = _piece(batch, begin, len(batch.ticks))
            self._pieces.append(piece)
            self._first_ticks[batch.vchannel].append(piece.first_tick)

    def advance(self, watermark: int) -> None:
        """Record that everything up to ``watermark`` has arrived."""
        self._complete = max(self._complete, watermark)

    def next_pack(self) -> RawPack | None:
        """Return the next pack if it is complete."""
        first = self._pieces[0].first_tick if self._pieces else None
        if first is None or first > self._complete:
            # Consecutive empty intervals form one pack.
            end = self._grid.last_end(self._complete)
            return self._taken(end, ends_early=False) if end > self._begin else None
        gap_end = self._grid.end_before(first)
        if gap_end > self._begin:
            return self._taken(gap_end, ends_early=False)
        grid_end = self._grid.end_of(first)
        early, is_drop = self._early_end(min(grid_end, self._complete))
        if early is None and self._complete < grid_end:
            return None
        return self._taken(self._end_of_transactions(grid_end if early is None else early), ends_early=is_drop)

    def _note_arrival(self, first_tick: int, last_tick: int, txn_id: int | None) -> None:
        """Conclude from a batch that everything before it has arrived, unless it may continue a transaction.

        Transactions can share batches. Then their messages on each channel are consecutive without a gap, and each of
        them has messages in the first batch: a batch after a gap is unrelated to those before it.
        """
        is_of_open = txn_id in self._open_txns or first_tick == self._last_tick + 1
        if txn_id is not None and self._open_txns and is_of_open:
            self._open_txns.add(txn_id)
        else:
            self._open_txns = set() if txn_id is None else {txn_id}
            self._complete = max(self._complete, first_tick - 1)
        self._last_tick = last_tick

    def _early_end(self, limit: int) -> tuple[int | None, bool]:
        """Return the first tick up to ``limit`` at which the pack ends early, or None, and whether it is a drop."""
        size_bytes = 0
        for piece in self._pieces:
            if piece.first_tick > limit:
                break
            full_tick = _tick_at(piece, self._max_bytes - size_bytes)
            ends = [tick for tick in (piece.drop_tick, full_tick) if tick is not None and tick <= limit]
            if ends:
                return min(ends), min(ends) == piece.drop_tick
            size_bytes += piece.size_bytes
        return None, False

    def _end_of_transactions(self, tick: int) -> int:
        """Return ``tick``, or the last tick of the transaction around it and of those that share batches with it."""
        end = last_tick = tick
        inside: set[int] = set()
        # Transactions after the current end. They count if one that began before the end continues after them.
        beyond: set[int] = set()
        for piece in self._pieces:
            txn_id, first_tick = piece.batch.txn_id, piece.first_tick
            is_known = txn_id in inside or txn_id in beyond or first_tick <= last_tick + 1
            if first_tick > self._complete or (first_tick > end and (txn_id is None or not is_known)):
                break
            last_tick = max(last_tick, piece.last_tick)
            if txn_id is None:
                continue
            if first_tick <= end or txn_id in inside:
                end = max(end, piece.last_tick)
                inside |= beyond | {txn_id}
                beyond.clear()
            else:
                beyond.add(txn_id)
        return end

    def _taken(self, end: int, *, ends_early: bool) -> RawPack:
        """Remove everything up to ``end`` and return it as the next pack."""
        taken: list[Piece] = []
        while self._pieces and self._pieces[0].first_tick <= end:
            piece = self._pieces.popleft()
            first_ticks = self._first_ticks[piece.batch.vchannel]
            first_ticks.popleft()
            if piece.last_tick > end:
                middle = bisect_right(piece.batch.ticks, end)
                rest = _piece(piece.batch, middle, piece.end)
                piece = _piece(piece.batch, piece.begin, middle)
                self._pieces.appendleft(rest)
                first_ticks.appendleft(rest.first_tick)
            taken.append(piece)
        next_ticks = {channel: ticks[0] for channel, ticks in self._first_ticks.items() if ticks}
        begin, self._begin = self._begin, end
        size_bytes = sum(piece.size_bytes for piece in taken)
        return RawPack(begin, end, tuple(taken), next_ticks, size_bytes, ends_early)


def _piece(batch: Delivered, begin: int, end: int) -> Piece:
    drop_tick = None
    # Search the whole column first: nearly all batches have no DropCollection.
    if _ENDS_PACK in batch.types:
        types = batch.types[begin:end]
        drop_tick = batch.ticks[begin + types.index(_ENDS_PACK)] if _ENDS_PACK in types else None
    return Piece(batch, begin, end, sum(_sizes(batch, begin, end)), drop_tick)


def _sizes(batch: Delivered, begin: int, end: int) -> Iterable[int]:
    return map(len, batch.payloads[begin:end])


def _tick_at(piece: Piece, size_bytes: int) -> int | None:
    """Return the tick of the message with which the payloads reach ``size_bytes``; None if they do not."""
    if piece.size_bytes < size_bytes:
        return None
    sums = accumulate(_sizes(piece.batch, piece.begin, piece.end))
    return next(
        piece.batch.ticks[index] for index, total in enumerate(sums, piece.begin) if total >= size_bytes
    )  # fmt: skip
