"""Clients and commands that find the owners of channels. Method: three nodes on a real etcd, and one name of a node.

Each call is made for channels of all nodes through the address of one of them, at which ``Client("host:port")`` is
refused.
"""

import asyncio
import json
from collections.abc import Iterator

import pytest

import tidelog
from tidelog import AckMode, AsyncClient, At, Client, NotOwnerError, PositionCommit, ResourceKey
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.parts.waiting import eventually
from tidelog_testing.servers.cluster import ClusterOfProcesses
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.etcd import EtcdProcess

NAMES = ["alpha", "beta", "gamma"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, etcd: EtcdProcess) -> Iterator[ClusterOfProcesses]:
    folder = tmp_path_factory.mktemp("finding")
    with ClusterOfProcesses(folder, etcd, lease_ttl_s=10, prefix=f"/{folder.name}/") as running:
        for node_id in ("n1", "n2", "n3"):
            running.start(node_id)
        with Client(url(running)) as client:
            described = client.create_channels(NAMES)
            assert [each.name for each in described] == NAMES
            owners = client.locate_channels(NAMES)
            assert {owner.node_id for owner in owners.values()} == {"n1", "n2", "n3"}, "one channel for each node"
        yield running


def url(cluster: ClusterOfProcesses) -> str:
    return f"tidelog://{cluster.nodes['n1'].grpc}"


async def test_a_client_of_an_address_is_refused_elsewhere(cluster: ClusterOfProcesses) -> None:
    async with AsyncClient(cluster.nodes["n1"].grpc) as client:
        owners = await client.locate_channels(NAMES)
        foreign = next(name for name, owner in owners.items() if owner.node_id != "n1")
        with pytest.raises(NotOwnerError):
            await client.append(foreign, b"x")


async def test_calls_on_channels_of_all_nodes(cluster: ClusterOfProcesses) -> None:
    async with AsyncClient(url(cluster)) as client:
        for name in NAMES:
            first = await client.append(name, b"append")
            async with client.producer(name) as producer:
                await producer.send(b"send")
                await producer.send_many([b"many"] * 3)
            async with client.txn() as txn:
                await txn.append(name, b"txn")
            assert await client.latest_mvcc_tick(name) >= first.last_tick
            position = await client.open_producer(name, "p")
            assert position.epoch == 1
            await client.fence(name, 7)
            found = [row.payload async for batch in client.scan(name) for row in batch]
            assert found == [b"append", b"send", b"many", b"many", b"many", b"txn"]
            handle = client.channel(name)
            assert (await handle.vchannel(0).append(b"by handle", fencing_token=7)).last_tick > first.last_tick
            plan = await client.plan_scan([f"{name}/0"])
            assert sum(split.estimated_messages for split in plan.splits) == 7
            await client.trim(name, At.tick(first.last_tick + 1))
            async with client.tail(name, start=At.after(first.last_tick)) as tail:
                batch = await anext(aiter(tail))
                assert batch.payloads[0] == b"send"
        described = await client.describe_channels(NAMES)
        assert [each.vchannels[0].messages for each in described] == [6, 6, 6], "one is trimmed"
        assert [each.name async for each in client.list_channels()] == NAMES


async def test_several_channels_at_once_and_appends_side_by_side(cluster: ClusterOfProcesses) -> None:
    async with AsyncClient(url(cluster)) as client:
        results = await asyncio.gather(*(client.append(name, b"x") for name in NAMES * 50))
        assert len({result.last_tick for result in results}) == 150
        altered = await client.alter_channels(NAMES, retention=tidelog.Retention(bytes=1 << 30))
        assert [each.name for each in altered] == NAMES
        with pytest.raises(NotOwnerError):
            await client.broadcast(NAMES, b"x")


async def test_groups_are_found_by_their_channels_and_by_their_names(cluster: ClusterOfProcesses) -> None:
    async with AsyncClient(url(cluster)) as client:
        for name in NAMES:
            await client.append(name, [b"1", b"2"])
            async with client.consumer(f"of-{name}", [name], start=At.latest()) as consumer:
                await client.append(name, b"3")
                batch = await anext(aiter(consumer))
                assert batch.payloads[0] == b"3"
            described = await client.describe_group(f"of-{name}")
            assert list(described.positions) == [f"{name}/0"]
            await client.seek_group(f"of-{name}", At.earliest())
            page = await client.consume(f"of-{name}", f"{name}/0", 1)
            await client.commit_positions([PositionCommit(f"of-{name}", f"{name}/0", page.next_tick)])
        assert [each.name async for each in client.list_groups("of-")] == [f"of-{name}" for name in NAMES]
        for name in NAMES:
            assert await client.destroy_group(f"of-{name}")
            assert not await client.destroy_group(f"of-{name}", ignore_missing=True)
        with pytest.raises(tidelog.GroupNotFoundError):
            await client.describe_group("of-alpha")


async def test_transactions_and_broadcasts_are_found_by_their_ids(cluster: ClusterOfProcesses) -> None:
    async with AsyncClient(url(cluster)) as client:
        for name in NAMES:
            sent = await client.broadcast(name, b"all", resource_keys=[ResourceKey("collection", "c")])
            assert (await client.describe_broadcast(sent.broadcast_id)).missing == (f"{name}/0",)
            with pytest.raises(tidelog.DeadlineError):
                await client.wait_acked(ResourceKey("collection", "c"), timeout_s=0.5)
            assert [each.broadcast_id async for each in client.list_broadcasts()] == [sent.broadcast_id]
            await client.ack(sent.broadcast_id, [name])
            await client.wait_acked(sent.broadcast_id, mode=AckMode.ALL)
            await client.wait_acked(ResourceKey("collection", "c"))
            txn = client.txn(keepalive_s=60)
            await txn.append(name, [b"x" * 100_000] * 20)
            # Its batches are sent, and not all are acknowledged.
            [described] = await eventually(client.list_txns, lambda txns: bool(txns and txns[0].vchannels))
            assert described.vchannels == (f"{name}/0",)
            assert (await client.describe_txn(described.txn_id)).txn_id == described.txn_id
            await client.abort_txn(described.txn_id, "test")
            assert await client.list_txns() == []


async def test_mailboxes_and_journals_are_found(cluster: ClusterOfProcesses) -> None:
    async with AsyncClient(url(cluster)) as client:
        for name in ("m1", "m2", "m3"):
            await client.mailboxes.create(name)
            await client.mailbox(name).send(b"body")
            [delivery] = await client.mailbox(name).fetch(1)
            async with client.txn() as txn:
                txn.ack(delivery)
            assert (await client.mailbox(name).counts()).available == 0
            await client.mailboxes.delete(name)
        assert (await client.journals.list()).journals == ()


async def test_what_concerns_no_channel_is_asked_of_a_node_that_answers(cluster: ClusterOfProcesses) -> None:
    async with AsyncClient(f"tidelog://127.0.0.1:1,{cluster.nodes['n2'].grpc}") as client:
        assert await client.wal_name() == "rocksdb"
        assert len(await client.allocate_ticks(3)) == 3
        assert (await client.append("alpha", b"x")).last_tick > 0
        assert "tidelog_channels" in await client.metrics_text()


def test_the_synchronous_twin_does_the_same(cluster: ClusterOfProcesses) -> None:
    with Client(url(cluster)) as client:
        for name in NAMES:
            client.append(name, b"s1")
            with client.producer(name) as producer:
                ticket = producer.send(b"s2")
            assert ticket.result().last_tick > 0
            # Without a block, the first send finds the owner.
            loose = client.channel(name).producer()
            loose.send(b"s3")
            loose.close()
            with client.txn() as txn:
                txn.append(name, b"s4")
            scanned = [row.payload for batch in client.scan(name) for row in batch]
            assert scanned[-4:] == [b"s1", b"s2", b"s3", b"s4"]


def test_a_failed_lookup_stops_a_synchronous_producer_with_its_reason(cluster: ClusterOfProcesses) -> None:
    with Client(url(cluster)) as client:
        producer = client.producer("absent")
        with pytest.raises(tidelog.ChannelNotFoundError):
            producer.send(b"x").result()
        with pytest.raises(tidelog.TidelogError):
            producer.send(b"x").result()


async def test_a_producer_that_was_not_entered_says_what_to_do(cluster: ClusterOfProcesses) -> None:
    async with AsyncClient(url(cluster)) as client:
        producer = client.producer("alpha")
        producer.send_nowait(b"x")
        with pytest.raises(tidelog.ClosedError, match="begin with `async with`"):
            await producer.flush()
        with pytest.raises(tidelog.ChannelNotFoundError):
            async with client.producer("absent"):
                pass
        scan = client.scan("absent")
        with pytest.raises(tidelog.ChannelNotFoundError):
            await anext(aiter(scan))


async def test_cancelling_the_first_call_harms_no_other(cluster: ClusterOfProcesses) -> None:
    async with AsyncClient(url(cluster)) as client:
        first = asyncio.create_task(client.append("alpha", b"x"))
        others = [asyncio.create_task(client.append(name, b"y")) for name in NAMES]
        await asyncio.sleep(0)
        first.cancel()
        assert all(result.last_tick for result in await asyncio.gather(*others))
        with pytest.raises(asyncio.CancelledError):
            await first
    with pytest.raises(tidelog.ClosedError):
        await client.append("alpha", b"z")


@pytest.mark.parametrize("name", NAMES)
def test_commands_find_the_owner(cluster: ClusterOfProcesses, name: str) -> None:
    def run(*arguments: str, stdin: bytes = b"") -> list[dict[str, object]]:
        done = run_command(arguments, stdin=stdin, environment={"TIDELOG_ENDPOINT": cluster.nodes["n1"].grpc})
        assert done.returncode == ExitCode.OK, (arguments, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    run("append", name, stdin=b"of a command\n")
    assert run("scan", name, "-o", "jsonl")[-1]["payload"] == "of a command"
    assert run("tail", name, "-n", "1", "-o", "jsonl")[0]["payload"] == "of a command"
    run("append", name, "--txn", stdin=b"of a transaction\n")
    assert run("channel", "describe", name, "-o", "jsonl")[0]["name"] == f"{name}/0"
    group = f"cli-{name}"
    run("group", "create", group, name)
    assert group in {each["name"] for each in run("group", "ls", "-o", "jsonl")}
    run("group", "seek", group, "--to", "earliest")
    run("group", "describe", group)
    run("group", "rm", group, "--yes")
    run("channel", "fence", name, "9")
    assert run("check", "append", "--channel", name, "--json")[0]["status"] == "ok"
