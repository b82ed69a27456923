"""Restoring: a new data folder from a backup, whole or not at all.

It is made beside its place under another name and renamed as the last step. A restored store is a new one: it has an
incarnation of its own, because the one that was backed up may have gone on without it.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_bytes
from typing import Final

from tidelog_server.core.entries import HASH_BYTES
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.storage.backup_files import Meter, copy_file
from tidelog_server.storage.backup_folder import BackupFolder, check_recovers
from tidelog_server.storage.backup_manifest import BackupDamagedError, BackupError, Manifest
from tidelog_server.storage.durable_files import sync_folder
from tidelog_server.storage.rocksdb_restamp import restamp

_SUFFIX: Final = ".restoring"


def restore_copy(backups: BackupFolder, manifest: Manifest, target: Path, meter: Meter) -> str:
    """Make ``target`` a data folder with everything in a backup; return its incarnation, hexadecimal.

    Raises:
        BackupDamagedError: The backup is; there is no ``target`` then.
        BackupError: ``target`` cannot be made.
        OSError: The system refused.
    """
    incarnation = token_bytes(HASH_BYTES)

    def fill(path: Path) -> None:
        _copy_checked(backups, manifest, path, meter)
        check_recovers(path, manifest)
        restamp(path, incarnation)

    restore_with(target, fill)
    return incarnation.hex()


def restore_with(target: Path, fill: Callable[[Path], None]) -> None:
    """Make ``target`` what ``fill`` makes of an empty folder, whole or not at all, durably.

    Raises:
        BackupError, OSError: As ``restore_copy``, and whatever ``fill`` raises.
    """
    target = target.absolute()
    _check_target(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _workshop(target.with_name(f".{target.name}{_SUFFIX}")) as path:
        fill(path)
        _sync_tree(path)
        hit(Failpoint.RESTORE_BEFORE_RENAME)
        _check_target(target)
        try:
            path.rename(target)
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise BackupError(f"{target} is where a disk is mounted: restore into a folder in it") from error
            raise
        sync_folder(target.parent)


def _check_target(target: Path) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise BackupError(f"{target} is no folder: choose an empty or a new one")
    if target.is_dir() and any(target.iterdir()):
        raise BackupError(f"{target} is not empty: restore into an empty or a new folder, and move the old one away")


@contextmanager
def _workshop(path: Path) -> Iterator[Path]:
    """Yield an empty folder that nobody else restores into; what a restore left there that was cut off is removed."""
    path.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for left_behind in path.iterdir():
            shutil.rmtree(left_behind) if left_behind.is_dir() else left_behind.unlink()
        yield path
    except BlockingIOError:
        raise BackupError(f"another restore is at work in {path}: wait until it has ended") from None
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)
        if error.errno == errno.ENOSPC:
            raise BackupError(f"the disk of {path.parent} is full: make room, or restore elsewhere") from error
        raise
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    finally:
        os.close(descriptor)


def _copy_checked(backups: BackupFolder, manifest: Manifest, path: Path, meter: Meter) -> None:
    data = backups.data_path(manifest.backup_id)
    (path / "db").mkdir(mode=0o700)
    (path / "quarantine").mkdir(mode=0o700)
    for file in manifest.files:
        try:
            digest = copy_file(data / file.name, path / file.name, meter)
        except FileNotFoundError as error:
            raise BackupDamagedError(f"backup {manifest.backup_id} is damaged: data/{file.name} is missing") from error
        if digest != file.blake2b:
            raise BackupDamagedError(
                f"backup {manifest.backup_id} is damaged: data/{file.name} has another content than when it was taken"
            )
        hit(Failpoint.RESTORE_MID_COPY)


def _sync_tree(path: Path) -> None:
    """Make names durable; the content of the files is."""
    for folder, _, __ in os.walk(path):
        sync_folder(Path(folder))
