"""Clients of a cluster follow their node to another process at another address; nothing is lost or doubled.

Method: real servers on a real etcd. The process that serves a node is killed, or ended by SIGTERM, and another one with
its data folder serves it at another port. What was obtained from the cluster is used before, meanwhile and after that.

Promises of docs/reference/guarantees.md: G10, G13.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, AsyncCluster, AsyncDelivery, Cluster, Retry, UnavailableError
from tidelog.gazette.append_service import AsyncJournalClient
from tidelog.gazette.iterators import AsyncReadUncommittedIter
from tidelog.gazette.publisher import AsyncPublisher
from tidelog.gazette.readers import AsyncRetryReader, ReadRequest
from tidelog.journals.labels import LabelSet
from tidelog.journals.types import JournalUpsert
from tidelog_testing.loads.outage import Writers
from tidelog_testing.loads.outage_readers import CHANNEL, VCHANNELS, Server, wrong_after
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.journal_messages import JSON_LINES, new_note, note, text_of, to
from tidelog_testing.servers.cluster import ClusterOfProcesses
from tidelog_testing.servers.etcd import EtcdProcess
from tidelog_testing.servers.processes import lasting_port

WITHIN_S = 60.0
ENDS = pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM"])


class Nodes:
    """Node ``n1``, which other processes serve later, and ``n2``, which knows where."""

    def __init__(self, cluster: ClusterOfProcesses) -> None:
        self._cluster = cluster

    @property
    def endpoints(self) -> list[str]:
        """Where the nodes are now."""
        return [node.grpc for node in self._cluster.nodes.values()]

    async def start(self, node_id: str) -> None:
        """Start a process that serves a node, at a port of its own."""
        await asyncio.to_thread(self._cluster.start, node_id, lasting_port())

    async def end(self, end: str) -> None:
        """End the process that serves ``n1``."""
        process = self._cluster.nodes["n1"]
        if end == "SIGKILL":
            await asyncio.to_thread(process.kill)
        else:
            process.terminate()
            assert await asyncio.to_thread(process.wait) == 0

    async def move(self, end: str) -> None:
        """End the process that serves ``n1``, and start another one."""
        before = self._cluster.nodes["n1"].grpc
        await self.end(end)
        await self.start("n1")
        assert self._cluster.nodes["n1"].grpc != before


@pytest.fixture
def cluster(tmp_path: Path, etcd: EtcdProcess) -> Iterator[ClusterOfProcesses]:
    with ClusterOfProcesses(tmp_path, etcd, lease_ttl_s=3, prefix=f"/{tmp_path.name}/") as running:
        yield running


@pytest.fixture
async def nodes(cluster: ClusterOfProcesses) -> Nodes:
    """Return the nodes. All channels that are created before ``n2`` starts belong to ``n1``."""
    found = Nodes(cluster)
    await found.start("n1")
    async with AsyncClient(found.endpoints[0]) as client:
        await client.create_channel(CHANNEL, vchannels=2)
        await client.create_channel("queue")
        await client.create_channel("alone")
        await client.mailboxes.create("jobs")
        await client.journals.apply([JournalUpsert("a/journal", LabelSet.of({"content-type": JSON_LINES}))])
    await found.start("n2")
    return found


@ENDS
async def test_readers_and_writers_with_default_settings_follow_their_node(nodes: Nodes, end: str) -> None:
    async with AsyncCluster(nodes.endpoints) as cluster, AsyncExitStack() as running:
        client, writing = await cluster.client_of(CHANNEL), await cluster.client_of("queue")
        assert client is writing
        twin = await asyncio.to_thread(running.enter_context(Cluster(nodes.endpoints)).client_of, CHANNEL)
        writers = {
            channel: await running.enter_async_context(Writers(writing, names))
            for channel, names in ((CHANNEL, VCHANNELS), ("queue", ["queue/0"]))
        }

        async def move() -> None:
            await nodes.move(end)

        source = Server(client, twin, nodes.endpoints)
        # A command has an address.
        wrong = await wrong_after(source, writers, move, {"tail_of_the_command_line"})
        errors = [error for each in writers.values() for error in each.errors]
        assert client.endpoint == nodes.endpoints[0] == twin.endpoint
    assert not wrong, "\n".join(wrong)
    if end == "SIGTERM":
        assert errors == []


@ENDS
async def test_handles_and_their_transactions_go_on(nodes: Nodes, end: str) -> None:
    async with AsyncCluster(nodes.endpoints) as cluster:
        channel, vchannel = await cluster.channel("alone"), await cluster.vchannel("alone/0")
        client = await cluster.client_of("alone")
        await vchannel.append(b"before")
        producer = client.producer("alone/0")
        await (await producer.send(b"sent before"))
        txn = client.txn()
        await txn.append("alone/0", b"in a transaction")

        await nodes.end(end)
        sending = [await producer.send(b"sent meanwhile"), await producer.send(b"and again")]
        committing = asyncio.create_task(txn.commit())
        await nodes.start("n1")

        await asyncio.gather(*sending, committing)
        await vchannel.append(b"after")
        await producer.aclose()
        assert [each.name for each in (await channel.describe()).vchannels] == ["alone/0"]
        assert sorted(await payloads(client, "alone/0")) == sorted(
            [b"before", b"sent before", b"in a transaction", b"sent meanwhile", b"and again", b"after"]
        )


@ENDS
async def test_journals_go_on(nodes: Nodes, end: str) -> None:
    async with AsyncCluster(nodes.endpoints) as cluster, AsyncJournalClient(cluster) as journals:
        publisher = AsyncPublisher(journals)
        reader = AsyncRetryReader(journals, ReadRequest("a/journal", block=True))
        read = AsyncReadUncommittedIter(reader, new_note)
        await publisher.publish_committed(to("a/journal"), note("before"))
        assert text_of((await anext(read)).message) == "before"

        await nodes.end(end)
        meanwhile = publisher.publish_committed(to("a/journal"), note("meanwhile"))
        await nodes.start("n1")
        await meanwhile
        await publisher.publish_committed(to("a/journal"), note("after"))

        async with asyncio.timeout(WITHIN_S):
            assert [text_of((await anext(read)).message) for _ in range(2)] == ["meanwhile", "after"]
        await reader.aclose()


@ENDS
async def test_mailboxes_and_their_workers_go_on(nodes: Nodes, end: str) -> None:
    async with AsyncCluster(nodes.endpoints, timeout_s=WITHIN_S) as cluster:
        jobs, by_node = cluster.mailbox("jobs"), (await cluster.client_of("alone")).mailbox("jobs")
        done: list[bytes] = []

        async def handle(delivery: AsyncDelivery) -> None:
            done.append(delivery.body)

        async def until(number: int) -> None:
            async with asyncio.timeout(WITHIN_S):
                while len(set(done)) < number:
                    assert not any(task.done() for task in working)
                    await asyncio.sleep(0.02)

        working = [asyncio.create_task(each.work(handle, lease=5)) for each in (jobs, by_node)]
        await asyncio.gather(jobs.send(b"one"), by_node.send(b"two"))
        await until(2)
        await nodes.end(end)
        starting = asyncio.create_task(nodes.start("n1"))
        # With keys, so that a send whose answer is lost is repeated: its connection may break as it is written.
        await asyncio.gather(jobs.send(b"three", dedup_key="3"), by_node.send(b"four", dedup_key="4"))
        await starting
        await until(4)
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        assert set(done) == {b"one", b"two", b"three", b"four"}


async def test_calls_wait_for_a_process_for_a_bounded_time(nodes: Nodes) -> None:
    async with AsyncCluster(nodes.endpoints, connect_timeout_s=0.5, retry=Retry(give_up_s=1.5)) as cluster:
        client, vchannel = await cluster.client_of("alone"), await cluster.vchannel("alone/0")
        producer = client.producer("alone/0")
        async with client.tail("alone", start=tidelog.At.earliest()) as tail:
            await vchannel.append(b"before")
            assert (await anext(tail)).payloads == [b"before"]
            await nodes.end("SIGKILL")
            async with asyncio.timeout(WITHIN_S):
                sending = await producer.send(b"sent")
                with pytest.raises(UnavailableError, match="n1"):
                    await client.latest_mvcc_tick("alone/0")
                with pytest.raises(UnavailableError, match="n1"):
                    await anext(tail)
                with pytest.raises(UnavailableError, match=r"did not answer for \d+\.\d s"):
                    await sending
        with pytest.raises(UnavailableError):
            await producer.aclose()


async def test_a_client_with_an_address_stays_there(nodes: Nodes) -> None:
    address = nodes.endpoints[0]
    async with AsyncClient(address, connect_timeout_s=0.5, retry=Retry(give_up_s=1.0)) as client:
        await client.append("alone/0", b"before")
        async with client.tail("alone") as tail:
            await nodes.move("SIGKILL")
            with pytest.raises(UnavailableError):
                await client.append("alone/0", b"after")
            with pytest.raises(UnavailableError):
                await anext(tail)
        assert client.endpoint == address


async def test_a_cluster_of_one_node_is_found_at_any_named_address(tmp_path: Path, etcd: EtcdProcess) -> None:
    with ClusterOfProcesses(tmp_path, etcd, lease_ttl_s=3, prefix=f"/{tmp_path.name}/") as cluster:
        nodes = Nodes(cluster)
        later = lasting_port()
        await nodes.start("n1")
        async with AsyncCluster([*nodes.endpoints, f"127.0.0.1:{later['server.grpc_port']}"]) as client:
            await client.create_channel("alone")
            vchannel = await client.vchannel("alone/0")
            await vchannel.append(b"before")
            await nodes.end("SIGTERM")
            await asyncio.to_thread(cluster.start, "n1", later)
            await vchannel.append(b"after")
            assert await payloads(await client.client_of("alone"), "alone/0") == [b"before", b"after"]
