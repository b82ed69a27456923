"""Scans through the client, over gRPC, of a server in this process. Method: append, scan, compare."""

import asyncio
from datetime import UTC, datetime

import pytest

import tidelog
from tidelog import AsyncClient, At, Message, Tick
from tidelog.read.scan import ScanCore
from tidelog.testing import start_server
from tidelog.transport.transport import MIB, SCAN_WINDOW_BYTES
from tidelog_testing.faults.fault_proxy import FaultProxy
from tidelog_testing.parts.fixtures import client_with

client = client_with(orders=2)


async def payloads(scan: tidelog.AsyncScan) -> list[bytes]:
    return [payload async for batch in scan for payload in batch.payloads]


async def test_an_empty_vchannel_is_an_empty_scan(client: AsyncClient) -> None:
    assert await payloads(client.scan("orders/0")) == []


async def test_starts_are_inclusive_and_ends_exclusive(client: AsyncClient) -> None:
    ticks = [(await client.append("orders/0", b"%d" % i)).first_tick for i in range(5)]

    assert await payloads(client.scan("orders/0", start=ticks[1], until=ticks[3])) == [b"1", b"2"]
    assert await payloads(client.scan("orders/0", start=At.after(ticks[3]))) == [b"4"]
    assert await payloads(client.scan("orders/0", start=At.message_id(ticks[4].message_id))) == [b"4"]
    assert await payloads(client.scan("orders/0", start=At.after_message_id(ticks[3].message_id))) == [b"4"]
    assert len(await payloads(client.scan("orders/0", start=At.ago(hours=1)))) == 5


async def test_filters_leave_messages_out_of_the_middle_and_ticks_say_so(client: AsyncClient) -> None:
    result = await client.append("orders/0", [Message(b"%d" % i, type=i % 2) for i in range(4)])

    [batch] = [batch async for batch in client.scan("orders/0", types=[1])]

    assert batch.payloads == [b"1", b"3"]
    assert list(batch.ticks) == [result.first_tick + 1, result.first_tick + 3]
    assert await payloads(client.scan("orders/0", tick_gt=result.first_tick, types=[0])) == [b"2"]


async def test_a_scan_of_a_channel_merges_its_vchannels_in_tick_order(client: AsyncClient) -> None:
    for i in range(6):
        await client.append(f"orders/{i % 2}", b"%d" % i)

    assert await payloads(client.channel("orders").scan()) == [b"%d" % i for i in range(6)]


async def test_a_batch_is_a_sequence_of_messages(client: AsyncClient) -> None:
    await client.append("orders/0", [Message(b"a", key=b"k"), b"b", b"c"])

    [batch] = [batch async for batch in client.scan("orders/0")]

    assert len(batch) == 3
    assert [message.payload for message in batch] == [b"a", b"b", b"c"]
    assert (batch[0].key, batch[-1].payload, [m.payload for m in batch[1:]]) == (b"k", b"c", [b"b", b"c"])
    assert batch[1].tick == batch.first_tick + 1
    with pytest.raises(IndexError):
        batch[3]


async def test_a_tail_that_was_entered_misses_nothing_appended_from_then_on(client: AsyncClient) -> None:
    await client.append("orders/0", b"before")

    async with client.tail("orders/0") as tail:
        await client.append("orders/0", b"after")
        batch = await anext(tail)

    assert batch.payloads == [b"after"]


async def test_waiting_for_a_batch_with_a_timeout_loses_nothing(client: AsyncClient) -> None:
    async with client.tail("orders/0") as tail:
        for i in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(tail), 0.05)
            await client.append("orders/0", b"%d" % i)
            assert (await anext(tail)).payloads == [b"%d" % i]


async def test_caught_up_is_set_once_the_last_batch_was_taken(client: AsyncClient) -> None:
    result = await client.append("orders/0", b"a")

    async with client.scan("orders/0", until=At.follow()) as scan:
        await anext(scan)
        waiting = asyncio.create_task(anext(scan))
        await asyncio.wait_for(scan.caught_up.wait(), 5)
        assert scan.watermark >= result.last_tick
        await client.append("orders/0", b"b")
        assert (await waiting).payloads == [b"b"]


async def test_positions_go_on_where_the_scan_stopped(client: AsyncClient) -> None:
    for i in range(4):
        await client.append("orders/0", b"%d" % i)

    async with client.scan("orders/0", max_response_bytes=1) as scan:
        seen = [(await anext(scan)).payloads[0], (await anext(scan)).payloads[0]]

    position = scan.positions["orders/0"]
    for start in (At.after(position), scan.positions, {"orders/0": position, "stock/7": Tick(1)}):
        rest = await payloads(client.scan("orders/0", start=start))
        assert [*seen, *rest] == [b"0", b"1", b"2", b"3"]


async def test_positions_stay_what_they_were_until_the_scan_got_further(client: AsyncClient) -> None:
    tick = (await client.append("orders/0", b"0")).last_tick
    positions = {"orders/0": tick, "orders/1": Tick(0)}
    scan = client.scan("orders", start=positions)

    assert scan.positions == positions
    async with client.scan(["orders/0", "orders/1"]) as earliest, client.scan("orders", start=At.latest()) as latest:
        assert earliest.positions == {}
        assert min(latest.positions.values()) >= tick
        assert await payloads(scan) == []
        assert min(scan.positions.values()) >= tick


async def test_a_position_of_0_is_the_first_message_that_is_there(client: AsyncClient) -> None:
    ticks = [(await client.append("orders/0", b"%d" % i)).first_tick for i in range(2)]
    await client.trim("orders/0", ticks[1])

    assert await payloads(client.scan("orders", start={"orders/0": Tick(0), "orders/1": Tick(0)})) == [b"1"]


async def test_positions_that_lack_a_vchannel_are_refused(client: AsyncClient) -> None:
    for start in ({"orders/0": Tick(1)}, {"orders": Tick(1)}, {"stock/1": Tick(1)}):
        with pytest.raises(tidelog.InvalidRequestError, match=r"no position for .*orders/1") as caught:
            await payloads(client.scan("orders", start=start))
        assert caught.value.values["field"] == "start"


@pytest.mark.parametrize(
    ("start", "error"),
    [({}, ValueError), ({"orders/0": -1}, ValueError), ({"orders/0": "7"}, TypeError), ({7: Tick(1)}, TypeError)],
)
async def test_what_are_no_positions_is_refused_at_once(
    client: AsyncClient, start: dict[str, Tick], error: type[Exception]
) -> None:
    with pytest.raises(error, match="position"):
        client.scan("orders", start=start)


async def test_one_tick_behind_which_several_vchannels_would_start_is_refused(client: AsyncClient) -> None:
    tick = (await client.broadcast(["orders/0", "orders/1"], b"to all")).tick

    for start in (At.after(tick), At.after_message_id(tick.message_id)):
        for scan in (client.scan("orders", start=start), client.tail(["orders/0", "orders/1"], start=start)):
            with pytest.raises(tidelog.InvalidRequestError, match=r"start=scan\.positions"):
                await anext(scan)
        assert await payloads(client.scan("orders/1", start=start)) == []
    assert await payloads(client.scan("orders", start=Tick(tick + 1))) == []


async def test_the_name_of_a_channel_stands_for_all_of_its_vchannels(client: AsyncClient) -> None:
    await client.create_channel("stock")
    for i in range(4):
        await client.append(f"orders/{i % 2}", b"%d" % i)
    await client.append("stock", b"4")

    assert await payloads(client.scan("orders")) == [b"0", b"1", b"2", b"3"]
    batches = [batch async for batch in client.scan(["stock", "orders"])]
    assert [batch.vchannel for batch in batches] == ["orders/0", "orders/1", "orders/0", "orders/1", "stock/0"]
    assert await payloads(client.scan(["orders/1", "stock"])) == [b"1", b"3", b"4"]
    with pytest.raises(tidelog.ChannelNotFoundError):
        await payloads(client.scan("nowhere"))


async def test_a_handle_of_a_vchannel_reads_one(client: AsyncClient) -> None:
    await client.create_channel("stock")
    await client.append("stock", b"1")

    assert [batch.vchannel async for batch in client.vchannel("stock").scan()] == ["stock/0"]
    with pytest.raises(tidelog.InvalidRequestError, match="has 2 vchannels"):
        await payloads(client.vchannel("orders").scan())


async def test_a_trimmed_position_is_refused_with_what_is_left(client: AsyncClient) -> None:
    ticks = [(await client.append("orders/0", b"%d" % i)).first_tick for i in range(3)]
    await client.trim("orders/0", ticks[2])

    with pytest.raises(tidelog.PositionTrimmedError) as caught:
        await payloads(client.scan("orders/0", start=ticks[0]))

    assert ticks[1] < caught.value.first_available_tick <= ticks[2]
    assert await payloads(client.scan("orders/0")) == [b"2"]


async def test_a_position_of_another_cluster_is_refused(client: AsyncClient) -> None:
    with pytest.raises(tidelog.PositionBeyondEndError):
        await payloads(client.scan("orders/0", start=Tick.at(datetime(2200, 1, 1, tzinfo=UTC))))


async def test_a_closed_scan_says_so(client: AsyncClient) -> None:
    async with client.tail("orders/0") as tail:
        pass

    with pytest.raises(tidelog.ClosedError):
        await anext(tail)


@pytest.mark.parametrize("closes_client", [True, False])
async def test_closing_the_client_or_the_scan_ends_the_wait_of_another_task(
    client: AsyncClient, closes_client: bool
) -> None:
    async with client.tail("orders/0") as tail:
        assert isinstance(tail.core, ScanCore)
        waiting = asyncio.create_task(anext(tail))
        while tail.core._reading is None:
            await asyncio.sleep(0)
        await (client if closes_client else tail).aclose()
        with pytest.raises(tidelog.TidelogError):
            await waiting


async def test_a_read_that_is_cancelled_before_it_begins_ends_the_wait(client: AsyncClient) -> None:
    async with client.tail("orders/0") as tail:
        assert isinstance(tail.core, ScanCore)
        waiting = asyncio.create_task(anext(tail))
        while (reading := tail.core._reading) is None:
            await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(tidelog.ClosedError):
            await waiting


async def test_more_scans_than_one_connection_carries_run_at_once(client: AsyncClient) -> None:
    tails = [client.tail("orders/0") for _ in range(120)]
    for tail in tails:
        await tail.__aenter__()

    await client.append("orders/0", b"for all")

    assert {(await anext(tail)).payloads[0] for tail in tails} == {b"for all"}
    for tail in tails:
        await tail.aclose()


async def test_a_scan_receives_a_bounded_number_of_bytes_ahead_however_long_the_way() -> None:
    response_bytes = 2 * MIB
    with await asyncio.to_thread(start_server) as running:
        async with AsyncClient(running.endpoint) as near:
            await near.create_channel("orders")
            for _ in range(96):
                await near.append("orders/0", bytes(MIB))

        async with FaultProxy(running.endpoint, delay_s=0.03) as proxy, AsyncClient(proxy.endpoint) as client:
            scan = client.scan("orders/0", max_response_bytes=response_bytes)
            taken = [await anext(scan) for _ in range(48)]

            # gRPC renews a window before all of the last one is read, and completes a response that has begun.
            ahead_bytes = 2 * (SCAN_WINDOW_BYTES + response_bytes)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await proxy.wait_answered(len(taken) * MIB + ahead_bytes)
            assert len([batch async for batch in scan]) == 48
