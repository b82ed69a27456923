"""Checkpoint stores for the conformance suite: how a test opens each kind, and writes and reads state in it."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from tidelog import AsyncClient, Client
from tidelog.gazette.checkpoints import Checkpoint
from tidelog.gazette.stores import (
    AsyncCheckpointStore,
    AsyncSqliteCheckpointStore,
    AsyncTidelogCheckpointStore,
    CheckpointStore,
    SqliteCheckpointStore,
    TidelogCheckpointStore,
)
from tidelog.gazette.stores.postgres import AsyncPostgresCheckpointStore, PostgresCheckpointStore
from tidelog_testing.servers.postgres import PostgresProcess


class StoreKind(Protocol):
    """One kind of store, with an empty state."""

    def new(self, consumer: str = "flights") -> AsyncCheckpointStore[Any]:
        """Return a new instance of a consumer."""
        ...

    async def write(self, transaction: Any, key: str) -> None:
        """Add ``key`` to the state, as a handler does."""
        ...

    async def keys(self) -> list[str]:
        """Return the keys of the committed state, in order."""
        ...

    async def end(self, transaction: Any) -> None:
        """End a transaction, as a handler must not do."""
        ...


class OnThread:
    """A synchronous store under the asynchronous interface."""

    def __init__(self, store: CheckpointStore[Any]) -> None:
        self._store = store

    async def acquire(self) -> Checkpoint:
        return await asyncio.to_thread(self._store.acquire)

    async def begin(self) -> Any:
        return await asyncio.to_thread(self._store.begin)

    async def commit(self, checkpoint: Checkpoint) -> None:
        await asyncio.to_thread(self._store.commit, checkpoint)

    async def rollback(self) -> None:
        await asyncio.to_thread(self._store.rollback)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._store.close)


class SqliteStores:
    """Stores in one SQLite database."""

    def __init__(self, path: Path, *, is_synchronous: bool) -> None:
        self._path = path
        self._is_synchronous = is_synchronous
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE state (key TEXT PRIMARY KEY)")

    def new(self, consumer: str = "flights") -> AsyncCheckpointStore[Any]:
        if self._is_synchronous:
            return OnThread(SqliteCheckpointStore(self._path, consumer))
        return AsyncSqliteCheckpointStore(self._path, consumer)

    async def write(self, transaction: sqlite3.Connection, key: str) -> None:
        transaction.execute("INSERT INTO state VALUES (?)", (key,))

    async def keys(self) -> list[str]:
        with closing(sqlite3.connect(self._path)) as connection:
            return [key for (key,) in connection.execute("SELECT key FROM state ORDER BY key")]

    async def end(self, transaction: sqlite3.Connection) -> None:
        transaction.commit()


class PostgresStores:
    """Stores in one PostgreSQL database."""

    def __init__(self, server: PostgresProcess, *, is_synchronous: bool) -> None:
        self._server = server
        self._is_synchronous = is_synchronous
        server.execute("DROP TABLE IF EXISTS state")
        server.execute("DROP TABLE IF EXISTS tidelog_checkpoints")
        server.execute("CREATE TABLE state (key text PRIMARY KEY)")

    def new(self, consumer: str = "flights") -> AsyncCheckpointStore[Any]:
        if self._is_synchronous:
            return OnThread(PostgresCheckpointStore(self._server.conninfo, consumer))
        return AsyncPostgresCheckpointStore(self._server.conninfo, consumer)

    async def write(self, transaction: Any, key: str) -> None:
        await self._call(transaction.execute, "INSERT INTO state VALUES (%s)", (key,))

    async def keys(self) -> list[str]:
        return [key for (key,) in self._server.execute("SELECT key FROM state ORDER BY key")]

    async def end(self, transaction: Any) -> None:
        await self._call(transaction.commit)

    async def _call(self, call: Callable[..., Any], *values: object) -> None:
        if self._is_synchronous:
            await asyncio.to_thread(call, *values)
        else:
            await call(*values)


class TidelogStores:
    """Stores in one Tidelog server. The state is a channel, whose keys are payloads."""

    def __init__(self, client: AsyncClient, synchronous: Client | None, name: str) -> None:
        """Make stores with synchronous twins if there is a synchronous client; ``name`` is unique for each test."""
        self._client = client
        self._synchronous = synchronous
        self._name = name

    async def open(self) -> None:
        """Create the channel of the state."""
        await self._client.create_channel(f"{self._name}.state")

    def new(self, consumer: str = "flights") -> AsyncCheckpointStore[Any]:
        channel = f"{self._name}.checkpoints.{consumer.encode().hex()}"
        if self._synchronous is not None:
            return OnThread(TidelogCheckpointStore(self._synchronous, consumer, channel=channel))
        return AsyncTidelogCheckpointStore(self._client, consumer, channel=channel)

    async def write(self, transaction: Any, key: str) -> None:
        appended = transaction.append(f"{self._name}.state/0", key.encode())
        if self._synchronous is None:
            await appended

    async def keys(self) -> list[str]:
        return sorted([m.payload.decode() async for b in self._client.scan(f"{self._name}.state") for m in b])

    async def end(self, transaction: Any) -> None:
        if self._synchronous is not None:
            await asyncio.to_thread(transaction.commit)
        else:
            await transaction.commit()
