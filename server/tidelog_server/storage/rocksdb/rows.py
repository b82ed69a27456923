"""Rows of the tables of features in RocksDB, whatever form they have."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from tidelog_server.storage.rocksdb.engine import Engine, scan
from tidelog_server.storage.rocksdb.writer import ROW_BYTES, Batch, RowWriter
from tidelog_server.storage.rows import Key, Row, Table, Value, end_of_prefix, table_of, tables

Place = tuple[str, bytes]
"""Family and key of a row."""
OldPlaces = dict[tuple[Table[Any, Any], Any], Place]
"""Places of the rows that are stored in old forms, by table and key."""


def stored_rows(engine: Engine, table: Table[Key, Value]) -> Iterator[tuple[Place | None, Key, Value | None]]:
    """Yield the place of each row of a table if it is in the old form, its key and its value. Raises DataLossError.

    Rows in the old form come first. The value None means the same as no row.
    """
    if (old := table.old) is not None:
        for key, packed in scan(engine.family(old.family), old.prefix, end_of_prefix(old.prefix)):
            if old.has(key):
                yield (old.family, key), *table.unpack_old(key, packed)
    for key, packed in scan(engine.family(table.family), table.prefix, end_of_prefix(table.prefix)):
        # Rows of vchannels are in these ranges, too.
        if table.has(key) and table_of(table.family, key) is table:
            yield None, *table.unpack(key, packed)


def load_rows(engine: Engine, table: Table[Key, Value]) -> dict[Key, Value]:
    """Return the rows of a table, by key. Raises DataLossError."""
    return {key: value for _, key, value in stored_rows(engine, table) if value is not None}


def old_places(engine: Engine) -> OldPlaces:
    """Return the places of the rows that are stored in old forms. Raises DataLossError."""
    found = ((table, *row) for table in tables() if table.old is not None for row in stored_rows(engine, table))
    return {(table, key): place for table, place, key, _ in found if place is not None}


class TableRows:
    """Changes rows of tables, and deletes them in their old forms. Threads: one change at a time, as ``LogStore``."""

    def __init__(self, writer: RowWriter, old: OldPlaces) -> None:
        self._handles = writer.handles
        self._writer = writer
        self._old = old

    def put(self, batch: Batch, rows: Sequence[Row]) -> None:
        """Add changes of rows to a batch. Raises StorageFailedError."""
        for table, key, value in rows:
            if value is None:
                batch.delete(table.key_of(key), self._handles[table.family])
            else:
                self._writer.raise_format(table.since_format, table.name)
                row_key, packed = table.pack(key, value)
                batch.put(row_key, packed, self._handles[table.family])
                self._writer.unasked_bytes += len(packed) + ROW_BYTES
            if self._old and (place := self._old.get((table, key))) is not None:
                family, old_key = place
                batch.delete(old_key, self._handles[family])

    def written(self, rows: Sequence[Row]) -> None:
        """Note that the changes were written: they have no old form any more."""
        if self._old:
            for table, key, _ in rows:
                self._old.pop((table, key), None)

    def drop(self, batch: Batch, vchannel_ids: Collection[int]) -> Sequence[Row]:
        """Add the deletion of the rows of vchannels to a batch; return those that are stored in old forms."""
        of_vchannels = [table for table in tables() if table.is_of_vchannel]
        for table in of_vchannels:
            for vchannel_id in vchannel_ids:
                batch.delete_range(*table.vchannel_range(vchannel_id), self._handles[table.family])
        of_old = (key for key in self._old if key[0] in of_vchannels)
        return [table.gone(key) for table, key in of_old if table.vchannel_id_of(key) in vchannel_ids]
