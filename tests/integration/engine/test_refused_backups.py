"""What needs a data folder is refused by name with a log in an engine: checkpoints, backups, restores to a tick.

Method: a server on a log in a folder. `tidelog engine export` makes the data folder: see `tests/integration/kafka`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, Client
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.on_folder import Owners, server_on_folder
from tidelog_testing.servers.processes import ServerDiedError, ServerProcess, refused_start

WHY = "its log is in engine, and its data folder is a view; `tidelog engine export` makes a data folder of the log"


def files_of(folder: Path) -> dict[str, bytes]:
    """Return all of a folder but its lock, which has the id of the last process."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if name != "LOCK"}


@pytest.fixture
def owners(tmp_path: Path) -> Iterator[Owners]:
    with Owners(tmp_path) as running:
        yield running


async def test_a_checkpoint_is_refused_and_appends_go_on(owners: Owners) -> None:
    async with AsyncClient(owners.server.grpc) as client:
        await client.create_channel("orders")
        for _ in range(2):
            with pytest.raises(tidelog.CheckpointUnsupportedError, match=WHY) as refused:
                await client.create_checkpoint()
            assert refused.value.effect == "none"
            await client.append("orders", b"after")
        assert await client.list_checkpoints() == []


def test_a_backup_is_refused_and_there_is_none_to_restore_to_a_tick(owners: Owners, tmp_path: Path) -> None:
    backups = str(tmp_path / "backups")
    refused = run_command(["backup", "create", backups, "--endpoint", owners.server.grpc])
    assert refused.returncode == ExitCode.CONFLICT, refused.stderr
    assert WHY in refused.stderr.decode()
    assert run_command(["backup", "ls", backups]).stdout == b""
    for arguments in ([], ["--to-tick", "1"]):
        restored = run_command(["backup", "restore", backups, str(tmp_path / "restored"), *arguments])
        assert restored.returncode != ExitCode.OK
    assert not (tmp_path / "restored").exists()


def test_a_view_is_no_data_folder_and_a_data_folder_is_no_view(owners: Owners, tmp_path: Path) -> None:
    with Client(owners.server.grpc) as client:
        client.create_channel("orders")
    owners.kill()
    view, data = owners.view, tmp_path / "data"
    before = files_of(view)
    died = refused_start(view, {})
    assert (died.code, "is the view of a log" in died.errors) == (ExitCode.DATA_DIR_UNUSABLE, True), died.errors
    assert files_of(view) == before

    ServerProcess(data).kill()
    before = files_of(data)
    with pytest.raises(ServerDiedError) as other:
        server_on_folder(tmp_path / "log", data)
    assert other.value.code == ExitCode.DATA_DIR_UNUSABLE
    assert "is a data folder, which is not the view of a log" in other.value.errors
    assert files_of(data) == before
