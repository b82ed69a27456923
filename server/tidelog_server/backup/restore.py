"""Restores a backup: makes a new data folder from it, completely or not at all.

It is made in the same folder under another name and renamed as the last step. A restored store is a new one: it has
its own incarnation, because the original may have continued without it.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_bytes
from typing import Final

from tidelog_server.backup.files import Meter, UnexpectedFileError, copy_file
from tidelog_server.backup.folder import BackupFolder, backup_error_if_full, check_recovers, damaged_file
from tidelog_server.backup.manifest import BackupError, Manifest
from tidelog_server.core.entries import HASH_BYTES
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.storage.format.durable_files import make_folder, make_private_folder, sync_folder
from tidelog_server.storage.recovery.gate import STORE_CHECK
from tidelog_server.storage.rocksdb.restamp import restamp

_SUFFIX: Final = ".restoring"


def restore_copy(
    backups: BackupFolder, manifest: Manifest, target: Path, meter: Meter, check: str = STORE_CHECK
) -> str:
    """Make ``target`` a data folder with everything in a backup; return its incarnation, hexadecimal.

    ``check`` is the program that checks the copy, as a start does; see ``pass_gate``.

    Raises:
        BackupDamagedError: The backup is damaged, or has a file that no backup has; ``target`` does not exist then.
        BackupError: ``target`` cannot be made.
        OSError: The system refused.
    """
    incarnation = token_bytes(HASH_BYTES)

    def fill(path: Path) -> None:
        _copy_checked(backups, manifest, path, meter)
        check_recovers(path, manifest, check)
        restamp(path, incarnation)

    restore_with(target, fill)
    return incarnation.hex()


def restore_with(target: Path, fill: Callable[[Path], None], doing: str = "restore") -> None:
    """Make ``target`` from an empty folder that ``fill`` fills, completely or not at all, durably.

    ``doing`` is the verb for what it does, in errors.

    Raises:
        BackupError, OSError: See ``restore_copy``; and everything that ``fill`` raises.
    """
    target = target.absolute()
    _check_target(target, doing)
    with backup_error_if_full(target.parent):
        make_folder(target.parent)
    with _workshop(target.with_name(f".{target.name}{_SUFFIX}"), doing) as path:
        fill(path)
        _sync_tree(path)
        hit(Failpoint.RESTORE_BEFORE_RENAME)
        _check_target(target, doing)
        try:
            path.rename(target)
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise BackupError(f"{target} is a mount point: {doing} into a folder in it") from error
            raise
        sync_folder(target.parent)


def _check_target(target: Path, doing: str) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise BackupError(f"{target} is not a folder: choose an empty or a new one")
    if target.is_dir() and any(target.iterdir()):
        raise BackupError(f"{target} is not empty: {doing} into an empty or a new folder, and move the old one away")


@contextmanager
def _workshop(path: Path, doing: str) -> Iterator[Path]:
    """Yield an empty folder that no other process uses; what an interrupted one left in it is deleted."""
    descriptor = _open_workshop(path, doing)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for left_behind in path.iterdir():
            is_folder = left_behind.is_dir() and not left_behind.is_symlink()
            shutil.rmtree(left_behind) if is_folder else left_behind.unlink()
        yield path
    except BlockingIOError:
        raise BackupError(f"another {doing} is in progress in {path}: wait until it has ended") from None
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise BackupError(f"the disk of {path.parent} is full: free some space, or {doing} elsewhere") from error
        raise
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    finally:
        os.close(descriptor)


def _open_workshop(path: Path, doing: str) -> int:
    """Make the workshop if it is missing, and open it. Raises BackupError if its name is in use otherwise."""
    with suppress(FileExistsError):
        make_private_folder(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise BackupError(
            f"{path} is a link or not a folder: this {doing} needs the name, so remove it first"
        ) from error
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise BackupError(f"{path} belongs to another user: this {doing} needs the name, so remove it first")
    return descriptor


def _copy_checked(backups: BackupFolder, manifest: Manifest, path: Path, meter: Meter) -> None:
    make_private_folder(path / "db")
    make_private_folder(path / "quarantine")
    for file in manifest.files:
        source = f"{manifest.backup_id}/data/{file.name}"
        try:
            digest = copy_file(backups.path, source, path / file.name, meter, file.bytes)
        except FileNotFoundError as error:
            raise damaged_file(manifest, file.name, "is missing") from error
        except UnexpectedFileError as error:
            raise damaged_file(manifest, file.name, str(error)) from error
        if digest != file.blake2b:
            raise damaged_file(manifest, file.name, "has changed since the backup was taken")
        hit(Failpoint.RESTORE_MID_COPY)


def _sync_tree(path: Path) -> None:
    """Make names durable; the contents of the files already are."""
    for folder, _, __ in os.walk(path):
        sync_folder(Path(folder))
