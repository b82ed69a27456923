"""Fencing tokens hold across SIGKILL: no writer appends after its successor, and a token that was set is never lost.

Method: writers take over a vchannel from each other, each with a greater token, while earlier ones still append; the
server is killed after a random number of acknowledgements and started again. Each message has its writer's token, so
the log itself shows whether one came too late.

Promises of docs/reference/guarantees.md: G17.
"""

import asyncio
import random
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.soaks import Recorder
from tidelog_testing.servers.processes import ServerProcess

pytestmark = pytest.mark.crash

VCHANNEL = "orders/0"
_APPENDS_OF_A_WRITER = 20


@dataclass
class Run:
    """Events of all rounds.

    Attributes:
        asked, set: The greatest token requested, and the greatest token acknowledged.
        acknowledged: Payloads of acknowledged messages.
        refused: Number of appends refused because of a newer token.
        acks_left: Acknowledgements until the server is killed.
    """

    random: random.Random
    asked: int = 0
    set: int = 0
    acknowledged: list[bytes] = field(default_factory=list)
    refused: int = 0
    acks_left: int = 0
    is_over: asyncio.Event = field(default_factory=asyncio.Event)

    def note_ack(self, payload: bytes) -> None:
        self.acknowledged.append(payload)
        self.acks_left -= 1
        if not self.acks_left:
            self.is_over.set()


async def write(run: Run, client: AsyncClient, token: int) -> None:
    """Append with ``token`` until another writer has taken over."""
    number = 0
    try:
        while True:
            payload = b"%d:%d" % (token, number)
            await client.append(VCHANNEL, payload, fencing_token=token)
            run.note_ack(payload)
            number += 1
    except tidelog.FencedError as error:
        if error.actual_fencing_token <= token:
            raise
        run.refused += 1


async def take_over(run: Run, client: AsyncClient) -> None:
    """Start one writer after the other, while up to two earlier ones still write."""
    async with asyncio.TaskGroup() as writers:
        while True:
            run.asked += 1
            token = run.asked
            await client.fence(VCHANNEL, token)
            run.set = token
            acknowledged = len(run.acknowledged)
            writers.create_task(write(run, client, token))
            while len(run.acknowledged) < acknowledged + run.random.randint(1, _APPENDS_OF_A_WRITER):
                await client.append(VCHANNEL, b"%d:more" % token, fencing_token=token)
                run.note_ack(b"%d:more" % token)


async def play(run: Run, server: ServerProcess) -> None:
    """Put load on the server until it is killed."""
    run.acks_left = run.random.randint(1, 150)
    run.is_over.clear()
    async with AsyncClient(server.grpc, timeout_s=10) as client:
        load = asyncio.ensure_future(take_over(run, client))
        over = asyncio.ensure_future(run.is_over.wait())
        await asyncio.wait((load, over), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.to_thread(server.kill)
        over.cancel()
        load.cancel()
        (outcome,) = await asyncio.gather(load, return_exceptions=True)
        # Only the end of the server or of the round may have ended the load.
        assert run.is_over.is_set(), outcome
        assert all(isinstance(cause, asyncio.CancelledError | tidelog.TidelogError) for cause in causes(outcome))
        assert not any(isinstance(cause, tidelog.FencedError) for cause in causes(outcome)), outcome


def causes(outcome: BaseException | None) -> list[BaseException]:
    """Return the exceptions of a task group, one by one."""
    if isinstance(outcome, BaseExceptionGroup):
        return [cause for each in outcome.exceptions for cause in causes(each)]
    return [outcome] if outcome is not None else []


async def judge(run: Run, server: ServerProcess) -> None:
    """Compare the log with the acknowledgements."""
    async with AsyncClient(server.grpc) as client:
        (channel,) = await client.describe_channels(["orders"])
        found = await payloads(client, VCHANNEL)
    token = channel.vchannels[0].fencing_token
    tokens = [int(payload.partition(b":")[0]) for payload in found]

    assert run.set <= token <= run.asked
    assert all(before <= after for before, after in pairwise(tokens))
    assert not tokens or tokens[-1] <= token
    assert not set(run.acknowledged) - set(found)
    # The next round continues with the actual token.
    run.asked = run.set = token


async def test_no_writer_gets_in_behind_its_successor_whatever_dies(tmp_path: Path, record_property: Recorder) -> None:
    seed = random.randrange(1 << 32)
    record_property("seed", seed)
    run = Run(random.Random(seed))
    with ServerProcess(tmp_path / "log") as server:
        async with AsyncClient(server.grpc) as client:
            await client.create_channel("orders")
        await play(run, server)
    for _ in range(5):
        with ServerProcess(tmp_path / "log") as server:
            await judge(run, server)
            await play(run, server)
    with ServerProcess(tmp_path / "log") as server:
        await judge(run, server)
    assert run.acknowledged
    assert run.refused
