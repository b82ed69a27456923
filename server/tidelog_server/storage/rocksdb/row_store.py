"""A log store whose rows are in RocksDB: what does not depend on how they are written and where else they are."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidelog_server.core.entries import NewEntry, StagedBatch
from tidelog_server.core.ticks import NO_TICK
from tidelog_server.core.transactions import TxnPlace
from tidelog_server.runtime.engine_figures import Figure
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.storage.format.codec import (
    ChunkRow,
    TailRow,
    pack_chunk,
    pack_fence,
    pack_store,
    pack_tail,
    pack_txn,
)
from tidelog_server.storage.format.keys import (
    STORE_KEY,
    chunk_key,
    fence_key,
    index_range,
    log_end_key,
    staged_key,
    staged_vchannel_range,
    tail_key,
    txn_key,
)
from tidelog_server.storage.log_state import LogState, as_vchannel_tail
from tidelog_server.storage.log_store import StoreHead, VchannelTail, WriteMark
from tidelog_server.storage.rocksdb.engine import Engine
from tidelog_server.storage.rocksdb.index import load_txns
from tidelog_server.storage.rocksdb.metadata_rows import RocksdbMetadataRows
from tidelog_server.storage.rocksdb.pressure import engine_metrics
from tidelog_server.storage.rocksdb.reader import EntryReader
from tidelog_server.storage.rocksdb.reclaim import Reclaimer
from tidelog_server.storage.rocksdb.rows import OldPlaces, TableRows, load_rows
from tidelog_server.storage.rocksdb.trims import Trimmer
from tidelog_server.storage.rocksdb.writer import ROW_BYTES, Batch, RowWriter
from tidelog_server.storage.rows import Key, Row, Table, Value


class RowStore(ABC):
    """Entries in RocksDB. Implements the contract of ``LogStore``, except for its name, its traits and its end.

    Why headers and columns are two families: RocksDB's iterators fetch blobs eagerly, so planning, trimming and the
    start-up gate would otherwise read all columns. And a multi-get of columns releases the GIL, while an iterator holds
    it.
    """

    def __init__(
        self, engine: Engine, state: LogState, *, writer: RowWriter, reader: EntryReader, old: OldPlaces
    ) -> None:
        """Take ownership of everything open: the database, its state, its writer, and its reader."""
        self._engine = engine
        self._state = state
        self._writer = writer
        self._rows = TableRows(writer, old)
        self._reader = reader
        self._reclaimer = Reclaimer(engine, state)
        # Methods of the contract, without a call between.
        self.sync, self.stall_reason = writer.sync, writer.stall_reason
        self.read, self.headers, self.columns = reader.read, reader.page_of_headers, reader.columns
        self.oldest_chunks, self.reclaim = reader.oldest_chunks, self._reclaimer.run
        self._trimmer = Trimmer(engine, state, reader=reader, writer=writer, reclaimer=self._reclaimer)
        self._is_closed = False

    @property
    def incarnation(self) -> bytes:
        """Identity of the store."""
        return self._state.incarnation

    @property
    def head(self) -> StoreHead:
        return self._state.head

    def write(
        self, entries: Sequence[NewEntry], rows: Sequence[Row] = (), staged: Sequence[StagedBatch] = ()
    ) -> WriteMark:
        self._writer.check_works()
        state, writer = self._state, self._writer
        handles = writer.handles
        log, index = handles["log"], handles["index"]
        batch = writer.batch()
        put = batch.put
        # Last tick of committed staged transactions on each vchannel.
        committed: dict[TxnPlace, int] = {}
        state.begin()
        for entry in entries:
            key, header, columns, tail, chunk = state.stage(entry)
            put(key, header, log)
            if columns is not None:
                put(key, columns, handles["columns"])
                self._writer.unasked_bytes += len(columns)
            elif entry.staged is not None:
                assert entry.txn is not None
                committed[entry.vchannel_id, entry.txn.txn_id] = entry.last_tick
            if tail:
                put(tail_key(entry.vchannel_id), pack_tail(entry.vchannel_id, tail), index)
            if chunk:
                row = pack_chunk(entry.vchannel_id, chunk)
                put(chunk_key(entry.vchannel_id, chunk.first_tick), row, index)
        self._writer.unasked_bytes += len(entries) * ROW_BYTES
        self._rows.put(batch, rows)
        if staged:
            assert {each.vchannel_id for each in staged} <= state.tails.keys()
            _put_staged(batch, staged, handles)
            writer.unasked_bytes += sum(len(each.columns) + ROW_BYTES for each in staged)
        # Ordering: after the batches, because a transaction may stage its last ones and commit in one write.
        for place, last_tick in committed.items():
            batch.put(txn_key(*place), pack_txn(*place, last_tick), index)
        mark = writer.write(batch, state.staged, head=state.staged_head())
        state.publish()
        self._rows.written(rows)
        if entries:
            writer.note_head(entries, state.head)
        return mark

    def tail(self, vchannel_id: int) -> VchannelTail:
        return as_vchannel_tail(self._reader.tails[vchannel_id], self._state.fencing_tokens.get(vchannel_id, 0))

    def discard(self, places: Mapping[TxnPlace, int | None]) -> None:
        self._writer.check_works()
        self._trimmer.discard(places)

    def staged(self) -> list[TxnPlace]:
        self._writer.settle()
        return [place for place, last_tick in load_txns(self._engine).items() if last_tick == NO_TICK]

    def rows(self, table: Table[Key, Value]) -> dict[Key, Value]:
        self._writer.settle()
        return load_rows(self._engine, table)

    def vchannel_ids(self) -> list[int]:
        return sorted(self._state.tails)

    def chunks(self, vchannel_id: int, begin_tick: int, end_tick: int) -> list[ChunkRow]:
        """See LogStore.

        Raises:
            DataLossError: A row of the sparse index is damaged or missing.
        """
        rows = self._reader.chunks(vchannel_id)
        return [row for row in rows if row.first_tick < end_tick and begin_tick <= row.last_tick]

    def create_vchannels(self, vchannel_ids: Iterable[int]) -> None:
        self._writer.check_works()
        absent = dict.fromkeys(self._state.absent(vchannel_ids), TailRow())
        self._writer.commit(self._tails_batch(absent), absent)
        self._state.tails.update(absent)

    def drop_vchannels(self, vchannel_ids: Iterable[int], rows: Sequence[Row] = ()) -> None:
        self._writer.check_works()
        # Ordering: readers see this before rows are deleted, see EntryReader.
        dropped = self._state.drop(vchannel_ids)
        if not dropped:
            return
        handles = self._writer.handles
        batch = self._writer.batch()
        for vchannel_id in dropped:
            self._trimmer.delete_entries(batch, vchannel_id, log_end_key(vchannel_id))
            batch.delete_range(*staged_vchannel_range(vchannel_id), handles["staged"])
            batch.delete_range(*index_range(vchannel_id), handles["index"])
        # Ordering: behind the deletions, because one of these ranges has the store's key in it.
        batch.put(STORE_KEY, pack_store(self._state.store_row()), handles["index"])
        rows = [*rows, *self._rows.drop(batch, dropped)]
        self._rows.put(batch, rows)
        mark = self._writer.write(batch, dict.fromkeys(dropped), readers_first=True)
        self._rows.written(rows)
        hit(Failpoint.MID_DROP)
        self._writer.sync(mark)
        self._reclaimer.add_dropped(dropped)

    def trim(self, vchannel_id: int, before_tick: int) -> VchannelTail:
        """See LogStore. Raises as ``trim_all``."""
        return self.trim_all({vchannel_id: before_tick})[vchannel_id]

    def trim_all(self, before_ticks: Mapping[int, int]) -> Mapping[int, VchannelTail]:
        """See LogStore.

        Raises:
            DataLossError: An entry to be trimmed is damaged or missing. Nothing was changed.
        """
        self._writer.check_works()
        tails = self._state.tails
        due = {each: tick for each, tick in before_ticks.items() if tails[each].trim_tick < tick}
        if due:
            self._trimmer.trim(due)
        return {vchannel_id: self.tail(vchannel_id) for vchannel_id in before_ticks}

    def fence(self, vchannel_id: int, fencing_token: int) -> None:
        self._writer.check_works()
        if fencing_token <= self.tail(vchannel_id).fencing_token:
            return
        batch = self._writer.batch()
        row = pack_fence(vchannel_id, fencing_token)
        batch.put(fence_key(vchannel_id), row, self._writer.handles["index"])
        self._writer.commit(batch)
        self._state.fencing_tokens[vchannel_id] = fencing_token

    def metrics(self) -> dict[Figure, float]:
        return engine_metrics(self._engine)

    def metadata_rows(self) -> RocksdbMetadataRows:
        """Return the table of the embedded metadata store. Only the committer may change it."""
        return RocksdbMetadataRows(self._engine, self._writer)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._reclaimer.close()
        self._close()

    @abstractmethod
    def _close(self) -> None:
        """Write what is left, and release everything."""

    def _tails_batch(self, tails: Mapping[int, TailRow]) -> Batch:
        batch = self._writer.batch()
        for vchannel_id, tail in tails.items():
            batch.put(tail_key(vchannel_id), pack_tail(vchannel_id, tail), self._writer.handles["index"])
        return batch


def _put_staged(batch: Batch, batches: Sequence[StagedBatch], handles: Mapping[str, Any]) -> None:
    for vchannel_id, txn_id, number, columns in batches:
        batch.put(staged_key(vchannel_id, txn_id, number), columns, handles["staged"])
        batch.put(txn_key(vchannel_id, txn_id), pack_txn(vchannel_id, txn_id, NO_TICK), handles["index"])
