"""A client that does not read the answers to its fetches takes a bounded amount of the server's memory.

Method: a real server; a client that sends many fetches on one stream and reads late, and one that sends many large
messages on one stream without reading. Of a request with many operations, the turns of the event loop are counted.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any, Final

import grpc.aio
import pytest

from tidelog import AsyncClient
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog.v1 import wal_service_pb2 as wal_pb
from tidelog.wire.column_message import columns_to_wire
from tidelog.wire.columns import encode_payloads
from tidelog_server.app import Server
from tidelog_server.core.limits import MAX_MAILBOX_BATCH, MIB, Limits
from tidelog_server.mailboxes.mailbox import Mailbox
from tidelog_testing.parts.grpc_calls import Client as Calls
from tidelog_testing.parts.grpc_calls import connected, running_server
from tidelog_testing.parts.waiting import until

BODY: Final = b"x" * 20_000
MESSAGES: Final = 2_000
PER_FETCH: Final = 10
ATTEMPTS: Final = 60
MAX_ANSWER_S: Final = 0.06
"""A client that leaves does so at this time at the latest, when the answers are under way."""
# A scan or stream may use an eighth of a third of the node's memory for readers.
PART_BYTES: Final = Limits().max_unread_bytes // 24
# What gRPC and the client's own flow control hold besides.
SPARE_BYTES: Final = 4 * MIB


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[Server, AsyncClient, Calls]]:
    """Run a server, and yield it with a client and the stubs of another connection."""
    async with (
        running_server(folder) as server, AsyncClient(server.grpc_endpoint) as client, connected(server) as calls,
    ):  # fmt: skip
        yield server, client, calls


async def mailbox_of(server: Server, client: AsyncClient) -> Mailbox:
    """Create the mailbox ``a``; return it as the server has it."""
    await client.mailboxes.create("a")
    assert server._node.opened_mailboxes is not None
    return await server._node.opened_mailboxes.open("a")


async def test_answers_that_are_not_read_wait_for_memory_and_none_is_lost(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, client, calls):
        await client.mailboxes.create("jobs")
        for _ in range(0, MESSAGES, 100):
            await client.mailbox("jobs").send_many([BODY] * 100)
        call = calls.mailboxes.Operate()
        fetch = pb.FetchRequest(mailbox="jobs", max_messages=PER_FETCH)
        operations = [pb.Operation(number=number, fetch=fetch) for number in range(MESSAGES // PER_FETCH)]
        await call.write(pb.OperateRequest(operations=operations))
        budget = server._log.read_budget
        # The answers take memory until no more of them fit.
        before = 0
        while not before or before != budget.used_bytes:
            before = budget.used_bytes
            await asyncio.sleep(0.2)
        assert 0 < budget.used_bytes <= PART_BYTES + SPARE_BYTES

        ids: list[int] = []
        while len(ids) < MESSAGES:
            for result in (await call.read()).results:
                assert [delivery.body for delivery in result.fetched.deliveries] == [BODY] * PER_FETCH
                ids += [delivery.id for delivery in result.fetched.deliveries]
        assert len(set(ids)) == MESSAGES
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert budget.used_bytes == 0


async def test_a_client_that_leaves_while_its_fetches_are_answered_leaves_no_error_and_no_memory(
    tmp_path: Path,
) -> None:
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    async with serving(tmp_path) as (server, client, calls):
        jobs = client.mailbox("jobs")
        await client.mailboxes.create("jobs")
        for _ in range(0, MESSAGES, 100):
            await jobs.send_many([BODY] * 100)
        # The next attempt finds the messages again.
        fetch = pb.FetchRequest(mailbox="jobs", max_messages=PER_FETCH, lease_ms=1)
        for attempt in range(ATTEMPTS):
            call = calls.mailboxes.Operate()
            numbers = range(MESSAGES // PER_FETCH)
            await call.write(pb.OperateRequest(operations=[pb.Operation(number=each, fetch=fetch) for each in numbers]))
            await asyncio.sleep(attempt / ATTEMPTS * MAX_ANSWER_S)
            call.cancel()
        await until(lambda: not server._log.read_budget.used_bytes, within_s=10)
    assert unhandled == []


async def test_large_messages_on_one_stream_are_read_as_they_are_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client, calls):
        await client.mailboxes.create("jobs")
        call = calls.mailboxes.Operate()
        send = pb.SendRequest(mailbox="jobs", bodies=[BODY] * 50)

        async def write() -> None:
            for number in range(100):
                await call.write(pb.OperateRequest(operations=[pb.Operation(number=number, send=send)]))
            await call.done_writing()

        writing = asyncio.create_task(write())
        answered: set[int] = set()
        while len(answered) < 100:
            answered |= {result.number for result in (await call.read()).results}
        await writing
        assert (await client.mailbox("jobs").counts()).available == 5_000


def turns_of(log: Mailbox, method: str, calls: int) -> list[int]:
    """Return the turns of the event loop in which a method of a mailbox is called; it is complete after ``calls``."""
    turns, turn, called, loop = list[int](), 0, getattr(log, method), asyncio.get_running_loop()

    def count_turns() -> None:
        nonlocal turn
        turn += 1
        if len(turns) < calls:
            loop.call_soon(count_turns)

    def note_turn(*arguments: Any, **named: Any) -> Any:
        turns.append(turn)
        return called(*arguments, **named)

    setattr(log, method, note_turn)
    count_turns()
    return turns


async def test_operations_with_many_messages_let_other_work_run(tmp_path: Path) -> None:
    operations = 20
    async with serving(tmp_path) as (server, client, calls):
        turns = turns_of(await mailbox_of(server, client), "submit", operations)
        messages = [pb.OutgoingMessage()] * MAX_MAILBOX_BATCH
        send = pb.SendRequest(mailbox="a", messages=messages)
        call = calls.mailboxes.Operate()
        await call.write(
            pb.OperateRequest(operations=[pb.Operation(number=each, send=send) for each in range(operations)])
        )
        answered: list[int] = []
        while len(answered) < operations:
            answered += [each.number for each in (await call.read()).results]
        await call.done_writing()
        # In their order, each in a turn of its own.
        assert answered == list(range(operations))
        assert len(set(turns)) == operations
        assert (await client.mailbox("a").counts()).available == operations * MAX_MAILBOX_BATCH


async def longest_turn_s(work: Awaitable[object]) -> float:
    """Return the processor time of the longest turn of the event loop while ``work`` runs, in seconds."""
    longest_s, began_s = 0.0, time.thread_time()

    async def measure() -> None:
        nonlocal longest_s, began_s
        while True:
            ended_s = time.thread_time()
            longest_s, began_s = max(longest_s, ended_s - began_s), ended_s
            await asyncio.sleep(0)

    measuring = asyncio.create_task(measure())
    await work
    measuring.cancel()
    return longest_s


def seconds_to_parse(encoded: bytes) -> float:
    """Return the processor time to parse a request in one step."""
    began_s = time.thread_time()
    pb.OperateRequest.FromString(encoded)
    return time.thread_time() - began_s


@pytest.mark.parametrize("operations", [MAX_MAILBOX_BATCH, MAX_MAILBOX_BATCH + 1], ids=["at limits", "malformed"])
async def test_a_request_of_many_small_parts_lets_other_work_run(tmp_path: Path, operations: int) -> None:
    """4.8 MB. The longest turn is compared with the time to parse the request in one step."""
    send = pb.SendRequest(mailbox="a", messages=[pb.OutgoingMessage()] * 2_400)
    encoded = pb.OperateRequest(
        operations=[pb.Operation(number=number, send=send) for number in range(operations)]
    ).SerializeToString()
    whole_s = min(seconds_to_parse(encoded) for _ in range(3))
    is_malformed = operations > MAX_MAILBOX_BATCH
    async with serving(tmp_path) as (_, client, calls):
        await client.mailboxes.create("a")

        async def operated_s() -> float:
            call: Any = calls.channel.stream_stream("/tidelog.v1.MailboxService/Operate")()
            answered: list[int] = []

            async def operate() -> None:
                await call.write(encoded)
                await call.done_writing()
                # The status is looked at below.
                with contextlib.suppress(grpc.aio.AioRpcError):
                    while (answer := await call.read()) is not grpc.aio.EOF:
                        answered.extend(each.number for each in pb.OperateResponse.FromString(answer).results)

            longest_s = await longest_turn_s(operate())
            assert await call.code() is (grpc.StatusCode.INVALID_ARGUMENT if is_malformed else grpc.StatusCode.OK)
            # Each operation is refused, for its number of messages; of a malformed request, none is begun.
            assert sorted(answered) == ([] if is_malformed else list(range(operations)))
            return longest_s

        # Again on a busy machine, whose processor may be slower for a moment than it was for the parse.
        assert any([await operated_s() < whole_s / 2 for _ in range(3)])
        assert (await client.mailbox("a").counts()).available == 0


async def test_transactions_of_one_message_with_many_messages_let_other_work_run(tmp_path: Path) -> None:
    count = 20
    async with serving(tmp_path) as (server, client, calls):
        await client.create_channel("results")
        turns = turns_of(await mailbox_of(server, client), "begin", count)
        send = pb.SendRequest(mailbox="a", messages=[pb.OutgoingMessage()] * MAX_MAILBOX_BATCH)
        part = wal_pb.TransactionPart(vchannel="results/0", batches=[columns_to_wire(encode_payloads([b"result"]))])
        transaction = wal_pb.Transaction(parts=[part], sends=[send])
        requests = [
            wal_pb.AppendStreamRequest(request_id=each, transaction=transaction) for each in range(1, count + 1)
        ]
        requests[0].more.extend(requests[1:])
        call = calls.wal.AppendStream()
        await call.write(requests[0])
        await call.done_writing()
        while await call.read() is not grpc.aio.EOF:
            pass
        assert len(set(turns)) == len(turns) >= count
        assert (await client.mailbox("a").counts()).available == count * MAX_MAILBOX_BATCH
