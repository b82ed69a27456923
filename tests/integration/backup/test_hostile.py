"""A backup from elsewhere can make nothing of a restore but a refusal: it writes, reads and removes nothing outside.

Method: a true backup whose manifest or files are changed by a user that can write to the folder of backups: with hashes
that fit.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from tidelog_cli.child_environment import python_path
from tidelog_cli.output.rate_meter import RateMeter
from tidelog_server.backup.folder import MAX_BACKUP_MANIFEST_BYTES, BackupFolder, BackupOptions, open_backup_folder
from tidelog_server.backup.manifest import BackupError, Facts, Manifest, _digest_of
from tidelog_server.backup.restore import restore_copy
from tidelog_testing.faults.damage import filled_store

COUNT = RateMeter(0)
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def true_backups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with one backup."""
    folder = tmp_path_factory.mktemp("true")
    store = filled_store(folder / "live", flushed=8, unflushed=8)
    path, head = store.checkpoint("c")
    facts = Facts(store.incarnation.hex(), 10_000, head.sequence, head.chain_hash.hex(), head.last_tick, 1_700_000_000)
    open_backup_folder(folder / "backups", create=True).take(path, facts, BackupOptions("1.0", COUNT))
    store.close()
    return folder / "backups"


@pytest.fixture
def backups(true_backups: Path, tmp_path: Path) -> BackupFolder:
    """Return a copy of it to change."""
    shutil.copytree(true_backups, tmp_path / "backups")
    return open_backup_folder(tmp_path / "backups")


def the_manifest(backups: BackupFolder) -> Manifest:
    return backups.manifest(None)


def forge(backups: BackupFolder, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest, and make its hash fit."""
    path = backups.path / the_manifest(backups).backup_id / "manifest.json"
    fields = json.loads(path.read_bytes())
    del fields["digest"]
    change(fields)
    path.write_text(json.dumps({**fields, "digest": _digest_of(fields)}))


def refuse(backups: BackupFolder, target: Path) -> str:
    """Restore and verify, which must be refused alike; return why."""
    with pytest.raises(BackupError):
        manifest = backups.manifest(None) if len(backups.listed()) else the_manifest(backups)
        backups.check_files(manifest, COUNT)
    backup_id = backups.listed()[0].backup_id
    with pytest.raises(BackupError) as refusal:
        restore_copy(backups, backups.manifest(backup_id), target, COUNT)
    assert not target.exists()
    assert not list(target.parent.glob(".*.restoring"))
    return str(refusal.value)


def test_a_true_backup_is_restored(backups: BackupFolder, tmp_path: Path) -> None:
    manifest = the_manifest(backups)
    backups.check_files(manifest, COUNT)
    restore_copy(backups, manifest, tmp_path / "restored", COUNT)
    assert (tmp_path / "restored" / "FORMAT").is_file()


@pytest.mark.parametrize(
    "name",
    [
        "../../evil", "db/../../evil", "/tmp/evil", "db/evil", "evil", "db//000001.sst", "db/000001.sst\0", "LOCK", "",
        "db/1.sst/x", "quarantine/1", ".", "db/000001.sst\n", "db/\u0661.sst",
    ],
)  # fmt: skip
def test_a_name_that_no_backup_has_is_refused(backups: BackupFolder, tmp_path: Path, name: str) -> None:
    evil = b"evil"
    entry = {
        "name": name, "bytes": len(evil), "blake2b": blake2b(evil, digest_size=32).hexdigest(), "mtime_ns": 0,
        "is_reused": False,
    }  # fmt: skip
    (backups.path / "evil").write_bytes(evil)
    before = {path for path in tmp_path.rglob("*") if "restored" not in path.name}
    forge(backups, lambda fields: fields["files"].append(entry))
    assert "which is invalid" in refuse(backups, tmp_path / "into" / "restored")
    assert {path for path in tmp_path.rglob("*") if path.name not in ("into", "manifest.json")} | {
        path for path in before if path.name == "manifest.json"
    } == before


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("facts", "tick", "x"), ("facts", "tick", True), ("facts", "tick", -1), ("facts", "tick", 1.5),
        ("facts", "sequence", None), ("facts", "last_tick", 1 << 64), ("facts", "incarnation", "00"),
        ("facts", "chain_hash", 7), ("facts", "created_ms", []), ("files", "bytes", -1), ("files", "bytes", 1 << 60),
        ("files", "blake2b", "x"), ("files", "name", 7), ("files", "name", ["FORMAT"]), ("files", "mtime_ns", "0"),
        ("files", "is_reused", 1), ("", "version", 7), ("", "version", "1\x1b[2J"), ("", "backup_id", "../x"),
        ("", "files", {}), ("", "facts", []), ("", "more", 1),
    ],
)  # fmt: skip
def test_a_value_that_no_backup_has_is_refused(
    backups: BackupFolder, tmp_path: Path, part: str, field: str, value: object
) -> None:
    def change(fields: dict[str, Any]) -> None:
        place = {"": fields, "facts": fields["facts"], "files": fields["files"][0]}[part]
        place[field] = value

    forge(backups, change)
    assert "cannot be read" in refuse(backups, tmp_path / "restored")


def test_a_file_that_is_named_twice_is_refused(backups: BackupFolder, tmp_path: Path) -> None:
    forge(backups, lambda fields: fields["files"].append(dict(fields["files"][0])))
    assert "twice" in refuse(backups, tmp_path / "restored")


def test_a_manifest_that_is_nested_deeply_or_endless_is_refused(backups: BackupFolder, tmp_path: Path) -> None:
    path = backups.path / the_manifest(backups).backup_id / "manifest.json"
    for content in (b"[" * 100_000, b'{"a":' * 100_000, b"\0" * 100, b"", b"null"):
        path.write_bytes(content)
        refuse(backups, tmp_path / "restored")
    with path.open("wb") as file:
        file.truncate(MAX_BACKUP_MANIFEST_BYTES + 1)
    assert "more than its" in refuse(backups, tmp_path / "restored")


def stand_in(kind: str, path: Path, elsewhere: Path) -> None:
    """Put something that is no regular file in the place of ``path``."""
    path.unlink()
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "endless":
            path.symlink_to("/dev/zero")
        case "device":
            os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
        case "link":
            path.symlink_to(elsewhere)
        case "socket":
            os.mknod(path, 0o600 | stat.S_IFSOCK)
        case _:
            path.mkdir()


@pytest.mark.parametrize("kind", ["pipe", "endless", "device", "link", "socket", "folder"])
@pytest.mark.parametrize("name", ["data/HEAD", "data/db/CURRENT", "manifest.json"])
def test_what_is_no_regular_file_is_refused_without_being_read(
    backups: BackupFolder, tmp_path: Path, kind: str, name: str
) -> None:
    path = backups.path / the_manifest(backups).backup_id / name
    (tmp_path / "elsewhere").write_bytes(path.read_bytes())
    stand_in(kind, path, tmp_path / "elsewhere")
    refuse(backups, tmp_path / "restored")


@pytest.mark.parametrize("level", ["", "data", "data/db"])
def test_a_folder_of_a_backup_that_is_a_link_is_refused(backups: BackupFolder, tmp_path: Path, level: str) -> None:
    folder = backups.path / the_manifest(backups).backup_id / level
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    refuse(backups, tmp_path / "restored")


def test_a_file_that_is_longer_than_declared_is_not_copied_on(backups: BackupFolder, tmp_path: Path) -> None:
    with (backups.data_path(the_manifest(backups).backup_id) / "HEAD").open("ab") as file:
        file.truncate(1 << 40)
    assert "HEAD" in refuse(backups, tmp_path / "restored")


def test_a_later_backup_links_no_link(backups: BackupFolder, tmp_path: Path) -> None:
    manifest = the_manifest(backups)
    table = next(file for file in manifest.files if file.name.endswith(".sst"))
    path = backups.data_path(manifest.backup_id) / table.name
    (tmp_path / "elsewhere").write_bytes(path.read_bytes())
    source = tmp_path / "source"
    subprocess.run(["cp", "-a", backups.data_path(manifest.backup_id), source], check=True)
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    later = replace(manifest.facts, tick=manifest.facts.tick + 1)
    taken = backups.take(source, later, BackupOptions("1.0", COUNT))
    backups.check_files(taken, COUNT)


@pytest.mark.parametrize("kind", ["link", "file", "foreign"])
def test_what_lies_where_a_restore_works_is_not_touched(backups: BackupFolder, tmp_path: Path, kind: str) -> None:
    workshop, precious = tmp_path / ".restored.restoring", tmp_path / "precious"
    precious.mkdir()
    (precious / "letter").write_text("Dear Sir")
    match kind:
        case "link":
            workshop.symlink_to(precious)
        case "file":
            workshop.write_text("Dear Sir")
        case _:
            precious.rename(workshop)
            os.chown(workshop, 65_534, 65_534)
    with pytest.raises(BackupError, match="remove it first"):
        restore_copy(backups, the_manifest(backups), tmp_path / "restored", COUNT)
    assert list(tmp_path.rglob("letter")) or workshop.read_text() == "Dear Sir"


def test_a_link_left_in_the_workshop_is_removed_and_not_followed(backups: BackupFolder, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "letter").write_text("Dear Sir")
    (tmp_path / ".restored.restoring").mkdir()
    (tmp_path / ".restored.restoring" / "db").symlink_to(precious)
    restore_copy(backups, the_manifest(backups), tmp_path / "restored", COUNT)
    assert (precious / "letter").read_text() == "Dear Sir"


@pytest.mark.parametrize("mask", [0, 0o022, 0o277])
def test_folders_are_for_their_owner_only_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    program = (
        "import os, sys; from pathlib import Path\n"
        f"os.umask({mask})\n"
        "from tidelog_server.backup.folder import BackupOptions, open_backup_folder\n"
        "from tidelog_server.backup.manifest import Facts\n"
        "from tidelog_server.backup.restore import restore_copy\n"
        "from tidelog_testing.faults.damage import filled_store\n"
        "folder, count = Path(sys.argv[1]), lambda _: None\n"
        "store = filled_store(folder / 'new' / 'live', flushed=8, unflushed=0)\n"
        "path, head = store.checkpoint('c')\n"
        "facts = Facts(store.incarnation.hex(), 9, head.sequence, head.chain_hash.hex(), head.last_tick, 1)\n"
        "backups = open_backup_folder(folder / 'deep' / 'backups', create=True)\n"
        "manifest = backups.take(path, facts, BackupOptions('1.0', count))\n"
        "restore_copy(backups, manifest, folder / 'far' / 'restored', count)\n"
        "store.close()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": python_path()}, check=True)
    folders = [path for name in ("new", "deep", "far") for path in ((tmp_path / name), *(tmp_path / name).rglob("*"))]
    # RocksDB makes that of a checkpoint; it lies in one of ours.
    ours = [path for path in folders if path.is_dir() and "checkpoints/c/db" not in str(path)]
    modes = {str(path): path.stat().st_mode & 0o777 for path in ours}
    assert set(modes.values()) == {0o700}, modes
    assert len(modes) >= 9
