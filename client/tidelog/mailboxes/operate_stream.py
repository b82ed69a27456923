"""The stream on which a client sends, fetches, acknowledges and extends, for all mailboxes of a server."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf
from typing import Any

import grpc.aio

from tidelog.errors import ServerError, TidelogError, UnauthenticatedError, UnavailableError
from tidelog.mailboxes.operations import Call, Operation, OperationQueue
from tidelog.transport.calls import closed_error
from tidelog.transport.retry import may_repeat, retry_after_s
from tidelog.transport.status import error_of_status, max_request_bytes_of
from tidelog.transport.stream_end import StreamEnd
from tidelog.transport.transport import Transport
from tidelog.transport.two_way import HANG_UP_S, TwoWayStream
from tidelog.v1 import error_pb2
from tidelog.v1 import mailbox_service_pb2 as pb


class OperateStream:
    """Sends operations and settles their futures, over one gRPC stream that it opens on demand.

    One task (``_run``) owns the stream; no operation has a task. Operations of the same turn of the event loop share a
    request. When the stream breaks, unanswered operations are sent again on the next one, except sends without
    deduplication keys: their outcome is unknown.
    """

    def __init__(self, transport: Transport, *, timeout_s: float, max_in_flight_bytes: int) -> None:
        """Create the stream; does no I/O. ``timeout_s`` is the timeout of an operation, without its wait."""
        self._transport = transport
        self._timeout_s = timeout_s
        self._queue = OperationQueue(max_bytes=max_in_flight_bytes)
        self._stream = TwoWayStream(transport, "operate", self._queue.next_request, self._read, _defect)
        # Set when operations may have become sendable.
        self._wake = self._stream.wake
        # Set when operations were settled; wakes `aclose`.
        self._changed = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        # The server's maximum request size, known once it has ended the current stream because of a larger one.
        self._max_request_bytes = inf
        # Pauses before the next attempts; None while answers arrive.
        self._pauses_s: Iterator[float] | None = None
        self._is_closing = False
        self._loop = asyncio.get_running_loop()
        # One timer for all deadlines, due at or before the earliest.
        self._timer: asyncio.Handle | None = None
        self._timer_due_s = inf

    @property
    def is_idle(self) -> bool:
        """True if every operation is settled."""
        return self._queue.is_idle

    async def operate(
        self,
        call: Call,
        request: bytes,
        *,
        timeout_s: float | None = None,
        wait_s: float = 0.0,
        is_repeatable: bool = True,
        abandoned: Callable[[Any], None] | None = None,
    ) -> tuple[Any, bool]:
        """Return the answer to an operation, and whether it was sent again after its answer had been lost.

        Retries refusals that may pass, within the timeout. Cancelling ends only the wait.

        Args:
            call: The call.
            request: Its request, encoded.
            timeout_s: Timeout in seconds, without ``wait_s``; None for that of the stream.
            wait_s: Seconds that a fetch may wait for messages. Such a fetch does not delay a close of the client.
            is_repeatable: Whether to send it again if its answer was lost.
            abandoned: Called with the answer if the caller was cancelled, or its timeout had passed.

        Raises:
            TidelogError: The server refused it, or its outcome is unknown.
        """
        deadline_s = self._loop.time() + (self._timeout_s if timeout_s is None else timeout_s) + wait_s
        pauses_s = self._transport.retry.pauses_s()
        operation = Operation(
            self._queue.next_number(), call, request, self._loop.create_future(), deadline_s=deadline_s,
            waits=wait_s > 0, is_repeatable=is_repeatable, abandoned=abandoned,
        )  # fmt: skip
        while True:
            self._check_open()
            self._put(operation)
            try:
                return await operation.future, operation.was_repeated
            except TidelogError as error:
                pause_s = max(next(pauses_s), retry_after_s(error))
                if not may_repeat(error) or self._is_closing or self._loop.time() + pause_s >= deadline_s:
                    error.effect = "unknown" if operation.was_repeated else error.effect
                    raise
            except asyncio.CancelledError:
                # The answer may have come in the same turn of the event loop.
                self._queue.leave(operation)
                self._wake.set()
                raise
            await asyncio.sleep(pause_s)
            operation.future = self._loop.create_future()

    def _check_open(self) -> None:
        if self._is_closing:
            raise closed_error()

    def operate_soon(self, call: Call, request: bytes) -> None:
        """Send an operation whose answer does not matter. A close of the client waits for it, if it is not over."""
        future: asyncio.Future[Any] = self._loop.create_future()
        # asyncio logs exceptions that were never retrieved.
        future.add_done_callback(_look_at)
        number = self._queue.next_number()
        self._put(Operation(number, call, request, future, deadline_s=self._loop.time() + self._timeout_s))

    def _put(self, operation: Operation) -> None:
        self._queue.put(operation)
        self._wake.set()
        if operation.deadline_s < self._timer_due_s:
            self._watch(operation.deadline_s)
        if self._runner is None:
            self._runner = self._loop.create_task(self._run(), name="tidelog-operate-stream")

    async def aclose(self, timeout_s: float) -> None:
        """End fetches that wait for messages, wait at most ``timeout_s`` for other operations, then end the stream.

        Operations that are not settled by then, or when the wait is cancelled, fail: sends that were sent with
        AppendUnknownError, all others with ClosedError.
        """
        self._is_closing = True
        self._queue.end_waits(closed_error())
        self._wake.set()
        try:
            async with asyncio.timeout(timeout_s):
                while not self._queue.is_idle:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            await self._end(f"the client was closed, and no answer arrived within {timeout_s:.1f} s")
        except asyncio.CancelledError:
            await self._end("the client was closed, and the wait for its calls was cancelled")
            raise
        else:
            await self._waits_over()
            await self._end("the client was closed")

    async def _waits_over(self) -> None:
        """Wait until the server has ended the waits of fetches, and their messages are returned to their mailboxes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(HANG_UP_S):
                while self._queue.has_waits or not self._queue.is_idle:
                    self._changed.clear()
                    await self._changed.wait()

    async def _end(self, why: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._runner is not None:
            await self._stream.hang_up()
            self._runner.cancel()
            with suppress(asyncio.CancelledError):
                await self._runner
        self._queue.give_up(closed_error(), why)

    def _watch(self, deadline_s: float) -> None:
        """Set the timer to call ``_expire`` at ``deadline_s``."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_s = deadline_s
        self._timer = self._loop.call_at(deadline_s, self._expire)

    def _expire(self) -> None:
        self._timer, self._timer_due_s = None, inf
        next_s = self._queue.expire(self._loop.time(), self._timeout_s)
        self._wake.set()
        self._changed.set()
        if next_s < inf:
            self._watch(next_s)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._queue.has_waiting:
                continue
            try:
                await self._stream.connect()
                call = self._open()
            except TidelogError as error:
                # Operations of earlier streams are retried until their deadline: whether they had an effect is unknown.
                self._queue.fail_waiting(error, keep_sent=self._may_pass(error))
                await self._lost(error)
            else:
                self._max_request_bytes = inf
                reason = await self._stream.serve(call)
                self._queue.interrupted(reason, self._max_request_bytes)
                await self._lost(reason)

    def _open(self) -> Any:
        method: Any = self._transport.services.channel.stream_stream(
            "/tidelog.v1.MailboxService/Operate", response_deserializer=pb.OperateResponse.FromString
        )
        return method(metadata=self._transport.metadata())

    async def _lost(self, error: TidelogError) -> None:
        """Handle the end of a stream: back off unless answers had arrived; fail what waits if a retry cannot help."""
        if not self._may_pass(error):
            self._queue.fail_waiting(error)
        elif self._pauses_s is None:
            self._pauses_s = self._transport.retry.pauses_s()
        elif self._queue.has_waiting:
            await asyncio.sleep(max(next(self._pauses_s), retry_after_s(error)))
        if not self._queue.has_waiting:
            self._pauses_s = None
        self._changed.set()
        # Open a new stream for what is left.
        self._wake.set()

    def _may_pass(self, error: TidelogError) -> bool:
        if isinstance(error, UnauthenticatedError):
            return self._transport.can_renew_token
        return isinstance(error, UnavailableError)

    async def _read(self, call: Any, end: StreamEnd) -> TidelogError:
        """Settle operations as answers arrive; return the reason of the end of the stream."""
        queue = self._queue
        try:
            while (response := await call.read()) is not grpc.aio.EOF:
                for result in response.results:
                    queue.answered(result)
                    if result.HasField("error") and result.error.detail.reason == error_pb2.REASON_ON_SHUTDOWN:
                        self._stream.finish()
                self._pauses_s = None
                if queue.has_waiting:
                    self._wake.set()
                self._changed.set()
        except grpc.aio.AioRpcError:
            failure = await end.failure(call)
            if (limit := max_request_bytes_of(failure)) is not None:
                self._max_request_bytes = limit
                return UnavailableError(f"the server refused a request: {failure.details()}", effect="unknown")
            error = error_of_status(failure, is_read=False)
            error.__cause__ = failure
            return error
        return UnavailableError("the server ended the stream", effect="unknown")


def _defect(text: str) -> TidelogError:
    return ServerError(text, effect="unknown")


def _look_at(future: "asyncio.Future[Any]") -> None:
    if not future.cancelled():
        future.exception()
