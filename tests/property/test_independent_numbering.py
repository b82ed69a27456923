"""Transactions that share a queue are independent: a refused one stops no other, and none is applied twice.

Method: the client's queue against a model of a server, as in test_numbering.py. Here the server refuses some
permanently and others for lack of room, and processes old requests of a broken stream after new ones.
"""

import asyncio
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import (
    InvalidRequestError,
    LastTickMismatchError,
    OverloadedError,
    ShutdownError,
    TidelogError,
    TransactionResult,
)
from tidelog.append.numbering import Numbering
from tidelog.append.queue import TransactionPart, TransactionSubmission
from tidelog.v1 import wal_service_pb2
from tidelog.wire.append_terms import DEFAULT_TERMS
from tidelog_testing.parts.append_queues import Network, NumberedServer

VCHANNEL: Final = "a/0"
PASSING: Final = {"shutdown": ShutdownError("later"), "overload": OverloadedError("no room")}


class Server(NumberedServer):
    """Accepts numbered transactions of one vchannel, and refuses those with a condition."""

    def content(self, request: wal_service_pb2.AppendStreamRequest) -> tuple[str, bytes]:
        [part] = request.transaction.parts
        return VCHANNEL, part.batches[0].SerializeToString()

    def refusal(self, request: wal_service_pb2.AppendStreamRequest) -> TidelogError | None:
        [part] = request.transaction.parts
        return LastTickMismatchError("no") if part.HasField("expected_last_tick") else None

    def answer(self, response: wal_service_pb2.AppendStreamResponse, first: int, last: int, *, is_new: bool) -> None:
        result = response.transaction
        result.txn_id, result.first_tick, result.last_tick = first, first, last
        result.parts.add(first_tick=first, last_tick=last, duplicate=not is_new)


class World(Network):
    """A client with transactions, a server, and the streams between them."""

    def __init__(self) -> None:
        self.server = Server()
        super().__init__(self.server)
        self.numbering = Numbering(is_independent=True)
        self.submissions: list[TransactionSubmission] = []

    def submit(self, kind: str, count: int) -> None:
        """Submit a transaction with a number of messages: valid, invalid, or with a failing condition."""
        name = b"%s %d" % (kind.encode(), len(self.submissions))
        messages = [b"%s.%d" % (name, index) for index in range(count)]
        part = TransactionPart([*messages], expected_last_tick=1 if kind == "conditional" else None)
        future: asyncio.Future[TransactionResult] = asyncio.get_running_loop().create_future()
        submission = TransactionSubmission((), True, 10, future, parts={VCHANNEL: part})
        self.submissions.append(submission)
        self.queue.submit(VCHANNEL, DEFAULT_TERMS, submission, self.numbering)

    def refuse(self, why: str) -> None:
        """Refuse all requests in flight temporarily, and deliver the refusals."""
        while self.stream.requests:
            self.server.serve(self.stream, PASSING[why])
        self.answer(len(self.stream.answers))

    def release(self) -> None:
        self.queue.resume()

    def finish(self) -> None:
        """Deliver all requests to a server without temporary refusals, until all are answered."""
        for _ in range(10_000):
            if self.queue.is_idle:
                break
            self.release()
            self.send(1)
            self.serve(1)
            self.answer(1)
        else:
            pytest.fail("something is never answered")
        while any(stream.requests for stream in self.cut_off):
            self.serve_late()


COUNTS = st.integers(1, 4)
STEPS = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(["good", "good", "bad", "conditional"]), COUNTS),
    st.tuples(st.sampled_from(["send", "serve", "answer"]), COUNTS),
    st.tuples(st.just("refuse"), st.sampled_from(sorted(PASSING))),
    st.sampled_from([("cut",), ("serve_late",), ("release",)]),
)


def play(steps: list[tuple[str, ...]]) -> World:
    async def playing() -> World:
        world = World()
        for name, *arguments in steps:
            getattr(world, name)(*arguments)
            if name == "refuse" and arguments == ["shutdown"]:
                # A server that shuts down answers the requests that it has, then ends the stream.
                world.cut()
        world.finish()
        return world

    return asyncio.run(playing())


@given(st.lists(STEPS, min_size=10, max_size=80))
def test_each_transaction_is_there_once_or_not_at_all_as_its_outcome_says(steps: list[tuple[str, ...]]) -> None:
    world = play(steps)

    log = world.server.log[VCHANNEL]
    assert len(log) == len(set(log))
    for submission in world.submissions:
        messages = submission.parts[VCHANNEL].messages
        match submission.outcome:
            case TransactionResult() as result:
                place = result.results[VCHANNEL]
                assert log[place.first_tick : place.last_tick + 1] == messages
            case TidelogError(effect="none"):
                assert not set(messages) & set(log)
            case TidelogError():
                assert set(messages) <= set(log) or not set(messages) & set(log)
            case None:
                pytest.fail("it has no outcome")


@given(st.lists(STEPS, min_size=10, max_size=80))
def test_a_refusal_harms_no_other_transaction(steps: list[tuple[str, ...]]) -> None:
    world = play([step for step in steps if step != ("cut",)])

    for submission in world.submissions:
        [message] = submission.parts[VCHANNEL].messages[:1]
        assert isinstance(message, bytes)
        kind, _, _ = message.partition(b" ")
        kinds = {b"good": TransactionResult, b"bad": InvalidRequestError, b"conditional": LastTickMismatchError}
        assert isinstance(submission.outcome, kinds[kind])
