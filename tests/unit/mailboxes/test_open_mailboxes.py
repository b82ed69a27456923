"""Mailboxes are opened once, with their present settings, and whatever happens meanwhile no caller waits indefinitely.

Method: a node with a store in memory whose reads a test delays or makes fail.
"""

import asyncio
import threading
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tidelog_server.core.callers import NO_TENANT
from tidelog_server.core.errors import DataLossError, ShutdownError
from tidelog_server.core.errors.mailboxes import MailboxNotExistError
from tidelog_server.core.errors.storage import StorageUnreadableError
from tidelog_server.mailboxes.operations import Outgoing, Rejection
from tidelog_server.metadata.memory import MemoryMetadataStore, SharedMemory
from tidelog_testing.parts.mailbox_nodes import (
    MailboxNode,
    acking,
    content,
    fetching,
    locks_of,
    running_mailboxes,
    sending,
    sending_with,
    until,
)
from tidelog_testing.parts.stores import CrashingStore


class GatedStore(CrashingStore):
    """A store whose reads wait.

    Attributes:
        may_read: Reads wait until it is set.
        is_read: Set by the first read.
        failure: Raised by reads.
    """

    def __init__(self) -> None:
        super().__init__()
        self.may_read = threading.Event()
        self.may_read.set()
        self.is_read = threading.Event()
        self.failure: Exception | None = None

    def read(self, *arguments: int) -> Any:
        """Wait, then read, or fail."""
        self.is_read.set()
        assert self.may_read.wait(10)
        if self.failure is not None:
            raise self.failure
        return super().read(*arguments)


@pytest.fixture
def store() -> GatedStore:
    return GatedStore()


@pytest.fixture
async def written(store: GatedStore, shared: SharedMemory) -> None:
    """Leave a mailbox with a message, which no process has open."""
    async with running_mailboxes(store, metadata=MemoryMetadataStore(shared)) as node:
        log = await node.create("a")
        await log.run(sending(b"x"))


@pytest.fixture
async def node(store: GatedStore, shared: SharedMemory, written: None) -> AsyncIterator[MailboxNode]:
    async with running_mailboxes(store, metadata=MemoryMetadataStore(shared)) as node:
        yield node
        store.may_read.set()
        assert node.reports == []


async def opening(store: GatedStore, node: MailboxNode) -> "asyncio.Task[Any]":
    """Begin to open the mailbox, and return once its log is read."""
    await until(lambda: node.mailboxes.opened_by_name("a") is not None)
    node.mailboxes._logs.clear()
    store.may_read.clear()
    store.is_read.clear()
    task = asyncio.create_task(node.mailboxes.open("a"))
    await until(store.is_read.is_set)
    return task


async def test_all_callers_get_the_same_mailbox(store: GatedStore, node: MailboxNode) -> None:
    first = await opening(store, node)
    second = asyncio.create_task(node.mailboxes.open("a"))
    first.cancel()
    await asyncio.sleep(0)
    assert node.mailboxes.opened_by_name("a") is None
    store.may_read.set()
    log = await second
    assert node.mailboxes.opened_by_name("a") is log is await node.mailboxes.open("a")


async def test_settings_that_change_during_the_load_apply(store: GatedStore, node: MailboxNode) -> None:
    task = await opening(store, node)
    await node.node.mailboxes.configure("a", {"lease_ms": 77})
    store.may_read.set()
    assert (await task).settings.lease_ms == 77


async def test_a_mailbox_that_is_deleted_during_its_load_does_not_exist(store: GatedStore, node: MailboxNode) -> None:
    task = await opening(store, node)
    await node.node.mailboxes.delete("a")
    store.may_read.set()
    with pytest.raises(MailboxNotExistError):
        await task
    assert node.mailboxes._logs == {}
    # A new one of the same name is another one.
    log = await node.create("a")
    assert log.state.rows.live == 0
    assert node.node.task_failures == []


async def test_a_load_that_fails_is_tried_again_by_the_next_caller(store: GatedStore, node: MailboxNode) -> None:
    task = await opening(store, node)
    store.failure = StorageUnreadableError("reading", 24)
    store.may_read.set()
    with pytest.raises(StorageUnreadableError):
        await task
    store.failure = None
    assert (await node.mailboxes.open("a")).state.rows.live == 1


async def test_a_bug_in_a_load_is_reported_and_answers_its_callers(store: GatedStore, node: MailboxNode) -> None:
    task = await opening(store, node)
    store.failure = KeyError("bug")
    store.may_read.set()
    with pytest.raises(KeyError):
        await task
    await until(lambda: len(node.node.task_failures) == 1)


async def test_the_end_of_the_node_answers_those_who_wait_for_a_load(
    store: GatedStore, shared: SharedMemory, written: None
) -> None:
    async with running_mailboxes(store, metadata=MemoryMetadataStore(shared)) as node:
        task = await opening(store, node)
        closing = asyncio.create_task(node.node.tasks.close())
        with pytest.raises(ShutdownError):
            await task
        store.may_read.set()
        await closing


async def test_all_mailboxes_of_the_node_are_opened_after_a_start_and_their_leases_end(
    store: GatedStore, shared: SharedMemory
) -> None:
    async with running_mailboxes(store, metadata=MemoryMetadataStore(shared)) as node:
        log = await node.create("a", max_deliveries=1)
        await log.run(sending(b"x"))
        await log.run(fetching(lease_ms=100))
    async with running_mailboxes(store, metadata=MemoryMetadataStore(shared)) as node:
        await until(lambda: node.mailboxes.opened_by_name("a") is not None)
        log = await node.mailboxes.open("a")
        # No caller asks for it.
        await until(lambda: log.state.counts().dead == 1)


async def test_a_damaged_mailbox_does_not_keep_others_from_being_opened(
    store: GatedStore, shared: SharedMemory, written: None
) -> None:
    async with running_mailboxes(store, metadata=MemoryMetadataStore(shared)) as node:
        other = await node.create("b")
        await other.run(sending(b"y"))
        damaged = (await node.mailboxes.open("a")).place.vchannel.vchannel_id
    read = store.read

    def failing(vchannel_id: int, *range_: int) -> Any:
        if vchannel_id == damaged:
            raise DataLossError("damaged", vchannel_id=vchannel_id)
        return read(vchannel_id, *range_)

    store.read = failing  # type: ignore[method-assign,assignment]  # a planted fault
    async with running_mailboxes(store, metadata=MemoryMetadataStore(shared)) as node:
        await until(lambda: node.mailboxes.opened_by_name("b") is not None)
        with pytest.raises(DataLossError):
            await node.mailboxes.open("a")
        assert node.node.task_failures == []


async def test_a_restart_restores_leases_counts_and_due_times(store: GatedStore, shared: SharedMemory) -> None:
    async with running_mailboxes(store, metadata=MemoryMetadataStore(shared)) as node:
        log = await node.create("a", backoff_ms=(60_000,))
        await log.run(sending_with(Outgoing(b"later", delay_ms=60_000), Outgoing(b"x"), Outgoing(b"y"), Outgoing(b"z")))
        locks = locks_of(await log.run(fetching(2)))
        await log.run(acking([], Rejection(locks[0])))
        before, now = content(log.state, log.state.now), log.state.now
    async with running_mailboxes(store.crashed(), metadata=MemoryMetadataStore(shared)) as node:
        log = await node.mailboxes.open("a")
        assert content(log.state, now) == before
        assert (await log.run(acking([locks[1]]))).failures == []
        ((_, error),) = (await log.run(acking([locks[0]]))).failures
        assert error.reason == "ALREADY_ACKNOWLEDGED"


async def test_idle_mailboxes_take_little_memory(store: GatedStore, shared: SharedMemory) -> None:
    async with running_mailboxes(store, metadata=MemoryMetadataStore(shared)) as node:
        for number in range(20):
            await (await node.create(f"warm {number}")).run(sending(b"x"))
        for number in range(200):
            await node.node.mailboxes.create(f"m{number}", {}, NO_TENANT)
        tracemalloc.start()
        try:
            for number in range(200):
                await node.mailboxes.open(f"m{number}")
            used_bytes = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert used_bytes / 200 < 12_000
