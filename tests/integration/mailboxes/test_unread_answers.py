"""A client that does not read the answers to its fetches takes a bounded amount of the server's memory.

Method: a real server; a client that sends many fetches on one stream and reads late, and one that sends many large
messages on one stream without reading.
"""

import asyncio
from pathlib import Path
from typing import Any, Final

import grpc.aio

from tidelog import AsyncClient
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog.v1 import mailbox_service_pb2_grpc
from tidelog_server.core.limits import MIB, Limits
from tidelog_testing.parts.grpc_calls import running_server

BODY: Final = b"x" * 20_000
MESSAGES: Final = 2_000
PER_FETCH: Final = 10
# A scan or stream may use an eighth of a third of the node's memory for readers.
PART_BYTES: Final = Limits().max_unread_bytes // 24
# What gRPC and the client's own flow control hold besides.
SPARE_BYTES: Final = 4 * MIB


async def test_answers_that_are_not_read_wait_for_memory_and_none_is_lost(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path) as server,
        AsyncClient(server.grpc_endpoint) as client,
        grpc.aio.insecure_channel(server.grpc_endpoint) as channel,
    ):
        await client.mailboxes.create("jobs")
        for _ in range(0, MESSAGES, 100):
            await client.mailbox("jobs").send_many([BODY] * 100)
        make_stub: Any = mailbox_service_pb2_grpc.MailboxServiceStub
        call = make_stub(channel).Operate()
        fetch = pb.FetchRequest(mailbox="jobs", max_messages=PER_FETCH)
        operations = [pb.Operation(number=number, fetch=fetch) for number in range(MESSAGES // PER_FETCH)]
        await call.write(pb.OperateRequest(operations=operations))
        budget = server._log.read_budget
        before = -1
        while before != budget.used_bytes:
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


async def test_large_messages_on_one_stream_are_read_as_they_are_answered(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path) as server,
        AsyncClient(server.grpc_endpoint) as client,
        grpc.aio.insecure_channel(server.grpc_endpoint) as channel,
    ):
        await client.mailboxes.create("jobs")
        make_stub: Any = mailbox_service_pb2_grpc.MailboxServiceStub
        call = make_stub(channel).Operate()
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
