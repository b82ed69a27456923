"""Three nodes on one etcd under load, which are killed, stopped, cut off and replaced; then the judgement.

Writers append to every channel all the time, some of them as idempotent producers, and record what they intend and the
answers. In the end a fresh client reads everything and the history is checked. What a process acknowledges after
another one took its place is missing in the other's log, so it would show as lost.
"""

import asyncio
import os
import random
import shutil
import signal
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import tidelog
from tidelog import AsyncClient, AsyncCluster, TidelogError
from tidelog_testing.faults.fault_proxy import FaultProxy
from tidelog_testing.oracles.history import Anomaly, Append, History, Kind, Log, check
from tidelog_testing.servers.etcd import EtcdProcess
from tidelog_testing.servers.processes import ServerProcess, lasting_port
from tidelog_testing.servers.skewed import SKEW_FILE

NODES: Final = ("n1", "n2", "n3")
CHANNELS: Final = tuple(f"c{number}" for number in range(6))
LEASE_S: Final = 2
_MESSAGES: Final = 4
_PAUSE_S: Final = 0.01
_RECOVER_WITHIN_S: Final = 60.0
_TELL_WITHIN_S: Final = 5.0
# A request that takes longer to reach its local connection arrives later: that only weakens the test.
_SENT_WITHIN_S: Final = 0.2
# Ticks of different nodes differ by the age of a range at most; the rest covers processes that wait for a processor.
_SLACK_NS: Final = 3 * 1_000_000_000
_PROGRAM: Final = ("-m", "tidelog_testing.servers.skewed")


@dataclass(slots=True)
class Member:
    """A node of the storm.

    Attributes:
        folder: Its data folder, which changes when another process takes its place.
        proxy: Its connection to etcd.
        skew: File with the offset of its wall clock, in milliseconds.
        process: The running process; None while it is dead.
        moves: Number of times that another process took its place.
        port: Its port, reused by each process that starts on its data.
    """

    node_id: str
    folder: Path
    proxy: FaultProxy
    skew: Path
    process: ServerProcess | None = None
    moves: int = 0
    port: dict[str, object] = field(default_factory=lasting_port)


@dataclass(slots=True)
class Tally:
    """Troubles made, and what paused owners acknowledged.

    Attributes:
        done: Number of troubles, by kind.
        paused_asked: Appends that waited for a stopped process to continue.
        late_acknowledged: Of these, acknowledged in the term from before its pause, or beside its successor: must be 0.
        renewed_acknowledged: Of these, acknowledged after it had registered again, in a newer term: allowed.
    """

    done: Counter[str] = field(default_factory=Counter)
    paused_asked: int = 0
    late_acknowledged: int = 0
    renewed_acknowledged: int = 0


class ClusterStorm:
    """A cluster and its troubles. Use with ``async with``."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.history = History()
        self.tally = Tally()
        self.members: dict[str, Member] = {}
        self._folder = folder
        self._random = random.Random(seed)
        self._stack = AsyncExitStack()
        self._writers: list[asyncio.Task[None]] = []
        self._is_over = False
        self.etcd: EtcdProcess
        self.cluster: AsyncCluster

    async def __aenter__(self) -> Self:
        self.etcd = self._stack.enter_context(await asyncio.to_thread(EtcdProcess, self._folder / "etcd"))
        for node_id in NODES:
            proxy = await self._stack.enter_async_context(FaultProxy(self.etcd.endpoint))
            skew = self._folder / f"{node_id}.skew"
            skew.write_text("0")
            self.members[node_id] = Member(node_id, self._folder / node_id, proxy, skew)
        self._stack.callback(self._kill_all)
        for member in self.members.values():
            await self._start(member)
        endpoints = [member.process.grpc for member in self.members.values() if member.process]
        self.cluster = await self._stack.enter_async_context(AsyncCluster(endpoints, timeout_s=5.0))
        await self.cluster.create_channels(CHANNELS)
        for channel in CHANNELS:
            self._writers.append(asyncio.create_task(self._write(channel)))
            self._writers.append(asyncio.create_task(self._produce(channel)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._writers:
            task.cancel()
        await asyncio.gather(*self._writers, return_exceptions=True)
        await self._stack.aclose()

    # -- Load ----------------------------------------------------------------------------------------------

    async def _write(self, channel: str) -> None:
        """Append each message once; without an answer its outcome stays unknown."""
        while not self._is_over:
            append = self.history.intend(f"w-{channel}", channel, _MESSAGES)
            payloads = [value.encode() for value in append.values()]
            try:
                client = await self.cluster.client_of(channel)
                result = await client.append(channel, payloads, timeout_s=2.0)
                append.acknowledge(result.first_tick)
            except TidelogError as error:
                if error.effect == "none":
                    append.refuse()
            await asyncio.sleep(_PAUSE_S)

    async def _produce(self, channel: str) -> None:
        """Append as a producer with its own numbers: repeat each batch until it is known to be in the log, once."""
        position: tidelog.ProducerPosition | None = None
        sequence = 0
        while not self._is_over:
            sequence += 1
            append = self.history.intend(f"p-{channel}", channel, _MESSAGES)
            payloads = [value.encode() for value in append.values()]
            while not self._is_over:
                try:
                    client = await self.cluster.client_of(channel)
                    if position is None:
                        position = await client.open_producer(channel, f"p-{channel}")
                    number = tidelog.ProducerSequence(position.producer_id, position.epoch, sequence)
                    result = await client.append(channel, payloads, producer=number, timeout_s=2.0)
                    append.acknowledge(result.first_tick)
                    break
                except TidelogError:
                    await asyncio.sleep(_PAUSE_S)
            await asyncio.sleep(_PAUSE_S)

    # -- Troubles ------------------------------------------------------------------------------------------

    async def trouble(self) -> str:
        """Make one random trouble, and repair it."""
        member = self.members[self._random.choice(NODES)]
        kinds: dict[str, Callable[[Member], Awaitable[None]]] = {
            "kill": self._kill_and_start,
            "pause": self._pause,
            "etcd restart": self._restart_etcd,
            "partition": self._partition,
            "clock": self._set_clock,
            "take over": self._take_over,
        }
        kind = self._random.choice(list(kinds))
        await kinds[kind](member)
        self.tally.done[kind] += 1
        return f"{kind} {member.node_id}"

    async def _kill_and_start(self, member: Member) -> None:
        assert member.process is not None
        member.process.kill()
        await asyncio.sleep(self._random.uniform(0, 1.0))
        await self._start(member)

    async def _pause(self, member: Member) -> None:
        """Stop a process for three lease times; it must acknowledge nothing before it has registered again."""
        assert member.process is not None
        async with AsyncClient(member.process.grpc, timeout_s=0.5) as direct:
            # A lower bound: it may register again before it is stopped.
            term = await self._own_term(direct, member.node_id)
            os.kill(member.process.pid, signal.SIGSTOP)
            await asyncio.sleep(3 * LEASE_S)
            await self._ask_paused(member.process, member.node_id, direct, term)

    async def _restart_etcd(self, _: Member) -> None:
        await asyncio.to_thread(self.etcd.kill)
        await asyncio.sleep(self._random.uniform(0, 2 * LEASE_S))
        await asyncio.to_thread(self.etcd.start)

    async def _partition(self, member: Member) -> None:
        member.proxy.cut()
        await asyncio.sleep(self._random.uniform(0, 3 * LEASE_S))
        member.proxy.heal()

    async def _set_clock(self, member: Member) -> None:
        member.skew.write_text(str(self._random.choice([-3_600_000, -86_400_000, -2_000, 1_500])))
        await asyncio.sleep(self._random.uniform(0.5, 2.0))
        member.skew.write_text("0")

    async def _take_over(self, member: Member) -> None:
        """Stop a process, start another one on a copy of its data under its name, and continue the first one."""
        old = member.process
        assert old is not None
        async with AsyncClient(old.grpc, timeout_s=0.5) as direct:
            await self._own_term(direct, member.node_id)
            os.kill(old.pid, signal.SIGSTOP)
            member.moves += 1
            moved = member.folder.with_name(f"{member.node_id}-{member.moves}")
            await asyncio.to_thread(shutil.copytree, member.folder, moved)
            member.folder, member.process, member.port = moved, None, lasting_port()
            await self._start(member)
            # Its successor is registered meanwhile, so no newer term can be its own.
            await self._ask_paused(old, member.node_id, direct, None)
        await asyncio.sleep(self._random.uniform(0, LEASE_S))
        old.kill()

    async def _ask_paused(self, process: ServerProcess, node_id: str, direct: AsyncClient, term: int | None) -> None:
        """Continue a stopped process, with appends already waiting in its connection, so that it reads them first.

        Args:
            process: The process, stopped for so long that its lease has ended.
            node_id: Its node id.
            direct: Client connected to it since before it was stopped.
            term: Lower bound of its own term before it was stopped; None if no term of its own can be newer.
        """
        asks = [asyncio.create_task(self._ask(node_id, direct, channel, term)) for channel in CHANNELS]
        await asyncio.sleep(_SENT_WITHIN_S)
        os.kill(process.pid, signal.SIGCONT)
        await asyncio.gather(*asks)

    async def _ask(self, node_id: str, direct: AsyncClient, channel: str, term: int | None) -> None:
        append = self.history.intend(f"z-{channel}", channel, 1)
        self.tally.paused_asked += 1
        try:
            result = await direct.append(channel, [append.values()[0].encode()], timeout_s=1.0)
        except TidelogError as error:
            if error.effect == "none":
                append.refuse()
            return
        append.acknowledge(result.first_tick)
        if term is not None and await self._own_term(direct, node_id) > term:
            self.tally.renewed_acknowledged += 1
        else:
            self.tally.late_acknowledged += 1

    async def _own_term(self, direct: AsyncClient, node_id: str) -> int:
        """Return the term that a node reports as its own, 0 if it reports none in time."""
        deadline_s = time.monotonic() + _TELL_WITHIN_S
        while time.monotonic() < deadline_s:
            try:
                nodes = (await direct.describe_cluster()).nodes
            except TidelogError:
                nodes = ()
            for node in nodes:
                if node.node_id == node_id:
                    return node.term
            await asyncio.sleep(0.02)
        return 0

    # -- Judgement -----------------------------------------------------------------------------------------

    async def judge(self) -> list[Anomaly]:
        """End the load, wait until every channel can be read, and return what contradicts the history."""
        self._is_over = True
        await asyncio.wait_for(asyncio.gather(*self._writers), _RECOVER_WITHIN_S)
        log: dict[str, list[tuple[int, str]]] = {}
        for channel in CHANNELS:
            log[channel] = await self._read(channel)
        self.history.write(self._folder / "history.jsonl")
        return [*_by_channel(self.history, log), *_over_channels(self.history, log)]

    async def _read(self, channel: str) -> list[tuple[int, str]]:
        deadline_s = time.monotonic() + _RECOVER_WITHIN_S
        while True:
            try:
                client = await self.cluster.client_of(channel)
                # Once more, so that the read covers everything that was acknowledged.
                await client.append(channel, _end_of(self.history, channel), timeout_s=2.0)
                return [(row.tick, row.payload.decode()) async for batch in client.scan(channel) for row in batch]
            except TidelogError:
                if time.monotonic() > deadline_s:
                    raise
            await asyncio.sleep(0.1)

    # -- Private -------------------------------------------------------------------------------------------

    async def _start(self, member: Member) -> None:
        settings: dict[str, object] = {
            **member.port,
            "metadata.kind": "etcd",
            "metadata.etcd_endpoints": member.proxy.endpoint,
            "cluster.node_id": member.node_id,
            "cluster.lease_ttl_s": LEASE_S,
        }
        member.process = await asyncio.to_thread(
            ServerProcess, member.folder, settings, {SKEW_FILE: str(member.skew)}, program=_PROGRAM
        )

    def _kill_all(self) -> None:
        for member in self.members.values():
            if member.process is not None:
                member.process.kill()


def _end_of(history: History, channel: str) -> bytes:
    return history.intend(f"e-{channel}", channel, 1).values()[0].encode()


def _by_channel(history: History, log: Log) -> list[Anomaly]:
    """Judge each channel by itself: real-time order is promised per channel."""
    anomalies: list[Anomaly] = []
    for channel in CHANNELS:
        own = History([append for append in history.appends if append.vchannel == channel], history.trims)
        anomalies += check(own, {channel: log[channel]})
    return anomalies


def _over_channels(history: History, log: Log) -> list[Anomaly]:
    """Judge what holds over all nodes: unique ticks, and the order of appends further apart than a range's age."""
    counts = Counter(tick for rows in log.values() for tick, _ in rows)
    anomalies = [Anomaly(Kind.DUPLICATE, f"tick {tick} on several channels") for tick, n in counts.items() if n > 1]
    ticks = {value: tick for rows in log.values() for tick, value in rows}
    placed: list[tuple[Append, int]] = [
        (append, ticks[append.values()[0]]) for append in history.appends if append.values()[0] in ticks
    ]
    ended = sorted((append.end_ns, tick) for append, tick in placed if append.end_ns is not None)
    greatest = list(accumulate((tick for _, tick in ended), max))
    for append, tick in placed:
        before = bisect_left(ended, (append.begin_ns - _SLACK_NS, 0))
        if before and tick <= greatest[before - 1]:
            text = f"{append.producer}:{append.first} at {tick}, an ack of long before at {greatest[before - 1]}"
            anomalies.append(Anomaly(Kind.REAL_TIME_ORDER, text))
    return anomalies
