"""The appends to one vchannel with the same terms, from submission to answer. Pure."""

import asyncio
import enum
from bisect import insort
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter
from typing import Any, Final

from tidelog.append.numbering import MAX_NUMBERED_IN_FLIGHT, Numbering
from tidelog.append.oversized import PartlyAppended
from tidelog.append.sizes import Appendable
from tidelog.errors import DeadlineError, ProducerStoppedError, TidelogError, copy_of
from tidelog.types import AppendResult, TransactionResult
from tidelog.wire.append_terms import AppendTerms
from tidelog.wire.columns import MAX_MESSAGES_PER_BATCH
from tidelog.wire.partitioning import Partitioner

_EAGER_BATCHES: Final = 2
_FULL_BYTES: Final = 64 << 10
_MAX_GROWN_BATCHES: Final = 8
"""Maximum number of unanswered batches of a queue whose batches grow while they wait."""
_HALVED_FROM: Final = 96
"""Waiting submissions from which two batches are faster than one: each has a fixed cost."""


@dataclass(slots=True, eq=False)
class Submission:
    """One append of a caller; its messages get consecutive ticks.

    Attributes:
        messages: Messages, at least one. A Batch is encoded already: it is sent as it is, if it travels alone.
        is_plain: True if all messages are bytes.
        size_bytes: Approximate size in a batch.
        future: Receives the AppendResult (for a transaction, the TransactionResult), a TidelogError, or TimeoutError
            from ``expire``. It may be cancelled, which does not affect the log.
        deadline_s: Deadline for ``expire``, by the caller's clock.
        is_abandoned: True if it must not be sent any more.
        is_sent: True once it was passed to the transport.
        travels_alone: True if it must not share a batch.
        is_divisible: True if messages that the server refuses for their size may be left out. The future then receives
            a PartlyAppended.
        refused: Errors of the messages that were left out, by their first index; None before the first one.
        growing_bytes: Size of what was added since it was queued, besides ``size_bytes``. Until ``seal``, another
            thread may add messages.
    """

    messages: Sequence[Appendable]
    is_plain: bool
    size_bytes: int
    future: "asyncio.Future[Any]"
    deadline_s: float = inf
    is_abandoned: bool = False
    is_sent: bool = False
    travels_alone: bool = False
    is_divisible: bool = False
    refused: dict[int, TidelogError] | None = None
    growing_bytes: int = 0

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self.messages)

    def seal(self) -> int:
        """Take no more messages; return the bytes by which ``size_bytes`` grows."""
        grown, self.growing_bytes = self.growing_bytes, 0
        self.size_bytes += grown
        return grown

    def succeed(self, result: AppendResult | TransactionResult | None) -> None:
        """Resolve the future with ``result``, None if all messages were left out, unless it is done."""
        if not self.future.done():
            if self.refused is not None and not isinstance(result, TransactionResult):
                self.future.set_result(PartlyAppended(result, self.refused))
            else:
                self.future.set_result(result)

    def leave_out(self, refused: Mapping[int, TidelogError]) -> bool:
        """Leave out messages, by index; return whether any are left. If none is, it succeeds."""
        before = self.refused or {}
        places = [index for index in range(len(self.messages) + len(before)) if index not in before]
        self.refused = before | {places[index]: error for index, error in refused.items()}
        self.messages = [each for index, each in enumerate(self.messages) if index not in refused]
        if not self.messages:
            self.succeed(None)
        return bool(self.messages)

    def fail(self, error: TidelogError) -> None:
        """Fail the future, unless it is done, with a copy of ``error``: a shared one would gather all tracebacks."""
        if not self.future.done():
            self.future.set_exception(copy_of(error))

    def expire(self, now_s: float) -> bool:
        """Return whether the deadline has passed; if so, fail the future with TimeoutError, unless it is done."""
        if now_s < self.deadline_s:
            return False
        if not self.future.done():
            self.future.set_exception(TimeoutError())
            # Marks the exception as retrieved: if no caller waits any more, asyncio must not log it.
            self.future.exception()
        return True

    def drop(self) -> None:
        """Record that the deadline passed before it was sent, so it never will be."""


@dataclass(slots=True)
class TransactionPart:
    """The part of a transaction for one vchannel.

    Attributes:
        messages: Messages gathered and not yet staged.
        is_plain: True if all of these are bytes.
        size_bytes: Approximate size of these in batches.
        count: Number of messages, staged ones included.
        expected_last_tick, fencing_token: Conditions of the commit.
        partitioner: How the vchannels of keys are chosen, if the part is for a channel.
    """

    messages: list[Appendable] = field(default_factory=list)
    is_plain: bool = True
    size_bytes: int = 0
    count: int = 0
    expected_last_tick: int | None = None
    fencing_token: int | None = None
    partitioner: Partitioner | None = None

    @property
    def has_conditions(self) -> bool:
        """True if the commit has conditions on the vchannel."""
        return self.expected_last_tick is not None or self.fencing_token is not None


@dataclass(slots=True, eq=False)
class TransactionSubmission(Submission):
    """A transaction being committed.

    Its future may be replaced while the outcome is unknown, because a caller may stop waiting and wait again later.

    Attributes:
        parts: Parts by vchannel, at least one; each has messages.
        vchannels: Vchannels of the parts, in order.
        messages_in_all: Number of messages.
        companions: What commits with it, as a serialised Transaction without parts; empty for nothing.
        outcome: Result or error; None while it is unknown.
    """

    parts: Mapping[str, TransactionPart] = field(default_factory=dict)
    vchannels: tuple[str, ...] = field(init=False)
    messages_in_all: int = field(init=False)
    companions: bytes = b""
    outcome: TransactionResult | TidelogError | None = None

    def __post_init__(self) -> None:
        self.vchannels = tuple(self.parts)
        self.messages_in_all = 0
        for part in self.parts.values():
            self.messages_in_all += len(part.messages)
            if part.has_conditions:
                # An unmet condition makes the server reject the whole request.
                self.travels_alone = True
        if self.messages_in_all > MAX_MESSAGES_PER_BATCH or self.companions:
            self.travels_alone = True

    @property
    def count(self) -> int:
        """Number of messages."""
        return self.messages_in_all

    def succeed(self, result: AppendResult | TransactionResult | None) -> None:
        """Record ``result``, and resolve the future, unless it is done."""
        assert isinstance(result, TransactionResult)
        self.outcome = result
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: TidelogError) -> None:
        """Record a copy of ``error``, and fail the future with it, unless it is done."""
        self.outcome = copy_of(error)
        if not self.future.done():
            self.future.set_exception(self.outcome)
            # Marks the exception as retrieved, as in `expire`.
            self.future.exception()

    def drop(self) -> None:
        """Record that the deadline passed before it was sent, so it never will be."""
        self.outcome = DeadlineError("the transaction was not sent before its deadline; nothing happened: commit again")

    def may_share_with(self, other: Submission) -> bool:
        """Return whether both may share a request."""
        if self.travels_alone or other.travels_alone:
            return False
        return isinstance(other, TransactionSubmission) and self.vchannels == other.vchannels


@dataclass(slots=True, eq=False)
class AppendBatch:
    """Submissions that share a request.

    Attributes:
        request: Encoded AppendStreamRequest.
        sequence: Sequence of the batch in a numbered queue; else 0.
        was_lost: True if an answer to it was lost, so that it may be in the log.
        says_repeated: True if ``request`` is marked as possibly sent before.
    """

    queue: "AppendQueue"
    submissions: list[Submission]
    size_bytes: int
    request_id: int
    count: int
    request: bytes
    sequence: int = 0
    was_lost: bool = False
    says_repeated: bool = False

    def fail(self, error: TidelogError) -> None:
        """Fail each submission with a copy of ``error``."""
        for submission in self.submissions:
            submission.fail(error)


class Hold(enum.Enum):
    """Why a queue with waiting batches must not send."""

    NONE = enum.auto()
    OVERLOAD = enum.auto()
    """The server is overloaded: wait for ``AppendQueues.resume``, or for the next stream."""
    STREAM = enum.auto()
    """The server would reject the batch again on this stream: wait for the next one."""


@dataclass(slots=True)
class Refusal:
    """The sequence from which all unanswered batches are renumbered, once all earlier ones are answered.

    Attributes:
        sequence: First sequence that was rejected.
        was_lost: True if an answer to the batch with that sequence was lost before.
        is_forgotten: True if the server has evicted the producer, which then needs a new id.
    """

    sequence: int
    was_lost: bool
    is_forgotten: bool = False


@dataclass(slots=True, frozen=True)
class Failure:
    """The failure that stopped a queue: only batches sent before the failed one are still resent.

    Attributes:
        sequence: Sequence of the failed batch.
        error: Cause.
    """

    sequence: int
    error: TidelogError


@dataclass(slots=True, eq=False)
class AppendQueue:
    """Appends to one vchannel, in order.

    Invariant: all batches in ``in_doubt`` are sent before any that waits.
    Invariant: a batch of a numbered queue has one sequence and one submission, unless it is transactions that share a
    request.

    Attributes:
        numbering: Source of sequences; None for a queue that never resends a batch.
        waiting: Submissions not yet sent.
        batches_in_flight: Number of batches sent and not answered.
        in_doubt: Numbered batches to resend unchanged, in order.
        hold: Why the queue must not send.
        refusal: Where renumbering begins; None if nothing was rejected.
        failure: What stopped the queue; None if it is running.
    """

    vchannel: str
    terms: AppendTerms
    numbering: Numbering | None = None
    waiting: deque[Submission] = field(default_factory=deque)
    waiting_bytes: int = 0
    batches_in_flight: int = 0
    in_doubt: deque[AppendBatch] = field(default_factory=deque)
    hold: Hold = Hold.NONE
    refusal: Refusal | None = None
    failure: Failure | None = None
    is_listed: bool = False

    @property
    def is_empty(self) -> bool:
        """True if every submission is settled."""
        return not (self.waiting or self.batches_in_flight or self.in_doubt)

    def may_send(self) -> bool:
        """Return whether the queue may send a batch now."""
        if self.hold is not Hold.NONE:
            return False
        if self.refusal is not None:
            return bool(self.in_doubt) and self.in_doubt[0].sequence < self.refusal.sequence
        if self.in_doubt:
            return True
        if not self.waiting:
            return False
        if self.numbering is not None:
            if self.batches_in_flight >= MAX_NUMBERED_IN_FLIGHT:
                return False
            head = self.waiting[0]
            if self.numbering.is_independent and head.travels_alone:
                return True
        if self.batches_in_flight < _EAGER_BATCHES or self.waiting_bytes >= _FULL_BYTES:
            return True
        # What grows is complete once another one waits behind it.
        has_grown = len(self.waiting) > 1 and self.waiting[0].growing_bytes > 0
        return has_grown and self.batches_in_flight < _MAX_GROWN_BATCHES

    @property
    def next_batch_bytes(self) -> int:
        """Size of the next batch, at most."""
        return self.in_doubt[0].size_bytes if self.in_doubt else self.waiting_bytes or self.waiting[0].growing_bytes

    def next_batch_limit(self) -> int:
        """Return how many submissions the next batch may have.

        Of many that wait while nothing is in flight, it takes half. The others follow at once: while the server works
        on one half, the client settles and encodes the other, and callers that append again keep both busy.
        """
        waiting = len(self.waiting)
        return waiting // 2 if waiting >= _HALVED_FROM and not self.batches_in_flight else waiting

    def renumber_from(self, batch: AppendBatch, *, is_forgotten: bool = False) -> None:
        """Record that ``batch`` was rejected: it and all later ones are to be renumbered."""
        if self.refusal is None:
            self.refusal = Refusal(batch.sequence, batch.was_lost)
        elif batch.sequence < self.refusal.sequence:
            self.refusal.sequence, self.refusal.was_lost = batch.sequence, batch.was_lost
        self.refusal.is_forgotten |= is_forgotten

    def will_renumber(self, batch: AppendBatch) -> bool:
        """Return whether ``batch`` is a rejected batch or comes after one."""
        return self.refusal is not None and self.refusal.sequence <= batch.sequence

    def renumbers_surely(self, batch: AppendBatch) -> bool:
        """Return whether ``batch`` was only ever sent after a rejected batch, so that it cannot be in the log."""
        return self.refusal is not None and self.refusal.sequence <= batch.sequence and not self.refusal.was_lost

    def may_renumber(self) -> bool:
        """Return whether to renumber now: nothing is in flight or held, and no earlier batch waits for a resend."""
        if self.refusal is None or self.batches_in_flight or self.hold is not Hold.NONE:
            return False
        return not self.in_doubt or self.refusal.sequence <= self.in_doubt[0].sequence

    def has_failed_before(self, batch: AppendBatch) -> bool:
        """Return whether a batch before ``batch`` has failed, so that this one cannot be in the log."""
        return self.failure is not None and self.failure.sequence < batch.sequence

    def send_again(self, batch: AppendBatch) -> None:
        """Queue ``batch`` for a resend, in order of sequence."""
        insort(self.in_doubt, batch, key=attrgetter("sequence"))

    def is_behind(self, batch: AppendBatch) -> bool:
        """Return whether a batch before ``batch`` waits for a resend."""
        return bool(self.in_doubt) and self.in_doubt[0].sequence < batch.sequence

    def fail(self, batch: AppendBatch, error: TidelogError) -> None:
        """Fail a numbered batch with ``error``. The first failure stops the queue, and fails what was sent after it.

        If batches are independent, the later ones are renumbered and resent instead.
        """
        assert self.numbering is not None
        if self.numbering.is_independent:
            self.renumber_from(batch)
        elif not self.has_failed_before(batch):
            self.failure = Failure(batch.sequence, error)
        elif error.effect == "none":
            assert self.failure is not None
            error = self.stopped(self.failure.error)
        batch.fail(error)

    def stopped(self, failure: TidelogError) -> TidelogError:
        """Return the error of batches after the one that failed with ``failure``; none of them is in the log."""
        stopped = ProducerStoppedError(f"the producer of {self.vchannel} stopped before this batch: {failure}")
        stopped.__cause__ = failure
        return stopped
