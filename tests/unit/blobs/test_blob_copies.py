"""Goal: blobs stay readable while housekeeping copies their chunks to the end of their log and trims its beginning.

Method: a node on a store whose syncs wait for the test, so that copies are submitted and not durable for as long as the
test needs; a store as a crash would leave it then.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tidelog_server.blobs.log import BlobLog
from tidelog_server.blobs.store import Blobs
from tidelog_server.core.callers import tenant_of
from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.limits import BLOB_CHUNK_BYTES
from tidelog_server.fold import keeping
from tidelog_server.fold.calls import Call
from tidelog_server.metadata.memory import MemoryMetadataStore, SharedMemory
from tidelog_testing.parts.mailbox_nodes import MailboxNode, running_mailboxes, until
from tidelog_testing.parts.stores import CrashingStore

DATA = b"first" * BLOB_CHUNK_BYTES


@pytest.fixture(autouse=True)
def _trims_short_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "TRIM_ABOVE_BYTES", 0)


@pytest.fixture
def store() -> CrashingStore:
    return CrashingStore()


@pytest.fixture
def shared() -> SharedMemory:
    return SharedMemory()


@pytest.fixture
async def node(store: CrashingStore, shared: SharedMemory) -> AsyncIterator[MailboxNode]:
    async with running_mailboxes(store, metadata=MemoryMetadataStore(shared)) as node:
        try:
            yield node
        finally:
            # A failed test has not allowed it.
            store.may_sync.set()


@pytest.fixture
def blobs(node: MailboxNode) -> Blobs:
    return node.mailboxes.blobs


async def log_with(blobs: Blobs, *several: bytes) -> tuple[BlobLog, list[bytes]]:
    """Store blobs; return their log and keys."""
    keys = [(await blobs.put(data))[0] for data in several]
    assert blobs.log is not None
    return blobs.log, keys


async def copying(store: CrashingStore, blobs: Blobs, log: BlobLog) -> "asyncio.Task[None]":
    """Begin to copy all chunks; return when copies are submitted, which stay in flight until syncs are allowed."""
    store.may_sync.clear()
    submitted = log.place.vchannel.submitted_tick
    task = asyncio.create_task(blobs.keeper.copy_old(log))
    await until(lambda: log.place.vchannel.submitted_tick > submitted)
    return task


async def test_a_blob_is_found_and_read_while_its_copies_are_in_flight(store: CrashingStore, blobs: Blobs) -> None:
    log, (key,) = await log_with(blobs, DATA)
    task = await copying(store, blobs, log)

    assert (await blobs.describe(key)).size_bytes == len(DATA)
    assert await blobs.bytes_of(key) == DATA
    assert not task.done()
    counting = asyncio.create_task(blobs.update_references(key, 1))
    store.may_sync.set()
    await task
    assert await counting == 1
    assert await blobs.bytes_of(key) == DATA


async def test_a_snapshot_and_a_trim_keep_the_old_chunks_until_the_copies_are_durable(
    store: CrashingStore, node: MailboxNode, blobs: Blobs
) -> None:
    log, (key,) = await log_with(blobs, DATA)
    assert log.state.find(key) is not None
    first = log.state.blobs[key].places[0]
    task = await copying(store, blobs, log)
    writing = asyncio.create_task(blobs.keeper.write_snapshot(log))
    store.may_sync.set()
    await asyncio.gather(task, writing)
    # The snapshot has the old places: it was written before the copies were durable.
    assert log.place.vchannel.trim_tick <= first

    await blobs.keeper.write_snapshot(log)
    assert log.place.vchannel.trim_tick > first
    assert await blobs.bytes_of(key) == DATA


async def test_a_read_under_way_finds_the_chunks_that_were_copied_and_trimmed(node: MailboxNode, blobs: Blobs) -> None:
    log, (key,) = await log_with(blobs, DATA)
    reading = blobs.read(key)
    parts = [(await anext(reading))[0]]

    await blobs.keeper.copy_old(log)
    await blobs.keeper.write_snapshot(log)
    parts += [data async for data, _ in reading]

    assert b"".join(parts) == DATA


async def test_a_blob_that_is_deleted_and_stored_again_while_it_is_copied_is_read_where_it_was_stored(
    store: CrashingStore, blobs: Blobs
) -> None:
    log, (key,) = await log_with(blobs, b"small")
    task = await copying(store, blobs, log)
    collecting = asyncio.create_task(log.run(Call(lambda step: step.collect([key]), 1)))
    await until(lambda: log.state.find(key) is None)
    putting = asyncio.create_task(blobs.put(b"small"))
    await until(lambda: log.state.find(key) is not None)
    [stored] = log.state.blobs[key].places
    # A read of what is not durable yet waits.
    reading = asyncio.create_task(blobs.bytes_of(key))
    store.may_sync.set()
    await asyncio.gather(task, collecting, putting)

    assert await reading == b"small"
    assert log.state.blobs[key].places == [stored]


async def test_a_crash_while_copies_are_in_flight_loses_nothing(
    store: CrashingStore, shared: SharedMemory, blobs: Blobs
) -> None:
    log, keys = await log_with(blobs, DATA, b"small")
    task = await copying(store, blobs, log)
    crashed = store.crashed()
    store.may_sync.set()
    await task

    async with running_mailboxes(crashed, metadata=MemoryMetadataStore(shared)) as node:
        assert [await node.mailboxes.blobs.bytes_of(key) for key in keys] == [DATA, b"small"]


async def test_many_small_blobs_are_not_copied_again_and_again(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    # Their events and the snapshot have more bytes than they.
    log, _ = await log_with(blobs, *(b"%d" % number for number in range(500)))
    monkeypatch.setattr(keeping, "CLEAN_ABOVE_BYTES", 10_000)
    for _ in range(3):
        await blobs.keep()
    submitted = log.place.vchannel.submitted_tick
    for _ in range(3):
        await blobs.keep()
    assert log.place.vchannel.submitted_tick == submitted


async def test_restarts_do_not_put_off_a_snapshot(
    store: CrashingStore, shared: SharedMemory, blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "SNAPSHOT_AFTER_CHANGES", 50)
    names = [b"%d" % number for number in range(40)]
    log, _ = await log_with(blobs, *names, *names[:30])
    assert log.changes == 70
    async with running_mailboxes(store.crashed(), metadata=MemoryMetadataStore(shared)) as node:
        later, _ = await log_with(node.mailboxes.blobs, *names[:20])
        # More than twice the number of blobs.
        assert later.changes == 90
        await node.mailboxes.blobs.keep()
        assert later.snapshot_tick


async def test_bytes_of_chunks_make_no_snapshot_due(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "SNAPSHOT_AFTER_BYTES", 100_000)
    log, _ = await log_with(blobs, DATA)
    assert log.written_bytes > 100_000
    await blobs.keep()
    assert not log.snapshot_tick


async def test_the_log_is_not_trimmed_before_a_snapshot_has_the_copies(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = await log_with(blobs, DATA, DATA + b"1")
    await blobs.keeper.write_snapshot(log)
    trimmed = log.place.vchannel.trim_tick
    monkeypatch.setattr(keeping, "CLEAN_ABOVE_BYTES", 1)
    await blobs.keeper.copy_old(log)
    # A restore to a tick after that snapshot finds the chunks where it has them.
    assert log.place.vchannel.trim_tick == trimmed
    await blobs.keeper.write_snapshot(log)
    assert log.place.vchannel.trim_tick > trimmed


async def test_what_a_storer_may_use_is_decided_in_the_step(node: MailboxNode, blobs: Blobs) -> None:
    await log_with(blobs, b"0")
    admission = node.node.log.admission
    admission.free_disk_bytes = admission.limits.min_free_disk_bytes + 4
    tenant = tenant_of("jwt:a")
    puts = [asyncio.create_task(blobs.put(b"%d" % number * 3, tenant=tenant)) for number in range(1, 3)]
    await until(lambda: all(put.done() for put in puts))
    assert [type(put.exception()) for put in puts] == [type(None), RateLimitRejectedError]
