"""Append and AppendStream over real gRPC: answers in order, whole batches, nothing accepted left unanswered.

Method: a server on the test's event loop, on RocksDB where durability matters, and bare gRPC calls.

Promises of docs/reference/guarantees.md: G3, G6.
"""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from tidelog.v1 import error_pb2, message_pb2, wal_service_pb2
from tidelog_server.app import Server
from tidelog_testing.parts.batches import Message
from tidelog_testing.parts.fixtures import server_with
from tidelog_testing.parts.grpc_calls import (
    Client,
    Refusal,
    a_request,
    connected,
    refusal_in,
    refused,
    running_server,
)
from tidelog_testing.parts.stores import FaultyStore

server, client = server_with()
INVALID = grpc.StatusCode.INVALID_ARGUMENT.value[0]


async def test_an_append_in_rows_comes_back_as_it_was(tmp_path: Path) -> None:
    messages = [
        message_pb2.Message(payload=b"one", key=b"", type=(1 << 32) - 1, properties={"a": "é", "b": ""}),
        message_pb2.Message(payload=b"", event_time_ms=-5),
        message_pb2.Message(payload=b"three", key=b"k"),
    ]
    async with running_server(tmp_path / "data") as server, connected(server) as client:
        await client.create("orders", vchannels=2)
        request = wal_service_pb2.AppendRequest(vchannel="orders/1", messages=messages)
        result = (await client.wal.Append(request)).result
        assert result.last_tick == result.first_tick + 2
        assert result.message_id == result.last_tick.to_bytes(8, "big")
        assert result.durability == message_pb2.DURABILITY_SYNC
        (response,) = await client.scan("orders/1")
        assert [row.message for row in response.rows] == messages
        assert [row.tick for row in response.rows] == list(range(result.first_tick, result.last_tick + 1))


async def test_stream_answers_come_in_the_order_of_the_requests_refusals_among_them(client: Client) -> None:
    await client.create("a", vchannels=3)
    requests = []
    for number in range(300):
        vchannel = f"a/{number % 4}"
        requests.append(a_request(vchannel, str(number).encode(), request_id=number + 1))
    answers = await client.append_all(requests)
    assert [answer.request_id for answer in answers] == list(range(1, 301))
    kinds = [answer.WhichOneof("answer") for answer in answers]
    assert kinds == ["error" if number % 4 == 3 else "result" for number in range(300)]
    ticks = [answer.result.first_tick for answer in answers if answer.HasField("result")]
    assert ticks == sorted(set(ticks))
    rows = await client.rows("a/0", "a/1", "a/2")
    assert [tick for _, tick, _ in rows] == ticks


async def test_a_stream_that_the_client_closes_at_once_ends_well(client: Client) -> None:
    assert await client.append_all([]) == []


@pytest.mark.not_on_engine(reason="a log in an engine acknowledges `os` as `sync`")
async def test_a_stream_may_name_its_durability_for_each_batch() -> None:
    async with running_server(storage__durability="os") as server, connected(server) as client:
        await client.create("a")
        answers = await client.append_all([a_request("a", durability=number) for number in (0, 1, 2)])
        assert [answer.result.durability for answer in answers] == [2, 1, 2]


async def test_a_barrier_is_exceeded_and_waits_for_its_time(client: Client) -> None:
    await client.create("a")
    allocated = await client.wal.AllocateTicks(wal_service_pb2.AllocateTicksRequest(count=10))
    barrier = allocated.first_tick + 9
    assert barrier < (await client.append("a", b"x", barrier_tick=barrier)).first_tick
    soon = barrier + (100 << 18)
    (answer,) = await client.append_all([a_request("a", barrier_tick=soon)])
    assert soon < answer.result.first_tick


async def test_a_barrier_far_ahead_is_refused_shortly_before_the_deadline(client: Client) -> None:
    await client.create("a")
    first = await client.append("a", b"x")
    request = wal_service_pb2.AppendRequest(
        vchannel="a",
        messages=[message_pb2.Message(payload=b"y")],
        options=wal_service_pb2.AppendOptions(barrier_tick=first.first_tick + (3_600_000 << 18)),
    )
    async with refused() as found:
        await client.wal.Append(request, timeout=3)
    assert (found[0].code, found[0].reason) == (
        grpc.StatusCode.DEADLINE_EXCEEDED.value[0], error_pb2.REASON_BARRIER_NOT_REACHED,
    )  # fmt: skip
    assert found[0].effect == error_pb2.EFFECT_NONE
    assert first.first_tick < int(found[0].values["latest_tick"]) < request.options.barrier_tick
    assert "take barrier ticks from AllocateTicks" in found[0].text
    assert len(await client.rows("a")) == 1


async def test_a_malformed_request_ends_its_stream_after_everything_before_it_is_answered(client: Client) -> None:
    await client.create("a")
    good = [a_request("a", str(number).encode(), request_id=number + 1) for number in range(50)]
    encoded = [request.SerializeToString() for request in good]
    for malformed in (b"\xff" * 9, b"\x12\x01\xff", b"\x22\x01\x08"):
        call = client.raw_append_stream(iter([*encoded, malformed, encoded[0]]))
        answers: list[wal_service_pb2.AppendStreamResponse] = []
        async with refused() as found:
            async for answer in call:
                answers.append(wal_service_pb2.AppendStreamResponse.FromString(answer))
        assert [answer.request_id for answer in answers] == list(range(1, 51))
        assert all(answer.HasField("result") for answer in answers)
        assert (found[0].code, found[0].reason) == (INVALID, error_pb2.REASON_MALFORMED_REQUEST)
        assert "build it from the service's .proto files" in found[0].text
    assert len(await client.rows("a")) == 150


async def test_columns_that_are_no_message_are_refused_and_the_stream_goes_on(client: Client) -> None:
    await client.create("a")
    good = a_request("a", b"x").SerializeToString()
    # Columns with an unknown wire type.
    call = client.raw_append_stream(iter([good, b"\x12\x01a\x1a\x02\x0f\x00", good]))
    answers = [wal_service_pb2.AppendStreamResponse.FromString(answer) async for answer in call]
    assert [answer.WhichOneof("answer") for answer in answers] == ["result", "error", "result"]
    assert refusal_in(answers[1]).reason == error_pb2.REASON_MALFORMED_REQUEST


async def test_a_cancelled_stream_leaves_whole_batches_and_a_healthy_server(client: Client) -> None:
    await client.create("a")
    batch = [str(number).encode() for number in range(100)]
    for after in (0, 1, 5):
        call = client.raw_append_stream()
        for number in range(40):
            await call.write(a_request("a", *batch, request_id=number + 1).SerializeToString())
        for _ in range(after):
            await call.read()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            while await call.read() is not grpc.aio.EOF:
                pass
    await client.append("a", b"end")
    payloads = [payload for _, _, payload in await client.rows("a")]
    assert payloads.pop() == b"end"
    assert payloads == batch * (len(payloads) // 100)


async def test_a_stream_is_read_no_further_than_its_bytes_in_flight_allow() -> None:
    store = FaultyStore()
    async with running_server(store=store) as server, connected(server) as client:
        await client.create("a")
        store.may_sync.clear()
        call = client.raw_append_stream()
        sent = 0
        payload = bytes(1 << 20)

        async def send() -> None:
            nonlocal sent
            for number in range(40):
                await call.write(a_request("a", payload, request_id=number + 1).SerializeToString())
                sent += 1
            await call.done_writing()

        sender = asyncio.create_task(send())
        node = server._log
        before = -1
        while before != node.admission.in_flight_bytes or not before:
            before = node.admission.in_flight_bytes
            await asyncio.sleep(0.1)
        # The limit, and the one request that exceeds it.
        assert 7 << 20 <= node.admission.in_flight_bytes <= 9 << 20
        assert sent < 40
        store.may_sync.set()
        await sender
        answers = 0
        while await call.read() is not grpc.aio.EOF:
            answers += 1
        assert answers == 40
        assert node.admission.in_flight_bytes == 0


async def test_many_streams_share_the_node_and_keep_their_own_order(client: Client) -> None:
    await client.create("a", vchannels=2)

    async def produce(name: int) -> None:
        requests = [a_request(f"a/{name % 2}", f"{name} {i}".encode(), request_id=i + 1) for i in range(200)]
        answers = await client.append_all(requests)
        assert [answer.request_id for answer in answers] == list(range(1, 201))

    await asyncio.gather(*(produce(name) for name in range(8)))
    rows = await client.rows("a/0", "a/1")
    assert len(rows) == 1_600
    for name in range(8):
        own = [payload for _, _, payload in rows if payload.startswith(f"{name} ".encode())]
        assert own == [f"{name} {i}".encode() for i in range(200)]


async def test_a_shutdown_answers_everything_it_accepted_and_then_says_so() -> None:
    store = FaultyStore()
    async with running_server(store=store) as server, connected(server) as client:
        await client.create("a")
        store.may_sync.clear()
        call = client.raw_append_stream()
        for number in range(30):
            await call.write(a_request("a", b"x", request_id=number + 1).SerializeToString())
        while server._log.admission.in_flight_bytes < 30 * len(a_request("a", b"x").columns.SerializeToString()):
            await asyncio.sleep(0.01)
        stopping = asyncio.create_task(server.stop())
        while not server._log.admission.is_shutting_down:
            await asyncio.sleep(0)
        store.may_sync.set()
        answers = [wal_service_pb2.AppendStreamResponse.FromString(await call.read()) for _ in range(30)]
        assert [answer.request_id for answer in answers if answer.HasField("result")] == list(range(1, 31))
        async with refused() as found:
            await call.read()
        assert found[0].reason == error_pb2.REASON_ON_SHUTDOWN
        assert found[0].effect == error_pb2.EFFECT_NONE
        await asyncio.wait_for(stopping, 5)


async def test_a_shutdown_does_not_wait_for_idle_streams_and_scans(server: Server, client: Client) -> None:
    await client.create("a")
    streams = [client.raw_append_stream() for _ in range(3)]
    for stream in streams:
        await stream.write(a_request("a", b"x").SerializeToString())
        await stream.read()
    follow = wal_service_pb2.ScanRequest(
        sources=[wal_service_pb2.ScanSource(vchannel="a")],
        end=wal_service_pb2.ScanEnd(follow=wal_service_pb2.ScanEndFollow()),
    )
    scan = client.wal.Scan(follow)
    await scan.read()
    late = asyncio.create_task(client.append_all([a_request("a", barrier_tick=(1 << 63) - 1)]))
    await asyncio.sleep(0)
    # Far below the grace that calls in flight are given.
    await asyncio.wait_for(server.stop(), 5)
    async with refused() as found:
        while await scan.read() is not grpc.aio.EOF:
            pass
    assert found[0].reason == error_pb2.REASON_ON_SHUTDOWN
    outcome = (await asyncio.gather(late, return_exceptions=True))[0]
    assert isinstance(outcome, list | grpc.aio.AioRpcError)


@pytest.mark.parametrize("fault", ["fails_at_write", "fails_at_sync"])
async def test_after_a_storage_failure_outcomes_are_unknown_or_none_and_nothing_is_acknowledged(fault: str) -> None:
    store = FaultyStore(**{fault: 2})
    async with running_server(store=store) as server, connected(server) as client:
        await client.create("a")
        await client.append("a", b"good")
        (in_flight,) = await client.append_all([a_request("a", b"lost?")])
        found: list[Refusal] = [refusal_in(in_flight)]
        assert found[0].effect == error_pb2.EFFECT_UNKNOWN
        async with refused() as later:
            await client.append("a", b"no")
        assert later[0].effect == error_pb2.EFFECT_NONE
        for refusal in (found[0], later[0]):
            assert refusal.reason == error_pb2.REASON_STORAGE_FAILED
            assert "restart the server" in refusal.text
        # What was acknowledged is served; what may not be durable is not.
        assert [payload for _, _, payload in await client.rows("a")] == [b"good"]
        assert await asyncio.wait_for(server.wait_stopped(), 5)


async def test_a_node_with_too_much_in_flight_refuses_rows_and_holds_streams() -> None:
    store = FaultyStore()
    limits: dict[str, Any] = {"limits__max_in_flight_bytes": 200_000, "limits__max_in_flight_bytes_per_stream": 150_000,
              "limits__max_batch_bytes": 150_000, "limits__max_message_bytes": 150_000}  # fmt: skip
    async with running_server(store=store, **limits) as server, connected(server) as client:
        await client.create("a")
        store.may_sync.clear()
        first = asyncio.create_task(client.append("a", bytes(140_000)))
        while not server._log.admission.in_flight_bytes:
            await asyncio.sleep(0.01)
        async with refused() as found:
            await client.append("a", bytes(100_000))
        assert (found[0].code, found[0].reason) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], error_pb2.REASON_RATE_LIMIT_REJECTED,
        )  # fmt: skip
        held = asyncio.create_task(client.append_all([a_request("a", bytes(100_000))]))
        await client_turns(client)
        assert not held.done()
        store.may_sync.set()
        assert (await held)[0].HasField("result")
        await first


async def client_turns(client: Client) -> None:
    """Let a few whole calls go by."""
    for _ in range(5):
        await client.wal.GetWalName(wal_service_pb2.GetWalNameRequest())


async def test_equal_keys_and_large_types_survive(client: Client) -> None:
    await client.create("a")
    (answer,) = await client.append_all([a_request("a", Message(b"p", key=b"k", type=(1 << 32) - 1))])
    assert answer.HasField("result")
    (response,) = await client.scan("a")
    assert response.rows[0].message.type == (1 << 32) - 1
