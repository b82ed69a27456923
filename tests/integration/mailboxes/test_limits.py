"""Limits of mailboxes: each is kept at its value and refused beyond it, for a mailbox, a principal and the node.

Method: a real server, in part with authentication, called through the generated stubs and the client.

Promises of docs/reference/guarantees.md: G54.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

import tidelog
from tidelog import MailboxSettings
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog.v1 import wal_service_pb2 as wal_pb
from tidelog.wire.column_message import columns_to_wire
from tidelog.wire.columns import encode_payloads
from tidelog_server.blobs.state import blob_memory_bytes
from tidelog_server.core.limits import BLOB_TENANT_MEMORY_BYTES, DEDUP_KEY_MEMORY_BYTES, LOCK_BYTES, MAX_MAILBOX_BATCH
from tidelog_server.mailboxes import bounds, mailbox
from tidelog_server.rpc.services.mailboxes.bodies import MIN_BLOB_BODY_BYTES
from tidelog_server.rpc.services.mailboxes.calls import MAX_FETCH_BYTES, MAX_FETCH_WAIT_MS
from tidelog_testing.parts.grpc_calls import Client as Calls
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.parts.mailbox_calls import acknowledge, counts, create, fetch, mailbox_stub, reason_of, samples
from tidelog_testing.parts.waiting import eventually
from tidelog_testing.servers.secured import ONCE, Secured, secured_server

INVALID, LIMITED = "REASON_INVALID_ARGUMENT", "REASON_RATE_LIMIT_REJECTED"


def send(stub: Any, name: str, count: int) -> Any:
    return stub.Send(pb.SendRequest(mailbox=name, bodies=[b"x"] * count))


async def test_the_messages_of_all_mailboxes_are_bounded(tmp_path: Path) -> None:
    async with running_server(tmp_path, limits__max_mailbox_messages=5) as server, mailbox_stub(server) as stub:
        await create(stub, "dead")
        await create(stub, "a", max_deliveries=1, dead_letter="dead")
        await create(stub, "b")
        await send(stub, "a", 3)
        assert await reason_of(send(stub, "b", 3)) == LIMITED
        keyed = [pb.OutgoingMessage(body=b"x", dedup_key="k")]
        await stub.Send(pb.SendRequest(mailbox="b", messages=keyed))
        await send(stub, "b", 1)
        assert await reason_of(send(stub, "a", 1)) == LIMITED
        assert await counts(stub, "a") == (3, 0, 0, 0)
        # A duplicate adds nothing, and dead letters must not be lost.
        assert (await stub.Send(pb.SendRequest(mailbox="b", messages=keyed))).duplicates == [0]
        first, second = await fetch(stub, "a", max_messages=2)
        await acknowledge(stub, "a", rejected=[first.lock_id])
        await eventually(lambda: counts(stub, "dead"), lambda found: found[0] == 1)
        assert await reason_of(send(stub, "b", 1)) == LIMITED
        await acknowledge(stub, "a", confirmed=[second.lock_id])
        await send(stub, "b", 1)
        assert await reason_of(send(stub, "b", 1)) == LIMITED
    async with running_server(tmp_path, limits__max_mailbox_messages=5) as server, mailbox_stub(server) as stub:
        await eventually(lambda: samples(server), lambda found: found["mailboxes_open", ""] == 3)
        assert await reason_of(send(stub, "b", 1)) == LIMITED
        await stub.PurgeMailbox(pb.PurgeMailboxRequest(name="dead"))
        await send(stub, "b", 1)
        await stub.DeleteMailbox(pb.DeleteMailboxRequest(name="b"))
        await send(stub, "a", 4)
        assert await reason_of(send(stub, "a", 1)) == LIMITED


async def test_a_transaction_beyond_the_bound_does_nothing(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path, limits__max_mailbox_messages=2) as server,
        tidelog.AsyncClient(server.grpc_endpoint) as client,
        grpc.aio.insecure_channel(server.grpc_endpoint) as channel,
    ):
        await client.create_channel("results")
        await client.mailboxes.create("jobs")
        part = wal_pb.TransactionPart(vchannel="results/0", batches=[columns_to_wire(encode_payloads([b"result"]))])
        call = Calls(channel).wal.AppendStream()
        for count, message in ((3, "would hold 3 messages, at most 2"), (2, "")):
            sends = [pb.SendRequest(mailbox="jobs", bodies=[b"x"] * count)]
            transaction = wal_pb.Transaction(parts=[part], sends=sends)
            await call.write(wal_pb.AppendStreamRequest(request_id=1, transaction=transaction))
            assert message in (await call.read()).error.message
        await call.done_writing()
        assert len([each async for each in client.scan("results/0")]) == 1


def keyed(numbers: Iterable[int]) -> list[pb.OutgoingMessage]:
    return [pb.OutgoingMessage(dedup_key=f"{number}".rjust(256, "x")) for number in numbers]


async def test_remembered_keys_are_within_the_memory_of_mailboxes_also_after_a_restart(tmp_path: Path) -> None:
    limit_bytes, sent = 100_000, 0
    async with (
        running_server(tmp_path, limits__max_mailbox_memory_bytes=limit_bytes) as server,
        mailbox_stub(server) as stub,
    ):
        await create(stub, "a")
        await create(stub, "b")
        for _ in range(5):
            # Purged messages leave their keys.
            while not await reason_of(stub.Send(pb.SendRequest(mailbox="a", messages=keyed(range(sent, sent + 10))))):
                sent += 10
            await stub.PurgeMailbox(pb.PurgeMailboxRequest(name="a"))
        assert limit_bytes * 0.9 < sent * DEDUP_KEY_MEMORY_BYTES <= limit_bytes
        assert await reason_of(send(stub, "b", 100)) == LIMITED
        await send(stub, "b", 5)
    async with running_server(tmp_path, limits__max_mailbox_memory_bytes=2_000) as server, mailbox_stub(server) as stub:
        await eventually(lambda: samples(server), lambda found: found["mailboxes_open", ""] == 2)
        assert (await samples(server))["mailbox_memory_bytes", ""] > 0.9 * limit_bytes
        # What is there is served, and nothing is added.
        assert await reason_of(send(stub, "b", 1)) == LIMITED
        again = await stub.Send(pb.SendRequest(mailbox="a", messages=keyed([0, sent - 1])))
        assert again.duplicates == [0, 1]
        deliveries = await fetch(stub, "b", max_messages=5)
        await acknowledge(stub, "b", confirmed=[each.lock_id for each in deliveries])
        assert await counts(stub, "b") == (0, 0, 0, 0)
        await stub.DeleteMailbox(pb.DeleteMailboxRequest(name="a"))
        await send(stub, "b", 1)


async def test_blobs_are_within_the_memory_of_mailboxes_also_after_a_restart(tmp_path: Path) -> None:
    one_blob, limit_bytes = blob_memory_bytes(1), 20_000
    async with (
        running_server(tmp_path, limits__max_mailbox_memory_bytes=limit_bytes) as server,
        mailbox_stub(server) as stub,
        tidelog.AsyncClient(server.grpc_endpoint, retry=ONCE) as client,
    ):
        await create(stub, "a")
        keys = [await client.blobs.put(b"%d" % number) for number in range(limit_bytes // one_blob)]
        assert (await samples(server))["mailbox_memory_bytes", ""] == len(keys) * one_blob
        refused = r"would take \d+ bytes of memory, at most 20000 .* or raise limits.max_mailbox_memory_bytes"
        with pytest.raises(tidelog.OverloadedError, match=refused):
            await client.blobs.put(b"further")
        with pytest.raises(tidelog.OverloadedError, match=refused):
            await client.mailbox("a").send(bytes(MIN_BLOB_BODY_BYTES + 1))
        # What is stored already takes nothing further.
        assert await client.blobs.put(b"0") == keys[0]
        assert await client.blobs.update_ref_count(keys[0], 1) == 1
    async with (
        running_server(tmp_path, limits__max_mailbox_memory_bytes=1_000) as server,
        mailbox_stub(server) as stub,
        tidelog.AsyncClient(server.grpc_endpoint) as client,
    ):
        assert await client.blobs.get(keys[1]) == b"1"
        assert (await samples(server))["mailbox_memory_bytes", ""] == len(keys) * one_blob
        assert await reason_of(send(stub, "a", 1)) == LIMITED
        opened = server._node.opened_mailboxes
        assert opened is not None
        await eventually(lambda: samples(server), lambda found: found["mailboxes_open", ""] == 1)
        opened.blobs._grace_ticks = 0
        await opened.blobs.keep()
        # One has a reference.
        assert (await samples(server))["mailbox_memory_bytes", ""] == one_blob
        await send(stub, "a", 1)


async def test_bodies_of_one_send_are_within_the_memory_together(tmp_path: Path) -> None:
    body, limit_bytes = bytes(MIN_BLOB_BODY_BYTES), 3 * blob_memory_bytes(1)
    async with (
        running_server(tmp_path, limits__max_mailbox_memory_bytes=limit_bytes) as server,
        mailbox_stub(server) as stub,
    ):
        await create(stub, "a")
        bodies = [body + b"%d" % number for number in range(3)]
        assert await reason_of(stub.Send(pb.SendRequest(mailbox="a", bodies=bodies))) == LIMITED
        assert (await samples(server))["mailbox_memory_bytes", ""] == 0
        # Equal bodies are one blob.
        await stub.Send(pb.SendRequest(mailbox="a", bodies=bodies[:1] * 3))


async def test_memory_of_blobs_counts_to_who_stored_them(tmp_path: Path) -> None:
    async with secured_server(tmp_path, limits__max_mailbox_memory_bytes=20_000) as secured:
        ann, bob = [secured.client(await secured.token("blob.put", "blob.get"), retry=ONCE) for _ in range(2)]
        async with ann, bob:
            keys = []
            with pytest.raises(tidelog.OverloadedError, match=r"this principal uses .*, and for its blobs; with"):
                for number in range(100):
                    keys.append(await ann.blobs.put(b"%d" % number))
            one_blob = blob_memory_bytes(1) + BLOB_TENANT_MEMORY_BYTES
            assert len(keys) == 10_000 // one_blob
            await bob.blobs.put(b"bob's")
            # One that others have stored, too.
            assert await bob.blobs.update_ref_count(keys[0], 1) == 1
            assert (await samples(secured.server))["mailbox_memory_bytes", ""] == (
                (len(keys) + 1) * one_blob + BLOB_TENANT_MEMORY_BYTES
            )


async def test_an_idle_mailbox_forgets_its_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "_FORGET_TICKS", 0)
    async with running_server(tmp_path) as server, mailbox_stub(server) as stub:
        await create(stub, "a", dedup_window_ms=1_000)
        for first in (0, 1_000):
            await stub.Send(pb.SendRequest(mailbox="a", messages=keyed(range(first, first + 1_000))))
        await stub.PurgeMailbox(pb.PurgeMailboxRequest(name="a"))
        assert (await samples(server))["mailbox_memory_bytes", ""] > 0
        await eventually(lambda: samples(server), lambda found: found["mailbox_memory_bytes", ""] == 0)


async def test_memory_counts_to_who_created_the_mailbox(tmp_path: Path) -> None:
    async with (
        secured_server(tmp_path, limits__max_mailbox_memory_bytes=100_000) as secured,
        await worker(secured) as ann,
        await worker(secured) as bob,
    ):
        await ann.mailboxes.create("anns")
        await bob.mailboxes.create("bobs")
        with pytest.raises(
            tidelog.OverloadedError, match=r"this principal uses .* bytes of memory for messages, keys and"
        ):
            for number in range(1_000):
                # A name takes four bytes for each character.
                group = f"{number}\U0001f30a".rjust(200, "x")
                await ann.mailbox("anns").send_many([tidelog.OutgoingMessage(b"", group=group, dedup_key=group)])
        assert 30 < (await ann.mailbox("anns").counts()).available < 60
        await bob.mailbox("bobs").send_many([b""] * 200)


async def worker(secured: Secured) -> tidelog.AsyncClient:
    token = await secured.token("mailbox.manage:*", "mailbox.send:*", "mailbox.receive:*")
    return secured.client(token, retry=ONCE)


async def test_messages_count_to_who_created_the_mailbox(tmp_path: Path) -> None:
    async with (
        secured_server(tmp_path, limits__max_mailbox_messages=100) as secured,
        await worker(secured) as ann,
        await worker(secured) as bob,
    ):
        await ann.mailboxes.create("anns")
        await bob.mailboxes.create("bobs")
        await ann.mailbox("anns").send_many([b"x"] * 50)
        for sender in (ann, bob):
            with pytest.raises(tidelog.OverloadedError, match="this principal uses 50 messages"):
                await sender.mailbox("anns").send(b"x")
        await ann.mailbox("bobs").send_many([b"x"] * 25)
        with pytest.raises(tidelog.OverloadedError, match="this principal uses 25 messages"):
            await bob.mailbox("bobs").send(b"x")
        for delivery in await ann.mailbox("anns").fetch(10):
            await delivery.ack()
        await bob.mailbox("bobs").send(b"x")


async def test_waiting_fetches_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_WAITING_FETCHES", 2)
    async with running_server(tmp_path) as server, mailbox_stub(server) as stub:
        await create(stub, "a")
        await create(stub, "b")
        waiting = [asyncio.ensure_future(wait(stub, name)) for name in ("a", "b")]
        await eventually(lambda: samples(server), lambda found: found["mailbox_waiting_fetches", ""] == 2)
        assert await reason_of(wait(stub, "a")) == LIMITED
        assert await fetch(stub, "a") == []
        operation = pb.Operation(number=1, fetch=pb.FetchRequest(mailbox="b", wait_ms=10_000))
        call = stub.Operate()
        await call.write(pb.OperateRequest(operations=[operation]))
        [result] = (await call.read()).results
        assert "fetches would wait" in result.error.message
        call.cancel()
        waiting.pop().cancel()
        await eventually(lambda: samples(server), lambda found: found["mailbox_waiting_fetches", ""] == 1)
        waiting.append(asyncio.ensure_future(wait(stub, "a")))
        await eventually(lambda: samples(server), lambda found: found["mailbox_waiting_fetches", ""] == 2)
        await send(stub, "a", 2)
        assert [len((await each).deliveries) for each in waiting] == [1, 1]


def wait(stub: Any, name: str) -> Any:
    return stub.Fetch(pb.FetchRequest(mailbox=name, wait_ms=60_000))


async def test_a_principal_has_a_share_of_waiting_fetches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_WAITING_FETCHES", 4)
    async with secured_server(tmp_path) as secured, secured.client() as client, secured.channel() as channel:
        await client.mailboxes.create("a")
        stub = Calls(channel).mailboxes
        ann, bob = [(("authorization", f"Bearer {await secured.token('mailbox.receive:*')}"),) for _ in range(2)]
        request = pb.FetchRequest(mailbox="a", wait_ms=60_000)
        waiting = [asyncio.ensure_future(stub.Fetch(request, metadata=ann)) for _ in range(2)]
        await eventually(lambda: samples(secured.server), lambda found: found["mailbox_waiting_fetches", ""] == 2)
        assert await reason_of(stub.Fetch(request, metadata=ann)) == LIMITED
        waiting.append(asyncio.ensure_future(stub.Fetch(request, metadata=bob)))
        await eventually(lambda: samples(secured.server), lambda found: found["mailbox_waiting_fetches", ""] == 3)
        await client.mailbox("a").send_many([b"x"] * 3)
        assert [len((await each).deliveries) for each in waiting] == [1, 1, 1]


async def test_requests_at_their_limits_are_served_and_beyond_them_refused(tmp_path: Path) -> None:
    locks, ids = [bytes(LOCK_BYTES)] * (MAX_MAILBOX_BATCH + 1), range(1, MAX_MAILBOX_BATCH + 2)
    async with running_server(tmp_path) as server, mailbox_stub(server) as stub:
        await create(stub, "a")
        await send(stub, "a", MAX_MAILBOX_BATCH)
        assert await reason_of(send(stub, "a", MAX_MAILBOX_BATCH + 1)) == INVALID
        for method, build in (
            (stub.Fetch, lambda more: pb.FetchRequest(mailbox="a", max_messages=MAX_MAILBOX_BATCH + more)),
            (stub.Fetch, lambda more: pb.FetchRequest(mailbox="a", max_bytes=MAX_FETCH_BYTES + more)),
            (stub.Fetch, lambda more: pb.FetchRequest(mailbox="a", wait_ms=MAX_FETCH_WAIT_MS + more)),
            (
                stub.FetchHeaders,
                lambda more: pb.FetchHeadersRequest(mailbox="a", max_messages=MAX_MAILBOX_BATCH + more),
            ),
            (stub.Peek, lambda more: pb.PeekRequest(mailbox="a", max_messages=100 + more)),
            (stub.AckDeliveries, lambda more: pb.AckDeliveriesRequest(mailbox="a", confirmed=locks[1 - more :])),
            (stub.Extend, lambda more: pb.ExtendRequest(mailbox="a", lock_ids=locks[1 - more :])),
            (stub.Reenqueue, lambda more: pb.ReenqueueRequest(mailbox="a", ids=ids[1 - more :])),
        ):
            # The last send leaves a message for each fetch, so that none waits.
            await send(stub, "a", 1)
            assert await reason_of(method(build(0))) == ""
            assert await reason_of(method(build(1))) == INVALID


async def test_a_mailbox_leases_no_more_messages_than_its_limit(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, tidelog.AsyncClient(server.grpc_endpoint) as client:
        await client.mailboxes.create("a", MailboxSettings(max_in_flight=3))
        mailbox = client.mailbox("a")
        await mailbox.send_many([b"x"] * 5)
        first = await mailbox.fetch(5)
        assert len(first) == 3
        assert await mailbox.fetch(5) == []
        await first[0].ack()
        assert len(await mailbox.fetch(5)) == 1
