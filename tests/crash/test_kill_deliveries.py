"""Deliveries of mailboxes across SIGKILL, at random moments and at each failpoint, while the clock is set.

Method: producers and workers that confirm, reject, extend and let leases end, against consecutive servers on one data
folder, with housekeeping all the time. A ledger of their answers judges each further answer: a message, and a group,
is under at most one valid lease at any time; confirmed messages never return; none is lost, none is there twice;
counts equal what was sent and confirmed; a message is dead-lettered exactly after its last delivery.

Promises of docs/reference/guarantees.md: G49, G50, G55.
"""

import asyncio
import signal
import time
from pathlib import Path
from random import Random

import pytest

from tidelog_server.runtime.failpoints import VARIABLE, Failpoint
from tidelog_testing.loads.mailbox_storm import MailboxStorm
from tidelog_testing.loads.workload import until
from tidelog_testing.parts.soaks import Recorder
from tidelog_testing.servers.processes import ServerDiedError, ServerProcess
from tidelog_testing.servers.skewed import SKEW_FILE

pytestmark = pytest.mark.crash

PROGRAM = ("-m", "tidelog_testing.servers.busy_mailboxes")
SKEWS_MS = (0, -1_500, 800, -300, 1_500)
SOAK_S = 600
DIES_WITHIN_S = 240.0
PARTS = 3
# Failpoints, and the greatest number of hits until a server dies.
POINTS = {
    Failpoint.FOLD_STEP_SUBMITTED: 60,
    Failpoint.FOLD_SNAPSHOT_PAGE: 25,
    Failpoint.FOLD_COPIED: 6,
    Failpoint.MAILBOX_JOINT_SUBMITTED: 3,
    Failpoint.MAILBOX_MOVED: 3,
    Failpoint.BEFORE_WRITE: 50,
    Failpoint.AFTER_WRITE_BEFORE_SYNC: 50,
    Failpoint.AFTER_SYNC_BEFORE_ACK: 50,
    Failpoint.MID_TRIM: 4,
}


class Weather:
    """Servers on one data folder, one after the other."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = Random(seed)
        self.storm = MailboxStorm(self.random)
        self.rounds = 0
        self._folder = folder
        self._skew = folder.with_suffix(".skew")
        self._set_clock(0)

    def _set_clock(self, skew_ms: int) -> None:
        new_path = self._skew.with_suffix(".new")
        new_path.write_text(str(skew_ms))
        # Atomically: the server reads it at any moment.
        new_path.replace(self._skew)

    def start(self, setting: str = "") -> ServerProcess:
        """Start a server, with a failpoint."""
        env = {SKEW_FILE: str(self._skew), VARIABLE: setting}
        return ServerProcess(self._folder, env=env, program=PROGRAM)

    async def run_until_killed(self) -> None:
        """Judge a server, and run it under load until it is killed."""
        with self.start() as server:
            await self.storm.judge(server)
            asyncio.get_running_loop().call_later(self.random.uniform(0.1, 1.0), server.kill)
            await self._run(server)

    async def run_until(self, point: Failpoint) -> None:
        """Run a server under load until it dies at a failpoint, which it may reach at its start."""
        setting = f"{point}:{self.random.randint(1, POINTS[point])}"
        try:
            with self.start(setting) as server:
                await self._run(server)
                await until(lambda: server.code is not None, DIES_WITHIN_S, "the end of the server")
                assert server.code == -signal.SIGKILL
        except ServerDiedError as error:
            if error.code != -signal.SIGKILL:
                raise

    async def _run(self, server: ServerProcess) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(self.random.uniform(0.05, 0.5), self._set_clock, self.random.choice(SKEWS_MS))
        async with asyncio.timeout(DIES_WITHIN_S):
            await self.storm.run_until_gone(server)
        self.rounds += 1

    async def end(self) -> str:
        """Judge what is left; return a summary."""
        self._set_clock(0)
        with self.start() as server:
            await self.storm.judge(server)
            await self.storm.judge_end(server)
        seen = self.storm.ledger.seen
        kinds = ("deliveries", "redeliveries", "extensions", "confirmations", "rejections", "dead letters")
        assert all(seen[kind] for kind in kinds), seen
        return f"{self.rounds} servers, {len(self.storm.answered)} messages, {dict(seen)}"


async def prepared(folder: Path, seed: int) -> Weather:
    """Create the mailboxes."""
    weather = Weather(folder, seed)
    with weather.start() as server:
        await weather.storm.prepare(server)
    return weather


@pytest.mark.parametrize("part", range(PARTS))
async def test_a_message_is_under_one_lease_and_none_is_lost_however_the_server_dies(
    tmp_path: Path, part: int, record_property: Recorder
) -> None:
    weather = await prepared(tmp_path / "log", seed=part)
    for point in list(POINTS)[part::PARTS]:
        await weather.run_until(point)
    await weather.run_until_killed()
    record_property("measured", await weather.end())


@pytest.mark.soak
@pytest.mark.timeout(3_600)
async def test_a_long_storm_keeps_the_promises_of_deliveries(tmp_path: Path, record_property: Recorder) -> None:
    weather = await prepared(tmp_path / "log", seed=int(time.time()))
    end_s = time.monotonic() + SOAK_S
    while time.monotonic() < end_s:
        await weather.run_until(weather.random.choice(list(POINTS)))
        await weather.run_until_killed()
    record_property("measured", await weather.end())
