"""Journals of a cluster: any node applies and lists them, and the owner of a channel destroys it.

Method: three server processes on a real etcd. Waiting is for a state that must come.
"""

import asyncio
from contextlib import AsyncExitStack, aclosing

import tidelog
from tidelog import AsyncClient, AsyncCluster
from tidelog.journals.labels import LabelSelector, LabelSet, LabelTerm
from tidelog.journals.types import JournalDelete, JournalUpsert, ListRequest
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.fixtures import cluster_of
from tidelog_testing.parts.waiting import eventually
from tidelog_testing.servers.cluster import ClusterOfProcesses

WITHIN_S = 40.0
OTHERS = ListRequest(LabelSelector((LabelTerm("prefix", "some/"),)))
NAMES = [f"a/topic/part-{number:03}" for number in range(6)]
cluster = cluster_of("n1", "n2", "n3")


async def test_any_node_applies_and_owners_collect(cluster: ClusterOfProcesses) -> None:
    async with AsyncExitStack() as stack:
        first, second, third = [
            await stack.enter_async_context(AsyncClient(node.grpc)) for node in cluster.nodes.values()
        ]
        created = await first.journals.apply([JournalUpsert(name, expected_revision=0) for name in NAMES])
        owners = await second.locate_channels([journal.channel for journal in created])
        assert sorted(owner.node_id for owner in owners.values()) == ["n1", "n1", "n2", "n2", "n3", "n3"]
        async with AsyncCluster([node.grpc for node in cluster.nodes.values()]) as any_node:
            for journal in created:
                await (await any_node.vchannel(f"{journal.channel}/0")).append(b"frame\n")
                assert await payloads(await any_node.client_of(journal.channel), f"{journal.channel}/0") == [b"frame\n"]
            (other,) = await any_node.journals.apply([JournalUpsert("some/other")])
            async with asyncio.timeout(WITHIN_S), aclosing(any_node.journals.watch(OTHERS)) as watched:
                # The node that is watched may learn of the change a moment later than the one that made it.
                while (await anext(watched)).journals != (other,):
                    pass
                await any_node.journals.apply([JournalDelete(other.name)])
                while (await anext(watched)).journals:
                    pass
            assert [each.name async for each in any_node.list_channels()] == []

        async def is_known_everywhere() -> bool:
            return all([(await each.journals.list()).journals == created for each in (first, second, third)])

        await eventually(is_known_everywhere)
        # Three nodes change one journal; one of them wins, and the others report its revision.
        outcomes = await asyncio.gather(
            *(
                each.journals.apply(
                    [JournalUpsert(NAMES[0], LabelSet.of({"winner": name}), expected_revision=created[0].revision)]
                )
                for each, name in ((first, "n1"), (second, "n2"), (third, "n3"))
            ),
            return_exceptions=True,
        )
        assert sum(isinstance(outcome, tidelog.JournalRevisionError) for outcome in outcomes) == 2
        await second.journals.apply([JournalDelete(name) for name in NAMES])

        async def is_empty_everywhere() -> bool:
            counts = (await first.describe_cluster()).nodes
            lists = [(await each.journals.list()).journals for each in (first, second, third)]
            return lists == [()] * 3 and [node.channels for node in counts] == [0] * 3

        await eventually(is_empty_everywhere)


async def test_nodes_take_turns_with_revisions_that_another_node_reported(cluster: ClusterOfProcesses) -> None:
    async with AsyncExitStack() as stack:
        first, second, third = [
            await stack.enter_async_context(AsyncClient(node.grpc)) for node in cluster.nodes.values()
        ]
        for _ in range(10):
            (created,) = await first.journals.apply([JournalUpsert(NAMES[0], expected_revision=0)])
            altered, _ = await second.journals.apply(
                [JournalUpsert(NAMES[0], expected_revision=created.revision), JournalUpsert(NAMES[1])]
            )
            await third.journals.apply([JournalDelete(NAMES[0], altered.revision), JournalDelete(NAMES[1])])
            assert (await third.journals.list()).journals == ()


async def test_an_owner_that_was_away_collects_at_its_start(cluster: ClusterOfProcesses) -> None:
    async with AsyncClient(cluster.nodes["n1"].grpc) as client:
        created = await client.journals.apply([JournalUpsert(name) for name in NAMES])
        cluster.nodes["n3"].kill()
        await client.journals.apply([JournalDelete(name) for name in NAMES[:5]])
        assert (await client.journals.list()).journals == (created[5],)
        await asyncio.to_thread(cluster.start, "n3")

        async def is_collected() -> bool:
            channels = [each.name async for each in client.list_channels(include_system=True)]
            return channels == [created[5].channel]

        await eventually(is_collected)
