"""Copying and hashing large files without pushing others aside."""

import os
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final

from tidelog_server.core.limits import MIB
from tidelog_server.storage.backup_manifest import DIGEST_BYTES

Meter = Callable[[int], None]
"""Called with the number of bytes after each block: it may wait, to keep a rate, and count."""

_BLOCK_BYTES: Final = MIB
# What was written goes to the disk bit by bit: a server beside us would wait with its syncs for all of it otherwise.
_SYNC_EVERY_BYTES: Final = 8 * MIB


def hash_file(path: Path, meter: Meter) -> str:
    """Return the hash of a file's content, hexadecimal.

    Raises:
        OSError: It cannot be read.
    """
    digest = blake2b(digest_size=DIGEST_BYTES)
    for block in _blocks(path, meter):
        digest.update(block)
    return digest.hexdigest()


def copy_file(source: Path, target: Path, meter: Meter) -> str:
    """Copy a file to a new one, durably but for its name; return the hash of what was copied.

    Raises:
        OSError: The system refused.
    """
    digest = blake2b(digest_size=DIGEST_BYTES)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        unsynced = 0
        for block in _blocks(source, meter):
            digest.update(block)
            _write_all(descriptor, block)
            unsynced += len(block)
            if unsynced >= _SYNC_EVERY_BYTES:
                os.fdatasync(descriptor)
                unsynced = 0
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    return digest.hexdigest()


def _blocks(path: Path, meter: Meter) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK_BYTES):
            yield block
            # What is read once must not push out of the page cache what others read again.
            os.posix_fadvise(file.fileno(), file.tell() - len(block), len(block), os.POSIX_FADV_DONTNEED)
            meter(len(block))


def _write_all(descriptor: int, block: bytes) -> None:
    written = 0
    while written < len(block):
        written += os.write(descriptor, block[written:])
