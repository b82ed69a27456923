"""Goal: clients that find owners divide appends among vchannels, and scan several nodes, as those of an address do.

Method: two real nodes, and one name of a node. Each node owns a channel of four vchannels.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from datetime import timedelta

import pyarrow
import pytest
from crc32c import crc32c
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import tidelog
from tidelog import AsyncClient, At, Client, Message, tracing
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.cluster import ClusterOfProcesses
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.etcd import EtcdProcess

COUNT = 4
NAMES = ["shop.a", "shop.b"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, etcd: EtcdProcess) -> Iterator[ClusterOfProcesses]:
    folder = tmp_path_factory.mktemp("finding-channels")
    with ClusterOfProcesses(folder, etcd, lease_ttl_s=10, prefix=f"/{folder.name}/") as running:
        for node_id in ("n1", "n2"):
            running.start(node_id)
        yield running


@pytest.fixture
async def client(cluster: ClusterOfProcesses) -> AsyncClient:
    """Return a client of one of the nodes; both have a new channel."""
    client = AsyncClient(f"tidelog://{cluster.nodes['n1'].grpc}", timeout_s=timedelta(seconds=20))
    await client.destroy_channels(NAMES, ignore_missing=True)
    await client.create_channels(NAMES, vchannels=COUNT)
    owners = await client.locate_channels(NAMES)
    assert {owner.node_id for owner in owners.values()} == {"n1", "n2"}, "one channel for each node"
    return client


def keyed(count: int, first: int = 0) -> list[Message]:
    return [Message(b"%d" % number, key=b"key-%d" % (number % 97)) for number in range(first, first + count)]


def expected(channel: str, messages: Sequence[Message], count: int = COUNT) -> dict[bytes, str]:
    return {each.payload: f"{channel}/{crc32c(each.key or b'') % count}" for each in messages}


async def placed(client: AsyncClient, channel: str) -> dict[bytes, str]:
    """Return the vchannel of each payload, which is there once."""
    found: dict[bytes, str] = {}
    async for batch in client.scan(channel):
        for payload in batch.payloads:
            assert payload not in found
            found[payload] = batch.vchannel
    return found


async def ticks_of(client: AsyncClient, channel: str) -> list[tidelog.Tick]:
    return [row.tick async for batch in client.scan(channel) for row in batch]


@pytest.mark.parametrize("name", NAMES)
async def test_appends_are_divided_at_the_owner(client: AsyncClient, name: str) -> None:
    async with client:
        messages = keyed(400)
        # A transaction is the first to learn the number of vchannels, whichever node is asked for it.
        async with client.txn() as txn:
            await txn.append(name, messages[:100])
        result = await client.append(name, messages[100:200])
        assert [part.vchannel for part in result.parts] == [f"{name}/{index}" for index in range(COUNT)]
        async with client.producer(name) as producer:
            await producer.send_many(messages[200:300])
        assert sum(total.messages for total in producer.totals.values()) == 100
        async with client.txn(timeout_s=timedelta(seconds=20)) as txn:
            await txn.append(name, messages[300:], barrier_tick=result.last_tick + 1)
        assert await placed(client, name) == expected(name, messages)
        await client.append(name, keyed(97, 1_000), partitioner=lambda key, count: count - 1)
        found = await placed(client, name)
        assert {found[each.payload] for each in keyed(97, 1_000)} == {f"{name}/{COUNT - 1}"}


@pytest.mark.parametrize("name", NAMES)
async def test_a_numbered_producer_of_a_channel_is_that_of_its_owner(client: AsyncClient, name: str) -> None:
    async with client:
        calls = [keyed(10, 10 * number) for number in range(6)]
        position = await client.open_producer(name, "loader")
        assert (position.vchannels, position.last_sequence) == (COUNT, 0)
        for number, messages in enumerate(calls[:3], 1):
            assert not (await client.append(name, messages, producer=position.sequence(number))).duplicate
            assert (await client.append(name, messages, producer=position.sequence(number))).duplicate
        taken = await client.channel(name).open_producer("loader")
        assert (taken.last_sequence, taken.epoch) == (2, position.epoch + 1)
        for number in range(3, 7):
            await client.append(name, calls[number - 1], producer=taken.sequence(number))
        assert await placed(client, name) == expected(name, [each for messages in calls for each in messages])


@pytest.mark.parametrize("name", NAMES)
async def test_tables_are_appended_and_scanned(client: AsyncClient, name: str) -> None:
    async with client:
        keys = [b"key-%d" % (number % 7) for number in range(300)]
        payloads = [b"%d" % number for number in range(300)]
        table = pyarrow.table({"payload": payloads, "key": keys})
        await client.append(name, table.slice(0, 100))
        async with client.producer(name) as producer:
            await producer.send_many(table.slice(100, 100))
        # The first call of a transaction is the one that finds its node.
        async with client.txn() as txn:
            await txn.append(name, table.slice(200))
        scanned = await client.scan(name).to_arrow()
        assert sorted(scanned["payload"].to_pylist()) == sorted(payloads)
        found = dict(zip(scanned["payload"].to_pylist(), scanned["vchannel"].to_pylist(), strict=True))
        assert found == {payload: crc32c(key) % COUNT for payload, key in zip(payloads, keys, strict=True)}


async def test_columns_begin_a_transaction_at_the_owner(client: AsyncClient) -> None:
    async with client:
        for name in NAMES:
            await client.append(f"{name}/1", [b"1", b"2"])
            batch = await anext(client.scan(f"{name}/1"))
            async with client.txn() as txn:
                await txn.append_columns(f"{name}/2", batch.columns)
            assert list((await placed(client, f"{name}/2")).values()) == [f"{name}/2"] * 2


async def test_a_scan_merges_the_nodes_and_resumes(client: AsyncClient) -> None:
    async with client:
        # The ticks of the nodes are of ranges, so they are not in the order of the appends.
        ticks: dict[int, bytes] = {}
        for number in range(20):
            for name in ("shop.a/0", "shop.b/1", "shop.b/0", "shop.a/1"):
                payload = f"{number} {name}".encode()
                ticks[(await client.append(name, payload)).first_tick] = payload
        payloads = [payload for _, payload in sorted(ticks.items())]
        assert await client.vchannels_of(["shop.*"]) == [f"{name}/{index}" for name in NAMES for index in range(COUNT)]
        assert [batch.payloads[0] async for batch in client.scan(NAMES)] == payloads
        found: list[bytes] = []
        async with client.scan("shop.*") as scan:
            async for batch in scan:
                found += batch.payloads
                if len(found) == 37:
                    break
        found += [row.payload async for batch in client.scan("shop.*", start=scan.positions) for row in batch]
        assert found == payloads
        with pytest.raises(tidelog.ChannelNotFoundError, match="no channel matches"):
            await anext(client.scan("nowhere*"))


async def test_a_tail_follows_all_nodes_and_channels_that_grow(client: AsyncClient) -> None:
    async with client, client.tail("shop.*") as tail:
        for name in NAMES:
            await client.append(name, keyed(100))
        altered = await client.alter_channels(NAMES, vchannels=COUNT + 1)
        assert [len(channel.vchannels) for channel in altered] == [COUNT + 1] * 2
        for name in NAMES:
            result = await client.append(name, keyed(100, 100))
            assert len(result.parts) >= COUNT
            await client.append(f"{name}/{COUNT}", b"on the new one")
        found: list[tuple[str, bytes]] = []
        async with asyncio.timeout(60):
            while len(found) < 2 * 201:
                batch = await anext(tail)
                found += [(batch.vchannel, payload) for payload in batch.payloads]
        assert len(set(found)) == len(found)
        for name in NAMES:
            assert (f"{name}/{COUNT}", b"on the new one") in found


async def test_calls_are_measured_at_the_owner(client: AsyncClient) -> None:
    reader = InMemoryMetricReader()
    tracing.enable_metrics(MeterProvider([reader]))
    try:
        async with client:
            owner = (await client.locate_channels(["shop.b"]))["shop.b"].address
            # What is measured before its node is found.
            async with client.txn() as txn:
                await txn.append("shop.b", keyed(10))
            async with client.txn():
                pass
            unused = client.txn()
            await unused.rollback()
            with pytest.raises(tidelog.TransactionStateError):
                await unused.commit()
            await client.append("shop.b", keyed(10))
            async with client.producer("shop.b") as producer:
                await producer.send_many(keyed(10))
            assert len(await ticks_of(client, "shop.b")) == 30
        measured = reader.get_metrics_data()
        assert measured is not None
        data = json.loads(measured.to_json())
    finally:
        tracing.disable()
    ports = {
        point["attributes"].get("server.port")
        for resource in data["resource_metrics"]
        for scope in resource["scope_metrics"]
        for metric in scope["metrics"]
        for point in metric["data"]["data_points"]
        if point["attributes"].get("messaging.destination.name") == "shop.b"
    }
    assert ports == {int(owner.rpartition(":")[2])}


@pytest.mark.parametrize("name", NAMES)
async def test_reads_of_the_wal_find_the_owner(client: AsyncClient, name: str) -> None:
    async with client:
        await client.append(f"{name}/3", [b"1", b"2"])
        found: list[bytes] = []
        scanner = client.wal().read(
            f"{name}/3",
            message_handler=lambda batch: found.extend(batch.payloads),
            deliver_policy=At.earliest(),
            until=At.watermark(),
        )
        await scanner.done.wait()
        assert (scanner.error, found) == (None, [b"1", b"2"])


def test_commands_scan_all_nodes(client: AsyncClient, cluster: ClusterOfProcesses) -> None:
    def run(*arguments: str, stdin: bytes = b"") -> list[dict[str, object]]:
        done = run_command(arguments, stdin=stdin, environment={"TIDELOG_ENDPOINT": cluster.nodes["n1"].grpc})
        assert done.returncode == ExitCode.OK, (arguments, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    for name in NAMES:
        run("append", name, "--key-delim", ":", stdin=b"k1:one\nk2:two\n")
    scanned = run("scan", "shop.*", "-o", "jsonl")
    assert sorted(str(row["payload"]) for row in scanned) == ["one", "one", "two", "two"]
    assert {str(row["vchannel"]).partition("/")[0] for row in scanned} == set(NAMES)
    assert len(run("scan", "shop.*", "--key", "k1", "-o", "jsonl")) == 2


def test_the_synchronous_twin_does_the_same(client: AsyncClient, cluster: ClusterOfProcesses) -> None:
    with Client(f"tidelog://{cluster.nodes['n2'].grpc}") as twin:
        for name in NAMES:
            assert len(twin.append(name, keyed(100)).parts) == COUNT
            with twin.channel(name).producer() as producer:
                producer.send_many(keyed(100, 100))
            with twin.txn() as txn:
                txn.append(name, keyed(100, 200))
            position = twin.channel(name).open_producer("p")
            twin.channel(name).append(keyed(100, 300), producer=position.sequence(1))
            found = {payload: batch.vchannel for batch in twin.scan(name) for payload in batch.payloads}
            assert found == expected(name, keyed(400))
        merged = [tick for batch in twin.scan("shop.?") for tick in batch.ticks]
        assert len(merged) == 800
        assert merged == sorted(merged)
        with twin.tail("shop.*", start=At.earliest()) as tail:
            assert next(tail).first_tick == merged[0]


async def test_names_of_both_are_shown(client: AsyncClient) -> None:
    assert repr(client) == f"<AsyncClient of {client.endpoint}>"
    assert repr(AsyncClient("tidelog://a:1,b:2")) == "<AsyncClient of a:1, b:2>"
    await client.aclose()
    assert repr(client) == f"<AsyncClient of {client.endpoint}, closed>"
