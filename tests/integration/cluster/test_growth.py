"""Vchannels that are added to channels of a cluster. Method: two real nodes on a real etcd, which change it at once.

Promises of docs/reference/guarantees.md: G57.
"""

import asyncio

import pytest

import tidelog
from tidelog import AsyncClient, AsyncCluster, At, NotOwnerError
from tidelog_server.runtime.failpoints import VARIABLE, Failpoint
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.fixtures import cluster_of
from tidelog_testing.parts.waiting import eventually
from tidelog_testing.servers.cluster import ClusterOfProcesses

cluster = cluster_of("n1", "n2")
NAMES = ["a", "b", "c", "d"]


def addresses(cluster: ClusterOfProcesses) -> list[str]:
    return [node.grpc for node in cluster.nodes.values()]


async def test_nodes_that_add_vchannels_and_create_channels_at_once_take_different_ids(
    cluster: ClusterOfProcesses,
) -> None:
    async with AsyncCluster(addresses(cluster)) as client:
        await client.create_channels(NAMES)
        await asyncio.gather(
            *(client.alter_channels([name], vchannels=number) for number in range(2, 6) for name in NAMES),
            *(client.create_channel(f"new-{number}", vchannels=3) for number in range(6)),
            return_exceptions=True,
        )
        await client.alter_channels(NAMES, vchannels=6)
        described = await client.describe_channels([*NAMES, *(f"new-{number}" for number in range(6))])
        assert [len(each.vchannels) for each in described] == [6] * 4 + [3] * 6
        # Each vchannel has its own messages: no two have one id.
        for channel in described:
            for each in channel.vchannels:
                await (await client.vchannel(each.name)).append(each.name.encode())
        for channel in described:
            at_owner = await client.client_of(channel.name)
            for each in channel.vchannels:
                assert await payloads(at_owner, each.name) == [each.name.encode()]


async def test_another_node_names_the_owner_and_lists_the_growth(cluster: ClusterOfProcesses) -> None:
    async with AsyncCluster(addresses(cluster)) as client:
        await client.create_channel("orders")
        owner = await client.owner_of("orders")
        [grown] = await client.alter_channels(["orders"], vchannels=3)
        other = next(node for node_id, node in cluster.nodes.items() if node_id != owner.node_id)
        async with AsyncClient(other.grpc) as direct:
            with pytest.raises(NotOwnerError):
                await direct.alter_channels(["orders"], vchannels=4)

            async def growths() -> object:
                return [each.growths async for each in direct.list_channels()]

            await eventually(growths, lambda found: found == [grown.growths])


@pytest.mark.parametrize("point", [each for each in Failpoint if each.startswith("channel_growth")])
async def test_a_node_that_dies_while_it_adds_vchannels_has_them_when_it_is_back(
    cluster: ClusterOfProcesses, point: Failpoint
) -> None:
    async with AsyncCluster(addresses(cluster)) as client:
        await client.create_channel("orders")
        owner = await client.owner_of("orders")
        at_owner = await client.client_of("orders")
        await at_owner.create_group("billing", ["orders"])
        stream = at_owner.tail("orders", start=At.earliest())
        await at_owner.append("orders/0", b"before")
        assert (await anext(stream)).payloads == [b"before"]
        cluster.nodes[owner.node_id].kill()
        await asyncio.to_thread(cluster.start, owner.node_id, None, {VARIABLE: str(point)})
        with pytest.raises(tidelog.TidelogError):
            await client.alter_channels(["orders"], vchannels=3)
        cluster.nodes[owner.node_id].kill()
        await asyncio.to_thread(cluster.start, owner.node_id)
        [found] = await client.describe_channels(["orders"])
        assert (len(found.vchannels), len(found.growths)) == (3, 1)
        positions = (await at_owner.describe_group("billing")).positions
        assert sorted(positions) == ["orders/0", "orders/1", "orders/2"]
        # The stream of before follows over both restarts.
        await at_owner.append("orders/2", b"after")
        assert (await asyncio.wait_for(anext(stream), 60)).payloads == [b"after"]
        await stream.aclose()
