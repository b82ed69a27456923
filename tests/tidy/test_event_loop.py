"""The product's processes run on uvloop; only what measures or tests asyncio's own loop starts that one."""

import asyncio
from pathlib import Path

import uvloop

from tidelog_cli import event_loop
from tidy.tree import ROOT, python_files, shown

# Baselines that run gRPC unmodified, the server in the process of a test, and a check that ends in milliseconds.
ON_ASYNCIO = {
    "server/tidelog_server/commands/bench/floors/grpc_floor.py",
    "server/tidelog_server/testing.py",
    "server/tidelog_server/node/start_check.py",
}


def test_nothing_else_in_the_server_starts_asyncios_own_loop() -> None:
    roots = {ROOT / "server", ROOT / "client" / "tidelog_cli"}
    users = {
        shown(path) for path in python_files() if roots & set(path.parents) and "asyncio.run" in _without_docs(path)
    }
    assert users == ON_ASYNCIO


def _without_docs(path: Path) -> str:
    return path.read_text().replace("``asyncio.run``", "").replace("asyncio.run_coroutine_threadsafe", "")


def test_a_program_runs_on_uvloop() -> None:
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    assert isinstance(event_loop.run(loop()), uvloop.Loop)
