"""The logs of mailboxes stay short: when snapshots are due, what is trimmed, and what is copied first.

Method: mailboxes on a node with a store in memory, with small limits. The log's size on disk is the subject of
tests/integration/mailboxes/test_disk_use.py.

Promises of docs/reference/guarantees.md: G51.
"""

import asyncio
from typing import Any

import pytest

from tidelog_server.core.errors import DataLossError, DiskFullError
from tidelog_server.core.errors.mailboxes import MailboxNotExistError
from tidelog_server.core.mailboxes import MessageState
from tidelog_server.fold import keeping
from tidelog_server.fold.calls import Call
from tidelog_server.mailboxes import housekeeping
from tidelog_server.mailboxes.events import Sent
from tidelog_server.mailboxes.mailbox import Mailbox
from tidelog_server.mailboxes.operations import Outgoing, Rejection, purge
from tidelog_server.metadata.memory import MemoryMetadataStore, SharedMemory
from tidelog_testing.parts.mailbox_nodes import (
    MailboxNode,
    acking,
    content,
    fetching,
    loaded,
    locks_of,
    running_mailboxes,
    sending,
    sending_with,
    until,
)
from tidelog_testing.parts.stores import CrashingStore

BODY = b"b" * 200


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, SNAPSHOT_AFTER_CHANGES=300, TRIM_ABOVE_BYTES=2_000, CLEAN_ABOVE_BYTES=4_000)


def set_limits(monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(keeping if hasattr(keeping, name) else housekeeping, name, value)


def kept_bytes(store: CrashingStore, log: Mailbox) -> int:
    tail = store.tail(log.place.vchannel.vchannel_id)
    return tail.columns_bytes - tail.trimmed_bytes


async def drain(log: Mailbox, messages: int) -> None:
    """Fetch and confirm messages."""
    while messages > 0:
        locks = locks_of(await log.run(fetching(min(100, messages))))
        await log.run(acking(locks))
        messages -= len(locks)


async def test_a_snapshot_is_written_and_the_log_trimmed_once_it_has_many_changes(
    store: CrashingStore, log: Mailbox
) -> None:
    for _ in range(10):
        await log.run(sending(*[BODY] * 100))
        await drain(log, 100)
    await until(lambda: log.snapshot_tick > 0 and kept_bytes(store, log) < log.snapshot_bytes + 300 * len(BODY))
    assert loaded(store, log).snapshot_tick == log.snapshot_tick
    assert log.state.rows.live == 0


async def test_many_messages_put_off_the_next_snapshot(
    store: CrashingStore, log: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log.run(sending(*[BODY] * 500))
    await asyncio.sleep(0)
    # 500 messages allow 1,000 changes.
    assert log.changes == 500
    assert log.snapshot_tick == 0


async def test_a_snapshot_is_due_after_many_bytes_and_its_own_bytes_do_not_count(
    store: CrashingStore, log: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A snapshot with more bytes than the limit must not make the next one due.
    set_limits(monkeypatch, SNAPSHOT_AFTER_BYTES=5_000, SNAPSHOT_AFTER_CHANGES=1 << 40)
    await log.run(sending(*[b"x"] * 1_000))
    await until(lambda: log.snapshot_tick > 0)
    first = log.snapshot_tick
    assert log.snapshot_bytes > 50_000
    for _ in range(100):
        await asyncio.sleep(0)
    assert log.snapshot_tick == first
    assert log.written_bytes == 0
    # The next one is due after as many bytes as this one has.
    await log.run(sending(b"x" * 40_000))
    assert log.snapshot_tick == first
    await log.run(sending(b"x" * 40_000))
    await until(lambda: log.snapshot_tick > first)


async def test_restarts_do_not_put_off_a_snapshot(
    store: CrashingStore, shared: SharedMemory, node: MailboxNode
) -> None:
    log = await node.create("b")
    for _ in range(2):
        await log.run(sending(*[BODY] * 50))
        await drain(log, 50)
    assert log.changes == 300
    async with running_mailboxes(store.crashed(), metadata=MemoryMetadataStore(shared)) as later:
        log = await later.mailboxes.open("b")
        assert log.changes == 300
        await log.run(sending(b"one more"))
        await until(lambda: log.snapshot_tick > 0)


async def test_old_messages_are_copied_and_delivered_intact(
    store: CrashingStore, node: MailboxNode, log: Mailbox
) -> None:
    old = [Outgoing(b"old %d" % number, {"h": "v"}, group="g", priority=number % 3) for number in range(20)]
    ids = (await log.run(sending_with(*old))).ids
    locks = locks_of(await log.run(fetching(20)))
    for _ in range(8):
        await log.run(sending(*[BODY] * 100))
        await drain(log, 100)
    await node.mailboxes.housekeeper.keep(log)
    assert kept_bytes(store, log) < 2 * log.snapshot_bytes + 6_000
    assert log.place.vchannel.trim_tick > ids[-1]
    # Of the cache, nothing is left.
    node.mailboxes.shared.budget.shrink(0)
    await log.run(acking([], *map(Rejection, locks)))
    delivered: dict[int, Sent] = {}
    while fetched := (await log.run(fetching())).grants:
        messages = await node.mailboxes.reader.messages(log, [grant.message_id for grant in fetched])
        delivered |= messages
        await log.run(acking([grant.lock_id for grant in fetched]))
    assert [delivered[each].body for each in ids] == [each.body for each in old]
    assert {(each.group, *each.headers.items()) for each in delivered.values()} == {("g", ("h", "v"))}


async def test_messages_with_large_headers_are_not_copied_again_and_again(
    store: CrashingStore, node: MailboxNode, log: Mailbox
) -> None:
    await log.run(sending_with(*(Outgoing(b"", {"h": "v" * 500}, delay_ms=60_000) for _ in range(100))))
    for _ in range(3):
        await node.mailboxes.housekeeper.keep(log)
    places = list(log.state.rows.places)
    assert places != list(log.state.rows.ids)
    await node.mailboxes.housekeeper.keep(log)
    assert list(log.state.rows.places) == places


async def test_copies_wait_while_the_disk_is_nearly_full(store: CrashingStore, node: MailboxNode, log: Mailbox) -> None:
    await log.run(sending(b"old"))
    locks = locks_of(await log.run(fetching()))
    await log.run(sending(*[BODY] * 100))
    await drain(log, 100)
    node.node.log.note_free_disk(0)
    with pytest.raises(DiskFullError):
        await node.mailboxes.housekeeper.keep(log)
    assert list(log.state.rows.places) == list(log.state.rows.ids)
    node.node.log.note_free_disk(1 << 50)
    await node.mailboxes.housekeeper.keep(log)
    assert kept_bytes(store, log) < log.snapshot_bytes + 1_000
    assert (await log.run(acking(locks))).failures == []


async def test_a_purge_during_housekeeping_is_respected(
    store: CrashingStore, node: MailboxNode, log: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, _COPY_MESSAGES=10)
    for turns in range(0, 200, 20):
        await log.run(sending_with(*(Outgoing(b"x", {"h": "v" * 100}, delay_ms=60_000) for _ in range(100))))
        log.copied_ratio = 1.0
        keeping = asyncio.create_task(node.mailboxes.housekeeper.keep(log))
        for _ in range(turns):
            await asyncio.sleep(0)
        await log.run(Call(purge, 1))
        await keeping
        found = loaded(store.crashed(), log)
        assert content(found.state, log.state.now) == content(log.state, log.state.now)
        assert log.state.rows.live == 0


async def test_a_trim_keeps_the_bodies_to_which_the_snapshot_refers(
    node: MailboxNode, log: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So a restore to any tick after the snapshot finds them.
    monkeypatch.setattr("tidelog_server.fold.pages.PAGE_BYTES", 500)
    ids = (await log.run(sending(*[BODY] * 100))).ids
    writing = asyncio.create_task(node.mailboxes.housekeeper.write_snapshot(log))
    await asyncio.sleep(0)
    await log.run(Call(purge, 1))
    assert not writing.done()
    await writing
    assert log.place.vchannel.trim_tick <= ids[0]
    await node.mailboxes.housekeeper.write_snapshot(log)
    assert log.place.vchannel.trim_tick > ids[-1]


@pytest.mark.parametrize("turns", range(0, 60, 4))
async def test_a_mailbox_may_be_deleted_during_its_housekeeping(
    store: CrashingStore, node: MailboxNode, log: Mailbox, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    set_limits(monkeypatch, _COPY_MESSAGES=10)
    monkeypatch.setattr("tidelog_server.fold.pages.PAGE_BYTES", 500)
    await log.run(sending_with(*(Outgoing(b"x", {"h": "v" * 100}, delay_ms=60_000) for _ in range(100))))
    node.mailboxes.housekeeper.wanted.add(log)
    for _ in range(turns):
        await asyncio.sleep(0)
    await node.node.mailboxes.delete("a")
    # Housekeeping continues for others.
    other = await node.create("b")
    await other.run(sending(*[BODY] * 100))
    await drain(other, 100)
    node.mailboxes.housekeeper.wanted.add(other)
    await until(lambda: other.snapshot_tick > 0)
    assert node.node.task_failures == []


async def test_a_failed_snapshot_is_still_due(node: MailboxNode, log: Mailbox) -> None:
    await log.run(sending(*[BODY] * 100))
    changes, written_bytes = log.changes, log.written_bytes
    await node.node.mailboxes.delete("a")
    with pytest.raises(MailboxNotExistError):
        await node.mailboxes.housekeeper.keep(log)
    assert (log.changes, log.written_bytes) == (changes, written_bytes)


async def test_a_damaged_body_stops_the_housekeeping_of_its_mailbox_only(
    store: CrashingStore, node: MailboxNode, log: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log.run(sending_with(*(Outgoing(b"x", {"h": "v" * 100}, delay_ms=60_000) for _ in range(100))))
    node.mailboxes.shared.budget.shrink(0)
    damaged = log.place.vchannel.vchannel_id
    read = store.read

    def failing(vchannel_id: int, *range_: int) -> Any:
        if vchannel_id == damaged:
            raise DataLossError("damaged")
        return read(vchannel_id, *range_)

    monkeypatch.setattr(store, "read", failing)
    with pytest.raises(DataLossError):
        await node.mailboxes.housekeeper.keep(log)
    node.mailboxes.housekeeper.wanted.add(log)
    other = await node.create("b")
    await other.run(sending(*[BODY] * 100))
    await drain(other, 100)
    node.mailboxes.housekeeper.wanted.add(other)
    await until(lambda: other.snapshot_tick > 0)
    assert log.state.rows.states.count(MessageState.DELAYED) == 100
