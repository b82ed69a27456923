"""AppendStream takes any bytes without harm, and many clients at once share one server fairly.

Method: hypothesis sends streams of random and mutated requests to one real server; after each, the log must hold
exactly the acknowledged batches.
"""

import asyncio
import random
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.v1 import error_pb2
from tidelog.v1 import wal_service_pb2 as wal
from tidelog_testing.parts.batches import Message, batches_of_messages
from tidelog_testing.parts.grpc_calls import WAL, a_request, connected, running_server

sent = st.one_of(
    st.tuples(st.just("good"), batches_of_messages, st.just(0)),
    st.tuples(st.just("mutated"), batches_of_messages, st.integers(0, 1 << 30)),
    st.tuples(st.just("random"), st.binary(max_size=30), st.just(0)),
)


def encode(kind: str, content: list[Message] | bytes, seed: int) -> bytes:
    if isinstance(content, bytes):
        return content
    encoded = bytearray(a_request("a", *content, request_id=7).SerializeToString())
    if kind == "mutated":
        dice = random.Random(seed)
        for _ in range(dice.randint(1, 3)):
            encoded[dice.randrange(len(encoded))] = dice.randrange(256)
        del encoded[dice.randint(1, len(encoded) * 2) :]
    return bytes(encoded)


def send(channel: grpc.Channel, requests: list[bytes]) -> list[wal.AppendStreamResponse]:
    """Return the answers, up to the end of the stream or to where the server refused a malformed request.

    Synchronous, because gRPC's asyncio interface forgets answers and status when a write meets the end of a stream.
    """
    answers: list[wal.AppendStreamResponse] = []
    call: Any = channel.stream_stream(f"{WAL}/AppendStream")(iter(requests))  # type: ignore[arg-type]  # gRPC's types know no bytes
    with suppress(grpc.RpcError):
        for answer in call:
            answers.append(wal.AppendStreamResponse.FromString(answer))
    assert call.code() in {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}
    return answers


async def check_streams(streams: list[list[bytes]]) -> None:
    async with running_server() as server, connected(server) as client:
        await client.create("a")
        acknowledged: list[int] = []
        for requests in streams:
            with grpc.insecure_channel(server.grpc_endpoint) as channel:
                answers = await asyncio.to_thread(send, channel, requests)
            assert len(answers) <= len(requests)
            for answer in answers:
                if answer.HasField("result"):
                    acknowledged += range(answer.result.first_tick, answer.result.last_tick + 1)
                else:
                    assert answer.error.detail.effect == error_pb2.EFFECT_NONE
                    assert answer.error.detail.reason not in {error_pb2.REASON_INNER, error_pb2.REASON_UNSPECIFIED}
        assert [tick for _, tick, _ in await client.rows("a")] == acknowledged
        assert (await client.append("a", b"well")).first_tick > max(acknowledged, default=0)


@settings(max_examples=25)
@given(st.lists(st.lists(sent, max_size=6), min_size=5, max_size=25))
@pytest.mark.extended
def test_streams_of_anything_leave_exactly_the_acknowledged_batches(
    streams: list[list[tuple[str, list[Message] | bytes, int]]],
) -> None:
    asyncio.run(check_streams([[encode(*request) for request in requests] for requests in streams]))


async def test_a_connection_with_more_calls_than_it_may_have_at_once_serves_them_all() -> None:
    async with running_server() as server, connected(server) as client:
        await client.create("a")
        results = await asyncio.gather(*(client.append("a", b"x") for _ in range(300)))
        assert len({result.first_tick for result in results}) == 300


async def test_two_clients_on_connections_of_their_own_do_not_wait_for_each_other() -> None:
    async with (
        running_server() as server,
        connected(server) as one,
        connected(server, use_local_subchannel_pool=1) as two,
    ):
        await one.create("a")
        call = one.raw_append_stream()
        await call.write(a_request("a", barrier_tick=(1 << 62)).SerializeToString())
        assert (await two.append("a", b"x")).first_tick
        call.cancel()
