"""A log store in memory: the contract of ``log_store`` without a disk, for tests and experiments."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from tidelog_server.core.entries import Entry, EntryHeader, NewEntry, StagedBatch
from tidelog_server.core.errors import Effect, StorageFailedError
from tidelog_server.core.ticks import MAX_TICK, NO_TICK
from tidelog_server.core.transactions import TxnPlace
from tidelog_server.runtime.engine_figures import Figure
from tidelog_server.storage.format.codec import ChunkRow, StoreRow, TailRow, first_hash, unpack_header
from tidelog_server.storage.log_state import (
    EntryCut,
    LogState,
    as_vchannel_tail,
    cut_after,
    cut_after_chunk,
    cut_within,
    open_chunk,
    trimmed,
    uncut,
)
from tidelog_server.storage.log_store import (
    LogStore,
    StoreHead,
    VchannelTail,
    WriteMark,
)
from tidelog_server.storage.rows import Key, Row, Table, Value

_INCARNATION = bytes(16)


@dataclass(slots=True)
class _Rows:
    """The entries of a vchannel, oldest first; ``base_ticks`` is parallel to ``entries``."""

    base_ticks: list[int] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    chunks: list[ChunkRow] = field(default_factory=list)


class MemoryLogStore(LogStore):
    """Entries in Python lists, lost after ``close``."""

    def __init__(self) -> None:
        self._state = LogState(StoreRow(_INCARNATION, 0, 0, first_hash(_INCARNATION), NO_TICK), {})
        self._rows: dict[int, _Rows] = {}
        # Batches of uncommitted transactions.
        self._staged: dict[TxnPlace, dict[int, bytes]] = {}
        # The rows of each table as they would be on disk.
        self._table_rows: dict[Table[Any, Any], dict[bytes, bytes]] = {}
        self._is_closed = False
        # Guards _rows and the tails: readers must see both at the same moment.
        self._lock = Lock()

    @property
    def wal_name(self) -> str:
        """The kind of this store, ``memory``."""
        return "memory"

    @property
    def head(self) -> StoreHead:
        return self._state.head

    def write(
        self, entries: Sequence[NewEntry], rows: Sequence[Row] = (), staged: Sequence[StagedBatch] = ()
    ) -> WriteMark:
        self._check_is_open(Effect.UNKNOWN)
        with self._lock:
            self._state.begin()
            staged_entries = [self._state.stage(entry) for entry in entries]
            # Before the entries: a transaction may stage its last batches and commit in one write.
            for batch in staged:
                assert batch.vchannel_id in self._state.tails
                self._staged.setdefault((batch.vchannel_id, batch.txn_id), {})[batch.sequence] = batch.columns
            self._change(rows)
            for entry, written in zip(entries, staged_entries, strict=True):
                of_vchannel = self._rows[entry.vchannel_id]
                of_vchannel.base_ticks.append(entry.base_tick)
                of_vchannel.entries.append(
                    Entry(unpack_header(written.key, written.header), self._columns_to_keep(entry))
                )
                if written.chunk:
                    of_vchannel.chunks.append(written.chunk)
            for entry in entries:
                if entry.staged is not None and entry.txn is not None:
                    self._staged.pop((entry.vchannel_id, entry.txn.txn_id), None)
            self._state.publish()
        return 0

    def _columns_to_keep(self, entry: NewEntry) -> bytes:
        if entry.staged is None:
            return entry.columns
        assert entry.txn is not None
        return self._staged[entry.vchannel_id, entry.txn.txn_id][entry.staged.sequence]

    def _change(self, rows: Sequence[Row]) -> None:
        for table, key, value in rows:
            of_table = self._table_rows.setdefault(table, {})
            if value is None:
                of_table.pop(table.key_of(key), None)
            else:
                row_key, packed = table.pack(key, value)
                of_table[row_key] = packed

    def sync(self, mark: WriteMark | None = None) -> None:
        """See LogStore; there is nothing to do."""
        self._check_is_open(Effect.UNKNOWN)

    def read(self, vchannel_id: int, begin_tick: int, end_tick: int, max_bytes: int) -> list[Entry]:
        page: list[Entry] = []
        page_bytes = 0
        with self._lock:
            begin_tick = max(begin_tick, self._state.tails[vchannel_id].trim_tick)
            rows = self._rows[vchannel_id]
            index = max(bisect_right(rows.base_ticks, begin_tick) - 1, 0)
            for position in range(index, bisect_left(rows.base_ticks, end_tick)):
                if page and page_bytes >= max_bytes:
                    break
                entry = rows.entries[position]
                if begin_tick <= entry.header.last_tick and begin_tick < end_tick:
                    page.append(entry)
                    page_bytes += len(entry.columns)
        return page

    def headers(self, vchannel_id: int, begin_tick: int, end_tick: int, max_headers: int) -> list[EntryHeader]:
        with self._lock:
            begin_tick = max(begin_tick, self._state.tails[vchannel_id].trim_tick)
            rows = self._rows[vchannel_id]
            first = max(bisect_right(rows.base_ticks, begin_tick) - 1, 0)
            if first < len(rows.entries) and rows.entries[first].header.last_tick < begin_tick:
                first += 1
            end = min(bisect_left(rows.base_ticks, end_tick), first + max_headers)
            return [entry.header for entry in rows.entries[first:end]]

    def columns(self, headers: Sequence[EntryHeader]) -> list[bytes | None]:
        with self._lock:
            return [self._columns_of(header) for header in headers]

    def _columns_of(self, header: EntryHeader) -> bytes | None:
        rows = self._rows.get(header.vchannel_id)
        if rows is None or (at := bisect_left(rows.base_ticks, header.base_tick)) == len(rows.entries):
            return None
        entry = rows.entries[at]
        return entry.columns if entry.header.base_tick == header.base_tick else None

    def tail(self, vchannel_id: int) -> VchannelTail:
        return as_vchannel_tail(self._state.tails[vchannel_id], self._state.fencing_tokens.get(vchannel_id, 0))

    def discard(self, places: Mapping[TxnPlace, int | None]) -> None:
        self._check_is_open()
        with self._lock:
            for place in places:
                self._staged.pop(place, None)

    def staged(self) -> list[TxnPlace]:
        with self._lock:
            return sorted(self._staged)

    def rows(self, table: Table[Key, Value]) -> dict[Key, Value]:
        with self._lock:
            return dict(table.unpack(*row) for row in self._table_rows.get(table, {}).items())

    def vchannel_ids(self) -> list[int]:
        return sorted(self._state.tails)

    def chunks(self, vchannel_id: int, begin_tick: int, end_tick: int) -> list[ChunkRow]:
        with self._lock:
            last = open_chunk(self._state.tails[vchannel_id])
            rows = [*self._rows[vchannel_id].chunks, *([last] if last else [])]
        return [row for row in rows if row.first_tick < end_tick and begin_tick <= row.last_tick]

    def oldest_chunks(self, vchannel_id: int, end_tick: int, min_bytes: int) -> list[ChunkRow]:
        enough_bytes = self.tail(vchannel_id).trimmed_bytes + min_bytes
        oldest: list[ChunkRow] = []
        for chunk in self.chunks(vchannel_id, 0, MAX_TICK):
            oldest.append(chunk)
            if end_tick <= chunk.last_tick and enough_bytes <= chunk.bytes_before + chunk.columns_bytes:
                break
        return oldest

    def create_vchannels(self, vchannel_ids: Iterable[int]) -> None:
        self._check_is_open()
        with self._lock:
            for vchannel_id in self._state.absent(vchannel_ids):
                self._state.tails[vchannel_id] = TailRow()
                self._rows[vchannel_id] = _Rows()

    def drop_vchannels(self, vchannel_ids: Iterable[int], rows: Sequence[Row] = ()) -> None:
        self._check_is_open()
        with self._lock:
            self._change(rows)
            for vchannel_id in self._state.drop(vchannel_ids):
                del self._rows[vchannel_id]
                for table, of_table in self._table_rows.items():
                    if table.is_of_vchannel:
                        begin_key, end_key = table.vchannel_range(vchannel_id)
                        for key in [key for key in of_table if begin_key <= key < end_key]:
                            del of_table[key]
                self._staged = {place: batches for place, batches in self._staged.items() if place[0] != vchannel_id}

    def trim(self, vchannel_id: int, before_tick: int) -> VchannelTail:
        self._check_is_open()
        with self._lock:
            tail, rows = self._state.tails[vchannel_id], self._rows[vchannel_id]
            cut = _cut_at(before_tick, tail, rows) if tail.trim_tick < before_tick else uncut(tail)
            if tail.trim_tick < cut.trim_tick:
                self._state.tails[vchannel_id] = trimmed(tail, cut)
                _remove_below(cut, rows)
        return self.tail(vchannel_id)

    def trim_all(self, before_ticks: Mapping[int, int]) -> Mapping[int, VchannelTail]:
        return {vchannel_id: self.trim(vchannel_id, tick) for vchannel_id, tick in before_ticks.items()}

    def fence(self, vchannel_id: int, fencing_token: int) -> None:
        self._check_is_open()
        with self._lock:
            if self.tail(vchannel_id).fencing_token < fencing_token:
                self._state.fencing_tokens[vchannel_id] = fencing_token

    def metrics(self) -> dict[Figure, float]:
        """Return the number of bytes of columns."""
        with self._lock:
            held = sum(tail.columns_bytes - tail.trimmed_bytes for tail in self._state.tails.values())
        return {Figure("columns_bytes"): float(held)}

    def close(self) -> None:
        self._is_closed = True

    def _check_is_open(self, effect: Effect = Effect.NONE) -> None:
        if self._is_closed:
            raise StorageFailedError("the store is closed", effect=effect)


def _cut_at(before_tick: int, tail: TailRow, rows: _Rows) -> EntryCut:
    """Return the cut that removes entries that are entirely below ``before_tick``."""
    gone_chunks = [chunk for chunk in rows.chunks if chunk.last_tick < before_tick]
    cut = cut_after_chunk(gone_chunks[-1]) if gone_chunks else uncut(tail)
    # The entry that the last trim divided begins below the trim tick.
    first = bisect_left(rows.base_ticks, cut.end_tick) if gone_chunks else 0
    for entry in rows.entries[first:]:
        if before_tick <= entry.header.last_tick:
            return cut_within(cut, entry.header, before_tick)
        cut = cut_after(cut, entry.header)
    return cut


def _remove_below(cut: EntryCut, rows: _Rows) -> None:
    gone = bisect_left(rows.base_ticks, cut.end_tick)
    del rows.entries[:gone], rows.base_ticks[:gone]
    rows.chunks = [chunk for chunk in rows.chunks if cut.trim_tick <= chunk.last_tick]
