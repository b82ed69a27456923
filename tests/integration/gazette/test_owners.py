"""Journals whose frames are on another node than the one that was asked for them.

Method: two servers, of which one has the channels; and a real cluster on etcd.
"""

import asyncio

from tidelog import AsyncClient, AsyncCluster, Client, Cluster
from tidelog.gazette.append_service import AsyncJournalClient
from tidelog.gazette.generated.iterators import ReadUncommittedIter
from tidelog.gazette.generated.polled_list import PolledList
from tidelog.gazette.generated.reader import RetryReader
from tidelog.gazette.iterators import AsyncReadUncommittedIter
from tidelog.gazette.publisher import AsyncPublisher, Publisher
from tidelog.gazette.readers import AsyncRetryReader, ReadRequest
from tidelog.gazette.sync_append import JournalClient
from tidelog.journals.labels import LabelSet
from tidelog.journals.types import JournalSpec, JournalUpsert, ListRequest
from tidelog.testing import server, start_server
from tidelog_testing.parts.fixtures import cluster_of
from tidelog_testing.parts.journal_messages import JSON_LINES, new_note, note, spec_of, text_of, to
from tidelog_testing.servers.cluster import ClusterOfProcesses

A = "a/journal"
cluster = cluster_of("n1", "n2")


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
    with start_server() as asked, start_server() as owner, Client(asked.endpoint) as client:
        with Client(owner.endpoint) as other:
            other.create_channel("frames")
            journals = JournalClient(client, find=lambda journal: spec_of(journal, "frames"), owner_of=lambda _: other)
            with journals:
                Publisher(journals).publish_committed(to(A), note("one")).result()
                read = ReadUncommittedIter(RetryReader(journals, ReadRequest(A)), new_note)
                assert [text_of(envelope.message) for envelope in read] == ["one"]


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


async def test_journals_of_a_cluster_are_used_from_any_node(cluster: ClusterOfProcesses) -> None:
    names = [f"my/journal/{number}" for number in range(4)]
    addresses = [node.grpc for node in cluster.nodes.values()]
    async with AsyncCluster(addresses) as client:
        labels = LabelSet.of({"content-type": JSON_LINES})
        specs = await client.journals.apply([JournalUpsert(name, labels, 0) for name in names])
        owners = {(await client.owner_of(spec.channel)).node_id for spec in specs}
        async with AsyncJournalClient(client) as journals:
            publisher = AsyncPublisher(journals)
            for name in names:
                publisher.publish_committed(to(name), note(name))
            await journals.flush()
            assert [await texts(journals, name) for name in names] == [[name] for name in names]

    assert owners == {"n1", "n2"}
    await asyncio.to_thread(publish_again, addresses, names)
