"""Blobs in a cluster: each node has its own, and the client finds the node of a mailbox for its bodies.

Method: two server processes on a real etcd.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tidelog import AsyncClient, AsyncCluster, MailboxSettings
from tidelog_testing.servers.cluster import ClusterOfProcesses
from tidelog_testing.servers.etcd import EtcdProcess

LARGE, HUGE = b"large" * 30_000, b"huge" * 1_500_000


@pytest.fixture
async def cluster(tmp_path: Path, etcd: EtcdProcess) -> AsyncIterator[ClusterOfProcesses]:
    with ClusterOfProcesses(tmp_path, etcd, lease_ttl_s=5, prefix=f"/{tmp_path.name}/") as running:
        for node_id in ("n1", "n2"):
            await asyncio.to_thread(running.start, node_id)
        yield running


async def test_bodies_are_stored_on_the_node_of_their_mailbox(cluster: ClusterOfProcesses) -> None:
    async with AsyncCluster([node.grpc for node in cluster.nodes.values()]) as client:
        names = [f"jobs/{number}" for number in range(4)]
        for name in names:
            await client.mailboxes.create(name, MailboxSettings(max_body_bytes=1 << 23))
        for name in names:
            await client.mailbox(name).send_many([LARGE, HUGE])
        for node_id in cluster.nodes:
            await asyncio.to_thread(cluster.nodes[node_id].kill)
            await asyncio.to_thread(cluster.start, node_id)
        for name in names:
            mailbox = client.mailbox(name)
            bodies: list[bytes] = []
            while len(bodies) < 2:
                deliveries = await mailbox.fetch(10, wait=10, lease=60.0)
                bodies += [delivery.body for delivery in deliveries]
                await mailbox.ack_many(deliveries)
            assert sorted(bodies) == [HUGE, LARGE]
    channels = set[str]()
    for node_id, node in cluster.nodes.items():
        async with AsyncClient(node.grpc) as single:
            key = await single.blobs.put(node_id.encode())
            assert await single.blobs.get(key) == node_id.encode()
            channels |= {each.name async for each in single.list_channels("_blobs")}
    assert channels == {"_blobs-n1", "_blobs-n2"}
