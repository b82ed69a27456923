"""Scan over real gRPC: every policy, filter, end and format, and what a follower receives.

Method: a server in memory, batches of several types on two channels, and the list of what was appended as the model.

Promises of docs/reference/guarantees.md: G9.
"""

import asyncio
from array import array
from typing import Any

import grpc
import grpc.aio
import pytest
import structlog.testing

from tidelog.v1 import error_pb2, message_pb2
from tidelog.v1 import wal_service_pb2 as wal
from tidelog_server.app import Server
from tidelog_server.core.limits import MAX_RESPONSE_BYTES
from tidelog_server.rpc.columns.view import ColumnsView
from tidelog_testing.parts.batches import Message, payloads_of
from tidelog_testing.parts.fixtures import server_with
from tidelog_testing.parts.grpc_calls import Client, a_request, connected, refusal_of, refused, running_server
from tidelog_testing.parts.waiting import until

server, client = server_with()
COLUMNS = wal.SCAN_FORMAT_COLUMNS
ROWS = wal.SCAN_FORMAT_ROWS
FOLLOW = wal.ScanEnd(follow=wal.ScanEndFollow())

Row = tuple[str, int, bytes, int]
"""vchannel, tick, payload, type."""


async def filled(client: Client) -> list[Row]:
    """Append batches of three messages; every third batch has several types."""
    await client.create("a", vchannels=2)
    await client.create("b")
    requests, shapes = [], []
    for number in range(24):
        vchannel = ("a/0", "a/1", "b/0")[number % 3]
        types = [1, 2, 1] if number % 4 == 0 else [number % 3] * 3
        messages = [Message(f"{number}.{i}".encode(), type=types[i]) for i in range(3)]
        requests.append(a_request(vchannel, *messages))
        shapes.append((vchannel, messages))
    answers = await client.append_all(requests)
    return [
        (vchannel, answer.result.first_tick + i, message.payload, message.type)
        for (vchannel, messages), answer in zip(shapes, answers, strict=True)
        for i, message in enumerate(messages)
    ]


def read(responses: list[wal.ScanResponse], names: tuple[str, ...]) -> list[Row]:
    """Return the messages of responses in either format; batches must be sound."""
    rows: list[Row] = []
    for response in responses:
        rows += [(row.vchannel, row.tick, row.message.payload, row.message.type) for row in response.rows]
        for entry in response.entries:
            encoded = entry.columns.SerializeToString()
            view = ColumnsView.parse(encoded)
            assert view.compute_crc32c() == entry.columns.crc32c
            deltas = array("I", entry.tick_deltas) if entry.tick_deltas else range(view.count)
            types = view.types().tolist()
            rows += [
                (names[entry.source], entry.base_tick + delta, payload, kind)
                for delta, payload, kind in zip(deltas, payloads_of(encoded), types, strict=True)
            ]
    return rows


ALL = ("a/0", "a/1", "b/0")


@pytest.mark.parametrize("scan_format", [ROWS, COLUMNS])
@pytest.mark.parametrize(
    ("build", "keeps"),
    [
        pytest.param(lambda _: {}, lambda _row, _tick: True, id="everything"),
        pytest.param(lambda t: {"policy": wal.DeliverPolicy(all=wal.DeliverAll())}, lambda r, t: True, id="all"),
        pytest.param(lambda t: {"policy": wal.DeliverPolicy(from_tick=t)}, lambda r, t: r[1] >= t, id="from"),
        pytest.param(lambda t: {"policy": wal.DeliverPolicy(from_message_id=t.to_bytes(8, "big"))},
                     lambda r, t: r[1] >= t, id="from id"),
        pytest.param(lambda t: {"policy": wal.DeliverPolicy(from_time_ms=t >> 18)},
                     lambda r, t: r[1] >> 18 >= t >> 18, id="from time"),
        pytest.param(lambda t: {"policy": wal.DeliverPolicy(from_time_ms=1 << 62)}, lambda r, t: False, id="far time"),
        pytest.param(lambda t: {"policy": wal.DeliverPolicy(latest=wal.DeliverLatest())},
                     lambda r, t: False, id="latest"),
        pytest.param(lambda t: {"end": wal.ScanEnd(before_tick=t)}, lambda r, t: r[1] < t, id="before"),
        pytest.param(lambda t: {"end": wal.ScanEnd(before_tick=0)}, lambda r, t: False, id="before nothing"),
        pytest.param(lambda t: {"filters": [wal.DeliverFilter(tick_gt=t)]}, lambda r, t: r[1] > t, id="tick_gt"),
        pytest.param(lambda t: {"filters": [wal.DeliverFilter(tick_gte=t)]}, lambda r, t: r[1] >= t, id="tick_gte"),
        pytest.param(lambda t: {"filters": [wal.DeliverFilter(tick_gte=0)]}, lambda r, t: True, id="tick_gte 0"),
        pytest.param(lambda t: {"filters": [types(1)]}, lambda r, t: r[3] == 1, id="one type"),
        pytest.param(lambda t: {"filters": [types(0, 2)]}, lambda r, t: r[3] != 1, id="two types"),
        pytest.param(lambda t: {"filters": [types(0, 1), types(1, 2)]}, lambda r, t: r[3] == 1, id="types joined"),
        pytest.param(lambda t: {"filters": [types(1), types(2)]}, lambda r, t: False, id="no type"),
        pytest.param(lambda t: {"filters": [types(1), wal.DeliverFilter(tick_gt=t)],
                                "policy": wal.DeliverPolicy(from_tick=t), "max_response_bytes": 1},
                     lambda r, t: r[3] == 1 and r[1] > t, id="filters and small pages"),
    ],
)  # fmt: skip
async def test_a_bounded_scan_yields_exactly_what_it_asks_for(
    client: Client, build: Any, keeps: Any, scan_format: int
) -> None:
    rows = await filled(client)
    # Within a batch.
    tick = rows[40][1]
    for names in (ALL, ("b/0",), ("a/1", "a/0")):
        found = read(await client.scan(*names, format=scan_format, **build(tick)), names)
        assert found == [row for row in rows if row[0] in names and keeps(row, tick)]


@pytest.mark.parametrize("scan_format", [ROWS, COLUMNS])
async def test_the_first_response_of_a_scan_up_to_the_watermark_has_its_end(client: Client, scan_format: int) -> None:
    rows = await filled(client)
    first, *others = await client.scan(*ALL, format=scan_format, max_response_bytes=1)
    assert others
    assert not any(response.end_tick for response in others)
    again = await client.scan(*ALL, format=scan_format, end=wal.ScanEnd(before_tick=first.end_tick))
    assert read(again, ALL) == rows
    assert not any(response.end_tick for response in again)


def types(*numbers: int) -> wal.DeliverFilter:
    return wal.DeliverFilter(message_types=wal.MessageTypes(types=numbers))


@pytest.mark.parametrize("scan_format", [ROWS, COLUMNS])
async def test_a_position_behind_a_tick_is_one_of_a_source(client: Client, scan_format: Any) -> None:
    rows = await filled(client)
    tick = rows[40][1]
    message_id = tick.to_bytes(8, "big")
    for after in (wal.DeliverPolicy(after_tick=tick), wal.DeliverPolicy(after_message_id=message_id)):
        for names in (ALL, ("b/0",), ("a/1", "a/0")):
            sources = [wal.ScanSource(vchannel=name, policy=after) for name in names]
            request = wal.ScanRequest(sources=sources, format=scan_format)
            found = read([page async for page in client.wal.Scan(request)], names)
            assert found == [row for row in rows if row[0] in names and row[1] > tick]
        assert await client.rows("b", policy=after) == [row[:3] for row in rows if row[0] == "b/0" and row[1] > tick]
        refusal = await refusal_of(client.scan("a/0", "b/0", policy=after))
        assert (refusal.reason, refusal.values["field"]) == (error_pb2.REASON_INVALID_ARGUMENT, "policy")


async def test_each_source_may_start_at_a_place_of_its_own(client: Client) -> None:
    rows = await filled(client)
    tick = rows[-20][1]
    request = wal.ScanRequest(
        sources=[
            wal.ScanSource(vchannel="a/0", policy=wal.DeliverPolicy(after_tick=tick)),
            wal.ScanSource(vchannel="b/0"),
        ]
    )
    found = [row.tick for page in [page async for page in client.wal.Scan(request)] for row in page.rows]
    assert found == [row[1] for row in rows if row[0] == "b/0" or (row[0] == "a/0" and row[1] > tick)]


async def test_the_last_response_says_that_the_scan_is_complete(client: Client) -> None:
    rows = await filled(client)
    responses = await client.scan(*ALL, max_response_bytes=100, format=COLUMNS)
    assert len(responses) > 5
    assert [response.caught_up for response in responses] == [False] * (len(responses) - 1) + [True]
    assert responses[-1].watermark >= rows[-1][1]


async def test_an_empty_vchannel_answers_with_a_watermark(client: Client) -> None:
    await client.create("a")
    (response,) = await client.scan("a")
    assert response.caught_up
    assert response.watermark > 0
    assert not response.rows


async def test_rows_larger_than_the_columns_they_came_in_still_fit_their_responses(client: Client) -> None:
    name = "a" * 127
    await client.create(name)
    answers = await client.append_all([a_request(name, *[b""] * 10_000) for _ in range(30)])
    assert all(answer.HasField("result") for answer in answers)
    responses = await client.scan(name, max_response_bytes=MAX_RESPONSE_BYTES)
    ticks = [row.tick for response in responses for row in response.rows]
    assert len(ticks) == 300_000
    assert ticks == sorted(set(ticks))
    assert max(len(response.rows) for response in responses) <= 1_000
    assert [response.watermark > 0 for response in responses] == [False] * (len(responses) - 1) + [True]


async def follow(client: Client, *names: str, **fields: Any) -> Any:
    sources = [wal.ScanSource(vchannel=name) for name in names]
    return client.wal.Scan(wal.ScanRequest(sources=sources, end=FOLLOW, format=COLUMNS, **fields))


async def test_a_follower_sees_every_append_once_and_in_order_while_producers_run() -> None:
    async with running_server(limits__tail_ring_bytes=16_000) as server, connected(server) as client:
        await client.create("a", vchannels=4)
        names = tuple(f"a/{index}" for index in range(4))

        async def produce(name: str) -> None:
            await client.append_all([a_request(name, f"{name} {i}".encode(), b"") for i in range(150)])

        async def receive(count: int) -> list[Row]:
            rows: list[Row] = []
            watermark = 0
            async for response in await follow(client, *names):
                found = read([response], names)
                assert all(watermark < row[1] for row in found)
                watermark = max(watermark, response.watermark)
                rows += found
                if len(rows) >= count:
                    break
            return rows

        followers = [asyncio.create_task(receive(1_200)) for _ in range(5)]
        await asyncio.gather(*map(produce, names))
        expected = read(await client.scan(*names, format=COLUMNS), names)
        assert len(expected) == 1_200
        for follower in followers:
            assert await follower == expected


async def test_a_follower_is_told_watermarks_as_often_as_it_asks(client: Client) -> None:
    await client.create("a")
    call = await follow(client, "a", watermark_interval_ms=10)
    watermarks = [(await call.read()).watermark for _ in range(10)]
    assert watermarks == sorted(set(watermarks))
    # Ten of them in about a hundred milliseconds, by the ticks' own clock.
    assert (watermarks[-1] - watermarks[0]) >> 18 < 2_000
    call.cancel()


async def test_a_follower_from_the_latest_sees_only_what_comes(client: Client) -> None:
    await client.create("a")
    await client.append("a", b"old")
    call = await follow(client, "a", policy=wal.DeliverPolicy(latest=wal.DeliverLatest()))
    first = await call.read()
    assert first.caught_up
    assert not first.entries
    new = await client.append("a", b"new")
    while not (response := await call.read()).entries:
        pass
    assert response.entries[0].base_tick == new.first_tick
    call.cancel()


async def test_a_scan_from_the_tick_after_the_last_is_in_range(client: Client) -> None:
    await client.create("a")
    last = (await client.append("a", b"x")).last_tick
    assert await client.rows("a", policy=wal.DeliverPolicy(after_tick=last)) == []


async def test_a_follower_of_a_destroyed_channel_is_told(client: Client) -> None:
    from tidelog.v1 import channel_service_pb2 as channels

    await client.create("a")
    call = await follow(client, "a")
    await call.read()
    await client.channels.DestroyChannels(channels.DestroyChannelsRequest(names=["a"]))
    async with refused() as found:
        while await call.read() is not grpc.aio.EOF:
            pass
    assert found[0].reason == error_pb2.REASON_CHANNEL_NOT_EXIST


async def test_a_damaged_batch_is_data_loss_for_whoever_reads_rows(server: Server, client: Client) -> None:
    await client.create("a")
    tick = (await client.append("a", b"payload")).first_tick
    _, vchannel = server._node.directory.find("a")
    kept = vchannel.ring._entries[0]
    vchannel.ring._entries[0] = (*kept[:5], kept[5].replace(b"payload", b"pAyload"), *kept[6:])
    async with refused() as found:
        await client.rows("a")
    assert found[0].reason == error_pb2.REASON_DATA_LOSS
    assert found[0].values == {"vchannel": "a/0", "tick": str(tick)}


async def test_a_cancelled_follower_leaves_nothing_behind(server: Server, client: Client) -> None:
    await client.create("a")
    calls = [await follow(client, "a") for _ in range(20)]
    for call in calls:
        await call.read()
    _, vchannel = server._node.directory.find("a")
    assert len(vchannel.followers) == 20
    for call in calls:
        call.cancel()
    await until(lambda: not vchannel.followers, within_s=5)


async def test_a_reader_who_goes_away_amid_a_page_is_no_defect(server: Server, client: Client) -> None:
    await client.create("a")
    for _ in range(20):
        await client.append("a", bytes(1 << 20))
    with structlog.testing.capture_logs() as logs:
        for reads in range(60):
            call = await follow(client, "a")
            for _ in range(reads % 8):
                await call.read()
            call.cancel()
        _, vchannel = server._node.directory.find("a")
        await until(lambda: not vchannel.followers)
    assert [event for event in logs if event["event"] == "defect"] == []


def test_the_formats_are_those_of_the_protocol() -> None:
    assert {ROWS, COLUMNS} == {1, 2}
    assert message_pb2.Columns.DESCRIPTOR.fields_by_name["crc32c"].number == 16
