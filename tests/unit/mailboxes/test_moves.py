"""Messages move between mailboxes, and joint steps change several of them, as a whole or not at all.

Method: mailboxes on a node whose store in memory is opened again, as a crash would leave it, in every turn of the event
loop; with faults of the destination.

Promises of docs/reference/guarantees.md: G50.
"""

import asyncio
from typing import Any

import pytest

from tidelog_server.core.errors import InvalidRequestError, StorageFailedError
from tidelog_server.core.errors.mailboxes import MailboxFullError, MailboxNotExistError
from tidelog_server.fold.calls import Call
from tidelog_server.mailboxes import dead_letters
from tidelog_server.mailboxes.events import EventType, Origin
from tidelog_server.mailboxes.joint import JointPart, JointStep, write_jointly
from tidelog_server.mailboxes.mailbox import Mailbox
from tidelog_server.mailboxes.operations import Outgoing, Rejection, Step, purge, send_bodies
from tidelog_testing.parts.mailbox_nodes import (
    MailboxNode,
    acking,
    content,
    copied,
    fetching,
    loaded,
    locks_of,
    running_mailboxes,
    sending,
    sending_with,
    taken_in_order,
    until,
)
from tidelog_testing.parts.stores import CrashingStore


@pytest.fixture
async def letters(node: MailboxNode) -> Mailbox:
    return await node.create("letters")


@pytest.fixture
async def log(node: MailboxNode, letters: Mailbox) -> Mailbox:
    return await node.create("a", dead_letter=letters.name, max_deliveries=2)


async def reject_for_good(log: Mailbox, count: int = 1_000) -> None:
    locks = locks_of(await log.run(fetching(count)))
    await log.run(acking([], *(Rejection(lock, is_final=True) for lock in locks)))


def live(store: CrashingStore, *logs: Mailbox) -> list[int]:
    """Return the numbers of messages of mailboxes after a crash now."""
    crashed = store.crashed()
    return [loaded(crashed, log).state.rows.live for log in logs]


# -- Dead letters ------------------------------------------------------------------------------------------


async def test_a_message_moves_after_its_last_delivery_and_names_its_origin(
    node: MailboxNode, log: Mailbox, letters: Mailbox
) -> None:
    sent = Outgoing(b"x", {"h": "v"}, priority=3, group="g", key="k", ttl_ms=60_000)
    (message_id,) = (await log.run(sending_with(sent))).ids
    waiting = asyncio.create_task(letters.run(fetching(wait_s=60)))
    for count in (1, 2):
        (grant,) = (await log.run(fetching(wait_s=60))).grants
        assert grant.delivery_count == count
        await log.run(acking([], Rejection(grant.lock_id)))
    (moved,) = (await waiting).grants
    assert log.state.rows.live == 0
    message = (await node.mailboxes.reader.messages(letters, [moved.message_id]))[moved.message_id]
    assert message.origin == Origin(log.mailbox_id, message_id, 2)
    assert (message.body, message.headers, message.priority, message.group) == (b"x", {"h": "v"}, 3, "g")
    assert (message.key, message.expires_tick) == ("", 0)


async def test_many_dead_letters_are_in_one_of_both_mailboxes_at_any_moment(
    store: CrashingStore, log: Mailbox, letters: Mailbox
) -> None:
    await log.run(sending(*[b"x"] * 250))
    await reject_for_good(log)
    seen = set[int]()
    while letters.state.rows.live < 250:
        await asyncio.sleep(0)
        left, moved = live(store, log, letters)
        assert left + moved == 250
        seen.add(moved)
    await until(lambda: live(store, log, letters) == [0, 250])
    assert {100, 200} <= seen


async def test_a_purge_during_a_move_wins_or_loses_but_does_neither_by_half(
    store: CrashingStore, log: Mailbox, letters: Mailbox
) -> None:
    for turns in range(12):
        await log.run(sending(*[b"x"] * 10))
        await reject_for_good(log)
        for _ in range(turns):
            await asyncio.sleep(0)
        purged = await log.run(Call(purge, 1))
        await until(lambda: not log.state.exhausted)
        found = await letters.run(Call(purge, 1))
        assert purged + found == 10
        assert live(store, log, letters) == [0, 0]


async def test_a_move_is_tried_again_until_the_destination_accepts_it(
    node: MailboxNode, log: Mailbox, letters: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_RETRY_S", 0.01)
    open_by_name, attempts = node.mailboxes.open, list[str]()

    async def failing(name: str) -> Mailbox:
        attempts.append(name)
        if len(attempts) < 4:
            raise MailboxNotExistError(name)
        return await open_by_name(name)

    monkeypatch.setattr(node.mailboxes.mover, "_open_by_name", failing)
    await log.run(sending(b"x"))
    await reject_for_good(log)
    # Steps meanwhile are no reason to hurry.
    for _ in range(5):
        await log.run(sending(b"y"))
    await until(lambda: letters.state.rows.live == 1)
    assert attempts == ["letters"] * 4
    await until(lambda: node.mailboxes.mover._delays_s == {})


async def test_dead_letters_of_a_deleted_mailbox_are_forgotten(
    node: MailboxNode, log: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_RETRY_S", 0.0)

    async def failing(name: str) -> Mailbox:
        await node.node.mailboxes.delete("a")
        raise MailboxNotExistError(name)

    monkeypatch.setattr(node.mailboxes.mover, "_open_by_name", failing)
    await log.run(sending(b"x"))
    await reject_for_good(log)
    await until(lambda: log.is_closed and not node.mailboxes.mover._wanted)
    assert node.mailboxes.mover._delays_s == {}


async def test_settings_without_dead_letters_keep_what_could_not_be_moved(
    node: MailboxNode, log: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(name: str) -> Mailbox:
        raise MailboxNotExistError(name)

    monkeypatch.setattr(node.mailboxes.mover, "_open_by_name", failing)
    await log.run(sending(b"x"))
    await reject_for_good(log)
    await node.node.mailboxes.configure("a", {"dead_letter": ""})
    await until(lambda: not log.state.exhausted)
    assert log.state.counts().dead == 1


async def test_dead_letters_move_back(store: CrashingStore, node: MailboxNode, log: Mailbox, letters: Mailbox) -> None:
    await log.run(sending(b"one", b"two"))
    await reject_for_good(log)
    await until(lambda: letters.state.rows.live == 2)
    ids = list(letters.state.rows.ids)
    moving = asyncio.create_task(node.mailboxes.mover.move(letters, log, ids, EventType.MOVED))
    while not moving.done():
        await asyncio.sleep(0)
        assert sum(live(store, log, letters)) == 2
    assert await moving == 2
    fetched = await log.run(fetching())
    assert await node.bodies(log, fetched) == [b"one", b"two"]
    assert [grant.delivery_count for grant in fetched.grants] == [1, 1]


async def test_messages_are_not_moved_to_their_own_mailbox(node: MailboxNode, log: Mailbox) -> None:
    ids = (await log.run(sending(b"x"))).ids
    with pytest.raises(InvalidRequestError, match="cannot be moved to itself"):
        await node.mailboxes.mover.move(log, log, ids, EventType.MOVED)
    assert log.state.rows.live == 1


async def test_large_dead_letters_move_in_small_writes(
    store: CrashingStore, log: Mailbox, letters: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_MOVE_BYTES", 2_500)
    await log.run(sending(*[b"x" * 1_000] * 7))
    await reject_for_good(log)
    await until(lambda: letters.state.rows.live == 7)
    vchannel_id = letters.place.vchannel.vchannel_id

    def counts() -> list[int]:
        return [each.count for entries in store.written for each in entries if each.vchannel_id == vchannel_id]

    await until(lambda: counts() == [2, 2, 2, 1])


# -- Joint steps -------------------------------------------------------------------------------------------


def sending_to(log: Mailbox, *bodies: bytes) -> JointPart:
    return JointPart(log, Call(lambda step: send_bodies(step, bodies), len(bodies)))


async def test_a_joint_step_is_one_write_with_growing_ticks(
    store: CrashingStore, node: MailboxNode, log: Mailbox, letters: Mailbox
) -> None:
    waiting = asyncio.create_task(letters.run(fetching(wait_s=60)))
    await asyncio.sleep(0)
    joint = JointStep([sending_to(log, b"a", b"b"), sending_to(letters, b"c")])
    first, second = await write_jointly(node.node.log, joint)
    assert first.ids[-1] < second.ids[0]
    # A fetch that waits is served, in the next step, which may share the write.
    assert [2, 1] in [[each.count for each in entries[:2]] for entries in store.written]
    assert [grant.message_id for grant in (await waiting).grants] == list(second.ids)


async def test_a_joint_step_whose_check_fails_changes_nothing(
    store: CrashingStore, node: MailboxNode, log: Mailbox, letters: Mailbox
) -> None:
    def refuse(_: Step) -> None:
        raise MailboxFullError("letters", messages=1, max_messages=1)

    before, written = [content(copied(each.state), 0) for each in (log, letters)], len(store.written)
    refused = sending_to(letters, b"c")
    joint = JointStep([sending_to(log, b"a"), JointPart(letters, refused.call, refuse)])
    with pytest.raises(MailboxFullError):
        await write_jointly(node.node.log, joint)
    assert [content(copied(each.state), 0) for each in (log, letters)] == before
    assert len(store.written) == written
    await log.run(sending(b"later"))


async def test_a_joint_step_ends_leases_whose_time_is_over_first(node: MailboxNode, log: Mailbox) -> None:
    await log.run(sending(b"x"))
    await log.run(fetching(lease_ms=1))
    joint = JointStep([JointPart(log, Call(lambda step: taken_in_order(copied(step.state)), 0))])

    def is_over() -> bool:
        end_tick = log.state.order.next_tick()
        return not log.state.leases or (end_tick is not None and end_tick < node.node.log.shared.oracle.now())

    await until(is_over)
    ((message_id,),) = await write_jointly(node.node.log, joint)
    assert message_id == log.state.rows.ids[0]


async def test_a_joint_step_without_events_answers_after_what_is_in_flight(
    store: CrashingStore, node: MailboxNode, log: Mailbox
) -> None:
    store.may_sync.clear()
    sent = sending(b"x")
    log.submit(sent)
    await until(lambda: log.state.rows.live == 1)
    looked = Call(lambda step: step.state.rows.live, 0)
    writing = asyncio.create_task(write_jointly(node.node.log, JointStep([JointPart(log, looked)])))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not writing.done()
    store.may_sync.set()
    assert await writing == [1]


async def test_a_joint_step_has_ticks_for_messages_that_it_buries(node: MailboxNode, letters: Mailbox) -> None:
    await letters.run(sending(b"x", b"y"))
    kept, lost = locks_of(await letters.run(fetching()))
    other = await node.create("other")
    part = JointPart(letters, acking([kept], Rejection(lost, is_final=True)))
    await write_jointly(node.node.log, JointStep([part, sending_to(other, b"z")]))
    assert letters.state.counts().dead == 1
    await letters.run(sending(b"later"))


async def test_a_joint_step_fails_as_a_whole_with_the_log(
    store: CrashingStore, node: MailboxNode, log: Mailbox, letters: Mailbox
) -> None:
    store.fails_at_sync = len(store.synced) + 1
    with pytest.raises(StorageFailedError):
        await write_jointly(node.node.log, JointStep([sending_to(log, b"a"), sending_to(letters, b"c")]))
    assert live(store, log, letters) == [0, 0]


async def test_a_bug_in_a_joint_step_stops_the_log(store: CrashingStore) -> None:
    async with running_mailboxes(store) as node:
        first, second = await node.create("a"), await node.create("b")

        def fail(_: Step) -> Any:
            raise ZeroDivisionError

        joint = JointStep([sending_to(first, b"x"), JointPart(second, Call(fail, 1))])
        waiting = asyncio.create_task(first.run(fetching(wait_s=60)))
        await asyncio.sleep(0)
        with pytest.raises(ZeroDivisionError):
            await write_jointly(node.node.log, joint)
        for log in (first, second):
            with pytest.raises(StorageFailedError):
                await log.run(sending(b"y"))
        with pytest.raises(StorageFailedError):
            await waiting
        assert live(store, first, second) == [0, 0]
        assert len(node.node.failures) == 1
