"""The database as recovery must see it: a folder of hard links that RocksDB can open without harm.

RocksDB deletes and renames healthy files as garbage in a folder with a damaged MANIFEST; here these are only links. And
it never sees the bytes after the sound part of its log, where its reader can spin indefinitely instead of stopping: a
power failure may leave such bytes, and they are no loss.

Source: facebook/rocksdb#13333 for the reader that spins.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from tidelog_server.storage.recovery.wal_scan import TornWal, torn_wals

# Written on every open, even read-only: through a link, the write would change the real file.
_LEFT_OUT = ("LOG", "LOCK", "rocksdict-config.json")
_COPY_BYTES = 1 << 20


def make_recovery_view(database_path: Path, view_path: Path) -> list[TornWal]:
    """Fill the empty folder ``view_path`` with links to the database; return the WAL bytes that are left out.

    Raises:
        DataLossError: A WAL file has a record of a type that this server does not know.
        OSError: The view could not be made.
    """
    torn = torn_wals(database_path)
    sound_bytes = dict(torn)
    for path in database_path.iterdir():
        if path.name in sound_bytes:
            _copy_beginning(path, view_path / path.name, sound_bytes[path.name])
        elif not path.name.startswith(_LEFT_OUT):
            (view_path / path.name).symlink_to(path.absolute())
    return torn


def cut_torn(database_path: Path, torn: Sequence[TornWal]) -> None:
    """Cut the database to what the view contained, durably.

    Why from the last file to the first: while a file is torn, those after it count as torn too, so a crash between the
    cuts leaves nothing that recovery would read beyond a gap.

    Raises:
        OSError: A file could not be cut; the start must not continue.
    """
    for name, offset in reversed(torn):
        with (database_path / name).open("r+b") as file:
            file.truncate(offset)
            os.fsync(file.fileno())


def _copy_beginning(source_path: Path, target_path: Path, size_bytes: int) -> None:
    with source_path.open("rb") as source, target_path.open("xb") as target:
        while target.tell() < size_bytes:
            target.write(source.read(min(_COPY_BYTES, size_bytes - target.tell())))
