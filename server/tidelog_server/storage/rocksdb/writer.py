"""The database as it is changed: the one place that writes and syncs it, and stops it after the first failure."""

from collections.abc import Callable
from threading import Lock
from typing import Final, NamedTuple

import structlog
from rocksdict import WriteBatch

from tidelog_server.core.errors import Effect, StorageFailedError
from tidelog_server.core.limits import MIB
from tidelog_server.storage.format.data_folder import DataFolder
from tidelog_server.storage.format.head_file import Head
from tidelog_server.storage.format.head_writer import HeadWriter
from tidelog_server.storage.rocksdb.engine import Engine, error_text, is_damage, is_engine_error
from tidelog_server.storage.rocksdb.pressure import stall_reason
from tidelog_server.storage.rocksdb.wal_size import WalSize

_log = structlog.get_logger("tidelog_server.storage")
# Bytes after which RocksDB is asked whether it is busy: a buffer of columns is far larger, and asking takes as long as
# writing a small entry.
_ASK_EVERY_BYTES: Final = MIB


ROW_BYTES: Final = 512
"""What a small row counts as: RocksDB takes about as long for it as for this number of bytes."""


class _Failure(NamedTuple):
    """Why the store has stopped; ``is_damage`` if stored data was found damaged."""

    cause: str
    is_damage: bool

    def error(self, effect: Effect) -> StorageFailedError:
        return StorageFailedError(self.cause, effect=effect, is_damage=self.is_damage)


class StoreWriter:
    """Changes a database. Threads: as ``LogStore``.

    Attributes:
        head: The last entry written, as HEAD has it once a sync has covered it.
        unasked_bytes: Bytes written, about, since RocksDB was last asked whether it is busy.
    """

    def __init__(self, folder: DataFolder, engine: Engine, head_writer: HeadWriter, head: Head) -> None:
        self.head = head
        self.unasked_bytes = 0
        self._folder = folder
        self._engine = engine
        self._head_writer = head_writer
        self._wal_size = WalSize(folder.database_path)
        # The first one; nothing is written after it.
        self._failure: _Failure | None = None
        self._failure_lock = Lock()

    def write(self, batch: WriteBatch) -> None:
        """Write a batch, durable with the next sync. Raises StorageFailedError."""
        with self._wal_size.writing:
            self._or_stop("writing to RocksDB", lambda: self._engine.db.write(batch))

    def sync(self) -> None:
        """See ``LogStore.sync``."""
        self.check_works(Effect.UNKNOWN)
        # Ordering: before the sync, because another thread may write while it runs, which it need not cover.
        head, engine_sequence = self.head, self._engine.db.latest_sequence_number()
        self._wal_size.before_sync()
        self._or_stop("syncing the WAL", lambda: self._engine.db.flush_wal(True))
        self._head_writer.note(head, engine_sequence)

    def commit(self, batch: WriteBatch) -> None:
        """Write a batch durably. Raises StorageFailedError."""
        self.write(batch)
        self.sync()

    def raise_format(self, number: int, what: str) -> None:
        """Give the data folder a later format, if it has an earlier one, for rows of ``what``.

        Raises:
            StorageFailedError: It could not be written.
        """
        if number <= self._folder.format:
            return
        before = self._folder.format
        try:
            self._folder.raise_format(number)
        except OSError as error:
            self.fail(f"writing FORMAT: {error_text(error)}")
            self.check_works()
        _log.info("data_format_raised", before=before, format=number, reason=what)

    def stall_reason(self) -> str | None:
        """See ``LogStore.stall_reason``."""
        if self.unasked_bytes < _ASK_EVERY_BYTES:
            return None
        reason = stall_reason(self._engine)
        if reason is None:
            self.unasked_bytes = 0
        return reason

    def check_works(self, effect: Effect = Effect.NONE) -> None:
        """Raise StorageFailedError with ``effect`` if the store has stopped."""
        if self._failure is not None:
            raise self._failure.error(effect)

    def fail(self, cause: str, *, is_damage: bool = False) -> None:
        """Stop the store; only the first cause is stored. Any thread."""
        with self._failure_lock:
            if self._failure is None:
                self._failure = _Failure(cause, is_damage)

    def close(self) -> None:
        """Record in HEAD whether everything was written, and write nothing more."""
        self._head_writer.close(is_clean=self._failure is None)
        self.fail("the store is closed")

    @property
    def works(self) -> bool:
        """True until the first failure."""
        return self._failure is None

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
