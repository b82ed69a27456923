"""The synchronous producer: queues messages in the caller's thread and sends them on the client's event loop."""

import asyncio
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Final, Self

from tidelog.append.arrow_data import ArrowData, is_arrow, pieces
from tidelog.append.producer import AsyncProducer, AsyncTicket
from tidelog.append.sizes import Appendable, measure, measure_all
from tidelog.errors import BufferFullError, ClosedError, ProducerStoppedError, TidelogError
from tidelog.transport.background import background
from tidelog.transport.in_one_process import InOneProcess
from tidelog.types import AppendResult, VchannelTotal
from tidelog.wire.durations import Duration, check_seconds

# Bytes that may wait for the event loop, in addition to those in flight.
_QUEUE_BYTES: Final = 1 << 20
_MESSAGES_PER_PART: Final = 10_000


class Ticket(InOneProcess):
    """A message being sent: ``result()`` waits for its AppendResult, on any thread and any number of times."""

    __slots__ = ("_changed", "_error", "_ticket")

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._ticket: AsyncTicket | None = None
        self._error: TidelogError | None = None

    def __repr__(self) -> str:
        return f"<Ticket, {'done' if self.done() else 'in flight'}>"

    def done(self) -> bool:
        """Return whether the message is acknowledged or has failed."""
        return self._error is not None or (self._ticket is not None and self._ticket.done())

    def result(self, timeout_s: Duration | None = None) -> AppendResult:
        """Wait for the acknowledgement, at most ``timeout_s`` seconds, and return the message's position.

        Raises:
            TimeoutError: The message is not acknowledged yet.
            TidelogError: The message was not appended, or the outcome is unknown.
        """
        if timeout_s is not None:
            timeout_s = check_seconds("timeout_s", timeout_s)
        with self._changed:
            is_sent = self._changed.wait_for(lambda: self._error or self._ticket, timeout_s)
        if self._error is not None:
            raise self._error
        if not is_sent or self._ticket is None:
            raise TimeoutError(f"the message was not sent within {timeout_s} s")
        return background.run(_result_of(self._ticket), timeout_s)

    def settle(self, ticket: AsyncTicket | None, error: TidelogError | None) -> None:
        """Set the outcome of the message; for the producer, which notifies the condition."""
        self._ticket, self._error = ticket, error


async def _result_of(ticket: AsyncTicket) -> AppendResult:
    return await ticket


class Producer(InOneProcess):
    """Sends messages to a vchannel or a channel, with many batches in flight. See ``AsyncProducer``.

    Thread-safe. ``max_in_flight_bytes`` limits bytes sent and not acknowledged; up to 1 MiB more may wait in the
    process.
    """

    def __init__(self, producer: AsyncProducer) -> None:
        self.vchannel = producer.vchannel
        self._producer = producer
        # Guards everything below; notified when the queue shrinks.
        self._changed = threading.Condition()
        self._queue: deque[tuple[Appendable | Sequence[Appendable], int, Ticket | None]] = deque()
        self._queued_bytes = 0
        # Sends the queue on the loop, while there is one.
        self._sending: Future[None] | None = None
        self._failure: TidelogError | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Producer of {self.vchannel}, {self.in_flight_bytes} bytes in flight>"

    @property
    def in_flight_bytes(self) -> int:
        """Approximate bytes sent and not yet acknowledged."""
        return self._queued_bytes + self._producer.in_flight_bytes

    @property
    def totals(self) -> Mapping[str, VchannelTotal]:
        """What is acknowledged so far, by vchannel. See ``AsyncProducer.totals``."""
        return self._producer.totals

    def send(self, message: Appendable) -> Ticket:
        """Send ``message`` and return a ticket; waits only for room. See ``AsyncProducer.send``."""
        size_bytes = measure(message)
        ticket = Ticket(self._changed)
        self._enqueue(message, size_bytes, ticket)
        return ticket

    def send_nowait(self, message: Appendable) -> None:
        """Send ``message`` without a ticket, or raise BufferFullError. See ``AsyncProducer.send_nowait``."""
        size_bytes = measure(message)
        with self._changed:
            self._check_open()
            if not self._has_room(size_bytes):
                raise BufferFullError(
                    f"the producer of {self.vchannel} has no room: use send(), which waits for room, or flush()"
                )
            self._add(message, size_bytes, None)

    def send_many(self, messages: Sequence[Appendable] | ArrowData) -> None:
        """Send ``messages`` in order, waiting for room as needed. See ``AsyncProducer.send_many``."""
        if is_arrow(messages):
            for rows in pieces(messages, self._producer.max_batch_bytes):
                self._enqueue(rows, rows.columns.size_bytes, None)
            return
        begin = 0
        while begin < len(messages):
            part = messages[begin : begin + _MESSAGES_PER_PART]
            _, size_bytes = measure_all(part)
            self._enqueue(part, size_bytes, None)
            begin += len(part)

    def flush(self) -> None:
        """Wait until all messages sent before are acknowledged. See ``AsyncProducer.flush``."""
        background.run(self._flush())

    def close(self) -> None:
        """Flush, and reject further messages. See ``AsyncProducer.aclose``."""
        if not self._is_closed:
            self._is_closed = True
            background.close(self._flush())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        # After an error, queued messages are sent without a wait, so that the caller sees its own error.
        self._is_closed = True

    def _check_open(self) -> None:
        if self._failure is not None:
            raise ProducerStoppedError(f"the producer of {self.vchannel} stopped: {self._failure}") from self._failure
        if self._is_closed:
            raise ClosedError(f"the producer of {self.vchannel} is closed: create a new one")

    def _has_room(self, size_bytes: int) -> bool:
        return not self._queued_bytes or self._queued_bytes + size_bytes <= _QUEUE_BYTES

    def _enqueue(self, messages: Appendable | Sequence[Appendable], size_bytes: int, ticket: Ticket | None) -> None:
        with self._changed:
            self._check_open()
            self._changed.wait_for(lambda: self._has_room(size_bytes) or self._failure is not None)
            self._check_open()
            self._add(messages, size_bytes, ticket)

    def _add(self, messages: Appendable | Sequence[Appendable], size_bytes: int, ticket: Ticket | None) -> None:
        self._queue.append((messages, size_bytes, ticket))
        self._queued_bytes += size_bytes
        if self._sending is None:
            self._sending = background.start(self._send_queue())

    async def _flush(self) -> None:
        if (sending := self._sending) is not None:
            # Ctrl-C ends the wait, but not the sending.
            await asyncio.shield(asyncio.wrap_future(sending))
        await self._producer.flush()

    async def _send_queue(self) -> None:
        """Pass queued messages to the asynchronous producer, in order, until the queue is empty."""
        while True:
            with self._changed:
                if not self._queue:
                    self._sending = None
                    return
                taken = list(self._queue)
                self._queue.clear()
            for messages, size_bytes, ticket in taken:
                await self._send_one(messages, ticket)
                # Ordering: free the queue's room only after the asynchronous producer has accepted the messages.
                self._queued_bytes -= size_bytes
            with self._changed:
                self._changed.notify_all()

    async def _send_one(self, messages: Appendable | Sequence[Appendable], ticket: Ticket | None) -> None:
        try:
            if not isinstance(messages, Appendable):
                await self._producer.send_many(messages)
                return
            sent = await self._producer.send(messages)
        except TidelogError as error:
            self._failure = error
            if ticket is not None:
                ticket.settle(None, error)
        else:
            if ticket is not None:
                ticket.settle(sent, None)
