"""The database as recovery is to find it: a folder of links, in which RocksDB can look without harm.

Whatever RocksDB does to a folder with a damaged MANIFEST (it may delete what it takes for garbage), it does to links.
And it never sees what follows the sound part of its log, where its reader can spin for ever instead of stopping: a
power cut may leave such bytes, and they are no loss.

Source: facebook/rocksdb#13333 for the reader that spins.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tidelog_server.storage.wal_scan import TornWal, torn_wals

# RocksDB writes its text log wherever it opens, and renames what is there.
_LEFT_OUT = ("LOG", "LOCK")


def make_recovery_view(database_path: Path, view_path: Path) -> list[TornWal]:
    """Fill the empty folder ``view_path`` with links to the database; return what it leaves out of the WAL.

    Raises:
        DataLossError: A WAL file holds what this server does not know.
        OSError: The view could not be made.
    """
    torn = torn_wals(database_path)
    for path in database_path.iterdir():
        if not path.name.startswith(_LEFT_OUT):
            (view_path / path.name).symlink_to(path.absolute())
    for name, offset in torn:
        (view_path / name).unlink()
        shutil.copyfile(database_path / name, view_path / name)
        os.truncate(view_path / name, offset)
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
