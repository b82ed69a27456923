"""A node becomes the leader although the metadata store refuses some commits of its election, while its lease lasts."""

import asyncio
from collections.abc import Sequence

import pytest

from tidelog_server.cluster.cluster import Cluster
from tidelog_server.cluster.session import Session
from tidelog_server.core.errors.cluster import MetadataUnavailableError
from tidelog_server.core.nodes import NodeRecord, NodeTerm
from tidelog_server.core.ticks import NO_TICK
from tidelog_server.metadata.memory import MemoryMetadataStore
from tidelog_server.metadata.store import Change
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.runtime.tasks import TaskOwner
from tidelog_server.storage.memory import MemoryLogStore


class RefusingMetadata(MemoryMetadataStore):
    """Refuses the first two commits of a key, as etcd does while its space is exhausted."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key
        self.refusals = 2

    async def commit(self, changes: Sequence[Change], *, is_before_log: bool = False) -> int:
        if self.refusals and any(change.key == self._key for change in changes):
            self.refusals -= 1
            raise MetadataUnavailableError("no space")
        return await super().commit(changes, is_before_log=is_before_log)


class NoPeers:
    """No other nodes."""

    async def allocate_ticks(self, address: str, count: int, caller: NodeTerm) -> int:
        raise AssertionError(f"{address} was asked for {count} ticks by {caller}")

    async def note_channels(self, address: str, names: Sequence[str]) -> None:
        raise AssertionError(f"{address} was notified of {names}")


@pytest.mark.parametrize("key", ["root/leader", "root/timestamp"])
async def test_a_refused_election_is_repeated(key: str) -> None:
    store, clock = RefusingMetadata(key), SystemClock()
    deaths: list[str] = []
    tasks = TaskOwner(lambda name, cause: deaths.append(f"{name}: {cause}"))
    record = NodeRecord("n1", "127.0.0.1:1", "127.0.0.1:2", "00", "1", "")
    session = Session(store, clock, record, root="root", ttl_s=60)
    cluster = Cluster(session, clock, NoPeers(), root="root")
    try:
        async with asyncio.timeout(20):
            await cluster.register(MemoryLogStore(), None)
            await cluster.open(NO_TICK, tasks)
        assert store.refusals == 0
        assert cluster.oracle.leading is not None
        assert deaths == []
    finally:
        await tasks.close()
        await session.leave()
        await store.close()
