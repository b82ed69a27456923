"""Writes a database that is the only copy of its log, and syncs it: the one place that does."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import structlog
from rocksdict import WriteBatch

from tidelog_server.core.entries import NewEntry
from tidelog_server.core.errors import Effect
from tidelog_server.storage.format.data_folder import DataFolder
from tidelog_server.storage.format.head_file import Head, HeadFile
from tidelog_server.storage.format.head_writer import HeadWriter
from tidelog_server.storage.log_store import StoreHead, WriteMark
from tidelog_server.storage.rocksdb.engine import Engine, error_text
from tidelog_server.storage.rocksdb.wal_size import WalSize
from tidelog_server.storage.rocksdb.writer import NO_TAILS, RowWriter, Tails

_log = structlog.get_logger("tidelog_server.storage")
# A sync covers everything, whatever its mark.
_MARK: Final = 0


class LocalWriter(RowWriter):
    """Implements ``RowWriter``: a batch is in the database once it was written, and readers see what the writer does.

    Attributes:
        head: The last entry written, as HEAD has it once a sync has covered it.
    """

    writes_at_once = True

    def __init__(self, folder: DataFolder, engine: Engine, file: HeadFile, head: Head) -> None:
        """``file`` has ``head``, the last entry of the database."""
        super().__init__(engine, engine.handles, partial(WriteBatch, raw_mode=True))
        self.head = head
        self._folder = folder
        self._head_writer = HeadWriter(file, head, on_failure=self.fail)
        self._wal_size = WalSize(folder.database_path)

    def write(
        self, batch: WriteBatch, tails: Tails = NO_TAILS, *, readers_first: bool = False, head: StoreHead | None = None
    ) -> WriteMark:
        """See ``RowWriter``."""
        with self._wal_size.writing:
            self._or_stop("writing to RocksDB", lambda: self._engine.db.write(batch))
        return _MARK

    def sync(self, mark: WriteMark | None = None) -> None:
        """See ``LogStore.sync``."""
        self.check_works(Effect.UNKNOWN)
        # Ordering: before the sync, because another thread may write while it runs, which it need not cover.
        head, engine_sequence = self.head, self._engine.db.latest_sequence_number()
        self._wal_size.before_sync()
        self._or_stop("syncing the WAL", lambda: self._engine.db.flush_wal(True))
        self._head_writer.note(head, engine_sequence)

    def note_head(self, entries: Sequence[NewEntry], head: StoreHead) -> None:
        """See ``RowWriter``."""
        last, before = entries[-1], self.head
        # HEAD and the state count the same entries: nothing else numbers any.
        assert head.sequence == before.sequence + len(entries)
        # Positional arguments, because this runs for each group.
        self.head = Head(
            before.generation, before.incarnation, before.open_count, head.sequence, head.chain_hash, last.last_tick,
            last.vchannel_id, last.base_tick, before.engine_sequence, False,
        )  # fmt: skip

    def raise_format(self, number: int, what: str) -> None:
        """See ``RowWriter``: of the data folder."""
        if number <= self._folder.format:
            return
        before = self._folder.format
        try:
            self._folder.raise_format(number)
        except OSError as error:
            self.fail(f"writing FORMAT: {error_text(error)}")
            self.check_works()
        _log.info("data_format_raised", before=before, format=number, reason=what)

    def close(self) -> None:
        """Record in HEAD whether everything was written, and write nothing more."""
        self._head_writer.close(is_clean=self._failure is None)
        self.fail("the store is closed")
