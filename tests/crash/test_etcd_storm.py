"""Every node of a cluster serves again after any outage of etcd, without a supervisor, within a lease and ten seconds.

Method: three nodes beside one etcd, each behind its own proxy. At random etcd is paused, or killed and started, or
nodes are cut off from it, once or several times in quick succession, so that nodes lose the lease of a start too. After
each outage every node must acknowledge an append to its channel, in the process that it had at the beginning.

Promises of docs/reference/guarantees.md: G43, G46.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final

import pytest

from tidelog import AsyncClient, TidelogError
from tidelog_testing.faults.fault_proxy import FaultProxy
from tidelog_testing.parts.soaks import Recorder, soak
from tidelog_testing.servers.etcd import EtcdProcess, needs_etcd
from tidelog_testing.servers.processes import ServerProcess, lasting_port

pytestmark = [pytest.mark.crash, needs_etcd]

NODES: Final = ("n1", "n2", "n3")
LEASE_S: Final = 2
BACK_WITHIN_S: Final = LEASE_S + 10.0


class EtcdStorm:
    """Three nodes and their etcd. Use with ``async with``."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.slowest_s = 0.0
        self._folder = folder
        self._random = random.Random(seed)
        self._stack = AsyncExitStack()
        self._etcd: EtcdProcess
        self._proxies: list[FaultProxy] = []
        self._nodes: list[ServerProcess] = []
        self._clients: list[AsyncClient] = []

    async def __aenter__(self) -> "EtcdStorm":
        self._etcd = self._stack.enter_context(await asyncio.to_thread(EtcdProcess, self._folder / "etcd"))
        for node_id in NODES:
            proxy = await self._stack.enter_async_context(FaultProxy(self._etcd.endpoint))
            settings: dict[str, object] = {
                **lasting_port(), "metadata.kind": "etcd", "metadata.etcd_endpoints": proxy.endpoint,
                "cluster.node_id": node_id, "cluster.lease_ttl_s": LEASE_S,
            }  # fmt: skip
            node = await asyncio.to_thread(ServerProcess, self._folder / node_id, settings)
            self._stack.callback(node.kill)
            self._proxies.append(proxy)
            self._nodes.append(node)
        self._clients = [
            await self._stack.enter_async_context(AsyncClient(node.grpc, timeout_s=2.0)) for node in self._nodes
        ]
        for node_id, client in zip(NODES, self._clients, strict=True):
            await client.create_channel(node_id)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def outage(self) -> str:
        """Make one to four outages of etcd with pauses that a start fits in or not; return what was done."""
        kinds: list[Callable[[float], Awaitable[str]]] = [self._pause, self._restart, self._cut]
        done = []
        for _ in range(self._random.choice([1, 2, 2, 4])):
            done.append(await self._random.choice(kinds)(self._random.uniform(0.1, 2.0) * LEASE_S))
            await asyncio.sleep(self._random.uniform(0.0, 1.5))
        return " ".join(done)

    async def until_all_serve(self) -> list[str]:
        """Return the nodes, with their state, that do not serve within ``BACK_WITHIN_S``."""
        begin_s = time.monotonic()
        states = await asyncio.gather(*(self._until_serves(number, begin_s) for number in range(len(NODES))))
        self.slowest_s = max(self.slowest_s, time.monotonic() - begin_s)
        return [state for state in states if state]

    async def _until_serves(self, number: int, begin_s: float) -> str:
        node, client = self._nodes[number], self._clients[number]
        state = ""
        while time.monotonic() < begin_s + BACK_WITHIN_S:
            if node.code is not None:
                return f"{NODES[number]} has ended with {node.code}: {node.errors[-2_000:]}"
            with suppress(OSError):
                state = str(await asyncio.to_thread(node.get, "/readyz"))
            try:
                await client.append(NODES[number], b"x", timeout_s=1.0)
            except TidelogError as error:
                state += f" {error}"
            else:
                return ""
            await asyncio.sleep(0.05)
        return f"{NODES[number]}: {state}: {node.errors[-2_000:]}"

    async def _pause(self, seconds: float) -> str:
        os.kill(self._etcd.pid, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        os.kill(self._etcd.pid, signal.SIGCONT)
        return f"paused {seconds:.1f}s"

    async def _restart(self, seconds: float) -> str:
        await asyncio.to_thread(self._etcd.kill)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self._etcd.start)
        return f"restarted {seconds:.1f}s"

    async def _cut(self, seconds: float) -> str:
        proxies = self._random.sample(self._proxies, self._random.choice([1, 2, 3]))
        for proxy in proxies:
            proxy.cut()
        await asyncio.sleep(seconds)
        for proxy in proxies:
            proxy.heal()
        return f"cut off {len(proxies)} for {seconds:.1f}s"


async def run(folder: Path, *, seconds: float, min_outages: int, record: Recorder) -> None:
    seed = random.randrange(1 << 32)
    begin_s, outages = time.monotonic(), 0
    async with EtcdStorm(folder, seed) as storm:
        while time.monotonic() < begin_s + seconds or outages < min_outages:
            done = await storm.outage()
            outages += 1
            assert await storm.until_all_serve() == [], f"seed {seed}: {done}"
        record("outages", outages)
        record("slowest return in s", round(storm.slowest_s, 1))
    record("seed", seed)


@pytest.mark.parametrize(("seconds", "min_outages"), [(20, 3), soak(600, 60, timeout_s=1_200)])
async def test_nodes_serve_again_after_outages_of_etcd(
    tmp_path: Path, seconds: float, min_outages: int, record_property: Recorder
) -> None:
    await run(tmp_path, seconds=seconds, min_outages=min_outages, record=record_property)
