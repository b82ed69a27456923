"""Stored messages are found in memory or in the store, in bounded memory, also while they are moved or deleted.

Method: mailboxes on a node with a store in memory whose reads a test observes; the cache alone.
"""

import asyncio
import random
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.errors.mailboxes import MailboxNotExistError
from tidelog_server.fold import keeping
from tidelog_server.log.scan.read_budget import ReadBudget
from tidelog_server.mailboxes import reader
from tidelog_server.mailboxes.bodies import BodyBudget, RecentBodies
from tidelog_server.mailboxes.mailbox import Mailbox
from tidelog_server.mailboxes.operations import Outgoing
from tidelog_server.rpc.services.mailboxes.calls import MessageCalls
from tidelog_server.rpc.services.mailboxes.fetch_answers import FetchAnswers, Slot
from tidelog_testing.parts.mailbox_nodes import MailboxNode, fetching, sending, sending_with, until
from tidelog_testing.parts.stores import CrashingStore


def test_the_cache_finds_what_was_added_and_not_evicted() -> None:
    chance = random.Random(1)
    budget = BodyBudget(60_000)
    recent = [RecentBodies(budget) for _ in range(2)]
    expected: list[tuple[int, int, int]] = []
    for number in range(20_000):
        which = chance.randrange(2)
        # Mostly ascending; sometimes an old step is read again.
        base = 10 * number if chance.random() < 0.9 else 10 * chance.randrange(number + 1)
        if recent[which].get(base) is None:
            payloads = [b"%d" % (base + index) for index in range(chance.randint(1, 5))]
            recent[which].add(base, payloads)
            expected.append((which, base, len(payloads)))
        assert budget.size_bytes <= 60_000
        which, base, count = expected[max(0, len(expected) - 1 - chance.randrange(120))]
        assert recent[which].get(base + count - 1) == b"%d" % (base + count - 1)
        assert recent[which].get(base + 9) is None
    held = sum(len(each._steps) for each in recent)
    assert 120 < held < 300
    for each in recent:
        assert sorted(each._steps) == each._bases[each._begin :]
        assert len(each._bases) <= 2 * held + 1_024


def test_the_cache_counts_what_small_payloads_really_take() -> None:
    budget = BodyBudget(1 << 20)
    recent = RecentBodies(budget)
    for base in range(0, 10_000_000, 1_000):
        recent.add(base, [b"x"] * 1_000)
    assert len(recent._steps) * 1_000 * 34 < 1 << 20


def test_a_step_larger_than_the_cache_is_evicted_at_once() -> None:
    recent = RecentBodies(BodyBudget(1_000))
    recent.add(10, [b"x" * 2_000])
    assert recent.get(10) is None


async def test_only_steps_with_bodies_are_kept_in_memory(node: MailboxNode, log: Mailbox) -> None:
    await log.run(sending(b"x" * 100))
    size_bytes = node.mailboxes.shared.budget.size_bytes
    await log.run(fetching())
    await node.mailboxes.housekeeper.keep(log)
    assert node.mailboxes.shared.budget.size_bytes == size_bytes


async def test_neighbours_are_read_once(
    store: CrashingStore, node: MailboxNode, log: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = list((await log.run(sending(*(b"%d" % number for number in range(1_000))))).ids)
    node.mailboxes.shared.budget.shrink(0)
    reads = count_reads(store, monkeypatch)
    found = await node.mailboxes.reader.messages(log, ids[:500])
    assert [found[each].body for each in ids[:500]] == [b"%d" % number for number in range(500)]
    await node.mailboxes.reader.messages(log, ids[500:])
    assert len(reads) == 1


async def test_many_scattered_messages_do_not_fill_the_memory(
    store: CrashingStore, node: MailboxNode, log: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_KEPT_BYTES", 50_000)
    ids = [(await log.run(sending(b"y" * 20_000, b"%d" % number))).ids[1] for number in range(20)]
    node.mailboxes.shared.budget.shrink(0)
    found = await node.mailboxes.reader.messages(log, ids)
    assert [found[each].body for each in ids] == [b"%d" % number for number in range(20)]
    assert node.mailboxes.shared.budget.size_bytes < 4 * 20_000


async def test_a_message_that_is_moved_and_trimmed_during_a_read_is_found(
    store: CrashingStore, node: MailboxNode, log: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "TRIM_ABOVE_BYTES", 0)
    monkeypatch.setattr(keeping, "CLEAN_ABOVE_BYTES", -1_000_000)
    (message_id,) = (await log.run(sending_with(Outgoing(b"x", {"h": "v"}, delay_ms=60_000)))).ids
    node.mailboxes.shared.budget.shrink(0)
    read = store.read
    loop = asyncio.get_running_loop()
    is_first = True

    def moving(vchannel_id: int, *range_: int) -> Any:
        nonlocal is_first
        if is_first:
            is_first = False
            asyncio.run_coroutine_threadsafe(node.mailboxes.housekeeper.keep(log), loop).result()
        return read(vchannel_id, *range_)

    monkeypatch.setattr(store, "read", moving)
    found = await node.mailboxes.reader.messages(log, [message_id])
    assert found[message_id].body == b"x"
    assert log.place.vchannel.trim_tick > message_id


async def test_a_copy_that_is_not_durable_yet_is_awaited(
    store: CrashingStore, node: MailboxNode, log: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "CLEAN_ABOVE_BYTES", -1_000_000)
    (message_id,) = (await log.run(sending(b"x"))).ids
    node.mailboxes.shared.budget.shrink(0)
    task = asyncio.create_task(node.mailboxes.housekeeper.keep(log))
    # The event was submitted, and the store has not even written it.
    await until(lambda: log.state.rows.places[0] != message_id)
    assert log.state.rows.places[0] > log.place.vchannel.durable_tick
    found = await node.mailboxes.reader.messages(log, [message_id])
    assert found[message_id].body == b"x"
    await task


async def test_a_deleted_message_is_missing_and_a_lost_one_is_data_loss(
    store: CrashingStore, node: MailboxNode, log: Mailbox
) -> None:
    (message_id,) = (await log.run(sending(b"x"))).ids
    assert await node.mailboxes.reader.messages(log, [message_id + 1]) == {}
    node.mailboxes.shared.budget.shrink(0)
    await node.node.log.committer.run(lambda: store.trim(log.place.vchannel.vchannel_id, message_id + 1))
    with pytest.raises(DataLossError) as error:
        await node.mailboxes.reader.messages(log, [message_id])
    assert error.value.values["mailbox"] == "a"


async def test_a_mailbox_that_is_deleted_during_a_read_does_not_exist(
    store: CrashingStore, node: MailboxNode, log: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    (message_id,) = (await log.run(sending(b"x"))).ids
    node.mailboxes.shared.budget.shrink(0)
    read = store.read
    loop = asyncio.get_running_loop()

    def deleting(vchannel_id: int, *range_: int) -> Any:
        asyncio.run_coroutine_threadsafe(node.node.mailboxes.delete("a"), loop).result()
        return read(vchannel_id, *range_)

    monkeypatch.setattr(store, "read", deleting)
    with pytest.raises(MailboxNotExistError):
        await node.mailboxes.reader.messages(log, [message_id])


def count_reads(store: CrashingStore, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    reads: list[tuple[int, ...]] = []
    read = store.read

    def counting(*arguments: int) -> Any:
        reads.append(arguments)
        return read(*arguments)

    monkeypatch.setattr(store, "read", counting)
    return reads


@pytest.mark.parametrize("is_stream", [False, True])
async def test_messages_whose_caller_leaves_while_their_bodies_are_read_are_given_back(
    store: CrashingStore, node: MailboxNode, log: Mailbox, monkeypatch: pytest.MonkeyPatch, *, is_stream: bool
) -> None:
    await log.run(sending(b"x"))
    node.mailboxes.shared.budget.shrink(0)
    read, is_read, may_read = store.read, threading.Event(), threading.Event()

    def waiting(*arguments: int) -> Any:
        is_read.set()
        assert may_read.wait(10)
        return read(*arguments)

    monkeypatch.setattr(store, "read", waiting)
    calls = MessageCalls(node.mailboxes, node.node.mailboxes.name_of)
    # The call ends before it uses its context.
    context: Any = None
    answering: Coroutine[Any, Any, Any] = (
        calls.stream_deliveries(pb.StreamDeliveriesRequest(mailbox=log.name), context)
        if is_stream
        else calls.fetch(pb.FetchRequest(mailbox=log.name), context)
    )
    fetch = asyncio.create_task(answering)
    await until(is_read.is_set)
    fetch.cancel()
    # Before their leases end.
    (grant,) = (await log.run(fetching(wait_s=10))).grants
    assert grant.delivery_count == 2
    may_read.set()


async def test_messages_of_a_stream_that_ends_before_their_bodies_are_read_are_given_back(
    store: CrashingStore, node: MailboxNode, log: Mailbox
) -> None:
    await log.run(sending(b"x"))
    memory = ReadBudget(3_000).memory("reader")
    # Answers that the client has not read.
    memory.note_taken(30_000)
    tasks: list[asyncio.Task[None]] = []
    answers = FetchAnswers(
        MessageCalls(node.mailboxes, node.node.mailboxes.name_of), memory, refuse_answer,
        lambda serving: tasks.append(asyncio.create_task(serving)),
    )  # fmt: skip
    answers.put(Slot(1, 0), log, await log.run(fetching()))
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    answers.close()
    (grant,) = (await log.run(fetching(wait_s=10))).grants
    assert grant.delivery_count == 2
    assert len(tasks) == 1


def refuse_answer(encoded: bytes, slot: Slot, taken_bytes: int = 0) -> None:
    raise AssertionError(f"a fetch without memory was answered: {slot}, {encoded!r}, {taken_bytes} bytes")
