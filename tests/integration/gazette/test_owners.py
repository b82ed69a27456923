"""Journals whose frames are on another node than the one that was asked for them.

Method: two servers, of which one has the channels; and a real cluster on etcd.
"""

import asyncio
from pathlib import Path

from tidelog import AsyncClient, AsyncCluster, Client, Cluster
from tidelog.admin.journal_types import JournalSpec, JournalUpsert, ListRequest
from tidelog.admin.labels import LabelSet
from tidelog.gazette.append_service import AsyncJournalClient
from tidelog.gazette.iterators import AsyncReadUncommittedIter
from tidelog.gazette.publisher import AsyncPublisher, Publisher
from tidelog.gazette.readers import AsyncRetryReader, ReadRequest
from tidelog.gazette.sync_append import JournalClient
from tidelog.gazette.sync_reading import PolledList, ReadUncommittedIter, RetryReader
from tidelog.testing import server, start_server
from tidelog_testing.parts.journal_messages import JSON_LINES, new_note, note, spec_of, text_of, to
from tidelog_testing.servers.cluster import ClusterOfProcesses
from tidelog_testing.servers.etcd import EtcdProcess

A = "a/journal"


async def find(journal: str) -> JournalSpec:
    return spec_of(journal, "frames")


async def texts(journals: AsyncJournalClient, journal: str) -> list[str]:
    iterator = AsyncReadUncommittedIter(AsyncRetryReader(journals, ReadRequest(journal)), new_note)
    return [text_of(envelope.message) async for envelope in iterator]


async def test_frames_are_appended_to_and_read_from_the_owner() -> None:
    async with server() as asked, server() as owner:
        await owner.create_channel("frames")

        async def owner_of(channel: str) -> AsyncClient:
            assert channel == "frames"
            return owner

        async with AsyncJournalClient(asked, find=find, owner_of=owner_of) as journals:
            await AsyncPublisher(journals).publish_committed(to(A), note("one"))
            assert await texts(journals, A) == ["one"]


def test_the_synchronous_twin_uses_the_owner_too() -> None:
    asked, owner = start_server(), start_server()
    try:
        with Client(asked.endpoint) as client, Client(owner.endpoint) as other:
            other.create_channel("frames")
            journals = JournalClient(client, find=lambda journal: spec_of(journal, "frames"), owner_of=lambda _: other)
            with journals:
                Publisher(journals).publish_committed(to(A), note("one")).result()
                read = ReadUncommittedIter(RetryReader(journals, ReadRequest(A)), new_note)
                assert [text_of(envelope.message) for envelope in read] == ["one"]
    finally:
        asked.stop()
        owner.stop()


def publish_again(addresses: list[str], names: list[str]) -> None:
    """Append another message to each journal and read both, with the synchronous twins."""
    with Cluster(addresses) as cluster, JournalClient(cluster) as journals:
        publisher = Publisher(journals)
        for name in names:
            publisher.publish_committed(to(name), note("again"))
        journals.flush()
        for name in names:
            read = ReadUncommittedIter(RetryReader(journals, ReadRequest(name)), new_note)
            assert [text_of(envelope.message) for envelope in read] == [name, "again"]
        with PolledList(cluster, 3_600, ListRequest()) as listed:
            assert [spec.name for spec in listed.list().journals] == names


async def test_journals_of_a_cluster_are_used_from_any_node(tmp_path: Path, etcd: EtcdProcess) -> None:
    names = [f"my/journal/{number}" for number in range(4)]
    with ClusterOfProcesses(tmp_path, etcd, lease_ttl_s=5, prefix=f"/{tmp_path.name}/") as running:
        for node_id in ("n1", "n2"):
            await asyncio.to_thread(running.start, node_id)
        addresses = [node.grpc for node in running.nodes.values()]
        async with AsyncCluster(addresses) as cluster:
            labels = LabelSet.of({"content-type": JSON_LINES})
            specs = await cluster.journals.apply([JournalUpsert(name, labels, 0) for name in names])
            owners = {(await cluster.owner_of(spec.channel)).node_id for spec in specs}
            async with AsyncJournalClient(cluster) as journals:
                publisher = AsyncPublisher(journals)
                for name in names:
                    publisher.publish_committed(to(name), note(name))
                await journals.flush()
                assert [await texts(journals, name) for name in names] == [[name] for name in names]

        assert owners == {"n1", "n2"}
        await asyncio.to_thread(publish_again, addresses, names)
