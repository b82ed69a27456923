"""The stream on which a client appends to all vchannels."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any

import grpc.aio

from tidelog.append.numbering import Numbering
from tidelog.append.queue import Submission, TransactionSubmission
from tidelog.append.queues import AppendQueues
from tidelog.append.sizes import Appendable
from tidelog.errors import (
    AppendUnknownError,
    ClosedError,
    OverloadedError,
    PermissionDeniedError,
    ShutdownError,
    TidelogError,
    UnauthenticatedError,
    UnavailableError,
)
from tidelog.transport.calls import closed_error
from tidelog.transport.patience_scope import LATE_S
from tidelog.transport.retry import may_repeat, retry_after_s
from tidelog.transport.status import error_of_answer, error_of_status, max_request_bytes_of
from tidelog.transport.stream_end import StreamEnd
from tidelog.transport.transport import Transport, deadline_error
from tidelog.transport.two_way import TwoWayStream
from tidelog.types import AppendResult, TransactionResult
from tidelog.v1 import wal_service_pb2
from tidelog.wire.append_terms import AppendTerms
from tidelog.wire.protocol import requests_together


class AppendStream:
    """Sends submissions and settles their futures, over one gRPC stream that it opens on demand.

    One task (``_run``) owns the stream. The first submission starts it and ``aclose`` ends it. When the stream breaks,
    the outcome of sent batches is unknown, unless they are numbered: numbered batches are resent over the next stream,
    and so is everything that was waiting.
    """

    def __init__(self, transport: Transport, *, max_in_flight_bytes: int) -> None:
        self._transport = transport
        self._queues = AppendQueues(max_in_flight_bytes=max_in_flight_bytes)
        self._stream = TwoWayStream(transport, "append", self._next_request, self._read, _unknown)
        # Set when a batch may have become sendable.
        self._wake = self._stream.wake
        # Set when the queue changed; wakes callers that wait for room, and `aclose`.
        self._changed = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        # One per queue of transactions, and per queue of batches that are resent until they are answered.
        self._numberings: dict[tuple[str, AppendTerms, bool], Numbering] = {}
        # When the last answer came, or, if that was before, when the queue last stopped being idle.
        self._answered_s = 0.0
        # Ends the attempt under way once no answer has arrived for too long: see `_check_silence`.
        self._attempt: asyncio.Timeout | None = None
        self._silence_timer: asyncio.Handle | None = None
        self._silence_due_s = 0.0
        # The server's maximum request size, known once it has rejected a larger request by ending the current stream.
        self._max_request_bytes = inf
        # The backoff before the next attempt; None while answers arrive.
        self._pauses_s: Iterator[float] | None = None
        # Fires when batches rejected because of overload are resent.
        self._release_timer: asyncio.Handle | None = None
        self._release_pauses_s = transport.retry.pauses_s()
        self._has_released = False
        self._closing = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        # One timer for all deadlines, due at or before the earliest: most appends are settled long before theirs.
        self._timer: asyncio.Handle | None = None
        self._timer_due_s = inf

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
        self._check_open()
        if self._queues.is_idle:
            self._answered_s = self._loop.time()
        self._queues.submit(vchannel, terms, submission, numbering)
        self._wake.set()
        if self._silence_timer is None:
            self._watch_silence(self._give_up_at_s)
        if self._runner is None:
            self._runner = self._loop.create_task(self._run(), name="tidelog-append-stream")

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
                submission = Submission(messages, is_plain, size_bytes, self._loop.create_future(), deadline_s)
                self.put(
                    vchannel, terms, submission, self._numbering((vchannel, terms, False)) if is_numbered else None
                )
                self._watch(deadline_s)
                try:
                    result: AppendResult = await submission.future
                except TidelogError as error:
                    if is_numbered or not may_repeat(error):
                        raise
                    refusal = error
                else:
                    return result
                submission = None
                pauses_s = pauses_s or self._transport.retry.pauses_s()
                async with asyncio.timeout_at(deadline_s):
                    await self._pause(next(pauses_s))
        except TimeoutError as error:
            if isinstance(error, TidelogError):
                raise
            raise _give_up(submission, refusal, timeout_s) from refusal

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
        self._watch(submission.deadline_s)
        # Shielded, because several callers may wait.
        result: TransactionResult = await asyncio.shield(submission.future)
        return result

    async def aclose(self, timeout_s: float) -> None:
        """Wait until all submissions are settled, at most ``timeout_s`` seconds, then end the stream.

        Submissions that are not settled by then, or when the wait is cancelled, fail with ClosedError if they were not
        sent, else with AppendUnknownError.
        """
        # Appends that wait for room or for a retry end now: none of them is in flight.
        self._closing.set()
        self._changed.set()
        try:
            async with asyncio.timeout(timeout_s):
                while not self._queues.is_idle:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            await self._end(f"the client was closed, and no answer arrived within {timeout_s:.1f} s")
        except asyncio.CancelledError:
            await self._end("the client was closed, and the wait for its appends was cancelled")
            raise
        else:
            await self._end("the client was closed")

    async def _end(self, why: str) -> None:
        """End the stream, and fail what is left: as unknown if it may be in the log, else as closed."""
        for timer in (self._timer, self._release_timer, self._silence_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._release_timer = self._silence_timer = None
        if self._runner is not None:
            await self._stream.hang_up()
            self._runner.cancel()
            with suppress(asyncio.CancelledError):
                await self._runner
        gone = ClosedError("the client was closed before the append was sent")
        self._queues.give_up(gone, _unknown(why))
        self._queues.fail_waiting(gone)

    def _watch(self, deadline_s: float) -> None:
        """Set the timer to call ``_expire`` at ``deadline_s`` or earlier."""
        if self._timer is not None:
            if self._timer_due_s <= deadline_s:
                return
            self._timer.cancel()
        # Why not `handle.when()`: uvloop's handle has no due time if the deadline has passed already.
        self._timer_due_s = deadline_s
        self._timer = self._loop.call_at(deadline_s, self._expire)

    def _expire(self) -> None:
        self._timer = None
        next_s = self._queues.expire(self._loop.time())
        self._changed.set()
        if next_s < inf:
            self._watch(next_s)

    def _release(self) -> None:
        self._release_timer, self._has_released = None, True
        self._queues.release()
        self._wake.set()

    async def _room(self) -> None:
        while not self._queues.has_room:
            self._check_open()
            self._changed.clear()
            await self._changed.wait()

    async def _pause(self, pause_s: float) -> None:
        """Back off before a retry; a close ends the wait."""
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._closing.wait()

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise closed_error()

    @property
    def _give_up_at_s(self) -> float:
        """When to give up what is numbered, unless an answer arrives before."""
        return self._answered_s + self._transport.retry.give_up_s

    def _check_silence(self) -> None:
        """End the attempt under way if no answer has arrived for ``Retry.give_up_s``: the server may be stuck.

        Appends that are not numbered have deadlines of their own.
        """
        self._silence_timer = None
        if self._queues.is_idle:
            return
        now_s = self._loop.time()
        was_paused = now_s > self._silence_due_s + LATE_S
        if now_s >= self._give_up_at_s and self._queues.has_numbered and self._attempt is not None and not was_paused:
            self._attempt.reschedule(now_s)
        # After a pause of the program, answers may be waiting.
        self._watch_silence(max(self._give_up_at_s, now_s + (LATE_S if was_paused else _MIN_SILENCE_S)))

    def _watch_silence(self, due_s: float) -> None:
        self._silence_due_s = due_s
        self._silence_timer = self._loop.call_at(due_s, self._check_silence)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._queues.has_waiting:
                continue
            try:
                async with asyncio.timeout(None) as self._attempt:
                    await self._try()
            except TimeoutError:
                self._give_up("no answer has arrived")
                self._after_loss()
            finally:
                self._attempt = None

    async def _try(self) -> None:
        """Serve one stream until it ends."""
        try:
            await self._stream.connect()
            call = self._transport.append_stream()
        except TidelogError as error:
            self._queues.fail_waiting(error)
            await self._lost(error)
        else:
            self._max_request_bytes = inf
            reason = await self._stream.serve(call)
            self._queues.interrupted(reason, self._max_request_bytes)
            await self._lost(reason)

    async def _lost(self, error: TidelogError) -> None:
        """Handle the end of a stream: back off unless answers had arrived; give up after ``Retry.give_up_s``."""
        if self._pauses_s is None:
            self._pauses_s = self._transport.retry.pauses_s()
        elif self._queues.has_waiting:
            await asyncio.sleep(max(next(self._pauses_s), retry_after_s(error)))
        if isinstance(error, UnauthenticatedError | PermissionDeniedError) and not self._transport.can_renew_token:
            # The token cannot change, so a retry cannot succeed.
            self._queues.give_up(error, _unknown(error, error.values))
        if self._loop.time() >= self._give_up_at_s:
            self._give_up(error)
        self._after_loss()

    def _give_up(self, why: object) -> None:
        silent_s = self._loop.time() - self._answered_s
        gone = UnavailableError(f"the server did not answer for {silent_s:.1f} s ({why}): this append was not sent")
        self._queues.give_up(gone, _unknown(f"within {silent_s:.1f} s"))

    def _after_loss(self) -> None:
        if not self._queues.has_waiting:
            self._pauses_s = None
        self._changed.set()
        # Open a new stream for what is left.
        self._wake.set()

    def _next_request(self) -> bytes | None:
        batches = self._queues.next_message()
        if not batches:
            return None
        return batches[0].request if len(batches) == 1 else requests_together([batch.request for batch in batches])

    async def _read(self, call: Any, end: StreamEnd) -> TidelogError:
        """Settle batches as answers arrive; return the error for batches unanswered at the end of the stream."""
        try:
            while (response := await call.read()) is not grpc.aio.EOF:
                self._answered_s = self._loop.time()
                self._settle(response)
                for answer in response.more:
                    self._settle(answer)
                self._wake.set()
                self._changed.set()
        except grpc.aio.AioRpcError:
            failure = await end.failure(call)
            # Even an error with details concerns only the stream: batches sent on it may have been written before.
            reason = error_of_status(failure, is_read=False)
            if isinstance(reason, UnauthenticatedError | PermissionDeniedError | OverloadedError):
                # The server rejected the stream before it read anything from it.
                return reason
            self._max_request_bytes = max_request_bytes_of(failure) or inf
            unknown = _unknown(reason, reason.values)
            unknown.__cause__ = failure
            return unknown
        return _unknown("the server ended the stream")

    def _settle(self, answer: wal_service_pb2.AppendStreamResponse) -> None:
        """Settle the oldest batch in flight with its answer."""
        error = error_of_answer(answer.error) if answer.HasField("error") else None
        self._queues.answered(answer, error)
        self._pauses_s = None
        if isinstance(error, ShutdownError):
            self._stream.finish()
        if error is not None and self._queues.has_releasable and self._release_timer is None:
            self._release_timer = self._loop.call_later(next(self._release_pauses_s), self._release)
        elif error is None and self._has_released:
            self._has_released, self._release_pauses_s = False, self._transport.retry.pauses_s()


_NUMBERINGS_KEPT = 1_024
# Between two checks for silence, at least.
_MIN_SILENCE_S = 0.05


def _unknown(why: object, values: Mapping[str, str] | None = None) -> AppendUnknownError:
    text = f"the append was sent but not answered ({why}): its messages may or may not be in the log"
    return AppendUnknownError(text, effect="unknown", values=values)


def _give_up(submission: Submission | None, refusal: TidelogError | None, timeout_s: float) -> TidelogError:
    """Return the error of an append that timed out: its outcome is unknown only if it was sent."""
    if submission is not None and submission.is_sent:
        return _unknown(f"within {timeout_s:.1f} s")
    if refusal is not None:
        return type(refusal)(f"{refusal} (tried for {timeout_s:.1f} s)", values=refusal.values)
    return deadline_error("the append", timeout_s)
