"""Fixtures: a node with mailboxes on a store in memory that can crash, and its mailbox ``a``."""

from collections.abc import AsyncIterator

import pytest

from tidelog_server.mailboxes.mailbox import Mailbox
from tidelog_server.metadata.memory import MemoryMetadataStore, SharedMemory
from tidelog_testing.parts.mailbox_nodes import MailboxNode, running_mailboxes
from tidelog_testing.parts.stores import CrashingStore


@pytest.fixture
def store() -> CrashingStore:
    return CrashingStore()


@pytest.fixture
def shared() -> SharedMemory:
    """Return what the metadata stores of several nodes share."""
    return SharedMemory()


@pytest.fixture
async def node(store: CrashingStore, shared: SharedMemory) -> AsyncIterator[MailboxNode]:
    async with running_mailboxes(store, metadata=MemoryMetadataStore(shared)) as node:
        yield node
        assert node.reports == []


@pytest.fixture
async def log(node: MailboxNode) -> Mailbox:
    return await node.create("a")
