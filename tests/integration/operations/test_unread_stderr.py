"""A server whose stderr is a pipe that is not read serves, stops in time, and writes its lines once they are read.

Method: a server's own process, whose stderr is a pipe that holds one page; consumers that join and leave make it log.
"""

import asyncio
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tidelog import AsyncClient
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.processes import ServerProcess

PIPE_BYTES: Final = 4_096
CONSUMERS: Final = 40
PROGRAM: Final = ("-m", "tidelog_server")


@pytest.fixture
def unread(tmp_path: Path) -> Iterator[int]:
    """Make the stderr of a server on the folder ``log`` a pipe, and yield its other end."""
    path = tmp_path / "log.stderr"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    yield reader
    os.close(reader)


async def join_and_leave(client: AsyncClient) -> None:
    await client.create_channel("orders")
    await client.create_group("billing", ["orders"])
    for number in range(CONSUMERS):
        await client.append("orders", b"x")
        async with client.consumer("billing", "orders", member_id=f"member-{number}-{'x' * 50}") as consumer:
            async with asyncio.timeout(30):
                await anext(consumer)


def received(reader: int, until: bytes) -> bytes:
    text, deadline_s = b"", time.monotonic() + 30
    while until not in text:
        assert time.monotonic() < deadline_s, text[-500:]
        try:
            text += os.read(reader, 1 << 20)
        except BlockingIOError:
            time.sleep(0.01)
    return text


async def test_consumers_that_join_and_leave_do_not_stop_it(tmp_path: Path, unread: int) -> None:
    settings = {"log.level": "info", "server.shutdown_grace_s": 5}
    with ServerProcess(tmp_path / "log", settings, program=PROGRAM) as server:
        async with AsyncClient(server.grpc, timeout_s=20) as client:
            await join_and_leave(client)
            last = f"member-{CONSUMERS - 1}-"
            text = await asyncio.to_thread(received, unread, b'"group_member_left"')
            while text.count(b'"group_member_left"') < CONSUMERS:
                text += await asyncio.to_thread(received, unread, b"\n")
            await client.append("orders", b"x")
        lines = [json.loads(line) for line in text.splitlines()]
        joined = [line["member_id"] for line in lines if line["event"] == "group_member_joined"]
        assert len(joined) == CONSUMERS
        assert joined[-1].startswith(last)
        assert len(text) > PIPE_BYTES
        assert server.metric("tidelog_log_lines_dropped_total") == 0


async def test_it_stops_in_time_with_its_exit_code(tmp_path: Path, unread: int) -> None:
    settings = {"log.level": "info", "server.shutdown_grace_s": 5}
    with ServerProcess(tmp_path / "log", settings, program=PROGRAM) as server:
        async with AsyncClient(server.grpc, timeout_s=20) as client:
            await join_and_leave(client)
        server.terminate()
        assert await asyncio.to_thread(server.wait, 30) == ExitCode.OK
    # Lines that no process read were lost.
    assert b'"stopped"' not in received(unread, b"\n")
