"""Which appends share a batch and whose answer is whose. Method: drive the pure queue, answering by hand."""

import asyncio
from math import inf

import pytest

from tidelog import AppendResult, InvalidRequestError, Message, TidelogError, UnavailableError
from tidelog._append_queue import AppendQueue, Batch, Submission
from tidelog._append_terms import DEFAULT_TERMS, AppendTerms
from tidelog._columns import MAX_MESSAGES_PER_BATCH, decode_payloads
from tidelog._sizes import Appendable, measure_all
from tidelog._wire import columns_from_wire
from tidelog.v1 import wal_service_pb2


def submit(queue: AppendQueue, *messages: Appendable, vchannel: str = "a/0") -> "asyncio.Future[AppendResult]":
    is_plain, size_bytes = measure_all(messages)
    future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
    queue.submit(vchannel, DEFAULT_TERMS, Submission(messages, is_plain, size_bytes, future))
    return future


def request_of(batch: Batch) -> wal_service_pb2.AppendStreamRequest:
    return wal_service_pb2.AppendStreamRequest.FromString(batch.request)


def payloads_of(batch: Batch | None) -> list[bytes]:
    assert batch is not None
    return decode_payloads(columns_from_wire(request_of(batch).columns.SerializeToString()))


def answer(queue: AppendQueue, batch: Batch, first_tick: int, error: TidelogError | None = None) -> None:
    response = wal_service_pb2.AppendStreamResponse(request_id=batch.request_id)
    response.result.first_tick = first_tick
    response.result.last_tick = first_tick + batch.count - 1
    queue.answered(response, error)


def a_queue(max_in_flight_bytes: int = 8 << 20) -> AppendQueue:
    return AppendQueue(max_in_flight_bytes=max_in_flight_bytes)


async def test_appends_that_wait_together_travel_together_and_each_gets_its_own_ticks() -> None:
    queue = a_queue()
    first, second = submit(queue, b"a"), submit(queue, b"b", b"c")

    batch = queue.next_batch()
    assert batch is not None
    assert payloads_of(batch) == [b"a", b"b", b"c"]
    answer(queue, batch, 10)

    assert (first.result().first_tick, first.result().last_tick) == (10, 10)
    assert (second.result().first_tick, second.result().last_tick) == (11, 12)
    assert first.result().message_id == (10).to_bytes(8, "big")
    assert queue.is_idle


async def test_bytes_and_messages_may_share_a_batch() -> None:
    queue = a_queue()
    submit(queue, b"a")
    submit(queue, Message(b"b", key=b"k"))

    assert payloads_of(queue.next_batch()) == [b"a", b"b"]


async def test_different_vchannels_take_turns() -> None:
    queue = a_queue()
    submit(queue, b"a", vchannel="a/0")
    submit(queue, b"b", vchannel="b/0")

    batches = [queue.next_batch(), queue.next_batch()]

    assert [request_of(batch).vchannel for batch in batches if batch] == ["a/0", "b/0"]


async def test_small_appends_wait_for_an_answer_once_two_batches_are_out() -> None:
    queue = a_queue()
    sent = []
    for payload in (b"a", b"b", b"c", b"d"):
        submit(queue, payload)
        sent.append(queue.next_batch())

    assert [batch is not None for batch in sent] == [True, True, False, False]
    assert sent[0] is not None
    answer(queue, sent[0], 1)
    assert payloads_of(queue.next_batch()) == [b"c", b"d"]


async def test_full_batches_wait_for_no_answer() -> None:
    queue = a_queue()
    for _ in range(5):
        submit(queue, b"x" * 100_000)
        assert queue.next_batch() is not None


async def test_nothing_is_sent_beyond_the_bytes_in_flight() -> None:
    queue = a_queue(max_in_flight_bytes=250_000)
    for _ in range(4):
        submit(queue, b"x" * 100_000)
    batches = []
    while (batch := queue.next_batch()) is not None:
        batches.append(batch)

    # Four went together, as they fit into one batch; the next has to wait for them.
    submit(queue, b"y" * 100_000)
    assert queue.next_batch() is None
    answer(queue, batches[0], 1)
    assert payloads_of(queue.next_batch()) == [b"y" * 100_000]


async def test_no_batch_has_more_messages_than_the_protocol_allows() -> None:
    queue = a_queue()
    submit(queue, *[b""] * (MAX_MESSAGES_PER_BATCH - 1))
    submit(queue, b"a", b"b")

    assert len(payloads_of(queue.next_batch())) == MAX_MESSAGES_PER_BATCH - 1
    assert payloads_of(queue.next_batch()) == [b"a", b"b"]


async def test_one_bad_message_harms_no_other_caller() -> None:
    queue = a_queue()
    good, bad = submit(queue, b"good"), submit(queue, b"bad")
    together = queue.next_batch()
    assert together is not None

    answer(queue, together, 0, InvalidRequestError("too large"))
    alone = [queue.next_batch(), queue.next_batch()]
    assert [payloads_of(batch) for batch in alone] == [[b"good"], [b"bad"]]
    assert alone[0] is not None
    assert alone[1] is not None
    answer(queue, alone[0], 7)
    answer(queue, alone[1], 0, InvalidRequestError("too large"))

    assert good.result().first_tick == 7
    assert isinstance(bad.exception(), InvalidRequestError)


async def test_a_message_that_cannot_be_encoded_fails_alone() -> None:
    queue = a_queue()
    good, bad = submit(queue, b"good"), submit(queue, Message(b"bad", type=-1))

    # The first attempt finds out, and puts each of them into a batch of its own.
    batch = queue.next_batch()
    assert payloads_of(batch) == [b"good"]
    assert queue.next_batch() is None

    assert isinstance(bad.exception(), InvalidRequestError)
    assert not good.done()


async def test_what_was_abandoned_before_it_was_sent_is_never_sent() -> None:
    queue = a_queue()
    future = asyncio.get_running_loop().create_future()
    abandoned = Submission([b"a"], True, 9, future)
    queue.submit("a/0", DEFAULT_TERMS, abandoned)
    abandoned.is_abandoned = True
    submit(queue, b"b")

    assert payloads_of(queue.next_batch()) == [b"b"]


async def test_what_expires_lets_its_caller_go_and_is_not_sent_any_more() -> None:
    queue = a_queue()
    sent, waiting, settled, later, endless = (
        Submission([b"%d" % i], True, 9, asyncio.get_running_loop().create_future(), deadline_s)
        for i, deadline_s in enumerate((10.0, 10.0, 10.0, 25.0, inf))
    )
    queue.submit("a/0", DEFAULT_TERMS, sent)
    batch = queue.next_batch()
    for submission in (waiting, later, endless):
        queue.submit("a/0", DEFAULT_TERMS, submission)
    queue.submit("b/0", DEFAULT_TERMS, settled)
    settled.future.cancel()

    assert queue.expire(9.9) == 10.0
    assert not sent.future.done()
    assert queue.expire(10.0) == 25.0

    for expired in (sent, waiting):
        assert isinstance(expired.future.exception(), TimeoutError)
    assert not later.future.done()
    assert payloads_of(queue.next_batch()) == [b"3", b"4"]
    assert batch is not None
    answer(queue, batch, 1)
    assert queue.expire(25.0) == inf


async def test_a_queue_whose_last_submission_expired_is_idle_and_has_room() -> None:
    queue = a_queue(max_in_flight_bytes=9)
    queue.submit("a/0", DEFAULT_TERMS, Submission([b"a"], True, 9, asyncio.get_running_loop().create_future(), 10.0))
    had_room = queue.has_room

    assert queue.expire(10.0) == inf

    assert (had_room, queue.has_room, queue.is_idle) == (False, True, True)
    assert queue.next_batch() is None


async def test_a_cancelled_wait_takes_nothing_back() -> None:
    queue = a_queue()
    submit(queue, b"a").cancel()

    batch = queue.next_batch()
    assert payloads_of(batch) == [b"a"]
    assert batch is not None
    answer(queue, batch, 1)
    assert queue.is_idle


async def test_a_lost_stream_fails_what_was_sent_and_keeps_what_waits() -> None:
    queue = a_queue()
    sent = submit(queue, b"a")
    queue.next_batch()
    waiting = submit(queue, b"b")

    queue.fail_in_flight(UnavailableError("lost", effect="unknown"))

    assert isinstance(sent.exception(), UnavailableError)
    assert not waiting.done()
    assert payloads_of(queue.next_batch()) == [b"b"]


async def test_a_result_of_the_wrong_size_is_no_acknowledgement() -> None:
    queue = a_queue()
    future = submit(queue, b"a", b"b")
    batch = queue.next_batch()
    assert batch is not None

    response = wal_service_pb2.AppendStreamResponse(request_id=batch.request_id)
    response.result.first_tick = response.result.last_tick = 5
    queue.answered(response, None)

    error = future.exception()
    assert isinstance(error, TidelogError)
    assert error.effect == "unknown"


@pytest.mark.parametrize("message", ["text", 5, None])
async def test_only_bytes_and_messages_can_be_measured(message: object) -> None:
    with pytest.raises(TypeError, match="bytes"):
        measure_all([message])  # type: ignore[list-item]  # the point of the test


async def test_appends_on_other_terms_travel_apart() -> None:
    queue = AppendQueue(max_in_flight_bytes=1 << 20)
    for terms in (DEFAULT_TERMS, AppendTerms(fencing_token=7), AppendTerms("os"), AppendTerms(fencing_token=7)):
        future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        queue.submit("a/0", terms, Submission([b"x"], True, 1, future))

    batches = [batch for _ in range(3) if (batch := queue.next_batch())]

    assert queue.next_batch() is None
    assert [(len(batch.submissions), request_of(batch).options.fencing_token) for batch in batches] == [
        (1, 0), (2, 7), (1, 0),
    ]  # fmt: skip
