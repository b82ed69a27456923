"""Numbered appends to a channel are in the log once, on the vchannel where they were first, whatever dies.

Method: a program appends to four vchannels with a partitioner of its own. It is killed, or the server is, also at
failpoints of the write path; the next process continues, and repeats the append that may be there in part.

Promise of docs/reference/guarantees.md: G18.
"""

import asyncio
import os
import random
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from tidelog import AsyncClient
from tidelog_server.runtime.failpoints import Failpoint
from tidelog_testing.loads.channel_loader import CHANNEL, call, partitioner
from tidelog_testing.loads.outage import InterruptedServer
from tidelog_testing.parts.soaks import Recorder, soak
from tidelog_testing.servers.processes import PYTHON_PATH

pytestmark = pytest.mark.crash

VCHANNELS = 4
_POINTS = (Failpoint.BEFORE_WRITE, Failpoint.AFTER_WRITE_BEFORE_SYNC, Failpoint.AFTER_SYNC_BEFORE_ACK)
_FOR_EVER = 1 << 40


async def started(server: InterruptedServer, last: int = _FOR_EVER) -> Process:
    command = (sys.executable, "-m", "tidelog_testing.loads.channel_loader", server.grpc, str(last))
    environment = os.environ | {"PYTHONPATH": PYTHON_PATH}
    return await asyncio.create_subprocess_exec(*command, stdout=PIPE, env=environment)


async def acknowledged(loader: Process, count: int) -> int:
    """Wait for some acknowledgements; return the number of the last append."""
    assert loader.stdout is not None
    number = 0
    for _ in range(count):
        line = await asyncio.wait_for(loader.stdout.readline(), 60)
        assert line, "the program has ended"
        number = int(line)
    return number


async def killed(loader: Process) -> int:
    """Kill the program, and return the number of the last append that it saw acknowledged; 0 if none since."""
    loader.kill()
    assert loader.stdout is not None
    rest = await loader.stdout.read()
    await loader.wait()
    return max(map(int, rest.split()), default=0)


@pytest.mark.parametrize("kills", [20, soak(200, timeout_s=3_600)])
async def test_each_message_is_there_once_on_its_first_vchannel(
    tmp_path: Path, kills: int, record_property: Recorder
) -> None:
    seed = random.randrange(1 << 32)
    record_property("seed", seed)
    chance = random.Random(seed)
    last = 0
    with InterruptedServer(tmp_path / "log") as server:
        async with AsyncClient(server.grpc) as client:
            await client.create_channel(CHANNEL, vchannels=VCHANNELS)
        for kill in range(kills):
            loader = await started(server)
            last = max(last, await acknowledged(loader, chance.randint(1, 30)))
            if kill % 2:
                point = chance.choice((None, *_POINTS))
                await server.start_again(f"{point}:{chance.randint(1, 30)}" if point else "")
                last = max(last, await acknowledged(loader, 1))
            last = max(last, await killed(loader))
        loader = await started(server, last + 1)
        assert await loader.wait() == 0

        async with AsyncClient(server.grpc, connect_timeout_s=30) as client:
            for index in range(VCHANNELS):
                found = [
                    (message.key, message.payload)
                    async for batch in client.scan(f"{CHANNEL}/{index}")
                    for message in batch
                ]
                assert found == [
                    (message.key, message.payload)
                    for number in range(1, last + 2)
                    for message in call(number)
                    if partitioner(message.key or b"", VCHANNELS) == index
                ]
    record_property("measured", f"{last + 1} appends, {kills} kills")
