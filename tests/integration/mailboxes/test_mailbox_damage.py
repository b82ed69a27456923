"""A damaged log of a mailbox is reported, and the server serves its other mailboxes.

Method: a real server on a folder; while it is stopped, a bit of a stored message is flipped, or an event is added that
contradicts those before it.

Promises of docs/reference/guarantees.md: G15.
"""

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_server.core.entries import NewEntry
from tidelog_server.core.ticks import Tick
from tidelog_server.mailboxes.events import EventType, MessageIds, encode_ids
from tidelog_server.rpc.columns.fold_events import FoldEvents
from tidelog_server.storage.recovery.open import open_rocksdb_log_store
from tidelog_testing.faults.damage import flip_bit
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.parts.mailbox_calls import counts, create, fetch, mailbox_stub, reason_of, samples
from tidelog_testing.parts.waiting import eventually

pytestmark = pytest.mark.not_on_engine(reason="changes a data folder of RocksDB")
BODY = random.Random(23).randbytes(20_000)


def flip(folder: Path, _: int) -> None:
    """Flip a bit of the body of the first message. It is in a blob file, because the server was closed."""
    [path] = [path for path in folder.rglob("*.blob") if BODY[:64] in path.read_bytes()]
    flip_bit(path, path.read_bytes().index(BODY[:64]) + 100, 3)


def contradict(folder: Path, vchannel_id: int) -> None:
    """Add the confirmation of a message that was never sent."""
    add(folder, vchannel_id, EventType.CONFIRMED, encode_ids(MessageIds(0, (1,))))


def cut_short(folder: Path, vchannel_id: int) -> None:
    """Add a lease without its messages."""
    add(folder, vchannel_id, EventType.LEASED, struct.pack("<QI", 1, 1))


def unknown(folder: Path, vchannel_id: int) -> None:
    """Add an event of a kind that no version has."""
    add(folder, vchannel_id, 99, b"")


def add(folder: Path, vchannel_id: int, kind: int, payload: bytes) -> None:
    batch = FoldEvents().encode([kind], [payload])
    store = open_rocksdb_log_store(folder)
    tick = Tick(store.head.last_tick + 1)
    entry = NewEntry(vchannel_id, tick, batch.count, batch.message_type, batch.columns_crc32c, batch.columns)
    store.write([entry])
    store.close()


async def fill(folder: Path) -> int:
    """Fill a folder with the mailboxes ``bad`` and ``good``; return the vchannel id of ``bad``."""
    async with running_server(folder) as server, mailbox_stub(server) as stub:
        await create(stub, "bad")
        await create(stub, "good")
        await stub.Send(pb.SendRequest(mailbox="bad", bodies=[BODY]))
        for _ in range(3):
            await stub.Send(pb.SendRequest(mailbox="bad", bodies=[b"later"]))
        await stub.Send(pb.SendRequest(mailbox="good", bodies=[b"fine"]))
        return server._node.mailboxes.find("bad")[1].vchannel.vchannel_id


@pytest.mark.parametrize("damage", [flip, contradict, cut_short, unknown])
async def test_a_damaged_mailbox_is_reported_and_the_others_are_served(
    tmp_path: Path, damage: Callable[[Path, int], None]
) -> None:
    folder = tmp_path / "log"
    damage(folder, await fill(folder))
    async with running_server(folder) as server, mailbox_stub(server) as stub:
        # Found in the background, without a call.
        await eventually(lambda: samples(server), lambda found: found["mailboxes_unloadable", ""] == 1)
        assert not any(server._readiness().values())
        for call in calls_on(stub, "bad"):
            assert await reason_of(call) == "REASON_DATA_LOSS"
        assert [each.name for each in (await stub.ListMailboxes(pb.ListMailboxesRequest())).mailboxes] == [
            "bad", "good",
        ]  # fmt: skip
        assert await counts(stub, "good") == (1, 0, 0, 0)
        assert [each.body for each in await fetch(stub, "good")] == [b"fine"]

        # The way out if the messages may be lost.
        await stub.DeleteMailbox(pb.DeleteMailboxRequest(name="bad"))
        assert (await samples(server))["mailboxes_unloadable", ""] == 0
        await create(stub, "bad")
        await stub.Send(pb.SendRequest(mailbox="bad", bodies=[b"new"]))
        assert [each.body for each in await fetch(stub, "bad")] == [b"new"]


def calls_on(stub: Any, name: str) -> list[Any]:
    return [
        stub.DescribeMailbox(pb.DescribeMailboxRequest(name=name)),
        stub.Send(pb.SendRequest(mailbox=name, bodies=[b"x"])),
        stub.Fetch(pb.FetchRequest(mailbox=name)),
        stub.Peek(pb.PeekRequest(mailbox=name)),
        stub.PurgeMailbox(pb.PurgeMailboxRequest(name=name)),
    ]


async def test_dead_letters_for_a_damaged_mailbox_are_kept_where_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    vchannel_id = await fill(folder)
    contradict(folder, vchannel_id)
    async with running_server(folder) as server, mailbox_stub(server) as stub:
        await create(stub, "jobs", max_deliveries=1, dead_letter="bad")
        await stub.Send(pb.SendRequest(mailbox="jobs", bodies=[b"poison"]))
        [delivery] = await fetch(stub, "jobs")
        rejection = pb.Rejection(lock_id=delivery.lock_id)
        await stub.AckDeliveries(pb.AckDeliveriesRequest(mailbox="jobs", rejected=[rejection]))
        assert await counts(stub, "jobs") == (0, 0, 0, 1)
        # Without the mailbox for dead letters, the next step keeps the message as a dead one.
        settings = pb.MailboxSettings(dead_letter="")
        await stub.ConfigureMailbox(pb.ConfigureMailboxRequest(name="jobs", settings=settings))
        assert await counts(stub, "jobs") == (0, 0, 0, 1)
        [dead] = (await stub.Peek(pb.PeekRequest(mailbox="jobs", state=pb.MESSAGE_STATE_DEAD))).messages
        assert dead.body == b"poison"
