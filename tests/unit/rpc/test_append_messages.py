"""Several requests of an AppendStream in one message: each has its own answer, all in one message.

Method: the call on a node without gRPC, with messages and answers as bytes.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from tidelog.v1 import wal_service_pb2
from tidelog_server.core.callers import Caller
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.ticks import LOGICAL_BITS
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.services.append import AppendStreamCall
from tidelog_server.rpc.services.append_requests import MAX_APPENDS_PER_REQUEST
from tidelog_testing.parts.append_calls import calls_of
from tidelog_testing.parts.batches import a_columns
from tidelog_testing.parts.fixtures import node_with
from tidelog_testing.parts.nodes import Node, running_node
from tidelog_testing.parts.stores import FaultyStore

store, node = node_with(a=1)
Request = wal_service_pb2.AppendStreamRequest
Response = wal_service_pb2.AppendStreamResponse


def a_request(request_id: int, vchannel: str = "a", barrier_tick: int = 0) -> Request:
    options = wal_service_pb2.AppendOptions(barrier_tick=barrier_tick) if barrier_tick else None
    return Request(request_id=request_id, vchannel=vchannel, columns=a_columns([b"x"]), options=options)


def together(requests: Sequence[Request]) -> bytes:
    first, *others = requests
    first.more.extend(others)
    return first.SerializeToString()


async def answers_of(node: Node, messages: Sequence[bytes], answers: list[Response]) -> None:
    """Serve a stream of ``messages`` to its end; add its answers to ``answers``, also if it ends with an error."""

    class Writer:
        async def write(self, answer: bytes) -> None:
            answers.append(Response.FromString(answer))
            await asyncio.sleep(0)

    async def sent() -> AsyncIterator[bytes]:
        for message in messages:
            yield message
            await asyncio.sleep(0)

    await AppendStreamCall(calls_of(node), node.log, cast("Context", cast("Any", Writer())), Caller("", "")).run(sent())


async def test_requests_of_one_message_are_committed_together_and_answered_in_one_message() -> None:
    store, answers = FaultyStore(), list[Response]()
    async with running_node(store) as node:
        await node.create("a")
        await node.create("b")
        requests = [a_request(number, "ab"[number % 2]) for number in range(1, 65)]
        await answers_of(node, [together(requests)], answers)
        assert [len(group) for group in store.written] == [64]
    (answer,) = answers
    results = [answer, *answer.more]
    assert [result.request_id for result in results] == list(range(1, 65))
    ticks = [result.result.first_tick for result in results]
    assert ticks == sorted(set(ticks))


async def test_a_refused_request_affects_no_other_of_its_message(node: Node) -> None:
    answers = list[Response]()
    messages = [
        together([a_request(1), a_request(2, "nowhere"), a_request(3)]),
        a_request(4).SerializeToString(),
        together([a_request(5, "nowhere"), a_request(6)]),
    ]
    await answers_of(node, messages, answers)
    assert [[each.request_id for each in (answer, *answer.more)] for answer in answers] == [[1, 2, 3], [4], [5, 6]]
    kinds = [each.WhichOneof("answer") for answer in answers for each in (answer, *answer.more)]
    assert kinds == ["result", "error", "result", "result", "error", "result"]


async def test_requests_that_wait_delay_the_answer_of_their_message_and_nothing_overtakes_them(node: Node) -> None:
    answers = list[Response]()
    await answers_of(node, [a_request(0).SerializeToString()], answers)
    barrier_tick = answers.pop().result.first_tick + (50 << LOGICAL_BITS)
    messages = [
        together([a_request(1), a_request(2, barrier_tick=barrier_tick), a_request(3)]),
        a_request(4).SerializeToString(),
    ]
    await answers_of(node, messages, answers)
    ticks = [each.result.first_tick for answer in answers for each in (answer, *answer.more)]
    assert [len(answer.more) for answer in answers] == [2, 0]
    assert ticks == sorted(ticks)
    assert ticks[0] <= barrier_tick < ticks[1]


NESTED = Request(request_id=3, more=[a_request(4)])


@pytest.mark.parametrize(
    "invalid",
    [
        pytest.param(together([a_request(number) for number in range(MAX_APPENDS_PER_REQUEST + 1)]), id="too many"),
        pytest.param(together([a_request(2), NESTED]), id="more within more"),
        pytest.param(together([a_request(2)]) + b"\x32\x01\x08", id="a malformed one among them"),
    ],
)
async def test_a_message_that_is_invalid_as_a_whole_ends_the_stream_and_nothing_of_it_is_appended(
    invalid: bytes,
) -> None:
    store, answers = FaultyStore(), list[Response]()
    async with running_node(store) as node:
        await node.create("a")
        with pytest.raises(InvalidRequestError):
            await answers_of(
                node, [a_request(1).SerializeToString(), invalid, a_request(9).SerializeToString()], answers
            )
        assert sum(map(len, store.written)) == 1
    assert [answer.request_id for answer in answers] == [1]


async def test_a_message_has_at_most_as_many_requests_as_the_limit(node: Node) -> None:
    answers = list[Response]()
    requests = [a_request(number) for number in range(MAX_APPENDS_PER_REQUEST)]
    await answers_of(node, [together(requests)], answers)
    (answer,) = answers
    assert len(answer.more) == MAX_APPENDS_PER_REQUEST - 1
