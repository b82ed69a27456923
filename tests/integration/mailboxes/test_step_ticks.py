"""A step of a mailbox has a tick for each of its events, also for those that no operation asked for.

Method: requests that cause the greatest number of events, one after the other and in bursts; in a burst, the next step
has the next ticks.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio

from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_testing.parts.grpc_calls import Client, running_server

CALLS = 100


@asynccontextmanager
async def mailbox_stub(folder: Path) -> AsyncIterator[Any]:
    """Yield the stub of a server on `folder`, whose mailbox `jobs` keeps messages that were delivered once."""
    async with running_server(folder) as server, grpc.aio.insecure_channel(server.grpc_endpoint) as channel:
        stub = Client(channel).mailboxes
        settings = pb.MailboxSettings(max_deliveries=1)
        await stub.CreateMailbox(pb.CreateMailboxRequest(name="jobs", settings=settings, if_not_exists=True))
        yield stub


async def send(stub: Any, count: int) -> list[int]:
    return list((await stub.Send(pb.SendRequest(mailbox="jobs", bodies=[b"x"] * count))).ids)


async def fetch(stub: Any, count: int) -> list[Any]:
    request = pb.FetchRequest(mailbox="jobs", max_messages=count, lease_ms=60_000)
    return list((await stub.Fetch(request)).deliveries)


async def settle(stub: Any, confirmed: bytes, rejected: bytes) -> None:
    rejections = [pb.Rejection(lock_id=rejected, is_final=True)]
    await stub.AckDeliveries(pb.AckDeliveriesRequest(mailbox="jobs", confirmed=[confirmed], rejected=rejections))


async def counts(stub: Any) -> tuple[int, int, int]:
    found = (await stub.DescribeMailbox(pb.DescribeMailboxRequest(name="jobs"))).counts
    return found.available, found.leased, found.dead


async def test_a_confirmation_a_final_rejection_and_the_burial_have_ticks(tmp_path: Path) -> None:
    async with mailbox_stub(tmp_path) as stub:
        await send(stub, 2)
        first, second = await fetch(stub, 2)
        await settle(stub, first.lock_id, second.lock_id)
    async with mailbox_stub(tmp_path) as stub:
        assert await counts(stub) == (0, 0, 1)


async def test_ended_leases_and_the_burial_have_ticks(tmp_path: Path) -> None:
    async with mailbox_stub(tmp_path) as stub:
        ids = await send(stub, 2)
        await fetch(stub, 2)
        await stub.Reenqueue(pb.ReenqueueRequest(mailbox="jobs", ids=ids))
    async with mailbox_stub(tmp_path) as stub:
        assert await counts(stub) == (0, 0, 2)


async def test_steps_that_follow_at_once_have_other_ticks(tmp_path: Path) -> None:
    async def settle_and_send(stub: Any, pair: list[Any]) -> list[int]:
        await settle(stub, pair[0].lock_id, pair[1].lock_id)
        return await send(stub, 1)

    async with mailbox_stub(tmp_path) as stub:
        await send(stub, 2 * CALLS)
        deliveries = await fetch(stub, 2 * CALLS)
        pairs = [deliveries[begin : begin + 2] for begin in range(0, 2 * CALLS, 2)]
        ids = await asyncio.gather(*(settle_and_send(stub, pair) for pair in pairs))
        assert len({each for (each,) in ids}) == CALLS
    async with mailbox_stub(tmp_path) as stub:
        assert await counts(stub) == (CALLS, 0, CALLS)
