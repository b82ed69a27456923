"""Goal: a scan of a cluster has the messages of all nodes in tick order, each once, and resumes exactly.

Method: two real nodes with a channel each, whose messages alternate.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tidelog import AsyncCluster, At, ChannelNotFoundError, Cluster, InvalidRequestError, NotOwnerError
from tidelog_testing.parts.fixtures import cluster_of
from tidelog_testing.servers.cluster import ClusterOfProcesses

cluster = cluster_of("n1", "n2")
ROUNDS = 20


@pytest.fixture
async def client(cluster: ClusterOfProcesses) -> AsyncIterator[AsyncCluster]:
    """Return a client of two nodes, each with a channel of two vchannels."""
    async with AsyncCluster(node.grpc for node in cluster.nodes.values()) as opened:
        await opened.create_channels(["shop.a", "shop.b"], vchannels=2)
        assert (await opened.owner_of("shop.a")).node_id != (await opened.owner_of("shop.b")).node_id
        yield opened


async def append(client: AsyncCluster, rounds: int) -> dict[int, bytes]:
    """Append to each vchannel in turn; return the payloads by tick."""
    found: dict[int, bytes] = {}
    for number in range(rounds):
        for name in ("shop.a/0", "shop.b/1", "shop.b/0", "shop.a/1"):
            payload = f"{number} {name}".encode()
            found[(await (await client.vchannel(name)).append([payload, b""])).first_tick] = payload
    return found


async def test_a_scan_has_the_messages_of_all_nodes_in_tick_order(client: AsyncCluster) -> None:
    expected = await append(client, ROUNDS)

    found = [(batch.first_tick, batch.payloads[0]) async for batch in client.scan("shop.*")]
    assert found == sorted(expected.items())
    assert [batch.payloads[0] async for batch in client.scan(["shop.b/1", "shop.a"])] == [
        payload for _, payload in sorted(expected.items()) if b"shop.b/0" not in payload
    ]
    assert await client.vchannels_of(["shop.?"]) == ["shop.a/0", "shop.a/1", "shop.b/0", "shop.b/1"]
    with pytest.raises(ChannelNotFoundError, match="no channel matches"):
        await anext(client.scan("nowhere*"))
    with pytest.raises(InvalidRequestError, match="names no vchannel"):
        await anext(client.scan([]))


async def test_a_scan_that_was_interrupted_resumes_with_the_next_message(client: AsyncCluster) -> None:
    expected = sorted((await append(client, ROUNDS)).items())
    found: list[bytes] = []
    async with client.scan("shop.*") as scan:
        async for batch in scan:
            found.append(batch.payloads[0])
            if len(found) == len(expected) // 2:
                break
        positions = scan.positions
    assert set(positions) == {"shop.a/0", "shop.a/1", "shop.b/0", "shop.b/1"}

    found += [batch.payloads[0] async for batch in client.scan("shop.*", start=positions)]
    assert found == [payload for _, payload in expected]
    with pytest.raises(InvalidRequestError, match="no position for"):
        await anext(client.scan(["shop.a", "shop.b"], start={"shop.a/0": positions["shop.a/0"]}))


async def test_a_tail_follows_all_nodes_and_loses_nothing_to_a_timeout(client: AsyncCluster) -> None:
    async with client.tail("shop.*", watermark_interval_s=0.01) as tail:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(tail), 0.05)
        expected = await append(client, 5)
        found = [await asyncio.wait_for(anext(tail), 20) for _ in expected]
        assert [(batch.first_tick, batch.payloads[0]) for batch in found] == sorted(expected.items())
        assert tail.watermark >= found[-1].first_tick - 1


async def test_the_synchronous_twin_reads_all_nodes(client: AsyncCluster) -> None:
    expected = sorted((await append(client, 3)).items())

    def read() -> list[tuple[int, bytes]]:
        with Cluster(client.endpoints) as twin, twin.scan("shop.*", start=At.earliest()) as scan:
            return [(batch.first_tick, batch.payloads[0]) for batch in scan]

    assert await asyncio.to_thread(read) == expected


async def test_a_client_of_one_node_names_the_node_of_another_channel(client: AsyncCluster) -> None:
    with pytest.raises(NotOwnerError):
        await anext((await client.client_of("shop.a")).scan("shop.*"))
