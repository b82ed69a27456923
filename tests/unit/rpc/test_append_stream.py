"""An AppendStream buffers a bounded amount of requests, even while the client reads no answers.

Method: the call on a node without gRPC, with an iterator that counts bytes and a writer that waits.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from tidelog.v1 import wal_service_pb2
from tidelog_server.core.callers import Caller
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.services.append import AppendStreamCall
from tidelog_server.rpc.services.append_requests import StreamRequest, parse_stream_request
from tidelog_testing.parts.append_calls import calls_of
from tidelog_testing.parts.batches import a_columns
from tidelog_testing.parts.fixtures import node_with
from tidelog_testing.parts.nodes import Node, running_node
from tidelog_testing.parts.stores import FaultyStore

store, node = node_with(a=1)


class SlowReader:
    """A client's side of a stream: sends all requests, and reads answers only after the test sets ``may_read``."""

    def __init__(self, requests: list[bytes]) -> None:
        self.requests = requests
        self.sent_bytes = 0
        self.answers: list[bytes] = []
        self.may_read = asyncio.Event()
        self.is_written_to = False
        self.on_write: Callable[[], object] = lambda: None

    async def send(self) -> AsyncIterator[bytes]:
        """Yield the requests, with a turn of the event loop after each."""
        for request in self.requests:
            self.sent_bytes += len(request)
            yield request
            await asyncio.sleep(0)

    async def write(self, answer: bytes) -> None:
        """Receive an answer once the client reads. Like gRPC, only one at a time."""
        assert not self.is_written_to
        self.is_written_to = True
        self.on_write()
        try:
            await self.may_read.wait()
            await asyncio.sleep(0)
        finally:
            self.is_written_to = False
        self.answers.append(answer)


def a_request(payload_bytes: int, vchannel: str = "a", request_id: int = 0) -> bytes:
    columns = a_columns([bytes(payload_bytes)]) if payload_bytes else None
    return wal_service_pb2.AppendStreamRequest(
        request_id=request_id, vchannel=vchannel, columns=columns
    ).SerializeToString()


def a_message(requests: int) -> bytes:
    """Return a message with several tiny requests."""
    alone = wal_service_pb2.AppendStreamRequest.FromString(a_request(0))
    others = wal_service_pb2.AppendStreamRequest(more=[alone] * (requests - 1))
    return alone.SerializeToString() + others.SerializeToString()


def a_call(node: Node, client: SlowReader) -> AppendStreamCall:
    return AppendStreamCall(calls_of(node), node.log, cast("Context", cast("Any", client)), Caller("", ""))


@pytest.mark.parametrize(
    ("requests", "max_sent"),
    [
        pytest.param([a_request(0)] * 20_000, 16_500, id="tiny refused ones"),
        pytest.param([a_message(256)] * 80, 66, id="tiny refused ones, many in a message"),
        pytest.param([a_request(1 << 20)] * 20, 9, id="large ones"),
        pytest.param([a_request(1)] * 200 + [a_request(3 << 20)] * 20, 203, id="large ones after small ones"),
    ],
)
async def test_what_is_in_flight_stays_within_the_limit(node: Node, requests: list[bytes], max_sent: int) -> None:
    client = SlowReader(requests)
    serving = asyncio.create_task(a_call(node, client).run(client.send()))
    bound = sum(map(len, requests[:max_sent]))
    before = -1
    while before != client.sent_bytes:
        before = client.sent_bytes
        await asyncio.sleep(0.05)
    assert 0 < client.sent_bytes <= bound
    client.may_read.set()
    await serving
    assert len(client.answers) == len(requests)


async def test_answers_come_in_the_order_of_the_requests_one_at_a_time(node: Node) -> None:
    # Of each three requests, the second is refused (it is empty) and the third names a channel that does not exist.
    kinds = [(1, "a"), (0, "a"), (1, "nowhere")]
    requests = [a_request(*kinds[number % 3], request_id=number) for number in range(300)]
    client = SlowReader(requests)
    client.may_read.set()
    await a_call(node, client).run(client.send())
    answers = [wal_service_pb2.AppendStreamResponse.FromString(answer) for answer in client.answers]
    assert [answer.request_id for answer in answers] == list(range(300))
    assert [answer.WhichOneof("answer") for answer in answers] == ["result", "error", "error"] * 100


async def test_a_settled_append_is_answered_unless_its_call_was_cancelled(node: Node, store: FaultyStore) -> None:
    store.may_sync.clear()
    clients = [SlowReader([a_request(1)]) for _ in range(2)]
    calls = calls_of(node)
    cancelled, answered = [
        asyncio.create_task(
            AppendStreamCall(calls, node.log, cast("Context", cast("Any", client)), Caller("", "")).run(client.send())
        )
        for client in clients
    ]
    while len([entry for group in store.written for entry in group]) < 2:
        await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    store.may_sync.set()
    # Queued after both appends: they are settled when it is done.
    await node.log.committer.run(lambda: None)
    assert [client.is_written_to for client in clients] == [False, True]
    clients[1].may_read.set()
    await answered


async def test_a_call_cancelled_while_its_answer_begins_ends_the_answer_in_silence() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with running_node(FaultyStore()) as node:
        await node.create("a")
        client = SlowReader([a_request(1)])
        serving = asyncio.create_task(a_call(node, client).run(client.send()))
        # Cancels the call before its task runs again.
        client.on_write = serving.cancel
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert not client.is_written_to
        client.may_read.set()
        await asyncio.sleep(0)
    assert not client.answers
    assert not complaints


@pytest.mark.parametrize("at_once", [True, False])
async def test_an_answer_that_cannot_be_written_ends_the_call(node: Node, *, at_once: bool) -> None:
    client = SlowReader([a_request(1, request_id=number) for number in range(10)])

    def fail() -> None:
        raise ConnectionError("the client is gone")

    def let_one_pass() -> None:
        client.may_read.set()
        client.on_write = fail

    client.on_write = fail if at_once else let_one_pass
    serving = asyncio.create_task(a_call(node, client).run(client.send()))
    with pytest.raises(ExceptionGroup) as raised:
        await serving
    assert raised.group_contains(ConnectionError)
    assert len(client.answers) == (0 if at_once else 1)
    # The log still accepts writes.
    await node.log.committer.run(lambda: None)
    assert node.log.admission.failure is None


async def test_a_resting_stream_keeps_no_batch(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = a_request(1 << 20)
    requests: list[StreamRequest] = []
    client, rests = SlowReader([]), asyncio.Event()
    client.may_read.set()

    def remember(encoded: bytes) -> StreamRequest:
        requests.append(parse_stream_request(encoded))
        return requests[-1]

    async def send() -> AsyncIterator[bytes]:
        yield encoded
        await rests.wait()

    monkeypatch.setattr("tidelog_server.rpc.services.append_requests.parse_stream_request", remember)
    references = sys.getrefcount(encoded)
    serving = asyncio.create_task(a_call(node, client).run(send()))
    while not client.answers:
        await asyncio.sleep(0)
    assert sys.getrefcount(encoded) == references
    # Outside the assertion, which would hold a reference too.
    holders = sys.getrefcount(requests.pop())
    assert holders == 1
    rests.set()
    await serving
