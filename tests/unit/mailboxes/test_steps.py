"""Steps of mailboxes: what shares an entry, when callers are answered, and what happens when they leave or time jumps.

Method: mailboxes on a node whose store in memory waits, fails and reports as a test requests.

Promises of docs/reference/guarantees.md: G49.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tidelog_server.core.entries import NewEntry
from tidelog_server.core.errors import Effect, ShutdownError, StorageFailedError
from tidelog_server.core.errors.cluster import MetadataUnavailableError, OwnershipLostError
from tidelog_server.core.errors.mailboxes import MailboxFullError, MailboxNotExistError
from tidelog_server.fold.calls import Call
from tidelog_server.fold.rows import SNAPSHOTS
from tidelog_server.log.lease_validity import LeaseValidity
from tidelog_server.mailboxes.mailbox import Mailbox
from tidelog_server.mailboxes.operations import Fetched, Outgoing, Rejection, Step
from tidelog_server.mailboxes.waiting import FetchCall
from tidelog_server.metadata.memory import MemoryMetadataStore
from tidelog_server.metadata.store import Change
from tidelog_server.runtime.clock import SystemClock
from tidelog_testing.parts.batches import a_batch
from tidelog_testing.parts.clocks import SetClock
from tidelog_testing.parts.mailbox_nodes import (
    MailboxNode,
    acking,
    fetching,
    locks_of,
    running_mailboxes,
    sending,
    sending_with,
    until,
)
from tidelog_testing.parts.stores import CrashingStore

MINUTE_MS = 60_000


def entries_of(store: CrashingStore, log: Mailbox) -> list[NewEntry]:
    vchannel_id = log.place.vchannel.vchannel_id
    return [entry for entries in store.written for entry in entries if entry.vchannel_id == vchannel_id]


def waiting(log: Mailbox) -> tuple[FetchCall, "asyncio.Task[Fetched]"]:
    """Begin a fetch that waits."""
    call = fetching(wait_s=60)
    return call, asyncio.get_running_loop().create_task(log.run(call))


# -- One step ----------------------------------------------------------------------------------------------


async def test_operations_of_one_turn_share_an_entry(store: CrashingStore, log: Mailbox) -> None:
    sent, fetched, later = await asyncio.gather(
        log.run(sending(b"one", b"two")), log.run(fetching()), log.run(sending(b"three"))
    )
    assert [grant.message_id for grant in fetched.grants] == list(sent.ids)
    assert list(later.ids) == [sent.ids[-1] + 2]
    assert [entry.count for entry in entries_of(store, log)] == [4]


async def test_a_large_queue_is_divided_into_steps(store: CrashingStore, log: Mailbox) -> None:
    await asyncio.gather(*(log.run(sending(*[b"x"] * 1_000)) for _ in range(5)))
    assert [entry.count for entry in entries_of(store, log)] == [2_000, 2_000, 1_000]


async def test_a_refused_operation_changes_nothing_for_the_others(node: MailboxNode) -> None:
    log = await node.create("small", max_messages=2)
    results = await asyncio.gather(
        log.run(sending(b"x")), log.run(sending(b"y", b"z")), log.run(sending(b"w")), return_exceptions=True
    )
    assert [type(each).__name__ for each in results] == ["SentIds", "MailboxFullError", "SentIds"]
    assert isinstance(results[1], MailboxFullError)
    assert log.state.rows.live == 2


async def test_an_operation_without_events_is_answered_after_those_it_depends_on(
    store: CrashingStore, log: Mailbox
) -> None:
    store.may_sync.clear()
    first, second = (sending_with(Outgoing(b"x", key="once")) for _ in range(2))
    log.submit(first)
    await until(lambda: bool(entries_of(store, log)))
    log.submit(second)
    looked = Call(lambda step: step.state.rows.live, events=0)
    log.submit(looked)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not second.done.done()
    assert not looked.done.done()
    store.may_sync.set()
    assert (await second.done).ids == (await first.done).ids
    assert (await second.done).duplicates == [0]
    assert await looked.done == 1


async def test_an_operation_without_events_is_answered_at_once_if_all_is_durable(log: Mailbox) -> None:
    await log.run(sending(b"x"))
    looked = Call(lambda step: step.state.rows.live, events=0)
    log.submit(looked)
    await asyncio.sleep(0)
    assert looked.done.done()


async def test_every_step_has_ticks_for_messages_that_it_buries(log: Mailbox) -> None:
    await log.run(sending(b"x", b"y"))
    kept, lost = locks_of(await log.run(fetching()))
    # Three events of an operation that announces two.
    await log.run(acking([kept], Rejection(lost, is_final=True)))
    assert log.state.counts().dead == 1
    await log.run(sending(b"z"))


async def test_many_exhausted_messages_are_buried_in_several_steps(
    node: MailboxNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog_server.mailboxes.mailbox._MAX_BURIED", 3)
    log = await node.create("a")
    await log.run(sending(*[b"x"] * 10))
    locks = locks_of(await log.run(fetching()))
    await log.run(acking([], *(Rejection(lock, is_final=True) for lock in locks)))
    await until(lambda: log.state.counts().dead == 10 and not log.state.exhausted)


async def test_rows_of_an_operation_that_was_not_executed_are_not_written(store: CrashingStore, log: Mailbox) -> None:
    def moving(number: int) -> Call[None]:
        return Call(lambda _: None, events=0, rows=[SNAPSHOTS.row(number, number)])

    def refuse(_: Step) -> None:
        raise MailboxFullError("a", messages=1, max_messages=1)

    executed, left, refused = moving(1), moving(2), moving(3)
    refused.execute = refuse
    refused.detach()
    for call in (executed, left, refused):
        log.submit(call)
    left.done.cancel()
    await executed.done
    assert store.rows(SNAPSHOTS) == {1: 1}


# -- Fetches that wait -------------------------------------------------------------------------------------


async def test_waiting_fetches_are_served_in_order(node: MailboxNode, log: Mailbox) -> None:
    first, second = (log.run(fetching(1, wait_s=60)) for _ in range(2))
    tasks = [asyncio.create_task(each) for each in (first, second)]
    await asyncio.sleep(0)
    await log.run(sending(b"one", b"two"))
    assert [await node.bodies(log, await task) for task in tasks] == [[b"one"], [b"two"]]


async def test_a_fetch_without_messages_is_answered_after_its_wait(log: Mailbox) -> None:
    assert (await log.run(fetching(wait_s=0.01))).grants == ()
    await until(lambda: len(log._waiting) == 0)


async def test_a_waiting_fetch_whose_caller_left_leases_nothing(log: Mailbox) -> None:
    _, task = waiting(log)
    await asyncio.sleep(0)
    task.cancel()
    # The same turn: the fetch is still in the queue.
    await log.run(sending(b"x"))
    assert log.state.leases == 0
    assert len(log._waiting) == 0


async def test_fetches_that_left_occupy_no_memory_until_their_time_is_over(log: Mailbox) -> None:
    tasks = [waiting(log)[1] for _ in range(1_000)]
    await until(lambda: len(log._waiting) == 1_000)
    for task in tasks:
        task.cancel()
    await until(lambda: len(log._waiting) == 0)


async def test_messages_of_a_caller_that_left_before_they_were_durable_are_given_back(
    store: CrashingStore, log: Mailbox
) -> None:
    await log.run(sending(b"x"))
    store.may_sync.clear()
    call = fetching()
    task = asyncio.create_task(log.run(call))
    await until(lambda: log.state.leases == 1)
    task.cancel()
    # Submitted before the lease is durable, so it waits.
    other = asyncio.create_task(log.run(fetching(wait_s=60)))
    for _ in range(10):
        await asyncio.sleep(0)
    store.may_sync.set()
    (grant,) = (await other).grants
    assert grant.delivery_count == 2
    assert call.done.cancelled()


async def test_a_message_is_given_back_only_while_it_is_under_the_same_lease(
    store: CrashingStore, log: Mailbox
) -> None:
    await log.run(sending(b"x"))
    fetched = await log.run(fetching())
    (lock,) = locks_of(fetched)
    await log.run(acking([], Rejection(lock)))
    (other,) = locks_of(await log.run(fetching()))
    log.give_back([fetched])
    assert (await log.run(acking([other]))).failures == []


# -- The end of a mailbox or of its log --------------------------------------------------------------------


@pytest.mark.parametrize("fails", ["fails_at_write", "fails_at_sync"])
async def test_a_storage_failure_answers_everything(store: CrashingStore, log: Mailbox, fails: str) -> None:
    _, fetch_task = waiting(log)
    await asyncio.sleep(0)
    setattr(store, fails, 1)
    sent, looked = sending_with(Outgoing(b"x", delay_ms=MINUTE_MS)), Call(lambda _: None, events=0)
    log.submit(sent)
    await until(lambda: log.state.rows.live == 1)
    log.submit(looked)
    tasks: list[Any] = [sent.done, looked.done, fetch_task]
    errors: list[Any] = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(error) for error in errors] == [StorageFailedError] * 3
    assert [error.effect for error in errors] == [Effect.UNKNOWN, Effect.UNKNOWN, Effect.NONE]
    with pytest.raises(StorageFailedError) as later:
        await log.run(sending(b"y"))
    assert later.value.effect is Effect.NONE


async def test_a_failure_elsewhere_on_the_node_refuses_waiting_fetches(
    store: CrashingStore, node: MailboxNode, log: Mailbox
) -> None:
    await node.node.create("other")
    _, task = waiting(log)
    await asyncio.sleep(0)
    store.fails_at_write = 1
    with pytest.raises(StorageFailedError):
        await node.node.append("other", a_batch(b"x"))
    with pytest.raises(StorageFailedError):
        await task


async def test_a_shutdown_refuses_waiting_fetches(node: MailboxNode, log: Mailbox) -> None:
    _, task = waiting(log)
    await asyncio.sleep(0)
    node.node.log.begin_shutdown()
    with pytest.raises(ShutdownError):
        await task


async def test_messages_are_given_back_before_a_shutdown_only(
    store: CrashingStore, node: MailboxNode, log: Mailbox
) -> None:
    await log.run(sending(b"x"))
    store.may_sync.clear()
    task = asyncio.create_task(log.run(fetching()))
    await until(lambda: log.state.leases == 1)
    task.cancel()
    node.node.log.begin_shutdown()
    store.may_sync.set()
    await until(lambda: not log.unsettled and not log._calls)
    assert log.state.leases == 1


async def test_a_lost_lease_of_the_node_refuses_waiting_fetches(node: MailboxNode, log: Mailbox) -> None:
    lease = LeaseValidity(SystemClock(), "n1")
    lease.begin(1, SystemClock().monotonic_s(), 60.0)
    node.node.log.hold_lease(lease)
    _, task = waiting(log)
    await asyncio.sleep(0)
    node.node.log.lose_lease(OwnershipLostError("n1"))
    with pytest.raises(OwnershipLostError):
        await task


async def test_a_deleted_mailbox_refuses_waiting_fetches_and_answers_what_is_pending(
    store: CrashingStore, node: MailboxNode, log: Mailbox
) -> None:
    _, task = waiting(log)
    await asyncio.sleep(0)
    store.may_sync.clear()
    sent = sending_with(Outgoing(b"x", delay_ms=MINUTE_MS))
    log.submit(sent)
    await until(lambda: bool(entries_of(store, log)))
    deleting = asyncio.create_task(node.node.mailboxes.delete("a"))
    with pytest.raises(MailboxNotExistError):
        await task
    with pytest.raises(MailboxNotExistError):
        await log.run(sending(b"y"))
    with pytest.raises(MailboxNotExistError):
        await log.changed()
    store.may_sync.set()
    assert len((await sent.done).ids) == 1
    assert await deleting


async def test_the_end_of_a_mailbox_wakes_those_who_wait_for_changes(node: MailboxNode, log: Mailbox) -> None:
    task = asyncio.create_task(log.changed())
    await asyncio.sleep(0)
    await node.node.mailboxes.delete("a")
    with pytest.raises(MailboxNotExistError):
        await task


# -- Bugs --------------------------------------------------------------------------------------------------


async def test_a_bug_in_a_step_refuses_waiting_fetches(store: CrashingStore) -> None:
    async with running_mailboxes(store) as node:
        log = await node.create("a")

        def fail(step: Step) -> None:
            step.state.purged()
            raise ZeroDivisionError

        _, waits = waiting(log)
        await asyncio.sleep(0)
        results = await asyncio.gather(log.run(Call(fail, events=1)), waits, return_exceptions=True)
        assert [type(each) for each in results] == [StorageFailedError] * 2
        assert len(node.node.failures) == 1
        assert [type(report["exception"]) for report in node.reports] == [ZeroDivisionError]


# -- Ticks and time ----------------------------------------------------------------------------------------


class Outage(MemoryMetadataStore):
    """A metadata store that can be away."""

    is_away = False

    async def commit(self, changes: Sequence[Change], *, is_before_log: bool = False) -> int:
        if self.is_away:
            raise MetadataUnavailableError("it is away")
        return await super().commit(changes, is_before_log=is_before_log)


async def test_operations_are_refused_while_there_are_no_ticks_and_fetches_go_on_waiting(
    store: CrashingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog_server.mailboxes.mailbox._RETRY_S", 0.01)
    clock, metadata = SetClock(), Outage()
    async with running_mailboxes(store, clock, metadata) as node:
        log = await node.create("a")
        await log.run(sending(b"x"))
        await log.run(fetching(lease_ms=MINUTE_MS))
        _, task = waiting(log)
        await until(lambda: len(log._waiting) == 1)
        metadata.is_away = True
        # Beyond the bound of the ticks that may be used.
        clock.now_ms += 2 * MINUTE_MS
        with pytest.raises(MetadataUnavailableError):
            await log.run(sending(b"y"))
        metadata.is_away = False
        # No operation comes: the lease ends because the step is retried.
        (grant,) = (await task).grants
        assert grant.delivery_count == 2


async def test_leases_end_soon_after_the_clock_was_set_forward(store: CrashingStore) -> None:
    clock = SetClock()
    async with running_mailboxes(store, clock) as node:
        log = await node.create("a")
        await log.run(sending(b"x"))
        await log.run(fetching(lease_ms=10 * MINUTE_MS))
        _, task = waiting(log)
        await asyncio.sleep(0)
        clock.now_ms += 11 * MINUTE_MS
        (grant,) = (await task).grants
        assert grant.delivery_count == 2


async def test_a_clock_that_is_set_back_extends_a_lease_by_the_step_at_most(store: CrashingStore) -> None:
    clock = SetClock()
    async with running_mailboxes(store, clock) as node:
        log = await node.create("a")
        await log.run(sending(b"x"))
        (first,) = (await log.run(fetching(lease_ms=MINUTE_MS))).grants
        clock.now_ms -= 10 * MINUTE_MS
        # Ticks still grow, and delays are counted from them.
        assert (await log.run(fetching())).grants == ()
        await log.run(sending_with(Outgoing(b"y", delay_ms=MINUTE_MS)))
        assert (await log.run(fetching())).grants == ()
        clock.now_ms += 11 * MINUTE_MS - 1
        assert (await log.run(fetching())).grants == ()
        clock.now_ms += 2
        again = (await log.run(fetching())).grants
        assert [grant.delivery_count for grant in again] == [2, 1]
        assert again[0].message_id == first.message_id
