"""Members that leave without asking: each stream ends with the documented error, never with OK. Method: bare gRPC.

A member may have closed its side of the stream, and may not read: a response with 1,024 vchannels is beyond its
window, so the write of the server waits until the member reads.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest

from tidelog.v1 import channel_service_pb2, error_pb2
from tidelog.v1 import group_service_pb2 as pb
from tidelog_server.app import Server
from tidelog_server.log.lease_validity import LeaseValidity
from tidelog_server.runtime.clock import SystemClock
from tidelog_testing.parts.grpc_calls import Refusal, connected, refused, running_server

# Assignments of all of its vchannels have 150 KB.
CHANNEL = "c" * 127
VCHANNELS = 1_024
FENCED, GROUP, NO_CHANNEL, SHUTDOWN, LOST = (
    (grpc.StatusCode.FAILED_PRECONDITION, error_pb2.REASON_GROUP_MEMBER_FENCED),
    (grpc.StatusCode.NOT_FOUND, error_pb2.REASON_GROUP_NOT_EXIST),
    (grpc.StatusCode.NOT_FOUND, error_pb2.REASON_CHANNEL_NOT_EXIST),
    (grpc.StatusCode.UNAVAILABLE, error_pb2.REASON_ON_SHUTDOWN),
    (grpc.StatusCode.UNAVAILABLE, error_pb2.REASON_OWNERSHIP_LOST),
)


@asynccontextmanager
async def member_of(server: Server, name: str = "m", **fields: Any) -> AsyncIterator[Any]:
    """Join as a member on a connection of its own, which receives 64 KiB ahead of its reads."""
    async with connected(server, **{"http2.bdp_probe": 0, "http2.lookahead_bytes": 65_536}) as client:
        call = client.groups.JoinGroup()
        fields = {"release_within_ms": 3_600_000, "lease_ms": 600_000} | fields
        await call.write(
            pb.JoinGroupRequest(join=pb.JoinGroupStart(group="billing", channels=[CHANNEL], member_id=name, **fields))
        )
        # The server sends it with its first response, so the member has joined.
        await call.initial_metadata()
        yield call


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with running_server() as server, connected(server) as client:
        await client.create(CHANNEL, vchannels=VCHANNELS)
        await client.groups.CreateGroup(pb.CreateGroupRequest(group="billing", channels=[CHANNEL]))
        yield server


async def assigned(call: Any, count: int = VCHANNELS) -> None:
    """Read until the member holds ``count`` vchannels."""
    while len((await call.read()).assignments.vchannels) != count:
        pass


async def end_of(call: Any) -> Refusal:
    """Read the rest of a stream, and return the error that ends it."""
    async with refused() as found:
        while await call.read() is not grpc.aio.EOF:
            pass
    return found[0]


async def by_lease(server: Server) -> None:
    # The other member holds everything only once the first one is gone.
    async with member_of(server, "other") as other:
        await assigned(other)


async def by_takeover(server: Server) -> None:
    async with member_of(server, "m") as other:
        await assigned(other)


async def by_destroyed_group(server: Server) -> None:
    async with connected(server) as client:
        await client.groups.DestroyGroup(pb.DestroyGroupRequest(group="billing", force=True))


async def by_destroyed_channel(server: Server) -> None:
    async with connected(server) as client:
        await client.channels.DestroyChannels(channel_service_pb2.DestroyChannelsRequest(names=[CHANNEL], force=True))


EVICTIONS = [
    (by_lease, FENCED), (by_takeover, FENCED), (by_destroyed_group, GROUP), (by_destroyed_channel, NO_CHANNEL)
]  # fmt: skip
Evict = Callable[[Server], Awaitable[None]]
Status = tuple[grpc.StatusCode, int]


def lease_of(evict: Evict) -> dict[str, Any]:
    return {"lease_ms": 500} if evict is by_lease else {}


@pytest.mark.parametrize(("evict", "status"), EVICTIONS)
async def test_an_evicted_member_learns_why(server: Server, evict: Evict, status: Status) -> None:
    async with member_of(server, **lease_of(evict)) as call:
        await assigned(call)
        await evict(server)
        refusal = await end_of(call)
    assert (refusal.code, refusal.reason) == (status[0].value[0], status[1])


@pytest.mark.parametrize("is_leaving", [False, True])
@pytest.mark.parametrize(("evict", "status"), EVICTIONS)
async def test_a_member_evicted_while_it_does_not_read_learns_why(
    server: Server, evict: Evict, status: Status, *, is_leaving: bool
) -> None:
    async with member_of(server, **lease_of(evict)) as call:
        if is_leaving:
            await call.done_writing()
        await evict(server)
        refusal = await end_of(call)
    assert (refusal.code, refusal.reason) == (status[0].value[0], status[1])


async def test_a_member_that_leaves_while_it_does_not_read_leaves(server: Server) -> None:
    async with member_of(server) as call:
        await call.done_writing()
        await assigned(call)
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
    async with connected(server) as client:
        described = await client.groups.DescribeGroup(pb.DescribeGroupRequest(group="billing"))
    assert not described.group.members


@pytest.mark.parametrize("reads", [True, False])
async def test_a_server_that_stops_ends_members(server: Server, *, reads: bool) -> None:
    async with member_of(server) as call:
        if reads:
            await assigned(call)
        stopping = asyncio.create_task(server.stop())
        refusal = await end_of(call)
        await stopping
    assert (refusal.code, refusal.reason) == (SHUTDOWN[0].value[0], SHUTDOWN[1])


async def test_a_member_that_reads_nothing_until_the_server_has_stopped_gets_an_error(server: Server) -> None:
    async with member_of(server) as call:
        await server.stop()
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            while await call.read() is not grpc.aio.EOF:
                pass
    assert ended.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


@pytest.mark.parametrize("reads", [True, False])
async def test_a_node_that_lost_its_lease_ends_members(server: Server, *, reads: bool) -> None:
    lease = LeaseValidity(SystemClock(), "n1")
    lease.begin(1, SystemClock().monotonic_s(), 3_600.0)
    server._log.admission.lease = lease
    async with member_of(server) as call:
        if reads:
            await assigned(call)
        lease.end()
        for watcher in server._log.watchers:
            watcher.set()
        refusal = await end_of(call)
    assert (refusal.code, refusal.reason) == (LOST[0].value[0], LOST[1])
