"""Makes RocksDB's WAL file larger than its content, so that a write does not change the size of the file.

The size is metadata without which the data cannot be read, so a sync has to persist a new size: on ext4 that is a
commit of the file system's journal, a third of the time of a small sync. A sync within a file of sufficient size only
writes data. The bytes behind the last record are zeros, which RocksDB and the start-up gate skip.

A block that was only reserved has metadata too: that it was never written. The first sync of each block persists this,
so while syncs are small, the file is extended with zeros that are written. While they are large, most of their time is
the data, and written zeros would double it; the blocks are only reserved then.

Source: fdatasync(2), fallocate(2). PostgreSQL and etcd extend their WAL files in advance for the same reason; so does
RocksDB, but without changing the size, and not in every build.
"""

import ctypes
import os
from pathlib import Path
from threading import Lock
from typing import Final

import structlog

from tidelog_server.core.limits import KIB, MIB
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.storage.format.data_folder import wal_files

_LOOK_EVERY_SYNCS: Final = 16
_RESERVED_BYTES: Final = 4 * MIB
_ZEROS: Final = bytes(MIB)
_SMALL_SYNC_BYTES: Final = 16 * KIB
"""Zeros are written while a sync has at most this many bytes, on an average since the last extension."""
_TIME_RESOLUTION_S: Final = 0.1
"""Files that are made within this time may leave the folder with the same time of modification."""

_log = structlog.get_logger("tidelog_server.storage")


class WalSize:
    """Extends the newest WAL file in ``folder``. Not thread-safe.

    Attributes:
        writing: Held by the caller for each write to the database, so that zeros never replace its records.
    """

    def __init__(self, folder: Path) -> None:
        self.writing = Lock()
        self._folder = folder
        self._clock = SystemClock()
        self._syncs = 0
        # The folder's time of modification, and when it was first seen.
        self._modified_ns = 0
        self._seen_s = 0.0
        # The newest WAL file, and its size after the last extension, which changes when RocksDB's writes reach its end.
        self._path: Path | None = None
        self._size_bytes = 0
        # Its size before the last extension, and the number of that sync.
        self._begin_bytes = self._begin_sync = 0
        self._is_refused = self._was_ever_refused = False

    def before_sync(self) -> None:
        """Extend the newest WAL file if RocksDB has reached its end; look every 16 calls.

        A file system that refuses is asked again for the next file, and logged once.
        """
        self._syncs += 1
        if self._syncs % _LOOK_EVERY_SYNCS != 0:
            return
        try:
            self._look()
        except FileNotFoundError:
            # RocksDB has deleted the file since it was listed. The next look finds its successor.
            self._modified_ns = 0
        except OSError as error:
            self._is_refused = True
            if not self._was_ever_refused:
                self._was_ever_refused = True
                _log.warning("wal_not_extended", error=error.strerror, effect="small syncs take longer")

    def _look(self) -> None:
        if self._may_be_new():
            newest = next(reversed(wal_files(self._folder)), None)
            if newest != self._path:
                self._path, self._size_bytes, self._is_refused = newest, 0, False
                self._begin_bytes, self._begin_sync = 0, self._syncs - _LOOK_EVERY_SYNCS
        if self._path is None or self._is_refused:
            return
        # A new file without records is not extended: RocksDB may begin it in another thread.
        size_bytes = self._path.stat().st_size
        if size_bytes != self._size_bytes:
            per_sync = (size_bytes - self._begin_bytes) / (self._syncs - self._begin_sync)
            if per_sync <= _SMALL_SYNC_BYTES:
                with self.writing:
                    self._size_bytes = _append_zeros(self._path)
            else:
                self._size_bytes = _reserve(self._path, size_bytes + _RESERVED_BYTES)
            self._begin_bytes, self._begin_sync = size_bytes, self._syncs

    def _may_be_new(self) -> bool:
        """Return whether a file may have been made since the last call: listing a large folder takes a millisecond."""
        modified_ns, now_s = self._folder.stat().st_mtime_ns, self._clock.monotonic_s()
        if modified_ns != self._modified_ns:
            self._modified_ns, self._seen_s = modified_ns, now_s
        return now_s < self._seen_s + _TIME_RESOLUTION_S


def _append_zeros(path: Path) -> int:
    """Write zeros behind the end of a file, and return its new size. No other thread may write to the file.

    RocksDB never writes beyond the end: it continues where its last write ended.

    Raises:
        OSError: The disk is full, or the file would be too large.
    """
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(_ZEROS)
        return file.tell()


def _reserve(path: Path, size_bytes: int) -> int:
    """Extend a file with zeros that are not written, and return its new size.

    A file that is larger stays as it is, even if another thread writes to it meanwhile.

    Why not os.posix_fallocate: where the file system does not support this, glibc writes zeros instead, which could
    replace what RocksDB writes at the same time.

    Raises:
        OSError: The file system refused, or does not support it.
    """
    with path.open("r+b") as file:
        if _libc.fallocate(file.fileno(), 0, ctypes.c_int64(0), ctypes.c_int64(size_bytes)) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    return size_bytes


_libc = ctypes.CDLL(None, use_errno=True)
