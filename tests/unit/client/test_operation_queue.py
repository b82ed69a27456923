"""Operations of mailboxes in a stream. Method: drive the pure queue, with results made by hand."""

import asyncio
from math import inf
from typing import Any

import pytest

from tidelog import (
    AppendUnknownError,
    ClosedError,
    DeadlineError,
    InvalidRequestError,
    MailboxNotFoundError,
    TidelogError,
    UnavailableError,
)
from tidelog.mailboxes.operations import MAX_OPERATIONS, Action, Operation, OperationQueue
from tidelog.v1 import error_pb2
from tidelog.v1 import mailbox_service_pb2 as pb

ACK = pb.AckDeliveriesRequest(mailbox="jobs", confirmed=[b"\x07" * 20]).SerializeToString()
SEND = pb.SendRequest(mailbox="jobs", bodies=[b"body" * 100]).SerializeToString()
FETCH = pb.FetchRequest(mailbox="jobs", wait_ms=5).SerializeToString()

BROKEN = UnavailableError("the connection broke", effect="unknown")


def a_queue(max_bytes: int = 1 << 20) -> OperationQueue:
    return OperationQueue(max_bytes=max_bytes, timeout_s=5.0)


def put(queue: OperationQueue, call: Action, request: bytes, **options: Any) -> Operation:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    operation = Operation(queue.next_number(), call, request, future, **options)
    queue.put(operation)
    return operation


def sent(queue: OperationQueue) -> list[pb.Operation]:
    request = queue.next_request()
    return [] if request is None else list(pb.OperateRequest.FromString(request).operations)


def acked(operation: Operation) -> pb.OperationResult:
    return pb.OperationResult(number=operation.number, acked=pb.AckDeliveriesResponse())


def refused(operation: Operation, reason: int, effect: int) -> pb.OperationResult:
    detail = error_pb2.ErrorDetail(reason=reason, effect=effect)  # type: ignore[arg-type]  # an enumeration of protobuf
    return pb.OperationResult(number=operation.number, error=error_pb2.CallError(message="why", detail=detail))


async def test_operations_that_wait_together_share_a_request_and_are_matched_by_number() -> None:
    queue = a_queue()
    first, second = put(queue, Action.SEND, SEND), put(queue, Action.ACK, ACK)

    operations = sent(queue)
    assert [each.WhichOneof("call") for each in operations] == ["send", "ack"]
    assert operations[0].send.bodies == [b"body" * 100]
    assert operations[1].ack.confirmed == [b"\x07" * 20]
    assert [each.number for each in operations] == [first.number, second.number]
    assert queue.next_request() is None
    queue.settle(acked(second))
    queue.settle(pb.OperationResult(number=first.number, sent=pb.SendResponse(ids=[5])))

    assert first.future.result().ids == [5]
    assert second.future.result() == pb.AckDeliveriesResponse()
    assert queue.is_idle


async def test_a_refusal_is_raised_with_its_reason() -> None:
    queue = a_queue()
    operation = put(queue, Action.SEND, SEND)
    sent(queue)
    queue.settle(refused(operation, error_pb2.REASON_MAILBOX_NOT_EXIST, error_pb2.EFFECT_NONE))

    with pytest.raises(MailboxNotFoundError, match="why") as error:
        operation.future.result()
    assert error.value.effect == "none"
    assert not operation.was_sent


async def test_what_waits_for_messages_never_delays_the_rest() -> None:
    queue = a_queue()
    for _ in range(MAX_OPERATIONS + 5):
        put(queue, Action.FETCH, FETCH, waits=True)
    assert len(sent(queue)) == MAX_OPERATIONS
    assert sent(queue) == []
    late = put(queue, Action.ACK, ACK)

    assert [each.number for each in sent(queue)] == [late.number]


async def test_bytes_in_flight_are_bounded_and_freed_by_answers() -> None:
    queue = a_queue(max_bytes=700)
    operations = [put(queue, Action.SEND, SEND) for _ in range(4)]
    assert len(sent(queue)) == 2
    assert sent(queue) == []
    queue.settle(pb.OperationResult(number=operations[0].number, sent=pb.SendResponse(ids=[1])))

    assert [each.number for each in sent(queue)] == [operations[2].number]


async def test_cancelled_operations_are_not_sent() -> None:
    queue = a_queue()
    cancelled, other = put(queue, Action.ACK, ACK), put(queue, Action.ACK, ACK)
    cancelled.future.cancel()

    assert [each.number for each in sent(queue)] == [other.number]


async def test_after_a_break_repeatable_operations_are_sent_again_in_their_order_and_the_others_are_unknown() -> None:
    queue = a_queue()
    send, first, second = (
        put(queue, Action.SEND, SEND, is_repeatable=False),
        *(put(queue, Action.ACK, ACK) for _ in "ab"),
    )
    sent(queue)
    third = put(queue, Action.ACK, ACK)
    queue.interrupted(BROKEN)

    with pytest.raises(AppendUnknownError, match="the connection broke"):
        send.future.result()
    assert [each.number for each in sent(queue)] == [first.number, second.number, third.number]
    assert first.was_repeated
    assert not third.was_repeated


async def test_an_operation_that_is_too_large_for_the_server_is_refused_alone() -> None:
    queue = a_queue()
    large, small = put(queue, Action.SEND, SEND, is_repeatable=False), put(queue, Action.ACK, ACK)
    sent(queue)
    queue.interrupted(UnavailableError("too large", effect="unknown"), 200)

    with pytest.raises(InvalidRequestError, match="at most 200 are allowed") as error:
        large.future.result()
    assert error.value.effect == "none"
    assert [each.number for each in sent(queue)] == [small.number]


async def test_an_answer_that_no_caller_waits_for_is_passed_on() -> None:
    queue = a_queue()
    abandoned: list[Any] = []
    operation = put(queue, Action.FETCH, FETCH, abandoned=abandoned.append)
    sent(queue)
    operation.future.cancel()
    response = pb.FetchResponse(deliveries=[pb.Delivery(id=1)])
    queue.settle(pb.OperationResult(number=operation.number, fetched=response))

    assert abandoned == [response]


async def test_the_server_ends_the_wait_of_a_fetch_whose_caller_has_left() -> None:
    queue = a_queue()
    fetches = [put(queue, Action.FETCH, FETCH, waits=True) for _ in range(3)]
    sent(queue)
    unsent = put(queue, Action.FETCH, FETCH, waits=True)
    for operation in (fetches[0], fetches[2], unsent):
        operation.future.cancel()
        queue.leave(operation)

    assert queue.has_waiting
    request = pb.OperateRequest.FromString(queue.next_request() or b"")
    assert (list(request.operations), list(request.ended_waits)) == ([], [fetches[0].number, fetches[2].number])
    assert queue.next_request() is None
    assert queue.has_waits
    assert not queue.is_idle


async def test_deadlines_state_what_is_known() -> None:
    queue = a_queue()
    send = put(queue, Action.SEND, SEND, is_repeatable=False, deadline_s=10.0)
    ack = put(queue, Action.ACK, ACK, deadline_s=11.0)
    sent(queue)
    unsent, later = (
        put(queue, Action.ACK, ACK, deadline_s=11.0),
        put(queue, Action.ACK, ACK, deadline_s=20.0),
    )

    assert queue.expire(11.0) == 20.0
    effects = []
    for operation, kind in ((send, AppendUnknownError), (ack, DeadlineError), (unsent, DeadlineError)):
        with pytest.raises(kind) as error:
            operation.future.result()
        assert isinstance(error.value, TidelogError)
        effects.append(error.value.effect)
    assert effects == ["unknown", "unknown", "none"]
    assert not later.future.done()
    assert queue.expire(20.0) == inf
    assert isinstance(later.future.exception(), DeadlineError)


async def test_a_wait_that_began_again_on_another_stream_ends_without_messages() -> None:
    queue = a_queue()
    fetch = put(queue, Action.FETCH, FETCH, waits=True, deadline_s=10.0)
    sent(queue)
    queue.interrupted(BROKEN)
    sent(queue)
    queue.expire(10.0)

    assert fetch.future.result() == pb.FetchResponse()


async def test_a_lost_connection_fails_what_was_never_sent_and_keeps_the_rest() -> None:
    queue = a_queue()
    ack = put(queue, Action.ACK, ACK)
    sent(queue)
    queue.interrupted(BROKEN)
    unsent = put(queue, Action.ACK, ACK)
    queue.unreachable(UnavailableError("away"), may_pass=True)

    with pytest.raises(UnavailableError) as error:
        unsent.future.result()
    assert error.value.effect == "none"
    assert [each.number for each in sent(queue)] == [ack.number]


async def test_a_close_ends_waits_at_once_and_the_rest_with_what_is_known() -> None:
    queue = a_queue()
    fetch, send = (
        put(queue, Action.FETCH, FETCH, waits=True),
        put(queue, Action.SEND, SEND, is_repeatable=False),
    )
    sent(queue)
    unsent = put(queue, Action.ACK, ACK)
    queue.end_waits()
    with pytest.raises(ClosedError):
        fetch.future.result()
    assert not send.future.done()
    queue.closed("no answer")

    with pytest.raises(AppendUnknownError, match="no answer"):
        send.future.result()
    with pytest.raises(ClosedError) as error:
        unsent.future.result()
    assert error.value.effect == "none"
    assert queue.is_idle
