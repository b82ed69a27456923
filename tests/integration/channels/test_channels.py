"""Channels over real gRPC: created and destroyed all or none, durably, whatever becomes of the caller.

Method: a server on RocksDB that is started again, and calls that are cancelled half way.
"""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from tidelog.v1 import channel_service_pb2 as pb
from tidelog.v1 import error_pb2
from tidelog.v1 import wal_service_pb2 as wal
from tidelog_testing.parts.fixtures import server_with
from tidelog_testing.parts.grpc_calls import Client, connected, refused, running_server
from tidelog_testing.parts.waiting import until
from tidelog_testing.servers.disk import disk_bytes

server, client = server_with()


async def listed(client: Client, **fields: Any) -> list[str]:
    response = await client.channels.ListChannels(pb.ListChannelsRequest(**fields))
    return [channel.name for channel in response.channels]


async def test_a_channel_is_described_as_it_was_created(tmp_path: Path) -> None:
    owner = pb.OwnerDescription(role="ingest", address="host:1", description_text="é" * 128)
    async with running_server(tmp_path / "data") as server, connected(server) as client:
        request = pb.CreateChannelsRequest(owner=owner, names=["b", "a"], vchannels=3)
        created = (await client.channels.CreateChannels(request)).channels
        assert [channel.name for channel in created] == ["b", "a"]
        last = (await client.append("a/1", b"1", b"2")).last_tick
    async with running_server(tmp_path / "data") as server, connected(server) as client:
        described = await client.channels.DescribeChannels(pb.DescribeChannelsRequest(names=["a", "b"]))
        a, b = described.channels
        assert (a.name, b.name, a.owner) == ("a", "b", owner)
        assert [vchannel.name for vchannel in a.vchannels] == ["a/0", "a/1", "a/2"]
        assert [vchannel.messages for vchannel in a.vchannels] == [0, 2, 0]
        assert [vchannel.last_tick for vchannel in a.vchannels] == [0, last, 0]
        assert a.vchannels[1].bytes > 0
        assert 0 < a.created_tick < last <= a.watermark
        assert a.stopped_by == ""


async def test_the_server_names_channels_when_asked(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data") as server, connected(server) as client:
        await client.create("channel-2")
        response = await client.channels.CreateChannels(pb.CreateChannelsRequest(number=3))
        assert [channel.name for channel in response.channels] == ["channel-1", "channel-3", "channel-4"]
    async with running_server(tmp_path / "data") as server, connected(server) as client:
        response = await client.channels.CreateChannels(pb.CreateChannelsRequest(number=1))
        assert [channel.name for channel in response.channels] == ["channel-5"]


async def test_creating_what_exists_is_refused_whole_or_passed_over(client: Client) -> None:
    await client.create("b", vchannels=2)
    async with refused() as found:
        await client.create("a", "b", vchannels=2)
    assert found[0].reason == error_pb2.REASON_CHANNEL_ALREADY_EXISTS
    assert found[0].values == {"name": "b", "names": "b"}
    assert await listed(client) == ["b"]
    request = pb.CreateChannelsRequest(names=["a", "b"], vchannels=2, if_not_exists=True)
    for _ in range(2):
        created = (await client.channels.CreateChannels(request)).channels
        assert [channel.name for channel in created] == ["a", "b"]
    assert await listed(client) == ["a", "b"]


async def test_destroying_is_all_or_none_and_leaves_no_message(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data") as server, connected(server) as client:
        await client.create("a", "b")
        await client.append("a", b"old")
        async with refused() as found:
            await client.channels.DestroyChannels(pb.DestroyChannelsRequest(names=["a", "no"]))
        assert found[0].reason == error_pb2.REASON_CHANNEL_NOT_EXIST
        assert [payload for _, _, payload in await client.rows("a")] == [b"old"]
        request = pb.DestroyChannelsRequest(names=["a", "no"], ignore_missing=True)
        assert (await client.channels.DestroyChannels(request)).names == ["a"]
        async with refused() as found:
            await client.append("a", b"x")
        assert found[0].reason == error_pb2.REASON_CHANNEL_NOT_EXIST
        await client.create("a")
        assert await client.rows("a") == []
    async with running_server(tmp_path / "data") as server, connected(server) as client:
        assert await listed(client) == ["a", "b"]
        assert await client.rows("a") == []


async def test_a_refusal_names_every_channel_that_is_in_the_way(client: Client) -> None:
    await client.create("a", "b", "c", vchannels=2)
    wanted = ["x", "c", "y", "a"]
    async with refused() as found:
        await client.create(*wanted, vchannels=2)
    assert found[0].values == {"name": "c", "names": "c,a"}
    assert found[0].text == "channels 'c', 'a' already exist: use them, or choose other names"
    async with refused() as found:
        request = pb.CreateChannelsRequest(names=wanted, vchannels=3, if_not_exists=True)
        await client.channels.CreateChannels(request)
    assert found[0].values == {"name": "c", "names": "c,a"}
    change = pb.RetentionChange(bytes=1)
    for call in (
        client.channels.DestroyChannels(pb.DestroyChannelsRequest(names=wanted)),
        client.channels.DescribeChannels(pb.DescribeChannelsRequest(names=wanted)),
        client.channels.AlterChannels(pb.AlterChannelsRequest(names=wanted, retention=change)),
    ):
        async with refused() as found:
            await call
        assert found[0].reason == error_pb2.REASON_CHANNEL_NOT_EXIST
        assert found[0].values == {"name": "x", "names": "x,y"}
    assert await listed(client) == ["a", "b", "c"]


async def test_a_long_refusal_names_all_in_its_values_and_few_in_its_text(client: Client) -> None:
    names = [f"no-{number}" for number in range(100)]
    async with refused() as found:
        await client.channels.DestroyChannels(pb.DestroyChannelsRequest(names=names))
    assert found[0].values["names"].split(",") == names
    assert found[0].text.startswith("'no-0', 'no-1', 'no-2', 'no-3', 'no-4', 'no-5' and 94 more do not exist")


async def test_what_is_missing_is_told_beside_what_is_described(client: Client) -> None:
    await client.create("a", "b")
    request = pb.DescribeChannelsRequest(names=["x", "b", "y", "a"], ignore_missing=True)
    response = await client.channels.DescribeChannels(request)
    assert [channel.name for channel in response.channels] == ["b", "a"]
    assert response.missing == ["x", "y"]


@pytest.mark.not_on_engine(reason="the disk of an engine follows with the next snapshot")
async def test_destroying_frees_the_disk(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data") as server, connected(server) as client:
        await client.create("a", "b")
        for _ in range(80):
            await client.append("a", bytes(1 << 20))
        await client.append("b", b"stays")
        before_bytes = disk_bytes(tmp_path / "data" / "db", ".blob")
        assert before_bytes > 32 << 20
        await client.channels.DestroyChannels(pb.DestroyChannelsRequest(names=["a"]))
        await until(lambda: disk_bytes(tmp_path / "data" / "db", ".blob") <= 1 << 20)
        assert [payload for _, _, payload in await client.rows("b")] == [b"stays"]


async def test_lists_come_in_pages_by_prefix(client: Client) -> None:
    await client.create(*[f"x-{number:02}" for number in range(25)], "y")
    names, token = [], ""
    while True:
        request = pb.ListChannelsRequest(prefix="x-", page_size=10, page_token=token)
        page = await client.channels.ListChannels(request)
        names += [channel.name for channel in page.channels]
        if not (token := page.next_page_token):
            break
    assert names == [f"x-{number:02}" for number in range(25)]
    assert await listed(client, prefix="y") == ["y"]
    assert await listed(client, prefix="z") == []


@pytest.mark.parametrize("turns", range(0, 40, 3))
async def test_a_cancelled_change_is_done_whole_or_not_at_all(turns: int, tmp_path: Path) -> None:
    async with running_server(tmp_path / "data") as server:
        node = server._node
        from tidelog_server.channels.catalog import Owner

        await node.lifecycle.create(["old"], 0, 1, Owner(), if_not_exists=False)
        create = asyncio.create_task(node.lifecycle.create(["new"], 0, 2, Owner(), if_not_exists=False))
        destroy = asyncio.create_task(node.lifecycle.destroy(["old"], ignore_missing=False))
        for _ in range(turns):
            await asyncio.sleep(0)
        create.cancel()
        destroy.cancel()
        await asyncio.gather(create, destroy, return_exceptions=True)
        # Whatever was left running has the lock; afterwards both names can be used again.
        await node.lifecycle.create(["new", "old"], 0, 2 if "new" in node.directory.names else 1, Owner(),
                                     if_not_exists=True) if turns > 100 else None  # fmt: skip
        async with node.directory.changes:
            known = set(node.lifecycle._catalog.own)
            assert known == set(node.directory.names)
            assert all(not record.is_destroying for record in node.lifecycle._catalog.own.values())


async def test_a_cancelled_trim_is_known_to_the_log(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data") as server, connected(server) as client:
        await client.create("a")
        ticks = [(await client.append("a", b"x")).first_tick for _ in range(5)]
        trim = asyncio.create_task(server._node.vchannels.trim("a", before_tick=ticks[3]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        trim.cancel()
        await asyncio.gather(trim, return_exceptions=True)
        async with server._node.directory.changes:
            _, vchannel = server._node.directory.find("a")
            assert vchannel.trim_tick == server._store.tail(vchannel.vchannel_id).trim_tick
        assert len(await client.rows("a")) in {2, 5}


@pytest.mark.not_on_engine(reason="it is the name of the store")
async def test_the_wal_has_a_name(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data") as server, connected(server) as client:
        assert (await client.wal.GetWalName(wal.GetWalNameRequest())).wal_name == "rocksdb"


async def test_the_wal_has_latest_ticks(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data") as server, connected(server) as client:
        await client.create("a", vchannels=2)
        last = (await client.append("a/0", b"1", b"2", b"3")).last_tick

        async def mvcc(name: str) -> int:
            response = await client.wal.GetLatestMvccTick(wal.GetLatestMvccTickRequest(vchannel=name))
            tick: int = response.mvcc_tick
            return tick

        assert (await mvcc("a/0"), await mvcc("a/1")) == (last, 0)


async def test_allocated_ticks_belong_to_nobody_else(client: Client) -> None:
    await client.create("a")
    request = wal.AllocateTicksRequest(count=1_000_000)
    answers = await asyncio.gather(*(client.wal.AllocateTicks(request) for _ in range(20)))
    firsts = sorted(answer.first_tick for answer in answers)
    assert all(second - first >= 1_000_000 for first, second in itertools.pairwise(firsts))
    assert (await client.append("a", b"x")).first_tick >= firsts[-1] + 1_000_000
    assert (await client.wal.AllocateTicks(wal.AllocateTicksRequest())).count == 1
