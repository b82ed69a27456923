"""The log store on RocksDB: one database per node, in a data folder opened only after the start-up gate."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from rocksdict import WriteBatch

from tidelog_server.core.entries import Entry, EntryHeader, NewEntry, StagedBatch
from tidelog_server.core.errors import Effect, StorageFailedError
from tidelog_server.core.limits import MIB
from tidelog_server.core.ticks import NO_TICK
from tidelog_server.core.transactions import TxnPlace
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
from tidelog_server.storage.format.data_folder import DataFolder
from tidelog_server.storage.format.head_file import Head
from tidelog_server.storage.format.head_writer import HeadWriter
from tidelog_server.storage.format.keys import (
    STORE_KEY,
    chunk_key,
    fence_key,
    index_range,
    log_end_key,
    log_key,
    staged_key,
    staged_range,
    staged_vchannel_range,
    tail_key,
    txn_key,
    vchannel_range,
)
from tidelog_server.storage.log_state import (
    LogState,
    TrimCut,
    as_chunk,
    cut_after,
    cut_after_chunk,
    cut_within,
    trimmed,
    uncut,
)
from tidelog_server.storage.log_store import Chunk, StoreHead, VchannelTail
from tidelog_server.storage.rocksdb.checkpoint import flush_families, make_checkpoint
from tidelog_server.storage.rocksdb.engine import (
    Engine,
    close_engine,
    error_text,
    is_damage,
    is_engine_error,
)
from tidelog_server.storage.rocksdb.index import load_txns
from tidelog_server.storage.rocksdb.metadata_rows import RocksdbMetadataRows
from tidelog_server.storage.rocksdb.pressure import engine_metrics, stall_reason
from tidelog_server.storage.rocksdb.reader import EntryReader
from tidelog_server.storage.rocksdb.reclaim import Reclaimer
from tidelog_server.storage.rocksdb.rows import load_rows
from tidelog_server.storage.rocksdb.wal_size import WalSize
from tidelog_server.storage.rows import Key, Row, Table, Value, tables

# Bytes after which RocksDB is asked whether it is busy: a buffer of columns is far larger, and asking takes as long as
# writing a small entry. Each entry counts some rows, small columns included, in addition to its large columns.
_ASK_EVERY_BYTES: Final = MIB
_ROWS_BYTES: Final = 512
# Deleted ranges slow down reads until they are compacted; deleted single rows do not.
_MAX_SINGLE_DELETES: Final = 64
_WRITING: Final = "writing to RocksDB"
_SYNCING: Final = "syncing the WAL"


class _Failure(NamedTuple):
    """Why the store has stopped; ``is_damage`` if stored data was found damaged."""

    cause: str
    is_damage: bool

    def error(self, effect: Effect) -> StorageFailedError:
        return StorageFailedError(self.cause, effect=effect, is_damage=self.is_damage)


class RocksdbLogStore:
    """Entries in RocksDB. Implements the contract of ``LogStore``; made by ``open_rocksdb_log_store``.

    Why headers and columns are two families: RocksDB's iterators fetch blobs eagerly, so planning, trimming and the
    start-up gate would otherwise read all columns. And a multi-get of columns releases the GIL, while an iterator holds
    it.
    """

    def __init__(
        self,
        folder: DataFolder,
        engine: Engine,
        state: LogState,
        head_writer: HeadWriter,
        head: Head,
        *,
        old_rows: dict[tuple[Table[Any, Any], Any], tuple[str, bytes]],
    ) -> None:
        """Take ownership of everything open.

        Args:
            folder: The data folder, locked.
            engine: The database.
            state: What is in it.
            head_writer: Writer of HEAD.
            head: The current content of HEAD.
            old_rows: Family and key of the rows that are stored in old forms, by table and key.
        """
        self._folder = folder
        self._engine = engine
        self._state = state
        self._head_writer = head_writer
        self._head = head
        self._old_rows = old_rows
        self._reader = EntryReader(engine, state.tails)
        self._reclaimer = Reclaimer(engine, state)
        self._wal_size = WalSize(folder.database_path)
        # The first one; nothing is written after it.
        self._failure: _Failure | None = None
        self._failure_lock = Lock()
        self._is_closed = False
        # Bytes written since RocksDB was last asked whether it is busy.
        self._unasked_bytes = 0

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

    @property
    def failure(self) -> str | None:
        """Cause if the store has stopped; None while it works. Any thread."""
        return None if self._failure is None else self._failure.cause

    def write(self, entries: Sequence[NewEntry], rows: Sequence[Row] = (), staged: Sequence[StagedBatch] = ()) -> None:
        self._check_works()
        handles, state = self._engine.handles, self._state
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
                self._unasked_bytes += len(columns)
            elif entry.staged is not None:
                committed[_place_of(entry)] = entry.last_tick
            if tail:
                put(tail_key(entry.vchannel_id), pack_tail(entry.vchannel_id, tail), index)
            if chunk:
                row = pack_chunk(entry.vchannel_id, chunk)
                put(chunk_key(entry.vchannel_id, chunk.first_tick), row, index)
        self._unasked_bytes += len(entries) * _ROWS_BYTES
        if rows:
            self._put_rows(batch, rows)
        if staged:
            self._put_staged(batch, staged)
        # Ordering: after the batches, because a transaction may stage its last ones and commit in one write.
        for place, last_tick in committed.items():
            batch.put(txn_key(*place), pack_txn(*place, last_tick), index)
        self._write(batch)
        state.publish()
        if entries:
            last, head, before = entries[-1], state.head, self._head
            # HEAD and the state count the same entries: nothing else numbers any.
            assert head.sequence == before.sequence + len(entries)
            # Positional arguments, because this runs for each group.
            self._head = Head(
                before.generation, before.incarnation, before.open_count, head.sequence, head.chain_hash,
                last.last_tick, last.vchannel_id, last.base_tick, before.engine_sequence, False,
            )  # fmt: skip

    def _put_rows(self, batch: WriteBatch, rows: Sequence[Row]) -> None:
        handles = self._engine.handles
        for table, key, value in rows:
            family = handles[table.family]
            if value is None:
                batch.delete(table.key_of(key), family)
            else:
                if table.since_format > self._folder.format:
                    self._raise_format(table.since_format)
                row_key, packed = table.pack(key, value)
                batch.put(row_key, packed, family)
                self._unasked_bytes += len(packed)
            if self._old_rows and (old := self._old_rows.pop((table, key), None)) is not None:
                old_family, old_key = old
                batch.delete(old_key, handles[old_family])

    def _raise_format(self, number: int) -> None:
        try:
            self._folder.raise_format(number)
        except OSError as error:
            self.fail(f"writing FORMAT: {error_text(error)}")
            self._check_works()

    def _put_staged(self, batch: WriteBatch, batches: Sequence[StagedBatch]) -> None:
        staged, index = self._engine.handles["staged"], self._engine.handles["index"]
        for vchannel_id, txn_id, sequence, columns in batches:
            assert vchannel_id in self._state.tails
            batch.put(staged_key(vchannel_id, txn_id, sequence), columns, staged)
            batch.put(txn_key(vchannel_id, txn_id), pack_txn(vchannel_id, txn_id, NO_TICK), index)
            self._unasked_bytes += len(columns) + _ROWS_BYTES

    def sync(self) -> None:
        self._check_works(Effect.UNKNOWN)
        # Ordering: before the sync, because another thread may write while it runs, which it need not cover.
        head, engine_sequence = self._head, self._engine.db.latest_sequence_number()
        self._wal_size.before_sync()
        self._or_stop(_SYNCING, lambda: self._engine.db.flush_wal(True))
        self._head_writer.note(head, engine_sequence)

    def read(self, vchannel_id: int, begin_tick: int, end_tick: int, max_bytes: int) -> list[Entry]:
        return self._reader.read(vchannel_id, begin_tick, end_tick, max_bytes)

    def headers(self, vchannel_id: int, begin_tick: int, end_tick: int, max_headers: int) -> list[EntryHeader]:
        return self._reader.page_of_headers(vchannel_id, begin_tick, end_tick, max_headers)

    def columns(self, headers: Sequence[EntryHeader]) -> list[bytes | None]:
        return self._reader.columns(headers)

    def tail(self, vchannel_id: int) -> VchannelTail:
        return self._state.vchannel_tail(vchannel_id)

    def discard(self, places: Mapping[TxnPlace, int | None]) -> None:
        self._check_works()
        staged, index = self._engine.handles["staged"], self._engine.handles["index"]
        batch = WriteBatch(raw_mode=True)
        ranges: list[tuple[bytes, bytes]] = []
        for place, batches in places.items():
            if batches is None or batches > _MAX_SINGLE_DELETES:
                ranges.append(self._delete_staged(batch, place))
            else:
                for sequence in range(1, batches + 1):
                    batch.delete(staged_key(*place, sequence), staged)
                batch.delete(txn_key(*place), index)
        self._write(batch)
        hit(Failpoint.MID_DISCARD)
        for begin_key, end_key in ranges:
            self._reclaimer.add("staged", begin_key, end_key)

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
        self._check_works()
        absent = self._state.absent(vchannel_ids)
        batch = WriteBatch(raw_mode=True)
        for vchannel_id in absent:
            batch.put(tail_key(vchannel_id), pack_tail(vchannel_id, TailRow()), self._engine.handles["index"])
        self._commit(batch)
        self._state.tails.update(dict.fromkeys(absent, TailRow()))

    def drop_vchannels(self, vchannel_ids: Iterable[int], rows: Sequence[Row] = ()) -> None:
        self._check_works()
        # Ordering: readers see this before rows are deleted, see EntryReader.
        dropped = self._state.drop(vchannel_ids)
        if not dropped:
            return
        handles = self._engine.handles
        batch = WriteBatch(raw_mode=True)
        batch.put(STORE_KEY, pack_store(self._state.store_row()), handles["index"])
        for vchannel_id in dropped:
            self._delete_entries(batch, vchannel_id, log_end_key(vchannel_id))
            batch.delete_range(*staged_vchannel_range(vchannel_id), handles["staged"])
            batch.delete_range(*index_range(vchannel_id), handles["index"])
            for table in tables():
                if table.is_of_vchannel:
                    batch.delete_range(*vchannel_range(table.prefix, vchannel_id), handles[table.family])
        self._put_rows(batch, [*rows, *self._old_rows_of(dropped)])
        self._write(batch)
        hit(Failpoint.MID_DROP)
        self.sync()
        self._reclaimer.add_dropped(dropped)

    def _old_rows_of(self, vchannel_ids: Collection[int]) -> list[Row]:
        """Return the deletions of rows of vchannels in old forms, which are elsewhere."""
        return [
            table.gone(key)
            for table, key in self._old_rows
            if table.is_of_vchannel and table.vchannel_id_of(key) in vchannel_ids
        ]

    def trim(self, vchannel_id: int, before_tick: int) -> VchannelTail:
        """See LogStore.

        Raises:
            DataLossError: An entry to be trimmed is damaged or missing. Nothing was changed.
        """
        self._check_works()
        tail = self._state.tails[vchannel_id]
        if tail.trim_tick < before_tick:
            self._trim(vchannel_id, tail, before_tick)
        return self.tail(vchannel_id)

    def fence(self, vchannel_id: int, fencing_token: int) -> None:
        self._check_works()
        if fencing_token <= self.tail(vchannel_id).fencing_token:
            return
        batch = WriteBatch(raw_mode=True)
        row = pack_fence(vchannel_id, fencing_token)
        batch.put(fence_key(vchannel_id), row, self._engine.handles["index"])
        self._commit(batch)
        self._state.fencing_tokens[vchannel_id] = fencing_token

    def reclaim(self) -> None:
        self._reclaimer.run()

    def stall_reason(self) -> str | None:
        if self._unasked_bytes < _ASK_EVERY_BYTES:
            return None
        reason = stall_reason(self._engine)
        if reason is None:
            self._unasked_bytes = 0
        return reason

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
        head = self._head._replace(engine_sequence=self._engine.db.latest_sequence_number())
        return make_checkpoint(self._engine, self._folder, name, head), head

    def checkpoint_path(self, name: str) -> Path:
        """Return the path of the checkpoint called ``name``, whether or not it exists."""
        return self._folder.checkpoints_path / name

    def adopt_vchannels(self, trim_ticks: Mapping[int, int]) -> None:
        """Create new vchannels that are trimmed up to a tick, atomically and durably. For a restore."""
        tails = {
            vchannel_id: TailRow(trim_tick=trim_tick, last_tick=max(0, trim_tick - 1))
            for vchannel_id, trim_tick in trim_ticks.items()
        }
        assert not tails.keys() & self._state.tails.keys()
        batch = WriteBatch(raw_mode=True)
        for vchannel_id, tail in tails.items():
            batch.put(tail_key(vchannel_id), pack_tail(vchannel_id, tail), self._engine.handles["index"])
        self._commit(batch)
        self._state.tails.update(tails)

    def metadata_rows(self) -> RocksdbMetadataRows:
        """Return the table of the embedded metadata store. Only the committer may change it."""
        return RocksdbMetadataRows(self._engine, write=self._write, commit=self._commit, check_works=self._check_works)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._reclaimer.close()
        try:
            if self._failure is None:
                self._write_stale_tails()
                self.sync()
        finally:
            self._head_writer.close(is_clean=self._failure is None)
            close_engine(self._engine)
            self._folder.close()
            self.fail("the store is closed")

    def _write_stale_tails(self) -> None:
        """Write the tails, so that the next start finds them without the entries after their rows."""
        index = self._engine.handles["index"]
        batch = WriteBatch(raw_mode=True)
        for vchannel_id, tail in self._state.stale_tails().items():
            batch.put(tail_key(vchannel_id), pack_tail(vchannel_id, tail), index)
        self._write(batch)

    def _trim(self, vchannel_id: int, tail: TailRow, before_tick: int) -> None:
        chunks = self._reader.closed_chunks(vchannel_id, tail, lambda row: before_tick <= row.last_tick)
        gone_chunks = [row for row in chunks if row.last_tick < before_tick]
        cut = self._cut_at(vchannel_id, tail, before_tick, gone_chunks)
        if cut.trim_tick <= tail.trim_tick:
            return
        tail = trimmed(tail, cut)
        # Ordering: readers see this before rows are deleted, see EntryReader.
        self._state.tails[vchannel_id] = tail
        index = self._engine.handles["index"]
        batch = WriteBatch(raw_mode=True)
        batch.put(tail_key(vchannel_id), pack_tail(vchannel_id, tail), index)
        end_key = log_key(vchannel_id, cut.end_tick)
        self._delete_entries(batch, vchannel_id, end_key)
        gone_txns = [
            place
            for place, last_tick in load_txns(self._engine, vchannel_id).items()
            if last_tick != NO_TICK and last_tick < cut.trim_tick
        ]
        staged_ranges = [self._delete_staged(batch, place) for place in gone_txns]
        if gone_chunks:
            end_chunk_key = chunk_key(vchannel_id, gone_chunks[-1].first_tick + 1)
            batch.delete_range(chunk_key(vchannel_id, 0), end_chunk_key, index)
        self._write(batch)
        hit(Failpoint.MID_TRIM)
        self.sync()
        for family in ("log", "columns"):
            self._reclaimer.add(family, log_key(vchannel_id, 0), end_key)
        for begin_key, end_key in staged_ranges:
            self._reclaimer.add("staged", begin_key, end_key)

    def _cut_at(self, vchannel_id: int, tail: TailRow, before_tick: int, gone_chunks: Sequence[ChunkRow]) -> TrimCut:
        """Return the cut that removes entries that are entirely below ``before_tick``."""
        cut = uncut(tail)
        if gone_chunks:
            cut = cut_after_chunk(gone_chunks[-1])
        for header in self._reader.headers(vchannel_id, cut.trim_tick, before_tick):
            if before_tick <= header.last_tick:
                return cut_within(cut, header, before_tick)
            cut = cut_after(cut, header)
        return cut

    def _delete_entries(self, batch: WriteBatch, vchannel_id: int, end_key: bytes) -> None:
        for family in ("log", "columns"):
            batch.delete_range(log_key(vchannel_id, 0), end_key, self._engine.handles[family])

    def _delete_staged(self, batch: WriteBatch, place: TxnPlace) -> tuple[bytes, bytes]:
        """Delete the staged batches of a transaction on a vchannel; return the range of their keys."""
        staged, index = self._engine.handles["staged"], self._engine.handles["index"]
        begin_key, end_key = staged_range(*place)
        batch.delete_range(begin_key, end_key, staged)
        batch.delete(txn_key(*place), index)
        return begin_key, end_key

    def _commit(self, batch: WriteBatch) -> None:
        self._write(batch)
        self.sync()

    def _write(self, batch: WriteBatch) -> None:
        with self._wal_size.writing:
            self._or_stop(_WRITING, lambda: self._engine.db.write(batch))

    def _check_works(self, effect: Effect = Effect.NONE) -> None:
        if self._failure is not None:
            raise self._failure.error(effect)

    def _or_stop(self, doing: str, change: Callable[[], None]) -> None:
        """Run ``change``; an error of RocksDB in it stops the store. Others are bugs, and raised unchanged."""
        try:
            change()
        except Exception as error:
            if not is_engine_error(error):
                raise
            self.fail(f"{doing}: {error_text(error)}", is_damage=is_damage(error))
            assert self._failure is not None
            raise self._failure.error(Effect.UNKNOWN) from error

    def fail(self, cause: str, *, is_damage: bool = False) -> None:
        """Stop the store; only the first cause is stored. Any thread."""
        with self._failure_lock:
            if self._failure is None:
                self._failure = _Failure(cause, is_damage)


def _place_of(entry: NewEntry) -> TxnPlace:
    assert entry.txn is not None
    return entry.vchannel_id, entry.txn.txn_id
