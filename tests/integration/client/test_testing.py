"""``tidelog.testing`` for users' tests. Method: a test file as a user writes it, run by pytest in a process."""

import os
import subprocess
import sys
from pathlib import Path

from tidelog import AsyncClient, Client
from tidelog.testing import server, start_server

THEIR_TESTS = """
def test_one(tidelog_client):
    tidelog_client.create_channel("orders")
    assert tidelog_client.append("orders", b"a").first_tick

async def test_two(tidelog_async_client):
    assert [channel async for channel in tidelog_async_client.list_channels()] == []
"""


def test_the_fixtures_give_each_test_a_server_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(THEIR_TESTS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", str(tmp_path)],
        capture_output=True, text=True, env=environment, cwd=tmp_path, check=False,
    )  # fmt: skip

    assert "2 passed" in run.stdout, run.stdout + run.stderr


def test_a_folder_keeps_the_log_between_two_servers(tmp_path: Path) -> None:
    for payload in (b"a", b"b"):
        with start_server(tmp_path / "log") as running, Client(running.endpoint) as client:
            client.create_channel("orders", if_not_exists=True)
            client.append("orders", payload)

    with start_server(tmp_path / "log") as running, Client(running.endpoint) as client:
        assert [stored for batch in client.scan("orders") for stored in batch.payloads] == [b"a", b"b"]


async def test_the_context_manager_yields_a_client() -> None:
    async with server() as client:
        assert isinstance(client, AsyncClient)
        assert await client.wal_name() == "memory"


def test_stopping_twice_is_stopping_once() -> None:
    running = start_server()

    running.stop()
    running.stop()


def test_what_the_server_lacks_is_named_with_the_command_that_installs_it() -> None:
    program = "import sys; sys.modules['structlog'] = None; from tidelog.testing import start_server; start_server()"

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip

    assert done.stderr.endswith(
        "RuntimeError: the Tidelog server needs structlog, which is not installed: run `pip install '.[server]'` "
        "in a clone of Tidelog\n"
    )
