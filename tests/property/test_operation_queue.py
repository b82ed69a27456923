"""Operations of mailboxes in a stream: each is settled once, and only what may be repeated is sent twice.

Method: random schedules of puts, requests, answers, breaks, cancellations and deadlines against the pure queue; the
"server" is a list of what it has received.
"""

import asyncio
from collections import Counter
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tidelog import AppendUnknownError, TidelogError, UnavailableError
from tidelog.mailboxes.operations import Action, Operation, OperationQueue
from tidelog.v1 import mailbox_service_pb2 as pb

MAX_BYTES = 200
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 3)),
        st.tuples(st.sampled_from(("write", "break", "tick")), st.just(0)),
        st.tuples(st.sampled_from(("answer", "cancel")), st.integers(0, 20)),
    ),
    max_size=60,
)
KINDS = (
    (Action.SEND, pb.SendRequest(mailbox="m", bodies=[b"x" * 40]).SerializeToString(), False, False),
    (Action.SEND, pb.SendRequest(mailbox="m", bodies=[b"k"]).SerializeToString(), True, False),
    (Action.ACK, pb.AckDeliveriesRequest(mailbox="m").SerializeToString(), True, False),
    (Action.FETCH, pb.FetchRequest(mailbox="m", wait_ms=9).SerializeToString(), True, True),
)
ANSWERS: dict[Action, dict[str, Any]] = {
    Action.SEND: {"sent": pb.SendResponse(ids=[1])},
    Action.ACK: {"acked": pb.AckDeliveriesResponse()},
    Action.FETCH: {"fetched": pb.FetchResponse()},
}


class Run:
    """A queue, all operations that were put, and what the current stream has received."""

    def __init__(self) -> None:
        self.queue = OperationQueue(max_bytes=MAX_BYTES, timeout_s=5.0)
        self.all: list[Operation] = []
        self.times_sent: Counter[int] = Counter()
        self.received: list[Operation] = []
        self.ended: set[int] = set()
        self.now_s = 0.0

    def put(self, kind: int) -> None:
        call, request, is_repeatable, waits = KINDS[kind]
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        operation = Operation(
            self.queue.next_number(), call, request, future, deadline_s=self.now_s + 5.0, waits=waits,
            is_repeatable=is_repeatable,
        )  # fmt: skip
        self.queue.put(operation)
        self.all.append(operation)

    def write(self) -> None:
        encoded = self.queue.next_request()
        if encoded is None:
            return
        request = pb.OperateRequest.FromString(encoded)
        by_number = {operation.number: operation for operation in self.all}
        for each in request.operations:
            operation = by_number[each.number]
            assert not operation.future.done()
            assert each.WhichOneof("call") == operation.call.name.lower()
            self.times_sent[each.number] += 1
            self.received.append(operation)
        self.ended |= set(request.ended_waits)
        assert set(request.ended_waits) <= {operation.number for operation in self.received if operation.waits}
        # One operation may exceed the bound, no more.
        in_flight = [len(operation.encoded) for operation in self.received]
        assert sum(in_flight) < MAX_BYTES + max(in_flight)

    def answer(self, index: int) -> None:
        if self.received:
            operation = self.received.pop(index % len(self.received))
            self.queue.settle(pb.OperationResult(number=operation.number, **ANSWERS[operation.call]))
            assert operation.future.done()

    def step(self, name: str, number: int) -> None:
        match name:
            case "put":
                self.put(number)
            case "write":
                self.write()
            case "answer":
                self.answer(number)
            case "break":
                self.queue.interrupted(UnavailableError("a break", effect="unknown"))
                self.received.clear()
                self.ended.clear()
            case "tick":
                self.now_s += 2.0
                self.queue.expire(self.now_s)
            case "cancel" if self.all:
                operation = self.all[number % len(self.all)]
                if operation.future.cancel():
                    self.queue.leave(operation)


# The caller of a fetch leaves before the answer comes, which comes before the end of the wait is sent.
@example([("put", 3), ("write", 0), ("cancel", 0), ("answer", 0)])
@given(STEPS)
async def test_every_operation_is_settled_once_and_only_repeatable_ones_are_sent_twice(
    steps: list[tuple[str, int]],
) -> None:
    run = Run()
    for name, number in steps:
        run.step(name, number)
    # At last the server answers everything.
    while run.queue.has_waiting or run.received:
        run.write()
        run.answer(0)

    assert run.queue.is_idle
    assert not run.queue.has_waits
    for operation in run.all:
        assert operation.future.done()
        times = run.times_sent[operation.number]
        assert times <= 1 or operation.is_repeatable
        error = None if operation.future.cancelled() else operation.future.exception()
        if isinstance(error, TidelogError):
            # Nothing is claimed to be without effect that the server has received.
            assert error.effect == ("unknown" if times else "none")
            assert isinstance(error, AppendUnknownError) == (times > 0 and not operation.is_repeatable)
        elif not operation.future.cancelled():
            assert times or operation.waits
