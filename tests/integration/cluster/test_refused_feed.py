"""A client of a cluster works while no node has memory for its feed of owners. Method: a real server."""

import asyncio
from pathlib import Path

import pytest

from tidelog import AsyncClient, AsyncCluster, OverloadedError
from tidelog_server.log import watch_memory
from tidelog_testing.parts.grpc_calls import running_server


async def test_owners_are_asked_for_while_the_feed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_memory, "_MAX_NAMES", 0)
    async with (
        running_server(tmp_path) as server,
        AsyncClient(server.grpc_endpoint) as client,
        AsyncCluster([server.grpc_endpoint]) as cluster,
    ):
        await client.create_channel("orders")
        with pytest.raises(OverloadedError, match="at most 0 are allowed"):
            async for _ in client.owners_feed():
                raise AssertionError
        for _ in range(3):
            await (await cluster.vchannel("orders")).append(b"m")
        assert server._log.watch_memory.used_bytes == 0

        monkeypatch.setattr(watch_memory, "_MAX_NAMES", 1_000)
        # The client repeats its feed.
        while not server._log.watch_memory.used_bytes:
            await asyncio.sleep(0.01)
        await (await cluster.vchannel("orders")).append(b"m")
    assert server._log.watch_memory.used_bytes == 0
