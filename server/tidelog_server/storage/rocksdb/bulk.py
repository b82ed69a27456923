"""Writes many rows into a database that nothing else uses."""

from typing import Final

from rocksdict import WriteBatch

from tidelog_server.core.limits import MIB
from tidelog_server.storage.rocksdb.engine import Engine

_BATCH_BYTES: Final = 4 * MIB


class BulkWriter:
    """Puts rows, several in a write. They are durable after ``finish``. One thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._batch = WriteBatch(raw_mode=True)
        self._bytes = 0

    def put(self, family: str, key: bytes, value: bytes) -> None:
        """Set a row of a family.

        Raises:
            Exception: RocksDB's own; call this inside ``engine_errors``.
        """
        self._batch.put(key, value, self._engine.handles[family])
        self._bytes += len(key) + len(value)
        if self._bytes >= _BATCH_BYTES:
            self._write()

    def finish(self) -> None:
        """Write what is left, and sync everything. Raises as ``put``."""
        self._write()
        self._engine.db.flush_wal(True)

    def _write(self) -> None:
        self._engine.db.write(self._batch)
        self._batch, self._bytes = WriteBatch(raw_mode=True), 0
