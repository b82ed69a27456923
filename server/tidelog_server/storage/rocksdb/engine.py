"""RocksDB as Tidelog uses it: options fixed in code, column families, scans that never end early silently.

Every option that durability or error detection depends on is set here explicitly, whatever RocksDB's default is, and
``check_options_file`` verifies the options that the engine actually uses.
"""

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    ChecksumType,
    ColumnFamily,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    ReadOptions,
)

from tidelog_server.core.errors import DataLossError
from tidelog_server.core.errors.storage import StorageUnreadableError
from tidelog_server.core.limits import KIB, MIB, STORE_TABLE_FILES

# Names on disk since format 1; never reuse.
FAMILIES: Final = ("log", "columns", "staged", "producers", "groups", "index", "metadata")
BLOB_FAMILIES: Final = ("columns", "staged")
"""Families whose values are columns, in blob files."""

# The server as a whole stays under 500 MB: at most 4 x 32 MiB of columns wait in memory for a flush, and 4 x 16 MiB of
# staged columns.
COLUMNS_BUFFER_BYTES: Final = 32 * MIB
COLUMNS_BUFFERS: Final = 4
_STAGED_BUFFER_BYTES: Final = 16 * MIB
_SMALL_BUFFER_BYTES: Final = 8 * MIB
SMALL_BUFFERS: Final = 4
_BLOCK_CACHE_BYTES: Final = 32 * MIB
# Columns from this size on are in blob files, where compactions do not copy them repeatedly.
_MIN_BLOB_BYTES: Final = 4 * KIB
# It limits what a restart replays, twice: in the gate's child and in the server.
_MAX_WAL_BYTES: Final = 128 * MIB
# Why so high: a delayed or stopped write would hold the GIL. ``stall_reason`` applies back-pressure before that.
_NEVER: Final = 1 << 20

_IO_ERROR: Final = "IO error: "
# The form of system errors raised by rocksdict itself, which writes a small file of its own next to the database.
_OF_RUST: Final = re.compile(r"\(os error (\d+)\)$")
_SYSTEM_ERRORS: Final = {
    os.strerror(number): number
    for number in (
        errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EACCES,
        errno.EPERM, errno.EROFS,
    )
}  # fmt: skip
"""Errors of the system that concern its resources, the disk or permissions, not the content of a file."""

# The options that durability depends on, as spelled in the OPTIONS file.
_REQUIRED_OPTIONS: Final = {
    "wal_recovery_mode": "kPointInTimeRecovery",
    "paranoid_checks": "true",
    "manual_wal_flush": "false",
    "recycle_log_file_num": "0",
    "wal_compression": "kNoCompression",
    "unordered_write": "false",
    "allow_mmap_writes": "false",
    "best_efforts_recovery": "false",
    "skip_checking_sst_file_sizes_on_db_open": "false",
}


@dataclass(frozen=True, slots=True)
class Engine:
    """An open database and its column families; ``handles`` name the families in a WriteBatch."""

    db: Rdict
    log: Rdict
    columns: Rdict
    staged: Rdict
    producers: Rdict
    groups: Rdict
    index: Rdict
    metadata: Rdict
    handles: dict[str, ColumnFamily]

    def family(self, name: str) -> Rdict:
        """Return the column family called ``name``."""
        family = getattr(self, name)
        assert isinstance(family, Rdict)
        return family


def open_engine(folder: Path, *, read_only: bool, create: bool = False) -> Engine:
    """Open the database in ``folder``. A read-only open modifies nothing.

    Raises:
        Exception: RocksDB's own; call this inside ``engine_errors``.
    """
    cache = Cache(_BLOCK_CACHE_BYTES)
    access = AccessType.read_only(error_if_log_file_exist=False) if read_only else AccessType.read_write()
    families = {name: _family_options(name, cache) for name in FAMILIES}
    db = Rdict(str(folder), _database_options(cache, create=create), families, access)
    opened = {name: db.get_column_family(name) for name in FAMILIES}
    for family in (db, *opened.values()):
        family.set_read_options(read_options())
    handles = {name: db.get_column_family_handle(name) for name in FAMILIES}
    return Engine(db, **opened, handles=handles)


def close_engine(engine: Engine) -> None:
    """Close the database. Unsynced writes may be lost.

    rocksdict flushes a family when it closes it, so that the next start has no WAL to replay. If the flush fails,
    because the disk failed or a compaction was cancelled, the family is closed anyway and the WAL still has everything.
    """
    engine.handles.clear()
    # Why each: a column family object keeps the database, its threads and its lock alive.
    for family in (*map(engine.family, FAMILIES), engine.db):
        try:
            family.close()
        except Exception as error:
            if not is_engine_error(error):
                raise


@contextmanager
def engine_errors(doing: str, **values: object) -> Iterator[None]:
    """Turn RocksDB's errors into domain errors; ``doing`` names the operation, ``values`` the place.

    Raises:
        StorageUnreadableError: The system refused, which does not prove damage.
        DataLossError: Data is damaged or missing.
    """
    try:
        yield
    except Exception as error:
        if not is_engine_error(error):
            raise
        problem = f"{doing} failed: {error_text(error)}"
        if (number := system_errno(error)) is not None:
            raise StorageUnreadableError(problem, number) from error
        raise DataLossError(problem, **values) from error


def is_engine_error(error: Exception) -> bool:
    """Return whether this is an error of RocksDB: rocksdict raises them as bare ``Exception``."""
    return type(error) is Exception


def is_damage(error: BaseException) -> bool:
    """Return whether RocksDB found a block or a file that differs from what was written."""
    return str(error).startswith("Corruption: ")


def system_errno(error: BaseException) -> int | None:
    """Return the number of the system's error that RocksDB met; None if it was not a system error.

    Source: RocksDB's ``IOError`` in io_posix: ENOSPC has its own text in front, others end with the system's text.
    ENOENT does not count as a system error: a file is missing.
    """
    text = str(error)
    if (own := _OF_RUST.search(text)) is not None:
        return int(own.group(1))
    if not text.startswith(_IO_ERROR):
        return None
    if text.startswith(_IO_ERROR + os.strerror(errno.ENOSPC)):
        return errno.ENOSPC
    return _SYSTEM_ERRORS.get(text.rpartition(": ")[2])


def error_text(error: BaseException) -> str:
    """Return the text of an engine's or the system's error for a client: one short line without folders."""
    return re.sub(r"\S*/", "", " ".join(str(error).split()))[:200]


def scan(family: Rdict, begin_key: bytes, end_key: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of ``[begin_key, end_key)`` in order, as of one moment; up to the end if ``end_key`` is None.

    Why not ``items()``: on a damaged block it ends early without an error.

    Raises:
        DataLossError, StorageUnreadableError: A block is damaged, or could not be read; the scan never ends silently.
    """
    with engine_errors("reading the store"):
        rows = family.iter(read_options())
        rows.seek(begin_key)
        while rows.valid():
            key = rows.key()
            if end_key is not None and end_key <= key:
                return
            yield key, rows.value()
            rows.next()
        rows.status()


def multi_get(family: Rdict, keys: Sequence[bytes]) -> list[bytes | None]:
    """Return the value of each key; None for a missing key. Releases the GIL during disk I/O.

    Raises:
        Exception: RocksDB's own; call this inside ``engine_errors``.
    """
    return cast("list[bytes | None]", family.get(list(keys))) if keys else []


def read_options() -> ReadOptions:
    """Return options for any read: every block is verified.

    Why not rely on the CRC of columns in their header, although RocksDB's own takes four fifths of the time of a read:
    the same option covers the blocks of tables, and a damaged block that is not verified crashes the process.

    Why no bounds: rocksdict puts a type byte before the bounds of an iterator even in raw mode, so they would be wrong.
    Compare keys while iterating.
    """
    options = ReadOptions()
    options.set_verify_checksums(True)
    return options


def check_options_file(folder: Path) -> None:
    """Check in its OPTIONS file that RocksDB runs with the options that durability depends on.

    Raises:
        DataLossError: An option differs.
    """
    # A crash may have left an unfinished one, ``OPTIONS-000277.dbtmp``.
    numbers = {path.name.removeprefix("OPTIONS-"): path for path in folder.glob("OPTIONS-*")}
    newest = max((int(number), path) for number, path in numbers.items() if number.isdigit())[1]
    settings = dict(re.findall(r"^\s*(\w+)=(.*?)\s*$", newest.read_text(), re.MULTILINE))
    for name, expected in _REQUIRED_OPTIONS.items():
        if settings.get(name) != expected:
            raise DataLossError(
                f"RocksDB runs with {name}={settings.get(name)}, expected {expected}: this build of rocksdict is not "
                "safe, install the pinned one",
                option=name,
            )


def _database_options(cache: Cache, *, create: bool) -> Options:
    options = _family_options("default", cache)
    options.create_if_missing(create)
    options.create_missing_column_families(create)
    options.set_error_if_exists(create)
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    options.set_paranoid_checks(True)
    options.set_recycle_log_file_num(0)
    options.set_unordered_write(False)
    options.set_allow_mmap_writes(False)
    options.set_allow_mmap_reads(False)
    options.set_max_total_wal_size(_MAX_WAL_BYTES)
    options.set_max_open_files(STORE_TABLE_FILES)
    options.set_max_background_jobs(3)
    # Spreads the write-back of flushes, so that a sync of the WAL does not queue behind 32 MiB of dirty pages.
    options.set_bytes_per_sync(MIB)
    options.set_max_manifest_file_size(16 * MIB)
    options.set_skip_stats_update_on_db_open(True)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_keep_log_file_num(4)
    options.set_max_log_file_size(4 * MIB)
    options.set_is_fd_close_on_exec(True)
    return options


def _family_options(name: str, cache: Cache) -> Options:
    options = Options(raw_mode=True)
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_cache_index_and_filter_blocks(True)
    table.set_checksum_type(ChecksumType.xxh3())
    table.set_format_version(5)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.none())
    options.set_level_zero_slowdown_writes_trigger(_NEVER)
    options.set_level_zero_stop_writes_trigger(_NEVER)
    options.set_soft_pending_compaction_bytes_limit(0)
    options.set_hard_pending_compaction_bytes_limit(0)
    if name in BLOB_FAMILIES:
        _set_blob_options(options)
        options.set_write_buffer_size(COLUMNS_BUFFER_BYTES if name == "columns" else _STAGED_BUFFER_BYTES)
    else:
        options.set_write_buffer_size(_SMALL_BUFFER_BYTES)
        options.set_max_write_buffer_number(SMALL_BUFFERS)
    return options


def _set_blob_options(options: Options) -> None:
    options.set_max_write_buffer_number(COLUMNS_BUFFERS)
    # A row is a key and a reference, so a table of 1 MiB refers to gigabytes of columns.
    options.set_target_file_size_base(MIB)
    options.set_enable_blob_files(True)
    options.set_min_blob_size(_MIN_BLOB_BYTES)
    options.set_blob_compression_type(DBCompressionType.none())
    # Off except during ``reclaim``: otherwise every compaction would copy the oldest columns, garbage or not.
    options.set_enable_blob_gc(False)
