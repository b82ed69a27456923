"""The producer: many messages to one vchannel, in order, batched and pipelined."""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypedDict

from tidelog._append_lane import Submission
from tidelog._append_stream import AppendStream
from tidelog._append_terms import AppendTerms
from tidelog._columns import MAX_MESSAGES_PER_BATCH
from tidelog._errors import BufferFullError, ClosedError, ProducerStoppedError, TidelogError
from tidelog._numbering import Numbering
from tidelog._sizes import Appendable, measure, measure_all
from tidelog._types import AppendResult, Durability

DEFAULT_LINGER_S: Final = 0.005
DEFAULT_BATCH_BYTES: Final = 1 << 20
DEFAULT_IN_FLIGHT_BYTES: Final = 8 << 20


class ProducerOptions(TypedDict, total=False):
    """Options of a producer.

    Attributes:
        linger_s: How long a batch waits for more after its first message; default 0.005. 0 ends it with the current
            turn of the event loop.
        max_batch_bytes: A batch that has so many bytes goes at once; default 1 MiB, at most what the server takes.
        max_in_flight_bytes: How much may be sent and not yet acknowledged; default 8 MiB. ``send`` waits beyond.
        durability: When an append is acknowledged; default None, the server's.
        fencing_token: The token that the vchannel must have, see ``AsyncClient.fence``; default None, any. Once it has
            another one, the producer stops.
        idempotent: Whether batches are numbered, so that they can be sent again when an answer is lost and are in the
            log once; default True. Without it a lost answer stops the producer.
    """

    linger_s: float
    max_batch_bytes: int
    max_in_flight_bytes: int
    durability: Durability | None
    fencing_token: int | None
    idempotent: bool


class AsyncTicket:
    """A message on its way: await it, any number of times, for its AppendResult.

    Cancelling the wait does not take the message back.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: "asyncio.Future[AppendResult]", index: int) -> None:
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        """Tell whether the message is acknowledged or has failed."""
        return self._batch.done()

    def __await__(self) -> Generator[Any, None, AppendResult]:
        # Why shield: many tickets wait for one batch, and cancelling one wait must not end the others.
        result = yield from asyncio.shield(self._batch).__await__()
        return result.part(self._index, self._index + 1)


class AsyncProducer:
    """Sends messages to one vchannel in the order of the calls, many batches in flight.

    Use it with ``async with``; leaving the block flushes. A batch whose answer is lost, with the connection or the
    server, is sent again until it is answered, for up to ``Retry.give_up_s`` without any answer; it is in the log once.
    Once an append has failed, or its outcome stays unknown, the producer stops: every later call raises
    ProducerStoppedError, and nothing behind that append is in the log.
    Not thread-safe: use it in its client's event loop.
    """

    def __init__(
        self,
        appends: Callable[[], AppendStream],
        vchannel: str,
        *,
        linger_s: float = DEFAULT_LINGER_S,
        max_batch_bytes: int = DEFAULT_BATCH_BYTES,
        max_in_flight_bytes: int = DEFAULT_IN_FLIGHT_BYTES,
        durability: Durability | None = None,
        fencing_token: int | None = None,
        idempotent: bool = True,
    ) -> None:
        if linger_s < 0:
            raise ValueError(f"linger_s is {linger_s}, expected 0 or more")
        if not 0 < max_batch_bytes <= max_in_flight_bytes:
            raise ValueError(
                f"expected 0 < max_batch_bytes <= max_in_flight_bytes, got {max_batch_bytes} and {max_in_flight_bytes}"
            )
        self.vchannel = vchannel
        self._appends = appends
        self._linger_s = linger_s
        self._max_batch_bytes = max_batch_bytes
        self._max_in_flight_bytes = max_in_flight_bytes
        self._terms = AppendTerms(durability, fencing_token).checked()
        self._numbering = Numbering() if idempotent else None
        self._gathered: list[Appendable] = []
        self._gathered_bytes = 0
        self._gathered_is_plain = True
        self._batch: asyncio.Future[AppendResult] | None = None
        self._linger: asyncio.Handle | None = None
        self._unsettled: deque[tuple[Submission, int]] = deque()
        # Everything sent and not acknowledged, the gathered messages included.
        self._in_flight_bytes = 0
        # Of the messages that ``send_many`` took last, on average; 0 before the first.
        self._message_bytes = 0.0
        self._waiting_for_room: list[asyncio.Future[None]] = []
        self._failure: TidelogError | None = None
        self._is_closed = False

    @property
    def in_flight_bytes(self) -> int:
        """About how many bytes were sent and are not acknowledged."""
        return self._in_flight_bytes

    async def send(self, message: Appendable) -> AsyncTicket:
        """Send ``message`` and return a ticket for its position; waits for room only.

        Cancelling takes nothing back that was sent.

        Raises:
            TypeError: It is neither bytes nor a Message.
            ProducerStoppedError: An earlier append failed. This message was not sent.
            ClosedError: The producer was closed.
        """
        size_bytes = measure(message)
        if not self._has_room(size_bytes):
            await self._room(size_bytes)
        self._check_open()
        batch = self._gather(message, size_bytes)
        ticket = AsyncTicket(batch, len(self._gathered) - 1)
        self._ship_if_full()
        return ticket

    def send_nowait(self, message: Appendable) -> None:
        """Send ``message`` without a ticket; ``flush`` tells whether it arrived.

        Raises:
            BufferFullError: There is no room now. The message was not taken.
            TypeError, ProducerStoppedError, ClosedError: As ``send``.
        """
        size_bytes = measure(message)
        self._check_open()
        if not self._has_room(size_bytes):
            raise BufferFullError(
                f"{self._in_flight_bytes} bytes are in flight to {self.vchannel}, at most {self._max_in_flight_bytes} "
                "may be: await send() or flush()"
            )
        self._gather(message, size_bytes)
        self._ship_if_full()

    async def send_many(self, messages: Sequence[Appendable]) -> None:
        """Send ``messages`` in order, waiting for room as needed; ``flush`` tells whether they arrived.

        The fast way for many: nothing is done per message in Python when they are a list of bytes. Cancelled while it
        waits for room, it has sent a prefix of them.

        Raises:
            TypeError, ProducerStoppedError, ClosedError: As ``send``. A prefix of the messages may have been sent.
        """
        begin = 0
        while begin < len(messages):
            part, is_plain, size_bytes = self._cut(messages, begin)
            if not self._has_room(size_bytes):
                await self._room(size_bytes)
            self._check_open()
            self._start_batch()
            if self._gathered or not isinstance(part, list):
                self._gathered.extend(part)
            else:
                self._gathered = part  # A slice, so it is nobody else's.
            self._gathered_is_plain = self._gathered_is_plain and is_plain
            self._count_gathered(size_bytes)
            self._ship_if_full()
            begin += len(part)

    async def flush(self) -> None:
        """Return once everything sent before is acknowledged.

        Raises:
            TidelogError: The first failure of this producer, if it had one.
        """
        self._ship()
        while self._unsettled:
            # The newest is settled last, unless a failure settles them in another order: hence the loop.
            await asyncio.wait((self._unsettled[-1][0].future,))
            await asyncio.sleep(0)
        if self._failure is not None:
            raise self._failure

    async def aclose(self) -> None:
        """Flush, and take no more messages.

        Raises:
            TidelogError: As ``flush``.
        """
        if self._is_closed:
            return
        self._is_closed = True
        await self.flush()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.aclose()
            return
        # The block failed by itself, and that is what its caller shall see: send what was given, wait for nothing.
        self._is_closed = True
        self._ship()

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._stopped() from self._failure
        if self._is_closed:
            raise ClosedError(f"the producer of {self.vchannel} is closed: make a new one")

    def _stopped(self) -> ProducerStoppedError:
        return ProducerStoppedError(
            f"the producer of {self.vchannel} stopped because an earlier append failed: {self._failure}"
        )

    def _has_room(self, size_bytes: int) -> bool:
        return not self._in_flight_bytes or self._in_flight_bytes + size_bytes <= self._max_in_flight_bytes

    async def _room(self, size_bytes: int) -> None:
        while not self._has_room(size_bytes) and self._failure is None:
            # Nothing may fit behind what is gathered, so that is a full batch now.
            self._ship()
            waiter = asyncio.get_running_loop().create_future()
            self._waiting_for_room.append(waiter)
            await waiter

    def _cut(self, messages: Sequence[Appendable], begin: int) -> tuple[Sequence[Appendable], bool, int]:
        """Return the messages from ``begin`` on that fit into the current batch, at least one, with their size."""
        room_bytes = max(self._max_batch_bytes - self._gathered_bytes, 1)
        count = max(MAX_MESSAGES_PER_BATCH - len(self._gathered), 1)
        if self._message_bytes:
            # What the last messages took is a good guess, and one that is too large costs measuring twice.
            count = max(1, min(count, int(room_bytes / self._message_bytes)))
        while True:
            part = messages[begin : begin + count]
            is_plain, size_bytes = measure_all(part)
            if size_bytes <= room_bytes or len(part) == 1:
                self._message_bytes = size_bytes / len(part)
                return part, is_plain, size_bytes
            count = max(1, min(len(part) - 1, len(part) * room_bytes // size_bytes))

    def _start_batch(self) -> "asyncio.Future[AppendResult]":
        """Return the future of the batch that is gathered, which begins, with its linger, if there is none."""
        if self._batch is None:
            loop = asyncio.get_running_loop()
            self._batch = loop.create_future()
            self._batch.add_done_callback(self._on_settled)
            # Each batch lingers from its first message: later ones must not put it off.
            self._linger = loop.call_later(self._linger_s, self._ship)
        return self._batch

    def _gather(self, message: Appendable, size_bytes: int) -> "asyncio.Future[AppendResult]":
        if self._gathered and self._gathered_bytes + size_bytes > self._max_batch_bytes:
            self._ship()
        batch = self._start_batch()
        self._gathered.append(message)
        if self._gathered_is_plain and type(message) is not bytes:
            self._gathered_is_plain = False
        self._count_gathered(size_bytes)
        return batch

    def _count_gathered(self, size_bytes: int) -> None:
        self._gathered_bytes += size_bytes
        self._in_flight_bytes += size_bytes

    def _ship_if_full(self) -> None:
        if self._gathered_bytes >= self._max_batch_bytes or len(self._gathered) >= MAX_MESSAGES_PER_BATCH:
            self._ship()

    def _ship(self) -> None:
        """Hand what is gathered to the append stream."""
        if self._batch is None:
            return
        assert self._linger is not None
        self._linger.cancel()
        batch, messages, size_bytes = self._batch, self._gathered, self._gathered_bytes
        is_plain = self._gathered_is_plain
        self._batch, self._gathered, self._gathered_bytes, self._gathered_is_plain = None, [], 0, True
        submission = Submission(messages, is_plain, size_bytes, batch)
        submission.travels_alone = True
        self._unsettled.append((submission, size_bytes))
        try:
            self._appends().put(self.vchannel, self._terms, submission, self._numbering)
        except TidelogError as error:
            submission.fail(error)

    def _on_settled(self, batch: "asyncio.Future[AppendResult]") -> None:
        # Asking for the exception also tells asyncio that somebody saw it, whether or not a ticket is awaited.
        error = batch.exception()
        if isinstance(error, TidelogError) and self._failure is None:
            self._stop(error)
        while self._unsettled and self._unsettled[0][0].future.done():
            self._in_flight_bytes -= self._unsettled.popleft()[1]
        waiters, self._waiting_for_room = self._waiting_for_room, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _stop(self, error: TidelogError) -> None:
        """Stop at the first failure: nothing that was not sent yet may follow the gap."""
        self._failure = error
        self._ship()
        stopped = self._stopped()
        stopped.__cause__ = error
        for submission, _ in self._unsettled:
            if not submission.is_sent:
                submission.is_abandoned = True
                submission.fail(stopped)
