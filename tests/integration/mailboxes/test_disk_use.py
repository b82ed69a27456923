"""The log of a mailbox on disk follows its messages, not its history.

Method: 200,000 messages are sent, fetched and confirmed on a log on disk, while some old ones stay; its size is checked
throughout, and the old messages are read at the end, before and after a restart.

Promises of docs/reference/guarantees.md: G51.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tidelog_server.fold.keeping import LOG_SLACK_BYTES
from tidelog_server.mailboxes.mailbox import Mailbox
from tidelog_server.mailboxes.operations import Outgoing
from tidelog_server.metadata.memory import MemoryMetadataStore, SharedMemory
from tidelog_server.storage.recovery.open import open_rocksdb_log_store
from tidelog_testing.parts.mailbox_nodes import (
    MailboxNode,
    acking,
    content,
    copied,
    fetching,
    locks_of,
    running_mailboxes,
    sending,
    sending_with,
    until,
)

pytestmark = pytest.mark.not_on_engine(reason="opens a store on RocksDB itself")
MESSAGES = 200_000
BODY_BYTES = 1_000
# Of these, one in each thousand stays.
KEPT = 100
BATCH = 1_000
HOUR_MS = 3_600_000


@asynccontextmanager
async def mailboxes_on(folder: Path, shared: SharedMemory) -> AsyncIterator[MailboxNode]:
    store = open_rocksdb_log_store(folder)
    async with running_mailboxes(store, metadata=MemoryMetadataStore(shared)) as node:
        yield node


def kept_bytes(node: MailboxNode, log: Mailbox) -> int:
    tail = node.node.log.store.tail(log.place.vchannel.vchannel_id)
    return tail.columns_bytes - tail.trimmed_bytes


def allowed_bytes(log: Mailbox) -> int:
    # A batch and a page may be on their way.
    return 2 * (log.state.body_bytes + log.snapshot_bytes) + LOG_SLACK_BYTES + 4 * BATCH * BODY_BYTES


def old_messages() -> Iterator[Outgoing]:
    for number in range(KEPT):
        yield Outgoing(b"old %d" % number * 200, {"number": f"{number}"}, delay_ms=HOUR_MS)


async def cycle(log: Mailbox, body: bytes) -> None:
    """Send, fetch and confirm a batch."""
    await log.run(sending(*[body] * BATCH))
    await log.run(acking(locks_of(await log.run(fetching(BATCH)))))


async def test_the_log_stays_below_twice_the_messages_and_a_constant(tmp_path: Path) -> None:
    shared = SharedMemory()
    body = bytes(range(250)) * (BODY_BYTES // 250)
    async with mailboxes_on(tmp_path / "log", shared) as node:
        log = await node.create("a")
        old = iter(old_messages())
        kept: dict[int, Outgoing] = {}
        largest = 0
        for number in range(MESSAGES // BATCH):
            if number % 2 == 0:
                message = next(old)
                kept[(await log.run(sending_with(message))).ids[0]] = message
            await cycle(log, body)
            largest = max(largest, kept_bytes(node, log))
            assert kept_bytes(node, log) <= allowed_bytes(log)
        # More than the log ever had: it was trimmed and copied.
        assert largest < MESSAGES * BODY_BYTES / 2
        assert log.place.vchannel.trim_tick > min(kept)
        node.mailboxes.shared.budget.shrink(0)
        assert await read(node, log, kept) == bodies_of(kept)
        await asyncio.wait_for(node.mailboxes.housekeeper.keep(log), 60)
        await until(lambda: not node.mailboxes.housekeeper.wanted)
        before, now = content(copied(log.state), log.state.now), log.state.now
    async with mailboxes_on(tmp_path / "log", shared) as node:
        log = await node.mailboxes.open("a")
        assert content(copied(log.state), now) == before
        assert await read(node, log, kept) == bodies_of(kept)


def bodies_of(kept: dict[int, Outgoing]) -> dict[int, tuple[bytes, dict[str, str]]]:
    return {message_id: (message.body, dict(message.headers)) for message_id, message in kept.items()}


async def read(node: MailboxNode, log: Mailbox, kept: dict[int, Outgoing]) -> dict[int, tuple[bytes, dict[str, str]]]:
    found = await node.mailboxes.reader.messages(log, list(kept))
    return {message_id: (message.body, dict(message.headers)) for message_id, message in found.items()}
