"""A pipeline sends what its queue has over one two-way stream, which it opens on demand, and again after each end.

The queue decides what is sent, what an answer means, and what a lost stream costs; it is pure. The pipeline has the
rest: tasks, timers, pauses between attempts, the limits of a silent server, and the close.
"""

import asyncio
import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from math import inf
from typing import Any, ClassVar, Final

import grpc.aio

from tidelog.errors import ServerError, TidelogError, UnavailableError
from tidelog.transport.calls import closed_error
from tidelog.transport.patience_scope import LATE_S
from tidelog.transport.retry import retry_after_s
from tidelog.transport.status import error_of_status, is_of_server, max_request_bytes_of
from tidelog.transport.stream_end import StreamEnd, half_close
from tidelog.transport.transport import Transport
from tidelog.v1 import wal_service_pb2

HANG_UP_S: Final = 1.0
"""Maximum wait for the server to end a stream: it must not delay the exit of a program that waits for no answer."""
_MIN_SILENCE_S: Final = 0.05
"""Minimum between two checks for silence."""


class After(enum.Enum):
    """What a pipeline does after an answer."""

    CONTINUE = enum.auto()
    FINISH = enum.auto()
    """The server is stopping: send nothing more on this stream."""
    PAUSE = enum.auto()
    """The server is overloaded: call ``Queue.resume`` after a pause."""


class Queue(ABC):
    """What a pipeline sends, and what it means. Pure: no I/O, no clock.

    Attributes:
        gives_up: Whether silence of the server ends what ``has_patience`` tells, after ``Retry.give_up_s``.
        holds_close: Whether a close of the client waits for a connection, to send the rest.
        connect_s: Maximum seconds of the first attempt to connect, so that the reason is known soon.
        idle_s: Seconds without a request after which ``idle_request`` is sent; None for never.
    """

    gives_up: ClassVar = True
    holds_close: ClassVar = True
    connect_s: ClassVar = inf
    idle_s: float | None = None

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Whether everything is settled."""

    @property
    @abstractmethod
    def has_waiting(self) -> bool:
        """Whether something waits to be sent, now or later."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is ever sent again."""
        return False

    @property
    def has_patience(self) -> bool:
        """Whether something has no deadline of its own."""
        return False

    @property
    def has_waits(self) -> bool:
        """Whether the server has something that a close must wait for although no caller does."""
        return False

    @abstractmethod
    def next_request(self) -> bytes | None:
        """Return the next request, which counts as in flight; None if nothing may be sent now."""

    def idle_request(self) -> bytes:
        """Return a request that tells the server that the client lives."""
        raise NotImplementedError

    @abstractmethod
    def answered(self, response: Any) -> After:
        """Settle what ``response`` answers."""

    @abstractmethod
    def may_pass(self, error: TidelogError, *, can_renew_token: bool) -> bool:
        """Return whether another stream may succeed after one that ended with ``error``."""

    @abstractmethod
    def unreachable(self, error: TidelogError, *, may_pass: bool) -> None:
        """Fail what need not wait for another attempt: no stream could be opened."""

    @abstractmethod
    def interrupted(self, reason: TidelogError, max_request_bytes: float = inf) -> None:
        """Send again, or fail, what was in flight on a stream that has ended.

        Requests above ``max_request_bytes`` fail as too large: gRPC has refused one of them, and ended the stream.
        """

    @abstractmethod
    def refused(self, error: TidelogError) -> None:
        """Fail what no other stream can help: the last one ended with ``error``, which does not pass."""

    def silent(self, silent_s: float, why: object) -> None:  # noqa: B027 - not every queue needs it
        """Fail what has patience: no answer has arrived for ``silent_s``."""

    def resume(self) -> None:  # noqa: B027 - not every queue needs it
        """Allow sending what ``After.PAUSE`` has held back."""

    @abstractmethod
    def expire(self, now_s: float) -> float:
        """Fail what has passed its deadline; return the next deadline, infinity for none."""

    def end_waits(self) -> None:  # noqa: B027 - not every queue needs it
        """Fail what must not hold a close, which has begun."""

    @abstractmethod
    def closed(self, why: str) -> None:
        """Fail everything, as unknown if the server may have it: the client was closed."""


class Pipeline:
    """One queue and its stream. One task (``_run``) owns the stream; the first ``send_soon`` starts it.

    Attributes:
        is_closing: Whether a close has begun.
    """

    def __init__(
        self,
        transport: Transport,
        name: str,
        queue: Queue,
        open_call: Callable[[], Any],
    ) -> None:
        """Create the pipeline; does no I/O.

        Args:
            transport: Transport of the client.
            name: Name for its tasks, such as ``append``.
            queue: What it sends.
            open_call: Returns a new call of the stream, whose requests are bytes.
        """
        self.is_closing = False
        self._transport = transport
        self._name = name
        self._queue = queue
        self._open_call = open_call
        self._loop = asyncio.get_running_loop()
        # Set when something may have become sendable.
        self._wake = asyncio.Event()
        # Set when something was settled; wakes `changed` and `aclose`.
        self._changed = asyncio.Event()
        self._closing = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._call: Any = None
        self._reader: asyncio.Task[TidelogError] | None = None
        self._was_broken = False
        self._is_finishing = False
        # Of the process to which the current stream goes.
        self._term = 0
        # The server's maximum request size, known once it has ended the current stream because of a larger one.
        self._max_request_bytes = inf
        # The pauses before the next attempts; None while answers arrive.
        self._pauses_s: Iterator[float] | None = None
        # When the last answer came, or, if that was before, when the queue last stopped being idle.
        self._answered_s = 0.0
        # Ends the attempt under way once no answer has arrived for too long: see `_check_silence`.
        self._attempt: asyncio.Timeout | None = None
        self._silence_timer: asyncio.Handle | None = None
        self._silence_due_s = 0.0
        # Fires when what overload has held back is resumed.
        self._resume_timer: asyncio.Handle | None = None
        self._resume_pauses_s = transport.retry.pauses_s()
        self._has_resumed = False
        # One timer for all deadlines, due at or before the earliest: most things are settled long before theirs.
        self._timer: asyncio.Handle | None = None
        self._timer_due_s = inf

    def send_soon(self, deadline_s: float = inf) -> None:
        """Send what the caller puts into the queue in this turn of the event loop, until ``deadline_s``, as ``watch``.

        Call it before that: silence counts from here if the queue is idle.
        """
        queue = self._queue
        if queue.gives_up and queue.is_idle:
            self._answered_s = self._loop.time()
            if self._silence_timer is None:
                self._watch_silence(self._give_up_at_s)
        self._wake.set()
        if deadline_s < self._timer_due_s:
            self.watch(deadline_s)
        if self._runner is None:
            self._runner = self._loop.create_task(self._run(), name=f"tidelog-{self._name}")

    def watch(self, deadline_s: float) -> None:
        """Call ``Queue.expire`` at ``deadline_s``, by the clock of the event loop, or earlier."""
        # Why not `handle.when()`: uvloop's handle has no due time if the deadline has passed already.
        if deadline_s >= self._timer_due_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_s = deadline_s
        self._timer = self._loop.call_at(deadline_s, self._expire)

    async def changed(self) -> None:
        """Return once something was settled, or a close has begun."""
        self._changed.clear()
        await self._changed.wait()

    async def pause(self, pause_s: float) -> bool:
        """Back off before a retry; return True at once if a close has begun, or begins."""
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._closing.wait()
        return self.is_closing

    async def aclose(self, timeout_s: float) -> None:
        """Wait until everything is settled, at most ``timeout_s`` seconds, then end the stream.

        What is not settled by then, or when the wait is cancelled, fails.
        """
        self.is_closing = True
        self._closing.set()
        self._queue.end_waits()
        self._wake.set()
        self._changed.set()
        try:
            async with asyncio.timeout(timeout_s):
                while not self._queue.is_idle:
                    await self.changed()
        except TimeoutError:
            await self._end(f"the client was closed, and no answer arrived within {timeout_s:.1f} s")
        except asyncio.CancelledError:
            await self._end("the client was closed, and the wait for its calls was cancelled")
            raise
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(HANG_UP_S):
                    while self._queue.has_waits or not self._queue.is_idle:
                        await self.changed()
            await self._end("the client was closed")

    async def _end(self, why: str) -> None:
        """End the stream, and fail what is left."""
        for timer in (self._timer, self._resume_timer, self._silence_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._resume_timer = self._silence_timer = None
        if self._runner is not None:
            await self._hang_up()
            self._runner.cancel()
            with suppress(asyncio.CancelledError):
                await self._runner
        self._queue.closed(why)

    async def _hang_up(self) -> None:
        """Half-close the call and wait for the server to end it, so that no part of it outlives the event loop."""
        call, reader = self._call, self._reader
        if call is None or reader is None:
            return
        with suppress(TimeoutError):
            # The timeout covers the half-close as well: it blocks if the server does not read.
            async with asyncio.timeout(HANG_UP_S):
                await half_close(call)
                await asyncio.wait((reader,))

    def _expire(self) -> None:
        self._timer, self._timer_due_s = None, inf
        next_s = self._queue.expire(self._loop.time())
        self._wake.set()
        self._changed.set()
        if next_s < inf:
            self.watch(next_s)

    def _resume(self) -> None:
        self._resume_timer, self._has_resumed = None, True
        self._queue.resume()
        self._wake.set()

    @property
    def _give_up_at_s(self) -> float:
        """When to give up what has patience, unless an answer arrives before."""
        return self._answered_s + self._transport.retry.give_up_s

    def _check_silence(self) -> None:
        """End the attempt under way if no answer has arrived for ``Retry.give_up_s``: the server may be stuck."""
        self._silence_timer = None
        if self._queue.is_idle:
            return
        now_s = self._loop.time()
        was_paused = now_s > self._silence_due_s + LATE_S
        if now_s >= self._give_up_at_s and self._queue.has_patience and self._attempt is not None and not was_paused:
            self._attempt.reschedule(now_s)
        # After a pause of the program, answers may be waiting.
        self._watch_silence(max(self._give_up_at_s, now_s + (LATE_S if was_paused else _MIN_SILENCE_S)))

    def _watch_silence(self, due_s: float) -> None:
        self._silence_due_s = due_s
        self._silence_timer = self._loop.call_at(due_s, self._check_silence)

    async def _run(self) -> None:
        # A close of the client waits for what is written; for all else, the connections know that it may be waiting.
        with nullcontext() if self._queue.holds_close else self._transport.waiting():
            await self._stay()

    async def _stay(self) -> None:
        while not self._queue.is_over:
            await self._wake.wait()
            self._wake.clear()
            if not self._queue.has_waiting:
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
            await self._connect()
            call = self._open_call()
        except TidelogError as error:
            self._queue.unreachable(error, may_pass=self._may_pass(error))
            await self._lost(error)
        else:
            self._max_request_bytes = inf
            reason = await self._serve(call)
            if self._queue.gives_up and self._queue.is_idle:
                # Silence counts from now on, for a queue that needs another stream although it has nothing to send.
                self.send_soon()
            self._queue.interrupted(reason, self._max_request_bytes)
            await self._lost(reason)

    async def _connect(self) -> None:
        """Wait until the client is connected, if it ``holds_close`` also during its close.

        After a break gRPC may consider a dead connection alive until it writes to it. That would make the outcome of
        the next requests unknown for no reason, so the first write is a call that can be retried.

        Raises:
            TidelogError: No server can be reached.
        """
        transport, holds_close = self._transport, self._queue.holds_close
        timeout_s = transport.connect_timeout_s
        await transport.ready(
            timeout_s if self._pauses_s is not None else min(timeout_s, self._queue.connect_s), holds_close=holds_close
        )
        if self._was_broken and holds_close:
            await transport.call(
                transport.services.wal.GetWalName, wal_service_pb2.GetWalNameRequest(),
                timeout_s=timeout_s, is_read=True, holds_close=True,
            )  # fmt: skip

    async def _lost(self, error: TidelogError) -> None:
        """Handle the end of a stream: back off unless answers had arrived; give up after ``Retry.give_up_s``."""
        if not self._may_pass(error):
            self._queue.refused(error)
        if self._pauses_s is None:
            self._pauses_s = self._transport.retry.pauses_s()
        elif self._queue.has_waiting:
            await asyncio.sleep(max(next(self._pauses_s), retry_after_s(error)))
        if self._queue.gives_up and self._loop.time() >= self._give_up_at_s:
            self._give_up(error)
        self._after_loss()

    def _may_pass(self, error: TidelogError) -> bool:
        return self._queue.may_pass(error, can_renew_token=self._transport.can_renew_token)

    def _give_up(self, why: object) -> None:
        self._queue.silent(self._loop.time() - self._answered_s, why)

    def _after_loss(self) -> None:
        if not self._queue.has_waiting:
            self._pauses_s = None
        self._changed.set()
        # Open a new stream for what is left.
        self._wake.set()

    async def _serve(self, call: Any) -> TidelogError:
        """Write to and read from a new call until it ends; return the reason of the end."""
        self._is_finishing = False
        self._term = self._transport.term
        reader = asyncio.create_task(self._read(call, StreamEnd(call)), name=f"tidelog-{self._name}-read")
        writer = asyncio.create_task(self._write(call), name=f"tidelog-{self._name}-write")
        self._call, self._reader = call, reader
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            if writer.done() and not writer.cancelled() and writer.exception() is None:
                # The writer met the end of the call; the reader will meet it next, and gets the reason.
                await asyncio.wait((reader,))
            return _reason_of_end(reader, writer)
        finally:
            call.cancel()
            reader.cancel()
            writer.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)
            self._call = self._reader = None
            self._was_broken = True

    async def _write(self, call: Any) -> None:
        # A write to an RPC that has ended raises one of these; the reader reports the reason.
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            idle_s = self._queue.idle_s
            idle_at_s = None if idle_s is None else self._loop.time() + idle_s
            while not self._is_finishing:
                request = self._queue.next_request()
                if request is None:
                    if await self._has_woken(idle_at_s):
                        self._wake.clear()
                        continue
                    request = self._queue.idle_request()
                await call.write(request)
                if idle_s is not None:
                    idle_at_s = self._loop.time() + idle_s
        await half_close(call)

    async def _has_woken(self, until_s: float | None) -> bool:
        """Return whether something may have become sendable until ``until_s``; None waits for it."""
        if until_s is None:
            return await self._wake.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                return await self._wake.wait()
        return False

    async def _read(self, call: Any, end: StreamEnd) -> TidelogError:
        """Settle what is answered, as answers arrive; return the reason of the end of the stream."""
        queue = self._queue
        try:
            while (response := await call.read()) is not grpc.aio.EOF:
                self._answered_s = self._loop.time()
                self._pauses_s = None
                after = queue.answered(response)
                if after is not After.CONTINUE or self._has_resumed:
                    self._heed(after)
                # Also if nothing waits: a caller that this answer resumes may send before the turn of the writer.
                self._wake.set()
                self._changed.set()
        except grpc.aio.AioRpcError:
            failure = await end.failure(call)
            self._max_request_bytes = max_request_bytes_of(failure) or inf
            error = error_of_status(failure, is_read=False)
            if isinstance(error, ServerError) and not is_of_server(failure):
                # gRPC, or what lies between, ended the stream; the next one may last.
                error = UnavailableError(f"the stream was ended: {failure.details()}", effect="unknown")
            error.__cause__ = failure
            return error
        return UnavailableError("the server ended the stream", effect="unknown")

    def _heed(self, after: After) -> None:
        match after:
            case After.FINISH:
                # Half-close before the next request: the server refuses what is written to it. The end of the call is
                # then clean. A server that ends the call while the client writes makes gRPC lose answers.
                self._is_finishing = True
                self._transport.note_stop(self._term)
                self._wake.set()
            case After.PAUSE:
                if self._resume_timer is None:
                    self._resume_timer = self._loop.call_later(next(self._resume_pauses_s), self._resume)
            case After.CONTINUE:
                self._has_resumed, self._resume_pauses_s = False, self._transport.retry.pauses_s()


def _reason_of_end(reader: asyncio.Task[TidelogError], writer: asyncio.Task[None]) -> TidelogError:
    """Return the reader's reason, or one that reports a defect in either task."""
    if reader.cancelled() or writer.cancelled():
        # The client was closed, which cancels its calls.
        return closed_error("unknown")
    for task in (writer, reader):
        if task.done() and (defect := task.exception()) is not None:
            error = ServerError(f"a defect of the client: {defect!r}", effect="unknown")
            error.__cause__ = defect
            return error
    return reader.result()
