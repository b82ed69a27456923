"""A backup or a restore that is killed, or hits a full disk, leaves nothing that counts as complete.

Method: real processes that kill themselves at a failpoint, or whose system calls fail by strace's injection; the
remains are then listed, verified, and used by the next run.
"""

import asyncio
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tidelog import AsyncClient
from tidelog_cli.child_environment import child_environment
from tidelog_server.backup.folder import open_backup_folder
from tidelog_server.runtime.failpoints import VARIABLE, Failpoint
from tidelog_testing.faults.system_faults import injected, injection, require_strace
from tidelog_testing.loads.storm import KILLED
from tidelog_testing.servers.commands import COMMAND
from tidelog_testing.servers.processes import ServerProcess

pytestmark = pytest.mark.crash


def run(*arguments: object, point: str = "", wrapper: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    environment = child_environment() | ({VARIABLE: point} if point else {})
    command = [*wrapper, *COMMAND, "backup", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240, check=False)


def succeeds(*arguments: object) -> None:
    done = run(*arguments)
    assert done.returncode == 0, done.stderr


async def fill(server: ServerProcess, channel: str) -> None:
    async with AsyncClient(server.grpc) as client:
        await client.create_channel(channel)
        for number in range(20):
            await client.append(channel, [b"%d" % number * 1_000])


async def count(server: ServerProcess, channel: str) -> int:
    async with AsyncClient(server.grpc) as client:
        return sum([len(batch) async for batch in client.scan(channel)])


@pytest.mark.parametrize(
    "point", [f"{Failpoint.BACKUP_MID_COPY}:4", Failpoint.BACKUP_BEFORE_MANIFEST, Failpoint.BACKUP_BEFORE_RENAME]
)
def test_a_backup_that_is_killed_is_none(tmp_path: Path, point: str) -> None:
    folder = tmp_path / "backups"
    with ServerProcess(tmp_path / "log") as server:
        asyncio.run(fill(server, "a"))
        succeeds("create", folder, "--endpoint", server.grpc)
        asyncio.run(fill(server, "b"))

        assert run("create", folder, "--endpoint", server.grpc, point=point).returncode == KILLED

        assert len(open_backup_folder(folder).listed()) == 1
        assert len(list(folder.glob("*.part"))) == 1
        succeeds("verify", folder, "--all")
        # The checkpoint of the killed run exists until its lease expires; one more is allowed.
        succeeds("create", folder, "--endpoint", server.grpc)
    assert list(folder.glob("*.part")) == []
    assert len(open_backup_folder(folder).listed()) == 2
    succeeds("verify", folder, "--all")


def test_a_server_that_dies_amid_a_checkpoint_starts_again_without_it(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "log", env={VARIABLE: Failpoint.MID_CHECKPOINT}) as server:
        asyncio.run(fill(server, "a"))
        failed = run("create", tmp_path / "backups", "--endpoint", server.grpc)
        assert server.wait() == KILLED
    assert failed.returncode == 6
    assert open_backup_folder(tmp_path / "backups").listed() == []
    assert len(list((tmp_path / "log" / "checkpoints").iterdir())) == 1
    with ServerProcess(tmp_path / "log") as server:
        assert not (tmp_path / "log" / "checkpoints").exists()
        assert asyncio.run(count(server, "a")) == 20


@pytest.mark.parametrize(
    ("point", "options"),
    [
        (f"{Failpoint.RESTORE_MID_COPY}:3", ()),
        (Failpoint.RESTORE_BEFORE_RENAME, ()),
        (Failpoint.RESTORE_BEFORE_RENAME, ("--to-tick", "1")),
    ],
)
def test_a_restore_that_is_killed_leaves_no_folder(tmp_path: Path, point: str, options: tuple[str, ...]) -> None:
    folder, target = tmp_path / "backups", tmp_path / "restored"
    with ServerProcess(tmp_path / "log") as server:
        asyncio.run(fill(server, "a"))
        succeeds("create", folder, "--endpoint", server.grpc)

    assert run("restore", folder, target, *options, point=point).returncode == KILLED
    assert not target.exists()

    succeeds("restore", folder, target, *options)
    assert list(tmp_path.glob(".restored*")) == []
    with ServerProcess(target) as server:
        assert asyncio.run(count(server, "a")) == (0 if options else 20)


def test_a_full_disk_leaves_no_backup_and_no_restored_folder(tmp_path: Path) -> None:
    folder, target, report = tmp_path / "backups", tmp_path / "restored", tmp_path / "strace"
    full = [require_strace(), "-f", "-o", str(report), *injection("fdatasync,fsync", "ENOSPC", "6+")]
    # Made before, because making the folder syncs each level above it.
    open_backup_folder(folder, create=True)
    with ServerProcess(tmp_path / "log") as server:
        asyncio.run(fill(server, "a"))
        failed = run("create", folder, "--endpoint", server.grpc, wrapper=full)
        assert injected(report) > 0
        assert failed.returncode == 1
        assert "is full: free some space" in failed.stderr
        assert open_backup_folder(folder).listed() == []
        assert list(folder.glob("*.part")) == []
        succeeds("create", folder, "--endpoint", server.grpc)

    failed = run("restore", folder, target, wrapper=full)

    assert injected(report) > 0
    assert failed.returncode == 1
    assert "is full: free some space" in failed.stderr
    assert not target.exists()
    assert list(tmp_path.glob(".restored*")) == []
