"""A node that goes from process to process loses nothing: owners are killed, stopped, continued, and asked to end.

Method: a cluster of processes without a node of their own, on a real etcd, with logs in a folder. Under load, the owner
is ended in some way, and a process is started for each one that ended.

Promises of docs/reference/guarantees.md: G1, G2, G43, G44.
"""

import asyncio
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog import AsyncClient
from tidelog_testing.servers.engine_cluster import EngineCluster, EngineProcess, Load
from tidelog_testing.servers.etcd import EtcdProcess

pytestmark = pytest.mark.crash

SOAK_ROUNDS = 100
_SHORT_ROUNDS = 4


class Relay:
    """A node with one channel, and processes of which one serves it at a time."""

    def __init__(self, cluster: EngineCluster, seed: int) -> None:
        self.random = random.Random(seed)
        self.cluster = cluster
        self.load = Load(cluster, "orders/0")
        self.ends: list[str] = []

    async def begin(self, processes: int) -> None:
        await asyncio.to_thread(self.cluster.create_node, "n1")
        for number in range(processes):
            await asyncio.to_thread(self.cluster.start, f"p{number}")
        await self.cluster.settled(1, processes - 1)
        owner = await self._owner()
        async with AsyncClient(owner.grpc) as client:
            await client.create_channel("orders")
        await self.append(20)

    async def append(self, count: int) -> None:
        wanted = len(self.load.acknowledged) + count
        await self.load.run_until(lambda: len(self.load.acknowledged) >= wanted)

    async def pass_on(self) -> None:
        """End the owner in some way, append at the next one, and compare."""
        owner = await self._owner()
        name = next(name for name, each in self.cluster.processes.items() if each is owner)
        kind = self.random.choice(("kill", "terminate", "stop"))
        self.ends.append(kind)
        await self.append(self.random.randint(1, 20))
        if kind == "stop":
            await self._stop(owner)
        else:
            owner.kill() if kind == "kill" else owner.terminate()
            await self.append(20)
            await asyncio.to_thread(owner.wait)
            await asyncio.to_thread(self.cluster.start, name)
        await self.append(20)
        await self.cluster.settled(1, len(self.cluster.processes) - 1)
        stored = await self.load.payloads()
        assert set(self.load.acknowledged) <= set(stored), self.ends
        assert len(stored) == len(set(stored)), self.ends

    async def _owner(self) -> EngineProcess:
        """Return the process that serves, once there is one: on a busy machine, a lease may just have ended."""
        found: list[EngineProcess] = []

        def is_one() -> bool:
            found[:] = self.cluster.in_state("ready")
            return len(found) == 1

        await self.cluster.until(is_one)
        return found[0]

    async def _stop(self, owner: EngineProcess) -> None:
        os.kill(owner.pid, signal.SIGSTOP)
        others = [each for each in self.cluster.processes.values() if each is not owner]
        try:
            await self.cluster.until(lambda: any(each.state == "ready" for each in others))
        finally:
            os.kill(owner.pid, signal.SIGCONT)


async def run(folder: Path, etcd: EtcdProcess, seed: int, rounds: int) -> Relay:
    with EngineCluster(folder / "cluster", etcd, lease_ttl_s=2) as cluster:
        relay = Relay(cluster, seed)
        try:
            await relay.begin(3)
            for _ in range(rounds):
                await relay.pass_on()
        finally:
            await relay.load.close()
    return relay


async def test_a_node_that_is_passed_on_loses_nothing(tmp_path: Path, etcd: EtcdProcess) -> None:
    await run(tmp_path, etcd, random.randrange(1 << 32), _SHORT_ROUNDS)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("part", range(2))
async def test_a_node_that_is_passed_on_for_long_loses_nothing(
    tmp_path: Path, etcd: EtcdProcess, part: int, record_property: Callable[[str, object], None]
) -> None:
    relay = await run(tmp_path, etcd, part, SOAK_ROUNDS)
    kinds = {kind: relay.ends.count(kind) for kind in sorted(set(relay.ends))}
    record_property("measured", f"seed {part}: {kinds}, {len(relay.load.acknowledged)} acknowledged")
