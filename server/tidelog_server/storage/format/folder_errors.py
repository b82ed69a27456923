"""Reasons why a data folder cannot be used although no data is known to be lost: one class per remedy.

An error of the system does not prove damage. DataLossError is for data that is proven to be damaged or missing.
"""

import errno
import os
from pathlib import Path
from typing import Final

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN: Final = (errno.EACCES, errno.EPERM)
_NO_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)


class DataFolderError(Exception):
    """The data folder cannot be used; no data is known to be lost. The text states what the operator can do."""


class FolderInUseError(DataFolderError):
    """Another server uses the folder.

    Attributes:
        pid: Its process id according to the lock file; None if unknown.
    """

    def __init__(self, folder: Path, pid: int | None) -> None:
        owner = f"process {pid}" if pid else "another process"
        super().__init__(f"{folder} is in use by {owner}: stop that server, or choose another data folder")
        self.pid = pid


class FolderFullError(DataFolderError):
    """The disk is full, or a quota on it is used up."""


class FolderForbiddenError(DataFolderError):
    """The user of this process may not read or write the folder, or a file in it."""


class DiskFailedError(DataFolderError):
    """The disk returned an error."""


class NoResourcesError(DataFolderError):
    """The process has no file descriptor or no memory left."""


class StoreUncheckedError(DataFolderError):
    """The check of the store crashed or did not end: whether data is damaged is unknown. Nothing was modified."""


def folder_error(folder: Path, error: OSError, text: str = "") -> DataFolderError:
    """Return the error that the system's ``error`` means for a data folder.

    Args:
        folder: The folder.
        error: The error raised.
        text: Text to show for it; its own text if empty.
    """
    number, shown = error.errno, text or _text_of(error)
    begin = f"the data folder {folder} cannot be used"
    if number in _FULL:
        return FolderFullError(
            f"{begin}, its disk is full ({shown}): free some space. No data is known to be lost, and the server starts "
            "again once there is space"
        )
    if number in _FORBIDDEN:
        return FolderForbiddenError(
            f"{begin} by this user ({shown}): make the server's user the owner of the folder and all files in it"
        )
    if number == errno.EIO:
        return DiskFailedError(
            f"{begin}, its disk failed ({shown}): check the disk and the kernel's log (dmesg), then start again. "
            "Whether data is lost is unknown"
        )
    if number in _NO_RESOURCES:
        return NoResourcesError(
            f"{begin}, a resource of this process is exhausted ({shown}): raise its limits (ulimit -n, memory), or end "
            "other processes. No data is known to be lost"
        )
    if number == errno.EROFS:
        return DataFolderError(
            f"{begin}, its file system is read-only ({shown}): Linux does this after disk errors, see dmesg; "
            "then mount it for writing"
        )
    return DataFolderError(f"{begin} ({shown}): correct the path, or give this user write permission")


def _text_of(error: OSError) -> str:
    strerror = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
    return f"{Path(os.fsdecode(error.filename)).name}: {strerror}" if error.filename else strerror
