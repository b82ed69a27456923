"""Trims of vchannels, and deletions of staged batches: what a batch of writes removes, and its space afterwards."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tidelog_server.core.ticks import NO_TICK
from tidelog_server.core.transactions import TxnPlace
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.storage.format.codec import ChunkRow, TailRow, pack_tail
from tidelog_server.storage.format.keys import chunk_key, log_key, staged_key, staged_range, tail_key, txn_key
from tidelog_server.storage.log_state import EntryCut, LogState, cut_after, cut_after_chunk, cut_within, trimmed, uncut
from tidelog_server.storage.rocksdb.engine import Engine
from tidelog_server.storage.rocksdb.index import load_txns
from tidelog_server.storage.rocksdb.reader import EntryReader
from tidelog_server.storage.rocksdb.reclaim import Reclaimer
from tidelog_server.storage.rocksdb.writer import Batch, RowWriter

# Deleted ranges slow down reads until they are compacted; deleted single rows do not.
_MAX_SINGLE_DELETES: Final = 64


class _Trim(NamedTuple):
    """The trim of a vchannel.

    Attributes:
        tail: The tail after it.
        end_key: Key of the first entry that stays, in ``log`` and ``columns``.
        gone_chunks: Closed chunks that go.
    """

    vchannel_id: int
    tail: TailRow
    end_key: bytes
    gone_chunks: Sequence[ChunkRow]


class Trimmer:
    """Removes the beginnings of vchannels, and staged batches. Threads: one change at a time, as ``LogStore``."""

    def __init__(
        self, engine: Engine, state: LogState, *, reader: EntryReader, writer: RowWriter, reclaimer: Reclaimer
    ) -> None:
        self._engine = engine
        self._state = state
        self._reader = reader
        self._writer = writer
        self._reclaimer = reclaimer

    def trim(self, before_ticks: Mapping[int, int]) -> None:
        """See ``LogStore.trim_all``. Raises DataLossError, StorageFailedError."""
        # Ordering: what is removed is read from the database, so it must have everything that was written.
        self._writer.settle()
        trims = [trim for each in before_ticks.items() if (trim := self._planned(*each)) is not None]
        if not trims:
            return
        tails = {trim.vchannel_id: trim.tail for trim in trims}
        # Ordering: readers see this before rows are deleted, see EntryReader.
        self._state.tails.update(tails)
        batch = self._writer.batch()
        staged_ranges = [place for trim in trims for place in self._add(batch, trim)]
        mark = self._writer.write(batch, tails, readers_first=True)
        hit(Failpoint.MID_TRIM)
        self._writer.sync(mark)
        for trim in trims:
            for family in ("log", "columns"):
                self._reclaimer.add(family, log_key(trim.vchannel_id, 0), trim.end_key)
        for begin_key, end_key in staged_ranges:
            self._reclaimer.add("staged", begin_key, end_key)

    def discard(self, places: Mapping[TxnPlace, int | None]) -> None:
        """See ``LogStore.discard``. Raises StorageFailedError."""
        staged, index = self._writer.handles["staged"], self._writer.handles["index"]
        batch = self._writer.batch()
        ranges: list[tuple[bytes, bytes]] = []
        for place, batches in places.items():
            if batches is None or batches > _MAX_SINGLE_DELETES:
                ranges.append(self._delete_staged(batch, place))
            else:
                for sequence in range(1, batches + 1):
                    batch.delete(staged_key(*place, sequence), staged)
                batch.delete(txn_key(*place), index)
        self._writer.write(batch)
        hit(Failpoint.MID_DISCARD)
        for begin_key, end_key in ranges:
            self._reclaimer.add("staged", begin_key, end_key)

    def delete_entries(self, batch: Batch, vchannel_id: int, end_key: bytes) -> None:
        """Add the deletion of a vchannel's entries below ``end_key`` to a batch."""
        for family in ("log", "columns"):
            batch.delete_range(log_key(vchannel_id, 0), end_key, self._writer.handles[family])

    def _planned(self, vchannel_id: int, before_tick: int) -> _Trim | None:
        """Return the trim of a vchannel; None if nothing is below the tick. Raises DataLossError."""
        tail = self._state.tails[vchannel_id]
        chunks = self._reader.closed_chunks(vchannel_id, tail, lambda row: before_tick <= row.last_tick)
        gone_chunks = [row for row in chunks if row.last_tick < before_tick]
        cut = self._cut_at(vchannel_id, tail, before_tick, gone_chunks)
        if cut.trim_tick <= tail.trim_tick:
            return None
        return _Trim(vchannel_id, trimmed(tail, cut), log_key(vchannel_id, cut.end_tick), gone_chunks)

    def _add(self, batch: Batch, trim: _Trim) -> list[tuple[bytes, bytes]]:
        """Add a trim to a batch; return the ranges of staged batches that it deletes."""
        vchannel_id, tail, end_key, gone_chunks = trim
        index = self._writer.handles["index"]
        batch.put(tail_key(vchannel_id), pack_tail(vchannel_id, tail), index)
        self.delete_entries(batch, vchannel_id, end_key)
        gone_txns = [
            place
            for place, last_tick in load_txns(self._engine, vchannel_id).items()
            if last_tick != NO_TICK and last_tick < tail.trim_tick
        ]
        staged_ranges = [self._delete_staged(batch, place) for place in gone_txns]
        if gone_chunks:
            end_chunk_key = chunk_key(vchannel_id, gone_chunks[-1].first_tick + 1)
            batch.delete_range(chunk_key(vchannel_id, 0), end_chunk_key, index)
        return staged_ranges

    def _cut_at(self, vchannel_id: int, tail: TailRow, before_tick: int, gone_chunks: Sequence[ChunkRow]) -> EntryCut:
        """Return the cut that removes entries that are entirely below ``before_tick``."""
        cut = uncut(tail)
        if gone_chunks:
            cut = cut_after_chunk(gone_chunks[-1])
        for header in self._reader.headers(vchannel_id, cut.trim_tick, before_tick):
            if before_tick <= header.last_tick:
                return cut_within(cut, header, before_tick)
            cut = cut_after(cut, header)
        return cut

    def _delete_staged(self, batch: Batch, place: TxnPlace) -> tuple[bytes, bytes]:
        """Delete the staged batches of a transaction on a vchannel; return the range of their keys."""
        staged, index = self._writer.handles["staged"], self._writer.handles["index"]
        begin_key, end_key = staged_range(*place)
        batch.delete_range(begin_key, end_key, staged)
        batch.delete(txn_key(*place), index)
        return begin_key, end_key
