"""The decoded rows of the index family: what a store loads when it is opened, and what recovery compares.

Every ``load_...`` raises DataLossError if a row is damaged.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

from rocksdict import RdictIter, WriteBatch

from tidelog_server.core.entries import HASH_BYTES
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.transactions import TxnPlace
from tidelog_server.storage.format.codec import (
    ChunkRow,
    StoreRow,
    TailRow,
    pack_fence,
    pack_store,
    pack_tail,
    pack_txn,
    unpack_chunk,
    unpack_fence,
    unpack_store,
    unpack_tail,
    unpack_txn,
)
from tidelog_server.storage.format.head_file import Head
from tidelog_server.storage.format.keys import (
    STORE_KEY,
    VIEW_KEYS,
    log_end_key,
    log_key,
    parse_chunk_key,
    parse_fence_key,
    parse_tail_key,
    parse_txn_key,
    txn_range,
)
from tidelog_server.storage.log_state import extended
from tidelog_server.storage.rocksdb.engine import (
    Engine,
    engine_errors,
    read_options,
    scan,
)
from tidelog_server.storage.rocksdb.links import first_gap, pages_of_links


class StoreIndex(NamedTuple):
    """The rows of the index family, decoded.

    Attributes:
        tails: Tail after the last entry of each vchannel.
        tail_rows: The same as stored; they may be older.
        txns: Last tick of each transaction with staged batches on each vchannel; 0 if it is not committed.
        table_rows: Rows of tables, as stored, in the order of their keys.
        is_as_closed: True if the tail rows are those of the last clean stop and account for all entries.
    """

    store: StoreRow
    tails: dict[int, TailRow]
    tail_rows: dict[int, TailRow]
    chunks: dict[int, list[ChunkRow]]
    fencing_tokens: dict[int, int]
    txns: dict[TxnPlace, int]
    table_rows: list[tuple[bytes, bytes]]
    is_as_closed: bool = False

    def digest(self) -> str:
        """Return a hash over all rows but the chunks, which the tails cover: equal for equal states."""
        digest = blake2b(pack_store(self.store), digest_size=HASH_BYTES)
        for vchannel_id in sorted(self.tails):
            digest.update(pack_tail(vchannel_id, self.tails[vchannel_id]))
        for vchannel_id in sorted(self.fencing_tokens):
            digest.update(pack_fence(vchannel_id, self.fencing_tokens[vchannel_id]))
        for place in sorted(self.txns):
            digest.update(pack_txn(*place, self.txns[place]))
        for key, value in self.table_rows:
            digest.update(key + value)
        return digest.hexdigest()


def load_index(engine: Engine, head: Head | None = None, *, sequence: int | None = None) -> StoreIndex:
    """Return the content of the index family.

    A clean stop writes all tails: entries after their rows are not looked for if the rows account for all entries.

    Args:
        engine: The database.
        head: Its HEAD, if that may be of a clean stop.
        sequence: Number of all entries, if the caller knows it.

    Raises:
        DataLossError: A row is damaged, or the store's row is missing. Rows of tables are not decoded here.
    """
    store: StoreRow | None = None
    tail_rows: dict[int, TailRow] = {}
    chunks: dict[int, list[ChunkRow]] = {}
    fencing_tokens: dict[int, int] = {}
    txns: dict[TxnPlace, int] = {}
    table_rows: list[tuple[bytes, bytes]] = []
    for key, value in scan(engine.index, b"", None):
        if (vchannel_id := parse_tail_key(key)) is not None:
            tail_rows[vchannel_id] = unpack_tail(vchannel_id, value)
        elif (vchannel_id := parse_fence_key(key)) is not None:
            fencing_tokens[vchannel_id] = unpack_fence(vchannel_id, value)
        elif place := parse_chunk_key(key):
            chunks.setdefault(place[0], []).append(unpack_chunk(*place, value))
        elif txn_place := parse_txn_key(key):
            txns[txn_place] = unpack_txn(txn_place, value)
        elif key == STORE_KEY:
            store = unpack_store(value)
        elif key not in VIEW_KEYS:
            table_rows.append((key, value))
    if store is None:
        raise DataLossError("the store's own row is missing in the index: restore the data folder from a backup")
    if head is not None:
        # Nothing was written since a clean stop.
        is_untouched = head.is_clean and engine.db.latest_sequence_number() == head.engine_sequence
        sequence = head.sequence if is_untouched else None
    is_as_closed = sequence == store.destroyed_batches + sum(tail.batches for tail in tail_rows.values())
    tails = tail_rows if is_as_closed else _caught_up(engine, tail_rows)
    index = StoreIndex(store, tails, tail_rows, chunks, fencing_tokens, txns, table_rows, is_as_closed)
    _check_owners(index)
    return index


def _caught_up(engine: Engine, tails: Mapping[int, TailRow]) -> dict[int, TailRow]:
    """Return the tails including the entries written after their rows.

    Raises:
        DataLossError: An entry is damaged or missing.
    """
    with engine_errors("reading headers"):
        # One iterator for all: making one takes as long as reading dozens of rows.
        rows = engine.log.iter(read_options())
        return {vchannel_id: _with_rest(rows, vchannel_id, tail) for vchannel_id, tail in tails.items()}


def _with_rest(rows: RdictIter, vchannel_id: int, tail: TailRow) -> TailRow:
    rows.seek(log_key(vchannel_id, tail.last_tick + 1))
    for links in pages_of_links(rows, log_end_key(vchannel_id)):
        if (gap := first_gap(links, tail.last_tick)) is not None:
            raise mismatch("the entry after it", vchannel_id, links.previous_ticks[gap])
        tail = extended(tail, links)
    return tail


def _check_owners(index: StoreIndex) -> None:
    """Check that every row belongs to an existing vchannel."""
    for what, owners in (
        ("chunks", index.chunks.keys()),
        ("a fencing token", index.fencing_tokens.keys()),
        ("staged batches", {vchannel_id for vchannel_id, _ in index.txns}),
    ):
        if orphans := sorted(owners - index.tails.keys()):
            raise DataLossError(f"vchannel id {orphans[0]} has {what} but no tail", vchannel_id=orphans[0])


def load_txns(engine: Engine, vchannel_id: int | None = None) -> dict[TxnPlace, int]:
    """Return the last tick of each transaction with staged batches, on one vchannel or on each; 0 if not committed."""
    begin_key, end_key = (b"", None) if vchannel_id is None else txn_range(vchannel_id)
    rows = ((parse_txn_key(key), value) for key, value in scan(engine.index, begin_key, end_key))
    return {place: unpack_txn(place, value) for place, value in rows if place is not None}


def write_store_row(engine: Engine, store: StoreRow) -> int:
    """Write the store's own row, durably; return RocksDB's sequence number after it."""
    batch = WriteBatch(raw_mode=True)
    batch.put(STORE_KEY, pack_store(store), engine.handles["index"])
    engine.db.write(batch)
    engine.db.flush_wal(True)
    return engine.db.latest_sequence_number()


def mismatch(what: str, vchannel_id: int, tick: int) -> DataLossError:
    """Return the error for an entry that is missing or that ``what`` contradicts."""
    return DataLossError(
        f"the entry of vchannel id {vchannel_id} at tick {tick} is missing or does not match {what}: "
        "restore the data folder from a backup",
        vchannel_id=vchannel_id, tick=tick,
    )  # fmt: skip
