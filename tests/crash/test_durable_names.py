"""Everything that must be found again has a durable name on every level: its folder is synced after the call.

Method: strace records the system calls of a program that makes a store, a backup, a restored folder and an archive,
each below folders that do not exist. Nothing is replaced: these are the calls that the disk gets.

Promises of docs/reference/guarantees.md: G1.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog_cli.child_environment import python_path
from tidelog_testing.faults.system_faults import require_strace

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]

PROGRAM = """
import sys
from pathlib import Path
from tidelog_testing.faults.damage import filled_store
from tidelog.spark.archive import manifest
from tidelog.spark.archive.manifest import ArchivedRange, Commit
from tidelog_server.backup.folder import BackupOptions, open_backup_folder
from tidelog_server.backup.manifest import Facts
from tidelog_server.storage.format.cluster_file import ClusterIdentity, write_identity
from tidelog_server.storage.format.data_folder import note_backup
from tidelog_server.backup.restore import restore_copy

base, count = Path(sys.argv[1]), lambda _: None
store = filled_store(base / "new" / "levels" / "data", flushed=4, unflushed=4)
path, head = store.checkpoint("c")
facts = Facts(store.incarnation.hex(), 9, head.sequence, head.chain_hash.hex(), head.last_tick, 1)
backups = open_backup_folder(base / "deep" / "backups", create=True)
taken = backups.take(path, facts, BackupOptions("1.0", count))
restore_copy(backups, taken, base / "far" / "away" / "restored", count)
note_backup(store.folder, 1)
write_identity(store.folder, ClusterIdentity("0123456789abcdef", "n1", 7))
store.close()
archive = base / "more" / "archive"
with manifest.writing(archive):
    manifest.make_folder(archive / manifest.vchannel_folder("a/0"))
    manifest.append(archive, Commit(1, "run", "now", {"a/0": ArchivedRange(0, 9, 1)}, ()))
"""
CALLS = "mkdir,mkdirat,rename,renameat,renameat2,link,linkat,openat,fsync"
CALL = re.compile(r"(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)")
TEXT = re.compile(r'"([^"]*)"')
SYNCED = re.compile(r"\d+<([^>]*)>")
# Temporary files of a start or a restore, RocksDB's own files (it syncs its folder), and files that may be lost.
PASSING = re.compile(r"/view-|tidelog-view|/checkpoints/|/db/|\.new$|/lock$|/LOCK$|/\.[0-9a-f]{32}$|/quarantine/")


def events(report: Path, base: Path) -> Iterator[tuple[str, str]]:
    """Yield, in order, names that were made (``made`` and the path) and folders that were synced (``synced``)."""
    for line in report.read_text(errors="replace").splitlines():
        call = CALL.match(line)
        if call is None or int(call[3]) < 0:
            continue
        name, arguments = call[1], call[2]
        if name == "fsync":
            if synced := SYNCED.match(arguments):
                yield "synced", synced[1]
            continue
        if name == "openat" and "O_CREAT" not in arguments:
            continue
        paths = TEXT.findall(arguments)
        if paths and paths[-1].startswith(f"{base}/") and not PASSING.search(paths[-1]):
            yield "made", paths[-1]


def test_the_name_of_whatever_is_made_is_synced_in_its_folder(tmp_path: Path) -> None:
    report, base = tmp_path / "strace.txt", tmp_path / "base"
    base.mkdir()
    strace = [require_strace(), "-f", "-y", "-e", f"trace={CALLS}", "-o", str(report)]
    command = [*strace, sys.executable, "-c", PROGRAM, str(base)]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": python_path()}, check=True)
    found = list(events(report, base))
    made = {path: number for number, (what, path) in enumerate(found) if what == "made"}
    last_synced = {path: number for number, (what, path) in enumerate(found) if what == "synced"}
    unsynced = [path for path, number in made.items() if last_synced.get(str(Path(path).parent), -1) < number]
    assert unsynced == []
    names = {path.removeprefix(f"{base}/") for path in made}
    assert {
        "new", "new/levels", "new/levels/data", "new/levels/data/db", "new/levels/data/FORMAT", "new/levels/data/HEAD",
        "new/levels/data/LAST_BACKUP", "new/levels/data/CLUSTER", "deep", "deep/backups", "deep/backups/BACKUPS", "far",
        "far/away", "far/away/restored", "more", "more/archive", "more/archive/_tidelog",
        "more/archive/_tidelog/00000000000000000001.json", "more/archive/data/channel=a/vchannel=0",
    } <= names  # fmt: skip
    assert any(name.startswith("deep/backups/") and name.endswith("-9") for name in names)
