"""The pytest plugin, loaded by pytest through its entry point.

It imports the client where a fixture is used: a test run that has nothing to do with Tidelog shall not pay for it.
"""

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tidelog import AsyncClient, Client
    from tidelog.testing import TestServer


@pytest.fixture
def tidelog_server() -> "Iterator[TestServer]":
    """Return a server for one test, its log in memory."""
    from tidelog.testing import start_server

    with start_server() as running:
        yield running


@pytest.fixture
def tidelog_client(tidelog_server: "TestServer") -> "Iterator[Client]":
    """Return a synchronous client of ``tidelog_server``."""
    from tidelog import Client

    with Client(tidelog_server.endpoint) as client:
        yield client


@pytest.fixture
async def tidelog_async_client(tidelog_server: "TestServer") -> "AsyncIterator[AsyncClient]":
    """Return an asynchronous client of ``tidelog_server``. Needs pytest-asyncio in its automatic mode."""
    from tidelog import AsyncClient

    async with AsyncClient(tidelog_server.endpoint) as client:
        yield client
