"""The part of the database that contains the rows of the embedded metadata store."""

from collections.abc import Sequence

from tidelog_server.storage.rocksdb.engine import Engine, scan
from tidelog_server.storage.rocksdb.writer import RowWriter


class RocksdbMetadataRows:
    """Ordered rows of bytes with durable atomic changes; implements ``metadata.embedded.MetadataRows``.

    Threads: ``apply`` is a job of the committer, ``scan`` may be called by any thread.
    """

    def __init__(self, engine: Engine, writer: RowWriter | None = None) -> None:
        """``writer`` changes the rows; None if they are only read."""
        self._engine = engine
        self._writer = writer

    def scan(self) -> list[tuple[bytes, bytes]]:
        """Return all rows in key order.

        Raises:
            DataLossError: A block is damaged; an incomplete list is never returned.
        """
        if self._writer is not None:
            self._writer.settle()
        return list(scan(self._engine.metadata, b"", None))

    def apply(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes], *, syncs: bool = True) -> None:
        """Put and delete rows atomically; durable at once if ``syncs``, else with the next sync of the store.

        Raises:
            StorageFailedError: The outcome is unknown until a restart.
        """
        writer = self._writer
        assert writer is not None, "a store that was opened for reading must not be written to"
        writer.check_works()
        metadata = writer.handles["metadata"]
        batch = writer.batch()
        for key, value in puts:
            batch.put(key, value, metadata)
        for key in deletes:
            batch.delete(key, metadata)
        if syncs:
            writer.commit(batch)
        else:
            writer.write(batch)
