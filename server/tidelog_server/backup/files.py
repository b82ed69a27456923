"""Copies and hashes large files with little effect on other I/O, and without following links out of a folder.

A backup may come from another machine. So its files are opened by name, level by level, without following links, and
only regular files are read, up to the expected size: a pipe cannot block, and a device cannot fill the disk.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Final

from tidelog_server.backup.manifest import DIGEST_BYTES
from tidelog_server.core.limits import MIB
from tidelog_server.storage.format.durable_files import FILE_MODE, write_all

Meter = Callable[[int], None]
"""Called with the number of bytes after each block, to count them and to wait in order to limit the rate."""

_BLOCK_BYTES: Final = MIB
# Written data is synced in small portions: otherwise the syncs of a server on the same disk would wait for all of it.
_SYNC_EVERY_BYTES: Final = 8 * MIB
_NO_LINK: Final = os.O_NOFOLLOW | os.O_CLOEXEC
# Errors of the system for a link, for a socket, and for a file in the place of a folder.
_OF_OTHER_KINDS: Final = (errno.ELOOP, errno.ENOTDIR, errno.ENXIO)


class UnexpectedFileError(Exception):
    """An item in a folder is not the expected file. The text is a predicate, such as ``is a link``."""


@contextmanager
def opened_within(root: Path, name: str) -> Iterator[int]:
    """Open the regular file ``name``, with slashes between levels, below ``root``; yield its descriptor.

    Raises:
        UnexpectedFileError: It or a folder of its path is a link, or it is not a regular file.
        OSError: It is missing, or the system refused.
    """
    descriptor = _open_within(root, name)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnexpectedFileError("is not a regular file")
        yield descriptor
    finally:
        os.close(descriptor)


def _open_within(root: Path, name: str) -> int:
    *folders, last = name.split("/")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for level in folders:
            inner = os.open(level, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK, dir_fd=folder)
            os.close(folder)
            folder = inner
        if not stat.S_ISREG(os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode):
            # Checked before the open, too: opening a device may have an effect, and opening a pipe may block.
            raise UnexpectedFileError("is a link, or not a regular file")
        return os.open(last, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | _NO_LINK, dir_fd=folder)
    except OSError as error:
        if error.errno in _OF_OTHER_KINDS:
            raise UnexpectedFileError("is a link, or is below one") from error
        raise
    finally:
        os.close(folder)


def names_below(folder: Path) -> list[str]:
    """Return the names of all files below a folder, with slashes between levels.

    Raises:
        UnexpectedFileError: The folder or an item in it is a link, or neither a folder nor a regular file.
        OSError: It cannot be read.
    """
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise UnexpectedFileError("is a link, or not a folder")
    names: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                names += [f"{entry.name}/{name}" for name in names_below(folder / entry.name)]
            elif entry.is_file(follow_symlinks=False):
                names.append(entry.name)
            else:
                raise UnexpectedFileError(f"has {entry.name!r}, which is a link or not a regular file")
    return names


def read_within(root: Path, name: str, max_bytes: int) -> bytes:
    """Return the content of a small file. Raises like ``opened_within``, also if it exceeds ``max_bytes``."""
    with opened_within(root, name) as descriptor:
        return b"".join(_blocks(descriptor, lambda _: None, max_bytes))


def hash_file(root: Path, name: str, meter: Meter, max_bytes: int) -> str:
    """Return the hexadecimal hash of a file's content. Raises like ``read_within``."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    with opened_within(root, name) as descriptor:
        for block in _blocks(descriptor, meter, max_bytes):
            digest.update(block)
    return digest.hexdigest()


def copy_file(root: Path, name: str, target: Path, meter: Meter, max_bytes: int) -> str:
    """Copy a file to a new one, durable except for its name; return the hash of the copied content.

    At most ``max_bytes`` are written. Raises like ``read_within``.
    """
    digest = blake2b(digest_size=DIGEST_BYTES)
    with opened_within(root, name) as source:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            unsynced = 0
            for block in _blocks(source, meter, max_bytes):
                digest.update(block)
                write_all(descriptor, block)
                unsynced += len(block)
                if unsynced >= _SYNC_EVERY_BYTES:
                    os.fdatasync(descriptor)
                    unsynced = 0
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    return digest.hexdigest()


def _blocks(descriptor: int, meter: Meter, max_bytes: int) -> Iterator[bytes]:
    offset = 0
    while block := os.pread(descriptor, min(_BLOCK_BYTES, max_bytes + 1 - offset), offset):
        if offset + len(block) > max_bytes:
            raise UnexpectedFileError(f"has more than its {max_bytes} bytes")
        yield block
        # Data that is read once must not evict data from the page cache that is read again.
        os.posix_fadvise(descriptor, offset, len(block), os.POSIX_FADV_DONTNEED)
        offset += len(block)
        meter(len(block))
