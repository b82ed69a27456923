"""The floor under every call: gRPC alone, from this process to another one and back."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from tidelog_server.cli.bench.grpc_floor_server import OPTIONS, SERVICE, STREAM_REQUEST
from tidelog_server.cli.bench.server_process import child_environment


@asynccontextmanager
async def floor_channel() -> AsyncIterator[grpc.aio.Channel]:
    """Yield a channel to a bare gRPC server in a process of its own, which ends with the context."""
    process = await asyncio.to_thread(_start)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = int(await asyncio.to_thread(process.stdout.readline))
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
            yield channel
    finally:
        process.stdin.close()
        await asyncio.to_thread(process.wait)
        process.stdout.close()


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tidelog_server.cli.bench.grpc_floor_server"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=child_environment(),
    )  # fmt: skip


async def measure_echo(channel: grpc.aio.Channel, *, count: int, size_bytes: int) -> list[float]:
    """Return the seconds of each of ``count`` round trips on one stream, one at a time."""
    method: Any = channel.stream_stream(f"/{SERVICE}/Echo")
    call = method()
    message = os.urandom(size_bytes)
    durations = []
    for _ in range(count):
        start = time.perf_counter()
        await call.write(message)
        await call.read()
        durations.append(time.perf_counter() - start)
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    return durations


async def measure_stream(channel: grpc.aio.Channel, *, count: int, size_bytes: int) -> float:
    """Return the megabytes per second of ``count`` messages that the server streams."""
    method: Any = channel.unary_stream(f"/{SERVICE}/Stream")
    start = time.perf_counter()
    received = 0
    async for message in method(STREAM_REQUEST.pack(count, size_bytes)):
        received += len(message)
    assert received == count * size_bytes
    return received / (time.perf_counter() - start) / 1e6
