"""The stream on which a client appends to all vchannels."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from tidelog.append.dividing import KnownChannels
from tidelog.append.numbering import Numbering
from tidelog.append.queue import Submission, TransactionSubmission
from tidelog.append.queues import AppendQueues, unknown
from tidelog.append.sizes import Appendable
from tidelog.errors import TidelogError
from tidelog.transport.calls import closed_error
from tidelog.transport.pipeline import Pipeline
from tidelog.transport.retry import may_repeat
from tidelog.transport.transport import Transport, deadline_error
from tidelog.types import AppendResult, TransactionResult
from tidelog.wire.append_terms import AppendTerms
from tidelog.wire.batch import Batch

_NUMBERINGS_KEPT: Final = 1_024


class AppendStream:
    """Sends submissions and settles their futures, over one gRPC stream that it opens on demand.

    When the stream breaks, the outcome of sent batches is unknown, unless they are numbered: numbered batches are
    resent over the next stream, and so is everything that was waiting.

    A close ends appends that wait for room or for a retry at once: none of them is in flight. Submissions that are not
    settled in time, or when its wait is cancelled, fail with ClosedError if they were not sent, else with
    AppendUnknownError.

    Attributes:
        pipeline: The gRPC stream, which the client closes.
        transport: The connections of the client.
        known: The channels with several vchannels, as answers have them.
    """

    def __init__(self, transport: Transport, *, max_in_flight_bytes: int) -> None:
        self.transport = transport
        self.known = KnownChannels()
        self._queues = AppendQueues(max_in_flight_bytes=max_in_flight_bytes, known=self.known)
        self.pipeline = Pipeline(transport, "append", self._queues, transport.append_stream)
        # One per queue of transactions, and per queue of batches that are resent until they are answered.
        self._numberings: dict[tuple[str, AppendTerms, bool], Numbering] = {}
        self._loop = asyncio.get_running_loop()

    @property
    def is_idle(self) -> bool:
        """True if every submission is settled."""
        return self._queues.is_idle

    def put(
        self, vchannel: str, terms: AppendTerms, submission: Submission, numbering: Numbering | None = None
    ) -> None:
        """Queue ``submission`` and return at once. Submissions of a queue are sent in order.

        With ``numbering`` it is resent until it is answered, or until no answer has arrived for ``Retry.give_up_s``.

        Raises:
            ClosedError: The client is closed.
        """
        if self.pipeline.is_closing:
            raise closed_error()
        self.pipeline.send_soon(submission.deadline_s)
        self._queues.submit(vchannel, terms, submission, numbering)

    async def append(
        self,
        vchannel: str,
        messages: Sequence[Appendable],
        *,
        is_plain: bool,
        size_bytes: int,
        terms: AppendTerms,
        timeout_s: float,
        is_numbered: bool = False,
    ) -> AppendResult:
        """Append ``messages``, and return their position once acknowledged. Retries failures without effect.

        With ``is_numbered`` they are appended exactly once, and resent until they are answered. Cancelling ends only
        the wait: the messages may still be appended.

        Raises:
            TidelogError: The messages were not appended; AppendUnknownError if this is not known.
        """
        deadline_s = self._loop.time() + timeout_s
        pauses_s: Iterator[float] | None = None
        submission: Submission | None = None
        refusal: TidelogError | None = None
        try:
            while True:
                if not self._queues.has_room:
                    async with asyncio.timeout_at(deadline_s):
                        await self._room()
                submission = Submission(
                    messages, is_plain, size_bytes, self._loop.create_future(), deadline_s,
                    travels_alone=isinstance(messages, Batch),
                )  # fmt: skip
                self.put(
                    vchannel, terms, submission, self._numbering((vchannel, terms, False)) if is_numbered else None
                )
                try:
                    result: AppendResult = await submission.future
                except TidelogError as error:
                    if is_numbered or not may_repeat(error):
                        raise
                    refusal = error
                else:
                    return result
                submission = None
                pauses_s = pauses_s or self.transport.retry.pauses_s()
                async with asyncio.timeout_at(deadline_s):
                    await self.pipeline.pause(next(pauses_s))
        except TimeoutError as error:
            if isinstance(error, TidelogError):
                raise
            raise _late(submission, refusal, timeout_s) from refusal

    def commit(self, terms: AppendTerms, submission: TransactionSubmission) -> None:
        """Queue a transaction. It is resent as in ``put``.

        Raises:
            ClosedError: The client is closed.
        """
        first = submission.vchannels[0]
        self.put(first, terms, submission, self._numbering((first, terms, True)))

    def _numbering(self, key: tuple[str, AppendTerms, bool]) -> Numbering:
        numbering = self._numberings.pop(key, None) or Numbering(is_independent=True)
        # The most recently used are at the end. A queue keeps its evicted numbering as long as it needs it.
        self._numberings[key] = numbering
        if len(self._numberings) > _NUMBERINGS_KEPT:
            del self._numberings[next(iter(self._numberings))]
        return numbering

    async def outcome(self, submission: TransactionSubmission, timeout_s: float) -> TransactionResult:
        """Wait for the outcome of a transaction passed to ``commit``. Cancelling ends only the wait.

        Raises:
            TidelogError: The transaction was not committed; AppendUnknownError if this is not known.
            TimeoutError: The outcome is not known yet. If the transaction was not sent by then, it never will be.
        """
        if isinstance(submission.outcome, TidelogError):
            raise submission.outcome
        if submission.outcome is not None:
            return submission.outcome
        if submission.future.done():
            # An earlier wait timed out.
            submission.future = self._loop.create_future()
        submission.deadline_s = self._loop.time() + timeout_s
        self.pipeline.watch(submission.deadline_s)
        # Shielded, because several callers may wait.
        result: TransactionResult = await asyncio.shield(submission.future)
        return result

    async def _room(self) -> None:
        while not self._queues.has_room:
            if self.pipeline.is_closing:
                raise closed_error()
            await self.pipeline.changed()


def _late(submission: Submission | None, refusal: TidelogError | None, timeout_s: float) -> TidelogError:
    """Return the error of an append that timed out: its outcome is unknown only if it was sent."""
    if submission is not None and submission.is_sent:
        return unknown(f"within {timeout_s:.1f} s")
    if refusal is not None:
        return type(refusal)(f"{refusal} (tried for {timeout_s:.1f} s)", values=refusal.values)
    return deadline_error("the append", timeout_s)
