"""The folder of backups: taking one, listing them, and proving that one is what it was.

::

    BACKUPS               one line that names the format
    LOCK                  held with flock by the one program that takes a backup
    <id>/manifest.json    see backup_manifest
    <id>/data/            a data folder: FORMAT, HEAD, db/
    <id>.part/            a backup that is being taken, or whose taking was cut off

A backup is whole once its folder has its name, which is the last step. Each is complete in itself: what it shares with
an earlier one is a second link to the same file, so any of them may be removed.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from tidelog_server.core.errors import DataLossError
from tidelog_server.core.limits import MIB
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.storage.backup_files import Meter, copy_file, hash_file
from tidelog_server.storage.backup_manifest import (
    BackupDamagedError,
    BackupError,
    BackupFile,
    Facts,
    Manifest,
)
from tidelog_server.storage.durable_files import sync_folder, write_file
from tidelog_server.storage.start_gate import inspect_copy

_STAMP: Final = b"tidelog backups format 1\n"
_STAMP_NAME: Final = "BACKUPS"
_LOCK_NAME: Final = "LOCK"
_PART: Final = ".part"
_MANIFEST_NAME: Final = "manifest.json"
# RocksDB never changes them once they are in a checkpoint.
_IMMUTABLE: Final = (".sst", ".blob")
# Left free on the disk of the backups.
_SPARE_BYTES: Final = 64 * MIB


@dataclass(frozen=True, slots=True)
class Listed:
    """A backup as it is listed: its manifest, or what is wrong with that."""

    backup_id: str
    manifest: Manifest | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Taking:
    """How a backup is taken.

    Attributes:
        version: Of this software.
        meter: Told of each block that is read.
        reuse: Files of the newest backup of the same store are linked instead of copied: with ``hash`` those with
            equal name, size and hash, which reads all of them; with ``time`` those with equal name, size and time of
            change, unread; with ``none`` no file.
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

    def listed(self) -> list[Listed]:
        """Return all backups, oldest first; whose taking was cut off are none.

        Raises:
            OSError: The folder cannot be read.
        """
        names = [path.name for path in self.path.iterdir() if path.is_dir() and not path.name.endswith(_PART)]
        return [self._listed(name) for name in sorted(names)]

    def manifest(self, backup_id: str | None) -> Manifest:
        """Return the manifest of a backup; of the newest whole one if None.

        Raises:
            BackupError: There is none, or none of this name.
            BackupDamagedError: It cannot be read.
        """
        if backup_id is not None:
            return self._manifest(backup_id)
        whole = [each.manifest for each in self.listed() if each.manifest is not None]
        if not whole:
            raise BackupError(f"{self.path} holds no backup: take one with `tidelog backup create`")
        return max(whole, key=lambda manifest: manifest.facts.tick)

    def take(self, source: Path, facts: Facts, taking: Taking) -> Manifest:
        """Copy a checkpoint and return what was taken.

        Args:
            source: The checkpoint; nothing in it changes meanwhile.
            facts: What it holds.
            taking: How.

        Raises:
            BackupError: Another one is being taken, the disk is full, or a file is not the one that it was.
            OSError: The system refused.
        """
        backup_id = _id_of(facts)
        with self._locked():
            if (self.path / backup_id).exists():
                raise BackupError(f"backup {backup_id} is there already: this very state was backed up before")
            for left_behind in self.path.glob(f"*{_PART}"):
                shutil.rmtree(left_behind)
            part = self.path / (backup_id + _PART)
            try:
                manifest = self._copy(source, part, facts, taking)
            except OSError as error:
                shutil.rmtree(part, ignore_errors=True)
                if error.errno == errno.ENOSPC:
                    raise _disk_full(self.path) from error
                raise
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
            BackupDamagedError: One is missing, too many, or not what it was; named.
        """
        data = self.data_path(manifest.backup_id)
        found = set(_names(data))
        for file in manifest.files:
            if file.name not in found:
                raise _damaged(manifest, file.name, "is missing")
            size_bytes = (data / file.name).stat().st_size
            if size_bytes != file.bytes:
                raise _damaged(manifest, file.name, f"has {size_bytes} bytes instead of {file.bytes}")
            try:
                digest = hash_file(data / file.name, meter)
            except OSError as error:
                raise _damaged(manifest, file.name, f"cannot be read ({error.strerror})") from error
            if digest != file.blake2b:
                raise _damaged(manifest, file.name, "has another content than when it was taken")
        if strangers := sorted(found - {file.name for file in manifest.files}):
            raise _damaged(manifest, strangers[0], "is not part of it")

    def check_recovers(self, manifest: Manifest) -> None:
        """Open a backup read-only as a start would, and compare what it recovers to with the manifest.

        Raises:
            BackupDamagedError: It would be refused, or is another one.
        """
        check_recovers(self.data_path(manifest.backup_id), manifest)

    def _listed(self, name: str) -> Listed:
        try:
            return Listed(name, self._manifest(name))
        except BackupError as error:
            return Listed(name, None, str(error))

    def _manifest(self, backup_id: str) -> Manifest:
        try:
            content = (self.path / backup_id / _MANIFEST_NAME).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            if (self.path / backup_id).is_dir() and not backup_id.endswith(_PART):
                raise BackupDamagedError(f"backup {backup_id} is damaged: manifest.json is missing") from None
            raise BackupError(f"{self.path} holds no backup {backup_id}: see `tidelog backup ls`") from None
        return Manifest.decode(backup_id, content)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self.path / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise BackupError(f"another backup is being taken in {self.path}: wait until it has ended") from None
        finally:
            os.close(descriptor)

    def _copy(self, source: Path, part: Path, facts: Facts, taking: Taking) -> Manifest:
        """Fill ``part``, its manifest last, durably but for its name."""
        earlier = self._earlier(facts) if taking.reuse != "none" else {}
        names = sorted(_names(source))
        self._check_room(source, [name for name in names if name not in earlier])
        (part / "data" / "db").mkdir(parents=True, mode=0o700)
        files = []
        for name in names:
            files.append(_take_file(source / name, part / "data" / name, name, earlier.get(name), taking))
            hit(Failpoint.BACKUP_MID_COPY)
        for folder in (part / "data" / "db", part / "data"):
            sync_folder(folder)
        manifest = Manifest(part.name.removesuffix(_PART), taking.version, facts, tuple(files))
        hit(Failpoint.BACKUP_BEFORE_MANIFEST)
        write_file(part / _MANIFEST_NAME, manifest.encode())
        sync_folder(part)
        return manifest

    def _earlier(self, facts: Facts) -> dict[str, tuple[Path, BackupFile]]:
        """Return the files of the newest backup of the same store that may be the same still."""
        same = [each.manifest for each in self.listed() if each.manifest is not None]
        same = [manifest for manifest in same if manifest.facts.incarnation == facts.incarnation]
        if not same:
            return {}
        newest = max(same, key=lambda manifest: manifest.facts.tick)
        data = self.data_path(newest.backup_id)
        return {file.name: (data / file.name, file) for file in newest.files if file.name.endswith(_IMMUTABLE)}

    def _check_room(self, source: Path, names: Sequence[str]) -> None:
        needed = sum((source / name).stat().st_size for name in names) + _SPARE_BYTES
        free = shutil.disk_usage(self.path).free
        if free < needed:
            raise BackupError(
                f"{self.path} has {free >> 20} MiB free and the backup takes about {needed >> 20} MiB: make room, or "
                "choose another folder"
            )


def open_backup_folder(path: Path, *, create: bool = False) -> BackupFolder:
    """Return the folder of backups at ``path``; with ``create`` an empty or missing one becomes one.

    Raises:
        BackupError: It is none.
        OSError: The system refused.
    """
    stamp_path = path / _STAMP_NAME
    if create and (not path.exists() or not any(path.iterdir())):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(stamp_path, _STAMP)
        sync_folder(path)
    try:
        stamp = stamp_path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise BackupError(f"{path} is no folder of backups: choose an empty one, or correct the path") from None
    if stamp != _STAMP:
        shown = stamp[:64].decode("ascii", "backslashreplace").strip()
        raise BackupError(f"{path} has the format {shown!r}, this program knows {_STAMP.decode().strip()!r}")
    return BackupFolder(path)


def check_recovers(data: Path, manifest: Manifest) -> None:
    """Open a copy read-only as a start would, and compare what it recovers to with the manifest.

    Raises:
        BackupDamagedError: It would be refused, or is another one.
    """
    facts = manifest.facts
    try:
        found = inspect_copy(data)
    except DataLossError as error:
        raise BackupDamagedError(f"backup {manifest.backup_id} is damaged: {error.message}") from error
    expected = (facts.incarnation, facts.sequence, facts.chain_hash, facts.last_tick, False)
    if tuple(found) != expected:
        raise BackupDamagedError(
            f"backup {manifest.backup_id} is damaged: it recovers to entry {found.sequence} at tick {found.last_tick}, "
            f"its manifest tells of entry {facts.sequence} at tick {facts.last_tick}"
        )


def _take_file(
    source: Path, target: Path, name: str, earlier: tuple[Path, BackupFile] | None, taking: Taking
) -> BackupFile:
    status = source.stat()
    if earlier is not None:
        path, file = earlier
        if _is_same(source, path, file, taking):
            target.hardlink_to(path)
            return BackupFile(name, file.bytes, file.blake2b, status.st_mtime_ns, is_reused=True)
    digest = copy_file(source, target, taking.meter)
    return BackupFile(name, target.stat().st_size, digest, status.st_mtime_ns, is_reused=False)


def _is_same(source: Path, path: Path, file: BackupFile, taking: Taking) -> bool:
    """Tell whether a file is the one that an earlier backup has.

    Raises:
        BackupError: It has the same name and size but another content: RocksDB does not change such files.
    """
    status = source.stat()
    if status.st_size != file.bytes or not path.is_file() or path.stat().st_size != file.bytes:
        return False
    if taking.reuse == "time" and status.st_mtime_ns == file.mtime_ns:
        return True
    if hash_file(source, taking.meter) == file.blake2b:
        return True
    raise BackupError(
        f"{file.name} of the data folder is not what it was in the backup before, and such files never change: one of "
        "them is damaged. Run `tidelog backup verify`; if that finds nothing, the data folder is: restore it"
    )


def _disk_full(path: Path) -> BackupError:
    return BackupError(f"the disk of {path} is full: make room, or choose another folder")


def _id_of(facts: Facts) -> str:
    created = datetime.fromtimestamp(facts.created_ms / 1_000, UTC)
    return f"{created:%Y%m%dT%H%M%SZ}-{facts.tick}"


def _names(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()]


def _damaged(manifest: Manifest, name: str, problem: str) -> BackupDamagedError:
    return BackupDamagedError(f"backup {manifest.backup_id} is damaged: data/{name} {problem}. Do not restore it")
