"""Calls of a client that finds owners, as far as they need no server."""

import asyncio
import socket
from typing import Any

import pytest

from tidelog import AsyncClient, ClosedError
from tidelog.finding.owner_client import OwnerFindingClient


@pytest.mark.parametrize(("call", "options"), [("append", {"messages": b"a"}), ("trim", {}), ("ack", {})])
async def test_a_call_without_the_name_of_what_it_is_for_is_refused_at_once(call: str, options: dict[str, Any]) -> None:
    async with AsyncClient("tidelog://127.0.0.1:1") as client:
        with pytest.raises(TypeError, match="missing a required argument"):
            await getattr(client, call)(**options)


async def test_a_close_ends_a_call_that_still_looks_for_its_server() -> None:
    # It listens, and never answers.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = AsyncClient(f"tidelog://127.0.0.1:{silent.getsockname()[1]}")
        assert isinstance(client, OwnerFindingClient)
        call = asyncio.create_task(client.wal_name())
        while client._looking is None:
            await asyncio.sleep(0)

        await client.aclose()

        with pytest.raises(ClosedError, match="closed"):
            await call
