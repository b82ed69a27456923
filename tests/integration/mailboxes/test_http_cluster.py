"""By HTTP, a node of a cluster answers for its own mailboxes, and names the owner of the others.

Method: two server processes on a real etcd, and requests to each.
"""

import asyncio
import json
from pathlib import Path

from tidelog import AsyncClient
from tidelog_testing.parts.http_calls import requested
from tidelog_testing.servers.cluster import ClusterOfProcesses
from tidelog_testing.servers.etcd import EtcdProcess


async def test_another_node_is_named_with_its_address(tmp_path: Path, etcd: EtcdProcess) -> None:
    with ClusterOfProcesses(tmp_path, etcd, lease_ttl_s=5, prefix=f"/{tmp_path.name}/") as running:
        for node_id in ("n1", "n2"):
            await asyncio.to_thread(running.start, node_id)
        async with AsyncClient(running.nodes["n1"].grpc) as client:
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
                    assert value["error"]["values"]["address"] == running.nodes[owner_id].grpc
                listed = await requested(node.http_address, "GET", "/api/v1/mailboxes")
                assert [each["name"] for each in json.loads(listed.content)["mailboxes"]] == ["one", "two"]
