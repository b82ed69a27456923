"""Opens a log store in an engine, in two steps: a view that follows the log, and the claim that makes it a store.

The view has nothing that the log does not have. So one that is missing, damaged, or of another log is made again.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from tidelog_server.core.errors import DataLossError
from tidelog_server.core.errors.storage import StorageUnreadableError
from tidelog_server.recordlog.engine import LogSetupError, PositionGoneError
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.recordlog.records import CLAIM_BYTES, Mark, Position
from tidelog_server.recordlog.rules import START, Reader
from tidelog_server.runtime.process_limits import check_process_limits
from tidelog_server.storage.engine.references import RecordCache, References
from tidelog_server.storage.engine.snapshot_load import load_newest, read_end
from tidelog_server.storage.engine.snapshot_plan import LIMITS, SnapshotLimits
from tidelog_server.storage.engine.snapshots import Newest, Snapshots
from tidelog_server.storage.engine.store import EngineLogStore
from tidelog_server.storage.engine.view import View
from tidelog_server.storage.engine.view_folder import ViewFolder, lock_view_folder
from tidelog_server.storage.engine.writer import EngineWriter
from tidelog_server.storage.format.folder_errors import folder_error
from tidelog_server.storage.log_state import LogState
from tidelog_server.storage.recovery.checks import check_ends
from tidelog_server.storage.recovery.view import cut_torn
from tidelog_server.storage.recovery.wal_scan import torn_wals
from tidelog_server.storage.rocksdb.engine import Engine, check_options_file, close_engine, engine_errors, open_engine
from tidelog_server.storage.rocksdb.index import StoreIndex, load_index
from tidelog_server.storage.rocksdb.reader import EntryReader, Resolve
from tidelog_server.storage.rocksdb.rows import OldPlaces, old_places

DEFAULT_CACHE_BYTES: Final = 64 << 20
_log = structlog.get_logger("tidelog_server.storage")


class LogName(NamedTuple):
    """Which log it is.

    Attributes:
        kind: Kind of the engine, such as ``kafka``.
        name: Name of the log in it, such as that of a topic.
        origin: Id that the engine gives what has this name now, such as that of a topic; empty if it gives none.
    """

    kind: str
    name: str
    origin: bytes = b""


def open_engine_store(
    path: Path,
    log: RecordLog,
    name: LogName,
    *,
    term: int | None = None,
    cache_bytes: int = DEFAULT_CACHE_BYTES,
    limits: SnapshotLimits = LIMITS,
) -> EngineLogStore:
    """Claim a log and open its store, with a view in the folder ``path``. Blocks while records are applied.

    Args:
        path: Folder of the view; made if it is missing.
        log: The log; closed with the store, or if this raises.
        name: Which log it is.
        term: Term of the claim; None for the next one of the log.
        cache_bytes: Maximum bytes of records in memory.
        limits: When snapshots are made.

    Raises:
        ProcessLimitError: This process has too few file descriptors or too little address space for a store.
        DataFolderError: The folder cannot be used; it is in use, or is no folder of a view.
        DataLossError: The log contradicts itself, or what the view has seen of it. The view was not changed.
        FencedError: The log has a claim of the same or a greater term.
        EngineUnavailableError, TenureEndedError: The engine does not answer, or not for certain.
        LogSetupError: The log has a part of a data folder only, whose import has not ended.
    """
    return prepare_engine_store(path, log, name, cache_bytes=cache_bytes, limits=limits).claim(term)


def prepare_engine_store(
    path: Path,
    log: RecordLog,
    name: LogName,
    *,
    cache_bytes: int = DEFAULT_CACHE_BYTES,
    limits: SnapshotLimits = LIMITS,
) -> "PreparedStore":
    """Open the view in the folder ``path``, which may lack any part of the log. Arguments as ``open_engine_store``.

    Raises:
        ProcessLimitError, DataFolderError, DataLossError, EngineUnavailableError: As ``open_engine_store``.
    """
    prepared = _locked(path, log, name, cache_bytes, limits)
    prepared.open()
    return prepared


def _locked(path: Path, log: RecordLog, name: LogName, cache_bytes: int, limits: SnapshotLimits) -> "PreparedStore":
    try:
        check_process_limits()
        folder = lock_view_folder(path, name.name)
    except BaseException:
        log.close()
        raise
    return PreparedStore(folder, log, name, cache_bytes=cache_bytes, limits=limits)


class LogCopy(NamedTuple):
    """What a log has up to a position, as a process sees it that does not own it.

    Attributes:
        engine: The database of the view.
        rows: Its index family, decoded.
        columns_of: Returns the columns of values of the view, see ``References``.
        end: Position of the first record that was not applied.
    """

    engine: Engine
    rows: StoreIndex
    columns_of: Resolve
    end: Position


def read_log(
    path: Path, log: RecordLog, name: LogName, *, may_be_copied: bool = False
) -> AbstractContextManager[LogCopy]:
    """Return what a log has up to its end, by a view in the folder ``path``. The log is not claimed; it is closed.

    With ``may_be_copied`` the records of a log are read also where it was not made: its end may be missing.

    Raises:
        ProcessLimitError, DataFolderError, EngineUnavailableError: See ``open_engine_store``.
        DataLossError: The log contradicts itself, or what the view has seen of it.
        LogSetupError: The log has a part of a data folder only, whose import has not ended.
    """
    prepared = _locked(path, log, name, DEFAULT_CACHE_BYTES, LIMITS)
    prepared.open(may_be_copied=may_be_copied)
    return prepared.reading()


class PreparedStore:
    """The view of a log, until a claim makes it the store of the log's owner. One thread at a time."""

    def __init__(
        self, folder: ViewFolder, log: RecordLog, name: LogName, *, cache_bytes: int, limits: SnapshotLimits
    ) -> None:
        """Take ownership of everything open; a failure of a method closes it."""
        self._name = name
        self._folder = folder
        self._log = log
        self._cache_bytes = cache_bytes
        self._limits = limits
        self._view: View | None = None
        self._reader = Reader(START)
        # Position of the first record that the reader has not taken: the view may have less, by a group that has begun.
        self._next: Position = 0
        self._end_at_open: Position = 0
        # Position behind what the last view had, when it was closed.
        self._applied_until: Position = 0
        self._views_rebuilt = 0

    def open(self, *, may_be_copied: bool = False) -> None:
        """Open the view; see ``prepare_engine_store`` and ``read_log``."""
        with self._closed_if_it_fails():
            view = self._existing_view() or self._new_view()
            if not may_be_copied:
                self._check_origin(view)
            self._begin_with(view)
            self._end_at_open = self._log.bounds().end

    def incarnation(self) -> bytes | None:
        """Return the identity of the log; None if it has no record. Raises DataLossError, EngineUnavailableError."""
        first = self._log.first()
        return None if first is None else first.incarnation

    @property
    def term(self) -> int:
        """The term of the last claim that was read of the log; 0 before the first."""
        return max(0, self._reader.term)

    @property
    def has_caught_up(self) -> bool:
        """Whether the view has what the log had when the view was opened."""
        return self._next >= self._end_at_open

    def behind(self) -> int:
        """Return how many positions the log has now that were not read. Raises EngineUnavailableError."""
        end = self._log.bounds().end
        return self._log.engine.length(self._next, end)

    def follow(self, wait_s: float = 0.0) -> bool:
        """Apply what follows in the log, at most a few megabytes; return False if nothing comes in ``wait_s`` seconds.

        Raises:
            EngineUnavailableError: The engine does not answer; try again.
            PositionGoneError: The log was trimmed beyond the view: close it, and open it again.
            DataLossError, DataFolderError: As ``prepare_engine_store``; close it.
        """
        begin = self._next
        taken, self._next = self._log.follow(self._reader, begin, wait_s)
        with self._closed_if_it_fails():
            assert self._view is not None
            self._view.catch_up(taken)
        if self._next == begin:
            self._log.engine.rest()
        return self._next != begin

    def claim(self, term: int | None) -> EngineLogStore:
        """Claim the log in ``term``, None for the next one of the log, and return its store; once.

        Raises:
            DataLossError, FencedError, EngineUnavailableError, TenureEndedError, DataFolderError, LogSetupError: As
                ``open_engine_store``. Everything is closed.
        """
        with self._closed_if_it_fails():
            view = self._applied(
                lambda view: self._log.claim(
                    self._reader, self._next, term, view.catch_up, lambda: self._check_import(view)
                )
            )
            mark = self._reader.mark
            self._check_import(view)
            loaded = self._loaded(view, mark) or self._rebuilt(mark)
            return self._assemble(*loaded, self._reader)

    @contextmanager
    def reading(self) -> Iterator[LogCopy]:
        """Yield what the log has up to its end at the opening, without a claim; close everything afterwards.

        Raises:
            EngineUnavailableError, DataLossError, DataFolderError, LogSetupError: See ``read_log``.
        """
        with self._closed_if_it_fails():
            view = self._applied(
                lambda view: self._log.replay(self._reader, self._next, self._end_at_open, view.catch_up)
            )
            self._check_import(view)
            if not view.state.incarnation:
                raise DataLossError(f"log '{self._name.name}' has no first record: it was never created")
            _, index, _ = _load(view, view.state.mark)
            references = References(self._log.records, RecordCache(self._cache_bytes))
            yield LogCopy(view.engine, index, references.columns_of, view.next)
        self.close()

    def close(self) -> None:
        """Close the view, the log and the folder, unless the log was claimed: then the store has them. Idempotent."""
        self._close_view()
        self._log.close()
        self._folder.close()

    @contextmanager
    def _closed_if_it_fails(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.close()
            if isinstance(error, StorageUnreadableError):
                raise folder_error(self._folder.path, OSError(error.errno, error.values["cause"])) from error
            if isinstance(error, OSError):
                raise folder_error(self._folder.path, error) from error
            raise

    def _begin_with(self, view: View) -> None:
        self._reader, self._next = Reader(view.state), view.next

    def _applied(self, apply: Callable[[View], object]) -> View:
        """Call ``apply`` with the view, or with another one if the log was trimmed meanwhile; return it."""
        while True:
            assert self._view is not None
            try:
                apply(self._view)
            except PositionGoneError as error:
                self._reject(str(error))
                self._begin_with(self._new_view())
            else:
                return self._view

    def _existing_view(self) -> View | None:
        """Open the view; None if it is missing or cannot be used.

        Raises:
            DataLossError: The view is of this log, and the log is not what the view has seen.
        """
        if not self._folder.is_usable:
            self._reject(self._folder.problem)
            return None
        first = self._log.first()
        try:
            view = self._open(is_new=False)
        except DataLossError as error:
            self._reject(str(error))
            return None
        if not view.state.incarnation:
            # Nothing was applied to it: the engine did not answer, perhaps, as a snapshot was loaded. It does not say
            # where the log begins.
            self._reject("")
            return None
        if first is None or view.state.incarnation != first.incarnation:
            raise DataLossError(
                f"log '{self._name.name}' is another one than the view in {self._folder.path} has seen: it was deleted "
                "and made again, or restored from a copy. If that is intended, delete the folder",
                log=self._name.name,
            )
        begin = self._log.bounds().begin
        if view.next < begin:
            self._reject(f"it ends at position {view.next}, and the log begins at position {begin}")
            return None
        return view

    def _check_origin(self, view: View) -> None:
        """Check that the log is where it was made: a copy has other positions, and may lack records.

        Raises:
            DataLossError: It is elsewhere. Nothing was changed.
        """
        if not view.state.incarnation:
            check_origin(self._log, self._name)
        elif view.origin != self._name.origin:
            raise _is_copy(self._name, view.origin)

    def _check_import(self, view: View) -> None:
        if view.is_unfinished_import():
            raise LogSetupError(
                f"log '{self._name.name}' has a part of a data folder only, because its import has not ended: repeat "
                "`tidelog engine import`"
            )

    def _reject(self, problem: str) -> None:
        """Close the view, so that it is made again; ``problem`` is empty for a new folder."""
        self._close_view()
        if problem:
            self._views_rebuilt += 1
            _log.warning("view_rebuilt", folder=str(self._folder.path), log=self._name.name, reason=problem)

    def _new_view(self) -> View:
        """Make an empty view, and load the newest snapshot into it if there is one.

        Raises:
            DataLossError: The log is damaged, or its begin was deleted with the snapshot that it names.
        """
        gone = ""
        while True:
            self._folder.make_new()
            view = self._open(is_new=True)
            try:
                if (incarnation := self.incarnation()) is not None:
                    load_newest(self._log, view, incarnation)
            except PositionGoneError as error:
                # Its owner has trimmed the log meanwhile, and then a record names a newer one.
                if str(error) == gone:
                    raise DataLossError(
                        f"the newest snapshot that log '{self._name.name}' names is not there: {error}",
                        log=self._name.name,
                    ) from error
                gone = str(error)
                self._close_view()
            else:
                return view

    def _open(self, *, is_new: bool) -> View:
        path = self._folder.database_path
        if not is_new:
            # After a power failure: RocksDB's reader may never end at what was not synced.
            cut_torn(path, torn_wals(path))
        with engine_errors("opening the view"):
            engine = open_engine(path, read_only=False, create=is_new)
        try:
            check_options_file(path)
            self._view = View(engine, self._log.bounds().begin)
        except BaseException:
            close_engine(engine)
            raise
        return self._view

    def _loaded(self, view: View, mark: Mark) -> tuple[View, StoreIndex, OldPlaces] | None:
        """Return what the store loads; None if the view is damaged."""
        try:
            return _load(view, mark)
        except DataLossError as error:
            self._reject(str(error))
            return None

    def _rebuilt(self, mark: Mark) -> tuple[View, StoreIndex, OldPlaces]:
        """Make the view again, up to where it was applied: the log is claimed."""
        assert self._view is None
        end = self._applied_until
        view = self._new_view()
        self._log.replay(Reader(view.state), view.next, end, view.catch_up)
        return _load(view, mark)

    def _assemble(self, view: View, index: StoreIndex, old: OldPlaces, read: Reader) -> EngineLogStore:
        state = LogState(index.store, index.tails, index.fencing_tokens)
        writer = EngineWriter(
            self._name.name, view, self._log, dict(state.tails), mark=read.mark, snapshot=read.snapshot
        )
        references = References(self._log.records, RecordCache(self._cache_bytes), writer.check_owned)
        snapshots = Snapshots(writer, self._log, references, self._newest(read.snapshot), self._limits)
        reader = EntryReader(view.engine, writer.tails, references.columns_of)
        return EngineLogStore(
            self._name.kind, self._folder.folder, view.engine, state, writer=writer, reader=reader,
            snapshots=snapshots, log=self._log, old=old, views_rebuilt=self._views_rebuilt,
        )  # fmt: skip

    def _newest(self, named: Position | None) -> Newest:
        """Return what the newest snapshot that the log names says of the log."""
        if named is None:
            return Newest.none(self._log.bounds().begin)
        try:
            return Newest.of(named, read_end(self._log, named))
        except PositionGoneError as error:
            raise DataLossError(
                f"the newest snapshot that log '{self._name.name}' names is not there: {error}", log=self._name.name
            ) from error

    def _close_view(self) -> None:
        if self._view is not None:
            self._applied_until = self._view.next
            close_engine(self._view.engine)
            self._view = None


def check_origin(log: RecordLog, name: LogName) -> None:
    """Check by its first record that a log is where it was made; a log that has no such record passes.

    Raises:
        DataLossError: It is elsewhere.
    """
    first = log.first()
    if first is None or first.term:
        # It has no first record, or it is trimmed: what reads the log next says which.
        return
    if (recorded := first.payload[CLAIM_BYTES:]) != name.origin:
        raise _is_copy(name, recorded)


def _is_copy(name: LogName, recorded: bytes) -> DataLossError:
    return DataLossError(
        f"log '{name.name}' was made in {name.kind} under the id {_id_of(recorded)}, and what has this name now has "
        f"the id {_id_of(name.origin)}: it was deleted, and its records were copied back. Nothing was changed. "
        "Positions of a copy are not those of the log, and its end may be missing: `tidelog engine import` a backup "
        "into a new log, or what `tidelog engine export --copied` finds in this one",
        log=name.name,
    )


def _id_of(origin: bytes) -> str:
    """Return an id as Kafka shows those of topics."""
    return urlsafe_b64encode(origin).decode().rstrip("=") or "none"


def _load(view: View, mark: Mark) -> tuple[View, StoreIndex, OldPlaces]:
    """Return what the store loads of a view.

    Raises:
        DataLossError: A row is damaged, or the entries are not those that the log has up to here.
    """
    index = load_index(view.engine, sequence=mark.sequence)
    state = LogState(index.store, index.tails)
    head = state.head
    if state.accounted_batches != head.sequence:
        raise DataLossError(f"its vchannels have {state.accounted_batches} entries of {head.sequence}")
    if head.sequence != mark.sequence or (head.sequence and head.chain_hash != mark.chain_hash):
        raise DataLossError(f"its last entry is {head.sequence}, and that of the log is {mark.sequence}")
    if index.is_as_closed:
        # Entries are counted by the tails, and were not looked at.
        check_ends(view.engine, index.tails)
    return view, index, old_places(view.engine)
