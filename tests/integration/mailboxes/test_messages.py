"""Messages of mailboxes through the protocol: sending, leases, acknowledgements, dead letters, transactions.

Method: a real server with a log on disk, called through the generated stubs.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from tidelog.v1 import error_pb2
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_testing.parts.grpc_calls import Client, running_server
from tidelog_testing.parts.mailbox_calls import counts, fetch


@asynccontextmanager
async def mailbox_stub(folder: Path, **settings: Any) -> AsyncIterator[Any]:
    """Yield the stub of a server on ``folder`` with the mailboxes ``jobs``, which has ``settings``, and ``dead``."""
    async with running_server(folder) as server, grpc.aio.insecure_channel(server.grpc_endpoint) as channel:
        stub = Client(channel).mailboxes
        await stub.CreateMailbox(pb.CreateMailboxRequest(name="dead", if_not_exists=True))
        wanted = pb.MailboxSettings(**settings)
        await stub.CreateMailbox(pb.CreateMailboxRequest(name="jobs", settings=wanted, if_not_exists=True))
        yield stub


async def test_a_message_is_delivered_with_what_it_was_sent_with_and_confirmed_once(tmp_path: Path) -> None:
    async with mailbox_stub(tmp_path) as stub:
        message = pb.OutgoingMessage(body=b"job", headers={"kind": "resize"}, priority=3, group="photos")
        sent = await stub.Send(pb.SendRequest(mailbox="jobs", messages=[message]))
        [delivery] = await fetch(stub, "jobs")

        assert (delivery.id, delivery.body, delivery.delivery_count) == (sent.ids[0], b"job", 1)
        assert (dict(delivery.headers), delivery.priority, delivery.group) == ({"kind": "resize"}, 3, "photos")
        assert delivery.status == pb.DELIVERY_STATUS_NOT_DELIVERED
        assert len(delivery.lock_id) == 20
        assert await fetch(stub, "jobs") == []
        confirm = pb.AckDeliveriesRequest(mailbox="jobs", confirmed=[delivery.lock_id])
        assert not (await stub.AckDeliveries(confirm)).failures
        [failure] = (await stub.AckDeliveries(confirm)).failures
        assert failure.error.detail.reason == error_pb2.REASON_ALREADY_ACKNOWLEDGED
        assert await counts(stub, "jobs") == (0, 0, 0, 0)


async def test_a_message_that_is_rejected_too_often_moves_to_the_mailbox_for_dead_letters_and_back(
    tmp_path: Path,
) -> None:
    async with mailbox_stub(tmp_path, max_deliveries=2, dead_letter="dead") as stub:
        await stub.Send(pb.SendRequest(mailbox="jobs", bodies=[b"poison"]))
        for attempt in (1, 2):
            [delivery] = await fetch(stub, "jobs", wait_ms=5_000)
            assert delivery.delivery_count == attempt
            reject = pb.AckDeliveriesRequest(mailbox="jobs", rejected=[pb.Rejection(lock_id=delivery.lock_id)])
            assert not (await stub.AckDeliveries(reject)).failures
        [letter] = await fetch(stub, "dead", wait_ms=5_000)

        assert letter.body == b"poison"
        assert (letter.dead_letter.mailbox, letter.dead_letter.delivery_count) == ("jobs", 2)
        assert await counts(stub, "jobs") == (0, 0, 0, 0)
        await stub.AckDeliveries(
            pb.AckDeliveriesRequest(mailbox="dead", rejected=[pb.Rejection(lock_id=letter.lock_id)])
        )
        progress = [each async for each in stub.Redrive(pb.RedriveRequest(mailbox="dead"))]
        assert (progress[-1].moved, progress[-1].total) == (1, 1)
        assert await counts(stub, "dead") == (0, 0, 0, 0)
        [again] = await fetch(stub, "jobs")
        assert (again.body, again.delivery_count) == (b"poison", 1)


async def test_a_waiting_fetch_gets_a_message_as_soon_as_it_is_sent(tmp_path: Path) -> None:
    async with mailbox_stub(tmp_path) as stub:
        waiting = stub.Fetch(pb.FetchRequest(mailbox="jobs", wait_ms=30_000))
        await stub.Send(pb.SendRequest(mailbox="jobs", bodies=[b"job"]))
        assert [each.body for each in (await waiting).deliveries] == [b"job"]


async def test_operations_of_a_stream_are_answered_by_number(tmp_path: Path) -> None:
    async with mailbox_stub(tmp_path) as stub:
        call = stub.Operate()
        send = pb.SendRequest(mailbox="jobs", bodies=[b"a", b"b"])
        await call.write(
            pb.OperateRequest(
                operations=[
                    pb.Operation(number=7, send=send),
                    pb.Operation(number=8, fetch=pb.FetchRequest(mailbox="jobs", max_messages=2)),
                    pb.Operation(number=9, send=pb.SendRequest(mailbox="nowhere", bodies=[b"c"])),
                ]
            )
        )
        results: dict[int, Any] = {}
        while len(results) < 3:
            results |= {each.number: each for each in (await call.read()).results}
        assert [each.body for each in results[8].fetched.deliveries] == [b"a", b"b"]
        assert list(results[7].sent.ids) == [each.id for each in results[8].fetched.deliveries]
        assert results[9].error.detail.reason == error_pb2.REASON_MAILBOX_NOT_EXIST
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (pb.SendRequest(mailbox="nowhere", bodies=[b"a"]), error_pb2.REASON_MAILBOX_NOT_EXIST),
        (pb.SendRequest(mailbox="jobs"), error_pb2.REASON_INVALID_ARGUMENT),
        (pb.SendRequest(mailbox="jobs", bodies=[b"a" * 1_001]), error_pb2.REASON_BODY_TOO_LARGE),
        (
            pb.SendRequest(mailbox="jobs", messages=[pb.OutgoingMessage(body=b"a", delay_ms=-1)]),
            error_pb2.REASON_INVALID_DELAY,
        ),
        (pb.SendRequest(mailbox="jobs", bodies=[b"a"] * 3), error_pb2.REASON_MAILBOX_FULL),
        (pb.FetchRequest(mailbox="jobs", lease_ms=60_001), error_pb2.REASON_LEASE_TOO_LONG),
    ],
)
async def test_a_bad_request_is_refused_with_its_own_reason(tmp_path: Path, request_: Any, reason: int) -> None:
    async with mailbox_stub(tmp_path, max_body_bytes=1_000, max_messages=2, max_lease_ms=60_000) as stub:
        method = stub.Send if isinstance(request_, pb.SendRequest) else stub.Fetch
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await method(request_)
        details = dict(refused.value.trailing_metadata() or ())["grpc-status-details-bin"]
        detail = error_pb2.ErrorDetail()
        assert error_pb2.RpcStatus.FromString(details).details[0].Unpack(detail)
        assert (detail.reason, detail.effect) == (reason, error_pb2.EFFECT_NONE)
        assert await counts(stub, "jobs") == (0, 0, 0, 0)


async def test_a_stream_delivers_as_many_messages_as_may_be_in_flight(tmp_path: Path) -> None:
    async with mailbox_stub(tmp_path) as stub:
        stream = stub.StreamDeliveries(pb.StreamDeliveriesRequest(mailbox="jobs", max_in_flight=3))
        await stub.Send(pb.SendRequest(mailbox="jobs", bodies=[b"%d" % number for number in range(8)]))
        delivered: list[Any] = []
        while len(delivered) < 3:
            delivered += (await stream.read()).deliveries
        assert [each.body for each in delivered] == [b"0", b"1", b"2"]
        assert await counts(stub, "jobs") == (5, 0, 3, 0)

        confirm = pb.AckDeliveriesRequest(mailbox="jobs", confirmed=[each.lock_id for each in delivered[:2]])
        await stub.AckDeliveries(confirm)
        while len(delivered) < 5:
            delivered += (await stream.read()).deliveries
        assert [each.body for each in delivered[3:]] == [b"3", b"4"]
        assert await counts(stub, "jobs") == (3, 0, 3, 0)
        stream.cancel()


async def test_a_stream_gets_messages_that_are_sent_later_and_those_whose_leases_end(tmp_path: Path) -> None:
    async with mailbox_stub(tmp_path) as stub:
        stream = stub.StreamDeliveries(pb.StreamDeliveriesRequest(mailbox="jobs", max_in_flight=1, lease_ms=200))
        await stub.Send(pb.SendRequest(mailbox="jobs", bodies=[b"job"]))
        [first] = (await stream.read()).deliveries
        [again] = (await stream.read()).deliveries
        assert (first.id, first.delivery_count, again.id, again.delivery_count) == (first.id, 1, first.id, 2)
        assert again.status == pb.DELIVERY_STATUS_TIMEOUT
        stream.cancel()


async def test_headers_and_messages_are_listed_in_pages_without_leases(tmp_path: Path) -> None:
    async with mailbox_stub(tmp_path) as stub:
        sent = await stub.Send(pb.SendRequest(mailbox="jobs", bodies=[b"%d" % number for number in range(5)]))
        await stub.Send(pb.SendRequest(mailbox="jobs", messages=[pb.OutgoingMessage(body=b"late", delay_ms=60_000)]))
        [leased] = await fetch(stub, "jobs", max_messages=1)
        first = await stub.FetchHeaders(pb.FetchHeadersRequest(mailbox="jobs", max_messages=2))
        rest = await stub.FetchHeaders(pb.FetchHeadersRequest(mailbox="jobs", after_id=first.headers[-1].id))

        assert leased.id == sent.ids[0]
        assert [each.id for each in (*first.headers, *rest.headers)] == list(sent.ids[1:])
        assert {each.state for each in rest.headers} == {pb.MESSAGE_STATE_AVAILABLE}
        late = await stub.Peek(pb.PeekRequest(mailbox="jobs", state=pb.MESSAGE_STATE_DELAYED))
        assert [each.body for each in late.messages] == [b"late"]
        everything = await stub.Peek(pb.PeekRequest(mailbox="jobs"))
        assert [each.body for each in everything.messages] == [b"0", b"1", b"2", b"3", b"4", b"late"]
        assert await counts(stub, "jobs") == (4, 1, 1, 0)


async def test_a_paused_mailbox_accepts_and_confirms_but_delivers_nothing(tmp_path: Path) -> None:
    async with mailbox_stub(tmp_path) as stub:
        await stub.Send(pb.SendRequest(mailbox="jobs", bodies=[b"before", b"leased"]))
        [leased] = await fetch(stub, "jobs", max_messages=1)
        await stub.PauseMailbox(pb.PauseMailboxRequest(name="jobs"))
        waiting = stub.Fetch(pb.FetchRequest(mailbox="jobs", max_messages=9, wait_ms=30_000))
        await stub.Send(pb.SendRequest(mailbox="jobs", bodies=[b"after"]))
        confirm = pb.AckDeliveriesRequest(mailbox="jobs", confirmed=[leased.lock_id])
        assert not (await stub.AckDeliveries(confirm)).failures
        assert await fetch(stub, "jobs") == []
        assert await counts(stub, "jobs") == (2, 0, 0, 0)
        await stub.ResumeMailbox(pb.ResumeMailboxRequest(name="jobs"))
        assert [each.body for each in (await waiting).deliveries] == [b"leased", b"after"]


async def test_a_purge_deletes_leased_messages_too(tmp_path: Path) -> None:
    async with mailbox_stub(tmp_path) as stub:
        await stub.Send(pb.SendRequest(mailbox="jobs", bodies=[b"a", b"b", b"c"]))
        [leased] = await fetch(stub, "jobs", max_messages=1)
        assert (await stub.PurgeMailbox(pb.PurgeMailboxRequest(name="jobs"))).messages == 3
        assert await counts(stub, "jobs") == (0, 0, 0, 0)
        confirm = pb.AckDeliveriesRequest(mailbox="jobs", confirmed=[leased.lock_id])
        [failure] = (await stub.AckDeliveries(confirm)).failures
        assert failure.error.detail.reason == error_pb2.REASON_LOCK_EXPIRED
