"""Checkpoints in a PostgreSQL database, with the application's state.

The fence is the epoch of the consumer's row: each acquisition increments it, and a commit changes the row only if it
still has the epoch of its instance. An open transaction does not lock the row before it commits, so an instance that
hangs does not keep a later one from taking over.
"""

from typing import Final

from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from tidelog.gazette.checkpoints import Checkpoint
from tidelog.gazette.stores.errors import ENDED_BY_HANDLER, NOT_OPEN, ConsumerFencedError, check_begin, check_name

# Why not CREATE TABLE IF NOT EXISTS alone: it needs the right to create tables even if the table exists.
EXISTS: Final = "SELECT to_regclass('tidelog_checkpoints') IS NOT NULL"
# Two instances that start at one time would both create the table, and one would fail. The number is this table's own.
LOCK_CREATION: Final = "SELECT pg_advisory_xact_lock(7402001)"
CREATE: Final = (
    "CREATE TABLE IF NOT EXISTS tidelog_checkpoints"
    " (consumer text PRIMARY KEY, epoch bigint NOT NULL, checkpoint bytea NOT NULL)"
)
ACQUIRE: Final = (
    "INSERT INTO tidelog_checkpoints AS saved VALUES (%s, 1, '')"
    " ON CONFLICT (consumer) DO UPDATE SET epoch = saved.epoch + 1 RETURNING epoch, checkpoint"
)
COMMIT: Final = "UPDATE tidelog_checkpoints SET checkpoint = %s WHERE consumer = %s AND epoch = %s"
# Ordering: intents are appended after the commit, so the commit must survive a crash of the database.
BE_DURABLE: Final = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)


class AsyncPostgresCheckpointStore:
    """A consumer's checkpoint in the table ``tidelog_checkpoints`` of a PostgreSQL database, created if missing.

    The handler gets the ``psycopg.AsyncConnection`` with an open transaction. The isolation level is that of the
    connection; with ``serializable`` the database may refuse a commit with ``psycopg.errors.SerializationFailure``,
    and nothing was committed. A later instance waits in ``acquire`` only while an earlier one is committing.

    Args:
        conninfo: Connection string, such as ``host=/run/postgresql dbname=flights``.
        consumer: Name of the consumer, unique in the database.
    """

    def __init__(self, conninfo: str, consumer: str) -> None:
        check_name(consumer)
        self._conninfo = conninfo
        self._consumer = consumer
        self._connection: AsyncConnection[TupleRow] | None = None
        # Epoch of the acquisition; 0 if the store is not acquired.
        self._epoch = 0
        self._is_open = False

    async def acquire(self) -> Checkpoint:
        """Fence earlier instances and return the last checkpoint. See ``AsyncCheckpointStore.acquire``."""
        self._epoch = 0
        await self.rollback()
        connection = await self._connected()
        async with connection.transaction():
            row = await (await connection.execute(EXISTS)).fetchone()
            if row != (True,):
                await connection.execute(LOCK_CREATION)
                await connection.execute(CREATE)
            row = await (await connection.execute(ACQUIRE, (self._consumer,))).fetchone()
        assert row is not None, "the statement returns the row that it wrote"
        checkpoint = Checkpoint.decode(row[1]) if row[1] else Checkpoint()
        self._epoch = int(row[0])
        return checkpoint

    async def begin(self) -> AsyncConnection[TupleRow]:
        """Begin a transaction; return the connection. See ``AsyncCheckpointStore.begin``."""
        check_begin(is_acquired=self._epoch != 0, is_open=self._is_open)
        connection = await self._connected()
        await connection.execute("BEGIN")
        self._is_open = True
        return connection

    async def commit(self, checkpoint: Checkpoint) -> None:
        """Commit the open transaction with ``checkpoint``. See ``AsyncCheckpointStore.commit``."""
        if not self._is_open or self._connection is None:
            raise RuntimeError(NOT_OPEN)
        connection, epoch = self._connection, self._epoch
        # Until the commit is known to have succeeded.
        self._epoch = 0
        if connection.info.transaction_status is TransactionStatus.IDLE:
            self._is_open = False
            raise RuntimeError(ENDED_BY_HANDLER)
        try:
            cursor = await connection.execute(COMMIT, (checkpoint.encode(), self._consumer, epoch))
            if cursor.rowcount != 1:
                raise ConsumerFencedError(self._consumer)
            await connection.execute("COMMIT")
        except BaseException:
            await self.rollback()
            raise
        self._is_open, self._epoch = False, epoch

    async def rollback(self) -> None:
        """Discard the open transaction; does nothing if no transaction is open."""
        self._is_open = False
        connection = self._connection
        if connection is None or connection.closed:
            return
        if connection.info.transaction_status is TransactionStatus.ACTIVE:
            # A statement was cancelled: its connection cannot be used, and the database rolls back when it is closed.
            await connection.close()
        elif connection.info.transaction_status is not TransactionStatus.IDLE:
            await connection.execute("ROLLBACK")

    async def aclose(self) -> None:
        """Discard the open transaction and close the connection. Closing again does nothing."""
        self._is_open, self._epoch = False, 0
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _connected(self) -> AsyncConnection[TupleRow]:
        """Return the connection; a new one if the last one broke."""
        if self._connection is None or self._connection.closed:
            # Transactions begin explicitly, so that one that the handler ends is noticed.
            self._connection = await AsyncConnection.connect(self._conninfo, autocommit=True)
            await self._connection.execute(BE_DURABLE)
        return self._connection
