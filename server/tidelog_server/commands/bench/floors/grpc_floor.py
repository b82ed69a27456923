"""The floor of every call: gRPC alone, from one process to another and back.

With the defaults of gRPC and asyncio, or with our settings (``grpc_stack.py``, ``event_loop.py``).
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final

from tidelog_cli import event_loop
from tidelog_cli.child_environment import child_environment
from tidelog_cli.grpc_stack import without_choice
from tidelog_server.commands.bench.floors.floor_process import FloorProcess

TUNED: Final = "--tuned"
"""Argument with which a process of a floor uses our settings."""


class GrpcFloor:
    """A bare gRPC server and its client, each in its own process."""

    def __init__(self, folder: Path, *, is_tuned: bool) -> None:
        environment = child_environment()
        arguments = [TUNED] if is_tuned else []
        chosen = environment if is_tuned else without_choice(environment)
        with ExitStack() as stack:
            server = stack.enter_context(
                closing(FloorProcess("grpc_floor_server", str(folder), *arguments, environment=chosen))
            )
            port = server.answer()
            self._client = stack.enter_context(
                closing(FloorProcess("grpc_floor_client", str(port), *arguments, environment=chosen))
            )
            self.close = stack.pop_all().close

    async def echo_s(self, *, count: int, size_bytes: int) -> float:
        """Return the median seconds of ``count`` round trips on one stream, one at a time."""
        return await self._measure("Echo", count, size_bytes)

    async def synced_echo_s(self, *, count: int, size_bytes: int) -> float:
        """Return the same as ``echo_s``, with each message written and synced on a thread before its answer."""
        return await self._measure("SyncedEcho", count, size_bytes)

    async def stream_megabytes_per_second(self, *, count: int, size_bytes: int) -> float:
        """Return the megabytes per second of ``count`` messages that the server streams."""
        return await self._measure("Stream", count, size_bytes)

    async def _measure(self, what: str, count: int, size_bytes: int) -> float:
        return float(await asyncio.to_thread(self._client.ask, what, count=count, size_bytes=size_bytes))


@asynccontextmanager
async def grpc_floor(folder: Path, *, is_tuned: bool) -> AsyncIterator[GrpcFloor]:
    """Yield a floor whose processes write to ``folder`` and end with the context.

    ``is_tuned``: True to run gRPC and the event loop with our settings instead of the defaults.
    """
    floor = await asyncio.to_thread(lambda: GrpcFloor(folder, is_tuned=is_tuned))
    try:
        yield floor
    finally:
        await asyncio.to_thread(floor.close)


def run(main: Coroutine[Any, Any, None], *, is_tuned: bool) -> None:
    """Run ``main`` in a process of a floor."""
    (event_loop.run if is_tuned else asyncio.run)(main)
