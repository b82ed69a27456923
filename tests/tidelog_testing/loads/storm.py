"""Rounds of start, full read, load and SIGKILL on one data folder, judged after each start."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from tidelog_testing.loads.workload import Load, create_channel, read_all
from tidelog_testing.oracles.history import Following, History, Outcome, check, shown
from tidelog_testing.servers.processes import ServerProcess

KILLED: Final = -9
NOT_HIT: Final = ("channel", "group", "journal", "mailbox", "blob", "fold", "backup", "restore", "engine", "import")
"""Beginnings of the names of failpoints that no storm hits: tests of their own do."""
_DIES_WITHIN_S: Final = 240.0
_MIN_ACKS_PER_S: Final = 100
_MIN_UNKNOWN_SHARE: Final = 0.01


@dataclass(slots=True)
class Storm:
    """One data folder and its history.

    Attributes:
        folder: The data folder.
        random: Source of all randomness.
        seed: Seed of ``random``, for the text of a failure.
        followed: Followers of all vchannels but the first, which may be trimmed.
        rounds: Number of servers killed under load.
        load_s: Total time under load, in seconds.
    """

    folder: Path
    seed: int
    history: History = field(default_factory=History)
    vchannels: list[str] = field(default_factory=list)
    followed: list[Following] = field(default_factory=list)
    rounds: int = 0
    load_s: float = 0.0
    random: Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)

    async def prepare(self, server: ServerProcess) -> None:
        """Create two channels of three vchannels, and three followers."""
        left = await create_channel(server.grpc, "left", 3)
        right = await create_channel(server.grpc, "right", 3)
        self.vchannels = [*left, *right]
        self.followed = [Following(self.vchannels[1:]), Following(left[1:]), Following(right)]

    async def run_until_killed(self, server: ServerProcess, on_load: Callable[[], object]) -> None:
        """Put load on ``server`` and call ``on_load`` once it flows, which kills it."""
        begin_s = time.monotonic()
        load = Load(self.history, self.vchannels, self.random, followed=self.followed)
        running = asyncio.create_task(load.run(server.grpc))
        async with asyncio.timeout(_DIES_WITHIN_S):
            # A failpoint may end the server before anything is acknowledged.
            await first_of(running, load.acknowledged.wait())
            on_load()
            await running
        assert await asyncio.to_thread(server.wait) == KILLED, server.errors
        assert not load.refusals
        self.load_s += time.monotonic() - begin_s
        self.rounds += 1

    async def judge(self, server: ServerProcess) -> None:
        """Read everything from an idle server, and fail if it contradicts the history."""
        log = await read_all(server.grpc, self.vchannels)
        anomalies = check(self.history, log)
        for following in self.followed:
            anomalies += following.check(log)
        if anomalies:
            path = self.folder.with_name("history.jsonl")
            self.history.write(path)
            pytest.fail(f"seed {self.seed}, after round {self.rounds}, history in {path}:\n{shown(anomalies)}")

    def check_not_void(self) -> str:
        """Fail a run that tested nothing; return a one-line summary of what it tested."""
        acks, unknown = self.history.count(Outcome.OK), self.history.count(Outcome.UNKNOWN)
        seen = sum(len(following.rows) for following in self.followed)
        text = (
            f"seed {self.seed}: {self.rounds} rounds, {acks} acknowledged appends in {self.load_s:.1f} s of load, "
            f"{unknown} unknown, {seen} messages seen by followers"
        )
        assert acks >= _MIN_ACKS_PER_S * self.load_s, f"void: {text}"
        assert unknown >= _MIN_UNKNOWN_SHARE * (acks + unknown), f"void: {text}"
        assert seen, f"void: {text}"
        return text


async def first_of(running: "asyncio.Task[None]", other: Coroutine[Any, Any, object]) -> None:
    """Wait until ``running`` has ended, or ``other``, which is cancelled otherwise."""
    waiting = asyncio.create_task(other)
    await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
