"""A transaction appends, sends and acknowledges all or nothing, in one request or staged.

Method: a real server with a log on disk, called through the generated stubs; a restart shows what is durable.

Promises of docs/reference/guarantees.md: G52.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

import tidelog
from tidelog import AsyncClient
from tidelog.v1 import error_pb2
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog.v1 import transaction_service_pb2 as txn_pb
from tidelog.v1 import wal_service_pb2 as wal_pb
from tidelog.wire.column_message import columns_to_wire
from tidelog.wire.columns import encode_payloads
from tidelog_testing.parts.grpc_calls import Client, running_server


class Peer:
    """The stubs of one server, and a client for what is not under test."""

    def __init__(self, channel: grpc.aio.Channel, client: AsyncClient) -> None:
        calls = Client(channel)
        self.mailboxes, self.transactions, self.wal, self.client = (
            calls.mailboxes,
            calls.transactions,
            calls.wal,
            client,
        )

    async def fetch(self, mailbox: str = "jobs") -> list[Any]:
        """Fetch all messages."""
        return list((await self.mailboxes.Fetch(pb.FetchRequest(mailbox=mailbox, max_messages=100))).deliveries)

    async def send(self, *bodies: bytes) -> None:
        """Send messages to jobs."""
        await self.mailboxes.Send(pb.SendRequest(mailbox="jobs", bodies=bodies))

    async def payloads(self) -> list[bytes]:
        """Read all results."""
        return [payload async for batch in self.client.scan("results/0") for payload in batch.payloads]

    async def counts(self, mailbox: str) -> tuple[int, int]:
        """Return the available and the leased messages."""
        found = (await self.mailboxes.DescribeMailbox(pb.DescribeMailboxRequest(name=mailbox))).counts
        return found.available, found.leased

    async def append(self, transaction: wal_pb.Transaction) -> wal_pb.AppendStreamResponse:
        """Send a transaction in one request."""
        call = self.wal.AppendStream()
        await call.write(wal_pb.AppendStreamRequest(request_id=1, transaction=transaction))
        answer: wal_pb.AppendStreamResponse = await call.read()
        await call.done_writing()
        return answer


@asynccontextmanager
async def peer(folder: Path) -> AsyncIterator[Peer]:
    """Yield a server with the mailboxes jobs and next, and the channel results."""
    async with (
        running_server(folder) as server,
        grpc.aio.insecure_channel(server.grpc_endpoint) as channel,
        AsyncClient(server.grpc_endpoint) as client,
    ):
        for name in ("jobs", "next"):
            await client.mailboxes.create(name, if_not_exists=True)
        await client.create_channel("results", if_not_exists=True)
        yield Peer(channel, client)


def result_part(payload: bytes) -> wal_pb.TransactionPart:
    return wal_pb.TransactionPart(vchannel="results/0", batches=[columns_to_wire(encode_payloads([payload]))])


def work(lock_id: bytes, *, body: bytes = b"follow-up") -> dict[str, Any]:
    """Return an acknowledgement of a job, and a message to the next mailbox."""
    return {
        "sends": [pb.SendRequest(mailbox="next", bodies=[body])],
        "acks": [pb.AckDeliveriesRequest(mailbox="jobs", confirmed=[lock_id])],
    }


async def test_a_result_an_acknowledgement_and_a_message_commit_together(tmp_path: Path) -> None:
    async with peer(tmp_path) as one:
        await one.send(b"job")
        [job] = await one.fetch()
        answer = await one.append(wal_pb.Transaction(parts=[result_part(b"result")], **work(job.lock_id)))
        assert answer.WhichOneof("answer") == "transaction"
        [sent] = answer.transaction.sent
    async with peer(tmp_path) as one:
        assert await one.payloads() == [b"result"]
        assert await one.counts("jobs") == (0, 0)
        [follow_up] = await one.fetch("next")
        assert (follow_up.id, follow_up.body) == (sent.ids[0], b"follow-up")


async def test_a_refused_acknowledgement_refuses_the_whole_transaction(tmp_path: Path) -> None:
    async with peer(tmp_path) as one:
        await one.send(b"job")
        [job] = await one.fetch()
        await one.mailboxes.Reenqueue(pb.ReenqueueRequest(mailbox="jobs", ids=[job.id]))
        answer = await one.append(wal_pb.Transaction(parts=[result_part(b"result")], **work(job.lock_id)))

        assert answer.error.detail.reason == error_pb2.REASON_LOCK_EXPIRED
        assert await one.payloads() == []
        assert await one.counts("jobs") == (1, 0)
        assert await one.counts("next") == (0, 0)


async def test_a_refused_append_acknowledges_nothing(tmp_path: Path) -> None:
    async with peer(tmp_path) as one:
        await one.send(b"job")
        [job] = await one.fetch()
        part = result_part(b"result")
        part.expected_last_tick = 1
        answer = await one.append(wal_pb.Transaction(parts=[part], **work(job.lock_id)))

        assert answer.error.detail.reason == error_pb2.REASON_LAST_TICK_MISMATCH
        assert await one.counts("jobs") == (0, 1)
        assert await one.counts("next") == (0, 0)


@pytest.mark.parametrize("has_messages", [True, False])
async def test_a_staged_transaction_acknowledges_and_sends_once_however_often_it_is_committed(
    tmp_path: Path, *, has_messages: bool
) -> None:
    async with peer(tmp_path) as one:
        await one.send(b"job")
        [job] = await one.fetch()
        begun = await one.transactions.BeginTxn(txn_pb.BeginTxnRequest())
        if has_messages:
            options = wal_pb.AppendOptions(txn_id=begun.txn_id)
            columns = columns_to_wire(encode_payloads([b"result"]))
            call = one.wal.AppendStream()
            await call.write(wal_pb.AppendStreamRequest(vchannel="results/0", columns=columns, options=options))
            await call.read()
            await call.done_writing()
        commit = txn_pb.CommitTxnRequest(txn_id=begun.txn_id, **work(job.lock_id))
        first = await one.transactions.CommitTxn(commit)
        again = await one.transactions.CommitTxn(commit)

        assert [list(each.ids) for each in first.result.sent] == [[follow.id for follow in await one.fetch("next")]]
        assert not again.result.sent
        assert await one.payloads() == [b"result"] * has_messages
        assert await one.counts("jobs") == (0, 0)


async def test_an_acknowledgement_that_a_transaction_names_twice_is_refused(tmp_path: Path) -> None:
    async with peer(tmp_path) as one:
        await one.send(b"job")
        [job] = await one.fetch()
        ack = pb.AckDeliveriesRequest(mailbox="jobs", confirmed=[job.lock_id])
        answer = await one.append(wal_pb.Transaction(parts=[result_part(b"result")], acks=[ack, ack]))
        assert answer.error.detail.reason == error_pb2.REASON_ALREADY_ACKNOWLEDGED
        assert await one.counts("jobs") == (0, 1)


@dataclass
class Job:
    """A delivery as transactions of the client need it."""

    mailbox: str
    lock: bytes
    is_settled: bool = False


async def test_the_clients_transaction_commits_results_acknowledgements_and_messages(tmp_path: Path) -> None:
    async with peer(tmp_path) as one:
        await one.send(b"first", b"second")
        first, second = (Job("jobs", delivery.lock_id) for delivery in await one.fetch())
        async with one.client.txn() as txn:
            await txn.append("results/0", [b"1", b"2"])
            txn.ack(first)
            txn.ack(second)
            txn.send("next", b"follow-up")
        assert [first.is_settled, second.is_settled] == [True, True]
        assert await one.payloads() == [b"1", b"2"]
        assert await one.counts("jobs") == (0, 0)
        [follow_up] = await one.fetch("next")
        assert txn.result.sent == {"next": (follow_up.id,)}


async def test_the_clients_transaction_may_consist_of_mailboxes_alone(tmp_path: Path) -> None:
    async with peer(tmp_path) as one:
        await one.send(b"job")
        [delivery] = await one.fetch()
        async with one.client.txn() as txn:
            txn.ack(Job("jobs", delivery.lock_id))
            with pytest.raises(TypeError, match="the message is str, expected bytes or an OutgoingMessage"):
                txn.send("next", "text")  # type: ignore[arg-type]  # the claim
            txn.send("next", b"follow-up")
        [follow_up] = await one.fetch("next")
        assert (txn.result.sent, txn.result.results) == ({"next": (follow_up.id,)}, {})
        assert await one.counts("jobs") == (0, 0)


async def test_the_clients_transaction_is_refused_once_a_lease_is_lost(tmp_path: Path) -> None:
    async with peer(tmp_path) as one:
        await one.send(b"job")
        [delivery] = await one.fetch()
        job = Job("jobs", delivery.lock_id)
        txn = one.client.txn()
        await txn.append("results/0", b"result")
        txn.ack(job)
        with pytest.raises(tidelog.InvalidRequestError, match="twice"):
            txn.ack(job)
        await one.mailboxes.Reenqueue(pb.ReenqueueRequest(mailbox="jobs", ids=[delivery.id]))
        with pytest.raises(tidelog.LockExpiredError):
            await txn.commit()
        await txn.rollback()
        assert not job.is_settled
        assert await one.payloads() == []
        assert await one.counts("jobs") == (1, 0)
