"""Requests with many small parts are refused before they are parsed, and a transaction is read up to its limits only.

Method: Python function calls are counted; requests are as large as the transport takes.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from google.protobuf.message import Message

from tidelog.v1 import mailbox_service_pb2 as mailboxes
from tidelog.v1 import message_pb2
from tidelog.v1 import transaction_service_pb2 as transactions
from tidelog.v1 import wal_service_pb2 as wal
from tidelog.wire import protowire
from tidelog_server.core.errors import BatchTooLargeError, InvalidRequestError
from tidelog_server.core.limits import (
    MAX_COMMITS_PER_TXN,
    MAX_DENSE_REQUEST_BYTES,
    MAX_LARGE_REQUEST_FIELDS,
    MAX_MAILBOX_BATCH,
    MAX_TXN_VCHANNELS,
    MIB,
    PARSE_STEP_BYTES,
    READ_STEP_BYTES,
)
from tidelog_server.core.message_checks import MAX_MESSAGE_HEADERS
from tidelog_server.log.batch import AppendOptions
from tidelog_server.rpc.columns.view import ColumnsView
from tidelog_server.rpc.requests import PARSE_STEP_FIELDS, check_fields, check_size, merge_in_steps
from tidelog_server.rpc.services.append import MAX_COLUMNS_FIELDS
from tidelog_server.rpc.services.append_requests import (
    MAX_APPENDS_PER_REQUEST,
    MAX_TXN_BATCHES,
    MAX_TXN_FIELDS,
    TransactionRequest,
    check_shape,
    parse_in_steps,
    parse_transaction,
)
from tidelog_server.rpc.services.mailboxes.conversions import outgoings_of
from tidelog_server.security.permissions import MAX_ADMIN_REQUEST_BYTES, ROWS
from tidelog_testing.parts.batches import a_columns
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


# Functions: a worker that runs other tests does not make them.
LARGE: dict[str, tuple[Callable[[], Message], int]] = {
    "operations": (
        lambda: mailboxes.OperateRequest(operations=[mailboxes.Operation()] * MANY), MANY // PARSE_STEP_FIELDS
    ),
    "messages of one": (
        lambda: mailboxes.OperateRequest(
            operations=[
                mailboxes.Operation(send=mailboxes.SendRequest(messages=[mailboxes.OutgoingMessage()] * MANY))
            ]
        ),
        MANY // PARSE_STEP_FIELDS,
    ),
    "headers": (
        lambda: mailboxes.SendRequest(
            mailbox="jobs", messages=[mailboxes.OutgoingMessage(headers={"a": ""})] * 100_000
        ),
        3,
    ),
    # A header and a body are each in one piece.
    "large parts": (
        lambda: mailboxes.SendRequest(
            messages=[mailboxes.OutgoingMessage(headers={"a": "x" * MIB}, body=bytes(MIB))]
        ),
        2,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("request_of", "at_least"), LARGE.values(), ids=LARGE)
async def test_a_request_is_parsed_in_bounded_steps(request_of: Callable[[], Message], at_least: int) -> None:
    request = request_of()
    encoded, parsed = request.SerializeToString(), type(request)()
    assert len(encoded) > 2 * PARSE_STEP_BYTES
    turns = await turns_during(merge_in_steps(encoded, parsed))
    assert parsed == request
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


@pytest.mark.parametrize(
    ("message", "messages"),
    [
        (mailboxes.OutgoingMessage(body=bytes(4_000)), 100),
        # 4.9 MB of small parts.
        (mailboxes.OutgoingMessage(headers={str(number): "" for number in range(600)}), 90),
    ],
    ids=["bodies", "headers"],
)
async def test_large_messages_of_a_transaction_are_parsed_in_bounded_steps(
    message: mailboxes.OutgoingMessage, messages: int
) -> None:
    send = mailboxes.SendRequest(mailbox="jobs", messages=[message] * messages)
    expected = wal.Transaction(sends=[send] * 10, acks=[mailboxes.AckDeliveriesRequest(mailbox="jobs")])
    encoded, transaction = expected.SerializeToString(), TransactionRequest()

    parse_transaction(memoryview(encoded), transaction)
    assert sum(send.ByteSize() for send in transaction.sends) <= PARSE_STEP_BYTES
    turns = await turns_during(transaction.complete())
    assert transaction.sends == list(expected.sends)
    assert transaction.acks == list(expected.acks)
    assert turns >= len(encoded) // PARSE_STEP_BYTES


def test_too_many_headers_are_refused_before_they_are_converted() -> None:
    dense = mailboxes.OutgoingMessage(headers={str(number): "" for number in range(MAX_MESSAGE_HEADERS + 1)})

    def messages() -> Iterator[mailboxes.OutgoingMessage]:
        yield mailboxes.OutgoingMessage(headers={"a": ""})
        yield dense
        pytest.fail("the messages after it were read")

    with pytest.raises(InvalidRequestError, match="message 1 has 65 headers, at most 64 are allowed"):
        list(outgoings_of(messages()))


async def test_a_small_message_of_a_transaction_is_parsed_at_once() -> None:
    expected = wal.Transaction(sends=[mailboxes.SendRequest(mailbox="jobs", bodies=[b"x"])] * 1_000)
    transaction = TransactionRequest()

    parse_transaction(memoryview(expected.SerializeToString()), transaction)
    assert transaction.sends == list(expected.sends)


def message_of(*path: int, content: bytes) -> bytes:
    """Return a message with ``content`` in a field of this number, in one of that number, and so on."""
    for number in reversed(path):
        content = protowire.key_of(number, protowire.LENGTH) + protowire.varint(len(content)) + content
    return content


@pytest.mark.parametrize(
    "encoded",
    [
        # Numbers of fields: 1 request_id, 2 vchannel, 3 columns, 4 options, 5 transaction, 6 more. 100 is unknown.
        pytest.param(protowire.varint_field(protowire.tag_of(1, protowire.VARINT), 1) * MANY, id="numbers"),
        pytest.param(message_of(2, content=b"") * MANY, id="names"),
        pytest.param(message_of(3, content=b"") * MANY, id="parts of a batch"),
        pytest.param(message_of(4, content=b"") * MANY, id="options"),
        pytest.param(message_of(5, content=b"") * MANY, id="transactions"),
        pytest.param(message_of(100, content=b"") * MANY, id="unknown"),
        pytest.param(message_of(5, content=message_of(100, content=b"") * MANY), id="unknown ones of a transaction"),
        pytest.param(message_of(5, 1, content=message_of(100, content=b"") * MANY), id="unknown ones of a part"),
        pytest.param(message_of(5, 1, content=message_of(1, content=b"") * MANY), id="names of a part"),
        pytest.param(
            message_of(5, content=message_of(1, content=message_of(1, content=b"") * 200) * 200), id="parts together"
        ),
    ],
)
async def test_the_fields_of_an_append_are_read_up_to_a_limit(encoded: bytes) -> None:
    async def refused() -> None:
        with pytest.raises(InvalidRequestError, match=r"(have|has) more than \d+ fields: use several"):
            await parse_in_steps(encoded)

    assert len(encoded) > READ_STEP_BYTES
    counted = Counted(refused())
    await counted
    assert counted.calls < 4 * MAX_TXN_FIELDS


async def test_the_fields_of_a_batch_are_read_up_to_a_limit() -> None:
    dense = a_columns([b"x"]).SerializeToString() + message_of(100, content=b"") * MANY

    def refused() -> None:
        with pytest.raises(InvalidRequestError, match="a batch has more than 128 fields"):
            ColumnsView.parse(dense, MAX_COLUMNS_FIELDS)

    assert await calls_of(refused) < 8 * MAX_COLUMNS_FIELDS
    # What an earlier version stored stays readable.
    assert ColumnsView.parse(dense).count == 1
    with_later_fields = a_columns([b"x" * 1_000]).SerializeToString() + message_of(100, content=b"") * 100
    assert ColumnsView.parse(with_later_fields, MAX_COLUMNS_FIELDS).count == 1


async def test_the_requests_of_one_message_are_read_in_bounded_steps() -> None:
    small = message_of(100, content=b"") * 2_000
    encoded = message_of(6, content=small) * (MAX_APPENDS_PER_REQUEST - 1)
    counted = Counted(parse_in_steps(encoded))
    _, others = await counted

    assert len(others) == MAX_APPENDS_PER_REQUEST - 1
    assert counted.calls > MANY
    assert counted.longest < READ_STEP_BYTES
