"""A server on a log that another process may claim keeps every promise if it dies between two steps, or loses the log.

Method: the storm of ``test_kill_storm``, on a log in a folder. Each server has a view of its own, an earlier one, or
none. ``test_engine_storm`` has owners that are stopped, or continue.

Promises of docs/reference/guarantees.md: G1, G2, G3, G5, G7, G8.
"""

import random
from pathlib import Path
from typing import Final

import pytest

from tidelog import AsyncClient, OwnershipLostError
from tidelog_cli.exit_codes import ExitCode
from tidelog_server.runtime.failpoints import VARIABLE, Failpoint
from tidelog_testing.loads.storm import Storm
from tidelog_testing.parts.engine_stores import create_log
from tidelog_testing.parts.folder_engine import FolderEngine
from tidelog_testing.servers.contenders import SingleContenders
from tidelog_testing.servers.on_folder import LOSE, server_on_folder, use_folder_and_lose_it
from tidelog_testing.servers.processes import ServerDiedError

pytestmark = pytest.mark.crash

_POINTS: Final = ("before_write", "after_write_before_sync", "after_sync_before_ack")
_SNAPSHOT_POINTS: Final = ("engine_snapshot_part", "engine_snapshot_named")


async def test_a_server_that_dies_between_two_steps_of_an_append_keeps_every_promise(tmp_path: Path) -> None:
    assert {*_POINTS, *_SNAPSHOT_POINTS} <= set(Failpoint)
    seed = random.randrange(1 << 32)
    storm = Storm(tmp_path / "storm", seed)
    create_log(FolderEngine(tmp_path / "log"))
    with SingleContenders.on_folder(tmp_path, seed) as contenders:
        server = contenders.start()
        await storm.prepare(server)
        server.kill()
        for point in _POINTS:
            server = contenders.start({VARIABLE: f"{point}:{storm.random.randint(20, 60)}"})
            await storm.judge(server)
            await storm.run_until_killed(server, lambda: None)
        for point in _SNAPSHOT_POINTS:
            # One may be due as the server starts. The next server is judged: this one may die meanwhile.
            await storm.run_until_killed(contenders.start({VARIABLE: f"{point}:3"}), lambda: None)
        await storm.judge(contenders.start())


def test_a_server_whose_log_is_claimed_while_it_starts_does_not_take_it_back(tmp_path: Path) -> None:
    create_log(FolderEngine(tmp_path / "log"))
    with pytest.raises(ServerDiedError) as died:
        server_on_folder(tmp_path / "log", tmp_path / "view", prepare=use_folder_and_lose_it).kill()
    assert died.value.code == ExitCode.LOG_CLAIMED, died.value.errors
    assert "another process has claimed the log" in died.value.errors


async def test_a_server_that_loses_a_record_ends_and_the_next_one_continues(tmp_path: Path) -> None:
    create_log(FolderEngine(tmp_path / "log"))
    with server_on_folder(tmp_path / "log", tmp_path / "view") as server:
        async with AsyncClient(server.grpc) as client:
            await client.create_channel("orders")
            (tmp_path / "log" / LOSE).touch()
            with pytest.raises(OwnershipLostError, match="has a record of this process") as raised:
                await client.append("orders/0", b"lost")
            assert raised.value.effect == "unknown"
        # No other process has the log, so a supervisor may start this one again.
        assert server.wait() == ExitCode.STORAGE_FAILED
        assert "it is unknown whether the log 'test-log' has a record of this process" in server.errors
        assert "Check Kafka and the disk, then restart the server" in server.errors
    with server_on_folder(tmp_path / "log", tmp_path / "view") as server:
        async with AsyncClient(server.grpc) as client:
            await client.append("orders/0", b"next")
            found = [row.payload async for batch in client.scan("orders/0") for row in batch]
    # It was stored, and not acknowledged.
    assert found == [b"lost", b"next"]
