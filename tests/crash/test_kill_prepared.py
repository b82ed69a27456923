"""Each version of an application is in the log once and as a whole, after any crash during its commit.

Method: a coordinator has two clients prepare a part of each version and commits the parts, on servers that are killed
at failpoints around the commit. A failed version is retried from its beginning under the same number, as by a
coordinator that has forgotten everything else, until it is answered.

Promises of docs/reference/guarantees.md: G47.
"""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient
from tidelog_server.runtime.failpoints import VARIABLE, Failpoint
from tidelog_testing.loads.storm import KILLED
from tidelog_testing.parts.soaks import Recorder, soak
from tidelog_testing.parts.waiting import until
from tidelog_testing.servers.processes import ServerDiedError, ServerProcess, lasting_port

pytestmark = pytest.mark.crash

APP = "etl"
# Errors after which a restarted coordinator retries. A version that was passed, or is refused, would be a bug.
_RETRIED = (
    tidelog.UnavailableError,
    tidelog.DeadlineError,
    tidelog.AppendUnknownError,
    tidelog.TransactionExpiredError,
)
_VCHANNELS = ("a/0", "a/1", "b/0")
_POINTS = (
    Failpoint.TXN_COMMITTING,
    Failpoint.BEFORE_WRITE,
    Failpoint.AFTER_WRITE_BEFORE_SYNC,
    Failpoint.AFTER_SYNC_BEFORE_ACK,
    Failpoint.TXN_COMMITTED,
)


@dataclass
class Run:
    """Progress of the coordinator.

    Attributes:
        done: Position of each version.
        tries: Number of prepared attempts.
        is_over: Set when no further version is to begin.
    """

    done: dict[int, tidelog.PreparedCommit] = field(default_factory=dict)
    tries: int = 0
    is_over: bool = False


async def prepared(client: AsyncClient, version: int, tries: int) -> list[tidelog.PreparedTransaction]:
    """Prepare the two parts of a version in two transactions."""
    handles = []
    for part in range(2):
        txn = client.txn(timeout_s=10)
        for vchannel in _VCHANNELS:
            await txn.append(vchannel, [b"%d:%d:%d" % (version, part, tries)] * (part + 1))
        handles.append(await txn.prepare(APP, keepalive_s=60.0))
    return [handle for handle in handles if handle is not None]


async def coordinate(run: Run, endpoint: str) -> None:
    """Commit one version after the other, across all restarts of the server."""
    version = 0
    async with AsyncClient(endpoint, timeout_s=10) as client:
        while not run.is_over:
            run.tries += 1
            with suppress(*_RETRIED):
                handles = await prepared(client, version, run.tries)
                run.done[version] = await client.commit_prepared(handles, APP, version)
                version += 1


async def check(endpoint: str, done: dict[int, tidelog.PreparedCommit]) -> None:
    """Each version is one run of ticks from one attempt, with all its messages; a retry of the last is recognized."""
    async with AsyncClient(endpoint) as client:
        batches = [batch async for batch in client.scan(list(_VCHANNELS))]
        last = await client.commit_prepared(await prepared(client, max(done), 0), APP, max(done))
        assert (last.first_tick, last.duplicate) == (done[max(done)].first_tick, True)
        assert await client.list_txns() == []
    rows = sorted((tick, bytes(p)) for batch in batches for tick, p in zip(batch.ticks, batch.payloads, strict=True))
    for version, commit in done.items():
        mine = [(tick, payload) for tick, payload in rows if payload.startswith(b"%d:" % version)]
        assert [tick for tick, _ in mine] == list(range(commit.first_tick, commit.last_tick + 1))
        assert len(mine) == commit.messages == len(_VCHANNELS) * 3
        assert len({payload.rpartition(b":")[2] for _, payload in mine}) == 1, "of one try"
    assert len(rows) == sum(commit.messages for commit in done.values())


async def until_another(run: Run, coordinator: asyncio.Future[None]) -> None:
    """Return once another version is committed."""
    before = len(run.done)
    await until(lambda: len(run.done) != before or coordinator.done())


async def run_all(folder: Path, rounds: int) -> str:
    chance, run, settings = random.Random(), Run(), lasting_port()
    with ServerProcess(folder, settings) as server:
        endpoint = server.grpc
        async with AsyncClient(endpoint) as client:
            await client.create_channel("a", vchannels=2)
            await client.create_channel("b")
    coordinator = asyncio.create_task(coordinate(run, endpoint))
    points = _POINTS * rounds
    for point in points:
        armed = {VARIABLE: f"{point}:{chance.randint(1, 10)}"}
        try:
            server = await asyncio.to_thread(ServerProcess, folder, settings, armed)
        except ServerDiedError as died:
            # The coordinator may reach the point before the server reports that it is ready.
            if died.code != KILLED:
                raise
            continue
        with server:
            assert await asyncio.to_thread(server.wait) == KILLED, server.errors
    server = await asyncio.to_thread(ServerProcess, folder, settings)
    with server:
        await until_another(run, coordinator)
        run.is_over = True
        await coordinator
        await check(endpoint, run.done)
    assert run.tries > len(run.done), "void: nothing was retried"
    return f"{len(run.done)} versions in {run.tries} tries, {len(points)} kills"


@pytest.mark.parametrize("repetitions", [1, soak(20, timeout_s=3_600)])
async def test_a_version_is_there_once_whatever_dies_while_it_is_committed(
    tmp_path: Path, repetitions: int, record_property: Recorder
) -> None:
    record_property("measured", await run_all(tmp_path / "log", repetitions))
