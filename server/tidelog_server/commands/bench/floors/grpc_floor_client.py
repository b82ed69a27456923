"""The client of the bare gRPC server, a process with the arguments ``<port> [--tuned]``.

Reads a JSON object per line, ``{"do": "Echo" | "SyncedEcho" | "Stream", "count": N, "size_bytes": N}``, and prints
a number for each: the median seconds of a round trip, or the megabytes per second of a stream. Exits at the end of
standard input.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from typing import Any

import grpc

from tidelog_server.commands.bench.floors.grpc_floor import TUNED, run
from tidelog_server.commands.bench.floors.grpc_floor_server import OPTIONS, SERVICE, STREAM_REQUEST


async def _echo(channel: grpc.aio.Channel, name: str, count: int, size_bytes: int) -> float:
    """Return the median seconds of a round trip on one stream, one at a time."""
    method: Any = channel.stream_stream(f"/{SERVICE}/{name}")
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
    return statistics.median(durations)


async def _stream(channel: grpc.aio.Channel, name: str, count: int, size_bytes: int) -> float:
    """Return the megabytes per second of messages that the server streams."""
    method: Any = channel.unary_stream(f"/{SERVICE}/{name}")
    start = time.perf_counter()
    received = 0
    async for message in method(STREAM_REQUEST.pack(count, size_bytes)):
        received += len(message)
    assert received == count * size_bytes
    return received / (time.perf_counter() - start) / 1e6


_MEASURES = {"Echo": _echo, "SyncedEcho": _echo, "Stream": _stream}


async def _main(port: int) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
        while line := await asyncio.to_thread(sys.stdin.readline):
            request = json.loads(line)
            name = request["do"]
            figure = await _MEASURES[name](channel, name, request["count"], request["size_bytes"])
            print(figure, flush=True)


if __name__ == "__main__":
    run(_main(int(sys.argv[1])), is_tuned=TUNED in sys.argv)
