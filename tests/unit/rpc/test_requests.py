"""Requests with many small parts are refused before they are parsed, and a transaction is read up to its limits only.

Method: Python function calls are counted; requests are as large as the transport takes.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from google.protobuf.message import Message

from tidelog.v1 import mailbox_service_pb2 as mailboxes
from tidelog.v1 import message_pb2
from tidelog.v1 import transaction_service_pb2 as transactions
from tidelog.v1 import wal_service_pb2 as wal
from tidelog_server.core.errors import BatchTooLargeError, InvalidRequestError
from tidelog_server.core.limits import (
    MAX_ADMIN_REQUEST_BYTES,
    MAX_COMMITS_PER_TXN,
    MAX_DENSE_REQUEST_BYTES,
    MAX_LARGE_REQUEST_FIELDS,
    MAX_MAILBOX_BATCH,
    MAX_TXN_BATCHES,
    MAX_TXN_VCHANNELS,
    MIB,
    PARSE_STEP_BYTES,
    PARSE_STEP_FIELDS,
)
from tidelog_server.log.batch import AppendOptions
from tidelog_server.rpc.requests import check_fields, check_size, merge_in_steps
from tidelog_server.rpc.services.inline_transactions import TransactionRequest, check_shape, parse_transaction
from tidelog_server.security.permissions import ROWS
from tidelog_testing.parts.work import Counted

MANY = 300_000


async def calls_of(function: Callable[[], object]) -> int:
    """Return the function calls of ``function``."""

    async def run() -> None:
        function()

    counted = Counted(run())
    await counted
    return counted.calls


async def turns_during(work: Coroutine[Any, Any, None]) -> int:
    """Return the turns that other work on the event loop has while ``work`` runs."""
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    await work
    counting.cancel()
    return turns


@pytest.mark.parametrize(
    ("request_", "at_least"),
    [
        (mailboxes.OperateRequest(operations=[mailboxes.Operation()] * MANY), MANY // PARSE_STEP_FIELDS),
        (
            mailboxes.OperateRequest(
                operations=[
                    mailboxes.Operation(send=mailboxes.SendRequest(messages=[mailboxes.OutgoingMessage()] * MANY))
                ]
            ),
            MANY // PARSE_STEP_FIELDS,
        ),
        (mailboxes.SendRequest(mailbox="jobs", messages=[mailboxes.OutgoingMessage(headers={"a": ""})] * 100_000), 3),
        # A header and a body are each in one piece.
        (mailboxes.SendRequest(messages=[mailboxes.OutgoingMessage(headers={"a": "x" * MIB}, body=bytes(MIB))]), 2),
    ],
    ids=["operations", "messages of one", "headers", "large parts"],
)
async def test_a_request_is_parsed_in_bounded_steps(request_: Message, at_least: int) -> None:
    encoded, parsed = request_.SerializeToString(), type(request_)()
    assert len(encoded) > 2 * PARSE_STEP_BYTES
    turns = await turns_during(merge_in_steps(encoded, parsed))
    assert parsed == request_
    assert turns >= at_least


async def test_a_dense_message_within_a_large_request_is_refused() -> None:
    send = mailboxes.SendRequest(messages=[mailboxes.OutgoingMessage()] * (3 * MANY))
    encoded = mailboxes.OperateRequest(operations=[mailboxes.Operation(send=send)]).SerializeToString()
    assert len(encoded) > MAX_DENSE_REQUEST_BYTES

    async def refused() -> None:
        with pytest.raises(InvalidRequestError, match="use several requests"):
            await merge_in_steps(encoded, mailboxes.OperateRequest())

    counted = Counted(refused())
    await counted
    assert counted.calls < 4 * MAX_LARGE_REQUEST_FIELDS


async def test_a_large_request_has_a_bounded_number_of_fields() -> None:
    many = transactions.CommitTxnRequest(sends=[mailboxes.SendRequest(mailbox="jobs")] * MANY).SerializeToString()
    assert len(many) > MAX_DENSE_REQUEST_BYTES

    def check() -> None:
        with pytest.raises(InvalidRequestError, match="use several requests"):
            check_fields(many)

    assert await calls_of(check) < 4 * MAX_LARGE_REQUEST_FIELDS
    # Few large parts, and many small ones of a request that is parsed quickly.
    check_fields(mailboxes.SendRequest(mailbox="jobs", bodies=[bytes(MIB)] * 4).SerializeToString())
    check_fields(mailboxes.SendRequest(mailbox="jobs", bodies=[b"x"] * 100_000).SerializeToString())


def test_the_size_of_other_requests_has_a_bound() -> None:
    """Calls that are written to the audit log have a smaller one; those that carry messages have that of the fields."""
    assert ROWS["tidelog.v1.ChannelService/DescribeChannels"].max_request_bytes == MAX_DENSE_REQUEST_BYTES
    assert ROWS["tidelog.v1.MailboxService/ConfigureMailbox"].max_request_bytes == MAX_ADMIN_REQUEST_BYTES
    assert ROWS["tidelog.v1.GroupService/SeekGroup"].max_request_bytes == MAX_DENSE_REQUEST_BYTES
    assert {name.rpartition("/")[2] for name, row in ROWS.items() if row.large} == {
        "Append", "CommitTxn", "Broadcast", "ApplyJournals", "Send",
    }  # fmt: skip
    check_size(bytes(10), 10)
    with pytest.raises(InvalidRequestError, match="the request has 11 bytes, at most 10 are allowed"):
        check_size(bytes(11), 10)


@pytest.mark.parametrize(
    "transaction",
    [
        wal.Transaction(parts=[wal.TransactionPart(vchannel="orders")] * MANY),
        wal.Transaction(parts=[wal.TransactionPart(vchannel="orders", batches=[message_pb2.Columns()] * MANY)]),
        wal.Transaction(positions=[wal.PositionCommit(group="readers")] * MANY),
    ],
    ids=["parts", "batches", "positions"],
)
async def test_a_transaction_is_read_up_to_its_limits(transaction: wal.Transaction) -> None:
    encoded, found = memoryview(transaction.SerializeToString()), TransactionRequest()

    assert await calls_of(lambda: parse_transaction(encoded, found)) < 8 * MAX_TXN_BATCHES
    assert len(found.parts) <= MAX_TXN_VCHANNELS + 1
    assert len(found.positions) <= MAX_COMMITS_PER_TXN + 1
    if found.parts:
        with pytest.raises((InvalidRequestError, BatchTooLargeError)):
            check_shape(found.parts, AppendOptions(needs_sync=True), len(encoded), len(encoded))


def test_sends_and_acknowledgements_of_a_transaction_have_a_bound() -> None:
    send = mailboxes.SendRequest(mailbox="jobs")
    encoded = wal.Transaction(sends=[send] * (2 * MAX_MAILBOX_BATCH + 1)).SerializeToString()
    with pytest.raises(InvalidRequestError, match="more than 2000 sends and acknowledgements"):
        parse_transaction(memoryview(encoded), TransactionRequest())


@pytest.mark.parametrize("sends", [1, 30])
async def test_dense_sends_of_a_transaction_are_refused_before_they_are_parsed(sends: int) -> None:
    send = mailboxes.SendRequest(messages=[mailboxes.OutgoingMessage()] * (4 * MANY // sends))
    encoded = memoryview(wal.Transaction(sends=[send] * sends).SerializeToString())
    transaction = TransactionRequest()

    def parse() -> None:
        with pytest.raises(InvalidRequestError, match="use several transactions"):
            parse_transaction(encoded, transaction)

    assert await calls_of(parse) < 4 * MAX_LARGE_REQUEST_FIELDS
    assert sum(send.ByteSize() for send in transaction.sends) <= PARSE_STEP_BYTES


def test_large_messages_of_a_transaction_are_parsed() -> None:
    send = mailboxes.SendRequest(mailbox="jobs", messages=[mailboxes.OutgoingMessage(body=bytes(4_000))] * 100)
    expected = wal.Transaction(sends=[send] * 10)
    transaction = TransactionRequest()
    parse_transaction(memoryview(expected.SerializeToString()), transaction)
    assert transaction.sends == list(expected.sends)
