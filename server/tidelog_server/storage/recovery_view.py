"""The database as recovery is to find it: a folder of links, in which RocksDB can look without harm.

What RocksDB deletes or renames in a folder with a damaged MANIFEST (it takes healthy files for garbage) is links. And
it never sees what follows the sound part of its log, where its reader can spin for ever instead of stopping: a power
cut may leave such bytes, and they are no loss.

Source: facebook/rocksdb#13333 for the reader that spins.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from tidelog_server.storage.wal_scan import TornWal, torn_wals

# What is written wherever the database is opened, even read-only: through a link it would be the real one.
_LEFT_OUT = ("LOG", "LOCK", "rocksdict-config.json")
_COPY_BYTES = 1 << 20


def make_recovery_view(database_path: Path, view_path: Path) -> list[TornWal]:
    """Fill the empty folder ``view_path`` with links to the database; return what it leaves out of the WAL.

    Raises:
        DataLossError: A WAL file holds what this server does not know.
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
    """Make the database what the view was, durably.

    Why from the last file to the first: while a file is torn, the ones after it count as torn too, so a crash amid
    the cuts leaves nothing behind that recovery would take up beyond a hole.

    Raises:
        OSError: A file could not be cut; the start must not go on.
    """
    for name, offset in reversed(torn):
        with (database_path / name).open("r+b") as file:
            file.truncate(offset)
            os.fsync(file.fileno())


def _copy_beginning(source_path: Path, target_path: Path, size_bytes: int) -> None:
    with source_path.open("rb") as source, target_path.open("xb") as target:
        while target.tell() < size_bytes:
            target.write(source.read(min(_COPY_BYTES, size_bytes - target.tell())))
