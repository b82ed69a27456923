"""A transport follows its node to the process that serves it. Method: small gRPC servers, which state their node.

Each has a port of its own, and answers what a transport asks: which node it is, and a read.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from tidelog.errors import TidelogError, UnauthenticatedError, UnavailableError
from tidelog.transport.node.transport import NodeTransport
from tidelog.transport.retry import Retry
from tidelog.transport.transport import _SCANS_PER_CONNECTION
from tidelog.v1 import cluster_service_pb2, wal_service_pb2
from tidelog.v1.cluster_service_pb2_grpc import ClusterServiceServicer, add_ClusterServiceServicer_to_server
from tidelog.v1.wal_service_pb2_grpc import WalServiceServicer, add_WalServiceServicer_to_server
from tidelog_testing.servers.secured import ONCE

ABSENT = "127.0.0.1:1"


class Registry:
    """What another process of the cluster states: addresses of nodes, and the term of all; how often it was asked."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        self.term = 1
        self.asked: list[str] = []

    async def locate(self, former: str) -> str:
        self.asked.append(former)
        return self.addresses.get("n1", "")


class Process(ClusterServiceServicer, WalServiceServicer):
    """A server. Attributes: its node, how it refuses reads, the number of its reads, and its address."""

    def __init__(self, node_id: str, registry: Registry) -> None:
        self.node_id = node_id
        self.refuses: grpc.StatusCode | None = None
        self.reads = 0
        self.address = ""
        self.has_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self._registry = registry

    async def DescribeCluster(self, _: Any, __: Any) -> Any:
        nodes = [
            cluster_service_pb2.NodeDescription(node_id=node_id, address=address, term=self._registry.term)
            for node_id, address in self._registry.addresses.items()
        ]
        return cluster_service_pb2.DescribeClusterResponse(node_id=self.node_id, nodes=nodes)

    async def GetWalName(self, _: Any, context: Any) -> Any:
        if self.refuses is not None:
            await context.abort(self.refuses, "it is not the owner any more")
        self.reads += 1
        return wal_service_pb2.GetWalNameResponse(wal_name=self.node_id)

    async def GetLatestMvccTick(self, _: Any, __: Any) -> Any:
        self.has_asked.set()
        await self.may_answer.wait()
        return wal_service_pb2.GetLatestMvccTickResponse(mvcc_tick=1)


async def started(node_id: str, registry: Registry) -> tuple[Process, Callable[[float | None], Awaitable[None]]]:
    """Return a registered process, and the function that stops it."""
    process, server = Process(node_id, registry), grpc.aio.server()
    add_ClusterServiceServicer_to_server(process, server)  # type: ignore[no-untyped-call]  # Generated.
    add_WalServiceServicer_to_server(process, server)  # type: ignore[no-untyped-call]  # Generated.
    process.address = registry.addresses[node_id] = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    return process, server.stop


@asynccontextmanager
async def serving(node_id: str, registry: Registry) -> AsyncIterator[Process]:
    process, stop = await started(node_id, registry)
    try:
        yield process
    finally:
        await stop(None)


@asynccontextmanager
async def transport_to(
    endpoint: str, registry: Registry, *, moves: list[str] | None = None, retry: Retry | None = None, **options: Any
) -> AsyncIterator[NodeTransport]:
    transport = NodeTransport(
        "n1", endpoint, registry.locate, ([] if moves is None else moves).append,
        client_id="me", connect_timeout_s=0.2, retry=retry or Retry(base_s=0.01, give_up_s=20.0), **options,
    )  # fmt: skip
    try:
        yield transport
    finally:
        await transport.aclose()


async def read(transport: NodeTransport, timeout_s: float = 10.0) -> None:
    method = transport.services.wal.GetWalName
    await transport.call(method, wal_service_pb2.GetWalNameRequest(), timeout_s=timeout_s, is_read=True)


async def test_all_connections_go_to_the_new_address_when_the_old_one_breaks() -> None:
    registry, moves = Registry(), list[str]()
    async with AsyncExitStack() as stack:
        first, stop_first = await started("n1", registry)
        transport = await stack.enter_async_context(transport_to(first.address, registry, moves=moves))
        await read(transport)
        assert registry.asked == []
        # Stubs that were taken before it, also of a second connection.
        stubs = [transport.lease().wal for _ in range(_SCANS_PER_CONNECTION + 1)]
        assert stubs[0] is not stubs[-1]
        await stop_first(None)
        second = await stack.enter_async_context(serving("n1", registry))

        await read(transport)
        for stub in (stubs[0], stubs[-1]):
            await stub.GetWalName(wal_service_pb2.GetWalNameRequest(), timeout=10)
    assert (first.reads, second.reads) == (1, 3)
    assert moves == [second.address]
    assert transport.endpoint == second.address


async def test_a_node_without_a_process_is_waited_for() -> None:
    registry = Registry()
    async with transport_to(ABSENT, registry) as transport:
        reading = asyncio.create_task(read(transport))
        while len(registry.asked) < 3:
            await asyncio.sleep(0.01)
        async with serving("n1", registry) as process:
            await reading
    assert process.reads == 1


async def test_calls_that_wait_look_the_address_up_together() -> None:
    registry = Registry()
    async with transport_to(ABSENT, registry) as transport:
        reading = [asyncio.create_task(read(transport)) for _ in range(20)]
        while len(registry.asked) < 3:
            await asyncio.sleep(0.01)
        async with serving("n1", registry) as process:
            await asyncio.gather(*reading)
    assert process.reads == 20
    assert len(registry.asked) < 20


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED])
async def test_a_call_that_is_refused_or_unanswered_puts_the_address_in_doubt(code: grpc.StatusCode) -> None:
    registry = Registry()
    async with serving("n1", registry) as first, transport_to(first.address, registry) as transport:
        await read(transport)
        first.refuses = code
        with pytest.raises(TidelogError):
            await read(transport, timeout_s=0.01)
        async with serving("n1", registry) as second:
            await read(transport)
    assert (first.reads, second.reads) == (1, 1)


@pytest.mark.parametrize("serves", ["n2", "n1"], ids=["another node", "the node before its successor"])
async def test_a_process_that_is_not_the_one_of_the_node_is_not_called(serves: str) -> None:
    registry = Registry()
    async with serving(serves, registry) as other, serving("n1", registry) as process:
        async with transport_to(other.address, registry) as transport:
            await read(transport)
    assert (other.reads, process.reads) == (0, 1)


async def test_a_refusal_by_a_process_that_still_serves_the_node_does_not_move_it() -> None:
    registry = Registry()
    async with (
        serving("n1", registry) as process,
        transport_to(process.address, registry, retry=ONCE) as transport,
    ):
        process.refuses = grpc.StatusCode.UNAVAILABLE
        with pytest.raises(UnavailableError):
            await read(transport)
        process.refuses = None
        await read(transport)
    assert registry.asked == []
    assert process.reads == 1


async def test_a_process_that_stops_is_left_although_it_answers_as_before() -> None:
    registry = Registry()
    async with serving("n1", registry) as first, transport_to(first.address, registry) as transport:
        await read(transport)
        transport.note_stop(transport.term)
        reading = asyncio.create_task(read(transport))
        while len(registry.asked) < 3:
            await asyncio.sleep(0.01)
        assert first.reads == 1
        registry.term += 1
        async with serving("n1", registry) as second:
            await reading
        assert transport.term == 2
    assert (first.reads, second.reads) == (1, 1)


async def test_the_next_process_at_the_same_address_is_called() -> None:
    registry = Registry()
    async with serving("n1", registry) as process, transport_to(process.address, registry) as transport:
        await read(transport)
        transport.note_stop(transport.term)
        registry.term += 1
        await read(transport)
        # A late answer of the one before.
        transport.note_stop(1)
        await read(transport)
    assert registry.asked == []
    assert process.reads == 3


async def test_the_wait_for_a_process_is_bounded() -> None:
    registry = Registry()
    async with transport_to(ABSENT, registry, retry=Retry(base_s=0.01, give_up_s=0.3)) as transport:
        begin_s = asyncio.get_running_loop().time()
        with pytest.raises(UnavailableError, match="no process served node 'n1', last known at") as ended:
            await transport.ready(20.0)
        assert asyncio.get_running_loop().time() - begin_s < 5.0
    assert ended.value.effect == "none"

    registry.addresses["n1"] = ABSENT
    async with transport_to(ABSENT, registry) as transport:
        with pytest.raises(UnavailableError, match=f"no connection to node 'n1' at {ABSENT} within 0.2 s"):
            await transport.ready(0.2)


async def test_a_call_in_progress_ends_where_it_began() -> None:
    registry = Registry()
    async with serving("n1", registry) as first, transport_to(first.address, registry) as transport:
        await read(transport)
        waiting = transport.services.wal.GetLatestMvccTick(wal_service_pb2.GetLatestMvccTickRequest())
        await first.has_asked.wait()
        async with serving("n1", registry) as second:
            first.refuses = grpc.StatusCode.UNAVAILABLE
            await read(transport)
            first.may_answer.set()
            assert (await waiting).mvcc_tick == 1
    assert second.reads == 1


async def test_a_token_is_not_sent_unencrypted_to_another_machine() -> None:
    registry = Registry()
    registry.addresses["n1"] = "192.0.2.1:7420"
    async with transport_to(ABSENT, registry, token="secret") as transport:
        with pytest.raises(UnauthenticatedError, match=r"refusing to send a token unencrypted to 192\.0\.2\.1:7420"):
            await read(transport)
