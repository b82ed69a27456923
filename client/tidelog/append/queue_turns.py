"""Queues of appends that take turns. Pure: no I/O, no clock, no tasks."""

from collections import deque
from typing import Final

from tidelog.append.numbering import Numbering
from tidelog.append.queue import AppendBatch, AppendQueue, Submission, TransactionSubmission
from tidelog.errors import AppendUnknownError, TidelogError, copy_of
from tidelog.wire.append_terms import AppendTerms
from tidelog.wire.columns import MAX_MESSAGES_PER_BATCH

MAX_COALESCED_BYTES: Final = 1 << 20
"""Maximum bytes of appends that share a batch; a larger append is sent alone."""

ABANDONED: Final = AppendUnknownError(
    "the connection was lost, and then a batch before this one was rejected: this one may or may not be in the log",
    effect="unknown",
)
"""The error of a batch after a rejected one, if an earlier attempt to send it may have arrived."""


class QueueTurns:
    """The queues of an append stream, each for a vchannel, terms and a numbering, and the turns in which they send.

    Attributes:
        queues: The queues that are not empty.
        waiting_bytes: Bytes of all submissions that wait.
    """

    def __init__(self) -> None:
        self.queues: dict[tuple[str, AppendTerms, Numbering | None], AppendQueue] = {}
        self.waiting_bytes = 0
        # Those that may send, in the order of their turns; some may no longer send.
        self._listed: deque[AppendQueue] = deque()

    def queue_of(self, vchannel: str, terms: AppendTerms, numbering: Numbering | None) -> AppendQueue:
        """Return a queue; create it if it does not exist."""
        key = (vchannel, terms, numbering)
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = AppendQueue(*key)
        return queue

    def next_queue(self) -> AppendQueue | None:
        """Return the first listed queue, without those before it that may no longer send."""
        while self._listed and not self._listed[0].may_send():
            self.unlist_next()
        return self._listed[0] if self._listed else None

    def unlist_next(self) -> None:
        """End the turn of the queue that ``next_queue`` returned."""
        self._listed.popleft().is_listed = False

    def put(self, queue: AppendQueue, submission: Submission, *, first: bool = False) -> None:
        """Let a submission wait at the end of a queue, or before all others of it."""
        (queue.waiting.appendleft if first else queue.waiting.append)(submission)
        queue.waiting_bytes += submission.size_bytes
        self.waiting_bytes += submission.size_bytes
        # A listed queue that runs is sent in its turn.
        if not queue.is_listed or queue.refusal is not None or queue.failure is not None:
            self.update(queue)

    def take(self, queue: AppendQueue) -> Submission:
        """Remove the first submission that waits in a queue, and return it."""
        submission = queue.waiting.popleft()
        queue.waiting_bytes -= submission.size_bytes
        self.waiting_bytes -= submission.size_bytes
        return submission

    def update(self, queue: AppendQueue) -> None:
        """List the queue if it may send, and delete it once it is empty: a client may use any number of vchannels."""
        if queue.may_renumber():
            self._renumber(queue)
        if queue.failure is not None:
            self._stop(queue, queue.failure.error)
        if queue.is_empty:
            self.queues.pop((queue.vchannel, queue.terms, queue.numbering), None)
        elif not queue.is_listed and queue.may_send():
            queue.is_listed = True
            self._listed.append(queue)

    def gather(self, queue: AppendQueue) -> tuple[list[Submission], int, int]:
        """Take the submissions of the next batch from the queue until it is full; the first one always fits.

        Returns:
            The submissions, the number of their messages, and their size in bytes.
        """
        submissions: list[Submission] = []
        waiting, limit = queue.waiting, queue.next_batch_limit()
        count = size_bytes = abandoned_bytes = 0
        while waiting and len(submissions) < limit:
            head = waiting[0]
            if head.is_abandoned:
                abandoned_bytes += waiting.popleft().size_bytes
                continue
            if head.growing_bytes and not submissions:
                # What grows travels alone; the next one grows on.
                grown_bytes = head.seal()
                queue.waiting_bytes += grown_bytes
                self.waiting_bytes += grown_bytes
            new_count, new_bytes = count + head.count, size_bytes + head.size_bytes
            is_full = new_count > MAX_MESSAGES_PER_BATCH or new_bytes > MAX_COALESCED_BYTES
            if submissions and (is_full or not _may_share(submissions[0], head)):
                break
            head.is_sent = True
            submissions.append(waiting.popleft())
            count, size_bytes = new_count, new_bytes
        queue.waiting_bytes -= size_bytes + abandoned_bytes
        self.waiting_bytes -= size_bytes + abandoned_bytes
        return submissions, count, size_bytes

    def fail_waiting(self, queue: AppendQueue, error: TidelogError) -> None:
        """Fail everything that waits in a queue with ``error``."""
        while queue.waiting:
            self.take(queue).fail(error)

    def put_back_alone(self, queue: AppendQueue, submissions: list[Submission]) -> None:
        """Requeue each submission of a rejected batch alone, so that one bad message affects no other caller."""
        for submission in reversed(submissions):
            submission.travels_alone = True
            submission.is_sent = False
            self.put(queue, submission, first=True)

    def _renumber(self, queue: AppendQueue) -> None:
        """Requeue everything that was rejected, under new sequences."""
        numbering, refusal = queue.numbering, queue.refusal
        assert numbering is not None
        assert refusal is not None
        queue.refusal = None
        if refusal.is_forgotten or refusal.was_lost or any(batch.was_lost for batch in queue.in_doubt):
            numbering.renew()
        else:
            # The server accepted nothing under these sequences, and nothing is in flight any more.
            numbering.rewind(refusal.sequence)
        while queue.in_doubt:
            batch = queue.in_doubt.pop()
            if batch.was_lost:
                # An earlier attempt may still arrive; under a new sequence the server would not detect the duplicate.
                batch.fail(ABANDONED)
            else:
                self.put_back_alone(queue, batch.submissions)

    def _stop(self, queue: AppendQueue, failure: TidelogError) -> None:
        """Fail everything after the failed batch, because it would follow a gap."""
        while queue.in_doubt and queue.has_failed_before(queue.in_doubt[-1]):
            batch = queue.in_doubt.pop()
            queue.fail(batch, as_known(batch, failure))
        self.fail_waiting(queue, queue.stopped(failure))


def as_known(batch: AppendBatch, error: TidelogError) -> TidelogError:
    """Return ``error``, with ``effect`` ``unknown`` if an earlier attempt may be in the log."""
    if not batch.was_lost or error.effect == "unknown":
        return error
    return copy_of(error, effect="unknown")


def _may_share(first: Submission, head: Submission) -> bool:
    """Return whether ``head`` may share a request that begins with ``first``."""
    if isinstance(first, TransactionSubmission):
        return first.may_share_with(head)
    return not (head.travels_alone or first.travels_alone)
