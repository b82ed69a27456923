"""No caller moves the clock of the log far ahead, and each pays for the ticks and requests that it takes.

Method: a server in this process whose callers ask for ticks as fast as they can; the times of ticks against the wall
clock.
"""

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from tidelog.v1 import mailbox_service_pb2 as mailbox
from tidelog.v1 import wal_service_pb2 as wal
from tidelog_server.core.limits import MAX_TICKS_PER_REQUEST
from tidelog_server.core.ticks import physical_ms
from tidelog_server.log.tick_lead import MAX_TICK_LEAD_MS, MAX_TICKS_WHILE_AHEAD
from tidelog_server.rpc.calls import REFUSAL_DELAY_S
from tidelog_server.security.quotas import DENIAL_COST_REQUESTS
from tidelog_testing.loads.workload import detail_of
from tidelog_testing.parts.grpc_calls import Client, a_request, running_server
from tidelog_testing.servers.secured import Secured, secured_server

MANY = wal.AllocateTicksRequest(count=MAX_TICKS_PER_REQUEST)
AT_ONCE = 64


async def refusal_of_ticks(client: Client) -> grpc.aio.AioRpcError:
    """Ask for a million ticks at a time, many times at once, until that is refused; return why."""
    for _ in range(100):
        answers = await asyncio.gather(
            *(client.wal.AllocateTicks(MANY) for _ in range(AT_ONCE)), return_exceptions=True
        )
        refused = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
        if refused:
            return refused[0]
    raise AssertionError("nothing was refused")


async def test_allocated_ticks_stay_within_five_seconds_of_the_clock(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, grpc.aio.insecure_channel(server.grpc_endpoint) as channel:
        client = Client(channel)
        await client.create("orders")
        refused = await refusal_of_ticks(client)
        now_ms, detail = time.time() * 1_000, detail_of(refused)

        assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert detail is not None
        assert detail.values["limit"] == "tick_lead"
        assert int(detail.values["retry_after_ms"]) >= 1
        assert "clock of the log" in str(refused.details())
        append = await client.append("orders", b"x")
        assert physical_ms(append.last_tick) - now_ms <= MAX_TICK_LEAD_MS
        # Who needs a tick and not the future gets it.
        few = await client.wal.AllocateTicks(wal.AllocateTicksRequest(count=MAX_TICKS_WHILE_AHEAD))
        assert few.first_tick > append.last_tick


async def test_a_principal_has_a_quota_of_ticks_of_its_own(tmp_path: Path) -> None:
    async with secured_server(tmp_path, quota__ticks_per_s=1_000_000) as secured:
        greedy, other = await secured.token("read:zzz"), await secured.token("read:zzz")
        await ticks(secured, greedy, MAX_TICKS_PER_REQUEST)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ticks(secured, greedy, MAX_TICKS_PER_REQUEST)
        detail = detail_of(refused.value)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert detail is not None
        assert (detail.values["limit"], 0 < int(detail.values["retry_after_ms"]) <= 1_000) == ("ticks", True)
        await ticks(secured, other, MAX_TICKS_PER_REQUEST)


async def ticks(secured: Secured, token: str, count: int) -> None:
    async with secured.channel() as channel:
        call: Any = channel.unary_unary("/tidelog.v1.WalService/AllocateTicks")
        request = wal.AllocateTicksRequest(count=count).SerializeToString()
        await call(request, metadata=(("authorization", f"Bearer {token}"),))


@pytest.mark.parametrize("per_message", [1, 5], ids=["alone", "several in a message"])
async def test_requests_of_a_stream_count_in_the_quota_of_requests(tmp_path: Path, per_message: int) -> None:
    requests = 50
    async with secured_server(tmp_path, quota__requests_per_s=20, quota__request_burst=10) as secured:
        async with secured.client() as admin:
            await admin.create_channel("orders")
        token = await secured.token("append:orders")
        async with secured.channel() as channel:
            appending: Any = channel.stream_stream("/tidelog.v1.WalService/AppendStream")
            stream = appending(metadata=(("authorization", f"Bearer {token}"),))
            begun_s = time.monotonic()
            for number in range(0, requests, per_message):
                message = a_request("orders", b"x", request_id=number)
                message.more.extend([a_request("orders", b"x", request_id=number)] * (per_message - 1))
                await stream.write(message.SerializeToString())
            for _ in range(0, requests, per_message):
                assert await stream.read() is not grpc.aio.EOF
            # All but those that a burst allows wait: 20 a second.
            assert time.monotonic() - begun_s >= (requests - 12) / 20
            stream.cancel()


@pytest.mark.parametrize("per_message", [1, 5], ids=["alone", "several in a message"])
async def test_operations_on_mailboxes_count_in_the_quota_of_requests(tmp_path: Path, per_message: int) -> None:
    operations = 50
    async with secured_server(tmp_path, quota__requests_per_s=20, quota__request_burst=10) as secured:
        async with secured.client() as admin:
            await admin.mailboxes.create("jobs")
        token = await secured.token("mailbox.send:jobs")
        async with secured.channel() as channel:
            operate: Any = channel.stream_stream("/tidelog.v1.MailboxService/Operate")
            stream = operate(metadata=(("authorization", f"Bearer {token}"),))
            begun_s = time.monotonic()
            for first in range(0, operations, per_message):
                await stream.write(sends("jobs", range(first, first + per_message)).SerializeToString())
            answered = 0
            while answered < operations:
                answered += len(mailbox.OperateResponse.FromString(await stream.read()).results)
            # All but those that a burst allows wait: 20 a second.
            assert time.monotonic() - begun_s >= (operations - 12) / 20
            stream.cancel()


def sends(name: str, numbers: Iterable[int]) -> mailbox.OperateRequest:
    """Return a message with an operation for each number."""
    request = mailbox.SendRequest(mailbox=name, bodies=[b"x"])
    return mailbox.OperateRequest(operations=[mailbox.Operation(number=number, send=request) for number in numbers])


async def test_a_denied_request_of_a_stream_costs_its_principal_more(tmp_path: Path) -> None:
    requests, burst = 30, 100
    async with secured_server(tmp_path, quota__requests_per_s=1_000, quota__request_burst=burst) as secured:
        token = await secured.token("append:zzz")
        async with secured.channel() as channel:
            appending: Any = channel.stream_stream("/tidelog.v1.WalService/AppendStream")
            stream = appending(metadata=(("authorization", f"Bearer {token}"),))
            begun_s = time.monotonic()
            for number in range(1, requests + 1):
                await stream.write(a_request(f"c{number}", b"x", request_id=number).SerializeToString())
            for _ in range(requests):
                assert await stream.read() is not grpc.aio.EOF
            assert time.monotonic() - begun_s >= 0.8 * ((requests - 2) * DENIAL_COST_REQUESTS - burst) / 1_000
            stream.cancel()


async def test_who_repeats_a_refused_call_at_once_is_answered_late(tmp_path: Path) -> None:
    async with secured_server(tmp_path, quota__ticks_per_s=1) as secured:
        token = await secured.token("read:zzz")
        await ticks(secured, token, MAX_TICKS_PER_REQUEST)
        begun_s = time.monotonic()
        for _ in range(10):
            with pytest.raises(grpc.aio.AioRpcError):
                await ticks(secured, token, MAX_TICKS_PER_REQUEST)
        assert time.monotonic() - begun_s >= 10 * REFUSAL_DELAY_S
