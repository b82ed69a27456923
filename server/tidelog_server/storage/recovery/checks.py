"""Invariants of a recovered store, independent of RocksDB's own checks: the checks behind the start-up gate.

Every check raises DataLossError and names what is missing. Cheap checks come first; the time of all of them is
proportional to the number of vchannels and chunks, not to the data.
"""

import errno
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from tidelog_server.core.entries import EntryHeader
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.errors.storage import StorageUnreadableError
from tidelog_server.core.limits import MIB
from tidelog_server.core.ticks import NO_TICK
from tidelog_server.storage.format.codec import TailRow, unpack_header, unpack_links
from tidelog_server.storage.format.head_file import Head
from tidelog_server.storage.format.keys import log_key
from tidelog_server.storage.log_state import LogState, open_chunk
from tidelog_server.storage.pieces import in_pieces
from tidelog_server.storage.rocksdb.engine import (
    BLOB_FAMILIES,
    FAMILIES,
    Engine,
    engine_errors,
    multi_get,
    read_options,
    scan,
)
from tidelog_server.storage.rocksdb.index import StoreIndex, load_index, mismatch
from tidelog_server.storage.rocksdb.pressure import integer_property
from tidelog_server.storage.rocksdb.reader import VchannelEnd, check_continuity, checked_end, stored_columns
from tidelog_server.storage.rocksdb.rows import stored_rows
from tidelog_server.storage.rows import INDEX, Facts, Table, table_of, tables

_PROPERTIES_OF_TABLES: Final = "rocksdb.aggregated-table-properties"
_EDGES_AT_ONCE: Final = 1_024
"""Edges of chunks that are read together, at least: a read of one takes four times as long as its share of these."""
_MAX_COLUMNS_READ_BYTES: Final = 64 * MIB
"""Maximum bytes of the vchannels' last entries whose columns are checked, so that the gate stays fast."""


def check_store(engine: Engine, database_path: Path, head: Head | None) -> StoreIndex:
    """Check all invariants of a store that was just opened; ``head`` is None if its loss was accepted.

    Raises:
        DataLossError: An invariant does not hold.
    """
    index = load_index(engine, head)
    state = LogState(index.store, index.tails)
    if head is not None:
        check_head(engine, index, state, head)
    if state.accounted_batches != state.head.sequence:
        raise DataLossError(
            f"the store has numbered {state.head.sequence} entries but its vchannels account for "
            f"{state.accounted_batches}: a vchannel is missing or shorter than before; restore the data folder",
            sequence=state.head.sequence, accounted_batches=state.accounted_batches,
        )  # fmt: skip
    _check_txns(index)
    _check_rows(engine, index, state)
    _check_table_files(engine)
    _check_blob_files(engine, database_path)
    _VchannelChecker(engine, index).check_all()
    return index


def check_head(engine: Engine, index: StoreIndex, state: LogState, head: Head) -> None:
    """Check that everything that was synced according to HEAD has been recovered.

    Raises:
        DataLossError: It was not; the error names both positions.
    """
    if head.incarnation != index.store.incarnation:
        raise DataLossError("HEAD and the database come from different data folders: restore both from one backup")
    recovered = state.head.sequence
    if recovered < head.sequence:
        raise DataLossError(
            f"entry {head.sequence} (vchannel id {head.vchannel_id}, last tick {head.last_tick}) was synced, but only "
            f"entries up to {recovered} (last tick {state.head.last_tick}) were recovered: restore the data folder",
            synced_sequence=head.sequence, synced_tick=head.last_tick,
            recovered_sequence=recovered, recovered_tick=state.head.last_tick,
        )  # fmt: skip
    engine_sequence = engine.db.latest_sequence_number()
    if engine_sequence < head.engine_sequence:
        raise DataLossError(
            f"change {head.engine_sequence} was synced, but only changes up to {engine_sequence} were recovered; no "
            "entry is missing, but metadata, trims or drops are: restore the data folder",
            synced_change=head.engine_sequence, recovered_change=engine_sequence,
        )  # fmt: skip
    _check_entry_at_head(engine, index, state, head)


def _check_entry_at_head(engine: Engine, index: StoreIndex, state: LogState, head: Head) -> None:
    if head.sequence == state.head.sequence:
        if head.chain_hash != state.head.chain_hash:
            raise mismatch("HEAD", head.vchannel_id, head.last_tick)
        return
    if head.sequence == 0 or _is_gone_by_request(index, head):
        return
    header = _header(engine, head.vchannel_id, head.base_tick)
    if header is None or (header.sequence, header.chain_hash) != (head.sequence, head.chain_hash):
        raise mismatch("HEAD", head.vchannel_id, head.last_tick)


def _is_gone_by_request(index: StoreIndex, head: Head) -> bool:
    """Return whether the entry in HEAD was trimmed or dropped after HEAD was written."""
    tail = index.tails.get(head.vchannel_id)
    if tail is not None and head.last_tick < tail.trim_tick:
        return True
    if index.store.sequence < head.sequence:
        return False  # Nothing was dropped since.
    if tail is None:
        return True
    # The vchannel may have been re-created since; then it has nothing as old as HEAD.
    chunks = index.chunks.get(head.vchannel_id)
    first_sequence = chunks[0].first_sequence if chunks else tail.open_first_sequence
    return tail.removed_batches == 0 and (tail.batches == 0 or head.sequence < first_sequence)


class _Edge(NamedTuple):
    """The first or the last entry of a chunk, as the sparse index names it."""

    vchannel_id: int
    base_tick: int
    sequence: int


class _VchannelChecker:
    """Checks vchannels: chunk edges, the open chunk, and the tail.

    A crash may have cut or torn what was written last, so every link of the open chunk is checked after one: up to the
    tail row here, and after it when the index was loaded. After a clean stop the open chunk is checked like closed
    ones, by its first and its last entry: readers check the others.
    """

    def __init__(self, engine: Engine, index: StoreIndex) -> None:
        self._engine = engine
        self._index = index
        self._rows = engine.log.iter(read_options())
        self._columns_left_bytes = _MAX_COLUMNS_READ_BYTES

    def check_all(self) -> None:
        """Check every vchannel, those with few chunks several at a time."""
        vchannel_ids: list[int] = []
        edges: list[_Edge] = []
        for vchannel_id in sorted(self._index.tails):
            vchannel_ids.append(vchannel_id)
            edges += self._edges(vchannel_id)
            if len(vchannel_ids) + len(edges) >= _EDGES_AT_ONCE:
                self._check(vchannel_ids, edges)
                vchannel_ids, edges = [], []
        self._check(vchannel_ids, edges)

    def _edges(self, vchannel_id: int) -> Iterator[_Edge]:
        """Yield first and last entry of each chunk, unless they were trimmed, after checking that none is missing."""
        tail = self._index.tails[vchannel_id]
        chunks = self._index.chunks.get(vchannel_id, [])
        check_continuity(vchannel_id, tail, chunks)
        opened = open_chunk(tail) if self._index.is_as_closed else None
        for row in chunks if opened is None else (*chunks, opened):
            # Of a chunk with one entry, the last is the first.
            if tail.trim_tick <= row.first_tick != row.last_base_tick:
                yield _Edge(vchannel_id, row.first_tick, row.first_sequence)
            if tail.trim_tick <= row.last_tick:
                yield _Edge(vchannel_id, row.last_base_tick, row.last_sequence)

    def _check(self, vchannel_ids: Sequence[int], edges: Sequence[_Edge]) -> None:
        rows = self._check_edges(edges)
        tails = {vchannel_id: self._index.tails[vchannel_id] for vchannel_id in vchannel_ids}
        tails = {vchannel_id: tail for vchannel_id, tail in tails.items() if _has_entry(tail)}
        if not self._index.is_as_closed:
            for vchannel_id in tails:
                self._check_links(vchannel_id)
            rows = _last_rows(self._engine, tails)
        # Otherwise the open chunks were among the edges, so the last edge is the end.
        for vchannel_id, tail in tails.items():
            self._check_columns(_checked_end(vchannel_id, tail, rows.get(vchannel_id)))

    def _check_edges(self, edges: Sequence[_Edge]) -> Mapping[int, tuple[bytes, bytes]]:
        """Check that the entries exist; return the header row of the last one of each vchannel."""
        keys = [log_key(edge.vchannel_id, edge.base_tick) for edge in edges]
        with engine_errors("reading chunk edges"):
            values = multi_get(self._engine.log, keys)
        found: dict[int, tuple[bytes, bytes]] = {}
        for edge, key, value in zip(edges, keys, values, strict=True):
            if value is None:
                raise mismatch("the chunk index", edge.vchannel_id, edge.base_tick)
            found[edge.vchannel_id] = key, value
        if found:
            links = unpack_links(keys, [value for value in values if value is not None])
            for edge, sequence in zip(edges, links.sequences, strict=True):
                if sequence != edge.sequence:
                    raise mismatch("the chunk index", edge.vchannel_id, edge.base_tick)
        return found

    def _check_links(self, vchannel_id: int) -> None:
        """Check every link from the last closed chunk to the tail row, and the open chunk as of that row."""
        tail = self._index.tail_rows[vchannel_id]
        if not _has_entry(tail):
            return
        chunks = self._index.chunks.get(vchannel_id)
        begin_tick = chunks[-1].last_base_tick if chunks else 0
        end = checked_end(self._rows, vchannel_id, tail, begin_tick)
        is_whole = tail.trim_tick <= tail.open_first_tick
        is_as_written = not is_whole or (end.opened, end.opened_hash) == (tail.open_batches, tail.open_hash)
        if not is_as_written or _end_of(end) != _end_of_tail(tail):
            raise mismatch("the tail row", vchannel_id, tail.last_tick)

    def _check_columns(self, header: EntryHeader) -> None:
        if self._columns_left_bytes < header.columns_bytes:
            return
        self._columns_left_bytes -= header.columns_bytes
        columns = header.inline_columns
        if columns is None:
            with engine_errors("reading columns", vchannel_id=header.vchannel_id, tick=header.base_tick):
                (columns,) = stored_columns(self._engine, [header])
        if columns is None or crc32c(columns) != header.stored_crc32c:
            raise mismatch("its header", header.vchannel_id, header.base_tick)


def check_ends(engine: Engine, tails: Mapping[int, TailRow]) -> None:
    """Check that the last entry of each vchannel is the one in its tail, unless it was trimmed.

    Raises:
        DataLossError: It is missing, or another one.
    """
    for part in in_pieces([*tails.items()], lambda _: 1, max_bytes=_EDGES_AT_ONCE):
        remaining = {vchannel_id: tail for vchannel_id, tail in part if _has_entry(tail)}
        rows = _last_rows(engine, remaining)
        for vchannel_id, tail in remaining.items():
            _checked_end(vchannel_id, tail, rows.get(vchannel_id))


def _last_rows(engine: Engine, tails: Mapping[int, TailRow]) -> Mapping[int, tuple[bytes, bytes]]:
    """Return the header row of the last entry of each vchannel that has one there."""
    keys = [log_key(vchannel_id, tail.last_base_tick) for vchannel_id, tail in tails.items()]
    with engine_errors("reading headers"):
        values = multi_get(engine.log, keys)
    found = zip(tails, keys, values, strict=True)
    return {vchannel_id: (key, value) for vchannel_id, key, value in found if value is not None}


def _checked_end(vchannel_id: int, tail: TailRow, last_row: tuple[bytes, bytes] | None) -> EntryHeader:
    last = None if last_row is None else unpack_header(*last_row)
    if last is None or _end_of(last) != _end_of_tail(tail):
        raise mismatch("the tail row", vchannel_id, tail.last_tick)
    return last


def _has_entry(tail: TailRow) -> bool:
    """Return whether the vchannel has an entry that is not trimmed."""
    return tail.last_tick >= max(tail.trim_tick, 1)


def _end_of(last: EntryHeader | VchannelEnd) -> tuple[int, int, int, bytes]:
    return (last.base_tick, last.last_tick, last.sequence, last.chain_hash)


def _end_of_tail(tail: TailRow) -> tuple[int, int, int, bytes]:
    return (tail.last_base_tick, tail.last_tick, tail.last_sequence, tail.last_chain_hash)


def _check_txns(index: StoreIndex) -> None:
    """Check that the marks of staged transactions have only ticks that are in the log."""
    for (vchannel_id, txn_id), last_tick in index.txns.items():
        if index.tails[vchannel_id].last_tick < last_tick:
            raise DataLossError(
                f"transaction {txn_id} reaches to tick {last_tick} on vchannel id {vchannel_id}, which ends at "
                f"{index.tails[vchannel_id].last_tick}: restore the data folder",
                vchannel_id=vchannel_id, tick=last_tick,
            )  # fmt: skip


def _check_rows(engine: Engine, index: StoreIndex, state: LogState) -> None:
    """Check that every row is one of a table, and belongs to its vchannel, and what the table itself checks."""
    families = {table.family for table in tables()} - {INDEX}
    keys = ((family, key) for family in sorted(families) for key, _ in scan(engine.family(family), b"", None))
    for family, key in chain(keys, ((INDEX, key) for key, _ in index.table_rows)):
        table_of(family, key)
    last_ticks = {vchannel_id: tail.last_tick for vchannel_id, tail in index.tails.items()}
    facts = Facts(state.head.last_tick, last_ticks, index.txns)
    for table in tables():
        for _, key, value in stored_rows(engine, table):
            if table.is_of_vchannel:
                _check_vchannel(table, table.vchannel_id_of(key), value, facts)
            if value is not None:
                table.check(key, value, facts)


def _check_vchannel(table: Table[Any, Any], vchannel_id: int, value: Any, facts: Facts) -> None:
    end_tick = facts.last_ticks.get(vchannel_id)
    tick = NO_TICK if value is None else table.last_tick_of(value)
    if end_tick is None or end_tick < tick:
        place = "does not exist" if end_tick is None else f"ends at {end_tick}"
        raise DataLossError(
            f"a row of {table.name} reaches to tick {tick} on vchannel id {vchannel_id}, which {place}: restore the "
            "data folder",
            row=table.name, vchannel_id=vchannel_id, tick=tick,
        )  # fmt: skip


def _check_table_files(engine: Engine) -> None:
    """Check the footer, the properties and the index of every live table, which RocksDB reads when it opens the table.

    An open reads only those of some tables, and a damaged table must not be found after the first write. Blocks of rows
    have their own checksums, which each read compares.
    """
    for name in FAMILIES:
        with engine_errors(f"reading the tables of {name}"):
            if engine.family(name).property_value(_PROPERTIES_OF_TABLES) is not None:
                continue
            # It does not report the cause, but a read does: read a block of each table.
            rows = engine.family(name).iter(read_options())
            for table in engine.db.live_files():
                rows.seek(table["start_key"])
                rows.status()
        raise StorageUnreadableError(f"a table of {name} could not be opened", errno.EIO)


def _check_blob_files(engine: Engine, database_path: Path) -> None:
    """Check that number and bytes of blob files are those that RocksDB expects; RocksDB does not check this itself."""
    sizes = [path.stat().st_size for path in database_path.glob("*.blob")]
    families = [engine.family(name) for name in BLOB_FAMILIES]
    expected_files = sum(integer_property(family, "num-blob-files") for family in families)
    expected_bytes = sum(integer_property(family, "live-blob-file-size") for family in families)
    if len(sizes) < expected_files or sum(sizes) < expected_bytes:
        raise DataLossError(
            f"the database expects {expected_files} blob files with {expected_bytes} bytes, but there are {len(sizes)} "
            f"with {sum(sizes)}: restore the data folder",
            expected_files=expected_files, files=len(sizes),
        )  # fmt: skip


def _header(engine: Engine, vchannel_id: int, base_tick: int) -> EntryHeader | None:
    key = log_key(vchannel_id, base_tick)
    with engine_errors("reading a header", vchannel_id=vchannel_id, tick=base_tick):
        value = engine.log.get(key)
    return None if value is None else unpack_header(key, value)
