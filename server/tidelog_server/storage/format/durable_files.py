"""Files and folders whose names survive a power failure.

The content of a synced file survives, but its name only if its folder was synced as well. That applies to each level of
a path: POSIX guarantees no more, whatever ext4 and XFS do. Files that must be found again are made here.
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
    """Make a folder and its missing parents, durably and for this user only, regardless of the umask.

    Existing folders keep their mode. Their names are made durable too, because an interrupted attempt may have made
    them.

    Raises:
        OSError: A folder cannot be made, or ``path`` is not a folder.
    """
    path = path.absolute()
    missing = [level for level in (path, *path.parents) if not level.is_dir()]
    for level in reversed(missing):
        try:
            make_private_folder(level)
        except FileExistsError:
            # Another process made it just now, or it is not a folder.
            if not level.is_dir():
                raise
    sync_names_to(path)


def make_private_folder(path: Path) -> None:
    """Make a folder for this user only, regardless of the umask. Its name is not durable yet. Raises OSError."""
    path.mkdir(FOLDER_MODE)
    path.chmod(FOLDER_MODE)


def sync_names_to(path: Path) -> None:
    """Make the name of ``path`` and of each folder above it durable, up to the root of its file system.

    Stops at a folder that this user may not read, because this user did not make the names in it. Raises OSError.
    """
    path = path.absolute()
    device = path.stat().st_dev
    for level in path.parents:
        if level.stat().st_dev != device:
            # A mount point has no name that could be lost.
            return
        try:
            sync_folder(level)
        except PermissionError:
            return


def write_file(path: Path, content: bytes) -> None:
    """Write a small file, durable except for its name. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Replace or make a small file, atomically and durably. Uses ``<name>.new`` in its folder. Raises OSError."""
    new_path = path.with_name(f"{path.name}.new")
    write_file(new_path, content)
    new_path.replace(path)
    sync_folder(path.parent)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of ``content``, in as many steps as needed. Raises OSError."""
    written = 0
    while written < len(content):
        written += os.write(descriptor, content[written:])
