"""The log store on RocksDB: one database per node, in a data folder opened only after the start-up gate."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rocksdict import ColumnFamily, WriteBatch

from tidelog_server.core.entries import Entry, EntryHeader, NewEntry, StagedBatch
from tidelog_server.core.ticks import NO_TICK
from tidelog_server.core.transactions import TxnPlace
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.storage.format.codec import (
    TailRow,
    pack_chunk,
    pack_fence,
    pack_store,
    pack_tail,
    pack_txn,
)
from tidelog_server.storage.format.data_folder import DataFolder
from tidelog_server.storage.format.head_file import Head
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
from tidelog_server.storage.log_state import (
    LogState,
    as_chunk,
)
from tidelog_server.storage.log_store import Chunk, StoreHead, VchannelTail
from tidelog_server.storage.rocksdb.checkpoint import flush_families, make_checkpoint
from tidelog_server.storage.rocksdb.engine import (
    Engine,
    close_engine,
)
from tidelog_server.storage.rocksdb.index import load_txns
from tidelog_server.storage.rocksdb.metadata_rows import RocksdbMetadataRows
from tidelog_server.storage.rocksdb.pressure import engine_metrics
from tidelog_server.storage.rocksdb.reader import EntryReader
from tidelog_server.storage.rocksdb.reclaim import Reclaimer
from tidelog_server.storage.rocksdb.rows import OldPlaces, TableRows, load_rows
from tidelog_server.storage.rocksdb.trims import Trimmer
from tidelog_server.storage.rocksdb.writer import ROW_BYTES, StoreWriter
from tidelog_server.storage.rows import Key, Row, Table, Value


class RocksdbLogStore:
    """Entries in RocksDB. Implements the contract of ``LogStore``; made by ``open_rocksdb_log_store``.

    Why headers and columns are two families: RocksDB's iterators fetch blobs eagerly, so planning, trimming and the
    start-up gate would otherwise read all columns. And a multi-get of columns releases the GIL, while an iterator holds
    it.
    """

    def __init__(
        self, folder: DataFolder, engine: Engine, state: LogState, writer: StoreWriter, old: OldPlaces
    ) -> None:
        """Take ownership of everything open: the locked folder, the database, and its state and writer."""
        self._folder = folder
        self._engine = engine
        self._state = state
        self._writer = writer
        self._rows = TableRows(engine, writer, old)
        self._reader = EntryReader(engine, state.tails)
        self._reclaimer = Reclaimer(engine, state)
        self._trimmer = Trimmer(engine, state, reader=self._reader, writer=writer, reclaimer=self._reclaimer)
        self._is_closed = False

    @property
    def wal_name(self) -> str:
        """The kind of this store, ``rocksdb``."""
        return "rocksdb"

    @property
    def folder(self) -> Path:
        """The data folder."""
        return self._folder.path

    @property
    def incarnation(self) -> bytes:
        """Identity of the store."""
        return self._state.incarnation

    @property
    def head(self) -> StoreHead:
        return self._state.head

    def write(self, entries: Sequence[NewEntry], rows: Sequence[Row] = (), staged: Sequence[StagedBatch] = ()) -> None:
        self._writer.check_works()
        handles, state, writer = self._engine.handles, self._state, self._writer
        log, index = handles["log"], handles["index"]
        batch = WriteBatch(raw_mode=True)
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
                committed[_place_of(entry)] = entry.last_tick
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
        self._writer.write(batch)
        state.publish()
        self._rows.written(rows)
        if entries:
            last, head, before = entries[-1], state.head, writer.head
            # HEAD and the state count the same entries: nothing else numbers any.
            assert head.sequence == before.sequence + len(entries)
            # Positional arguments, because this runs for each group.
            writer.head = Head(
                before.generation, before.incarnation, before.open_count, head.sequence, head.chain_hash,
                last.last_tick, last.vchannel_id, last.base_tick, before.engine_sequence, False,
            )  # fmt: skip

    def sync(self) -> None:
        self._writer.sync()

    def read(self, vchannel_id: int, begin_tick: int, end_tick: int, max_bytes: int) -> list[Entry]:
        return self._reader.read(vchannel_id, begin_tick, end_tick, max_bytes)

    def headers(self, vchannel_id: int, begin_tick: int, end_tick: int, max_headers: int) -> list[EntryHeader]:
        return self._reader.page_of_headers(vchannel_id, begin_tick, end_tick, max_headers)

    def columns(self, headers: Sequence[EntryHeader]) -> list[bytes | None]:
        return self._reader.columns(headers)

    def tail(self, vchannel_id: int) -> VchannelTail:
        return self._state.vchannel_tail(vchannel_id)

    def discard(self, places: Mapping[TxnPlace, int | None]) -> None:
        self._writer.check_works()
        self._trimmer.discard(places)

    def staged(self) -> list[TxnPlace]:
        return [place for place, last_tick in load_txns(self._engine).items() if last_tick == NO_TICK]

    def rows(self, table: Table[Key, Value]) -> dict[Key, Value]:
        return load_rows(self._engine, table)

    def vchannel_ids(self) -> list[int]:
        return sorted(self._state.tails)

    def chunks(self, vchannel_id: int, begin_tick: int, end_tick: int) -> list[Chunk]:
        """See LogStore.

        Raises:
            DataLossError: A row of the sparse index is damaged or missing.
        """
        rows = self._reader.chunks(vchannel_id)
        return [as_chunk(row) for row in rows if row.first_tick < end_tick and begin_tick <= row.last_tick]

    def oldest_chunks(self, vchannel_id: int, end_tick: int, min_bytes: int) -> list[Chunk]:
        """See LogStore.

        Raises:
            DataLossError: A row of the sparse index is damaged or missing.
        """
        return [as_chunk(row) for row in self._reader.oldest_chunks(vchannel_id, end_tick, min_bytes)]

    def create_vchannels(self, vchannel_ids: Iterable[int]) -> None:
        self._writer.check_works()
        absent = dict.fromkeys(self._state.absent(vchannel_ids), TailRow())
        self._writer.commit(self._tails_batch(absent))
        self._state.tails.update(absent)

    def drop_vchannels(self, vchannel_ids: Iterable[int], rows: Sequence[Row] = ()) -> None:
        self._writer.check_works()
        # Ordering: readers see this before rows are deleted, see EntryReader.
        dropped = self._state.drop(vchannel_ids)
        if not dropped:
            return
        handles = self._engine.handles
        batch = WriteBatch(raw_mode=True)
        batch.put(STORE_KEY, pack_store(self._state.store_row()), handles["index"])
        for vchannel_id in dropped:
            self._trimmer.delete_entries(batch, vchannel_id, log_end_key(vchannel_id))
            batch.delete_range(*staged_vchannel_range(vchannel_id), handles["staged"])
            batch.delete_range(*index_range(vchannel_id), handles["index"])
        rows = [*rows, *self._rows.drop(batch, dropped)]
        self._rows.put(batch, rows)
        self._writer.write(batch)
        self._rows.written(rows)
        hit(Failpoint.MID_DROP)
        self._writer.sync()
        self._reclaimer.add_dropped(dropped)

    def trim(self, vchannel_id: int, before_tick: int) -> VchannelTail:
        """See LogStore.

        Raises:
            DataLossError: An entry to be trimmed is damaged or missing. Nothing was changed.
        """
        self._writer.check_works()
        if self._state.tails[vchannel_id].trim_tick < before_tick:
            self._trimmer.trim(vchannel_id, before_tick)
        return self.tail(vchannel_id)

    def fence(self, vchannel_id: int, fencing_token: int) -> None:
        self._writer.check_works()
        if fencing_token <= self.tail(vchannel_id).fencing_token:
            return
        batch = WriteBatch(raw_mode=True)
        row = pack_fence(vchannel_id, fencing_token)
        batch.put(fence_key(vchannel_id), row, self._engine.handles["index"])
        self._writer.commit(batch)
        self._state.fencing_tokens[vchannel_id] = fencing_token

    def reclaim(self) -> None:
        self._reclaimer.run()

    def stall_reason(self) -> str | None:
        return self._writer.stall_reason()

    def metrics(self) -> dict[str, float]:
        return engine_metrics(self._engine)

    def flush(self) -> None:
        """Flush memory to disk, so that a checkpoint just after it is fast. Any thread; releases the GIL.

        Raises:
            CheckpointFailedError: The disk refused.
        """
        flush_families(self._engine)

    def checkpoint(self, name: str) -> tuple[Path, Head]:
        """Sync everything written and freeze it in ``checkpoints/<name>``; return that folder and its head.

        Like ``write``: nothing else may change the store meanwhile. Holds the GIL for some milliseconds after a
        ``flush``.

        Raises:
            CheckpointFailedError: It could not be made, and its remains were deleted. The store still works.
        """
        self.sync()
        head = self._writer.head._replace(engine_sequence=self._engine.db.latest_sequence_number())
        return make_checkpoint(self._engine, self._folder, name, head), head

    def adopt_vchannels(self, trim_ticks: Mapping[int, int]) -> None:
        """Create new vchannels that are trimmed up to a tick, atomically and durably. For a restore."""
        tails = {
            vchannel_id: TailRow(trim_tick=trim_tick, last_tick=max(0, trim_tick - 1))
            for vchannel_id, trim_tick in trim_ticks.items()
        }
        assert not tails.keys() & self._state.tails.keys()
        self._writer.commit(self._tails_batch(tails))
        self._state.tails.update(tails)

    def metadata_rows(self) -> RocksdbMetadataRows:
        """Return the table of the embedded metadata store. Only the committer may change it."""
        return RocksdbMetadataRows(
            self._engine, write=self._writer.write, commit=self._writer.commit, check_works=self._writer.check_works
        )

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._reclaimer.close()
        try:
            if self._writer.works:
                # So that the next start finds the tails without the entries after their rows.
                self._writer.commit(self._tails_batch(self._state.stale_tails()))
        finally:
            self._writer.close()
            close_engine(self._engine)
            self._folder.close()

    def _tails_batch(self, tails: Mapping[int, TailRow]) -> WriteBatch:
        batch = WriteBatch(raw_mode=True)
        for vchannel_id, tail in tails.items():
            batch.put(tail_key(vchannel_id), pack_tail(vchannel_id, tail), self._engine.handles["index"])
        return batch


def _put_staged(batch: WriteBatch, batches: Sequence[StagedBatch], handles: Mapping[str, ColumnFamily]) -> None:
    for vchannel_id, txn_id, number, columns in batches:
        batch.put(staged_key(vchannel_id, txn_id, number), columns, handles["staged"])
        batch.put(txn_key(vchannel_id, txn_id), pack_txn(vchannel_id, txn_id, NO_TICK), handles["index"])


def _place_of(entry: NewEntry) -> TxnPlace:
    assert entry.txn is not None
    return entry.vchannel_id, entry.txn.txn_id
