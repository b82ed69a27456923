"""The pytest plugin, which pytest loads through its entry point."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tidelog import AsyncClient, Client
from tidelog.testing._server import TestServer, start_server


@pytest.fixture
def tidelog_server() -> Iterator[TestServer]:
    """Return a server for one test; its log is in memory."""
    with start_server() as running:
        yield running


@pytest.fixture
def tidelog_client(tidelog_server: TestServer) -> Iterator[Client]:
    """Return a synchronous client of ``tidelog_server``."""
    with Client(tidelog_server.endpoint) as client:
        yield client


@pytest.fixture
async def tidelog_async_client(tidelog_server: TestServer) -> AsyncIterator[AsyncClient]:
    """Return an asynchronous client of ``tidelog_server``. Requires pytest-asyncio in auto mode."""
    async with AsyncClient(tidelog_server.endpoint) as client:
        yield client
