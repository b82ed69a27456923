"""Which messages go into which batch, and whose answer is whose. Pure: no I/O, no clock, no tasks.

Appends to one vchannel that wait together travel together. A lane (the appends to one vchannel on the same terms)
may send at once while few of its batches are unanswered; beyond that it gathers until a batch is full or an answer
comes. So a lone append waits for nothing, many concurrent ones share round trips, and a producer of full batches
keeps many in flight.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import Final, cast

from tidelog import _wire
from tidelog._append_terms import AppendTerms
from tidelog._columns import MAX_MESSAGES_PER_BATCH, Columns, encode_messages, encode_payloads
from tidelog._errors import InvalidRequestError, ServerError, TidelogError
from tidelog._message import Message
from tidelog._sizes import Appendable
from tidelog._types import AppendResult
from tidelog.v1 import wal_service_pb2

MAX_COALESCED_BYTES: Final = 1 << 20
"""Appends are put together up to this size; one that is larger travels alone."""
_EAGER_BATCHES: Final = 2
_FULL_BYTES: Final = 64 << 10


@dataclass(slots=True, eq=False)
class Submission:
    """What one caller appends in one piece; its messages get consecutive ticks.

    Attributes:
        messages: At least one.
        is_plain: Whether all of them are bytes.
        size_bytes: About what they take in a batch.
        future: Gets the AppendResult or a TidelogError, or TimeoutError from ``expire``; may be cancelled, which
            changes nothing for the log.
        deadline_s: When ``expire`` gives up on it, by the caller's clock.
        is_abandoned: Whether it shall not be sent if that has not happened yet.
        is_sent: Whether it was handed to the transport.
        travels_alone: Whether it must not share a batch.
    """

    messages: Sequence[Appendable]
    is_plain: bool
    size_bytes: int
    future: "asyncio.Future[AppendResult]"
    deadline_s: float = inf
    is_abandoned: bool = False
    is_sent: bool = False
    travels_alone: bool = False

    def fail(self, error: TidelogError) -> None:
        """Give the caller a copy of ``error``: a shared one would gather the tracebacks of all its callers."""
        if not self.future.done():
            own = type(error)(str(error), effect=error.effect, values=error.values)
            own.__cause__ = error.__cause__
            self.future.set_exception(own)

    def expire(self, now_s: float) -> bool:
        """Return whether the deadline is over; then the caller, if he still waits, goes with TimeoutError."""
        if now_s < self.deadline_s:
            return False
        if not self.future.done():
            self.future.set_exception(TimeoutError())
        return True


@dataclass(slots=True, eq=False)
class _Lane:
    vchannel: str
    terms: AppendTerms
    waiting: deque[Submission] = field(default_factory=deque)
    waiting_bytes: int = 0
    batches_in_flight: int = 0
    is_listed: bool = False

    def may_send(self) -> bool:
        return bool(self.waiting) and (self.batches_in_flight < _EAGER_BATCHES or self.waiting_bytes >= _FULL_BYTES)


@dataclass(slots=True, eq=False)
class Batch:
    """Submissions on their way together.

    Attributes:
        request: The bytes of the AppendStreamRequest that carries them.
    """

    lane: _Lane
    submissions: list[Submission]
    size_bytes: int
    request_id: int
    count: int
    request: bytes


class AppendQueue:
    """Submissions that wait, and batches in flight.

    Invariant: answers come in the order of the requests, so the oldest batch in flight is the next one answered.
    """

    def __init__(self, *, max_in_flight_bytes: int) -> None:
        self._max_in_flight_bytes = max_in_flight_bytes
        self._lanes: dict[tuple[str, AppendTerms], _Lane] = {}
        self._listed: deque[_Lane] = deque()
        self._in_flight: deque[Batch] = deque()
        self._in_flight_bytes = 0
        self._waiting_bytes = 0
        self._last_request_id = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return not self._lanes

    @property
    def has_waiting(self) -> bool:
        """Whether anything was not sent yet."""
        return any(lane.waiting for lane in self._lanes.values())

    @property
    def has_room(self) -> bool:
        """Whether less waits than may be in flight."""
        return self._waiting_bytes < self._max_in_flight_bytes

    def submit(self, vchannel: str, terms: AppendTerms, submission: Submission) -> None:
        """Let ``submission`` wait for its turn, behind earlier ones of its lane."""
        lane = self._lanes.get((vchannel, terms))
        if lane is None:
            lane = self._lanes[vchannel, terms] = _Lane(vchannel, terms)
        self._put(lane, submission)

    def next_batch(self) -> Batch | None:
        """Return the next batch to send, now in flight; None when nothing may be sent."""
        while self._listed:
            if self._in_flight and self._in_flight_bytes >= self._max_in_flight_bytes:
                return None
            lane = self._listed.popleft()
            lane.is_listed = False
            batch = self._compose(lane)
            self._list(lane)
            if batch is not None:
                return batch
        return None

    def answered(self, response: wal_service_pb2.AppendStreamResponse, error: TidelogError | None) -> None:
        """Settle the oldest batch in flight: with the result of ``response``, or with ``error`` if that is given."""
        batch = self._in_flight.popleft()
        assert batch.request_id == response.request_id
        self._landed(batch)
        error = error or _wrong_answer(batch, response)
        if error is None:
            self._settle(batch.submissions, _wire.append_result(response.result))
        elif _is_fault_of_one(error) and len(batch.submissions) > 1:
            self._isolate(batch)
        else:
            for submission in batch.submissions:
                submission.fail(error)
        self._list(batch.lane)

    def fail_in_flight(self, error: TidelogError) -> None:
        """Settle every batch in flight with ``error``: the stream is gone."""
        while self._in_flight:
            batch = self._in_flight.popleft()
            self._landed(batch)
            for submission in batch.submissions:
                submission.fail(error)
            self._list(batch.lane)

    def fail_waiting(self, error: TidelogError) -> None:
        """Settle everything that was not sent with ``error``."""
        for lane in list(self._lanes.values()):
            while lane.waiting:
                self._take(lane).fail(error)
            self._list(lane)

    def expire(self, now_s: float) -> float:
        """Let the callers whose deadline is over go with TimeoutError; return the next deadline, infinity for none.

        What was not sent by then never will be; what was sent may be in the log.
        """
        kept: list[Submission] = []
        for lane in list(self._lanes.values()):
            for submission in [self._take(lane) for _ in range(len(lane.waiting))]:
                if not submission.expire(now_s):
                    self._put(lane, submission)
                    kept.append(submission)
            self._list(lane)
        for batch in self._in_flight:
            kept += [submission for submission in batch.submissions if not submission.expire(now_s)]
        return min((submission.deadline_s for submission in kept), default=inf)

    def _put(self, lane: _Lane, submission: Submission, *, first: bool = False) -> None:
        (lane.waiting.appendleft if first else lane.waiting.append)(submission)
        lane.waiting_bytes += submission.size_bytes
        self._waiting_bytes += submission.size_bytes
        self._list(lane)

    def _take(self, lane: _Lane) -> Submission:
        submission = lane.waiting.popleft()
        lane.waiting_bytes -= submission.size_bytes
        self._waiting_bytes -= submission.size_bytes
        return submission

    def _list(self, lane: _Lane) -> None:
        """List the lane if it may send, and forget it once it is empty: a client may use any number of vchannels."""
        if not lane.waiting and not lane.batches_in_flight:
            self._lanes.pop((lane.vchannel, lane.terms), None)
        elif not lane.is_listed and lane.may_send():
            lane.is_listed = True
            self._listed.append(lane)

    def _compose(self, lane: _Lane) -> Batch | None:
        submissions, size_bytes = self._gather(lane)
        if not submissions:
            return None
        try:
            columns = _encode(submissions)
        except (TypeError, ValueError) as error:
            self._refuse(lane, submissions, error)
            return None
        self._last_request_id += 1
        request = _wire.append_stream_request(self._last_request_id, lane.vchannel, columns, lane.terms)
        batch = Batch(lane, submissions, size_bytes, self._last_request_id, columns.count, request)
        self._in_flight.append(batch)
        self._in_flight_bytes += size_bytes
        lane.batches_in_flight += 1
        return batch

    def _gather(self, lane: _Lane) -> tuple[list[Submission], int]:
        """Take from the lane what fits into one batch; the first submission always does."""
        submissions: list[Submission] = []
        count = size_bytes = 0
        while lane.waiting:
            head = lane.waiting[0]
            if head.is_abandoned:
                self._take(lane)
                continue
            count += len(head.messages)
            size_bytes += head.size_bytes
            is_full = count > MAX_MESSAGES_PER_BATCH or size_bytes > MAX_COALESCED_BYTES
            if submissions and (is_full or head.travels_alone or submissions[0].travels_alone):
                return submissions, size_bytes - head.size_bytes
            head.is_sent = True
            submissions.append(self._take(lane))
        return submissions, size_bytes

    def _refuse(self, lane: _Lane, submissions: list[Submission], error: Exception) -> None:
        if len(submissions) > 1:
            self._put_back_alone(lane, submissions)
            return
        refusal = InvalidRequestError(f"a message cannot be encoded: {error}")
        refusal.__cause__ = error
        submissions[0].fail(refusal)

    def _isolate(self, batch: Batch) -> None:
        """Send each submission of a refused batch alone, so that one bad message harms no other caller."""
        self._put_back_alone(batch.lane, batch.submissions)

    def _put_back_alone(self, lane: _Lane, submissions: list[Submission]) -> None:
        for submission in reversed(submissions):
            submission.travels_alone = True
            submission.is_sent = False
            self._put(lane, submission, first=True)

    def _landed(self, batch: Batch) -> None:
        self._in_flight_bytes -= batch.size_bytes
        batch.lane.batches_in_flight -= 1

    @staticmethod
    def _settle(submissions: list[Submission], result: AppendResult) -> None:
        if len(submissions) == 1:
            if not submissions[0].future.done():
                submissions[0].future.set_result(result)
            return
        begin = 0
        for submission in submissions:
            end = begin + len(submission.messages)
            if not submission.future.done():
                submission.future.set_result(result.part(begin, end))
            begin = end


def as_messages(messages: Sequence[Appendable]) -> list[Message]:
    """Return ``messages`` with each payload wrapped."""
    return [message if isinstance(message, Message) else Message(message) for message in messages]


def _wrong_answer(batch: Batch, response: wal_service_pb2.AppendStreamResponse) -> TidelogError | None:
    ticks = response.result.last_tick - response.result.first_tick + 1
    if ticks == batch.count:
        return None
    return ServerError(f"the server gave {ticks} ticks to a batch of {batch.count} messages", effect="unknown")


def _is_fault_of_one(error: TidelogError) -> bool:
    return isinstance(error, InvalidRequestError) and error.effect == "none"


def _encode(submissions: list[Submission]) -> Columns:
    if all(submission.is_plain for submission in submissions):
        payloads = [cast("Sequence[bytes]", submission.messages) for submission in submissions]
        return encode_payloads(payloads[0] if len(payloads) == 1 else list(chain.from_iterable(payloads)))
    return encode_messages(list(chain.from_iterable(as_messages(s.messages) for s in submissions)))
