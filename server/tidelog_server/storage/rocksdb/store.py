"""The log store on RocksDB: one database per node, in a data folder opened only after the start-up gate."""

from collections.abc import Mapping
from pathlib import Path

from tidelog_server.storage.format.codec import TailRow
from tidelog_server.storage.format.data_folder import DataFolder
from tidelog_server.storage.format.head_file import Head
from tidelog_server.storage.log_state import LogState
from tidelog_server.storage.log_store import LogStore
from tidelog_server.storage.rocksdb.checkpoint import flush_families, make_checkpoint
from tidelog_server.storage.rocksdb.engine import Engine, close_engine
from tidelog_server.storage.rocksdb.local_writer import LocalWriter
from tidelog_server.storage.rocksdb.reader import EntryReader
from tidelog_server.storage.rocksdb.row_store import RowStore
from tidelog_server.storage.rocksdb.rows import OldPlaces


class RocksdbLogStore(RowStore, LogStore):
    """Entries in RocksDB only; made by ``open_rocksdb_log_store``."""

    def __init__(
        self, folder: DataFolder, engine: Engine, state: LogState, writer: LocalWriter, old: OldPlaces
    ) -> None:
        """Take ownership of everything open: the locked folder, the database, and its state and writer."""
        super().__init__(engine, state, writer=writer, reader=EntryReader(engine, state.tails), old=old)
        self._folder = folder
        self._local = writer

    @property
    def wal_name(self) -> str:
        """The kind of this store, ``rocksdb``."""
        return "rocksdb"

    @property
    def folder(self) -> Path:
        """The data folder."""
        return self._folder.path

    def flush(self) -> None:
        """Flush memory to disk, so that a checkpoint just after it is fast. Any thread; releases the GIL.

        Raises:
            CheckpointFailedError: The disk refused.
        """
        flush_families(self._engine)

    def checkpoint(self, name: str) -> tuple[Path, Head]:
        """Sync everything written and freeze it in ``checkpoints/<name>``; return that folder and its head.

        Like ``write``: nothing else may change the store meanwhile. Holds the GIL for some milliseconds after a
        ``flush``.

        Raises:
            CheckpointFailedError: It could not be made, and its remains were deleted. The store still works.
        """
        self.sync()
        head = self._local.head._replace(engine_sequence=self._engine.db.latest_sequence_number())
        return make_checkpoint(self._engine, self._folder, name, head), head

    def adopt_vchannels(self, trim_ticks: Mapping[int, int]) -> None:
        """Create new vchannels that are trimmed up to a tick, atomically and durably. For a restore."""
        tails = {
            vchannel_id: TailRow(trim_tick=trim_tick, last_tick=max(0, trim_tick - 1))
            for vchannel_id, trim_tick in trim_ticks.items()
        }
        assert not tails.keys() & self._state.tails.keys()
        self._writer.commit(self._tails_batch(tails), tails)
        self._state.tails.update(tails)

    def _close(self) -> None:
        try:
            if self._writer.works:
                # So that the next start finds the tails without the entries after their rows.
                self._writer.commit(self._tails_batch(self._state.stale_tails()))
        finally:
            self._writer.close()
            close_engine(self._engine)
            self._folder.close()
