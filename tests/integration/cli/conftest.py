"""Fixtures: a server in memory that the commands of a module share, and a name of its own for each test."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog_server.commands.bench.server_process import ServerProcess


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ServerProcess(Path("unused"), {"storage.kind": "memory"})
    yield server.grpc
    server.stop()


@pytest.fixture
def path() -> str:
    """Return a path of its own for the mailboxes or journals of a test."""
    return f"cli/{uuid.uuid4().hex[:8]}"
