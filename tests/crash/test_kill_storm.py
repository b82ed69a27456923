"""A server that is killed at random moments, again and again, keeps every promise.

Method: producers and followers run on one data folder against consecutive incarnations of the server; each is ended by
SIGKILL 20 to 400 ms after the first acknowledgement. After each restart a fresh client reads everything, and
``tidelog_testing.oracles.history`` judges: every acknowledged message is there once, at its tick and in order;
unacknowledged batches are there as a whole or not at all; nothing else exists; nothing that a follower saw has
vanished.

Promises of docs/reference/guarantees.md: G1, G2, G3, G5, G7, G8.
"""

import asyncio
import random
from functools import partial
from pathlib import Path

import pytest

from tidelog_testing.loads.storm import Storm
from tidelog_testing.parts.soaks import Recorder
from tidelog_testing.servers.processes import ServerProcess

pytestmark = pytest.mark.crash

ROUNDS = 12
SOAK_ROUNDS = 300


async def weather(storm: Storm, rounds: int) -> None:
    for number in range(rounds):
        with ServerProcess(storm.folder) as server:
            await (storm.judge(server) if number else storm.prepare(server))
            delay_s = storm.random.uniform(0.02, 0.4)
            loop = asyncio.get_running_loop()
            await storm.run_until_killed(server, partial(loop.call_later, delay_s, server.kill))
    with ServerProcess(storm.folder) as server:
        await storm.judge(server)
        await storm.judge(server)


async def test_nothing_acknowledged_is_lost_however_often_the_server_is_killed(
    tmp_path: Path, record_property: Recorder
) -> None:
    storm = Storm(tmp_path / "log", seed=random.randrange(1 << 32))
    await weather(storm, ROUNDS)
    record_property("measured", storm.check_not_void())


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("part", range(10))
async def test_a_long_storm_loses_nothing_either(tmp_path: Path, part: int, record_property: Recorder) -> None:
    # Why in parts: each full read grows with the log.
    storm = Storm(tmp_path / "log", seed=part)
    await weather(storm, SOAK_ROUNDS // 10)
    record_property("measured", storm.check_not_void())
