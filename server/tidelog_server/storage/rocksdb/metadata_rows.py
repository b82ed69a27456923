"""The part of the database that contains the rows of the embedded metadata store."""

from collections.abc import Callable, Sequence

from rocksdict import WriteBatch

from tidelog_server.storage.rocksdb.engine import Engine, scan


class RocksdbMetadataRows:
    """Ordered rows of bytes with durable atomic changes; implements ``metadata.embedded.MetadataRows``.

    Threads: ``apply`` is a job of the committer, ``scan`` may be called by any thread.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        write: Callable[[WriteBatch], None],
        commit: Callable[[WriteBatch], None],
        check_works: Callable[[], None],
    ) -> None:
        """``write`` and ``commit`` (which syncs) stop the store on failure; ``check_works`` refuses a stopped store."""
        self._engine = engine
        self._write = write
        self._commit = commit
        self._check_works = check_works

    def scan(self) -> list[tuple[bytes, bytes]]:
        """Return all rows in key order.

        Raises:
            DataLossError: A block is damaged; an incomplete list is never returned.
        """
        return list(scan(self._engine.metadata, b"", None))

    def apply(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes], *, syncs: bool = True) -> None:
        """Put and delete rows atomically; durable at once if ``syncs``, else with the next sync of the store.

        Raises:
            StorageFailedError: The outcome is unknown until a restart.
        """
        self._check_works()
        metadata = self._engine.handles["metadata"]
        batch = WriteBatch(raw_mode=True)
        for key, value in puts:
            batch.put(key, value, metadata)
        for key in deletes:
            batch.delete(key, metadata)
        if syncs:
            self._commit(batch)
        else:
            self._write(batch)
