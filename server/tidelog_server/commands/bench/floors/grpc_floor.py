"""The floor of every call: gRPC alone, from one process to another and back.

With the defaults of gRPC and asyncio, or with our settings (``grpc_stack.py``, ``event_loop.py``).
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from tidelog_cli import event_loop
from tidelog_cli.child_environment import child_environment
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.grpc_stack import without_choice

TUNED: Final = "--tuned"
"""Argument with which a process of a floor uses our settings."""

_PACKAGE: Final = "tidelog_server.commands.bench.floors"


class GrpcFloor:
    """A bare gRPC server and its client, each in its own process."""

    def __init__(self, folder: Path, *, is_tuned: bool) -> None:
        self._server = _start("grpc_floor_server", str(folder), is_tuned=is_tuned)
        try:
            self._client = _start("grpc_floor_client", _line_of(self._server).strip(), is_tuned=is_tuned)
        except BaseException:
            self._server.communicate()
            raise

    async def echo_s(self, *, count: int, size_bytes: int) -> float:
        """Return the median seconds of ``count`` round trips on one stream, one at a time."""
        return await asyncio.to_thread(self._measure, "Echo", count, size_bytes)

    async def synced_echo_s(self, *, count: int, size_bytes: int) -> float:
        """Return the same as ``echo_s``, with each message written and synced on a thread before its answer."""
        return await asyncio.to_thread(self._measure, "SyncedEcho", count, size_bytes)

    async def stream_megabytes_per_second(self, *, count: int, size_bytes: int) -> float:
        """Return the megabytes per second of ``count`` messages that the server streams."""
        return await asyncio.to_thread(self._measure, "Stream", count, size_bytes)

    def close(self) -> None:
        """End both processes."""
        for process in (self._client, self._server):
            process.communicate()

    def _measure(self, what: str, count: int, size_bytes: int) -> float:
        assert self._client.stdin is not None
        self._client.stdin.write(json.dumps({"measure": what, "count": count, "size_bytes": size_bytes}) + "\n")
        self._client.stdin.flush()
        return float(_line_of(self._client))


@asynccontextmanager
async def grpc_floor(folder: Path, *, is_tuned: bool) -> AsyncIterator[GrpcFloor]:
    """Yield a floor whose processes write to ``folder`` and end with the context.

    ``is_tuned``: True to run gRPC and the event loop with our settings instead of the defaults.
    """
    floor = await asyncio.to_thread(partial(GrpcFloor, folder, is_tuned=is_tuned))
    try:
        yield floor
    finally:
        await asyncio.to_thread(floor.close)


def run(main: Coroutine[Any, Any, None], *, is_tuned: bool) -> None:
    """Run ``main`` in a process of a floor."""
    (event_loop.run if is_tuned else asyncio.run)(main)


def _start(module: str, argument: str, *, is_tuned: bool) -> subprocess.Popen[str]:
    environment = child_environment()
    return subprocess.Popen(
        [sys.executable, "-m", f"{_PACKAGE}.{module}", argument, *([TUNED] if is_tuned else [])],
        env=environment if is_tuned else without_choice(environment),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def _line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise CommandError("a process that measures bare gRPC ended early: see its error above", ExitCode.FAILURE)
    return line
