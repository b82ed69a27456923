"""A stored log that is not written to, opened to read all of it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rocksdict import WriteBatch

from tidelog_server.core.groups import GroupKey, GroupPosition
from tidelog_server.core.producers import ProducerKey, ProducerWindow
from tidelog_server.core.shares import FloorKey
from tidelog_server.core.transactions import AppCommit, AppKey, TxnOutcome
from tidelog_server.storage.format.codec import TailRow
from tidelog_server.storage.rocksdb.engine import Engine, close_engine, engine_errors, open_engine
from tidelog_server.storage.rocksdb.index import StoreIndex, load_index, load_positions, load_windows
from tidelog_server.storage.rocksdb.reader import EntryReader
from tidelog_server.storage.rocksdb.table import RocksdbTable


@dataclass(frozen=True, slots=True)
class StoredLog:
    """The content of a store.

    Attributes:
        reader: Reader of its entries.
        tails: Tails of all vchannels.
        fencing_tokens: Tokens of the vchannels that have one.
        outcomes: Outcomes of staged transactions, by txn id.
        app_commits: The last commit of each application.
        floors: Floors of tenants, by table.
        metadata: Rows of the embedded metadata store.
    """

    reader: EntryReader
    tails: Mapping[int, TailRow]
    fencing_tokens: Mapping[int, int]
    outcomes: Mapping[int, TxnOutcome]
    app_commits: Mapping[AppKey, AppCommit]
    floors: Mapping[FloorKey, int]
    metadata: RocksdbTable
    _engine: Engine

    def windows(self) -> dict[ProducerKey, ProducerWindow]:
        """Return the windows of all producers. Raises DataLossError."""
        return load_windows(self._engine)

    def positions(self) -> dict[GroupKey, GroupPosition]:
        """Return the positions of all groups. Raises DataLossError."""
        return load_positions(self._engine)


def stored_log(engine: Engine, index: StoreIndex) -> StoredLog:
    """Return the content of an engine opened for reading; ``index`` is its decoded index family."""
    table = RocksdbTable(engine, write=_refuse, commit=_refuse, check_works=lambda: None)
    reader = EntryReader(engine, index.tails)
    return StoredLog(
        reader, index.tails, index.fencing_tokens, index.outcomes, index.app_commits, index.floors, table, engine
    )


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


def _refuse(_: WriteBatch) -> None:
    raise AssertionError("a store that was opened for reading must not be written to")
