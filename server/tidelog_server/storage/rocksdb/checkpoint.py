"""Checkpoints: the database at one moment, as hard links, in a folder that passes the start-up gate."""

import shutil
from contextlib import closing
from pathlib import Path

from rocksdict import Checkpoint

from tidelog_server.core.errors.storage import CheckpointFailedError
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.storage.format.data_folder import DataFolder, format_stamp
from tidelog_server.storage.format.durable_files import make_private_folder, sync_folder, write_file
from tidelog_server.storage.format.head_file import Head, HeadFile
from tidelog_server.storage.rocksdb.engine import FAMILIES, Engine, error_text, is_engine_error


def flush_families(engine: Engine) -> None:
    """Write the memtables of all families to tables and blob files. Releases the GIL during disk I/O.

    Raises:
        CheckpointFailedError: The disk refused.
    """
    try:
        for name in FAMILIES:
            engine.family(name).flush(True)
    except Exception as error:
        raise _failed(error) from error


def make_checkpoint(engine: Engine, folder: DataFolder, name: str, head: Head) -> Path:
    """Make ``checkpoints/<name>`` in the data folder and return it; ``head`` is the last synced state.

    Nothing may be written meanwhile. RocksDB links tables and blob files, and copies the files that it still writes. It
    flushes first and holds the GIL throughout, so call ``flush_families`` just before to keep this short.

    Raises:
        CheckpointFailedError: It could not be made, and nothing of it is left.
    """
    path = folder.checkpoints_path / name
    try:
        folder.make_folder(folder.checkpoints_path)
        make_private_folder(path)
        Checkpoint(engine.db).create_checkpoint(str(path / "db"))
        hit(Failpoint.MID_CHECKPOINT)
        _complete(path, head, folder.format)
    except Exception as error:
        shutil.rmtree(path, ignore_errors=True)
        raise _failed(error) from error
    return path


def _complete(path: Path, head: Head, format_number: int) -> None:
    """Complete the checkpoint to a data folder, durably."""
    with closing(HeadFile.open(path / "HEAD")) as file:
        file.write(head._replace(generation=1, is_clean=False))
    write_file(path / "FORMAT", format_stamp(format_number))
    sync_folder(path / "db")
    sync_folder(path)


def _failed(error: Exception) -> CheckpointFailedError:
    if not (isinstance(error, OSError) or is_engine_error(error)):
        raise error
    return CheckpointFailedError(error_text(error))
