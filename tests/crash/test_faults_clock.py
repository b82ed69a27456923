"""Ticks grow strictly and follow the order of events, however the clock is set, between starts or while running.

Method: the storm, on servers whose injected wall clock is set back and forth: by a day, to 1970, and by 200 ms a
hundred times a second. Moving the clock of a real process would need libfaketime; only the clock layer differs.

Promises of docs/reference/guarantees.md: G4, G5.
"""

import asyncio
import random
from functools import partial
from pathlib import Path

import pytest

from tidelog_testing.loads.storm import Storm
from tidelog_testing.parts.soaks import Recorder
from tidelog_testing.servers.processes import ServerProcess
from tidelog_testing.servers.skewed import SKEW_FILE

pytestmark = pytest.mark.crash

DAY_MS = 86_400_000
SINCE_1970_MS = 100 * 365 * DAY_MS
LOAD_S = 0.6
PROGRAM = ("-m", "tidelog_testing.servers.skewed")


class Skew:
    """Offset of the server's wall clock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set_ms(0)

    def set_ms(self, skew_ms: int) -> None:
        new_path = self.path.with_suffix(".new")
        new_path.write_text(str(skew_ms))
        # Atomically: the server reads it at any moment.
        new_path.replace(self.path)

    async def strobe(self, skew_ms: int) -> None:
        """Move the clock a hundred times a second during a round."""
        for number in range(int(LOAD_S * 100)):
            self.set_ms(skew_ms + (-200 if number % 2 else 200))
            await asyncio.sleep(0.01)

    def meddle(self, server: ServerProcess, later_ms: int, tasks: list[asyncio.Task[None]]) -> None:
        """Begin a round: set the clock to ``later_ms`` in the middle, and kill the server at the end."""
        loop = asyncio.get_running_loop()
        loop.call_later(LOAD_S / 2, self.set_ms, later_ms)
        if later_ms == 0:
            tasks.append(loop.create_task(self.strobe(0)))
        loop.call_later(LOAD_S, server.kill)


async def test_ticks_grow_when_the_clock_is_set_back_and_forth(tmp_path: Path, record_property: Recorder) -> None:
    storm = Storm(tmp_path / "log", seed=random.randrange(1 << 32))
    skew = Skew(tmp_path / "skew")
    # At the start, and while it runs.
    for number, (at_start_ms, later_ms) in enumerate(
        [(0, -DAY_MS), (-DAY_MS, -SINCE_1970_MS), (DAY_MS, 0), (0, 2_000), (-DAY_MS, DAY_MS), (0, 0)]
    ):
        skew.set_ms(at_start_ms)
        with ServerProcess(storm.folder, env={SKEW_FILE: str(skew.path)}, program=PROGRAM) as server:
            await (storm.judge(server) if number else storm.prepare(server))
            tasks: list[asyncio.Task[None]] = []
            await storm.run_until_killed(server, partial(skew.meddle, server, later_ms, tasks))
            await asyncio.gather(*tasks)
    skew.set_ms(-DAY_MS)
    with ServerProcess(storm.folder, env={SKEW_FILE: str(skew.path)}, program=PROGRAM) as server:
        await storm.judge(server)
        lead_s = server.metric("tidelog_tick_lead_seconds")
    assert lead_s > DAY_MS / 1_000
    record_property("measured", f"{storm.check_not_void()}; ticks ahead of the clock by {lead_s:.0f} s at the end")
