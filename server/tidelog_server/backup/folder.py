"""The folder of backups: takes, lists and verifies them.

::

    BACKUPS               one line that names the format
    LOCK                  held with flock by the one program that takes a backup
    <id>/manifest.json    see backup_manifest
    <id>/data/            a data folder: FORMAT, HEAD, db/
    <id>.part/            a backup that is in progress, or was interrupted

A backup is complete once its folder has its name, which is the last step. Each backup is self-contained: it shares
files with an earlier one by hard links, so any of them may be removed.
"""

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from tidelog_server.backup.files import (
    Meter,
    UnexpectedFileError,
    copy_file,
    hash_file,
    names_below,
    read_within,
)
from tidelog_server.backup.manifest import (
    BackupDamagedError,
    BackupError,
    BackupFile,
    Facts,
    Manifest,
    is_backup_id,
)
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.limits import MIB
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.storage.format.durable_files import FILE_MODE, make_folder, replace_file, sync_folder, write_file
from tidelog_server.storage.recovery.gate import STORE_CHECK, inspect_copy

# A manifest has about 250 bytes per file.
MAX_BACKUP_MANIFEST_BYTES: Final = 64 * MIB

_STAMP: Final = b"tidelog backups format 1\n"
_STAMP_NAME: Final = "BACKUPS"
_LOCK_NAME: Final = "LOCK"
_PART: Final = ".part"
_MANIFEST_NAME: Final = "manifest.json"
_OURS: Final = (_STAMP_NAME, _LOCK_NAME)
# RocksDB never changes these files once they are in a checkpoint.
_IMMUTABLE: Final = (".sst", ".blob")
# Space left free on the disk of the backups.
_SPARE_BYTES: Final = 64 * MIB


@dataclass(frozen=True, slots=True)
class ListedBackup:
    """An entry of the list of backups: the manifest, or the problem with it."""

    backup_id: str
    manifest: Manifest | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class BackupOptions:
    """Options of taking a backup.

    Attributes:
        version: Version of this software.
        meter: Called for each block that is read.
        reuse: Files of the newest backup of the same store to link instead of copying: with ``hash`` files of equal
            name, size and hash, which reads all of them; with ``time`` files of equal name, size and modification time,
            without reading them; with ``none`` no file.
    """

    version: str
    meter: Meter
    reuse: Literal["hash", "time", "none"] = "hash"


class BackupFolder:
    """A folder of backups. Made by ``open_backup_folder``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def data_path(self, backup_id: str) -> Path:
        """Return the data folder in a backup."""
        return self.path / backup_id / "data"

    def listed(self) -> list[ListedBackup]:
        """Return completed backups, oldest first; interrupted ones are not listed.

        Raises:
            OSError: The folder cannot be read.
        """
        names = [path.name for path in self.path.iterdir() if path.name not in _OURS and not path.name.endswith(_PART)]
        names = [name for name in names if is_backup_id(name) or (self.path / name).is_dir()]
        return [self._listed(name) for name in sorted(names)]

    def manifest(self, backup_id: str | None) -> Manifest:
        """Return the manifest of a backup; of the newest undamaged one if ``backup_id`` is None.

        Raises:
            BackupError: There is no backup, or no backup of this name.
            BackupDamagedError: It cannot be read.
        """
        if backup_id is not None:
            return self._manifest(backup_id)
        if not (whole := self._whole()):
            raise BackupError(f"{self.path} has no backups: take one with `tidelog backup create`")
        return max(whole, key=lambda manifest: manifest.facts.tick)

    def take(self, source: Path, facts: Facts, options: BackupOptions) -> Manifest:
        """Copy a checkpoint and return the manifest of the new backup.

        Args:
            source: Folder of the checkpoint, which does not change meanwhile.
            facts: State of the checkpoint.
            options: Options.

        Raises:
            BackupError: Another backup is in progress, the disk is full, or an immutable file has changed.
            OSError: The system refused.
        """
        backup_id = _id_of(facts)
        with self._locked():
            if (self.path / backup_id).exists():
                raise BackupError(f"backup {backup_id} already exists: this state was backed up before")
            for left_behind in self.path.glob(f"*{_PART}"):
                shutil.rmtree(left_behind)
            part = self.path / (backup_id + _PART)
            try:
                with backup_error_if_full(self.path):
                    manifest = self._copy(source, part, facts, options)
            except BaseException:
                shutil.rmtree(part, ignore_errors=True)
                raise
            hit(Failpoint.BACKUP_BEFORE_RENAME)
            part.rename(self.path / backup_id)
            sync_folder(self.path)
            return manifest

    def check_files(self, manifest: Manifest, meter: Meter) -> None:
        """Compare every file with the manifest.

        Raises:
            BackupDamagedError: A file is missing, unexpected or different; the error names it.
        """
        data = self.data_path(manifest.backup_id)
        found = self._names_of(manifest)
        for file in manifest.files:
            if file.name not in found:
                raise damaged_file(manifest, file.name, "is missing")
            size_bytes = (data / file.name).lstat().st_size
            if size_bytes != file.bytes:
                raise damaged_file(manifest, file.name, f"has {size_bytes} bytes, expected {file.bytes}")
            try:
                digest = hash_file(self.path, f"{manifest.backup_id}/data/{file.name}", meter, file.bytes)
            except UnexpectedFileError as error:
                raise damaged_file(manifest, file.name, str(error)) from error
            except OSError as error:
                raise damaged_file(manifest, file.name, f"cannot be read ({error.strerror})") from error
            if digest != file.blake2b:
                raise damaged_file(manifest, file.name, "has changed since the backup was taken")
        if strangers := sorted(found - {file.name for file in manifest.files}):
            raise damaged_file(manifest, strangers[0], "is not part of the backup")

    def _names_of(self, manifest: Manifest) -> set[str]:
        """Return the names of all files of a backup, without links. Raises BackupDamagedError."""
        folder = self.path / manifest.backup_id
        try:
            names_below(folder)
            return set(names_below(folder / "data"))
        except UnexpectedFileError as error:
            raise BackupDamagedError(
                f"backup {manifest.backup_id} is damaged: its folder {error}. Do not restore it"
            ) from error

    def _whole(self) -> list[Manifest]:
        """Return the readable manifests, oldest first."""
        return [each.manifest for each in self.listed() if each.manifest is not None]

    def _listed(self, name: str) -> ListedBackup:
        try:
            return ListedBackup(name, self._manifest(name))
        except BackupError as error:
            return ListedBackup(name, None, str(error))

    def _manifest(self, backup_id: str) -> Manifest:
        if not is_backup_id(backup_id):
            raise self._no_backup(backup_id)
        try:
            content = read_within(self.path, f"{backup_id}/{_MANIFEST_NAME}", MAX_BACKUP_MANIFEST_BYTES)
        except UnexpectedFileError as error:
            raise BackupDamagedError(f"backup {backup_id} is damaged: manifest.json {error}") from error
        except FileNotFoundError:
            if (self.path / backup_id).is_dir():
                raise BackupDamagedError(f"backup {backup_id} is damaged: manifest.json is missing") from None
            raise self._no_backup(backup_id) from None
        return Manifest.decode(backup_id, content)

    def _no_backup(self, name: str) -> BackupError:
        return BackupError(f"{self.path} has no backup {name!r}: see `tidelog backup ls`")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self.path / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise BackupError(f"another backup to {self.path} is in progress: wait until it has ended") from None
        finally:
            os.close(descriptor)

    def _copy(self, source: Path, part: Path, facts: Facts, options: BackupOptions) -> Manifest:
        """Fill ``part``, manifest last, durable except for its name."""
        earlier = self._earlier(facts) if options.reuse != "none" else {}
        names = sorted(names_below(source))
        self._check_room(source, [name for name in names if name not in earlier])
        make_folder(part / "data" / "db")
        files = []
        for name in names:
            files.append(_take_file(source, part / "data" / name, name, earlier.get(name), options))
            hit(Failpoint.BACKUP_MID_COPY)
        for folder in (part / "data" / "db", part / "data"):
            sync_folder(folder)
        manifest = Manifest(part.name.removesuffix(_PART), options.version, facts, tuple(files))
        hit(Failpoint.BACKUP_BEFORE_MANIFEST)
        write_file(part / _MANIFEST_NAME, manifest.encode())
        sync_folder(part)
        return manifest

    def _earlier(self, facts: Facts) -> dict[str, tuple[Path, BackupFile]]:
        """Return the files of the newest backup of the same store, which may be unchanged."""
        same = [manifest for manifest in self._whole() if manifest.facts.incarnation == facts.incarnation]
        if not same:
            return {}
        newest = max(same, key=lambda manifest: manifest.facts.tick)
        data = self.data_path(newest.backup_id)
        return {file.name: (data, file) for file in newest.files if file.name.endswith(_IMMUTABLE)}

    def _check_room(self, source: Path, names: Sequence[str]) -> None:
        needed = sum((source / name).stat().st_size for name in names) + _SPARE_BYTES
        free = shutil.disk_usage(self.path).free
        if free < needed:
            raise BackupError(
                f"{self.path} has {free >> 20} MiB free, and the backup needs about {needed >> 20} MiB: free some "
                "space, or choose another folder"
            )


def open_backup_folder(path: Path, *, create: bool = False) -> BackupFolder:
    """Return the folder of backups at ``path``; with ``create``, initialize an empty or missing folder.

    Raises:
        BackupError: It is not a folder of backups.
        OSError: The system refused.
    """
    if create and (not path.exists() or _is_empty(path)):
        with backup_error_if_full(path):
            make_folder(path)
            replace_file(path / _STAMP_NAME, _STAMP)
    try:
        stamp = read_within(path, _STAMP_NAME, len(_STAMP))
    except UnexpectedFileError as error:
        raise BackupError(f"{path} is not a folder of backups: its file {_STAMP_NAME} {error}") from error
    except (FileNotFoundError, NotADirectoryError):
        raise BackupError(f"{path} is not a folder of backups: choose an empty one, or correct the path") from None
    if stamp != _STAMP:
        shown = stamp[:64].decode("ascii", "backslashreplace").strip()
        raise BackupError(f"{path} has the format {shown!r}, this program supports {_STAMP.decode().strip()!r}")
    return BackupFolder(path)


def _is_empty(path: Path) -> bool:
    """Return whether a folder is empty, or has only leftovers of an interrupted initialization."""
    return all(each.name == f"{_STAMP_NAME}.new" for each in path.iterdir())


@contextmanager
def backup_error_if_full(path: Path) -> Iterator[None]:
    """Turn the system's error for a full disk or an exceeded quota into BackupError."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise BackupError(f"the disk of {path} is full: free some space, or choose another folder") from error
        raise


def check_recovers(data: Path, manifest: Manifest, check: str = STORE_CHECK) -> None:
    """Open a copy read-only, as a start does, and compare the recovered state with the manifest.

    Raises:
        BackupDamagedError: The start would be refused, or the recovered state is another one.
    """
    facts = manifest.facts
    try:
        found = inspect_copy(data, check)
    except DataLossError as error:
        raise BackupDamagedError(f"backup {manifest.backup_id} is damaged: {error.message}") from error
    expected = (facts.incarnation, facts.sequence, facts.chain_hash, facts.last_tick, False)
    if tuple(found) != expected:
        raise BackupDamagedError(
            f"backup {manifest.backup_id} is damaged: it recovers to entry {found.sequence} at tick {found.last_tick}, "
            f"but its manifest has entry {facts.sequence} at tick {facts.last_tick}"
        )


def _take_file(
    source: Path, target: Path, name: str, earlier: tuple[Path, BackupFile] | None, options: BackupOptions
) -> BackupFile:
    """Copy the file ``name`` of the folder ``source``, or link the file of an earlier backup."""
    status = (source / name).stat()
    if earlier is not None:
        folder, file = earlier
        if _is_same(source, folder, file, options):
            os.link(folder / name, target, follow_symlinks=False)
            return BackupFile(name, file.bytes, file.blake2b, status.st_mtime_ns, is_reused=True)
    digest = copy_file(source, name, target, options.meter, status.st_size)
    return BackupFile(name, target.stat().st_size, digest, status.st_mtime_ns, is_reused=False)


def _is_same(source: Path, folder: Path, file: BackupFile, options: BackupOptions) -> bool:
    """Return whether a file of ``source`` is the one that an earlier backup has in ``folder``.

    Raises:
        BackupError: It has the same name and size but different content: RocksDB does not change such files.
    """
    status = (source / file.name).stat()
    if status.st_size != file.bytes or not _is_regular(folder / file.name, file.bytes):
        return False
    if options.reuse == "time" and status.st_mtime_ns == file.mtime_ns:
        return True
    if hash_file(source, file.name, options.meter, file.bytes) == file.blake2b:
        return True
    raise BackupError(
        f"{file.name} of the data folder differs from the previous backup, but such files never change: one of "
        "them is damaged. Run `tidelog backup verify`; if the backup is sound, restore the data folder from it"
    )


def _is_regular(path: Path, size_bytes: int) -> bool:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == size_bytes


def _id_of(facts: Facts) -> str:
    created = datetime.fromtimestamp(facts.created_ms / 1_000, UTC)
    return f"{created:%Y%m%dT%H%M%SZ}-{facts.tick}"


def damaged_file(manifest: Manifest, name: str, problem: str) -> BackupDamagedError:
    """Return the error for a file of a backup; ``problem`` is a predicate."""
    return BackupDamagedError(f"backup {manifest.backup_id} is damaged: data/{name} {problem}. Do not restore it")
