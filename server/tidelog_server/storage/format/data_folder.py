"""The data folder: its lock, its format and its creation.

::

    FORMAT       one line that names the format; any other content is refused
    LOCK         held with flock by the one server that uses the folder; contains its pid
    HEAD         see head_file
    db/          RocksDB
    quarantine/  bytes of a torn WAL
    LAST_BACKUP  time of the last backup, in milliseconds since the epoch
    view-*/      links to db/, only while a start checks it
    checkpoints/ links to an earlier state of db/, for backups in progress; not needed by a start

While a new folder is being made, FORMAT marks it as unfinished; after a crash it is simply made again. The stamp of a
finished folder never reverts, so a folder that had data is never taken for unfinished.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from tidelog_server.storage.format.durable_files import (
    FILE_MODE,
    make_folder,
    make_private_folder,
    replace_file,
    sync_folder,
)
from tidelog_server.storage.format.folder_errors import DataFolderError, FolderInUseError, folder_error

FORMAT: Final = 2
"""The newest format. Folders of all formats from 1 are read; a folder gets a later one with its first such row."""
UNFINISHED_STAMP: Final = b"tidelog data format 1, being created\n"
VIEW_STAMP: Final = b"tidelog view format "
"""How FORMAT begins in the view of a log in an engine, which is no data folder."""
BACKUP_FILE: Final = "LAST_BACKUP"
_MAX_STAMP_BYTES: Final = 256
_VIEW_PREFIX: Final = "view-"


class DataFolder:
    """A data folder whose lock this process holds until ``close``."""

    def __init__(self, path: Path, lock_descriptor: int) -> None:
        self.path = path
        self.format_path = path / "FORMAT"
        self.head_path = path / "HEAD"
        self.database_path = path / "db"
        self.quarantine_path = path / "quarantine"
        self.checkpoints_path = path / "checkpoints"
        self._lock_descriptor = lock_descriptor
        # As of the last stamp read or written.
        self.format = 1

    def is_finished(self) -> bool:
        """Return whether the folder has a store; False if it is still to be made.

        Raises:
            DataFolderError: It is neither empty nor a data folder, or it is a view, or its format is unknown.
        """
        try:
            with self.format_path.open("rb") as file:
                stamp = file.read(_MAX_STAMP_BYTES)
        except FileNotFoundError:
            if others := sorted(name for name in os.listdir(self.path) if name not in ("LOCK", "FORMAT.new")):
                raise DataFolderError(
                    f"{self.path} has other files ({', '.join(others[:3])}) but no FORMAT: choose an empty folder, "
                    "or restore FORMAT if this is a data folder"
                ) from None
            return False
        if stamp == UNFINISHED_STAMP:
            return False
        known = [number for number in range(1, FORMAT + 1) if stamp == format_stamp(number)]
        if stamp.startswith(VIEW_STAMP):
            raise DataFolderError(
                f"{self.path} is the view of a log in an engine, which is no data folder: choose another folder, or "
                "serve the log with the storage.kind of its engine; `tidelog engine export` makes a data folder of it"
            )
        if not known:
            shown = stamp.decode("ascii", "backslashreplace").splitlines()[:1]
            raise DataFolderError(
                f"{self.path} has the format {shown[0] if shown else ''!r}, this server supports "
                f"{format_stamp(1).decode().strip()!r} to {FORMAT}: use the server that made it, or restore FORMAT"
            )
        (self.format,) = known
        return True

    def raise_format(self, number: int) -> None:
        """Give the folder a later format, atomically and durably, before it has something that earlier servers misread.

        Raises:
            OSError: FORMAT could not be written.
        """
        self.stamp(format_stamp(number))
        self.format = number

    def stamp(self, content: bytes) -> None:
        """Replace FORMAT, atomically and durably."""
        replace_file(self.format_path, content)

    def make_folder(self, path: Path) -> None:
        """Make a folder in this one, durably, if it is missing."""
        if not path.is_dir():
            make_private_folder(path)
        sync_folder(self.path)

    def remove_checkpoints(self) -> None:
        """Remove checkpoints that backups of an earlier run left: the server that owned them has ended."""
        if self.checkpoints_path.exists():
            shutil.rmtree(self.checkpoints_path)

    @property
    def lock_descriptor(self) -> int:
        """Descriptor of the lock; a process that inherits it also holds the lock until it ends."""
        return self._lock_descriptor

    @contextmanager
    def fresh_view(self) -> Iterator[Path]:
        """Yield an empty folder that is removed afterwards, as are those that crashes left."""
        for left_behind in self.path.glob(_VIEW_PREFIX + "*"):
            shutil.rmtree(left_behind)
        view_path = Path(mkdtemp(prefix=_VIEW_PREFIX, dir=self.path))
        try:
            yield view_path
        finally:
            # What cannot be removed now is removed at the next start; an error here would hide the original one.
            shutil.rmtree(view_path, ignore_errors=True)

    def close(self) -> None:
        """Release the lock. Idempotent."""
        if self._lock_descriptor >= 0:
            os.close(self._lock_descriptor)
            self._lock_descriptor = -1


def format_stamp(number: int) -> bytes:
    """Return the content of FORMAT in a finished folder."""
    return f"tidelog data format {number}\n".encode()


def lock_data_folder(path: Path) -> DataFolder:
    """Make the folder if needed and take its lock, without waiting.

    Raises:
        FolderInUseError: Another process has the lock.
        DataFolderError: The folder cannot be made, entered or written to; see folder_errors.
    """
    descriptor = _open_lock(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        owner = os.pread(descriptor, 32, 0).strip()
        os.close(descriptor)
        raise FolderInUseError(path, int(owner) if owner.isdigit() else None) from None
    except OSError as error:
        os.close(descriptor)
        raise folder_error(path, error) from error
    return DataFolder(path, descriptor)


def _open_lock(path: Path) -> int:
    try:
        if not (path / "FORMAT").exists():
            make_folder(path)
        return os.open(path / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise folder_error(path, error) from error


def note_backup(folder: Path, created_ms: int) -> None:
    """Persist the time of the last backup. Raises OSError."""
    replace_file(folder / BACKUP_FILE, f"{created_ms}\n".encode())


def last_backup_ms(folder: Path) -> int:
    """Return the time of the last backup, in milliseconds since the epoch; 0 if unknown. For information only."""
    try:
        text = (folder / BACKUP_FILE).read_text().strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() else 0


def wal_files(database_path: Path) -> list[Path]:
    """Return RocksDB's WAL files, oldest first. RocksDB ignores files whose name is no number, and so does this."""
    numbered = (path for path in database_path.glob("*.log") if path.stem.isdigit())
    return sorted(numbered, key=lambda path: int(path.stem))
