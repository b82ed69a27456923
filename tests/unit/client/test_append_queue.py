"""Batching of appends and assignment of responses. Method: drive the pure queue, with responses made by hand."""

import asyncio
from datetime import datetime
from itertools import pairwise
from math import inf
from typing import Any, cast

import pytest

from tidelog import (
    AppendResult,
    AppendUnknownError,
    ChannelNotFoundError,
    InvalidRequestError,
    Message,
    OverloadedError,
    ProducerStoppedError,
    SequenceGapError,
    ShutdownError,
    TidelogError,
    UnavailableError,
)
from tidelog.append.numbering import Numbering
from tidelog.append.queue import Submission
from tidelog.append.queues import MAX_BATCHES_PER_MESSAGE, MAX_BYTES_PER_MESSAGE, AppendQueues
from tidelog.append.sizes import measure_all
from tidelog.transport.pipeline import After
from tidelog.v1 import error_pb2, wal_service_pb2
from tidelog.wire.append_terms import DEFAULT_TERMS, AppendTerms
from tidelog.wire.columns import MAX_MESSAGES_PER_BATCH
from tidelog_testing.parts.append_queues import (
    a_queue,
    answer,
    next_numbered,
    next_requests,
    payloads_in,
    payloads_of,
    request_of,
    submit,
    submit_numbered,
)


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


async def test_small_batches_to_several_vchannels_travel_in_one_message() -> None:
    queue = a_queue()
    appends = [submit(queue, name.encode(), vchannel=name) for name in "abc"]

    requests = next_requests(queue)
    assert list(map(payloads_in, requests)) == [[b"a"], [b"b"], [b"c"]]
    assert queue.next_request() is None
    answers = [
        wal_service_pb2.AppendStreamResponse(
            request_id=request.request_id, result=wal_service_pb2.AppendResult(first_tick=tick, last_tick=tick)
        )
        for tick, request in enumerate(requests, 10)
    ]
    answers[0].more.extend(answers[1:])
    assert queue.answered(answers[0]) is After.CONTINUE
    assert [append.result().first_tick for append in appends] == [10, 11, 12]
    assert queue.is_idle


async def test_a_message_has_as_many_batches_and_bytes_as_its_limits_allow() -> None:
    queue = a_queue()
    half = MAX_BYTES_PER_MESSAGE // 2
    sizes_bytes = [1] * (MAX_BATCHES_PER_MESSAGE + 1) + [MAX_BYTES_PER_MESSAGE, 1, half, half, 1, 2 * half, 1]
    for number, size_bytes in enumerate(sizes_bytes):
        submit(queue, bytes(size_bytes), vchannel=f"c{number}")

    messages = []
    while requests := next_requests(queue):
        messages.append([len(payload) for request in requests for payload in payloads_in(request)])
    assert sum(map(len, messages)) == len(sizes_bytes)
    assert len(messages[0]) == MAX_BATCHES_PER_MESSAGE
    for message, following in pairwise(messages):
        assert len(message) == 1 or sum(message) <= MAX_BYTES_PER_MESSAGE
        assert len(message) == MAX_BATCHES_PER_MESSAGE or sum(message) + following[0] > MAX_BYTES_PER_MESSAGE


async def test_two_batches_of_one_queue_travel_in_two_messages() -> None:
    queue = a_queue()
    for number in range(200):
        submit(queue, str(number).encode())
    submit(queue, b"x", vchannel="b/0")

    # The batches of many appends alternate, so the second must not be held until the first is answered as well.
    first, second = next_requests(queue), next_requests(queue)
    assert [len(payloads_in(request)) for request in first] == [100, 1]
    assert [len(payloads_in(request)) for request in second] == [100]


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


async def test_many_that_wait_while_nothing_is_in_flight_leave_in_two_batches_that_alternate() -> None:
    queue = a_queue()
    for number in range(101):
        submit(queue, b"%d" % number)
    first, second = queue.next_batch(), queue.next_batch()
    assert payloads_of(first) == [b"%d" % number for number in range(50)]
    assert payloads_of(second) == [b"%d" % number for number in range(50, 101)]

    # The next batch takes everything that came meanwhile: the second one is still in flight.
    for number in range(100):
        submit(queue, b"%d" % number)
    assert queue.next_batch() is None
    assert first is not None
    answer(queue, first, 1)
    assert len(payloads_of(queue.next_batch())) == 100


async def test_a_few_that_wait_leave_in_one_batch() -> None:
    queue = a_queue()
    for _ in range(95):
        submit(queue, b"x")
    assert len(payloads_of(queue.next_batch())) == 95


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

    # Four were sent together, because they fit into one batch; the next must wait for them.
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


@pytest.mark.parametrize(
    "wrong",
    [
        Message(b"bad", type=-1),
        Message(b"bad", event_time=cast("datetime", 7)),
        Message(b"bad", key=cast("bytes", ["k"])),
        Message(b"bad", properties=cast("dict[str, str]", {b"a": b"b"})),
    ],
)
async def test_a_message_that_cannot_be_encoded_fails_alone(wrong: Message) -> None:
    queue = a_queue()
    good, bad = submit(queue, b"good"), submit(queue, wrong)

    # The first attempt detects the bad one, and puts each append into a separate batch.
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


@pytest.mark.parametrize(
    ("reason", "after"),
    [
        (error_pb2.REASON_ON_SHUTDOWN, After.FINISH),
        (error_pb2.REASON_RATE_LIMIT_REJECTED, After.PAUSE),
        (error_pb2.REASON_CHANNEL_NOT_EXIST, After.CONTINUE),
    ],
)
async def test_a_refusal_says_how_the_stream_goes_on(reason: error_pb2.Reason, after: After) -> None:
    """The refusal may be in any answer of a response."""
    for place in range(2):
        queue = a_queue()
        for name in "ab":
            submit_numbered(queue, Numbering(is_independent=True), name.encode(), vchannel=name)
        answers = [
            wal_service_pb2.AppendStreamResponse(
                request_id=request.request_id, result=wal_service_pb2.AppendResult(first_tick=1, last_tick=1)
            )
            for request in next_requests(queue)
        ]
        detail = error_pb2.ErrorDetail(reason=reason, effect=error_pb2.EFFECT_NONE)
        answers[place].error.CopyFrom(wal_service_pb2.AppendError(message="why", detail=detail))
        answers[0].more.append(answers[1])

        assert queue.answered(answers[0]) is after


async def test_a_lost_stream_fails_what_was_sent_and_keeps_what_waits() -> None:
    queue = a_queue()
    sent = submit(queue, b"a")
    queue.next_batch()
    waiting = submit(queue, b"b")

    queue.interrupted(UnavailableError("lost", effect="unknown"))

    assert isinstance(sent.exception(), AppendUnknownError)
    assert not waiting.done()
    assert payloads_of(queue.next_batch()) == [b"b"]


async def test_a_result_of_the_wrong_size_is_no_acknowledgement() -> None:
    queue = a_queue()
    future = submit(queue, b"a", b"b")
    batch = queue.next_batch()
    assert batch is not None

    response = wal_service_pb2.AppendStreamResponse(request_id=batch.request_id)
    response.result.first_tick = response.result.last_tick = 5
    queue.settle(response, None)

    error = future.exception()
    assert isinstance(error, TidelogError)
    assert error.effect == "unknown"


@pytest.mark.parametrize("message", ["text", 5, None])
async def test_only_bytes_and_messages_can_be_measured(message: object) -> None:
    with pytest.raises(TypeError, match="bytes"):
        measure_all([message])  # type: ignore[list-item]  # the point of the test


@pytest.mark.parametrize(
    ("messages", "hint"), [("text", "encode it"), (bytearray(b"x"), "copy it"), (memoryview(b"x"), "copy it")]
)
async def test_a_sequence_of_another_kind_is_refused_by_its_type(messages: Any, hint: str) -> None:
    with pytest.raises(TypeError, match=f"^append expects bytes, .* got {type(messages).__name__}: {hint}"):
        measure_all(messages)


async def test_appends_on_other_terms_travel_apart() -> None:
    queue = AppendQueues(max_in_flight_bytes=1 << 20)
    for terms in (DEFAULT_TERMS, AppendTerms(fencing_token=7), AppendTerms("os"), AppendTerms(fencing_token=7)):
        future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        queue.submit("a/0", terms, Submission([b"x"], True, 1, future))

    batches = [batch for _ in range(3) if (batch := queue.next_batch())]

    assert queue.next_batch() is None
    assert [(len(batch.submissions), request_of(batch).options.fencing_token) for batch in batches] == [
        (1, 0), (2, 7), (1, 0),
    ]  # fmt: skip


async def test_numbered_batches_travel_alone_under_sequences_of_their_own() -> None:
    queue, numbering = a_queue(), Numbering()
    submit_numbered(queue, numbering, b"a")
    submit_numbered(queue, numbering, b"b")
    submit(queue, b"plain")

    requests = [request_of(next_numbered(queue)) for _ in range(3)]

    producers = [request.options.producer for request in requests]
    assert [producer.sequence for producer in producers] == [1, 0, 2]
    assert producers[0].producer_id == producers[2].producer_id
    assert not requests[1].options.HasField("producer")


async def test_no_more_numbered_batches_are_out_than_the_server_remembers() -> None:
    queue, numbering = a_queue(), Numbering()
    for _ in range(100):
        submit_numbered(queue, numbering, b"x" * 66_000)

    sent = [batch for _ in range(100) if (batch := queue.next_batch())]

    assert len(sent) == 64
    answer(queue, sent[0], 1)
    assert next_numbered(queue).sequence == 65


async def test_a_lost_numbered_batch_is_sent_again_as_it_was_and_before_what_waits() -> None:
    queue, numbering = a_queue(), Numbering()
    futures = [submit_numbered(queue, numbering, payload) for payload in (b"a", b"b", b"c")]
    first, second = next_numbered(queue), next_numbered(queue)

    queue.interrupted(UnavailableError("lost", effect="unknown"))

    again = [next_numbered(queue) for _ in range(2)]
    assert [batch.request for batch in again] == [first.request, second.request]
    for tick, batch in enumerate(again, 1):
        answer(queue, batch, tick)
    assert payloads_of(queue.next_batch()) == [b"c"]
    assert [future.done() for future in futures] == [True, True, False]


async def test_a_definite_refusal_stops_everything_behind_it() -> None:
    queue, numbering = a_queue(), Numbering()
    first, second = submit_numbered(queue, numbering, b"a"), submit_numbered(queue, numbering, b"b")
    sent = [next_numbered(queue), next_numbered(queue)]
    third = submit_numbered(queue, numbering, b"c")

    answer(queue, sent[0], 0, InvalidRequestError("too large"))
    answer(queue, sent[1], 0, SequenceGapError("gap", values={"expected_sequence": "1"}))

    assert isinstance(first.exception(), InvalidRequestError)
    for future in (second, third):
        error = future.exception()
        assert isinstance(error, ProducerStoppedError)
        assert (error.effect, str(error.__cause__)) == ("none", "too large")
    assert queue.is_idle


async def test_a_refusal_of_a_batch_that_was_lost_before_says_that_it_may_be_there() -> None:
    queue, numbering = a_queue(), Numbering()
    future = submit_numbered(queue, numbering, b"a")
    next_numbered(queue)
    queue.interrupted(UnavailableError("lost", effect="unknown"))

    answer(queue, next_numbered(queue), 0, ChannelNotFoundError("gone"))

    error = future.exception()
    assert isinstance(error, ChannelNotFoundError)
    assert error.effect == "unknown"


async def test_a_producer_that_the_server_forgot_goes_on_under_a_new_name() -> None:
    queue, numbering = a_queue(), Numbering()
    submit_numbered(queue, numbering, b"a")
    acknowledged = next_numbered(queue)
    answer(queue, acknowledged, 1)
    futures = [submit_numbered(queue, numbering, payload) for payload in (b"b", b"c")]
    gap = SequenceGapError("gap", values={"expected_sequence": "1"})

    for batch in [next_numbered(queue), next_numbered(queue)]:
        answer(queue, batch, 0, gap)

    again = [next_numbered(queue), next_numbered(queue)]
    assert [payloads_of(batch) for batch in again] == [[b"b"], [b"c"]]
    producers = [request_of(batch).options.producer for batch in again]
    assert [producer.sequence for producer in producers] == [1, 2]
    assert producers[0].producer_id != request_of(acknowledged).options.producer.producer_id
    for tick, batch in enumerate(again, 2):
        answer(queue, batch, tick)
    assert [future.result().first_tick for future in futures] == [2, 3]


async def test_a_lost_batch_of_a_producer_that_the_server_forgot_is_not_sent_under_a_new_name() -> None:
    queue, numbering = a_queue(), Numbering()
    future = submit_numbered(queue, numbering, b"a")
    answer(queue, next_numbered(queue), 1)
    future = submit_numbered(queue, numbering, b"b")
    next_numbered(queue)
    queue.interrupted(UnavailableError("lost", effect="unknown"))

    answer(queue, next_numbered(queue), 0, SequenceGapError("gap", values={"expected_sequence": "1"}))

    error = future.exception()
    assert isinstance(error, SequenceGapError)
    assert error.effect == "unknown"


async def test_a_batch_that_is_sent_again_says_so_once_an_earlier_try_may_have_arrived() -> None:
    queue, numbering = a_queue(), Numbering()
    submit_numbered(queue, numbering, b"a")
    batch = next_numbered(queue)
    first = request_of(batch).options.producer
    assert (first.producer_id[0], first.is_repeated) == ("~", False)
    # Refused without an effect: nothing of it is in the log.
    answer(queue, batch, 0, ShutdownError("later"))
    queue.interrupted(UnavailableError("lost", effect="unknown"))
    batch = next_numbered(queue)
    assert not request_of(batch).options.producer.is_repeated

    for _ in range(2):
        queue.interrupted(UnavailableError("lost", effect="unknown"))
        batch = next_numbered(queue)
        again = request_of(batch)
        assert again.options.producer.is_repeated
        assert (again.options.producer.sequence, payloads_of(batch)) == (1, [b"a"])


async def test_a_server_that_shuts_down_is_asked_again_on_the_next_stream_only() -> None:
    queue, numbering = a_queue(), Numbering()
    future = submit_numbered(queue, numbering, b"a")
    answer(queue, next_numbered(queue), 0, ShutdownError("later"))

    assert queue.next_batch() is None
    assert queue.has_waiting
    queue.interrupted(UnavailableError("lost", effect="unknown"))
    answer(queue, next_numbered(queue), 5)

    assert future.result().first_tick == 5


async def test_a_server_that_has_no_room_is_asked_again_a_little_later() -> None:
    queue, numbering = a_queue(), Numbering()
    future = submit_numbered(queue, numbering, b"a")
    answer(queue, next_numbered(queue), 0, OverloadedError("no room"))

    assert queue.next_batch() is None
    queue.resume()
    answer(queue, next_numbered(queue), 5)

    assert future.result().first_tick == 5


async def test_what_would_be_refused_again_is_not_released() -> None:
    queue, numbering = a_queue(), Numbering()
    submit_numbered(queue, numbering, b"a")
    answer(queue, next_numbered(queue), 0, ShutdownError("later"))

    assert not queue.has_releasable
    queue.resume()

    assert queue.next_batch() is None


async def test_a_numbered_message_that_cannot_be_encoded_stops_everything_behind_it() -> None:
    queue, numbering = a_queue(), Numbering()
    good = submit_numbered(queue, numbering, b"good")
    bad, behind = submit_numbered(queue, numbering, Message(b"", type=-1)), submit_numbered(queue, numbering, b"behind")

    sent = next_numbered(queue)
    assert queue.next_batch() is None
    answer(queue, sent, 3)

    assert good.result().first_tick == 3
    assert isinstance(bad.exception(), InvalidRequestError)
    assert isinstance(behind.exception(), ProducerStoppedError)
    assert queue.is_idle


async def test_only_unnumbered_messages_fail_while_there_is_no_connection() -> None:
    queue, numbering = a_queue(), Numbering()
    numbered, plain = submit_numbered(queue, numbering, b"a"), submit(queue, b"b")

    queue.unreachable(UnavailableError("no connection"))

    assert isinstance(plain.exception(), UnavailableError)
    assert not numbered.done()
    queue.give_up(UnavailableError("no connection"), AppendUnknownError("unsure", effect="unknown"))
    error = numbered.exception()
    assert isinstance(error, UnavailableError)
    assert error.effect == "none"


async def test_a_request_that_the_server_never_takes_is_refused_for_good() -> None:
    queue, numbering = a_queue(), Numbering()
    small, large = submit_numbered(queue, numbering, b"s"), submit_numbered(queue, numbering, b"x" * 1_000)
    for _ in range(2):
        next_numbered(queue)

    queue.interrupted(UnavailableError("too large", effect="unknown"), max_request_bytes=500)

    error = large.exception()
    assert isinstance(error, InvalidRequestError)
    assert (error.effect, error.values["max_bytes"]) == ("none", "500")
    # The append before it is sent again nevertheless.
    answer(queue, next_numbered(queue), 3)
    assert small.result().first_tick == 3
    assert queue.is_idle
