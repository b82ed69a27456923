"""Checkpoints: the database as it was at one moment, as hard links, in a folder that passes the start-up gate."""

import shutil
from pathlib import Path

from rocksdict import Checkpoint

from tidelog_server.core.checkpoint_errors import CheckpointFailedError
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.storage.data_folder import FORMAT_STAMP, DataFolder
from tidelog_server.storage.durable_files import make_private_folder, sync_folder, write_file
from tidelog_server.storage.head_file import Head, HeadFile
from tidelog_server.storage.rocksdb_engine import FAMILIES, Engine, error_text, is_engine_error


def flush_families(engine: Engine) -> None:
    """Write the memtables of all families to tables and blob files. Releases the GIL while the disk works.

    Raises:
        CheckpointFailedError: The disk refused.
    """
    try:
        for name in FAMILIES:
            engine.family(name).flush(True)
    except Exception as error:
        raise _failed(error) from error


def make_checkpoint(engine: Engine, folder: DataFolder, name: str, head: Head) -> Path:
    """Make ``checkpoints/<name>`` in the data folder and return it; ``head`` is of what was synced last.

    Nothing may be written meanwhile. RocksDB links tables and blob files, and copies what it still writes to. It
    flushes first and holds the GIL for all of it, so ``flush_families`` just before keeps it short.

    Raises:
        CheckpointFailedError: It could not be made, and there is nothing of it.
    """
    path = folder.checkpoints_path / name
    try:
        folder.make_folder(folder.checkpoints_path)
        make_private_folder(path)
        Checkpoint(engine.db).create_checkpoint(str(path / "db"))
        hit(Failpoint.MID_CHECKPOINT)
        _complete(path, head)
    except Exception as error:
        shutil.rmtree(path, ignore_errors=True)
        raise _failed(error) from error
    return path


def _complete(path: Path, head: Head) -> None:
    """Add what makes a data folder of it, durably."""
    file = HeadFile.open(path / "HEAD")
    try:
        file.write(head._replace(generation=1, is_clean=False))
    finally:
        file.close()
    write_file(path / "FORMAT", FORMAT_STAMP)
    sync_folder(path / "db")
    sync_folder(path)


def _failed(error: Exception) -> CheckpointFailedError:
    if not (isinstance(error, OSError) or is_engine_error(error)):
        raise error
    return CheckpointFailedError(error_text(error))
