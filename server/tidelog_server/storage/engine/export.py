"""A data folder with everything that a log in an engine has up to its end. The log is not claimed, and not changed."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from secrets import token_bytes
from typing import Final, NamedTuple

from tidelog_server.core.entries import HASH_BYTES
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.limits import MIB
from tidelog_server.recordlog.engine import EngineUnavailableError
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.storage.engine.open import LogCopy, LogName, read_log
from tidelog_server.storage.engine.values import Reference, unpack_value
from tidelog_server.storage.format.codec import pack_store
from tidelog_server.storage.format.keys import STORE_KEY, VIEW_KEYS
from tidelog_server.storage.log_state import LogState
from tidelog_server.storage.pieces import in_pieces
from tidelog_server.storage.recovery.open import make_store, open_rocksdb_log_store
from tidelog_server.storage.rocksdb.bulk import BulkWriter
from tidelog_server.storage.rocksdb.engine import BLOB_FAMILIES, FAMILIES, Engine, scan

# References are read in the order of the log, many at a time: a record has those of many vchannels.
_REFERENCES_AT_ONCE: Final = 200_000
_COLUMNS_AT_ONCE_BYTES: Final = 16 * MIB
_VIEW: Final = "view"


class Exported(NamedTuple):
    """What an export has made.

    Attributes:
        incarnation: Identity of the new store, hexadecimal: the log may continue without it.
        sequence: Number of its entries.
        last_tick: Greatest tick of an entry; 0 without one.
        end: Position of the first record of the log that is not part of it.
    """

    incarnation: str
    sequence: int
    last_tick: int
    end: int


def export_log(
    log: RecordLog,
    name: LogName,
    path: Path,
    check: str,
    meter: Callable[[int], None],
    *,
    may_be_copied: bool = False,
) -> Exported:
    """Fill the empty folder ``path`` with a data folder of a log.

    Args:
        log: The log; closed by this call.
        name: Which log it is.
        path: The folder.
        check: Program that checks the result, as a start does; see ``pass_gate``.
        meter: Called with the bytes of rows that were written.
        may_be_copied: Export the records of a log also where it was not made; see ``read_log``.

    Raises:
        LogSetupError, DataLossError, DataFolderError, EngineUnavailableError: See ``read_log``.
        OSError: The system refused.
    """
    incarnation = token_bytes(HASH_BYTES)
    with read_log(path / _VIEW, log, name, may_be_copied=may_be_copied) as copy:
        head = LogState(copy.rows.store, copy.rows.tails).head
        make_store(path, lambda engine: _Export(copy, log, engine, meter).run(incarnation))
        end = copy.end
    shutil.rmtree(path / _VIEW)
    # It passes the check of a start, and is as a server leaves a folder that stops.
    open_rocksdb_log_store(path, check=check).close()
    return Exported(incarnation.hex(), head.sequence, head.last_tick, end)


class _Export:
    """Copies the rows of a view into a database that has the columns, too."""

    def __init__(self, copy: LogCopy, log: RecordLog, engine: Engine, meter: Callable[[int], None]) -> None:
        self._copy = copy
        self._log = log
        self._writer = BulkWriter(engine)
        self._meter = meter

    def run(self, incarnation: bytes) -> None:
        """Copy all rows; the new store has the identity ``incarnation``."""
        store = pack_store(self._copy.rows.store._replace(incarnation=incarnation))
        for family in FAMILIES:
            rows = scan(self._copy.engine.family(family), b"", None)
            if family in BLOB_FAMILIES:
                self._copy_columns(family, rows)
            else:
                for key, value in rows:
                    if family != "index" or key not in VIEW_KEYS:
                        self._put(family, key, store if (family, key) == ("index", STORE_KEY) else value)
        self._writer.finish()

    def _copy_columns(self, family: str, rows: Iterator[tuple[bytes, bytes]]) -> None:
        while page := list(islice(rows, _REFERENCES_AT_ONCE)):
            referenced: list[tuple[Reference, bytes, bytes]] = []
            for key, value in page:
                columns = unpack_value(value)
                if columns is None:
                    raise DataLossError(f"a row of {family} in the view is damaged", key=key.hex())
                if isinstance(columns, Reference):
                    referenced.append((columns, key, value))
                else:
                    self._put(family, key, columns)
            referenced.sort()
            for group in in_pieces(referenced, lambda each: each[0].length, max_bytes=_COLUMNS_AT_ONCE_BYTES):
                self._put_referenced(family, group)

    def _put_referenced(self, family: str, referenced: Sequence[tuple[Reference, bytes, bytes]]) -> None:
        found = self._copy.columns_of([value for *_, value in referenced])
        for (reference, key, _), columns in zip(referenced, found, strict=True):
            if columns is None:
                raise self._missing(reference)
            self._put(family, key, columns)

    def _missing(self, reference: Reference) -> Exception:
        begin = self._log.bounds().begin
        if reference.position < begin:
            return EngineUnavailableError(
                f"the log was trimmed up to position {begin} while it was read: export it again"
            )
        return DataLossError(
            f"columns of {reference.length} bytes are missing in the log at position {reference.position}",
            position=reference.position,
        )

    def _put(self, family: str, key: bytes, value: bytes) -> None:
        self._writer.put(family, key, value)
        self._meter(len(key) + len(value))
