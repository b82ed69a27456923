"""A stored log that is not written to, opened to read all of it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidelog_server.storage.format.codec import TailRow
from tidelog_server.storage.rocksdb.engine import Engine, close_engine, engine_errors, open_engine
from tidelog_server.storage.rocksdb.index import StoreIndex, load_index
from tidelog_server.storage.rocksdb.metadata_rows import RocksdbMetadataRows
from tidelog_server.storage.rocksdb.reader import EntryReader
from tidelog_server.storage.rocksdb.rows import load_rows
from tidelog_server.storage.rows import Key, Table, Value


@dataclass(frozen=True, slots=True)
class StoredLog:
    """The content of a store.

    Attributes:
        reader: Reader of its entries.
        tails: Tails of all vchannels.
        fencing_tokens: Tokens of the vchannels that have one.
        metadata: Rows of the embedded metadata store.
    """

    reader: EntryReader
    tails: Mapping[int, TailRow]
    fencing_tokens: Mapping[int, int]
    metadata: RocksdbMetadataRows
    _engine: Engine

    def rows(self, table: Table[Key, Value]) -> dict[Key, Value]:
        """Return the rows of a table, by key. Raises DataLossError."""
        return load_rows(self._engine, table)


def stored_log(engine: Engine, index: StoreIndex) -> StoredLog:
    """Return the content of an engine opened for reading; ``index`` is its decoded index family."""
    table = RocksdbMetadataRows(engine)
    reader = EntryReader(engine, index.tails)
    return StoredLog(reader, index.tails, index.fencing_tokens, table, engine)


@contextmanager
def open_stored_log(database_path: Path) -> Iterator[StoredLog]:
    """Open a database read-only; it is closed with the context.

    Raises:
        DataLossError: It cannot be opened, or a row is damaged.
    """
    with engine_errors("opening the database"):
        engine = open_engine(database_path, read_only=True)
    try:
        yield stored_log(engine, load_index(engine))
    finally:
        close_engine(engine)
