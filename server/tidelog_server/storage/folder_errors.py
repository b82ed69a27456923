"""Why a data folder cannot be used, where nothing is known to be lost: one class for each thing that an operator does.

What the system refuses says nothing about the data. DataLossError is for data that is proven to be damaged or missing.
"""

import errno
import os
from pathlib import Path
from typing import Final

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN: Final = (errno.EACCES, errno.EPERM)
_NO_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)


class DataFolderError(Exception):
    """The data folder cannot be used; nothing is known to be lost. Its text tells the operator what to do."""


class FolderInUseError(DataFolderError):
    """Another server uses the folder.

    Attributes:
        pid: Its process id as the lock file tells, or None if it tells none.
    """

    def __init__(self, folder: Path, pid: int | None) -> None:
        owner = f"process {pid}" if pid else "another process"
        super().__init__(f"{folder} is in use by {owner}: stop that server, or choose another data folder")
        self.pid = pid


class FolderFullError(DataFolderError):
    """The disk, or a quota on it, has no room."""


class FolderForbiddenError(DataFolderError):
    """The user of this process may not read or write the folder, or a file in it."""


class DiskFailedError(DataFolderError):
    """The disk answered with an error."""


class NoResourcesError(DataFolderError):
    """The process has no file descriptor or no memory left."""


class StoreUncheckedError(DataFolderError):
    """The check of the store crashed, or did not end: whether anything is damaged is unknown. Nothing was modified."""


def folder_error(folder: Path, error: OSError, text: str = "") -> DataFolderError:
    """Return what the system's ``error`` means for a data folder.

    Args:
        folder: The folder.
        error: What was raised.
        text: What to show of it; its own text if empty.
    """
    number, shown = error.errno, text or _text_of(error)
    begin = f"the data folder {folder} cannot be used"
    if number in _FULL:
        return FolderFullError(
            f"{begin}, its disk is full ({shown}): make room. Nothing is known to be lost, and the server starts again "
            "once there is room"
        )
    if number in _FORBIDDEN:
        return FolderForbiddenError(
            f"{begin} by this user ({shown}): give the user of the server the folder and all files in it"
        )
    if number == errno.EIO:
        return DiskFailedError(
            f"{begin}, its disk failed ({shown}): look at the disk and at the kernel's log (dmesg), then start again. "
            "Whether anything is lost is not known"
        )
    if number in _NO_RESOURCES:
        return NoResourcesError(
            f"{begin}, a resource of this process is used up ({shown}): raise its limits (ulimit -n, memory), or end "
            "other processes. Nothing is known to be lost"
        )
    if number == errno.EROFS:
        return DataFolderError(
            f"{begin}, its file system is read-only ({shown}): Linux does this after errors of the disk, see dmesg; "
            "then mount it for writing"
        )
    return DataFolderError(f"{begin} ({shown}): correct the path, or give this user a folder that it may write to")


def _text_of(error: OSError) -> str:
    strerror = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
    return f"{Path(os.fsdecode(error.filename)).name}: {strerror}" if error.filename else strerror
