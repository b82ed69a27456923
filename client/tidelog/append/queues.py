"""Groups appends into batches and matches answers to batches. Pure: no I/O, no clock, no tasks.

A queue has the appends to one vchannel with the same terms. While few of its batches are unanswered, it sends at once;
otherwise it gathers appends until a batch is full or an answer arrives. So a lone append never waits, concurrent
appends share round trips, many concurrent appends are under way in two batches that alternate, and a producer of full
batches has many in flight.

A batch is sent once: if its answer is lost, its outcome is unknown. In a numbered queue it is resent, in order, until
the server answers, because the server accepts each sequence once.
"""

from collections import deque
from collections.abc import Mapping
from itertools import chain
from math import inf
from typing import Final

from tidelog.append.contents import encode, results, wrong_answer
from tidelog.append.dividing import KnownChannels
from tidelog.append.numbering import Numbering, Verdict, verdict
from tidelog.append.oversized import oversized
from tidelog.append.queue import AppendBatch, AppendQueue, Failure, Hold, Submission, TransactionSubmission
from tidelog.append.queue_turns import ABANDONED, QueueTurns, as_known
from tidelog.errors import (
    AppendUnknownError,
    ClosedError,
    InvalidRequestError,
    OverloadedError,
    OwnershipLostError,
    PermissionDeniedError,
    SequenceGapError,
    ShutdownError,
    TidelogError,
    UnauthenticatedError,
    UnavailableError,
)
from tidelog.transport.pipeline import After, Queue
from tidelog.transport.status import error_of_answer
from tidelog.v1 import wal_service_pb2
from tidelog.wire import protocol as _wire
from tidelog.wire.append_terms import AppendTerms
from tidelog.wire.columns import Columns

MAX_BATCHES_PER_MESSAGE: Final = 64
MAX_BYTES_PER_MESSAGE: Final = 64 << 10
"""Small batches to several vchannels share a message up to this size: a message costs gRPC more than an append."""


class AppendQueues(Queue):
    """Waiting submissions and batches in flight.

    Invariant: answers arrive in the order of requests, so the next answer is for the oldest batch in flight.
    """

    def __init__(self, *, max_in_flight_bytes: int, known: KnownChannels | None = None) -> None:
        """Create idle queues; ``known`` learns the numbers of vchannels from the answers."""
        self._max_in_flight_bytes = max_in_flight_bytes
        self._known = known or KnownChannels()
        self._turns = QueueTurns()
        self._in_flight: deque[AppendBatch] = deque()
        self._in_flight_bytes = 0
        self._last_request_id = 0

    @property
    def is_idle(self) -> bool:
        """True if nothing waits and nothing is in flight."""
        return not self._turns.queues

    @property
    def has_waiting(self) -> bool:
        """True if something waits to be sent or resent."""
        return any(queue.waiting or queue.in_doubt for queue in self._turns.queues.values())

    @property
    def has_patience(self) -> bool:
        """True if a numbered queue has unsettled submissions: all others have deadlines of their own."""
        return any(queue.numbering is not None for queue in self._turns.queues.values())

    @property
    def has_room(self) -> bool:
        """True if fewer bytes wait than may be in flight."""
        return self._turns.waiting_bytes < self._max_in_flight_bytes

    def submit(
        self, vchannel: str, terms: AppendTerms, submission: Submission, numbering: Numbering | None = None
    ) -> None:
        """Queue ``submission`` in the queue of its vchannel, terms and numbering."""
        queue = self._turns.queue_of(vchannel, terms, numbering)
        if numbering is not None and not numbering.is_independent:
            submission.travels_alone = True
        self._turns.put(queue, submission)

    def next_batch(self) -> AppendBatch | None:
        """Return the next batch to send, and count it as in flight; None if nothing may be sent now."""
        turns = self._turns
        while (queue := turns.next_queue()) is not None:
            if self._in_flight and self._in_flight_bytes >= self._max_in_flight_bytes:
                return None
            turns.unlist_next()
            batch = _again(queue.in_doubt.popleft()) if queue.in_doubt else self._compose(queue)
            if batch is not None:
                self._in_flight.append(batch)
                self._in_flight_bytes += batch.size_bytes
                queue.batches_in_flight += 1
            turns.update(queue)
            if batch is not None:
                return batch
        return None

    def next_request(self) -> bytes | None:
        """Return the next message: one batch, or small ones of several queues with nothing else in flight.

        They count as in flight. None if nothing may be sent now.
        """
        batch = self.next_batch()
        if batch is None:
            return None
        left_bytes = MAX_BYTES_PER_MESSAGE - batch.size_bytes
        if not self._is_next_small(left_bytes):
            return batch.request
        requests = [batch.request]
        while len(requests) < MAX_BATCHES_PER_MESSAGE and self._is_next_small(left_bytes):
            if (batch := self.next_batch()) is None:
                break
            requests.append(batch.request)
            left_bytes -= batch.size_bytes
        return requests[0] if len(requests) == 1 else _wire.requests_together(requests)

    def _is_next_small(self, max_bytes: int) -> bool:
        """Return whether the next queue has nothing in flight, and at most ``max_bytes`` to send."""
        queue = self._turns.next_queue()
        return queue is not None and not queue.batches_in_flight and queue.next_batch_bytes <= max_bytes

    def answered(self, response: wal_service_pb2.AppendStreamResponse) -> After:
        """Settle the oldest batches in flight with their results or errors in ``response``."""
        after = After.CONTINUE
        for answer in (response, *response.more):
            if not answer.HasField("error"):
                self.settle(answer, None)
                continue
            error = error_of_answer(answer.error)
            self.settle(answer, error)
            if isinstance(error, ShutdownError):
                after = After.FINISH
            elif after is After.CONTINUE and self.has_releasable:
                after = After.PAUSE
        return after

    def settle(self, response: wal_service_pb2.AppendStreamResponse, error: TidelogError | None) -> None:
        """Settle the oldest batch in flight with the result in ``response``, or with ``error`` if it is given."""
        batch = self._in_flight.popleft()
        assert batch.request_id == response.request_id
        self._landed(batch)
        error = error or wrong_answer(batch, response)
        if error is None:
            self._learn(batch, response)
            for submission, result in zip(batch.submissions, results(batch.submissions, response), strict=True):
                submission.succeed(result)
        else:
            self._refuse_in_flight(batch, error)
        self._turns.update(batch.queue)

    def _learn(self, batch: AppendBatch, response: wal_service_pb2.AppendStreamResponse) -> None:
        first = batch.submissions[0]
        if isinstance(first, TransactionSubmission):
            for vchannel, part in zip(first.parts, response.transaction.parts, strict=True):
                self._known.note(vchannel, part.vchannels)
        else:
            self._known.note(batch.queue.vchannel, response.result.vchannels)

    def may_pass(self, error: TidelogError, *, can_renew_token: bool) -> bool:
        """Return whether the next stream may succeed: not if the server refuses a token that cannot change."""
        return can_renew_token or not isinstance(error, UnauthenticatedError | PermissionDeniedError)

    def interrupted(self, reason: TidelogError, max_request_bytes: float = inf) -> None:
        """Handle the loss of the stream: resend batches in flight if they are numbered, else fail them.

        Batches above ``max_request_bytes`` fail as too large: the server has accepted none of them. Queues on hold may
        send again.
        """
        error = reason
        if not isinstance(reason, _REFUSALS_OF_STREAMS):
            # Even an error with details concerns only the stream: batches sent on it may have been written before.
            error = unknown(reason, reason.values)
            error.__cause__ = reason
        self._interrupt(error, max_request_bytes)

    def _interrupt(self, error: TidelogError, max_request_bytes: float = inf) -> None:
        while self._in_flight:
            batch = self._in_flight.popleft()
            self._landed(batch)
            queue, size_bytes = batch.queue, len(batch.request)
            if size_bytes > max_request_bytes:
                self._refuse_in_flight(batch, _too_large(size_bytes, int(max_request_bytes)))
            elif queue.numbering is None:
                batch.fail(error)
            else:
                # A batch that was only ever sent after a rejected or failed one is not in the log.
                batch.was_lost = batch.was_lost or not (queue.renumbers_surely(batch) or queue.has_failed_before(batch))
                queue.send_again(batch)
            self._turns.update(queue)
        for queue in list(self._turns.queues.values()):
            queue.hold = Hold.NONE
            self._turns.update(queue)

    @property
    def has_releasable(self) -> bool:
        """True if a batch was rejected because of overload, and may be accepted later."""
        return any(queue.hold is Hold.OVERLOAD for queue in self._turns.queues.values())

    def resume(self) -> None:
        """Allow resending what was rejected because of overload."""
        for queue in list(self._turns.queues.values()):
            if queue.hold is Hold.OVERLOAD:
                queue.hold = Hold.NONE
                self._turns.update(queue)

    def unreachable(self, error: TidelogError, *, may_pass: bool = True) -> None:
        """Fail everything not yet sent with ``error``, except in numbered queues, which wait for the next stream."""
        for queue in list(self._turns.queues.values()):
            if queue.numbering is None:
                self._turns.fail_waiting(queue, error)
                self._turns.update(queue)

    def refused(self, error: TidelogError) -> None:
        """Fail what is numbered: the server refuses the token, which cannot change."""
        self.give_up(error, unknown(error, error.values))

    def silent(self, silent_s: float, why: object) -> None:
        """Fail what is numbered or in flight: no answer has arrived for ``silent_s``."""
        gone = UnavailableError(f"the server did not answer for {silent_s:.1f} s ({why}): this append was not sent")
        self.give_up(gone, unknown(f"within {silent_s:.1f} s"))

    def closed(self, why: str) -> None:
        """Fail everything: as unknown if it may be in the log, else as closed."""
        gone = ClosedError("the client was closed before the append was sent")
        self.give_up(gone, unknown(why))
        self.unreachable(gone)

    def give_up(self, error: TidelogError, lost: AppendUnknownError) -> None:
        """Fail what is numbered or in flight: with ``lost`` if it may be in the log, otherwise with ``error``."""
        for batch in self._in_flight:
            batch.was_lost = True
        self._interrupt(lost)
        for queue in list(self._turns.queues.values()):
            while queue.in_doubt:
                batch = queue.in_doubt.popleft()
                batch.fail(lost if batch.was_lost else error)
            if queue.numbering is not None:
                self._turns.fail_waiting(queue, error)
            self._turns.update(queue)

    def expire(self, now_s: float) -> float:
        """Fail submissions whose deadline has passed with TimeoutError; return the next deadline, infinity for none.

        Expired submissions that were not sent never will be; those that were sent may be in the log.
        """
        kept: list[Submission] = []
        for queue in list(self._turns.queues.values()):
            for submission in [self._turns.take(queue) for _ in range(len(queue.waiting))]:
                if submission.expire(now_s):
                    submission.drop()
                else:
                    self._turns.put(queue, submission)
                    kept.append(submission)
            self._turns.update(queue)
        in_doubt = chain.from_iterable(queue.in_doubt for queue in self._turns.queues.values())
        for batch in chain(self._in_flight, in_doubt):
            kept += [submission for submission in batch.submissions if not submission.expire(now_s)]
        return min((submission.deadline_s for submission in kept), default=inf)

    def _compose(self, queue: AppendQueue) -> AppendBatch | None:
        submissions, count, size_bytes = self._turns.gather(queue)
        if not submissions:
            return None
        try:
            queue.vchannel.encode()
            content = encode(submissions)
        except Exception as error:  # noqa: BLE001 - a caller's bad message must not affect other callers
            self._refuse(queue, submissions, error)
            return None
        number = queue.numbering.next() if queue.numbering else None
        self._last_request_id += 1
        request_id = self._last_request_id
        if isinstance(content, Columns):
            request = _wire.append_stream_request(request_id, queue.vchannel, content, queue.terms, number)
        else:
            request = _wire.transaction_request(request_id, content, queue.terms, number)
        return AppendBatch(queue, submissions, size_bytes, request_id, count, request, number.sequence if number else 0)

    def _refuse(self, queue: AppendQueue, submissions: list[Submission], error: Exception) -> None:
        if len(submissions) > 1:
            self._turns.put_back_alone(queue, submissions)
            return
        refusal = InvalidRequestError(f"a message cannot be encoded: {error}")
        refusal.__cause__ = error
        submissions[0].fail(refusal)
        if queue.numbering is not None and not queue.numbering.is_independent and queue.failure is None:
            queue.failure = Failure(queue.numbering.next().sequence, refusal)

    def _refuse_in_flight(self, batch: AppendBatch, error: TidelogError) -> None:
        """Handle the rejection of a batch that is no longer in flight: resend it, split it, or fail it."""
        if batch.queue.numbering is not None:
            self._refused(batch, error)
        elif _is_fault_of_one(error) and len(batch.submissions) > 1:
            self._turns.put_back_alone(batch.queue, batch.submissions)
        else:
            batch.fail(error)

    def _refused(self, batch: AppendBatch, error: TidelogError) -> None:
        """Handle the rejection of a numbered batch: resend it, renumber it, split it, or fail it."""
        queue = batch.queue
        if isinstance(error, OwnershipLostError):
            batch.was_lost = batch.was_lost or error.effect == "unknown"
        decision = Verdict.GIVE_UP
        if not queue.has_failed_before(batch):
            assert queue.numbering is not None
            decision = verdict(
                error, was_lost=batch.was_lost, is_behind=queue.is_behind(batch), renumbers=queue.will_renumber(batch),
                can_renew=queue.numbering.can_renew,
            )  # fmt: skip
        match decision:
            case Verdict.SEND_AGAIN:
                queue.send_again(batch)
                # A batch rejected for any reason but a gap before it would be rejected again on this stream.
                if not isinstance(error, SequenceGapError):
                    queue.hold = Hold.OVERLOAD if isinstance(error, OverloadedError) else Hold.STREAM
            case Verdict.RENUMBER:
                queue.send_again(batch)
                queue.renumber_from(batch, is_forgotten=True)
            case Verdict.GIVE_UP:
                known = as_known(batch, error)
                if queue.will_renumber(batch) and isinstance(error, SequenceGapError):
                    batch.fail(ABANDONED)
                elif _is_fault_of_one(known) and len(batch.submissions) > 1:
                    queue.renumber_from(batch)
                    self._turns.put_back_alone(queue, batch.submissions)
                elif not self._leave_out(batch, known):
                    queue.fail(batch, known)

    def _leave_out(self, batch: AppendBatch, error: TidelogError) -> bool:
        """Leave out the messages that are too large for the server, if there are any; return whether there are.

        Ordering: the others wait in doubt until they are renumbered, and so stay before the batches that follow.
        """
        queue, submission = batch.queue, batch.submissions[0]
        if not submission.is_divisible or queue.has_failed_before(batch):
            return False
        refused = oversized(submission.messages, error)
        if not refused:
            return False
        queue.renumber_from(batch)
        if submission.leave_out(refused):
            queue.send_again(batch)
        return True

    def _landed(self, batch: AppendBatch) -> None:
        self._in_flight_bytes -= batch.size_bytes
        batch.queue.batches_in_flight -= 1


def _again(batch: AppendBatch) -> AppendBatch:
    """Return a batch to resend, marked as repeated if an earlier attempt may have arrived."""
    numbering = batch.queue.numbering
    if batch.was_lost and not batch.says_repeated and numbering is not None:
        batch.request += numbering.repeated_mark
        batch.says_repeated = True
    return batch


_REFUSALS_OF_STREAMS: Final = (UnauthenticatedError, PermissionDeniedError, OverloadedError)
"""With these the server refuses a stream before it reads anything from it."""


def unknown(why: object, values: Mapping[str, str] | None = None) -> AppendUnknownError:
    """Return the error of an append that was sent and not answered."""
    text = f"the append was sent but not answered ({why}): its messages may or may not be in the log"
    return AppendUnknownError(text, effect="unknown", values=values)


def _too_large(size_bytes: int, max_bytes: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"the request has {size_bytes} bytes, the server takes at most {max_bytes}: send smaller batches, or raise the "
        "server's limits.max_batch_bytes",
        values={"bytes": str(size_bytes), "max_bytes": str(max_bytes)},
    )


def _is_fault_of_one(error: TidelogError) -> bool:
    return isinstance(error, InvalidRequestError) and error.effect == "none"
