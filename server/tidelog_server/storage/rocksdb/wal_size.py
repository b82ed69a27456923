"""Makes RocksDB's WAL file larger than its content, so that a write does not change the size of the file.

The size is metadata without which the data cannot be read, so a sync has to persist a new size: on ext4 that is a
commit of the file system's journal, a third of the time of a small sync. A sync within a file of sufficient size only
writes data. The bytes behind the last record are zeros, which RocksDB and the start-up gate skip.

Source: fdatasync(2). PostgreSQL and etcd extend their WAL files in advance for the same reason; so does RocksDB, but
without changing the size, and not in every build.
"""

import ctypes
import os
from pathlib import Path
from typing import Final

import structlog

from tidelog_server.core.limits import MIB
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.storage.format.data_folder import wal_files

_LOOK_EVERY_SYNCS: Final = 16
_AHEAD_BYTES: Final = 4 * MIB
_TIME_RESOLUTION_S: Final = 0.1
"""Files that are made within this time may leave the folder with the same time of modification."""

_log = structlog.get_logger("tidelog_server.storage")


class WalSize:
    """Extends the newest WAL file in ``folder``. Not thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clock = SystemClock()
        self._syncs = 0
        # The folder's time of modification, and when it was first seen.
        self._modified_ns = 0
        self._seen_s = 0.0
        # The newest WAL file, and its size after the last extension, which changes when RocksDB's writes reach its end.
        self._path: Path | None = None
        self._size_bytes: int | None = None
        self._is_refused = self._was_ever_refused = False

    def before_sync(self) -> None:
        """Extend the newest WAL file by 4 MiB if it is new or RocksDB has reached its end; look every 16 calls.

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
                self._path, self._size_bytes, self._is_refused = newest, None, False
        if self._path is None or self._is_refused:
            return
        size_bytes = self._path.stat().st_size
        if size_bytes != self._size_bytes:
            _extend_to(self._path, size_bytes + _AHEAD_BYTES)
            self._size_bytes = size_bytes + _AHEAD_BYTES

    def _may_be_new(self) -> bool:
        """Return whether a file may have been made since the last call: listing a large folder takes a millisecond."""
        modified_ns, now_s = self._folder.stat().st_mtime_ns, self._clock.monotonic_s()
        if modified_ns != self._modified_ns:
            self._modified_ns, self._seen_s = modified_ns, now_s
        return now_s < self._seen_s + _TIME_RESOLUTION_S


def _extend_to(path: Path, size_bytes: int) -> None:
    """Extend a file with zeros; one that is larger stays as it is, even if another process writes to it meanwhile.

    Why not os.posix_fallocate: where the file system does not support this, glibc writes zeros instead, which could
    replace what RocksDB writes at the same time.

    Raises:
        OSError: The file system refused, or does not support it.
    """
    with path.open("r+b") as file:
        if _libc.fallocate(file.fileno(), 0, ctypes.c_int64(0), ctypes.c_int64(size_bytes)) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))


_libc = ctypes.CDLL(None, use_errno=True)
