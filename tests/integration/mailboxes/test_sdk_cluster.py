"""Messages of mailboxes in a cluster: the handle finds the owner, and a worker continues after the owner was away.

Method: two server processes on a real etcd. Waiting is for a state that must come.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, AsyncCluster, AsyncDelivery, Cluster
from tidelog_testing.servers.cluster import ClusterOfProcesses
from tidelog_testing.servers.etcd import EtcdProcess

WITHIN_S = 60.0
NAMES = [f"jobs/{number}" for number in range(4)]


@pytest.fixture
async def cluster(tmp_path: Path, etcd: EtcdProcess) -> AsyncIterator[ClusterOfProcesses]:
    with ClusterOfProcesses(tmp_path, etcd, lease_ttl_s=5, prefix=f"/{tmp_path.name}/") as running:
        for node_id in ("n1", "n2"):
            await asyncio.to_thread(running.start, node_id)
        yield running


def endpoints(cluster: ClusterOfProcesses) -> list[str]:
    return [node.grpc for node in cluster.nodes.values()]


async def test_the_handle_finds_the_owner_of_each_mailbox(cluster: ClusterOfProcesses) -> None:
    async with AsyncCluster(endpoints(cluster)) as client:
        for name in NAMES:
            await client.mailboxes.create(name)
        for name in NAMES:
            mailbox = client.mailbox(name)
            await mailbox.send_many([b"a", b"b"])
            [first, second] = await mailbox.fetch(2, wait=10)
            await first.ack()
            await second.reject(final=True)
            assert [each async for each in mailbox.redrive()][-1] == (1, 1)
            assert await mailbox.purge() == 1
        with pytest.raises(tidelog.MailboxNotFoundError):
            await client.mailbox("missing").send(b"a")
        with pytest.raises(tidelog.MailboxNotFoundError):
            await anext(client.mailbox("missing").redrive())
        other = dict(zip(cluster.nodes, endpoints(cluster), strict=True))
        owner = (await client.owner_of(await client.mailboxes.channel_of(NAMES[0]))).node_id
        async with AsyncClient(next(endpoint for node, endpoint in other.items() if node != owner)) as single:
            with pytest.raises(tidelog.NotOwnerError):
                await single.mailbox(NAMES[0]).send(b"a")

    def use_the_twin() -> None:
        with Cluster(endpoints(cluster)) as twin:
            for name in NAMES:
                mailbox = twin.mailbox(name)
                mailbox.send(b"a")
                [delivery] = mailbox.fetch(wait=10)
                delivery.ack()

    await asyncio.to_thread(use_the_twin)


async def test_a_worker_continues_after_the_owner_was_killed(cluster: ClusterOfProcesses) -> None:
    async with AsyncCluster(endpoints(cluster)) as client:
        await client.mailboxes.create("jobs")
        jobs = client.mailbox("jobs")
        await jobs.send_many([b"%d" % number for number in range(100)])
        owner = (await client.owner_of(await client.mailboxes.channel_of("jobs"))).node_id
        done: set[bytes] = set()
        has_begun = asyncio.Event()

        async def handle(delivery: AsyncDelivery) -> None:
            await asyncio.sleep(0.01)
            done.add(delivery.body)
            if len(done) == 20:
                has_begun.set()

        task = asyncio.create_task(jobs.work(handle, concurrency=2, lease=5))
        async with asyncio.timeout(WITHIN_S):
            await has_begun.wait()
            cluster.nodes[owner].kill()
            await asyncio.to_thread(cluster.start, owner)
            while len(done) < 100:
                assert not task.done()
                await asyncio.sleep(0.05)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
