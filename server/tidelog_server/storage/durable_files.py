"""Files and folders whose names survive a loss of power.

A synced file is there afterwards, and its name only if the folder that has the name was synced as well. That holds for
each level of a path: POSIX promises no more, whatever ext4 and XFS do. What must be found again is made here.
"""

import os
from pathlib import Path
from typing import Final

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, durably and for this user only, whatever the umask.

    Folders that are there keep their mode, and their names are made durable all the same: an attempt that was cut off
    may have made them.

    Raises:
        OSError: One cannot be made, or ``path`` is something else.
    """
    path = path.absolute()
    missing = [level for level in (path, *path.parents) if not level.is_dir()]
    for level in reversed(missing):
        try:
            make_private_folder(level)
        except FileExistsError:
            # Another process made it just now, or it is no folder.
            if not level.is_dir():
                raise
    sync_names_to(path)


def make_private_folder(path: Path) -> None:
    """Make a folder for this user only, whatever the umask. Its name is not durable yet. Raises OSError."""
    path.mkdir(FOLDER_MODE)
    path.chmod(FOLDER_MODE)


def sync_names_to(path: Path) -> None:
    """Make the name of ``path`` and of each folder above it durable, up to the root of its file system.

    It ends at a folder that this user may not read: this user did not make the names in it. Raises OSError.
    """
    path = path.absolute()
    device = path.stat().st_dev
    for level in path.parents:
        if level.stat().st_dev != device:
            # What is mounted here has no name to lose.
            return
        try:
            sync_folder(level)
        except PermissionError:
            return


def write_file(path: Path, content: bytes) -> None:
    """Write a small file, durably but for its name. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a small file, or make it, atomically and durably. Uses ``<name>.new`` in its folder. Raises OSError."""
    new_path = path.with_name(f"{path.name}.new")
    write_file(new_path, content)
    new_path.replace(path)
    sync_folder(path.parent)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of ``content``, in as many steps as the system takes. Raises OSError."""
    written = 0
    while written < len(content):
        written += os.write(descriptor, content[written:])
