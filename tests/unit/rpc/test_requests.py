"""Requests with many small parts are refused before they are parsed, and a transaction is read up to its limits only.

Method: Python function calls are counted; requests are as large as the transport takes.
"""

from collections.abc import Callable

import pytest

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
)
from tidelog_server.log.batch import AppendOptions
from tidelog_server.rpc.requests import check_fields, check_size
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
