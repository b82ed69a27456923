"""Exactly-once messages across SIGKILL: each number is counted once in each store, and is delivered once downstream.

Method: a test process publishes numbers to journals. Two consumers in processes of their own follow each other: the
first copies the numbers to further journals, as a publisher of transactions, and the second counts them in its store
and publishes them again. Both and the server are killed: at each failpoint of the client library, and at random. At the
end the stores have every number with count 1, the last journals deliver each once, and no transaction is open.

Promises of docs/reference/guarantees.md: G48.
"""

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tidelog import AsyncClient
from tidelog.gazette.append_service import AsyncJournalClient
from tidelog.gazette.consumers.failpoints import Failpoint
from tidelog.gazette.publisher import AsyncPublisher
from tidelog_testing.loads.gazette_stage import PATIENT, StageProcess, counts, prepare
from tidelog_testing.loads.outage import InterruptedServer
from tidelog_testing.parts.gazette_records import Record, by_number, committed, create_journals
from tidelog_testing.servers.postgres import PostgresProcess

pytestmark = pytest.mark.crash

SEEDS = ["storm/seed/part-0", "storm/seed/part-1"]
COPIES = ["storm/copies/part-0", "storm/copies/part-1"]
OUTPUTS = ["storm/out/part-0", "storm/out/part-1"]
# A machine may be slow: the storm fails when neither stage counts a number for this time, not when it takes long.
STALLED_AFTER_S = 90.0


@dataclass
class Stage:
    """A consumer whose process is started again after each kill.

    Attributes:
        killed: How often it was killed, by failpoint; "at random" without one.
    """

    name: str
    folder: Path
    endpoint: str
    store: str
    inputs: list[str]
    outputs: list[str]
    killed: Counter[str] = field(default_factory=Counter)
    process: StageProcess | None = None

    def start(self, failpoint: str = "") -> StageProcess:
        assert self.process is None
        errors = self.folder / f"{self.name}.stderr"
        self.process = StageProcess(errors, self.endpoint, self.store, self.inputs, self.outputs, failpoint)
        return self.process

    def end(self, *, is_killed: bool) -> None:
        """Kill the process, or wait until its failpoint does; an end by anything but SIGKILL fails the test."""
        process, self.process = self.process, None
        if process is None:
            return
        by_failpoint = not is_killed or process.code is not None
        if is_killed:
            process.kill()
        code = process.wait()
        assert code == -signal.SIGKILL, f"{self.name} ended with {code}:\n{process.errors}"
        self.killed[process.failpoint.partition(":")[0] if by_failpoint else "at random"] += 1

    def stop(self) -> None:
        """End the process after a commit."""
        process, self.process = self.process, None
        if process is not None:
            code = process.stop()
            assert code in {0, -signal.SIGKILL}, f"{self.name} ended with {code}:\n{process.errors}"


@dataclass
class Storm:
    """All parts of a run.

    Attributes:
        published: Number of numbers that were published.
    """

    client: AsyncClient
    server: InterruptedServer
    first: Stage
    second: Stage
    is_feeding: bool = True
    published: int = 0

    async def feed(self) -> None:
        """Publish numbers, each once, until the storm ends; the server may be killed meanwhile."""
        async with AsyncJournalClient(self.client) as journals:
            publisher = AsyncPublisher(journals)
            while self.is_feeding:
                for _ in range(20):
                    publisher.publish_committed(by_number(SEEDS), Record(self.published))
                    self.published += 1
                await journals.flush()
                await asyncio.sleep(0.02)

    async def complete(self) -> None:
        """Wait until the second stage has counted everything, as long as one of the stages counts."""
        counted = (0, 0)
        deadline = time.monotonic() + STALLED_AFTER_S
        while counted[1] < self.published:
            for stage in (self.first, self.second):
                assert stage.process is not None
                assert stage.process.code is None, stage.process.errors
            before, counted = counted, await self.counted()
            if counted != before:
                deadline = time.monotonic() + STALLED_AFTER_S
            assert time.monotonic() < deadline, await self.explain()
            await asyncio.sleep(0.1)

    async def counted(self) -> tuple[int, int]:
        """Return how many numbers each stage has counted."""
        return len(await counts(self.first.store, self.client)), len(await counts(self.second.store, self.client))

    async def explain(self) -> str:
        """Return how far the stages are and what they wait for."""
        lines = [f"{self.published} numbers were published"]
        for stage, counted in zip((self.first, self.second), await self.counted(), strict=True):
            assert stage.process is not None
            lines.append(f"{stage.name} has counted {counted} in {stage.store}:\n{await stage.process.stacks()}")
        return "\n".join(lines)

    async def check(self) -> None:
        """Compare both stores and all journals with what was published."""
        expected = dict.fromkeys(range(self.published), 1)
        assert await counts(self.first.store, self.client) == expected
        assert await counts(self.second.store, self.client) == expected
        for journals in (COPIES, OUTPUTS):
            assert await committed(self.client, journals) == (list(expected), False)


@asynccontextmanager
async def storm(folder: Path, store: str) -> AsyncIterator[Storm]:
    """Start everything but the stages."""
    server = InterruptedServer(folder / "data")
    endpoint = server.grpc
    first_store = f"sqlite:{folder / 'first.db'}"
    running: Storm | None = None
    try:
        async with AsyncClient(endpoint, retry=PATIENT, timeout_s=60, connect_timeout_s=60) as client:
            await create_journals(client, [*SEEDS, *COPIES, *OUTPUTS])
            for each in (first_store, store):
                await prepare(each, client)
            first = Stage("first", folder, endpoint, first_store, SEEDS, COPIES)
            second = Stage("second", folder, endpoint, store, COPIES, OUTPUTS)
            running = Storm(client, server, first, second)
            feeding = asyncio.create_task(running.feed())
            try:
                yield running
                running.is_feeding = False
                await feeding
                await running.complete()
                await asyncio.to_thread(first.stop)
                await asyncio.to_thread(second.stop)
                await running.check()
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
    finally:
        if running is not None:
            for stage in (running.first, running.second):
                if stage.process is not None:
                    stage.process.kill()
        server.kill()


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresProcess]:
    with PostgresProcess() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres", "tidelog"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'second.db'}"
    if request.param == "postgres":
        return f"postgres:{request.getfixturevalue('postgres').conninfo}"
    return "tidelog:second"


async def test_kills_at_every_failpoint_lose_and_repeat_nothing(tmp_path: Path, store: str) -> None:
    async with storm(tmp_path, store) as running:
        for number, failpoint in enumerate(Failpoint):
            # At the third hit, so that transactions were committed before, and one of two intents was.
            once = {Failpoint.ACQUIRED, Failpoint.RECOVERED}
            setting = f"{failpoint}:1" if failpoint in once else f"{failpoint}:3"
            running.first.start(setting)
            if number % 3 == 0:
                await running.server.start_again()
            await asyncio.to_thread(running.first.end, is_killed=False)
            running.first.start()
            running.second.start(setting)
            await asyncio.to_thread(running.second.end, is_killed=False)
            await asyncio.to_thread(running.first.end, is_killed=True)
        assert running.second.killed == Counter(Failpoint)
        assert running.first.killed == Counter([*Failpoint, *["at random"] * len(Failpoint)])
        for stage in (running.first, running.second):
            stage.start()


@pytest.mark.soak
@pytest.mark.timeout(1_800)
async def test_kills_at_random_for_five_minutes_lose_and_repeat_nothing(tmp_path: Path, store: str) -> None:
    randomness = random.Random(time.time_ns())
    until_s = time.monotonic() + 300
    kills = 0
    async with storm(tmp_path, store) as running:
        stages = (running.first, running.second)
        while time.monotonic() < until_s:
            for stage in stages:
                if stage.process is None:
                    failpoint = randomness.choice([*Failpoint, None])
                    stage.start(f"{failpoint}:{randomness.randint(1, 8)}" if failpoint else "")
            await asyncio.sleep(randomness.uniform(0, 3))
            victim = randomness.choice([*stages, None])
            if victim is None:
                await running.server.start_again()
            for stage in stages:
                assert stage.process is not None
                if stage is victim or stage.process.code is not None:
                    await asyncio.to_thread(stage.end, is_killed=True)
                    kills += 1
        for stage in stages:
            if stage.process is None:
                stage.start()
            else:
                await asyncio.to_thread(stage.end, is_killed=True)
                stage.start()
    assert kills > 50
    assert {Failpoint.STORE_COMMITTED, Failpoint.INTENT_QUEUED} <= {*running.first.killed, *running.second.killed}
