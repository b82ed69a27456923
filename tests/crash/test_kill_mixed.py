"""Every promise is kept for all kinds of writes and after any crash, as the record shows.

Method: producers with epochs, transactions, broadcasts under keys with their consumers, and plain appends run
concurrently on servers that are killed at random moments and at each failpoint of a write. Every operation is recorded
as its caller saw it; ``tidelog_testing.loads.mixed_load.check`` compares the record with the log.
Promises of docs/reference/guarantees.md: G1.
"""

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient
from tidelog.txn import transaction as _transaction
from tidelog_server.runtime.failpoints import Failpoint
from tidelog_testing.loads.mixed_load import Log, Record, check, prepare, read_log, run_load
from tidelog_testing.loads.outage import InterruptedServer
from tidelog_testing.loads.storm import NOT_HIT
from tidelog_testing.parts.soaks import Recorder
from tidelog_testing.servers.tested_store import is_on_engine

pytestmark = pytest.mark.crash

# This load has no trims, drops and checkpoints either.
POINTS = [
    point
    for point in Failpoint
    if point not in {Failpoint.MID_TRIM, Failpoint.MID_DROP, Failpoint.MID_CHECKPOINT} and not point.startswith(NOT_HIT)
]
# The greatest hit at which a server dies; there are many groups, and few of the others.
_LAST_HIT = dict.fromkeys(Failpoint, 4) | dict.fromkeys(
    (Failpoint.BEFORE_WRITE, Failpoint.AFTER_WRITE_BEFORE_SYNC, Failpoint.AFTER_SYNC_BEFORE_ACK), 40
)
_MAX_ACKS = 15
_LARGE_BYTES = 1_000


class Storm:
    """Servers on one data folder, one after the other."""

    def __init__(self, folder: Path, record: Record) -> None:
        self.folder = folder
        self.record = record
        self.server = InterruptedServer(folder)
        self.rounds = 0

    async def die(self, point: Failpoint | None) -> None:
        """Run the load for a while, then kill the server, at a failpoint if one is given, and start another."""
        for _ in range(self.record.random.randint(1, _MAX_ACKS)):
            self.record.acknowledged.clear()
            await self.record.acknowledged.wait()
        await self.server.start_again(f"{point}:{self.record.random.randint(1, _LAST_HIT[point])}" if point else "")
        self.rounds += 1

    async def judge(self, client: AsyncClient) -> Log:
        """Fail if the log contradicts the record."""
        log = await read_log(client)
        anomalies = check(self.record, log)
        if anomalies:
            path = self.folder.with_name("record.jsonl")
            self.record.write(path)
            pytest.fail(f"after {self.rounds} rounds, record in {path}:\n" + "\n".join(anomalies[:20]))
        return log


async def weather(folder: Path, seed: int, points: list[Failpoint | None]) -> str:
    """Kill a server at each of ``points``, in random order; None is any moment. Return a summary."""
    record = Record(random.Random(seed))
    record.random.shuffle(points)
    storm = Storm(folder, record)
    retry = tidelog.Retry(base_s=0.01, cap_s=0.1)
    async with AsyncClient(storm.server.grpc, timeout_s=60, connect_timeout_s=30, retry=retry) as client:
        await prepare(client)
        load = asyncio.create_task(run_load(record, client))
        try:
            for point in points:
                dying = asyncio.create_task(storm.die(point))
                await asyncio.wait((load, dying), return_when=asyncio.FIRST_COMPLETED)
                if load.done():
                    # It ends by itself only if it found a violation.
                    await load
                await dying
            record.is_over.set()
            await load
        finally:
            # After a failure: with a closed client it would append without a pause, and without an end.
            load.cancel()
            await asyncio.gather(load, return_exceptions=True)
        await storm.judge(client)
        await storm.server.start_again()
        log = await storm.judge(client)
    await asyncio.to_thread(storm.server.kill)
    outcomes = Counter(f"{each.kind} {each.outcome}" for each in record.operations.values())
    counts = ", ".join(f"{count} {what}" for what, count in sorted(outcomes.items()))
    died, messages = storm.server.died_at_start, sum(map(len, log.values()))
    text = f"seed {seed}: {storm.rounds} rounds, {died} starts died, {messages} messages"
    for kind in ("append", "numbered", "transaction", "broadcast"):
        assert outcomes[f"{kind} ok"], f"void: {text}: {counts}"
    return f"{text}: {counts}"


@pytest.fixture(autouse=True)
def stages_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stage even small transactions."""
    monkeypatch.setattr(_transaction, "STAGE_FROM_BYTES", _LARGE_BYTES)


def hit_points() -> list[Failpoint]:
    """Return the points that the servers hit: a log in an engine has no HEAD."""
    return [point for point in POINTS if not (is_on_engine() and point is Failpoint.BEFORE_HEAD_UPDATE)]


async def test_every_promise_is_kept_whatever_dies(tmp_path: Path, record_property: Recorder) -> None:
    seed = random.randrange(1 << 32)
    record_property("seed", seed)
    # A random half, because each takes two starts of a server. The long storms have all of them.
    points = hit_points()
    points = random.Random(seed).sample(points, len(points) // 2)
    record_property("measured", await weather(tmp_path / "log", seed, [None, None, *points]))


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(3))
async def test_so_it_is_in_long_storms(tmp_path: Path, seed: int, record_property: Recorder) -> None:
    record_property("measured", await weather(tmp_path / "log", seed, [*[None] * 12, *hit_points() * 3]))
