"""Vchannels that are added to a channel: nothing is lost, repeated or out of order. Method: a server that is in use.

Promises of docs/reference/guarantees.md: G57.
"""

import asyncio
from datetime import timedelta
from pathlib import Path

import grpc.aio
import pytest

import tidelog
from tidelog import AsyncClient, AsyncConsumer, AsyncScan, At, Client, Retention, Tick
from tidelog.journals.types import JournalUpsert
from tidelog.msgstream import AsyncRmqMsgStreamFactory, DeleteMsg, MsgPack
from tidelog.rocksmq import AsyncRocksMQ
from tidelog.testing import TestServer, server
from tidelog.v1 import channel_service_pb2 as channel_pb
from tidelog.v1 import wal_service_pb2 as pb
from tidelog_testing.loads.growth import GrowthLoad
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.backups import restore_until
from tidelog_testing.parts.fixtures import client_with
from tidelog_testing.parts.grpc_calls import connected, running_server
from tidelog_testing.parts.waiting import eventually, until
from tidelog_testing.servers.secured import ONCE

client = client_with(orders=2)
WITHIN_S = 60


async def grow(client: AsyncClient, vchannels: int, channel: str = "orders") -> Tick:
    """Add vchannels, and return the tick of the growth."""
    return (await client.alter_channels([channel], vchannels=vchannels))[0].growths[-1].tick


async def names(client: AsyncClient, channel: str = "orders") -> list[str]:
    return [each.name for each in (await client.describe_channels([channel]))[0].vchannels]


async def take(scan: AsyncScan | AsyncConsumer, count: int) -> list[bytes]:
    """Return the payloads of the next ``count`` messages."""
    found: list[bytes] = []
    async with asyncio.timeout(WITHIN_S):
        while len(found) < count:
            found += (await anext(scan)).payloads
    return found


# -- The call -------------------------------------------------------------------------------------------------


async def test_vchannels_are_added_and_the_same_number_changes_nothing(client: AsyncClient) -> None:
    before = await client.append("orders/1", b"before")
    [grown] = await client.alter_channels(["orders"], vchannels=4)
    assert [each.name for each in grown.vchannels] == [f"orders/{index}" for index in range(4)]
    [growth] = grown.growths
    assert growth.vchannels == 2
    assert before.last_tick < growth.tick
    assert growth.tick < (await client.append("orders/3", b"after")).first_tick
    [same] = await client.alter_channels(["orders"], vchannels=4)
    assert same.growths == grown.growths
    [again] = await client.alter_channels(["orders"], vchannels=5, retention={"bytes": 1 << 30})
    assert [each.vchannels for each in again.growths] == [2, 4]
    assert again.retention == Retention(bytes=1 << 30)
    assert [await payloads(client, name) for name in await names(client)] == [[], [b"before"], [], [b"after"], []]


async def test_a_number_that_is_refused_changes_no_channel(client: AsyncClient) -> None:
    await client.create_channel("more", vchannels=3)
    with pytest.raises(tidelog.InvalidRequestError, match="'more' has 3 vchannels, and 2 are wanted"):
        await client.alter_channels(["orders", "more"], vchannels=2)
    with pytest.raises(tidelog.InvalidRequestError, match="vchannels is 1025, at most 1024"):
        await client.alter_channels(["orders"], vchannels=1_025)
    with pytest.raises(tidelog.ChannelNotFoundError):
        await client.alter_channels(["orders", "missing"], vchannels=9)
    with pytest.raises(ValueError, match="set retention or vchannels"):
        await client.alter_channels(["orders"])
    with pytest.raises(ValueError, match="vchannels is 0"):
        await client.alter_channels(["orders"], vchannels=0)
    with pytest.raises(tidelog.InvalidRequestError, match=r"below retention\.bytes"):
        await client.alter_channels(["orders"], vchannels=9, retention={"bytes": 2, "hard_bytes": 1})
    assert [len(each.vchannels) for each in await client.describe_channels(["orders", "more"])] == [2, 3]


async def test_the_channel_of_a_journal_keeps_its_vchannel(client: AsyncClient) -> None:
    [journal] = await client.journals.apply([JournalUpsert("a/journal")])
    with pytest.raises(tidelog.InvalidRequestError, match="'a/journal', which has one order"):
        await client.alter_channels([journal.channel], vchannels=2)
    await client.append(f"{journal.channel}/0", b"frame\n")


async def test_a_node_and_its_groups_have_bounds(client: AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    await client.create_group("billing", ["orders"])
    # By default, a client waits for room until its timeout, whose error may be another one.
    async with AsyncClient(client.endpoint, retry=ONCE) as hasty:
        monkeypatch.setattr("tidelog_server.channels.catalog.MAX_VCHANNELS", 5)
        with pytest.raises(tidelog.OverloadedError, match="the node would have 6 vchannels, at most 5"):
            await hasty.alter_channels(["orders"], vchannels=6)
        monkeypatch.setattr("tidelog_server.groups.groups.MAX_POSITIONS_PER_GROUP", 3)
        with pytest.raises(tidelog.OverloadedError, match="'billing' would be subscribed to 4 vchannels, at most 3"):
            await hasty.alter_channels(["orders"], vchannels=4)
        monkeypatch.setattr("tidelog_server.groups.groups.MAX_GROUP_POSITIONS", 2)
        with pytest.raises(tidelog.OverloadedError, match="would have 3 positions, at most 2"):
            await hasty.alter_channels(["orders"], vchannels=3)
    assert len(await names(client)) == 2


async def test_a_growth_outlives_the_server(tmp_path: Path) -> None:
    async with server(tmp_path / "log") as client:
        await client.create_channel("orders")
        await client.create_group("billing", ["orders"])
        first, second = await grow(client, 3), await grow(client, 4)
        await client.append("orders/2", b"kept")
    async with server(tmp_path / "log") as client:
        [found] = await client.describe_channels(["orders"])
        assert [tuple(each) for each in ((growth.tick, growth.vchannels) for growth in found.growths)] == [
            (first, 1), (second, 3)
        ]  # fmt: skip
        assert await payloads(client, "orders/2") == [b"kept"]
        positions = (await client.describe_group("billing")).positions
        assert sorted(positions) == [f"orders/{index}" for index in range(4)]
        # Ids of vchannels are not taken twice.
        await client.create_channel("other", vchannels=3)
        await client.append("other/0", b"other")
        assert [await payloads(client, name) for name in await names(client)] == [[], [], [b"kept"], []]


def test_the_synchronous_client_and_the_handle_add_vchannels(
    tidelog_server: TestServer, tidelog_client: Client
) -> None:
    tidelog_client.create_channel("orders")
    [grown] = tidelog_client.alter_channels(["orders"], vchannels=2)
    assert len(grown.vchannels) == len(tidelog_client.channel("orders").alter(vchannels=2).vchannels) == 2


# -- Scans ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [At.earliest(), At.latest()])
async def test_a_following_scan_of_a_channel_reads_what_is_added(client: AsyncClient, start: At) -> None:
    watermarks: list[int] = []
    async with client.tail("orders", start=start, watermark_interval_s=0.01) as scan:
        for vchannels in (2, 3, 7):
            if vchannels > 2:
                await grow(client, vchannels)
            for index in range(vchannels):
                await client.append(f"orders/{index}", b"%d" % index)
            assert await take(scan, vchannels) == [b"%d" % index for index in range(vchannels)]
            watermarks.append(scan.watermark)
        assert watermarks == sorted(watermarks)
        assert set(scan.positions) == set(await names(client))


async def test_positions_of_before_a_growth_resume_with_all_that_was_added(client: AsyncClient) -> None:
    await client.append("orders/0", b"a")
    async with client.scan("orders") as scan:
        assert await take(scan, 1) == [b"a"]
        positions = scan.positions
    await grow(client, 3)
    for index in range(3):
        await client.append(f"orders/{index}", b"%d" % index)
    assert [p async for batch in client.scan("orders", start=positions) for p in batch.payloads] == [b"0", b"1", b"2"]


async def test_a_scan_that_waits_for_its_end_reads_what_is_added_before_it(client: AsyncClient) -> None:
    end = Tick((await client.append("orders/0", b"a")).last_tick + (5_000 << 18))
    async with client.scan("orders", until=end) as scan:
        assert await take(scan, 1) == [b"a"]
        await grow(client, 3)
        result = await client.append("orders/2", b"b")
        assert result.last_tick < end, "the machine was too slow for this test"
        assert [payload async for batch in scan for payload in batch.payloads] == [b"b"]


async def test_scans_of_single_vchannels_do_not_change(client: AsyncClient) -> None:
    async with client.tail(["orders/0", "orders/1"], watermark_interval_s=0.01) as scan:
        await grow(client, 3)
        await client.append("orders/2", b"not here")
        await client.append("orders/1", b"here")
        assert await take(scan, 1) == [b"here"]


async def test_a_caller_without_the_new_field_reads_the_vchannels_that_it_named() -> None:
    async with running_server() as running, connected(running) as raw, AsyncClient(running.grpc_endpoint) as client:
        await client.create_channel("orders")
        old = pb.ScanRequest(
            sources=[pb.ScanSource(vchannel="orders/0")], end=pb.ScanEnd(follow=pb.ScanEndFollow()),
            format=pb.SCAN_FORMAT_ROWS, watermark_interval_ms=10,
        )  # fmt: skip
        new = pb.ScanRequest()
        new.CopyFrom(old)
        new.whole_channels.add(name="orders", vchannels=1)
        call, ending = raw.wal.Scan(old), raw.wal.Scan(new)
        await call.read()
        await grow(client, 2)
        await client.append("orders/0", b"a")
        while not (rows := (await call.read()).rows):
            pass
        assert [row.message.payload for row in rows] == [b"a"]
        call.cancel()
        # The last response, in rows as in columns, has the number; then the call ends.
        answers = [answer async for answer in ending]
        assert [(each.name, each.vchannels) for each in answers[-1].grown] == [("orders", 2)]
        assert not any(answer.grown for answer in answers[:-1])
        new.whole_channels[0].name = "users"
        with pytest.raises(grpc.aio.AioRpcError, match="of which the request has no vchannel"):
            await raw.wal.Scan(new).read()
        # An older client sends the settings without a number of vchannels.
        same = await raw.channels.AlterChannels(
            channel_pb.AlterChannelsRequest(names=["orders"], retention=channel_pb.RetentionChange(bytes=1 << 20))
        )
        assert len(same.channels[0].vchannels) == 2


# -- Groups ---------------------------------------------------------------------------------------------------


async def test_a_group_of_the_channel_is_subscribed_from_the_first_message_and_others_are_not(
    client: AsyncClient,
) -> None:
    await client.create_group("all", ["orders"], start=At.latest())
    await client.create_group("part", ["orders/1"])
    await client.create_group("left", ["orders"])
    await client.unsubscribe_group("left", "orders/0")
    await grow(client, 4)
    await client.append("orders/3", b"new")
    positions = (await client.describe_group("all")).positions
    assert sorted(positions) == await names(client)
    assert (positions["orders/3"].lag_messages, positions["orders/3"].next_tick) == (1, 0)
    for group in ("part", "left"):
        assert sorted((await client.describe_group(group)).positions) == ["orders/1"]
    found = await client.consume("all", "orders/3", commit=True)
    assert [message.payload for message in found.messages] == [b"new"]


async def test_members_get_the_vchannels_with_their_next_assignment(client: AsyncClient) -> None:
    await client.create_group("billing", ["orders"])
    async with client.consumer("billing", "orders") as one, client.consumer("billing", "orders") as two:
        for consumer in (one, two):
            await consumer.wait_rebalance(0.01)
        await grow(client, 6)

        async def shares() -> list[int]:
            return [len(await consumer.wait_rebalance(0.01)) for consumer in (one, two)]

        assert await eventually(shares, lambda found: found == [3, 3]) == [3, 3]


# -- Transactions, broadcasts, retention, destroys --------------------------------------------------------------


async def test_transactions_trims_and_destroys_have_the_added_vchannels(client: AsyncClient) -> None:
    async with client.txn() as earlier:
        await earlier.append("orders/0", b"before")
        await grow(client, 3)
        await earlier.append("orders/2", b"after")
    batches = [batch async for batch in client.scan("orders")]
    assert [(batch.vchannel, batch.payloads) for batch in batches] == [
        ("orders/0", [b"before"]), ("orders/2", [b"after"])
    ]  # fmt: skip
    assert batches[0].txn_id == batches[1].txn_id is not None
    await client.trim("orders/2", everything=True)
    assert await payloads(client, "orders/2") == []
    await client.create_group("billing", ["orders"])
    await grow(client, 4)
    await client.destroy_channels(["orders"])
    assert (await client.describe_group("billing")).positions == {}
    await client.create_channel("orders", vchannels=4)
    assert (await client.describe_channels(["orders"]))[0].growths == ()
    assert await payloads(client, "orders/3") == []


async def test_a_broadcast_to_a_channel_is_on_all_vchannels_that_it_has_at_its_tick(client: AsyncClient) -> None:
    is_grown = asyncio.Event()
    ticks: list[int] = []

    async def broadcast() -> None:
        for number in range(1_000):
            ticks.append((await client.broadcast("orders", b"%d" % number)).tick)
            if is_grown.is_set():
                return

    senders = [asyncio.ensure_future(broadcast()) for _ in range(8)]
    for vchannels in range(3, 9):
        await grow(client, vchannels)
    is_grown.set()
    await asyncio.gather(*senders)
    growths = (await client.describe_channels(["orders"]))[0].growths
    copies: dict[int, list[str]] = {tick: [] for tick in ticks}
    async for batch in client.scan("orders"):
        copies[batch.ticks[0]].append(batch.vchannel)
    for tick, vchannels_of_tick in copies.items():
        number = 2 + sum(growth.tick < tick for growth in growths)
        assert vchannels_of_tick == [f"orders/{index}" for index in range(number)]


async def test_a_broadcast_of_before_is_acknowledged_by_the_name_of_the_channel(client: AsyncClient) -> None:
    await client.create_channel("single")
    sent = await client.broadcast(["orders", "single"], b"before")
    await client.alter_channels(["orders", "single"], vchannels=4)
    for unknown in ("orders/3", "users"):
        with pytest.raises(tidelog.BroadcastVchannelError):
            await client.ack(sent.broadcast_id, ["single", unknown])
    await client.ack(sent.broadcast_id, "single")
    assert (await client.describe_broadcast(sent.broadcast_id)).missing == ("orders/0", "orders/1")
    await client.ack(sent.broadcast_id, "orders")
    assert (await client.describe_broadcast(sent.broadcast_id)).summary.state is tidelog.BroadcastState.DONE


async def test_queues_and_streams_keep_their_vchannel(client: AsyncClient) -> None:
    queues = AsyncRocksMQ(client)
    await queues.create_channel("jobs")
    await queues.create_consumer_group("workers", "jobs")
    consumer = await queues.register_consumer("workers", "jobs")
    await queues.produce("jobs", [b"a"])
    done: list[bytes] = []
    factory = AsyncRmqMsgStreamFactory(client)
    async with (
        client.wal().read("jobs", message_handler=lambda batch: done.extend(batch.payloads)) as reading,
        factory.new_msg_stream() as stream,
    ):
        await stream.as_producer(["jobs"])
        await grow(client, 3, "jobs")
        await queues.produce("jobs", [b"b"])
        found = [message.payload for _ in range(2) for message in await consumer.consume(1, wait_s=5)]
        assert found == [b"a", b"b"]
        await until(lambda: done == [b"a", b"b"])
        await stream.produce(MsgPack(msgs=[DeleteMsg(id=3, expression="year < 1900")]))
        await until(lambda: len(done) == 3)
        with pytest.raises(tidelog.InvalidRequestError, match="jobs has 3 vchannels: name one, such as jobs/0"):
            await factory.new_msg_stream().as_producer(["jobs"])
    assert reading.error is None
    assert [len(await payloads(client, name)) for name in await names(client, "jobs")] == [3, 0, 0]


async def test_a_broadcast_to_a_channel_keeps_the_limits_of_its_vchannels(client: AsyncClient) -> None:
    await client.create_channel("wide", vchannels=1_023)
    with pytest.raises(tidelog.InvalidRequestError, match="the broadcast is for 1025 vchannels, at most 1024"):
        await client.broadcast(["wide", "orders"], b"too many")
    with pytest.raises(tidelog.TidelogError, match="bytes"):
        await client.broadcast("wide", bytes(10_000))
    with pytest.raises(tidelog.InvalidRequestError, match="names a vchannel twice"):
        await client.broadcast(["orders", "orders/1"], b"twice")


async def test_retention_counts_the_added_vchannels(tmp_path: Path) -> None:
    async with running_server(tmp_path / "log", storage__retention_check_interval_ms=100) as running:
        async with AsyncClient(running.grpc_endpoint) as client:
            await client.create_channel("orders", retention=Retention(bytes=5 << 20))
            await grow(client, 2)
            for _ in range(14):
                await client.append("orders/1", bytes(1 << 20))

            async def kept() -> int:
                return sum(each.bytes for each in (await client.describe_channels(["orders"]))[0].vchannels)

            await eventually(kept, lambda size_bytes: size_bytes <= 10 << 20)
            await client.alter_channels(["orders"], vchannels=4, retention={"age": timedelta(hours=1)})
            for _ in range(14):
                await client.append("orders/3", bytes(1 << 20))
            await eventually(kept, lambda size_bytes: size_bytes <= 10 << 20)


@pytest.mark.not_on_engine(reason="restores a backup")
async def test_a_restore_to_before_the_growth_keeps_the_vchannels_and_none_of_their_messages(tmp_path: Path) -> None:
    async with server(tmp_path / "log") as client:
        await client.create_channel("orders")
        await client.create_group("billing", ["orders"])
        before = await client.append("orders/0", b"before")
        growth = await grow(client, 3)
        await client.append("orders/2", b"after")
        await client.consume("billing", "orders/2", commit=True)
    await restore_until(tmp_path / "log", tmp_path / "restored", before.last_tick)
    async with server(tmp_path / "restored") as client:
        [found] = await client.describe_channels(["orders"])
        assert ([each.tick for each in found.growths], len(found.vchannels)) == ([growth], 3)
        assert [await payloads(client, name) for name in await names(client)] == [[b"before"], [], []]
        # What follows is above the growth, as after any restart.
        assert growth < (await client.append("orders/2", b"again")).first_tick
        consumed = await client.consume("billing", "orders/2", commit=True)
        assert [message.payload for message in consumed.messages] == [b"again"]


# -- All at once ----------------------------------------------------------------------------------------------


async def test_producers_a_group_and_a_stream_run_while_vchannels_are_added(client: AsyncClient) -> None:
    load = GrowthLoad(client, "orders")
    async with load.running(producers=4):
        for vchannels in (3, 4, 8):
            await load.until(300)
            await grow(client, vchannels)
        await load.until(600)
        await load.complete()
    load.check_separated((await client.describe_channels(["orders"]))[0])
    load.check_readers()
