"""A server that dies between any two steps of the write path, of a trim or of a drop keeps every promise.

Method: as in the storm, but each server is armed to kill itself at a failpoint, at a random hit.

Promises of docs/reference/guarantees.md: G1, G3.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path

import grpc.aio
import pytest

from tidelog_server.runtime.failpoints import VARIABLE, Failpoint
from tidelog_testing.loads.storm import KILLED, NOT_HIT, Storm
from tidelog_testing.loads.workload import create_channel, destroy_channel, open_producer, read_all, stage, trim
from tidelog_testing.oracles.history import Outcome
from tidelog_testing.parts.soaks import Recorder, soak
from tidelog_testing.servers.processes import ServerDiedError, ServerProcess

pytestmark = pytest.mark.crash

DOOMED = "doomed"
# The load has no broadcasts and checkpoints either; their failpoints are in tests of their own.
POINTS = [point for point in Failpoint if not point.startswith((*NOT_HIT, "broadcast", "mid_checkpoint"))]
# The greatest hit at which a server dies; there are many groups, and few trims and drops.
LAST_HIT = dict.fromkeys(Failpoint, 60) | {
    Failpoint.BEFORE_HEAD_UPDATE: 5,
    Failpoint.MID_TRIM: 3,
    Failpoint.MID_DROP: 3,
    Failpoint.MID_DISCARD: 10,
    Failpoint.TXN_BEGUN: 10,
    Failpoint.TXN_STAGED: 30,
    Failpoint.TXN_COMMITTING: 10,
    Failpoint.TXN_COMMITTED: 10,
}


async def nothing(_: Storm, __: ServerProcess) -> None:
    """The load alone hits the points of the write path."""


async def keep_trimming(storm: Storm, server: ServerProcess) -> None:
    """Trim the first vchannel, which has no followers, at ticks that were acknowledged."""
    vchannel = storm.vchannels[0]
    while True:
        here = [each for each in storm.history.appends if each.vchannel == vchannel and each.outcome is Outcome.OK]
        append = storm.random.choice(here)
        await trim(server.grpc, storm.history, vchannel, append.first_tick + storm.random.randrange(append.count))


async def keep_dropping(_: Storm, server: ServerProcess) -> None:
    """Create and destroy a channel."""
    while True:
        await create_channel(server.grpc, DOOMED, 3)
        await destroy_channel(server.grpc, DOOMED)


async def keep_transacting(storm: Storm, server: ServerProcess) -> None:
    """Roll back transactions on all vchannels, of which nothing may ever be there; and commit one elsewhere."""
    [elsewhere] = await create_channel(server.grpc, "elsewhere", 1)
    while True:
        await stage(server.grpc, storm.vchannels, commits=False)
        await stage(server.grpc, [elsewhere], commits=True)


async def keep_opening(_: Storm, server: ServerProcess) -> None:
    """Open a producer repeatedly."""
    [elsewhere] = await create_channel(server.grpc, "elsewhere", 1)
    while True:
        await open_producer(server.grpc, elsewhere)


WORK: dict[Failpoint, Callable[[Storm, ServerProcess], Coroutine[None, None, None]]] = dict.fromkeys(
    Failpoint, nothing
) | {
    Failpoint.MID_TRIM: keep_trimming,
    Failpoint.MID_DROP: keep_dropping,
    Failpoint.MID_DISCARD: keep_transacting,
    Failpoint.AFTER_WRITE_BEFORE_SYNC: keep_opening,
    Failpoint.TXN_BEGUN: keep_transacting,
    Failpoint.TXN_STAGED: keep_transacting,
    Failpoint.TXN_COMMITTING: keep_transacting,
    Failpoint.TXN_COMMITTED: keep_transacting,
}


async def die_at(storm: Storm, point: Failpoint) -> None:
    """Run one server until it dies at ``point``, and judge the state after the previous one."""
    # The judge's scans, one of each vchannel, hit this point too, and must end.
    judged = len(storm.vchannels) if point is Failpoint.SCAN_WATERMARK_READ else 0
    setting = f"{point}:{judged + storm.random.randint(1, LAST_HIT[point])}"
    with ServerProcess(storm.folder, env={VARIABLE: setting}) as server:
        # HEAD is updated even without load: then the next server's log is judged.
        if point is not Failpoint.BEFORE_HEAD_UPDATE:
            await storm.judge(server)
        tasks: list[asyncio.Future[None]] = []
        await storm.run_until_killed(server, lambda: tasks.append(asyncio.ensure_future(WORK[point](storm, server))))
        (outcome,) = await asyncio.gather(*tasks, return_exceptions=True)
        assert outcome is None or isinstance(outcome, grpc.aio.AioRpcError), outcome
    if point is Failpoint.MID_DROP:
        with ServerProcess(storm.folder) as server:
            # The interrupted drop is finished: the channel does not exist, and a new one of its name is empty.
            assert await read_all(server.grpc, await create_channel(server.grpc, DOOMED, 2)) == {
                f"{DOOMED}/0": [],
                f"{DOOMED}/1": [],
            }
            await destroy_channel(server.grpc, DOOMED)


async def run_all(storm: Storm, repetitions: int) -> str:
    with ServerProcess(storm.folder) as server:
        await storm.prepare(server)
    died_at_start: Counter[Failpoint] = Counter()
    for point in POINTS * repetitions:
        try:
            await die_at(storm, point)
        except ServerDiedError as error:
            if error.code != KILLED or point is not Failpoint.BEFORE_HEAD_UPDATE:
                raise
            died_at_start[point] += 1
    with ServerProcess(storm.folder) as server:
        await storm.judge(server)
        await storm.judge(server)
    assert storm.rounds + died_at_start.total() == len(POINTS) * repetitions
    points = ", ".join(POINTS)
    return f"{storm.check_not_void()}; each of {points} {repetitions} times, {died_at_start.total()} during a start"


@pytest.mark.parametrize(("seed", "repetitions"), [(None, 1), *(soak(part, 20, timeout_s=3_600) for part in range(4))])
async def test_a_server_that_dies_at_a_failpoint_keeps_every_promise(
    tmp_path: Path, seed: int | None, repetitions: int, record_property: Recorder
) -> None:
    storm = Storm(tmp_path / "log", seed=random.randrange(1 << 32) if seed is None else seed)
    record_property("measured", await run_all(storm, repetitions))
