"""A following scan survives a proxy that ends its call without an error. Method: a gRPC proxy before a real server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from tidelog import AsyncClient, At, Retry, UnavailableError
from tidelog.testing import server


class EndingProxy(grpc.GenericRpcHandler):
    """Forwards calls, and ends scans with OK on request.

    Attributes:
        scans: Number of scans that were opened.
        ends: Ends the open scan when it is set.
        ends_all: Whether each scan ends at once.
    """

    def __init__(self, target: Any) -> None:
        self.scans = 0
        self.ends = asyncio.Event()
        self.ends_all = False
        self._target = target

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        if details.method.endswith("/Scan"):
            return grpc.unary_stream_rpc_method_handler(self._scan)

        async def forward(request: bytes, context: Any) -> Any:
            return await self._target.unary_unary(details.method)(request)

        return grpc.unary_unary_rpc_method_handler(forward)

    async def _scan(self, request: bytes, context: Any) -> None:
        self.scans += 1
        if self.ends_all:
            return
        call = self._target.unary_stream("/tidelog.v1.WalService/Scan")(request)
        forwarding = asyncio.create_task(self._forward(call, context))
        ending = asyncio.create_task(self.ends.wait())
        try:
            await asyncio.wait((forwarding, ending), return_when=asyncio.FIRST_COMPLETED)
            self.ends.clear()
        finally:
            call.cancel()
            for task in (forwarding, ending):
                task.cancel()
            await asyncio.gather(forwarding, ending, return_exceptions=True)

    async def _forward(self, call: Any, context: Any) -> None:
        while (response := await call.read()) is not grpc.aio.EOF:
            await context.write(response)


@asynccontextmanager
async def ending_proxy(give_up_s: float) -> AsyncIterator[tuple[AsyncClient, EndingProxy, AsyncClient]]:
    """Yield a client behind a proxy, the proxy, and a client with a direct connection to the same server."""
    async with server() as direct, grpc.aio.insecure_channel(direct.endpoint) as channel:
        await direct.create_channel("orders")
        proxy, listener = EndingProxy(channel), grpc.aio.server()
        listener.add_generic_rpc_handlers([proxy])
        port = listener.add_insecure_port("127.0.0.1:0")
        await listener.start()
        try:
            async with AsyncClient(f"127.0.0.1:{port}", retry=Retry(give_up_s=give_up_s)) as client:
                yield client, proxy, direct
        finally:
            await listener.stop(None)


async def test_a_following_scan_resumes_after_a_call_that_ended_without_an_error() -> None:
    async with ending_proxy(give_up_s=60) as (client, proxy, direct):
        async with client.scan("orders/0", until=At.follow()) as scan:
            for number in range(3):
                await direct.append("orders/0", b"%d" % number)
                batch = await anext(scan)
                assert list(batch.payloads) == [b"%d" % number]
                proxy.ends.set()
        assert proxy.scans >= 3


async def test_a_following_scan_whose_calls_all_end_gives_up() -> None:
    async with ending_proxy(give_up_s=1) as (client, proxy, _):
        proxy.ends_all = True
        async with client.scan("orders/0", until=At.follow()) as scan:
            with pytest.raises(UnavailableError, match="a following scan ended without an error"):
                await anext(scan)
        # It waits longer from attempt to attempt.
        assert 1 < proxy.scans < 50


async def test_a_bounded_scan_still_ends() -> None:
    async with ending_proxy(give_up_s=60) as (client, proxy, direct):
        await direct.append("orders/0", b"one")
        assert [list(batch.payloads) async for batch in client.scan("orders/0")] == [[b"one"]]
        assert proxy.scans == 1
