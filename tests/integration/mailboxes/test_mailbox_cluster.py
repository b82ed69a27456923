"""Mailboxes of a cluster: any node creates and lists them, and the owner of the channel answers for them.

A client finds the owner for messages and their bodies, a worker continues after the owner was away, and by HTTP a node
names the owner. Each node has blobs of its own.

Method: two server processes on a real etcd. Waiting is for a state that must come.
"""

import asyncio
import json
from contextlib import AsyncExitStack, suppress

import pytest

import tidelog
from tidelog import AsyncClient, AsyncCluster, AsyncDelivery, Cluster, MailboxSettings
from tidelog_testing.parts.fixtures import cluster_of
from tidelog_testing.parts.http_calls import requested
from tidelog_testing.parts.waiting import eventually
from tidelog_testing.servers.cluster import ClusterOfProcesses

WITHIN_S = 60.0
NAMES = [f"jobs/{number}" for number in range(4)]
LARGE, HUGE = b"large" * 30_000, b"huge" * 1_500_000
cluster = cluster_of("n1", "n2")


def endpoints(cluster: ClusterOfProcesses) -> list[str]:
    return [node.grpc for node in cluster.nodes.values()]


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

        await eventually(lists_all)


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

        await eventually(is_known)


async def test_the_synchronous_client_of_the_cluster_has_the_same_calls(cluster: ClusterOfProcesses) -> None:
    def managed() -> None:
        with Cluster(endpoints(cluster)) as client:
            for name in NAMES[:2]:
                created = client.mailboxes.create(name)
                assert client.mailboxes.describe(name).channel == created.channel
                assert client.mailboxes.configure(name, MailboxSettings(lease_ms=5)).settings.lease_ms == 5
                assert client.mailboxes.delete(name)

    await asyncio.to_thread(managed)


# -- Messages ----------------------------------------------------------------------------------------------


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


async def test_bodies_are_stored_on_the_node_of_their_mailbox(cluster: ClusterOfProcesses) -> None:
    async with AsyncCluster(endpoints(cluster)) as client:
        for name in NAMES:
            await client.mailboxes.create(name, MailboxSettings(max_body_bytes=1 << 23))
        for name in NAMES:
            await client.mailbox(name).send_many([LARGE, HUGE])
        for node_id in cluster.nodes:
            await asyncio.to_thread(cluster.nodes[node_id].kill)
            await asyncio.to_thread(cluster.start, node_id)
        for name in NAMES:
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


# -- HTTP --------------------------------------------------------------------------------------------------


async def test_another_node_is_named_with_its_address(cluster: ClusterOfProcesses) -> None:
    async with AsyncClient(cluster.nodes["n1"].grpc) as client:
        described = (await client.describe_cluster()).nodes
        created = [await client.mailboxes.create(name) for name in ("one", "two")]
        owners = await client.locate_channels([mailbox.channel for mailbox in created])
    for mailbox in created:
        owner_id = owners[mailbox.channel].node_id
        for node in described:
            path = f"/api/v1/mailboxes/{mailbox.name}"
            answer = await requested(node.http_address, "GET", path)
            value = json.loads(answer.content)
            if node.node_id == owner_id:
                assert (answer.status, value["mailbox"]["channel"]) == (200, mailbox.channel)
            else:
                assert (answer.status, value["error"]["reason"]) == (421, "NOT_OWNER")
                assert value["error"]["values"]["address"] == cluster.nodes[owner_id].grpc
            listed = await requested(node.http_address, "GET", "/api/v1/mailboxes")
            assert [each["name"] for each in json.loads(listed.content)["mailboxes"]] == ["one", "two"]
