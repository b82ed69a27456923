"""Where the totals are: SQLite or PostgreSQL, with the same statements."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final, Protocol

from tidelog.gazette import CheckpointStore, SqliteCheckpointStore

CONSUMER: Final = "totals"
CREATE: Final = (
    "CREATE TABLE IF NOT EXISTS totals (carrier varchar(2) PRIMARY KEY, flights bigint NOT NULL, delay bigint NOT NULL)"
)
ADD: Final = (
    "INSERT INTO totals AS t VALUES ({0}, 1, {0}) ON CONFLICT (carrier)"
    " DO UPDATE SET flights = t.flights + 1, delay = t.delay + excluded.delay"
)
READ: Final = "SELECT carrier, flights, delay FROM totals"

Totals = dict[str, tuple[int, int]]
"""By carrier: the number of flights, and the sum of their delays in minutes."""


class Database(Protocol):
    """A database with the totals."""

    def open_store(self) -> CheckpointStore[Any]:
        """Return a store for the consumer's checkpoints in the database."""
        ...

    def create(self) -> None:
        """Create the empty table of totals, if it does not exist."""
        ...

    def add(self, transaction: Any, carrier: str, delay: int) -> None:
        """Add a flight, in the store's open transaction."""
        ...

    def totals(self) -> Totals:
        """Return the committed totals."""
        ...


class Sqlite:
    """A SQLite database."""

    def __init__(self, path: str) -> None:
        self._path = path

    def open_store(self) -> CheckpointStore[sqlite3.Connection]:
        """Return a store for the consumer's checkpoints in the database."""
        return SqliteCheckpointStore(self._path, CONSUMER)

    def create(self) -> None:
        """Create the empty table of totals, if it does not exist."""
        with closing(sqlite3.connect(self._path)) as connection:
            connection.execute(CREATE)

    def add(self, transaction: sqlite3.Connection, carrier: str, delay: int) -> None:
        """Add a flight, in the store's open transaction."""
        transaction.execute(ADD.format("?"), (carrier, delay))

    def totals(self) -> Totals:
        """Return the committed totals."""
        with closing(sqlite3.connect(self._path)) as connection:
            return {carrier: (flights, delay) for carrier, flights, delay in connection.execute(READ)}


class Postgres:
    """A PostgreSQL database; needs the extra ``tidelog[postgres]``."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo

    def open_store(self) -> CheckpointStore[Any]:
        """Return a store for the consumer's checkpoints in the database."""
        from tidelog.gazette.stores.postgres import PostgresCheckpointStore

        return PostgresCheckpointStore(self._conninfo, CONSUMER)

    def create(self) -> None:
        """Create the empty table of totals, if it does not exist."""
        self._run(lambda connection: connection.execute(CREATE))

    def add(self, transaction: Any, carrier: str, delay: int) -> None:
        """Add a flight, in the store's open transaction."""
        transaction.execute(ADD.format("%s"), (carrier, delay))

    def totals(self) -> Totals:
        """Return the committed totals."""
        rows = self._run(lambda connection: connection.execute(READ).fetchall())
        return {carrier: (flights, delay) for carrier, flights, delay in rows}

    def _run(self, call: Callable[[Any], Any]) -> Any:
        import psycopg

        with psycopg.connect(self._conninfo) as connection:
            return call(connection)


def database_of(text: str) -> Database:
    """Return the database of ``sqlite:PATH`` or ``postgres:CONNINFO``."""
    kind, _, place = text.partition(":")
    return Postgres(place) if kind == "postgres" else Sqlite(place)
