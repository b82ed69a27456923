"""Groups appends into batches and matches answers to batches. Pure: no I/O, no clock, no tasks.

A lane queues the appends to one vchannel with the same terms. While few of its batches are unanswered, a lane sends at
once; otherwise it gathers appends until a batch is full or an answer arrives. So a lone append never waits, concurrent
appends share round trips, and a producer of full batches has many in flight.

A batch is sent once: if its answer is lost, its outcome is unknown. In a numbered lane it is resent, in order, until
the server answers, because the server accepts each sequence once.
"""

from collections import deque
from itertools import chain
from math import inf
from typing import Final

from tidelog.append.contents import encode, results, wrong_answer
from tidelog.append.lane import Batch, Failure, Hold, Lane, Submission, TransactionSubmission
from tidelog.append.numbering import Numbering, Verdict, verdict
from tidelog.errors import (
    AppendUnknownError,
    InvalidRequestError,
    OverloadedError,
    OwnershipLostError,
    SequenceGapError,
    TidelogError,
    copy_of,
)
from tidelog.v1 import wal_service_pb2
from tidelog.wire import protocol as _wire
from tidelog.wire.append_terms import AppendTerms
from tidelog.wire.columns import MAX_MESSAGES_PER_BATCH, Columns

MAX_COALESCED_BYTES: Final = 1 << 20
"""Maximum bytes of appends that share a batch; a larger append is sent alone."""


_LaneKey = tuple[str, AppendTerms, Numbering | None]


class AppendQueue:
    """Waiting submissions and batches in flight.

    Invariant: answers arrive in the order of requests, so the next answer is for the oldest batch in flight.
    """

    def __init__(self, *, max_in_flight_bytes: int) -> None:
        self._max_in_flight_bytes = max_in_flight_bytes
        self._lanes: dict[_LaneKey, Lane] = {}
        self._listed: deque[Lane] = deque()
        self._in_flight: deque[Batch] = deque()
        self._in_flight_bytes = 0
        self._waiting_bytes = 0
        self._last_request_id = 0

    @property
    def is_idle(self) -> bool:
        """True if nothing waits and nothing is in flight."""
        return not self._lanes

    @property
    def has_waiting(self) -> bool:
        """True if something waits to be sent or resent."""
        return any(lane.waiting or lane.unsure for lane in self._lanes.values())

    @property
    def has_room(self) -> bool:
        """True if fewer bytes wait than may be in flight."""
        return self._waiting_bytes < self._max_in_flight_bytes

    def submit(
        self, vchannel: str, terms: AppendTerms, submission: Submission, numbering: Numbering | None = None
    ) -> None:
        """Queue ``submission`` in the lane of its vchannel, terms and numbering."""
        key = (vchannel, terms, numbering)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(*key)
        if numbering is not None and not numbering.is_independent:
            submission.travels_alone = True
        self._put(lane, submission)

    def next_batch(self) -> Batch | None:
        """Return the next batch to send, and count it as in flight; None if nothing may be sent now."""
        while self._listed:
            if self._in_flight and self._in_flight_bytes >= self._max_in_flight_bytes:
                return None
            lane = self._listed.popleft()
            lane.is_listed = False
            if not lane.may_send():
                continue
            batch = _again(lane.unsure.popleft()) if lane.unsure else self._compose(lane)
            if batch is not None:
                self._in_flight.append(batch)
                self._in_flight_bytes += batch.size_bytes
                lane.batches_in_flight += 1
            self._list(lane)
            if batch is not None:
                return batch
        return None

    def answered(self, response: wal_service_pb2.AppendStreamResponse, error: TidelogError | None) -> None:
        """Settle the oldest batch in flight with the result in ``response``, or with ``error`` if it is given."""
        batch = self._in_flight.popleft()
        assert batch.request_id == response.request_id
        self._landed(batch)
        error = error or wrong_answer(batch, response)
        if error is None:
            self._settle(batch.submissions, response)
        else:
            self._refuse_in_flight(batch, error)
        self._list(batch.lane)

    def interrupted(self, error: TidelogError, max_request_bytes: float = inf) -> None:
        """Handle the loss of the stream: resend batches in flight if they are numbered, else fail them with ``error``.

        Batches above ``max_request_bytes`` fail as too large: the server has accepted none of them. Lanes on hold may
        send again.
        """
        while self._in_flight:
            batch = self._in_flight.popleft()
            self._landed(batch)
            lane, size_bytes = batch.lane, len(batch.request)
            if size_bytes > max_request_bytes:
                self._refuse_in_flight(batch, _too_large(size_bytes, int(max_request_bytes)))
            elif lane.numbering is None:
                batch.fail(error)
            else:
                # A batch that was only ever sent after a rejected or failed one is not in the log.
                batch.was_lost = batch.was_lost or not (lane.renumbers_surely(batch) or lane.has_failed_before(batch))
                lane.send_again(batch)
            self._list(lane)
        for lane in list(self._lanes.values()):
            lane.hold = Hold.NONE
            self._list(lane)

    @property
    def has_releasable(self) -> bool:
        """True if a batch was rejected because of overload, and may be accepted later."""
        return any(lane.hold is Hold.OVERLOAD for lane in self._lanes.values())

    def release(self) -> None:
        """Allow resending what was rejected because of overload."""
        for lane in list(self._lanes.values()):
            if lane.hold is Hold.OVERLOAD:
                lane.hold = Hold.NONE
                self._list(lane)

    def fail_waiting(self, error: TidelogError) -> None:
        """Fail everything not yet sent with ``error``, except in numbered lanes, which wait for the next stream."""
        for lane in list(self._lanes.values()):
            if lane.numbering is None:
                self._fail_waiting_of(lane, error)
                self._list(lane)

    def give_up(self, error: TidelogError, unknown: TidelogError) -> None:
        """Fail what is numbered or in flight: with ``unknown`` if it may be in the log, otherwise with ``error``."""
        for batch in self._in_flight:
            batch.was_lost = True
        self.interrupted(unknown)
        for lane in list(self._lanes.values()):
            while lane.unsure:
                batch = lane.unsure.popleft()
                batch.fail(unknown if batch.was_lost else error)
            if lane.numbering is not None:
                self._fail_waiting_of(lane, error)
            self._list(lane)

    def expire(self, now_s: float) -> float:
        """Fail submissions whose deadline has passed with TimeoutError; return the next deadline, infinity for none.

        Expired submissions that were not sent never will be; those that were sent may be in the log.
        """
        kept: list[Submission] = []
        for lane in list(self._lanes.values()):
            for submission in [self._take(lane) for _ in range(len(lane.waiting))]:
                if submission.expire(now_s):
                    submission.drop()
                else:
                    self._put(lane, submission)
                    kept.append(submission)
            self._list(lane)
        unsure = chain.from_iterable(lane.unsure for lane in self._lanes.values())
        for batch in chain(self._in_flight, unsure):
            kept += [submission for submission in batch.submissions if not submission.expire(now_s)]
        return min((submission.deadline_s for submission in kept), default=inf)

    def _put(self, lane: Lane, submission: Submission, *, first: bool = False) -> None:
        (lane.waiting.appendleft if first else lane.waiting.append)(submission)
        lane.waiting_bytes += submission.size_bytes
        self._waiting_bytes += submission.size_bytes
        self._list(lane)

    def _take(self, lane: Lane) -> Submission:
        submission = lane.waiting.popleft()
        lane.waiting_bytes -= submission.size_bytes
        self._waiting_bytes -= submission.size_bytes
        return submission

    def _list(self, lane: Lane) -> None:
        """List the lane if it may send, and delete it once it is empty: a client may use any number of vchannels."""
        if lane.may_renumber():
            self._renumber(lane)
        if lane.failure is not None:
            self._stop(lane, lane.failure.error)
        if lane.is_empty:
            self._lanes.pop((lane.vchannel, lane.terms, lane.numbering), None)
        elif not lane.is_listed and lane.may_send():
            lane.is_listed = True
            self._listed.append(lane)

    def _compose(self, lane: Lane) -> Batch | None:
        submissions, size_bytes = self._gather(lane)
        if not submissions:
            return None
        try:
            lane.vchannel.encode()
            content = encode(submissions)
        except Exception as error:  # noqa: BLE001 - a caller's bad message must not affect other callers
            self._refuse(lane, submissions, error)
            return None
        number = lane.numbering.next() if lane.numbering else None
        self._last_request_id += 1
        request_id = self._last_request_id
        if isinstance(content, Columns):
            request = _wire.append_stream_request(request_id, lane.vchannel, content, lane.terms, number)
        else:
            request = _wire.transaction_request(request_id, content, lane.terms, number)
        count = sum(submission.count for submission in submissions)
        return Batch(lane, submissions, size_bytes, request_id, count, request, number.sequence if number else 0)

    def _gather(self, lane: Lane) -> tuple[list[Submission], int]:
        """Take submissions from the lane until the batch is full; the first one always fits."""
        submissions: list[Submission] = []
        count = size_bytes = 0
        while lane.waiting:
            head = lane.waiting[0]
            if head.is_abandoned:
                self._take(lane)
                continue
            count += head.count
            size_bytes += head.size_bytes
            is_full = count > MAX_MESSAGES_PER_BATCH or size_bytes > MAX_COALESCED_BYTES
            if submissions and (is_full or not _may_share(submissions[0], head)):
                return submissions, size_bytes - head.size_bytes
            head.is_sent = True
            submissions.append(self._take(lane))
        return submissions, size_bytes

    def _refuse(self, lane: Lane, submissions: list[Submission], error: Exception) -> None:
        if len(submissions) > 1:
            self._put_back_alone(lane, submissions)
            return
        refusal = InvalidRequestError(f"a message cannot be encoded: {error}")
        refusal.__cause__ = error
        submissions[0].fail(refusal)
        if lane.numbering is not None and not lane.numbering.is_independent and lane.failure is None:
            lane.failure = Failure(lane.numbering.next().sequence, refusal)

    def _refuse_in_flight(self, batch: Batch, error: TidelogError) -> None:
        """Handle the rejection of a batch that is no longer in flight: resend it, split it, or fail it."""
        if batch.lane.numbering is not None:
            self._refused(batch, error)
        elif _is_fault_of_one(error) and len(batch.submissions) > 1:
            self._isolate(batch)
        else:
            batch.fail(error)

    def _refused(self, batch: Batch, error: TidelogError) -> None:
        """Handle the rejection of a numbered batch: resend it, renumber it, split it, or fail it."""
        lane = batch.lane
        if isinstance(error, OwnershipLostError):
            batch.was_lost = batch.was_lost or error.effect == "unknown"
        decision = Verdict.GIVE_UP
        if not lane.has_failed_before(batch):
            assert lane.numbering is not None
            decision = verdict(
                error, was_lost=batch.was_lost, is_behind=lane.is_behind(batch), renumbers=lane.will_renumber(batch),
                can_renew=lane.numbering.can_renew,
            )  # fmt: skip
        match decision:
            case Verdict.SEND_AGAIN:
                lane.send_again(batch)
                # A batch rejected for any reason but a gap before it would be rejected again on this stream.
                if not isinstance(error, SequenceGapError):
                    lane.hold = Hold.OVERLOAD if isinstance(error, OverloadedError) else Hold.STREAM
            case Verdict.RENUMBER:
                lane.send_again(batch)
                lane.renumber_from(batch, is_forgotten=True)
            case Verdict.GIVE_UP:
                known = _as_known(batch, error)
                if lane.will_renumber(batch) and isinstance(error, SequenceGapError):
                    batch.fail(_ABANDONED)
                elif _is_fault_of_one(known) and len(batch.submissions) > 1:
                    lane.renumber_from(batch)
                    self._isolate(batch)
                else:
                    lane.fail(batch, known)

    def _renumber(self, lane: Lane) -> None:
        """Requeue everything that was rejected, under new sequences."""
        numbering, refusal = lane.numbering, lane.refusal
        assert numbering is not None
        assert refusal is not None
        lane.refusal = None
        if refusal.is_forgotten or refusal.was_lost or any(batch.was_lost for batch in lane.unsure):
            numbering.renew()
        else:
            # The server accepted nothing under these sequences, and nothing is in flight any more.
            numbering.rewind(refusal.sequence)
        while lane.unsure:
            batch = lane.unsure.pop()
            if batch.was_lost:
                # An earlier attempt may still arrive; under a new sequence the server would not detect the duplicate.
                batch.fail(_ABANDONED)
            else:
                self._put_back_alone(lane, batch.submissions)

    def _stop(self, lane: Lane, failure: TidelogError) -> None:
        """Fail everything after the failed batch, because it would follow a gap."""
        while lane.unsure and lane.has_failed_before(lane.unsure[-1]):
            batch = lane.unsure.pop()
            lane.fail(batch, _as_known(batch, failure))
        self._fail_waiting_of(lane, lane.stopped(failure))

    def _fail_waiting_of(self, lane: Lane, error: TidelogError) -> None:
        while lane.waiting:
            self._take(lane).fail(error)

    def _isolate(self, batch: Batch) -> None:
        """Requeue each submission of a rejected batch alone, so that one bad message affects no other caller."""
        self._put_back_alone(batch.lane, batch.submissions)

    def _put_back_alone(self, lane: Lane, submissions: list[Submission]) -> None:
        for submission in reversed(submissions):
            submission.travels_alone = True
            submission.is_sent = False
            self._put(lane, submission, first=True)

    def _landed(self, batch: Batch) -> None:
        self._in_flight_bytes -= batch.size_bytes
        batch.lane.batches_in_flight -= 1

    @staticmethod
    def _settle(submissions: list[Submission], response: wal_service_pb2.AppendStreamResponse) -> None:
        for submission, result in zip(submissions, results(submissions, response), strict=True):
            submission.succeed(result)


def _again(batch: Batch) -> Batch:
    """Return a batch to resend, marked as repeated if an earlier attempt may have arrived."""
    numbering = batch.lane.numbering
    if batch.was_lost and not batch.says_repeated and numbering is not None:
        batch.request += numbering.repeated_mark
        batch.says_repeated = True
    return batch


_ABANDONED: Final = AppendUnknownError(
    "the connection was lost, and then a batch before this one was rejected: this one may or may not be in the log",
    effect="unknown",
)


def _too_large(size_bytes: int, max_bytes: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"the request has {size_bytes} bytes, the server takes at most {max_bytes}: send smaller batches, or raise the "
        "server's limits.max_batch_bytes",
        values={"bytes": str(size_bytes), "max_bytes": str(max_bytes)},
    )


def _as_known(batch: Batch, error: TidelogError) -> TidelogError:
    """Return ``error``, with ``effect`` ``unknown`` if an earlier attempt may be in the log."""
    if not batch.was_lost or error.effect == "unknown":
        return error
    return copy_of(error, effect="unknown")


def _is_fault_of_one(error: TidelogError) -> bool:
    return isinstance(error, InvalidRequestError) and error.effect == "none"


def _may_share(first: Submission, head: Submission) -> bool:
    """Return whether ``head`` may share a request that begins with ``first``."""
    if isinstance(first, TransactionSubmission):
        return first.may_share_with(head)
    return not (head.travels_alone or first.travels_alone)
