"""The start-up gate: opens nothing for writing before a read-only check has shown that all data is there.

RocksDB alone cannot distinguish a damaged log from an ordinary crash: it opens in both cases with what is left, and
deletes the rest. So a child process opens a view of the database (see ``view``) read-only with a deadline and
compares what it finds with HEAD and with the sparse index. A refused start modifies nothing.
"""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from tidelog_cli.child_environment import python_path
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.limits import GIB
from tidelog_server.runtime.process_limits import check_process_limits
from tidelog_server.storage.format.data_folder import DataFolder, wal_files
from tidelog_server.storage.format.durable_files import sync_folder
from tidelog_server.storage.format.folder_errors import DataFolderError, NoResourcesError, StoreUncheckedError
from tidelog_server.storage.format.head_file import Head, read_head
from tidelog_server.storage.recovery.view import cut_torn
from tidelog_server.storage.recovery.wal_scan import TornWal

STORE_CHECK: Final = "tidelog_server.storage.recovery.child"
"""Program of the child that checks the store; programs of upper layers also check their records in it."""
_DEADLINE_S: Final = 30.0
_DEADLINE_PER_GIB_S: Final = 10.0
# At most 16 million headers are checked per GiB of tables; in total at most 1,024 for each of 100,000 vchannels.
_DEADLINE_PER_TABLE_GIB_S: Final = 60.0
_MAX_DEADLINE_OF_TABLES_S: Final = 300.0
_SHOWN_CHARACTERS: Final = 200
_SIGNS_OF_NO_MEMORY: Final = ("bad_alloc", "MemoryError", "Cannot allocate memory")


class GateVerdict(NamedTuple):
    """The result of a passed gate.

    Attributes:
        head: Content of HEAD; None if both slots were damaged and the operator accepted that.
        digest: Hash of the state recovered by the read-only open; opening for writing must result in the same.
        torn: WAL bytes that recovery must not see.
    """

    head: Head | None
    digest: str
    torn: Sequence[TornWal]


def pass_gate(
    folder: DataFolder, *, accept_head_loss: bool, check: str = STORE_CHECK, deadline_s: float | None = None
) -> GateVerdict:
    """Check a finished data folder before it is opened for writing, with the program (a module) ``check``.

    The deadline is ``deadline_s`` if given. Otherwise it is 30 s, plus 10 s per GiB of WAL, plus 60 s per GiB of tables
    (at most 300 s), which may contain headers of open chunks.

    Raises:
        DataLossError: Synced data is missing or damaged. Nothing was modified.
        StoreUncheckedError: The check crashed, or did not end in time. Nothing was modified.
        NoResourcesError: There was not enough memory for it. Nothing was modified.
        OSError: The folder could not be read, or the view of the database not made.
    """
    head = read_head(folder.head_path)
    if head is None and not accept_head_loss:
        raise DataLossError(
            "HEAD is missing or both of its slots are damaged, so it is unknown whether the log is complete: restore "
            "HEAD, or accept the loss by starting once with --storage.accept_head_loss",
            file="HEAD",
        )
    if not (folder.database_path / "CURRENT").is_file():
        raise DataLossError(
            f"the database is missing (no db/CURRENT), but {head.sequence if head else 'an unknown number of'} entries "
            "were written: restore the data folder from a backup",
            file="db/CURRENT",
        )
    if deadline_s is None:
        deadline_s = _deadline_s(folder.database_path)
    answer = _ask_child(folder, check, deadline_s)
    return GateVerdict(head, answer["digest"], [TornWal(*torn) for torn in answer["torn"]])


class CopyFacts(NamedTuple):
    """The state that an unused data folder recovers to.

    Attributes:
        incarnation: Identity of the store, hexadecimal.
        sequence, chain_hash, last_tick: Head of the store; the hash hexadecimal.
        has_torn_wal: True if its WAL ends torn.
    """

    incarnation: str
    sequence: int
    chain_hash: str
    last_tick: int
    has_torn_wal: bool


def inspect_copy(path: Path, check: str = STORE_CHECK) -> CopyFacts:
    """Check a copy of a data folder like ``pass_gate``, without its lock; nothing in it is modified.

    Raises:
        DataLossError: A start would be refused.
        StoreUncheckedError, NoResourcesError: See ``pass_gate``.
        ProcessLimitError: This process has too few file descriptors or too little address space.
        OSError: It could not be read.
    """
    check_process_limits()
    if read_head(path / "HEAD") is None:
        raise DataLossError("HEAD is missing or both of its slots are damaged", file="HEAD")
    deadline_s = _deadline_s(path / "db")
    with TemporaryDirectory(prefix="tidelog-view-") as view_path:
        answer = _answer_of(_run_child(check, path, Path(view_path), deadline_s, ()))
    return CopyFacts(
        answer["incarnation"], answer["sequence"], answer["chain_hash"], answer["last_tick"], bool(answer["torn"])
    )


def _deadline_s(database_path: Path) -> float:
    """Return the maximum time of a check of a healthy store of this size on a slow machine, in seconds."""
    wal_bytes = sum(path.stat().st_size for path in wal_files(database_path))
    table_bytes = sum(path.stat().st_size for path in database_path.glob("*.sst"))
    of_tables_s = min(_MAX_DEADLINE_OF_TABLES_S, _DEADLINE_PER_TABLE_GIB_S * table_bytes / GIB)
    return _DEADLINE_S + _DEADLINE_PER_GIB_S * wal_bytes / GIB + of_tables_s


def quarantine(folder: DataFolder, torn: Sequence[TornWal], open_count: int) -> None:
    """Move WAL bytes that recovery must not see to ``quarantine/<open_count>-<file>-<offset>``, durably.

    Raises:
        OSError: They could not be moved; the start must not continue.
    """
    for name, offset in torn:
        # A start that crashed here made the same names with the same bytes: bytes that were cut are no longer torn.
        target = folder.quarantine_path / f"{open_count}-{name}-{offset}"
        with (folder.database_path / name).open("rb") as source, target.open("wb") as copy:
            source.seek(offset)
            shutil.copyfileobj(source, copy)
            copy.flush()
            os.fsync(copy.fileno())
        target.chmod(0o600)
    if torn:
        sync_folder(folder.quarantine_path)
        cut_torn(folder.database_path, torn)


def _ask_child(folder: DataFolder, check: str, deadline_s: float) -> dict[str, Any]:
    with folder.fresh_view() as view_path:
        child = _run_child(check, folder.path, view_path, deadline_s, (folder.lock_descriptor,))
    return _answer_of(child)


def _answer_of(child: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(child.stdout)
    except ValueError:
        raise _crash_of(child) from None
    if "system_error" in answer:
        raise OSError(*answer["system_error"])
    if "problem" in answer:
        raise DataLossError(answer["problem"], **answer["values"])
    return answer


def _crash_of(child: subprocess.CompletedProcess[bytes]) -> DataFolderError:
    """Return the error for a check that ended without an answer. That does not prove damage."""
    said = child.stderr.decode("utf-8", "replace").strip()
    if child.returncode == -signal.SIGKILL or any(sign in said for sign in _SIGNS_OF_NO_MEMORY):
        return NoResourcesError(
            "the check of the store ended because there was not enough memory: give the server more, or end other "
            "processes. No data is known to be lost, and nothing was modified"
        )
    return StoreUncheckedError(
        f"the check of the store crashed (code {child.returncode}: {said[-_SHOWN_CHARACTERS:] or 'no output'}): "
        "whether the store is damaged is unknown, and nothing was modified. Start again; if it crashes each time, "
        "restore the data folder from a backup"
    )


def _run_child(
    check: str, path: Path, view_path: Path, deadline_s: float, locks: Sequence[int]
) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {"PYTHONPATH": python_path()}
    command = [sys.executable, "-m", check, str(path), str(view_path), str(math.ceil(deadline_s))]
    try:
        # Why not fork: RocksDB's threads do not survive it. ``run`` kills the child by its handle at the deadline. A
        # child whose parent was killed holds the folder's lock until it ends, at the latest at the deadline.
        return subprocess.run(
            command, env=environment, capture_output=True, timeout=deadline_s, check=False,
            pass_fds=locks,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise StoreUncheckedError(
            f"the check of the store did not end within {deadline_s:.0f} s: either the disk is very slow, or a damaged "
            "MANIFEST keeps RocksDB busy. Whether data is lost is unknown, and nothing was modified. Start again; if "
            "the check does not end on a healthy disk, restore the data folder from a backup"
        ) from None
