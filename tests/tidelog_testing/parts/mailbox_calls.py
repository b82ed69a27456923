"""Calls of the mailbox service through the generated stubs."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import grpc
import grpc.aio
from prometheus_client.parser import text_string_to_metric_families

from tidelog.v1 import error_pb2
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_server.app import Server
from tidelog_testing.parts.grpc_calls import connected

_T = TypeVar("_T")
Samples = dict[tuple[str, str], float]


@asynccontextmanager
async def mailbox_stub(server: Server) -> AsyncIterator[Any]:
    """Yield the stub of a server's mailboxes."""
    async with connected(server) as client:
        yield client.mailboxes


async def create(stub: Any, name: str, **settings: Any) -> None:
    """Create a mailbox."""
    await stub.CreateMailbox(pb.CreateMailboxRequest(name=name, settings=pb.MailboxSettings(**settings)))


async def fetch(stub: Any, mailbox: str, **options: Any) -> list[Any]:
    """Lease messages."""
    response = await stub.Fetch(pb.FetchRequest(mailbox=mailbox, **{"max_messages": 10, **options}))
    return list(response.deliveries)


async def acknowledge(stub: Any, mailbox: str, *, confirmed: Any = (), rejected: Any = ()) -> None:
    """Confirm and reject deliveries, given by their locks; all must be accepted."""
    request = pb.AckDeliveriesRequest(
        mailbox=mailbox, confirmed=list(confirmed), rejected=[pb.Rejection(lock_id=lock_id) for lock_id in rejected]
    )
    assert not (await stub.AckDeliveries(request)).failures


async def counts(stub: Any, mailbox: str) -> tuple[int, int, int, int]:
    """Return the numbers of available, delayed, leased and dead messages."""
    found = (await stub.DescribeMailbox(pb.DescribeMailboxRequest(name=mailbox))).counts
    return found.available, found.delayed, found.leased, found.dead


async def reason_of(call: Awaitable[Any]) -> str:
    """Return the reason with which a call fails; empty if it succeeds."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        details = dict(error.trailing_metadata() or ())["grpc-status-details-bin"]
        detail = error_pb2.ErrorDetail()
        assert error_pb2.RpcStatus.FromString(details).details[0].Unpack(detail)
        return error_pb2.Reason.Name(detail.reason)
    return ""


async def samples(server: Server) -> Samples:
    """Return the metrics of mailboxes by name and by the value of their label; empty without one."""
    text = (await server._render_metrics()).decode()
    return {
        (sample.name.removeprefix("tidelog_"), next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "mailbox" in sample.name
    }
