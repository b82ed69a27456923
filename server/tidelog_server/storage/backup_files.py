"""Copying and hashing large files without pushing others aside, and without following what a folder leads to.

A backup may come from another machine. So its files are opened by name, level by level, without following links, and
only regular files are read, up to the size that is expected: a pipe does not block, a device does not fill the disk.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Final

from tidelog_server.core.limits import MIB
from tidelog_server.storage.backup_manifest import DIGEST_BYTES
from tidelog_server.storage.durable_files import FILE_MODE, write_all

Meter = Callable[[int], None]
"""Called with the number of bytes after each block: it may wait, to keep a rate, and count."""

_BLOCK_BYTES: Final = MIB
# What was written goes to the disk bit by bit: a server beside us would wait with its syncs for all of it otherwise.
_SYNC_EVERY_BYTES: Final = 8 * MIB
_NO_LINK: Final = os.O_NOFOLLOW | os.O_CLOEXEC
# What the system says of a link, and of a socket or a file in the place of a folder.
_OF_OTHER_KINDS: Final = (errno.ELOOP, errno.ENOTDIR, errno.ENXIO)


class UnexpectedFileError(Exception):
    """Something in a folder is not the file that it must be. Its text is a predicate, such as ``is a link``."""


@contextmanager
def opened_within(root: Path, name: str) -> Iterator[int]:
    """Open the regular file ``name``, with slashes between levels, below ``root``; yield its descriptor.

    Raises:
        UnexpectedFileError: It or a folder on the way is a link, or it is no regular file.
        OSError: It is missing, or the system refused.
    """
    descriptor = _open_within(root, name)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnexpectedFileError("is no regular file")
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
            # Looked at before, too: opening a device may have an effect, and opening a pipe may block.
            raise UnexpectedFileError("is a link, or no regular file")
        return os.open(last, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | _NO_LINK, dir_fd=folder)
    except OSError as error:
        if error.errno in _OF_OTHER_KINDS:
            raise UnexpectedFileError("is a link, or lies behind one") from error
        raise
    finally:
        os.close(folder)


def names_below(folder: Path) -> list[str]:
    """Return the names of all files below a folder, with slashes between levels.

    Raises:
        UnexpectedFileError: The folder, or something in it, is a link or neither a folder nor a regular file.
        OSError: It cannot be read.
    """
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise UnexpectedFileError("is a link, or no folder")
    names: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                names += [f"{entry.name}/{name}" for name in names_below(folder / entry.name)]
            elif entry.is_file(follow_symlinks=False):
                names.append(entry.name)
            else:
                raise UnexpectedFileError(f"has {entry.name!r}, which is a link or no regular file")
    return names


def read_within(root: Path, name: str, max_bytes: int) -> bytes:
    """Return the content of a small file. Raises as ``opened_within``, also if it is larger than ``max_bytes``."""
    with opened_within(root, name) as descriptor:
        return b"".join(_blocks(descriptor, lambda _: None, max_bytes))


def hash_file(root: Path, name: str, meter: Meter, max_bytes: int) -> str:
    """Return the hash of a file's content, hexadecimal. Raises as ``read_within``."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    with opened_within(root, name) as descriptor:
        for block in _blocks(descriptor, meter, max_bytes):
            digest.update(block)
    return digest.hexdigest()


def copy_file(root: Path, name: str, target: Path, meter: Meter, max_bytes: int) -> str:
    """Copy a file to a new one, durably but for its name; return the hash of what was copied.

    Not more than ``max_bytes`` are written. Raises as ``read_within``.
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
        # What is read once must not push out of the page cache what others read again.
        os.posix_fadvise(descriptor, offset, len(block), os.POSIX_FADV_DONTNEED)
        offset += len(block)
        meter(len(block))
