"""A lane: the appends to one vchannel on the same terms, from the caller to the answer. Pure."""

import asyncio
import enum
from bisect import insort
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from tidelog._append_terms import AppendTerms
from tidelog._columns import MAX_MESSAGES_PER_BATCH, Columns
from tidelog._errors import DeadlineError, ProducerStoppedError, TidelogError, copy_of
from tidelog._numbering import MAX_NUMBERED_IN_FLIGHT, Numbering
from tidelog._sizes import Appendable
from tidelog._types import AppendResult, PositionCommit, TransactionResult

_EAGER_BATCHES: Final = 2
_FULL_BYTES: Final = 64 << 10


@dataclass(slots=True, eq=False)
class Submission:
    """What one caller appends in one piece; its messages get consecutive ticks.

    Attributes:
        messages: At least one.
        is_plain: Whether all of them are bytes.
        size_bytes: About what they take in a batch.
        future: Gets the AppendResult (of a transaction: the TransactionResult) or a TidelogError, or TimeoutError from
            ``expire``; may be cancelled, which changes nothing for the log.
        deadline_s: When ``expire`` gives up on it, by the caller's clock.
        is_abandoned: Whether it shall not be sent if that has not happened yet.
        is_sent: Whether it was handed to the transport.
        travels_alone: Whether it must not share a batch.
    """

    messages: Sequence[Appendable]
    is_plain: bool
    size_bytes: int
    future: "asyncio.Future[Any]"
    deadline_s: float = inf
    is_abandoned: bool = False
    is_sent: bool = False
    travels_alone: bool = False

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self.messages)

    def succeed(self, result: AppendResult | TransactionResult) -> None:
        """Give the caller the result, if he still waits."""
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: TidelogError) -> None:
        """Give the caller a copy of ``error``: a shared one would gather the tracebacks of all its callers."""
        if not self.future.done():
            self.future.set_exception(copy_of(error))

    def expire(self, now_s: float) -> bool:
        """Return whether the deadline is over; then the caller, if he still waits, goes with TimeoutError."""
        if now_s < self.deadline_s:
            return False
        if not self.future.done():
            self.future.set_exception(TimeoutError())
            # Asked for, because nobody may wait any more.
            self.future.exception()
        return True

    def drop(self) -> None:
        """Note that it will never be sent, for its time was over before."""


@dataclass(slots=True, eq=False)
class ColumnsSubmission(Submission):
    """A batch that is encoded already; it travels alone.

    Attributes:
        columns: Its messages.
    """

    columns: Columns = field(kw_only=True)

    @property
    def count(self) -> int:
        """Number of messages."""
        return self.columns.count


@dataclass(slots=True)
class TransactionPart:
    """What a transaction appends to one vchannel.

    Attributes:
        messages: Those that are gathered, and not staged.
        is_plain: Whether all of them are bytes.
        size_bytes: About what they take in batches.
        count: How many messages there are, staged ones included.
        expected_last_tick, fencing_token: Its conditions.
    """

    messages: list[Appendable] = field(default_factory=list)
    is_plain: bool = True
    size_bytes: int = 0
    count: int = 0
    expected_last_tick: int | None = None
    fencing_token: int | None = None


@dataclass(slots=True, eq=False)
class TransactionSubmission(Submission):
    """A transaction on its way.

    Its future may be replaced while the outcome is not known: the caller may give up waiting, and come back.

    Attributes:
        parts: By vchannel, at least one; each has messages.
        vchannels: Names of its parts, in order.
        messages_in_all: How many.
        positions: What consumer groups commit with it.
        outcome: Where it is, or why it is not; None as long as neither is known.
    """

    parts: Mapping[str, TransactionPart] = field(default_factory=dict)
    vchannels: tuple[str, ...] = field(init=False)
    messages_in_all: int = field(init=False)
    positions: Sequence[PositionCommit] = ()
    outcome: TransactionResult | TidelogError | None = None

    def __post_init__(self) -> None:
        self.vchannels = tuple(self.parts)
        self.messages_in_all = 0
        for part in self.parts.values():
            self.messages_in_all += len(part.messages)
            if part.expected_last_tick is not None or part.fencing_token is not None:
                # What refuses one transaction refuses all that share its request.
                self.travels_alone = True
        if self.messages_in_all > MAX_MESSAGES_PER_BATCH or self.positions:
            self.travels_alone = True

    @property
    def count(self) -> int:
        """Number of messages."""
        return self.messages_in_all

    def succeed(self, result: AppendResult | TransactionResult) -> None:
        """Note the result, and give it to the caller if he waits."""
        assert isinstance(result, TransactionResult)
        self.outcome = result
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: TidelogError) -> None:
        """Note a copy of ``error``, and give it to the caller if he waits."""
        self.outcome = copy_of(error)
        if not self.future.done():
            self.future.set_exception(self.outcome)
            # Asked for, because nobody may wait any more.
            self.future.exception()

    def drop(self) -> None:
        """Note that it will never be sent, for its time was over before."""
        self.outcome = DeadlineError("the transaction could not be sent in time; nothing happened: commit it again")

    def may_share_with(self, other: Submission) -> bool:
        """Tell whether both may be in one request."""
        if self.travels_alone or other.travels_alone:
            return False
        return isinstance(other, TransactionSubmission) and self.vchannels == other.vchannels


@dataclass(slots=True, eq=False)
class Batch:
    """Submissions on their way together.

    Attributes:
        request: The bytes of the AppendStreamRequest that carries them.
        sequence: Its number in a numbered lane; else 0.
        was_lost: Whether its answer was lost once, so that it may be in the log.
        says_repeated: Whether ``request`` says that it may have been sent before.
    """

    lane: "Lane"
    submissions: list[Submission]
    size_bytes: int
    request_id: int
    count: int
    request: bytes
    sequence: int = 0
    was_lost: bool = False
    says_repeated: bool = False

    def fail(self, error: TidelogError) -> None:
        """Give all callers a copy of ``error``."""
        for submission in self.submissions:
            submission.fail(error)


class Hold(enum.Enum):
    """Why nothing of a lane is sent, though something waits."""

    NONE = enum.auto()
    OVERLOAD = enum.auto()
    """The server has no room for it: until ``AppendQueue.release``, or the next stream."""
    STREAM = enum.auto()
    """The server would refuse it again on this stream."""


@dataclass(slots=True)
class Refusal:
    """From where on all that is on its way gets new numbers, once it is surely refused and all before is answered.

    Attributes:
        sequence: The first number that was refused.
        was_lost: Whether the batch with that number had been sent before.
        is_forgotten: Whether the server has forgotten the producer, which then needs another name.
    """

    sequence: int
    was_lost: bool
    is_forgotten: bool = False


@dataclass(slots=True, frozen=True)
class Failure:
    """What stopped a lane: nothing is sent any more but what was sent before it.

    Attributes:
        sequence: Of the batch that met it.
        error: Why.
    """

    sequence: int
    error: TidelogError


def _sequence(batch: Batch) -> int:
    return batch.sequence


@dataclass(slots=True, eq=False)
class Lane:
    """Appends to one vchannel, in order.

    Invariant: all batches in ``unsure`` are to be sent before any that waits.
    Invariant: one batch of a numbered lane has one number; it is one submission, unless it is transactions that share
    a request.

    Attributes:
        numbering: Numbers its batches; None for a lane whose batches are never sent twice.
        waiting: Not sent yet.
        batches_in_flight: Sent and not answered.
        unsure: Numbered batches that are to be sent again, as they are, in order.
        hold: Why nothing of it is sent.
        refusal: What was refused and gets new numbers; None for nothing.
        failure: What has stopped it; None for nothing.
    """

    vchannel: str
    terms: AppendTerms
    numbering: Numbering | None = None
    waiting: deque[Submission] = field(default_factory=deque)
    waiting_bytes: int = 0
    batches_in_flight: int = 0
    unsure: deque[Batch] = field(default_factory=deque)
    hold: Hold = Hold.NONE
    refusal: Refusal | None = None
    failure: Failure | None = None
    is_listed: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether every submission is settled."""
        return not (self.waiting or self.batches_in_flight or self.unsure)

    def may_send(self) -> bool:
        """Tell whether a batch may go now."""
        if self.hold is not Hold.NONE:
            return False
        if self.refusal is not None:
            return bool(self.unsure) and self.unsure[0].sequence < self.refusal.sequence
        if self.unsure:
            return True
        if not self.waiting:
            return False
        if self.numbering is not None:
            if self.batches_in_flight >= MAX_NUMBERED_IN_FLIGHT:
                return False
            head = self.waiting[0]
            if self.numbering.is_independent and head.travels_alone:
                return True
        return self.batches_in_flight < _EAGER_BATCHES or self.waiting_bytes >= _FULL_BYTES

    def renumber_from(self, batch: Batch, *, is_forgotten: bool = False) -> None:
        """Let ``batch``, which was refused, and what stands behind it get new numbers."""
        if self.refusal is None:
            self.refusal = Refusal(batch.sequence, batch.was_lost)
        elif batch.sequence < self.refusal.sequence:
            self.refusal.sequence, self.refusal.was_lost = batch.sequence, batch.was_lost
        self.refusal.is_forgotten |= is_forgotten

    def will_renumber(self, batch: Batch) -> bool:
        """Tell whether ``batch`` stands at or behind one that was refused."""
        return self.refusal is not None and self.refusal.sequence <= batch.sequence

    def renumbers_surely(self, batch: Batch) -> bool:
        """Tell whether ``batch`` was only ever sent behind one that was refused, so that it cannot be in the log."""
        return self.refusal is not None and self.refusal.sequence <= batch.sequence and not self.refusal.was_lost

    def may_renumber(self) -> bool:
        """Tell whether the time for new numbers has come."""
        if self.refusal is None or self.batches_in_flight or self.hold is not Hold.NONE:
            return False
        return not self.unsure or self.refusal.sequence <= self.unsure[0].sequence

    def has_failed_before(self, batch: Batch) -> bool:
        """Tell whether a batch before ``batch`` has failed, so that this one cannot be in the log."""
        return self.failure is not None and self.failure.sequence < batch.sequence

    def send_again(self, batch: Batch) -> None:
        """Note that ``batch`` is to be sent again, in its place."""
        insort(self.unsure, batch, key=_sequence)

    def is_behind(self, batch: Batch) -> bool:
        """Tell whether a batch before ``batch`` is to be sent again."""
        return bool(self.unsure) and self.unsure[0].sequence < batch.sequence

    def fail(self, batch: Batch, error: TidelogError) -> None:
        """Settle a numbered batch with ``error``. The first one stops the lane, and with it what was sent behind it.

        Where batches are independent, those behind it are sent again under new numbers instead.
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
        """Return why nothing behind the batch that met ``failure`` is in the log."""
        stopped = ProducerStoppedError(f"the producer of {self.vchannel} stopped before this: {failure}")
        stopped.__cause__ = failure
        return stopped
