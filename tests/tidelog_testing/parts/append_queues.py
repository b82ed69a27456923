"""Drive the client's pure queue of appends by hand, or against a model of a server whose streams break."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog import (
    AppendResult,
    AppendUnknownError,
    InvalidRequestError,
    Message,
    SequenceGapError,
    TidelogError,
)
from tidelog.append.numbering import Numbering
from tidelog.append.queue import AppendBatch, Submission
from tidelog.append.queues import AppendQueues
from tidelog.append.sizes import Appendable, measure
from tidelog.v1 import wal_service_pb2
from tidelog.wire.append_terms import DEFAULT_TERMS
from tidelog.wire.column_message import columns_from_wire
from tidelog.wire.columns import decode_payloads


def submit(queue: AppendQueues, *messages: Appendable, vchannel: str = "a/0") -> "asyncio.Future[AppendResult]":
    is_plain, size_bytes = _measured(messages)
    future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
    queue.submit(vchannel, DEFAULT_TERMS, Submission(messages, is_plain, size_bytes, future))
    return future


def request_of(batch: AppendBatch) -> wal_service_pb2.AppendStreamRequest:
    return wal_service_pb2.AppendStreamRequest.FromString(batch.request)


def next_requests(queue: AppendQueues) -> list[wal_service_pb2.AppendStreamRequest]:
    """Return the batches of the next message."""
    message = wal_service_pb2.AppendStreamRequest.FromString(queue.next_request() or b"")
    return [message, *message.more] if message.request_id else []


def payloads_of(batch: AppendBatch | None) -> list[bytes]:
    assert batch is not None
    return payloads_in(request_of(batch))


def payloads_in(request: wal_service_pb2.AppendStreamRequest) -> list[bytes]:
    return decode_payloads(columns_from_wire(request.columns.SerializeToString()))


def answer(queue: AppendQueues, batch: AppendBatch, first_tick: int, error: TidelogError | None = None) -> None:
    response = wal_service_pb2.AppendStreamResponse(request_id=batch.request_id)
    response.result.first_tick = first_tick
    response.result.last_tick = first_tick + batch.count - 1
    queue.settle(response, error)


def a_queue(max_in_flight_bytes: int = 8 << 20) -> AppendQueues:
    return AppendQueues(max_in_flight_bytes=max_in_flight_bytes)


def submit_numbered(
    queue: AppendQueues, numbering: Numbering, message: Appendable, vchannel: str = "a/0"
) -> "asyncio.Future[AppendResult]":
    is_plain, size_bytes = _measured([message])
    future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
    queue.submit(vchannel, DEFAULT_TERMS, Submission([message], is_plain, size_bytes, future), numbering)
    return future


def _measured(messages: Sequence[Appendable]) -> tuple[bool, int]:
    """As ``measure_all``, but without its checks: a mutable field of a message may change after them."""
    sizes = [each.size_bytes if isinstance(each, Message) else measure(each) for each in messages]
    return all(isinstance(each, bytes) for each in messages), sum(sizes)


def next_numbered(queue: AppendQueues) -> AppendBatch:
    batch = queue.next_batch()
    assert batch is not None
    return batch


LOST = AppendUnknownError("lost", effect="unknown")


@dataclass
class Stream:
    """Requests and answers in flight; after ``cut``, the answers are lost."""

    requests: deque[bytes] = field(default_factory=deque)
    answers: deque[tuple[wal_service_pb2.AppendStreamResponse, TidelogError | None]] = field(default_factory=deque)


@dataclass
class NumberedServer:
    """A minimal model of a server: it accepts numbered batches, and refuses those whose payload begins with bad."""

    log: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    # First position and number of messages of each batch, by vchannel and producer.
    results: dict[tuple[str, str], list[tuple[int, int]]] = field(default_factory=dict)

    def serve(self, stream: Stream, refusal: TidelogError | None = None) -> None:
        """Accept the oldest request of ``stream``, or refuse it with ``refusal``."""
        request = wal_service_pb2.AppendStreamRequest.FromString(stream.requests.popleft())
        response = wal_service_pb2.AppendStreamResponse(request_id=request.request_id)
        stream.answers.append((response, refusal or self._append(request, response)))

    def content(self, request: wal_service_pb2.AppendStreamRequest) -> tuple[str, bytes]:
        """Return the vchannel and the encoded columns of a request."""
        return request.vchannel, request.columns.SerializeToString()

    def refusal(self, _request: wal_service_pb2.AppendStreamRequest) -> TidelogError | None:
        """Return why a request with the right number is refused; None if it is not."""
        return None

    def answer(self, response: wal_service_pb2.AppendStreamResponse, first: int, last: int, *, is_new: bool) -> None:
        """Write the position of a batch into ``response``."""
        response.result.first_tick, response.result.last_tick = first, last
        response.result.duplicate = not is_new

    def _append(
        self, request: wal_service_pb2.AppendStreamRequest, response: wal_service_pb2.AppendStreamResponse
    ) -> TidelogError | None:
        vchannel, columns = self.content(request)
        producer, log = request.options.producer, self.log[vchannel]
        results = self.results.setdefault((vchannel, producer.producer_id), [])
        payloads = decode_payloads(columns_from_wire(columns))
        # An invalid request is refused before its number is checked.
        if any(payload.startswith(b"bad") for payload in payloads):
            return InvalidRequestError("bad")
        if producer.sequence > len(results) + 1:
            return SequenceGapError("gap", values={"expected_sequence": str(len(results) + 1)})
        is_new = producer.sequence == len(results) + 1
        if is_new:
            if (refusal := self.refusal(request)) is not None:
                return refusal
            results.append((len(log), len(payloads)))
            log += payloads
        first, count = results[producer.sequence - 1]
        assert log[first : first + count] == payloads
        self.answer(response, first, first + count - 1, is_new=is_new)
        return None


class Network:
    """A client's queue, a server, and the streams between them."""

    def __init__(self, server: NumberedServer) -> None:
        self.queue = a_queue()
        self.stream = Stream()
        self.cut_off: list[Stream] = []
        self._server = server

    def send(self, count: int) -> None:
        """Send ``count`` batches."""
        for _ in range(count):
            if (batch := self.queue.next_batch()) is not None:
                self.stream.requests.append(batch.request)

    def serve(self, count: int) -> None:
        """Deliver ``count`` requests to the server."""
        for _ in range(min(count, len(self.stream.requests))):
            self._server.serve(self.stream)

    def answer(self, count: int) -> None:
        """Deliver ``count`` answers to the client."""
        for _ in range(min(count, len(self.stream.answers))):
            self.queue.settle(*self.stream.answers.popleft())

    def cut(self) -> None:
        """Lose the answers in flight, and open another stream."""
        self.cut_off.append(self.stream)
        self.stream = Stream()
        self.queue.interrupted(LOST)

    def serve_late(self) -> None:
        """Process a request of a stream that was cut."""
        for stream in self.cut_off:
            if stream.requests:
                self._server.serve(stream)
                return
