"""Numbered batches are in the log once and in order after any crash, if the producer retries unacknowledged ones.

Method: producers append numbered batches one after the other and retry each until it is acknowledged, on servers that
are killed at random moments or at failpoints of the write path. The log must contain each batch once.

Promises of docs/reference/guarantees.md: G18, G19.
"""

import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, AsyncProducer, AsyncTicket, ProducerSequence
from tidelog_server.runtime.failpoints import VARIABLE, Failpoint
from tidelog_testing.loads.outage import InterruptedServer
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.soaks import Recorder
from tidelog_testing.servers.processes import ServerProcess

pytestmark = pytest.mark.crash

VCHANNELS = ("orders/0", "orders/1")
_PRODUCERS = 3
# Errors of a producer whose server has ended.
_ENDS = (tidelog.UnavailableError, tidelog.DeadlineError, tidelog.AppendUnknownError)
_POINTS = (Failpoint.BEFORE_WRITE, Failpoint.AFTER_WRITE_BEFORE_SYNC, Failpoint.AFTER_SYNC_BEFORE_ACK)


@dataclass
class Run:
    """Events of all rounds.

    Attributes:
        next_numbers: The next batch of each producer on each vchannel.
        results: First tick of each acknowledged batch.
        duplicates: Number of retries of batches that were in the log.
        acks_left: Acknowledgements until the server is killed.
    """

    random: random.Random
    next_numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    results: dict[tuple[str, str, int], int] = field(default_factory=dict)
    duplicates: int = 0
    acks_left: int = 0
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


def batch(name: str, number: int) -> list[bytes]:
    return [b"%s:%d:%d" % (name.encode(), number, index) for index in range(1 + number % 3)]


async def append_next(run: Run, client: AsyncClient, vchannel: str, name: str) -> None:
    """Append the next batch of one producer, which may be in the log already."""
    number = run.next_numbers[vchannel, name]
    result = await client.append(vchannel, batch(name, number), producer=ProducerSequence(name, number))
    run.results[vchannel, name, number] = result.first_tick
    run.duplicates += result.duplicate
    run.next_numbers[vchannel, name] += 1


async def produce(run: Run, client: AsyncClient, vchannel: str, name: str) -> None:
    """Append the batches of one producer, starting with the one that was not acknowledged."""
    while True:
        await append_next(run, client, vchannel, name)
        run.acks_left -= 1
        if not run.acks_left:
            run.is_over.set()


async def play(run: Run, server: ServerProcess, *, dies_by_itself: bool) -> None:
    """Put load on the server until it has ended."""
    run.acks_left = run.random.randint(1, 100)
    run.is_over.clear()
    retry = tidelog.Retry(base_s=0.01, cap_s=0.05)
    async with AsyncClient(server.grpc, timeout_s=2, connect_timeout_s=0.5, retry=retry) as client:
        load = asyncio.gather(
            *(produce(run, client, vchannel, name) for vchannel, name in run.next_numbers), return_exceptions=True
        )
        over = asyncio.ensure_future(asyncio.to_thread(server.wait) if dies_by_itself else run.is_over.wait())
        # A producer that finds a violation ends early, and so do all others at the end.
        await asyncio.wait((load, over), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.to_thread(server.kill)
        over.cancel()
        # They end by themselves: the server no longer answers.
        for outcome in await load:
            assert isinstance(outcome, _ENDS), outcome


async def judge(run: Run, server: ServerProcess) -> None:
    """Compare the log with what was sent and acknowledged."""
    async with AsyncClient(server.grpc) as client:
        for vchannel in VCHANNELS:
            found = await payloads(client, vchannel)
            ticks = [tick async for each in client.scan(vchannel) for tick in each.ticks]
            for name in {name for where, name in run.next_numbers if where == vchannel}:
                own = [payload for payload in found if payload.startswith(b"%s:" % name.encode())]
                acknowledged = run.next_numbers[vchannel, name] - 1
                sure = [payload for number in range(1, acknowledged + 1) for payload in batch(name, number)]
                # The batch in flight is there as a whole, or not at all.
                assert own in (sure, sure + batch(name, acknowledged + 1))
            where = dict(zip(found, ticks, strict=True))
            for (place, name, number), tick in run.results.items():
                assert place != vchannel or where[batch(name, number)[0]] == tick


async def test_each_numbered_batch_is_in_the_log_once_whatever_dies(tmp_path: Path, record_property: Recorder) -> None:
    seed = random.randrange(1 << 32)
    record_property("seed", seed)
    run = Run(random.Random(seed))
    run.next_numbers = {(vchannel, f"p{index}"): 1 for vchannel in VCHANNELS for index in range(_PRODUCERS)}
    with ServerProcess(tmp_path / "log") as server:
        async with AsyncClient(server.grpc) as client:
            await client.create_channel("orders", vchannels=2)
    for point in (None, *_POINTS):
        setting = {VARIABLE: f"{point}:{run.random.randint(1, 30)}"} if point else {}
        with ServerProcess(tmp_path / "log", env=setting) as server:
            await play(run, server, dies_by_itself=bool(point))
        with ServerProcess(tmp_path / "log") as server:
            await judge(run, server)
    # The last server died with a synced batch that was not acknowledged: its retry certainly finds it.
    with ServerProcess(tmp_path / "log") as server:
        async with AsyncClient(server.grpc) as client:
            await asyncio.gather(*(append_next(run, client, vchannel, name) for vchannel, name in run.next_numbers))
        await judge(run, server)
    assert run.duplicates
    record_property("measured", f"{len(run.results)} batches, {run.duplicates} met again")


@dataclass
class Sending:
    """The messages that one producer of the client has sent, and their acknowledged positions."""

    vchannel: str
    sent: list[bytes] = field(default_factory=list)
    tickets: list[AsyncTicket] = field(default_factory=list)


async def send_on(producer: AsyncProducer, sending: Sending, name: str, is_over: asyncio.Event) -> None:
    """Send until ``is_over``, across all restarts of the server."""
    while not is_over.is_set():
        message = b"%s:%d" % (name.encode(), len(sending.sent))
        sending.tickets.append(await producer.send(message))
        sending.sent.append(message)
        # Many small batches, some of them in flight at any time.
        if len(sending.sent) % 20 == 0:
            await sending.tickets[-20]


async def test_a_producer_sends_on_over_killed_servers_and_each_message_is_there_once(
    tmp_path: Path, record_property: Recorder
) -> None:
    seed = random.randrange(1 << 32)
    record_property("seed", seed)
    chance = random.Random(seed)
    server = InterruptedServer(tmp_path / "log")
    is_over = asyncio.Event()
    sendings = {f"p{index}": Sending(VCHANNELS[index % 2]) for index in range(4)}
    retry = tidelog.Retry(base_s=0.01, cap_s=0.1)
    async with AsyncClient(server.grpc, connect_timeout_s=30, retry=retry) as client:
        await client.create_channel("orders", vchannels=2)
        producers = {
            name: client.producer(sending.vchannel, linger_s=0, max_batch_bytes=200)
            for name, sending in sendings.items()
        }
        load = [asyncio.create_task(send_on(producers[name], sendings[name], name, is_over)) for name in sendings]
        for point in (None, *_POINTS):
            sending = chance.choice(list(sendings.values()))
            while not sending.tickets:
                await asyncio.sleep(0)
            await sending.tickets[-1]
            await server.start_again(f"{point}:{chance.randint(1, 30)}" if point else "")
        is_over.set()
        await asyncio.gather(*load)
        for producer in producers.values():
            await producer.flush()

        results = {name: [await ticket for ticket in sending.tickets] for name, sending in sendings.items()}
        for vchannel in VCHANNELS:
            found = await payloads(client, vchannel)
            ticks = [tick async for each in client.scan(vchannel) for tick in each.ticks]
            for name, sending in sendings.items():
                own = [
                    (payload, tick)
                    for payload, tick in zip(found, ticks, strict=True)
                    if payload.startswith(b"%s:" % name.encode())
                ]
                expected = list(zip(sending.sent, (result.first_tick for result in results[name]), strict=True))
                assert own == (expected if sending.vchannel == vchannel else [])
    await asyncio.to_thread(server.kill)
    met_again = sum(result.duplicate for each in results.values() for result in each)
    assert met_again
    record_property("measured", f"{sum(map(len, results.values()))} messages, {met_again} met again")
