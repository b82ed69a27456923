"""The stream on which a client sends, fetches, acknowledges and extends, for all mailboxes of a server."""

import asyncio
from collections.abc import Callable
from typing import Any

from tidelog.errors import TidelogError
from tidelog.mailboxes.operations import Action, Operation, OperationQueue
from tidelog.transport.calls import closed_error
from tidelog.transport.pipeline import Pipeline
from tidelog.transport.retry import may_repeat, retry_after_s
from tidelog.transport.stream_end import look_at
from tidelog.transport.transport import Transport


class OperationStream:
    """Sends operations and settles their futures, over one gRPC stream that it opens on demand.

    No operation has a task. Operations of the same turn of the event loop share a request. When the stream breaks,
    unanswered operations are sent again on the next one, except sends without deduplication keys: their outcome is
    unknown.

    A close ends fetches that wait for messages. Operations that are not settled in time, or when its wait is cancelled,
    fail: sends that were sent with AppendUnknownError, all others with ClosedError.

    Attributes:
        pipeline: The gRPC stream, which the client closes.
        transport: The connections of the client.
    """

    def __init__(self, transport: Transport, *, timeout_s: float, max_in_flight_bytes: int) -> None:
        """Create the stream; does no I/O. ``timeout_s`` is the timeout of an operation, without its wait."""
        self.transport = transport
        self._timeout_s = timeout_s
        self._queue = OperationQueue(max_bytes=max_in_flight_bytes, timeout_s=timeout_s)
        self.pipeline = Pipeline(transport, "operate", self._queue, transport.operate_stream)
        self._loop = asyncio.get_running_loop()

    @property
    def is_idle(self) -> bool:
        """True if every operation is settled."""
        return self._queue.is_idle

    async def operate(
        self,
        call: Action,
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
        pauses_s = self.transport.retry.pauses_s()
        operation = Operation(
            self._queue.next_number(), call, request, self._loop.create_future(), deadline_s=deadline_s,
            waits=wait_s > 0, is_repeatable=is_repeatable, abandoned=abandoned,
        )  # fmt: skip
        if self.pipeline.is_closing:
            raise closed_error()
        while True:
            self.pipeline.send_soon(deadline_s)
            self._queue.put(operation)
            try:
                return await operation.future, operation.was_repeated
            except TidelogError as error:
                pause_s = max(next(pauses_s), retry_after_s(error))
                may_pass = may_repeat(error) and self._loop.time() + pause_s < deadline_s
                if not may_pass or await self.pipeline.pause(pause_s):
                    error.effect = "unknown" if operation.was_repeated else error.effect
                    raise
            except asyncio.CancelledError:
                # The answer may have come in the same turn of the event loop.
                self._queue.leave(operation)
                self.pipeline.send_soon()
                raise
            operation.future = self._loop.create_future()

    def operate_soon(self, call: Action, request: bytes) -> None:
        """Send an operation whose answer does not matter. A close of the client waits for it, if it is not over."""
        future: asyncio.Future[Any] = self._loop.create_future()
        future.add_done_callback(look_at)
        deadline_s = self._loop.time() + self._timeout_s
        self.pipeline.send_soon(deadline_s)
        self._queue.put(Operation(self._queue.next_number(), call, request, future, deadline_s=deadline_s))
