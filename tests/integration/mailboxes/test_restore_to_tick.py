"""A mailbox that is restored up to a tick has the messages, leases and dead letters that it had then.

Method: a real server on a folder; after each of several operations the tick and everything that Peek shows are noted. A
backup is restored up to each tick, and a second server shows the same. With logs that were trimmed, the same holds from
a tick on, and the restore is refused below it.

Promises of docs/reference/guarantees.md: G1, G53.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tidelog
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_server.app import Server
from tidelog_server.backup.folder import BackupFolder, open_backup_folder
from tidelog_server.backup.manifest import Manifest
from tidelog_server.backup.restore_to_tick import MailboxesLostError, RestoreReport
from tidelog_server.fold import keeping
from tidelog_testing.parts.backups import restore_until, take
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.parts.mailbox_calls import acknowledge, create, fetch, mailbox_stub
from tidelog_testing.parts.waiting import eventually

pytestmark = pytest.mark.not_on_engine(reason="restores backups")
NAMES = ("dead", "jobs")
HOUR_MS = 3_600_000
Shown = dict[str, tuple[bytes, list[bytes]]]


class Noted(NamedTuple):
    """What a server had at a tick."""

    tick: int
    shown: Shown


async def shown(stub: Any) -> Shown:
    """Return the counts of each mailbox, without ages, and all that Peek shows."""
    found: Shown = {}
    for name in NAMES:
        counts = (await stub.DescribeMailbox(pb.DescribeMailboxRequest(name=name))).counts
        counts.oldest_age_ms = 0
        peeked = (await stub.Peek(pb.PeekRequest(mailbox=name, max_messages=100))).messages
        found[name] = counts.SerializeToString(), [each.SerializeToString(deterministic=True) for each in peeked]
    return found


async def keep(server: Server, name: str) -> None:
    """Do the housekeeping of a mailbox now."""
    mailboxes = server._node.opened_mailboxes
    assert mailboxes is not None
    await mailboxes.housekeeper.keep(await mailboxes.open(name))


@asynccontextmanager
async def restored(
    backups: BackupFolder, manifest: Manifest, target: Path, tick: int, *, may_empty: bool = False
) -> AsyncIterator[tuple[RestoreReport, Any]]:
    """Restore up to a tick, and yield the report and the stub of a server on the folder."""
    source = backups.data_path(manifest.backup_id)
    try:
        report = await restore_until(source, target / "log", tick, may_empty=may_empty)
    except MailboxesLostError:
        assert [os.listdir(target), os.listdir(target / "log.made")] == [["log.made"], []]
        raise
    async with running_server(target / "log") as server, mailbox_stub(server) as stub:
        yield report, stub


Act = Callable[[Server, Any], Awaitable[None]]


async def send(_: Server, stub: Any) -> None:
    plain = [pb.OutgoingMessage(body=b"%d" % number, group="g" if number % 2 else "") for number in range(6)]
    late = pb.OutgoingMessage(body=b"late", delay_ms=HOUR_MS, headers={"a": "b"}, dedup_key="k", priority=3)
    await stub.Send(pb.SendRequest(mailbox="jobs", messages=[*plain, late]))


async def lease(_: Server, stub: Any) -> None:
    assert len(await fetch(stub, "jobs", max_messages=3, lease_ms=HOUR_MS)) == 3


async def let_one_die(_: Server, stub: Any) -> None:
    [delivery] = await fetch(stub, "jobs", max_messages=1, lease_ms=HOUR_MS)
    rejection = pb.Rejection(lock_id=delivery.lock_id, is_final=True)
    await stub.AckDeliveries(pb.AckDeliveriesRequest(mailbox="jobs", rejected=[rejection]))

    async def letters() -> int:
        return len((await stub.Peek(pb.PeekRequest(mailbox="dead", max_messages=100))).messages)

    await eventually(letters, lambda found: found > 0)


async def confirm_one(_: Server, stub: Any) -> None:
    [delivery] = await fetch(stub, "jobs", max_messages=1, lease_ms=HOUR_MS)
    await acknowledge(stub, "jobs", confirmed=[delivery.lock_id])


async def end_leases(_: Server, stub: Any) -> None:
    leased = (await stub.Peek(pb.PeekRequest(mailbox="jobs", max_messages=100))).messages
    ids = [each.header.id for each in leased if each.header.leased_until_ms]
    await stub.Reenqueue(pb.ReenqueueRequest(mailbox="jobs", ids=ids))


async def pause(_: Server, stub: Any) -> None:
    await stub.PauseMailbox(pb.PauseMailboxRequest(name="jobs"))


async def resume(_: Server, stub: Any) -> None:
    await stub.ResumeMailbox(pb.ResumeMailboxRequest(name="jobs"))


async def keep_house(server: Server, _: Any) -> None:
    for name in NAMES:
        await keep(server, name)


async def noted_after(server: Server, stub: Any, acts: Sequence[Act]) -> list[Noted]:
    """Return what the server has after each act."""
    noted: list[Noted] = []
    for act in acts:
        await act(server, stub)
        found = await shown(stub)
        noted.append(Noted(int(server._log.shared.oracle.last), found))
    return noted


WORK: list[Act] = [send, lease, let_one_die, pause, resume, end_leases, confirm_one]


async def backed_up(folder: Path, acts: Sequence[Act]) -> tuple[BackupFolder, Manifest, list[Noted]]:
    backups = open_backup_folder(folder / "backups", create=True)
    async with running_server(folder / "log") as server, mailbox_stub(server) as stub:
        await create(stub, "dead")
        await create(stub, "jobs", dead_letter="dead")
        noted = await noted_after(server, stub, acts)
        manifest = await take(server, backups)
    return backups, manifest, noted


async def test_every_state_comes_back(tmp_path: Path) -> None:
    backups, manifest, noted = await backed_up(tmp_path, [*WORK, keep_house, *WORK])
    assert len({str(each.shown) for each in noted}) > len(noted) // 2
    for number, (tick, expected) in enumerate(noted):
        async with restored(backups, manifest, tmp_path / str(number), tick) as (report, stub):
            assert await shown(stub) == expected
            assert report.emptied_mailboxes == []
            # It works on, in the order in which it would have.
            await resume(stub, stub)
            await send(stub, stub)
            await confirm_one(stub, stub)


async def test_a_mailbox_that_was_trimmed_is_restored_from_a_tick_on_and_refused_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "TRIM_ABOVE_BYTES", 1)
    acts = [*WORK, empty, keep_house, *WORK]
    backups, manifest, noted = await backed_up(tmp_path, acts)
    early, late = noted[: len(WORK)], noted[len(WORK) + 1 :]
    for number, (tick, _) in enumerate(early):
        with pytest.raises(MailboxesLostError, match=r"logs of mailboxes 'dead', 'jobs' were trimmed.*--empty-"):
            async with restored(backups, manifest, tmp_path / f"early{number}", tick):
                pass
    for number, (tick, expected) in enumerate(late):
        async with restored(backups, manifest, tmp_path / f"late{number}", tick) as (_, stub):
            assert await shown(stub) == expected


async def empty(_: Server, stub: Any) -> None:
    for name in NAMES:
        await stub.PurgeMailbox(pb.PurgeMailboxRequest(name=name))


async def test_a_refused_restore_tells_the_tick_from_which_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "TRIM_ABOVE_BYTES", 1)
    # The second housekeeping trims the body of a message that was there at the time of the first one.
    acts = [send, keep_house, confirm_one, confirm_one, keep_house, send]
    backups, manifest, noted = await backed_up(tmp_path, acts)
    with pytest.raises(MailboxesLostError) as refused:
        async with restored(backups, manifest, tmp_path / "early", noted[0].tick):
            pass
    from_tick = refused.value.restorable_from
    assert noted[1].tick < from_tick <= noted[4].tick
    with pytest.raises(MailboxesLostError):
        async with restored(backups, manifest, tmp_path / "just-below", from_tick - 1):
            pass
    async with restored(backups, manifest, tmp_path / "from", from_tick) as (_, stub):
        assert len((await shown(stub))["jobs"][1]) >= 5


async def send_large(_: Server, stub: Any) -> None:
    await stub.Send(pb.SendRequest(mailbox="jobs", bodies=[b"x" * 100_000]))


async def keep_blobs(server: Server, _: Any) -> None:
    """Delete the blobs that nothing refers to, and keep their log short."""
    mailboxes = server._node.opened_mailboxes
    assert mailboxes is not None
    mailboxes.blobs._grace_ticks = 0
    await mailboxes.blobs.keep()


async def test_bodies_in_the_blob_store_come_back_unless_they_were_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "CLEAN_ABOVE_BYTES", 0)
    monkeypatch.setattr(keeping, "TRIM_ABOVE_BYTES", 0)
    acts = [send_large, empty, keep_blobs, send_large, lease_one]
    backups, manifest, noted = await backed_up(tmp_path, acts)
    assert b"x" * 100_000 in noted[0].shown["jobs"][1][0]
    for number, (tick, _) in enumerate(noted[:2]):
        with pytest.raises(MailboxesLostError, match="'_blobs' were trimmed") as refused:
            async with restored(backups, manifest, tmp_path / f"early{number}", tick):
                pass
        assert refused.value.restorable_from <= noted[2].tick
    for number, (tick, expected) in enumerate(noted[2:]):
        async with restored(backups, manifest, tmp_path / f"late{number}", tick) as (_, stub):
            assert await shown(stub) == expected
    async with restored(backups, manifest, tmp_path / "empty", noted[1].tick, may_empty=True) as (report, stub):
        assert report.emptied_mailboxes == ["_blobs"]
        await send_large(stub, stub)
        assert b"x" * 100_000 in (await shown(stub))["jobs"][1][0]


async def lease_one(_: Server, stub: Any) -> None:
    assert len(await fetch(stub, "jobs", max_messages=1, lease_ms=HOUR_MS)) == 1


async def test_mailboxes_whose_messages_are_lost_are_restored_empty_if_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "TRIM_ABOVE_BYTES", 1)
    backups, manifest, noted = await backed_up(tmp_path, [send, lease, empty, keep_house, send])
    async with restored(backups, manifest, tmp_path / "a", noted[1].tick, may_empty=True) as (report, stub):
        assert report.emptied_mailboxes == ["dead", "jobs"]
        assert [messages for _, messages in (await shown(stub)).values()] == [[], []]
        await send(stub, stub)
        before = await shown(stub)
    async with running_server(tmp_path / "a" / "log") as server, mailbox_stub(server) as stub:
        assert await shown(stub) == before


async def test_a_mailbox_that_was_created_later_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "TRIM_ABOVE_BYTES", 1)

    async def create_later(server: Server, stub: Any) -> None:
        # So that the mailbox is created in a later millisecond than the tick before.
        await eventually(lambda: stub.ListMailboxes(pb.ListMailboxesRequest()), lambda _: is_later(server))
        await create(stub, "later")
        for body in (b"x", b"y"):
            await stub.Send(pb.SendRequest(mailbox="later", bodies=[body]))
        await stub.PurgeMailbox(pb.PurgeMailboxRequest(name="later"))
        await keep(server, "later")

    backups, manifest, noted = await backed_up(tmp_path, [send, create_later])
    async with restored(backups, manifest, tmp_path / "a", noted[0].tick) as (report, stub):
        assert report.emptied_mailboxes == []
        assert await shown(stub) == noted[0].shown
        assert (await stub.Peek(pb.PeekRequest(mailbox="later"))).messages == []


async def test_a_transaction_with_mailboxes_is_restored_whole_or_not_at_all(tmp_path: Path) -> None:
    backups = open_backup_folder(tmp_path / "backups", create=True)
    async with running_server(tmp_path / "log") as server, tidelog.AsyncClient(server.grpc_endpoint) as client:
        await client.create_channel("results")
        for name in ("jobs", "following"):
            await client.mailboxes.create(name)
        jobs = client.mailbox("jobs")
        await jobs.send(b"job")
        [delivery] = await jobs.fetch(lease=3_600)
        async with client.txn() as txn:
            await txn.append("results/0", b"result")
            txn.send("following", b"next")
            txn.ack(delivery)
        # The end of the transaction is beyond its last message. Not the oracle's last tick, which moves with the clock.
        end_tick = int(server._log.store.head.last_tick) + 8
        manifest = await take(server, backups)

    found: list[tuple[int, int, int]] = []
    first_tick = txn.result.first_tick
    for tick in range(first_tick - 1, end_tick + 1):
        async with restored(backups, manifest, tmp_path / str(tick), tick) as (report, stub):
            assert report.end_tick in (first_tick, tick + 1)
            waiting, sent = [
                len((await stub.Peek(pb.PeekRequest(mailbox=name))).messages) for name in ("jobs", "following")
            ]
            found.append((report.kept_messages, waiting, sent))
    none, everything = found[0], found[-1]
    assert none[1:] == (1, 0)
    assert everything[1:] == (0, 1)
    assert set(found) == {none, everything}
    assert found.count(none) > 3


def is_later(server: Server) -> bool:
    return server._log.clock.wall_ms() > (int(server._log.shared.oracle.last) >> 18) + 1
