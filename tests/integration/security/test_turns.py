"""A principal that makes many calls leaves the server to others, and what it sends unasked takes bounded memory.

Method: a server in this process with a low bound; calls of two principals by gRPC itself.
"""

import asyncio
import time
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from tidelog.v1 import wal_service_pb2 as wal
from tidelog_server.rpc.server import MAX_UNREAD_REQUEST_BYTES
from tidelog_server.security.turns import UNPACED_COST_PER_S
from tidelog_testing.loads.workload import detail_of
from tidelog_testing.parts.grpc_calls import a_request
from tidelog_testing.servers.secured import Secured, secured_server

ONE_TICK = wal.AllocateTicksRequest(count=1).SerializeToString()
CALLS_PER_S = 100
# A machine that halts for a second lets a principal count as inactive, and a call begin at once.
ATTEMPTS = 5
REQUEST_BYTES = 30_000


async def answers(channel: grpc.aio.Channel, token: str, calls: int) -> list[Any]:
    """Make calls at the same time; return their responses and errors."""
    call: Any = channel.unary_unary("/tidelog.v1.WalService/AllocateTicks")
    metadata = (("authorization", f"Bearer {token}"),)
    return await asyncio.gather(*(call(ONE_TICK, metadata=metadata) for _ in range(calls)), return_exceptions=True)


def throttled(secured: Secured, reason: str) -> float:
    found = secured.server._metrics.registry.get_sample_value("tidelog_throttled_total", {"reason": reason})
    return found or 0.0


async def test_many_calls_wait_for_turns_only_while_another_principal_is_active(tmp_path: Path) -> None:
    async with secured_server(tmp_path, quota__shared_calls_per_s=CALLS_PER_S) as secured:
        busy, other = await secured.token("read:zzz"), await secured.token("read:zzz")
        async with secured.channel() as channel, secured.channel() as others:
            # The administrator made the tokens a moment ago.
            await asyncio.sleep(1.1)
            assert not [each for each in await answers(channel, busy, 90) if isinstance(each, Exception)]
            assert throttled(secured, "turns") == 0

            await answers(others, other, 1)
            begun_s = time.monotonic()
            assert not [each for each in await answers(channel, busy, 90) if isinstance(each, Exception)]
            assert time.monotonic() - begun_s > 0.7 * 90 / CALLS_PER_S
            assert throttled(secured, "turns") >= 90 - UNPACED_COST_PER_S
            before = throttled(secured, "turns")
            # A principal with few calls does not wait.
            assert not [each for each in await answers(others, other, 10) if isinstance(each, Exception)]
            assert throttled(secured, "turns") == before


async def test_calls_that_would_wait_too_long_are_refused_with_what_to_do(tmp_path: Path) -> None:
    async with secured_server(tmp_path, quota__shared_calls_per_s=1) as secured:
        busy, other = await secured.token("read:zzz"), await secured.token("read:zzz")
        refused: list[grpc.aio.AioRpcError] = []
        async with secured.channel() as channel, secured.channel() as others:
            for _ in range(ATTEMPTS):
                await answers(others, other, 1)
                found = await answers(channel, busy, 4 * UNPACED_COST_PER_S)
                refused += [each for each in found if isinstance(each, grpc.aio.AioRpcError)]
                if refused:
                    break
            assert refused
            assert {each.code() for each in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
            detail = detail_of(refused[0])
            assert detail is not None
            assert detail.values["limit"] == "shared_calls"
            assert "quota.shared_calls_per_s" in str(refused[0].details())
            assert throttled(secured, "shared_calls") == len(refused)


async def test_requests_that_are_not_read_take_bounded_memory(tmp_path: Path) -> None:
    """Without a fixed window, gRPC grows it with the bandwidth, and buffers whatever a client sends."""
    async with secured_server(tmp_path, quota__requests_per_s=1, quota__request_burst=100) as secured:
        token = await secured.token("append:orders")
        async with secured.channel() as channel:
            appending: Any = channel.stream_stream("/tidelog.v1.WalService/AppendStream")
            stream = appending(metadata=(("authorization", f"Bearer {token}"),))
            sent = [0]
            sending = asyncio.create_task(write_requests(stream, sent))
            # Until no more than what the quota allows is taken, a request a second.
            while await asyncio.sleep(1, sent[0]) + 5 * REQUEST_BYTES < sent[0] < 64 << 20:
                pass
            stream.cancel()
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    # The window, what the sockets hold, and what the server has read before the quota was spent.
    assert MAX_UNREAD_REQUEST_BYTES // 2 < sent[0] < 8 * MAX_UNREAD_REQUEST_BYTES


async def write_requests(stream: Any, sent: list[int]) -> None:
    """Write requests; ``sent`` has the bytes that gRPC has accepted."""
    request = a_request("orders", bytes(REQUEST_BYTES), request_id=1).SerializeToString()
    while True:
        await stream.write(request)
        sent[0] += len(request)
