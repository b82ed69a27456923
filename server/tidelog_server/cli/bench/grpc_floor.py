"""The floor under every call: gRPC alone, from one process to another and back."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tidelog_server.cli.exit_codes import CommandError, ExitCode

_PACKAGE: Final = "tidelog_server.cli.bench"


class GrpcFloor:
    """A bare gRPC server and its client, each in a process of its own."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._server = _start("grpc_floor_server", str(folder), environment=environment)
        try:
            self._client = _start("grpc_floor_client", _line_of(self._server).strip(), environment=environment)
        except BaseException:
            self._server.communicate()
            raise

    async def echo_s(self, *, count: int, size_bytes: int) -> float:
        """Return the median seconds of ``count`` round trips on one stream, one at a time."""
        return await asyncio.to_thread(self._measure, "Echo", count, size_bytes)

    async def synced_echo_s(self, *, count: int, size_bytes: int) -> float:
        """Return the same with each message written to a file and synced, in a thread, before it is sent back."""
        return await asyncio.to_thread(self._measure, "SyncedEcho", count, size_bytes)

    async def stream_megabytes_per_second(self, *, count: int, size_bytes: int) -> float:
        """Return how fast ``count`` messages come that the server streams."""
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
async def grpc_floor(environment: Mapping[str, str], folder: Path) -> AsyncIterator[GrpcFloor]:
    """Yield a floor whose processes run in ``environment``, write to ``folder``, and end with the context."""
    floor = await asyncio.to_thread(GrpcFloor, environment, folder)
    try:
        yield floor
    finally:
        await asyncio.to_thread(floor.close)


def _start(module: str, *arguments: str, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", f"{_PACKAGE}.{module}", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(environment), text=True,
    )  # fmt: skip


def _line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise CommandError("a process that measures bare gRPC ended too early: see above", ExitCode.FAILURE)
    return line
