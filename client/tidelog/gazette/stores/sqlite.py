"""Checkpoints in a SQLite database, with the application's state.

The fence is the epoch of the consumer's row: each acquisition increments it, and a transaction checks it while it holds
the database's write lock, which it takes first.
"""

import sqlite3
import threading
from contextlib import closing
from os import PathLike
from typing import Final

from tidelog.gazette.checkpoints import Checkpoint
from tidelog.gazette.stores.errors import ENDED_BY_HANDLER, NOT_OPEN, ConsumerFencedError, check_begin, check_name
from tidelog.sync.one_at_a_time import one_at_a_time
from tidelog.wire.durations import Duration, check_seconds

_CREATE: Final = (
    "CREATE TABLE IF NOT EXISTS tidelog_checkpoints"
    " (consumer TEXT PRIMARY KEY, epoch INTEGER NOT NULL, checkpoint BLOB NOT NULL) WITHOUT ROWID"
)
_ACQUIRE: Final = (
    "INSERT INTO tidelog_checkpoints VALUES (?, 1, x'')"
    " ON CONFLICT (consumer) DO UPDATE SET epoch = epoch + 1 RETURNING epoch, checkpoint"
)
_EPOCH: Final = "SELECT epoch FROM tidelog_checkpoints WHERE consumer = ?"
_COMMIT: Final = "UPDATE tidelog_checkpoints SET checkpoint = ? WHERE consumer = ? AND epoch = ?"
# The value of `PRAGMA synchronous` from which a commit survives a loss of power.
_FULL: Final = 2


class SqliteCheckpointStore:
    """A consumer's checkpoint in the table ``tidelog_checkpoints`` of a SQLite database, which is created if missing.

    The handler gets the ``sqlite3.Connection`` with an open transaction. The transaction holds the database's write
    lock from ``begin``, so another instance can acquire the consumer between transactions only. A commit is synced to
    the disk even if the database was configured to sync less.

    Args:
        path: Path of the database file.
        consumer: Name of the consumer, unique in the database.
        lock_timeout_s: Maximum wait for another connection's write lock; then ``sqlite3.OperationalError``.
    """

    def __init__(self, path: str | PathLike[str], consumer: str, *, lock_timeout_s: Duration = 5.0) -> None:
        check_name(consumer)
        self._path = path
        self._consumer = consumer
        self._lock_timeout_s = check_seconds("lock_timeout_s", lock_timeout_s)
        self._connection: sqlite3.Connection | None = None
        # Epoch of the acquisition; 0 if the store is not acquired.
        self._epoch = 0
        self._is_open = False
        # A call of the asynchronous store whose caller was cancelled continues on its thread.
        self._lock = threading.RLock()

    @one_at_a_time
    def acquire(self) -> Checkpoint:
        """Fence earlier instances and return the last checkpoint. See ``AsyncCheckpointStore.acquire``."""
        self._epoch = 0
        self.rollback()
        connection = self._connected()
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(_CREATE)
            with closing(connection.execute(_ACQUIRE, (self._consumer,))) as cursor:
                epoch, checkpoint = cursor.fetchone()
            connection.execute("COMMIT")
        except BaseException:
            _roll_back(connection)
            raise
        decoded = Checkpoint.decode(checkpoint) if checkpoint else Checkpoint()
        self._epoch = int(epoch)
        return decoded

    @one_at_a_time
    def begin(self) -> sqlite3.Connection:
        """Begin a transaction; return the connection. See ``AsyncCheckpointStore.begin``."""
        check_begin(is_acquired=self._epoch != 0, is_open=self._is_open)
        connection = self._connected()
        connection.execute("BEGIN IMMEDIATE")
        row = connection.execute(_EPOCH, (self._consumer,)).fetchone()
        if row != (self._epoch,):
            self._epoch = 0
            connection.execute("ROLLBACK")
            raise ConsumerFencedError(self._consumer)
        self._is_open = True
        return connection

    @one_at_a_time
    def commit(self, checkpoint: Checkpoint) -> None:
        """Commit the open transaction with ``checkpoint``. See ``AsyncCheckpointStore.commit``."""
        if not self._is_open:
            raise RuntimeError(NOT_OPEN)
        connection, epoch = self._connected(), self._epoch
        self._is_open, self._epoch = False, 0
        if not connection.in_transaction:
            raise RuntimeError(ENDED_BY_HANDLER)
        try:
            if connection.execute(_COMMIT, (checkpoint.encode(), self._consumer, epoch)).rowcount != 1:
                raise ConsumerFencedError(self._consumer)
            connection.execute("COMMIT")
        except BaseException:
            _roll_back(connection)
            raise
        self._epoch = epoch

    @one_at_a_time
    def rollback(self) -> None:
        """Discard the open transaction; does nothing if no transaction is open."""
        self._is_open = False
        if self._connection is not None:
            _roll_back(self._connection)

    @one_at_a_time
    def close(self) -> None:
        """Discard the open transaction and close the connection. Closing again does nothing."""
        self._is_open, self._epoch = False, 0
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            # Why other threads are allowed: the asynchronous store commits on threads, so that the sync of the disk
            # does not stop the event loop; calls never overlap.
            connection = sqlite3.connect(
                self._path, timeout=self._lock_timeout_s, isolation_level=None, check_same_thread=False
            )
            if connection.execute("PRAGMA synchronous").fetchone()[0] < _FULL:
                connection.execute("PRAGMA synchronous = FULL")
            self._connection = connection
        return self._connection


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
