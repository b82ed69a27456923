"""Mailboxes of a cluster: any node creates and lists them, and the owner of the channel answers for them.

Method: two server processes on a real etcd. Waiting is for a state that must come.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, AsyncCluster, Cluster, MailboxSettings
from tidelog_testing.servers.cluster import ClusterOfProcesses
from tidelog_testing.servers.etcd import EtcdProcess

WITHIN_S = 40.0
NAMES = [f"jobs/{number}" for number in range(4)]


@pytest.fixture
async def cluster(tmp_path: Path, etcd: EtcdProcess) -> AsyncIterator[ClusterOfProcesses]:
    with ClusterOfProcesses(tmp_path, etcd, lease_ttl_s=5, prefix=f"/{tmp_path.name}/") as running:
        for node_id in ("n1", "n2"):
            await asyncio.to_thread(running.start, node_id)
        yield running


def endpoints(cluster: ClusterOfProcesses) -> list[str]:
    return [node.grpc for node in cluster.nodes.values()]


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not await holds():
            await asyncio.sleep(0.05)


async def owner_of(client: AsyncClient, channel: str) -> str:
    return (await client.locate_channels([channel]))[channel].node_id


async def test_the_owner_of_a_mailbox_answers_for_it(cluster: ClusterOfProcesses) -> None:
    async with AsyncExitStack() as stack:
        clients = {
            node_id: await stack.enter_async_context(AsyncClient(node.grpc)) for node_id, node in cluster.nodes.items()
        }
        first = clients["n1"]
        created = [await first.mailboxes.create(name) for name in NAMES]
        owners = [await owner_of(first, mailbox.channel) for mailbox in created]
        assert sorted(owners) == ["n1", "n1", "n2", "n2"]
        for mailbox, owner_id in zip(created, owners, strict=True):
            # The owner and the other node know the mailbox as soon as it is created.
            assert (await clients[owner_id].mailboxes.describe(mailbox.name)).channel == mailbox.channel
            other = clients["n1" if owner_id == "n2" else "n2"]
            for refused in (
                other.mailboxes.describe(mailbox.name),
                other.mailboxes.configure(mailbox.name, MailboxSettings(lease_ms=5)),
                other.mailboxes.delete(mailbox.name),
            ):
                with pytest.raises(tidelog.NotOwnerError) as elsewhere:
                    await refused
                assert elsewhere.value.node_id == owner_id
            with pytest.raises(tidelog.MailboxAlreadyExistsError):
                await other.mailboxes.create(mailbox.name)


async def test_a_client_of_the_cluster_asks_the_owner(cluster: ClusterOfProcesses) -> None:
    async with AsyncCluster(endpoints(cluster)) as client:
        created = [await client.mailboxes.create(name) for name in NAMES]
        assert {await client.mailboxes.channel_of(mailbox.name) for mailbox in created} == {
            mailbox.channel for mailbox in created
        }
        for mailbox in created:
            altered = await client.mailboxes.configure(mailbox.name, MailboxSettings(lease_ms=5))
            assert (await client.mailboxes.describe(mailbox.name)).revision == altered.revision > mailbox.revision
        with pytest.raises(tidelog.MailboxNotFoundError):
            await client.mailboxes.describe("missing")
        assert not await client.mailboxes.delete("missing", ignore_missing=True)
        # The name gets another channel, perhaps on another node.
        for mailbox in created:
            assert await client.mailboxes.delete(mailbox.name)
        again = [await client.mailboxes.create(name) for name in NAMES]
        for mailbox in again:
            assert (await client.mailboxes.describe(mailbox.name)).channel == mailbox.channel

        async def lists_all() -> bool:
            return await client.mailboxes.list("jobs/") == tuple(again)

        await until(lists_all)


async def test_dead_letters_stay_on_one_node(cluster: ClusterOfProcesses) -> None:
    async with AsyncCluster(endpoints(cluster)) as client:
        dead = [await client.mailboxes.create(f"dead/{number}") for number in range(2)]
        places = [(await client.owner_of(mailbox.channel)).node_id for mailbox in dead]
        assert sorted(places) == ["n1", "n2"]
        for number, (mailbox, node_id) in enumerate(zip(dead, places, strict=True)):
            for name in (f"jobs/{number}/a", f"jobs/{number}/b", f"jobs/{number}/c"):
                made = await client.mailboxes.create(name, MailboxSettings(dead_letter=mailbox.name))
                assert (await client.owner_of(made.channel)).node_id == node_id
            with pytest.raises(tidelog.MailboxInUseError):
                await client.mailboxes.delete(mailbox.name)
        with pytest.raises(tidelog.InvalidRequestError, match="belongs to node"):
            await client.mailboxes.configure("jobs/0/a", MailboxSettings(dead_letter="dead/1"))
        other = cluster.nodes["n1" if places[0] == "n2" else "n2"]
        async with AsyncClient(other.grpc) as direct:
            with pytest.raises(tidelog.NotOwnerError):
                await direct.mailboxes.create("jobs/new", MailboxSettings(dead_letter="dead/0"))


async def test_one_of_several_nodes_creates_a_mailbox(cluster: ClusterOfProcesses) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(AsyncClient(endpoint)) for endpoint in endpoints(cluster)]
        for name in NAMES:
            outcomes = await asyncio.gather(
                *(client.mailboxes.create(name) for client in clients * 3), return_exceptions=True
            )
            made = [each for each in outcomes if not isinstance(each, tidelog.MailboxAlreadyExistsError)]
            assert len(made) == 1, outcomes
            assert isinstance(made[0], tidelog.MailboxDescription)


async def test_an_owner_that_was_killed_has_its_mailboxes_again(cluster: ClusterOfProcesses) -> None:
    async with AsyncCluster(endpoints(cluster)) as client:
        created = [await client.mailboxes.create(name) for name in NAMES[:2]]
        (name,) = [mailbox.name for mailbox in created if (await client.owner_of(mailbox.channel)).node_id == "n2"]
        cluster.nodes["n2"].kill()
        assert [mailbox.name for mailbox in await client.mailboxes.list()] == NAMES[:2]
        await asyncio.to_thread(cluster.start, "n2")

        async def is_known() -> bool:
            try:
                return await client.mailboxes.delete(name)
            except tidelog.UnavailableError:
                return False

        await until(is_known)


async def test_the_synchronous_client_of_the_cluster_has_the_same_calls(cluster: ClusterOfProcesses) -> None:
    def managed() -> None:
        with Cluster(endpoints(cluster)) as client:
            for name in NAMES[:2]:
                created = client.mailboxes.create(name)
                assert client.mailboxes.describe(name).channel == created.channel
                assert client.mailboxes.configure(name, MailboxSettings(lease_ms=5)).settings.lease_ms == 5
                assert client.mailboxes.delete(name)

    await asyncio.to_thread(managed)
