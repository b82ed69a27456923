"""A stop waits for clients that are connected and only for those. Method: a server whose wait would never end."""

import asyncio
from contextlib import suppress

import pytest

import tidelog
from tidelog_server.rpc import server as rpc
from tidelog_testing.parts.grpc_calls import running_server

NEVER = 1 << 40
WITHIN_S = 30


async def test_a_stop_does_not_wait_for_clients_that_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "_QUIET_STEPS", NEVER)
    async with running_server(server__shutdown_grace_s=3_600) as server:
        async with tidelog.AsyncClient(server.grpc_endpoint) as client:
            await client.create_channel("a")
        async with asyncio.timeout(WITHIN_S):
            await server.stop()


async def test_a_client_that_is_connected_is_refused_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "_QUIET_STEPS", NEVER)
    async with running_server(server__shutdown_grace_s=3_600) as server:
        async with (
            tidelog.AsyncClient(server.grpc_endpoint) as patient,
            tidelog.AsyncClient(server.grpc_endpoint, timeout_s=0.3) as client,
        ):
            await patient.create_channel("a")
            # It is connected once an append succeeds.
            while True:
                with suppress(tidelog.AppendUnknownError, tidelog.DeadlineError, tidelog.UnavailableError):
                    await client.append("a", b"x")
                    break
            stopping = asyncio.ensure_future(server.stop())
            with pytest.raises(tidelog.ShutdownError):
                while True:
                    # On a busy machine, an answer may come after the timeout.
                    with suppress(tidelog.AppendUnknownError):
                        await client.append("a", b"x")
            assert not stopping.done()
            monkeypatch.setattr(rpc, "_QUIET_STEPS", 1)
            await stopping
