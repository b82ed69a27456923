"""Bodies of messages that are blobs: sent, delivered, moved, counted and deleted with their messages.

Method: a real server with a log on disk, called through the generated stubs. Collection is started by the test.
"""

import asyncio
import hashlib
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from tidelog import AsyncClient, AsyncDelivery, Client, OutgoingMessage
from tidelog.mailboxes.deliveries import DeliveryFields
from tidelog.v1 import blob_service_pb2 as blob_pb
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_cli.child_environment import child_environment
from tidelog_server.app import Server
from tidelog_server.backup.folder import open_backup_folder
from tidelog_server.blobs.store import Blobs
from tidelog_server.fold import keeping
from tidelog_server.fold.calls import Call
from tidelog_server.rpc.services.blobs import MAX_BLOB_BYTES
from tidelog_server.rpc.services.mailboxes.bodies import MIN_BLOB_BODY_BYTES
from tidelog_testing.parts.backups import restore_until, take
from tidelog_testing.parts.grpc_calls import Client as Calls
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.servers.commands import COMMAND
from tidelog_testing.servers.secured import secured_server

LARGE = bytes(range(256)) * 400
HUGE = bytes(range(255)) * (MAX_BLOB_BYTES // 255)
KEY = hashlib.sha256(LARGE).digest()


class Mailboxes:
    """A server with the mailboxes ``jobs``, whose dead letters go to ``dead``, and its stubs."""

    def __init__(self, server: Server, channel: grpc.aio.Channel) -> None:
        self.server = server
        self.stub, self.blob_stub = Calls(channel).mailboxes, Calls(channel).blobs

    @property
    def blobs(self) -> Blobs:
        assert self.server._node.opened_mailboxes is not None
        return self.server._node.opened_mailboxes.blobs

    async def create(self) -> None:
        await self.stub.CreateMailbox(pb.CreateMailboxRequest(name="dead", if_not_exists=True))
        settings = pb.MailboxSettings(max_deliveries=1, dead_letter="dead", max_body_bytes=MAX_BLOB_BYTES)
        await self.stub.CreateMailbox(pb.CreateMailboxRequest(name="jobs", settings=settings, if_not_exists=True))

    async def send(self, *bodies: bytes, mailbox: str = "jobs") -> list[int]:
        return list((await self.stub.Send(pb.SendRequest(mailbox=mailbox, bodies=bodies))).ids)

    async def fetch(self, mailbox: str = "jobs", **options: Any) -> list[Any]:
        request = pb.FetchRequest(mailbox=mailbox, **{"max_messages": 10, "max_bytes": 4 << 20, **options})
        return list((await self.stub.Fetch(request)).deliveries)

    async def ack(self, *deliveries: Any, mailbox: str = "jobs") -> None:
        confirmed = [delivery.lock_id for delivery in deliveries]
        answer = await self.stub.AckDeliveries(pb.AckDeliveriesRequest(mailbox=mailbox, confirmed=confirmed))
        assert not answer.failures

    async def messages_of(self, key: bytes = KEY) -> int:
        return int((await self.blob_stub.DescribeBlob(blob_pb.DescribeBlobRequest(key=key))).messages)

    async def collect(self) -> list[bytes]:
        """Delete all idle blobs; return the keys of those that are left."""
        self.blobs._grace_ticks = 0
        await self.blobs.keep()
        return list(self.blobs.state.blobs)


@asynccontextmanager
async def mailboxes(folder: Path) -> AsyncIterator[Mailboxes]:
    async with running_server(folder) as server, grpc.aio.insecure_channel(server.grpc_endpoint) as channel:
        running = Mailboxes(server, channel)
        await running.create()
        yield running


async def test_messages_of_one_client_stay_in_order_while_the_place_for_blobs_is_made(tmp_path: Path) -> None:
    """The first large body of a node waits for it."""
    async with running_server(tmp_path) as server, AsyncClient(server.grpc_endpoint) as client:
        await client.mailboxes.create("jobs")
        jobs = client.mailbox("jobs")
        bodies = [LARGE, b"second", LARGE + b"third", b"fourth"]
        await asyncio.gather(*map(jobs.send, bodies))

        assert [each.body for each in await jobs.peek(max_messages=4)] == bodies


async def test_a_large_body_is_a_blob_until_its_message_is_confirmed(tmp_path: Path) -> None:
    async with mailboxes(tmp_path) as at:
        await at.send(b"small", LARGE, bytes(MIN_BLOB_BODY_BYTES))
        small, large, limit = await at.fetch()
        assert [delivery.body for delivery in (small, large, limit)] == [b"small", LARGE, bytes(MIN_BLOB_BODY_BYTES)]
        assert (large.blob_key, large.blob_bytes, large.blob_is_missing) == (KEY, len(LARGE), False)
        assert (small.blob_key, limit.blob_key) == (b"", b"")
        assert await at.messages_of() == 1
        assert await at.collect() == [KEY]
        await at.ack(small, large, limit)
        assert await at.messages_of() == 0
        assert await at.collect() == []


async def test_messages_share_a_blob_and_keep_it_whatever_callers_count(tmp_path: Path) -> None:
    async with mailboxes(tmp_path) as at:
        await at.send(LARGE, LARGE)
        await at.send(LARGE, mailbox="dead")
        await at.blob_stub.UpdateBlobRefCount(blob_pb.UpdateBlobRefCountRequest(key=KEY, delta=-5))
        assert await at.messages_of() == 3
        assert await at.collect() == [KEY]
        await at.stub.PurgeMailbox(pb.PurgeMailboxRequest(name="jobs"))
        assert await at.messages_of() == 1
        assert await at.collect() == [KEY]
        await at.stub.DeleteMailbox(pb.DeleteMailboxRequest(name="jobs"))
        [left] = await at.fetch("dead")
        assert left.body == LARGE
        await at.stub.DeleteMailbox(pb.DeleteMailboxRequest(name="dead"))
        assert await at.collect() == []


async def test_references_follow_from_the_mailboxes_after_a_restart(tmp_path: Path) -> None:
    async with mailboxes(tmp_path) as at:
        await at.send(LARGE, LARGE + b"2")
        [first, _] = await at.fetch(lease_ms=60_000)
        opened = at.server._node.opened_mailboxes
        assert opened is not None
        await opened.housekeeper.keep(await opened.open("jobs"))
    async with mailboxes(tmp_path) as at:
        # The mailboxes are loaded in the background: nothing is deleted before.
        opened = at.server._node.opened_mailboxes
        assert opened is not None
        await opened.open("dead")
        await opened.open("jobs")
        assert await at.messages_of() == 1
        await at.ack(first)
        assert await at.collect() == [hashlib.sha256(LARGE + b"2").digest()]


async def test_nothing_is_deleted_while_a_mailbox_is_not_loaded(tmp_path: Path) -> None:
    async with mailboxes(tmp_path) as at:
        await at.send(LARGE)
        opened = at.server._node.opened_mailboxes
        assert opened is not None
        opened._unread = {"jobs"}
        opened.blobs.live.count(KEY, -1)
        assert await at.collect() == [KEY]
        opened._unread = set()
        opened.blobs._grace_ticks = 0
        opened.blobs.live.count(KEY, 1)


async def test_a_stored_blob_is_sent_by_its_key(tmp_path: Path) -> None:
    async with mailboxes(tmp_path) as at, AsyncClient(at.server.grpc_endpoint) as client:
        key = await client.blobs.put(HUGE)
        message = pb.OutgoingMessage(blob_key=key, headers={"kind": "huge"})
        await at.stub.Send(pb.SendRequest(mailbox="jobs", messages=[message]))
        assert await at.collect() == [key]
        [delivery] = await at.fetch()
        # Too large for a delivery: the client reads it, and needs nothing but the lock.
        assert (delivery.body, delivery.blob_key, delivery.blob_bytes) == (b"", key, len(HUGE))
        request = blob_pb.GetBlobRequest(key=key, mailbox="jobs", lock_id=delivery.lock_id)
        assert b"".join([part.data async for part in at.blob_stub.GetBlob(request)]) == HUGE
        await at.ack(delivery)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            _ = [part async for part in at.blob_stub.GetBlob(request)]
        assert "LOCK_UNKNOWN" in str(refused.value.trailing_metadata()) or refused.value.code().name == "NOT_FOUND"


@pytest.mark.parametrize(
    "message",
    [
        pb.OutgoingMessage(blob_key=bytes(32)),
        pb.OutgoingMessage(body=b"x", blob_key=KEY),
    ],
)
async def test_keys_of_unknown_blobs_and_second_bodies_are_refused(tmp_path: Path, message: pb.OutgoingMessage) -> None:
    async with mailboxes(tmp_path) as at:
        await at.send(LARGE)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await at.stub.Send(pb.SendRequest(mailbox="jobs", messages=[message]))
        expected = grpc.StatusCode.INVALID_ARGUMENT if message.body else grpc.StatusCode.NOT_FOUND
        assert refused.value.code() == expected
        assert await at.messages_of() == 1


async def test_a_message_whose_blob_is_missing_is_delivered_and_stays_leased(tmp_path: Path) -> None:
    async with mailboxes(tmp_path) as at:
        await at.send(LARGE, b"other")
        log = await at.blobs.create()
        await log.run(Call(lambda step: step.collect([KEY]), 1))
        missing, other = await at.fetch(lease_ms=60_000)
        assert (missing.body, missing.blob_is_missing, missing.blob_key) == (b"", True, KEY)
        assert (other.body, other.blob_is_missing) == (b"other", False)
        assert await at.fetch() == []
        await at.send(LARGE, mailbox="dead")
        await at.ack(missing, other)


async def test_dead_letters_redrives_and_peeks_keep_the_body(tmp_path: Path) -> None:
    async with mailboxes(tmp_path) as at:
        await at.send(LARGE)
        [delivery] = await at.fetch()
        rejected = [pb.Rejection(lock_id=delivery.lock_id)]
        await at.stub.AckDeliveries(pb.AckDeliveriesRequest(mailbox="jobs", rejected=rejected))
        [dead] = await at.fetch("dead", wait_ms=10_000, lease_ms=60_000)
        assert (dead.body, dead.dead_letter.mailbox) == (LARGE, "jobs")
        assert await at.messages_of() == 1
        [peeked] = (await at.stub.Peek(pb.PeekRequest(mailbox="dead"))).messages
        assert (peeked.body, peeked.blob_key, peeked.header.body_bytes) == (LARGE, KEY, len(LARGE))
        await at.stub.Reenqueue(pb.ReenqueueRequest(mailbox="dead", ids=[dead.id]))
        assert [answer async for answer in at.stub.Redrive(pb.RedriveRequest(mailbox="dead"))]
        assert await at.collect() == [KEY]
        [again] = await at.fetch()
        assert again.body == LARGE
        await at.ack(again)
        assert await at.collect() == []


async def test_expired_messages_release_their_blobs(tmp_path: Path) -> None:
    async with mailboxes(tmp_path) as at:
        message = pb.OutgoingMessage(body=LARGE, ttl_ms=1)
        await at.stub.Send(pb.SendRequest(mailbox="jobs", messages=[message]))
        assert await at.fetch(wait_ms=50) == []
        assert await at.messages_of() == 0


async def test_housekeeping_does_not_count_blobs_as_content_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "CLEAN_ABOVE_BYTES", 0)
    monkeypatch.setattr(keeping, "TRIM_ABOVE_BYTES", 0)
    async with mailboxes(tmp_path) as at:
        await at.send(*[LARGE] * 3)
        opened = at.server._node.opened_mailboxes
        assert opened is not None
        log = await opened.open("jobs")
        for _ in range(50):
            await at.send(bytes(60_000))
        taken = await at.fetch(max_messages=1_000, lease_ms=60_000)
        await at.ack(*taken[3:])
        await opened.housekeeper.keep(log)
        # The messages with blobs were copied: the small ones behind them are trimmed.
        assert log.place.vchannel.trim_tick > taken[2].id
        assert [delivery.body for delivery in taken[:3]] == [LARGE] * 3
    async with mailboxes(tmp_path) as at:
        await at.ack(*taken[:3])


async def test_the_stream_of_operations_carries_large_bodies_in_order(tmp_path: Path) -> None:
    async with mailboxes(tmp_path) as at:
        sends = [pb.SendRequest(mailbox="jobs", bodies=[body]) for body in (LARGE, b"small", LARGE + b"3")]
        calls = [pb.Operation(number=number, send=send) for number, send in enumerate(sends)]
        for operation in calls:
            call = at.stub.Operate(iter([pb.OperateRequest(operations=[operation])]))
            assert [result.number async for answer in call for result in answer.results] == [operation.number]
        fetch = pb.Operation(number=9, fetch=pb.FetchRequest(mailbox="jobs", max_messages=10))
        call = at.stub.Operate(iter([pb.OperateRequest(operations=[fetch])]))
        [result] = [result async for answer in call for result in answer.results]
        assert [delivery.body for delivery in result.fetched.deliveries] == [LARGE, b"small", LARGE + b"3"]
        assert [bool(delivery.blob_key) for delivery in result.fetched.deliveries] == [True, False, True]


async def test_a_transaction_sends_a_large_body(tmp_path: Path) -> None:
    async with mailboxes(tmp_path) as at, AsyncClient(at.server.grpc_endpoint) as client:
        async with client.txn() as txn:
            txn.send("jobs", LARGE)
            txn.send("dead", LARGE)
        assert await at.messages_of() == 2
        [delivery] = await at.fetch()
        assert delivery.body == LARGE


async def test_the_permissions_on_a_mailbox_suffice_for_its_bodies(tmp_path: Path) -> None:
    async with secured_server(tmp_path) as secured:
        async with secured.client() as client:
            await client.mailboxes.create("jobs")
            await client.mailboxes.create("other")
        token = await secured.token("mailbox.send:jobs", "mailbox.receive:jobs")
        async with secured.client(token) as client:
            stub = client._transport().services.blobs
            metadata = client._transport().metadata()

            async def put(mailbox: str) -> Any:
                call = stub.PutBlob(iter([blob_pb.PutBlobRequest(data=LARGE, mailbox=mailbox)]), metadata=metadata)
                return [answer async for answer in call]

            assert (await put("jobs"))[0].key == KEY
            for refused in ("other", ""):
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await put(refused)
                assert error.value.code() == grpc.StatusCode.PERMISSION_DENIED
            mailbox = client.mailbox("jobs")
            await mailbox.send(LARGE)
            [delivery] = await mailbox.fetch()

            async def get(**where: Any) -> bytes:
                call = stub.GetBlob(blob_pb.GetBlobRequest(key=KEY, **where), metadata=metadata)
                return b"".join([part.data async for part in call])

            assert await get(mailbox="jobs", lock_id=delivery.lock) == LARGE
            with pytest.raises(grpc.aio.AioRpcError) as unread:
                await get(mailbox="jobs", message_id=delivery.id)
            assert unread.value.code() == grpc.StatusCode.PERMISSION_DENIED
            codes = {
                grpc.StatusCode.PERMISSION_DENIED: [{}, {"mailbox": "other", "lock_id": delivery.lock}],
                grpc.StatusCode.NOT_FOUND: [{"mailbox": "jobs", "lock_id": bytes(20)}],
            }
            for code, wheres in codes.items():
                for where in wheres:
                    with pytest.raises(grpc.aio.AioRpcError) as error:
                        await get(**where)
                    assert error.value.code() == code


async def test_the_client_sends_and_fetches_bodies_of_any_size(tmp_path: Path) -> None:
    async with mailboxes(tmp_path) as at, AsyncClient(at.server.grpc_endpoint) as client:
        mailbox = client.mailbox("jobs")
        middle = LARGE * 45
        await mailbox.send(HUGE, headers={"kind": "huge"})
        await mailbox.send_many([b"small", middle, OutgoingMessage(middle + b"2", priority=1)])
        bodies: dict[bytes, dict[str, str]] = {}
        while deliveries := await mailbox.fetch(10, lease=60.0):
            bodies |= {delivery.body: dict(delivery.headers) for delivery in deliveries}
            assert not any(delivery.is_body_missing for delivery in deliveries)
            await mailbox.ack_many(deliveries)
        assert bodies == {middle + b"2": {}, HUGE: {"kind": "huge"}, b"small": {}, middle: {}}
        assert await at.collect() == []


async def test_the_client_delivers_a_message_whose_body_is_missing(tmp_path: Path) -> None:
    async with mailboxes(tmp_path) as at, AsyncClient(at.server.grpc_endpoint) as client:
        mailbox = client.mailbox("jobs")
        key = await client.blobs.put(HUGE)
        await mailbox.send_many([OutgoingMessage(b"", blob_key=key)])
        log = await at.blobs.create()
        await log.run(Call(lambda step: step.collect([key]), 1))
        [delivery] = await mailbox.fetch()
        assert (delivery.body, delivery.is_body_missing) == (b"", True)
        await delivery.ack()


async def test_the_client_peeks_at_bodies_beyond_those_of_an_answer(tmp_path: Path) -> None:
    bodies = [bytes([number]) * (3 << 20) for number in range(3)] + [b"small", bytes(5 << 20)]
    async with mailboxes(tmp_path) as at, AsyncClient(at.server.grpc_endpoint) as client:
        mailbox = client.mailbox("jobs")
        for body in bodies:
            await mailbox.send(body)
        peeked = await mailbox.peek()
        assert [each.body for each in peeked] == bodies
        assert not any(each.is_body_missing for each in peeked)
        missing = hashlib.sha256(bodies[2]).digest()
        log = await at.blobs.create()
        await log.run(Call(lambda step: step.collect([missing]), 1))
        assert [(each.body, each.is_body_missing) for each in await mailbox.peek()] == [
            (b"", True) if body == bodies[2] else (body, False) for body in bodies
        ]
        # The id of a message permits the body of that message, and no other.
        request = blob_pb.GetBlobRequest(key=missing, mailbox="jobs", message_id=peeked[0].header.id)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            _ = [part async for part in at.blob_stub.GetBlob(request)]
        assert refused.value.code() == grpc.StatusCode.NOT_FOUND
        request.lock_id = b"x" * 20
        with pytest.raises(grpc.aio.AioRpcError) as both:
            _ = [part async for part in at.blob_stub.GetBlob(request)]
        assert both.value.code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("form", ["handler", "loop", "threads"])
async def test_a_worker_does_not_confirm_a_message_whose_body_is_missing(tmp_path: Path, form: str) -> None:
    async with mailboxes(tmp_path) as at, AsyncClient(at.server.grpc_endpoint) as client:
        await client.mailboxes.create("work")
        mailbox = client.mailbox("work")
        key = await client.blobs.put(LARGE)
        [sent] = await mailbox.send_many([OutgoingMessage(b"", blob_key=key)])
        log = await at.blobs.create()
        await log.run(Call(lambda step: step.collect([key]), 1))
        seen: list[tuple[int, bytes, bool]] = []
        running, came_twice = asyncio.get_running_loop(), asyncio.Event()

        def note(delivery: DeliveryFields) -> None:
            seen.append((delivery.id, delivery.body, delivery.is_body_missing))
            if len(seen) == 2:
                running.call_soon_threadsafe(came_twice.set)

        async def handle(delivery: AsyncDelivery) -> None:
            note(delivery)

        async def loop() -> None:
            async for delivery in mailbox.worker():
                note(delivery)

        def in_thread() -> None:
            with Client(at.server.grpc_endpoint) as blocking, blocking.mailbox("work").worker() as worker:
                for delivery in worker:
                    note(delivery)
                    if len(seen) == 2:
                        return

        forms: dict[str, Callable[[], Awaitable[None]]] = {
            "handler": lambda: mailbox.work(handle), "loop": loop, "threads": lambda: asyncio.to_thread(in_thread),
        }  # fmt: skip
        task = asyncio.ensure_future(forms[form]())
        await asyncio.wait_for(came_twice.wait(), 20)
        task.cancel()
        await asyncio.wait([task])

        assert seen[:2] == [(sent.id, b"", True)] * 2
        # A worker returns what it holds in the background; ``ack`` deletes the message.
        [delivery] = await mailbox.fetch(wait=20)
        await delivery.ack()
        assert (await mailbox.counts()).leased == 0


async def test_the_command_does_not_confirm_a_message_whose_body_is_missing(tmp_path: Path) -> None:
    async with mailboxes(tmp_path) as at:
        await at.send(LARGE, b"other")
        log = await at.blobs.create()
        await log.run(Call(lambda step: step.collect([KEY]), 1))
        command = ("mailbox", "fetch", "jobs", "-n", "2", "--lease", "1m", "--ack")
        program = await asyncio.create_subprocess_exec(
            *COMMAND, *command, "--endpoint", at.server.grpc_endpoint,
            stdout=PIPE, stderr=PIPE, env=child_environment(),
        )  # fmt: skip
        printed, noted = await program.communicate()
        assert (program.returncode, len(printed.splitlines())) == (0, 2)
        assert b"the bodies of 1 messages are missing" in noted
        described = await at.stub.DescribeMailbox(pb.DescribeMailboxRequest(name="jobs"))
        assert described.counts.leased == 1


async def test_the_synchronous_client_sends_and_fetches_a_huge_body(tmp_path: Path) -> None:
    def use(endpoint: str) -> None:
        with Client(endpoint) as client:
            client.mailbox("jobs").send(HUGE)
            [delivery] = client.mailbox("jobs").fetch()
            assert delivery.body == HUGE
            delivery.ack()

    async with mailboxes(tmp_path) as at:
        await asyncio.to_thread(use, at.server.grpc_endpoint)


@pytest.mark.not_on_engine(reason="restores a backup")
async def test_a_restore_to_a_tick_has_a_message_with_its_body_or_neither(tmp_path: Path) -> None:
    backups = open_backup_folder(tmp_path / "backups", create=True)
    async with mailboxes(tmp_path / "log") as at:
        await at.send(b"before")
        [sent] = await at.send(LARGE)
        [later] = await at.send(b"later")
        manifest = await take(at.server, backups)
    for number, (tick, expected) in enumerate(((sent, [b"before"]), (later - 1, [b"before", LARGE]))):
        restored = tmp_path / f"restored{number}"
        await restore_until(backups.data_path(manifest.backup_id), restored, tick)
        async with mailboxes(restored) as at:
            assert [delivery.body for delivery in await at.fetch()] == expected
            assert list(at.blobs.state.blobs) == ([KEY] if LARGE in expected else [])
