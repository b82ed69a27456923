"""Copies a data folder that no server uses into a new log in an engine.

A log that has a part of a folder must not be served. So the first group sets a mark, which the last one deletes: a
process that finds it in a view does not claim the log, and stops if it has. An import that did not end is repeated: the
first group of the next one deletes all rows.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tidelog_server.core.errors.cluster import OwnershipLostError
from tidelog_server.core.limits import MIB
from tidelog_server.recordlog.engine import LogSetupError
from tidelog_server.recordlog.record_log import RecordLog, Ticket
from tidelog_server.recordlog.records import EMPTY, Mark
from tidelog_server.recordlog.rules import START, Fence, FencedError, Group, Reader, Taken
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.storage.engine.open import LogName, check_origin
from tidelog_server.storage.engine.operations import FAMILY_NUMBERS, OperationKind, RowBatch, operations
from tidelog_server.storage.engine.writer import is_confirmed, mark_of
from tidelog_server.storage.format.cluster_file import read_identity
from tidelog_server.storage.format.codec import StoreRow, pack_store
from tidelog_server.storage.format.data_folder import DataFolder, lock_data_folder
from tidelog_server.storage.format.folder_errors import DataFolderError, folder_error
from tidelog_server.storage.format.keys import IMPORT_KEY, STORE_KEY
from tidelog_server.storage.format.seals import ROW_VERSION, sealed
from tidelog_server.storage.log_state import LogState
from tidelog_server.storage.log_store import StoreHead
from tidelog_server.storage.recovery.gate import pass_gate
from tidelog_server.storage.recovery.view import make_recovery_view
from tidelog_server.storage.rocksdb.engine import FAMILIES, Engine, close_engine, engine_errors, open_engine, scan
from tidelog_server.storage.rocksdb.index import load_index
from tidelog_server.storage.rocksdb.metadata_rows import RocksdbMetadataRows

# One record, unless a row is larger.
_GROUP_BYTES: Final = 768 << 10
_IN_FLIGHT_BYTES: Final = 16 * MIB
IMPORT_MARK: Final = sealed(IMPORT_KEY, bytes((ROW_VERSION,)))
"""Value of the row that a log has until its import has ended."""
_INDEX: Final = FAMILY_NUMBERS["index"]
# Keys are shorter, or do not begin so.
_BEHIND_ALL_KEYS: Final = b"\xff" * 256


class Imported(NamedTuple):
    """What an import has copied.

    Attributes:
        sequence: Number of entries of the store.
        last_tick: Greatest tick of an entry; 0 without one.
        rows: Number of rows of all families.
        end: Position behind the last record.
    """

    sequence: int
    last_tick: int
    rows: int
    end: int


class LogNotEmptyError(LogSetupError):
    """A log has more than a part of a folder, whose import has not ended."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"log '{name}' is not empty, so nothing was imported: create another one with `tidelog engine create`"
        )


class ImportedFolder:
    """A data folder that is imported, opened for reading."""

    def __init__(self, engine: Engine) -> None:
        """Read the index. Raises DataLossError."""
        self._engine = engine
        self._index = load_index(engine)
        self._head = LogState(self._index.store, self._index.tails).head

    @property
    def identity(self) -> str:
        """Identity of its store, hexadecimal."""
        return self._index.store.incarnation.hex()

    def metadata(self) -> RocksdbMetadataRows:
        """Return the rows of the embedded metadata store."""
        return RocksdbMetadataRows(self._engine)

    def copy_into(
        self,
        log: RecordLog,
        name: LogName,
        meter: Callable[[int], None],
        *,
        has_metadata: bool = True,
        replaces: bool = False,
    ) -> Imported:
        """Copy all rows into an empty log, or into one that has a part of a folder.

        Args:
            log: The log; closed by this call.
            name: Which log it is.
            meter: Called with the bytes that were confirmed.
            has_metadata: Whether the rows of the metadata are copied; those of a node of a cluster are in etcd.
            replaces: Whether the log may have anything else, which is deleted: no process uses it.

        Raises:
            LogNotEmptyError: The log has something else.
            OwnershipLostError: Another process has claimed the log. What was imported is useless.
            DataLossError, EngineUnavailableError, TenureEndedError: See ``open_engine_store``.
        """
        families = [family for family in FAMILIES if has_metadata or family != "metadata"]
        copy = _Copy(self._engine, families, log, name, meter, replaces=replaces)
        try:
            return copy.run(self._index.store, self._head)
        except FencedError as error:
            raise OwnershipLostError.by_claim(name.name, error.by_term) from error
        finally:
            log.close()


@contextmanager
def folder_to_import(path: Path, check: str) -> Iterator[ImportedFolder]:
    """Yield a data folder that a start would accept, under its lock. It is not changed.

    Args:
        path: The folder.
        check: Program that checks the folder, as a start does; see ``pass_gate``.

    Raises:
        DataFolderError: The folder cannot be used, is in use, is a view, or is that of a node of a cluster.
        DataLossError: A start on the folder would be refused.
        OSError: The system refused.
    """
    if not (path / "FORMAT").exists():
        raise DataFolderError(f"{path} is no data folder: it has no FORMAT")
    folder = lock_data_folder(path)
    try:
        if not folder.is_finished():
            raise DataFolderError(f"{path} has no store yet: start a server on it once, or correct the path")
        if (identity := read_identity(path)) is not None:
            raise DataFolderError(
                f"{path} is that of node '{identity.node_id}' of a cluster, whose channels are in etcd: only the "
                "folder of a single server can be imported"
            )
        pass_gate(folder, accept_head_loss=False, check=check)
        yield from _opened(folder)
    except OSError as error:
        raise folder_error(path, error) from error
    finally:
        folder.close()


def _opened(folder: DataFolder) -> Iterator[ImportedFolder]:
    # As recovery sees it: without what a crash has torn.
    with folder.fresh_view() as view_path:
        make_recovery_view(folder.database_path, view_path)
        with engine_errors("opening the database"):
            engine = open_engine(view_path, read_only=True)
        try:
            yield ImportedFolder(engine)
        finally:
            close_engine(engine)


class _Copy:
    """The steps of one copy."""

    def __init__(
        self,
        engine: Engine,
        families: Sequence[str],
        log: RecordLog,
        name: LogName,
        meter: Callable[[int], None],
        *,
        replaces: bool,
    ) -> None:
        self._engine = engine
        self._families = families
        self._replaces = replaces
        self._log = log
        self._name = name
        self._meter = meter
        # In order, with the bytes of each.
        self._sent: deque[tuple[Ticket, int]] = deque()
        self._in_flight_bytes = 0
        self._rows = 0
        self._incarnation = b""
        # Of the log as it was: the store after its last group, and whether it has rows.
        self._mark = EMPTY
        self._has_rows = False
        self._is_unfinished = False

    def run(self, store: StoreRow, head: StoreHead) -> Imported:
        """Claim the log, and append everything."""
        check_origin(self._log, self._name)
        first = self._log.first()
        if first is not None and first.term:
            # Its begin was trimmed.
            raise LogNotEmptyError(self._name.name)
        reader = Reader(START)
        self._log.claim(reader, self._log.bounds().begin, None, self._note, self._check_replaceable)
        self._mark = reader.mark
        batch = RowBatch()
        if self._has_rows:
            for family in FAMILIES:
                batch.delete_range(b"", _BEHIND_ALL_KEYS, FAMILY_NUMBERS[family])
        batch.put(IMPORT_KEY, IMPORT_MARK, _INDEX)
        batch = self._copy_rows(batch)
        # Ordering: in the last group, so that the log may be served once all rows are in it.
        batch.delete(IMPORT_KEY, _INDEX)
        batch.put(STORE_KEY, pack_store(store._replace(incarnation=self._incarnation)), _INDEX)
        self._append(batch, mark_of(head))
        self._wait_until(0)
        return Imported(head.sequence, head.last_tick, self._rows, self._log.bounds().end)

    def _copy_rows(self, batch: RowBatch) -> RowBatch:
        """Append all rows but that of the store; return the batch with the last of them."""
        size_bytes = 0
        for family in self._families:
            number = FAMILY_NUMBERS[family]
            for key, value in scan(self._engine.family(family), b"", None):
                if (family, key) == ("index", STORE_KEY):
                    continue
                batch.put(key, value, number)
                self._rows += 1
                size_bytes += len(key) + len(value)
                if size_bytes >= _GROUP_BYTES:
                    self._append(batch, EMPTY)
                    batch, size_bytes = RowBatch(), 0
        return batch

    def _note(self, taken: Sequence[Taken]) -> None:
        for each in taken:
            if isinstance(each, Fence):
                self._incarnation = each.incarnation
            elif isinstance(each, Group):
                self._note_group(each)
            else:
                self._has_rows = True

    def _note_group(self, group: Group) -> None:
        self._has_rows = True
        if self._replaces:
            return
        for kind, family, key, _, _ in operations(b"".join(group.payloads)):
            if (family, key) == (_INDEX, IMPORT_KEY):
                self._is_unfinished = kind == OperationKind.PUT
        self._check_replaceable()

    def _check_replaceable(self) -> None:
        """Raise LogNotEmptyError if the log has something that may not be deleted."""
        if self._has_rows and not self._is_unfinished and not self._replaces:
            raise LogNotEmptyError(self._name.name)

    def _append(self, batch: RowBatch, after: Mark) -> None:
        payload = batch.payload()
        self._wait_until(_IN_FLIGHT_BYTES - len(payload))
        self._sent.append((self._log.append(payload, self._mark, after, None), len(payload)))
        self._mark = after
        hit(Failpoint.IMPORT_STEP)
        self._in_flight_bytes += len(payload)

    def _wait_until(self, max_bytes: int) -> None:
        """Wait until at most ``max_bytes`` are in flight, as long as the engine is silent."""
        while self._sent and self._in_flight_bytes > max_bytes:
            ticket, size_bytes = self._sent[0]
            if is_confirmed(self._log, ticket):
                self._sent.popleft()
                self._in_flight_bytes -= size_bytes
                self._meter(size_bytes)
