"""A read that means one channel never reads another one of the same name that was created after it.

Method: channels are destroyed and created again between a plan and its scans, under a scan that follows, and while a
client has no connection; raw calls to a server in this process, and the client behind a proxy that is cut.

Promises of docs/reference/guarantees.md: G10.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tidelog import AsyncClient, At, Tick
from tidelog.read.scan import ScanCore
from tidelog.v1 import channel_service_pb2, error_pb2
from tidelog.v1 import wal_service_pb2 as wal
from tidelog_testing.faults.cut_proxy import cut_off_client
from tidelog_testing.parts.grpc_calls import Client, Refusal, connected, refusal_of, running_server

R = error_pb2


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with running_server(tmp_path) as server, connected(server) as client:
        await client.create("orders", "other")
        yield client


async def create_again(client: Client, *payloads: bytes) -> None:
    await client.channels.DestroyChannels(channel_service_pb2.DestroyChannelsRequest(names=["orders"]))
    await client.create("orders")
    for payload in payloads:
        await client.append("orders/0", payload)


async def created_tick(client: Client) -> int:
    request = channel_service_pb2.DescribeChannelsRequest(names=["orders"])
    answer = await client.channels.DescribeChannels(request)
    tick: int = answer.channels[0].created_tick
    return tick


async def refused_scan(client: Client, source: wal.ScanSource) -> Refusal:
    async def scan() -> None:
        async for _ in client.wal.Scan(wal.ScanRequest(sources=[source])):
            pass

    return await refusal_of(scan())


def at(**policy: Any) -> wal.ScanSource:
    return wal.ScanSource(vchannel="orders/0", policy=wal.DeliverPolicy(**policy))


async def test_a_position_of_a_channel_that_was_destroyed_is_trimmed_in_the_one_created_after_it(
    client: Client,
) -> None:
    old = (await client.append("orders/0", b"first life")).first_tick
    await create_again(client, b"second life")
    created = await created_tick(client)

    assert created > old
    for source in (at(from_tick=old), at(after_tick=old), at(from_tick=2), at(from_tick=created - 1)):
        refusal = await refused_scan(client, source)
        assert (refusal.reason, refusal.values["first_available_tick"]) == (R.REASON_POSITION_TRIMMED, str(created))
    request = wal.PlanScanRequest(vchannels=["orders/0"], begin_tick=old)
    assert (await refusal_of(client.wal.PlanScan(request))).reason == R.REASON_POSITION_TRIMMED


async def test_a_start_that_names_no_position_of_an_earlier_channel_is_taken(client: Client) -> None:
    old = await client.append("orders/0", b"first life")
    await create_again(client, b"second life")
    created = await created_tick(client)

    policies: list[dict[str, Any]] = [
        {"from_tick": 0}, {"from_tick": 1}, {"after_tick": 0}, {"from_tick": created}, {"after_tick": created - 1},
        {"from_time_ms": (old.first_tick >> 18) - 1_000}, {"from_time_ms": 0},
    ]  # fmt: skip
    for policy in policies:
        rows = await client.rows("orders/0", policy=wal.DeliverPolicy(**policy))
        assert [payload for *_, payload in rows] == [b"second life"], policy
    assert (await client.wal.PlanScan(wal.PlanScanRequest(vchannels=["orders/0"], begin_tick=1))).splits


async def test_a_plan_and_a_scan_of_a_channel_that_was_destroyed_are_refused(client: Client) -> None:
    await client.append("orders/0", b"first life")
    plan = await client.wal.PlanScan(wal.PlanScanRequest(vchannels=["other/0", "orders/0"]))
    [split] = plan.splits
    assert split.created_tick == await created_tick(client)

    await create_again(client, b"second life")

    scan = wal.ScanSource(
        vchannel="orders/0", created_tick=split.created_tick, policy=wal.DeliverPolicy(all=wal.DeliverAll())
    )
    refusal = await refused_scan(client, scan)
    assert (refusal.reason, refusal.values["name"]) == (R.REASON_CHANNEL_NOT_EXIST, "orders")
    request = wal.PlanScanRequest(vchannels=["other/0", "orders/0"], created_ticks=[0, split.created_tick])
    assert (await refusal_of(client.wal.PlanScan(request))).reason == R.REASON_CHANNEL_NOT_EXIST
    request = wal.PlanScanRequest(vchannels=["other/0", "orders/0"], created_ticks=[0])
    assert (await refusal_of(client.wal.PlanScan(request))).values["field"] == "created_ticks"


async def test_a_scan_tells_in_its_first_response_alone_when_its_channels_were_created(client: Client) -> None:
    for _ in range(3):
        await client.append("orders/0", b"x" * 100)
    sources = [wal.ScanSource(vchannel="other/0"), wal.ScanSource(vchannel="orders/0")]

    pages = [page async for page in client.wal.Scan(wal.ScanRequest(sources=sources, max_response_bytes=1))]

    request = channel_service_pb2.DescribeChannelsRequest(names=["other", "orders"])
    described = (await client.channels.DescribeChannels(request)).channels
    assert list(pages[0].created_ticks) == [channel.created_tick for channel in described]
    assert len(pages) > 2
    assert not any(page.created_ticks for page in pages[1:])


async def destroy_and_create(client: AsyncClient) -> None:
    await client.destroy_channels(["orders"])
    await client.create_channel("orders", vchannels=2)
    await client.append("orders/0", b"second life")


async def test_a_following_scan_ends_with_an_error_when_its_channel_is_created_again() -> None:
    async with cut_off_client() as (client, _, direct), client.scan("orders/0", until=At.follow()) as scan:
        await direct.append("orders/0", b"first life")
        assert (await anext(scan)).payloads == [b"first life"]

        await destroy_and_create(direct)

        with pytest.raises(tidelog.ChannelNotFoundError):
            await asyncio.wait_for(anext(scan), 30)


@pytest.mark.parametrize("start", [At.earliest(), At.latest(), At.ago(hours=1)], ids=lambda start: start.kind)
@pytest.mark.parametrize("has_messages", [True, False], ids=["behind a message", "before the first one"])
async def test_a_scan_that_connects_again_does_not_continue_in_a_channel_created_meanwhile(
    start: At, *, has_messages: bool
) -> None:
    async with (
        cut_off_client() as (client, proxy, direct),
        client.scan("orders/0", start=start, until=At.follow()) as scan,
    ):
        assert isinstance(scan.core, ScanCore)
        reading = asyncio.ensure_future(anext(scan))
        async with asyncio.timeout(30):
            # Begun by its first response, which every following scan gets at once.
            while not scan.core._received_watermark:
                await asyncio.sleep(0.005)
        if has_messages:
            await direct.append("orders/0", b"first life")
            assert (await asyncio.wait_for(reading, 30)).payloads == [b"first life"]
            reading = asyncio.ensure_future(anext(scan))
        proxy.refuses = True
        proxy.cut()
        await destroy_and_create(direct)
        proxy.refuses = False

        with pytest.raises(tidelog.ChannelNotFoundError, match="another one was created"):
            await asyncio.wait_for(reading, 60)


async def test_a_scan_and_a_plan_may_name_the_channel_that_they_mean() -> None:
    async with cut_off_client() as (client, _, direct):
        await direct.append("orders/0", b"first life")
        [split] = (await client.plan_scan(["orders/0"])).splits
        created = {split.vchannel: split.created_tick}
        read = [each async for each in client.scan("orders/0", created_ticks=created)]
        assert [payload for batch in read for payload in batch.payloads] == [b"first life"]

        await destroy_and_create(direct)

        with pytest.raises(tidelog.ChannelNotFoundError):
            await anext(
                client.scan("orders/0", start=split.begin_tick, until=At.inside(split.end_tick), created_ticks=created)
            )
        with pytest.raises(tidelog.ChannelNotFoundError):
            await anext(client.scan("orders/0", start={"orders/0": Tick(0)}, created_ticks=created))
        with pytest.raises(tidelog.ChannelNotFoundError):
            await client.plan_scan(["orders/0"], created_ticks=created)
