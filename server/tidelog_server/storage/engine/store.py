"""The log store in an engine: any process may serve it, one at a time; the local database may be deleted."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidelog_server.core.errors import StorageFailedError
from tidelog_server.core.errors.cluster import LogFailure, OwnershipLostError
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.runtime.engine_figures import Figure
from tidelog_server.storage.engine.operations import RowBatch
from tidelog_server.storage.engine.snapshots import Snapshots
from tidelog_server.storage.engine.writer import EngineWriter
from tidelog_server.storage.format.data_folder import DataFolder
from tidelog_server.storage.log_state import LogState
from tidelog_server.storage.log_store import LogFigures, WriteTraits
from tidelog_server.storage.rocksdb.engine import Engine, close_engine
from tidelog_server.storage.rocksdb.reader import EntryReader
from tidelog_server.storage.rocksdb.row_store import RowStore
from tidelog_server.storage.rocksdb.rows import OldPlaces

GROUPS_AHEAD: Final = 5
"""Groups in flight: an engine takes milliseconds to confirm one, and can confirm several at a time."""


class EngineLogStore(RowStore):
    """Entries in a log of an engine, and a view of it. Implements ``LogStore``; made by ``open_engine_store``.

    Readers see what is confirmed. What was written and not synced may be lost: another process may take the log over.
    ``snapshot`` is as ``shorten``, whether it is due or not.
    """

    def __init__(
        self,
        kind: str,
        folder: DataFolder,
        engine: Engine,
        state: LogState,
        *,
        writer: EngineWriter,
        reader: EntryReader,
        snapshots: Snapshots,
        log: RecordLog,
        old: OldPlaces,
        views_rebuilt: int,
    ) -> None:
        """Take ownership of everything open: the locked folder, the view, its writer, snapshots and the log.

        ``views_rebuilt`` is the number of views that could not be used.
        """
        super().__init__(engine, state, writer=writer, reader=reader, old=old)
        self._engine_writer = writer
        self._views_rebuilt = views_rebuilt
        self._kind = kind
        self._folder = folder
        self._snapshots = snapshots
        self.unconfirmed_s, self.sync_soon = writer.unconfirmed_s, writer.sync_soon
        self.shorten, self.snapshot = snapshots.if_due, snapshots.make
        self._log = log
        self._is_given_up = False

    @property
    def wal_name(self) -> str:
        """The kind of the engine, such as ``kafka``."""
        return self._kind

    @property
    def folder(self) -> Path:
        """The folder of the view."""
        return self._folder.path

    @property
    def write_traits(self) -> WriteTraits:
        return WriteTraits(GROUPS_AHEAD, always_syncs=True, gives_up_syncs=True)

    def metrics(self) -> dict[Figure, float]:
        return {**super().metrics(), **self._snapshots.figures()}

    def log_figures(self) -> LogFigures | None:
        writer, log = self._engine_writer, self._log
        # Ordering: first, because the other one grows meanwhile.
        confirmed_bytes = writer.confirmed_bytes
        appended_bytes = writer.appended_bytes
        return LogFigures(
            writer.term, log.engine.length(log.begin, writer.end), appended_bytes, appended_bytes - confirmed_bytes,
            log.foreign, log.fenced, self._views_rebuilt,
        )  # fmt: skip

    def give_up(self, error: LogFailure) -> None:
        self._is_given_up = True
        self._engine_writer.fail_by(error)

    def report_confirmations(self, report: Callable[[float], None]) -> None:
        self._engine_writer.on_confirmed = report

    def _close(self) -> None:
        try:
            if self._writer.works:
                self._writer.sync()
                # For the next start, as a local store does. Into the view only: the log has the entries.
                tails = self._tails_batch(self._state.stale_tails())
                assert isinstance(tails, RowBatch)
                self._engine_writer.view.load(tails.payload())
        except (StorageFailedError, OwnershipLostError):
            # What was in flight has its error already.
            if not self._is_given_up:
                raise
        finally:
            self._writer.close()
            self._snapshots.close()
            self._log.close()
            close_engine(self._engine)
            self._folder.close()
