"""The producer: appends messages to a vchannel, or to those of a channel, in order, batched and pipelined."""

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypedDict, cast

from tidelog.append.arrow_data import ArrowData, batches, is_arrow
from tidelog.append.channel_route import ChannelRoute
from tidelog.append.dividing import check_partitioner
from tidelog.append.numbering import Numbering
from tidelog.append.oversized import PartlyAppended
from tidelog.append.sender import ProducerBatch, Room, Sender
from tidelog.append.sizes import MIXED_BYTES, Appendable, measure, measure_all
from tidelog.append.stream import AppendStream
from tidelog.errors import BufferFullError, ClosedError, ProducerStoppedError, TidelogError, copy_of
from tidelog.transport import tracing as _tracing
from tidelog.transport.in_one_process import InOneProcess
from tidelog.transport.node.located import located
from tidelog.types import AppendResult, Durability, VchannelTotal
from tidelog.wire.append_terms import AppendTerms
from tidelog.wire.batch import Batch
from tidelog.wire.columns import MAX_MESSAGES_PER_BATCH
from tidelog.wire.durations import Duration, check_seconds
from tidelog.wire.partitioning import Partitioner

DEFAULT_LINGER_S: Final = 0.005
DEFAULT_BATCH_BYTES: Final = 1 << 20
DEFAULT_IN_FLIGHT_BYTES: Final = 8 << 20


class ProducerOptions(TypedDict, total=False):
    """Options of a producer.

    Attributes:
        linger_s: Maximum time that a batch waits for more messages after its first, in seconds; default 0.005. With 0
            it is sent at the end of the current turn of the event loop.
        max_batch_bytes: Size at which a batch is sent at once; default 1 MiB, at most the server's limit.
        max_in_flight_bytes: Maximum number of unacknowledged bytes, beyond which ``send`` waits; default 8 MiB.
        durability: When the server acknowledges an append; default None, the server's default.
        fencing_token: The token that the vchannel must have, see ``AsyncClient.fence``; default None, any. The producer
            stops once the vchannel has another one.
        idempotent: Number the batches, so that they can be sent again after a lost response and are still stored once;
            default True. If False, a lost response stops the producer.
        partitioner: How the vchannel of a key is chosen, for a channel; default None, ``crc32c``. See
            ``AsyncClient.append``.
    """

    linger_s: Duration
    max_batch_bytes: int
    max_in_flight_bytes: int
    durability: Durability | None
    fencing_token: int | None
    idempotent: bool
    partitioner: Partitioner | None


class AsyncTicket(InOneProcess):
    """A message in flight: await it, any number of times, for its AppendResult.

    Cancelling the wait does not cancel the append.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: "asyncio.Future[Any]", index: int) -> None:
        self._batch = batch
        self._index = index

    def __repr__(self) -> str:
        return f"<AsyncTicket, {'done' if self.done() else 'in flight'}>"

    def done(self) -> bool:
        """Return whether the message is acknowledged or has failed."""
        return self._batch.done()

    def __await__(self) -> Generator[Any, None, AppendResult]:
        # Why shield: many tickets wait for one batch, and cancelling one wait must not end the others.
        result: AppendResult | PartlyAppended = yield from asyncio.shield(self._batch).__await__()
        return result.part(self._index, self._index + 1)


class AsyncProducer(InOneProcess):
    """Sends messages to a vchannel in the order of the calls, with many batches in flight.

    On a channel with several vchannels, it divides each batch: a message with a key goes to the vchannel of the key,
    and the others go to the vchannel that has received the fewest of them. Each vchannel has its messages in the order
    of the calls. The first batch learns the number of vchannels, and each answer has it, so a producer follows a
    channel that grows.

    Use it with ``async with``; leaving the block flushes. If the response to a batch is lost, with the connection or
    the server, the producer sends the batch again, for up to ``Retry.give_up_s`` without any response; it is stored
    once. A message that is too large for the server fails alone, if batches are numbered: its ticket and the next
    ``flush`` raise InvalidRequestError, and all others are appended in order. The producer stops once another append
    has failed or its outcome stays unknown: every later call raises ProducerStoppedError, and nothing after that append
    is in the log on its vchannel. Each ticket has the outcome of its message.
    Not thread-safe: use it in its client's event loop.
    """

    def __init__(
        self,
        appends: Callable[[], AppendStream],
        vchannel: str,
        *,
        linger_s: Duration = DEFAULT_LINGER_S,
        max_batch_bytes: int = DEFAULT_BATCH_BYTES,
        max_in_flight_bytes: int = DEFAULT_IN_FLIGHT_BYTES,
        durability: Durability | None = None,
        fencing_token: int | None = None,
        idempotent: bool = True,
        partitioner: Partitioner | None = None,
    ) -> None:
        if not 0 < max_batch_bytes <= max_in_flight_bytes:
            raise ValueError(
                f"expected 0 < max_batch_bytes <= max_in_flight_bytes, got {max_batch_bytes} and {max_in_flight_bytes}"
            )
        check_partitioner(partitioner, vchannel)
        self.vchannel = vchannel
        self._appends = appends
        self._linger_s = check_seconds("linger_s", linger_s)
        self.max_batch_bytes = max_batch_bytes
        self._terms = AppendTerms(durability, fencing_token).checked()
        self._is_idempotent = idempotent
        # Of each vchannel, and of the channel by its name.
        self._numberings: dict[str, Numbering] = {}
        self._linger: asyncio.Handle | None = None
        # Everything that is not acknowledged, including the gathered messages.
        self._room = Room(max_in_flight_bytes)
        self._sender = Sender[ProducerBatch](self._room, self._stopped)
        self._route = (
            None
            if "/" in vchannel
            else ChannelRoute(vchannel, self._put_to, lambda: appends().known, self._sender, partitioner)
        )
        # Average size of the messages that ``send_many`` sent last; 0 before the first.
        self._message_bytes = 0.0
        self._is_closed = False
        self._is_found = False

    def __repr__(self) -> str:
        return f"<AsyncProducer of {self.vchannel}, {self.in_flight_bytes} bytes in flight>"

    @property
    def in_flight_bytes(self) -> int:
        """Approximate number of bytes that are not acknowledged."""
        return self._room.used_bytes

    @property
    def totals(self) -> Mapping[str, VchannelTotal]:
        """What is acknowledged so far, by vchannel, if the producer's channel has several; else empty."""
        return {} if self._route is None else dict(sorted(self._route.totals.items(), key=_index_of))

    async def send(self, message: Appendable) -> AsyncTicket:
        """Send ``message`` and return a ticket for its position; waits only for room in the buffer.

        Cancelling does not cancel messages that were sent.

        Raises:
            TypeError: The message is neither bytes nor a Message.
            InvalidRequestError: The message cannot be encoded; the error names the field. It was not sent, and the
                producer continues.
            ProducerStoppedError: An earlier append failed. This message was not sent.
            ClosedError: The producer is closed.
        """
        if not self._is_found:
            await self.found()
        size_bytes = measure(message)
        if not self._room.has(size_bytes):
            await self._wait_for_room(size_bytes)
        self._check_open()
        batch = self._gather(message, size_bytes)
        ticket = AsyncTicket(batch.future, len(batch.messages) - 1)
        self._ship_if_full()
        return ticket

    def send_nowait(self, message: Appendable) -> None:
        """Send ``message`` without a ticket; ``flush`` reports whether it was appended.

        Raises:
            BufferFullError: The buffer has no room now. The message was not accepted.
            TypeError, InvalidRequestError, ProducerStoppedError, ClosedError: As ``send``.
        """
        size_bytes = measure(message)
        self._check_open()
        if not self._room.has(size_bytes):
            raise BufferFullError(
                f"{self._room.used_bytes} bytes are in flight to {self.vchannel}, the limit is "
                f"{self._room.limit_bytes}: await send() or flush()"
            )
        self._gather(message, size_bytes)
        self._ship_if_full()

    async def send_many(self, messages: Sequence[Appendable] | ArrowData) -> None:
        """Send ``messages`` in order, waiting for room as needed; ``flush`` reports whether they were appended.

        This is the fastest way to send many messages: a list of bytes takes no Python code per message. If it is
        cancelled while it waits for room, it has sent a prefix of them. Messages in columns, as ``AsyncClient.append``
        takes them, in any number, take no Python object per message. A row that the server refuses for another reason
        than the size of its payload stops the producer.

        Raises:
            TypeError, InvalidRequestError, ProducerStoppedError, ClosedError: As ``send``. A prefix of the messages may
                have been sent; the one that the error names, and those after it, were not.
        """
        if not self._is_found:
            await self.found()
        if is_arrow(messages):
            async for rows in batches(messages, self.max_batch_bytes):
                await self._send_batch(rows)
            return
        begin = 0
        while begin < len(messages):
            part, is_plain, size_bytes = self._cut(messages, begin)
            if not self._room.has(size_bytes):
                await self._wait_for_room(size_bytes)
            self._check_open()
            batch = self._batch_for(len(part), size_bytes, is_plain=is_plain)
            if batch.messages or not isinstance(part, list):
                batch.messages.extend(part)
            else:
                batch.messages = part  # A slice, so nothing else references it.
            self._ship_if_full()
            begin += len(part)

    async def _send_batch(self, rows: Batch) -> None:
        size_bytes = rows.columns.size_bytes
        if not self._room.has(size_bytes):
            await self._wait_for_room(size_bytes)
        self._check_open()
        self._ship()
        batch = self._start_batch()
        # It takes no more messages, so it need not be a list.
        batch.messages, batch.is_plain, batch.size_bytes = cast("list[Appendable]", rows), False, size_bytes
        self._room.used_bytes += size_bytes
        self._ship()

    def put(self, batch: ProducerBatch) -> None:
        """Pass a batch to the append stream, under the numbers of the producer; for the producers of other modules.

        Raises:
            ClosedError: The client is closed.
        """
        self._put_to(self.vchannel, batch)

    def _put_to(self, vchannel: str, batch: ProducerBatch) -> None:
        # A channel that has accepted the first batch by its name continues as its first vchannel.
        has_one = self._route is not None and self._route.has_one and vchannel == f"{self.vchannel}/0"
        name = self.vchannel if has_one else vchannel
        numbering = self._numberings.get(name)
        if numbering is None and self._is_idempotent:
            numbering = self._numberings[name] = Numbering()
        appends = self._appends()
        if (hooks := _tracing.hooks) is not None:
            batch.on_settled = hooks.sends(vchannel, appends.transport.endpoint)
        appends.put(vchannel, self._terms, batch, numbering)

    async def flush(self) -> None:
        """Return once everything sent so far is acknowledged.

        It ends at the latest ``Retry.give_up_s`` after the last response of the server, if the batches are numbered.

        Raises:
            InvalidRequestError: The server refused messages since the last flush as too large. The error is that of the
                first one; the others are appended, and the producer continues.
            TidelogError: The first failure of this producer, if any.
        """
        self._ship()
        while not self._sender.is_settled:
            await self._room.freed()
        if self._sender.failure is not None:
            raise copy_of(self._sender.failure)
        refusal, self._sender.refusal = self._sender.refusal, None
        if refusal is not None:
            raise refusal

    async def aclose(self) -> None:
        """Flush, and refuse further messages.

        Raises:
            TidelogError: As ``flush``.
        """
        if self._is_closed:
            return
        self._is_closed = True
        await self.flush()

    async def found(self) -> None:
        """Find the node of the vchannel, if the client finds owners. Raises TidelogError.

        ``async with`` and the calls that wait do this; before the first of them, nothing can be sent.
        """
        await located(self._appends, (self.vchannel,))
        self._is_found = True

    async def __aenter__(self) -> Self:
        await self.found()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.aclose()
            return
        # The block raised, and the caller must see that error: send what was gathered, but do not wait for it.
        self._is_closed = True
        self._ship()

    def _check_open(self) -> None:
        if self._sender.failure is not None:
            raise self._stopped()
        if self._is_closed:
            raise ClosedError(f"the producer of {self.vchannel} is closed: create a new one")

    def _stopped(self) -> ProducerStoppedError:
        failure = self._sender.failure
        stopped = ProducerStoppedError(
            f"the producer of {self.vchannel} stopped because an earlier append failed: {failure}"
        )
        stopped.__cause__ = failure
        return stopped

    async def _wait_for_room(self, size_bytes: int) -> None:
        while not self._room.has(size_bytes) and self._sender.failure is None:
            # The gathered batch may occupy the room that this waits for, so send it as if it were full.
            self._ship()
            await self._room.freed()

    def _cut(self, messages: Sequence[Appendable], begin: int) -> tuple[Sequence[Appendable], bool, int]:
        """Return the messages from ``begin`` that fit into the current batch, at least one, with their size."""
        batch = self._sender.gathering
        room_bytes, count = self.max_batch_bytes, MAX_MESSAGES_PER_BATCH
        if batch is not None:
            room_bytes, count = max(room_bytes - batch.size_bytes, 1), max(count - len(batch.messages), 1)
        if self._message_bytes:
            # Estimate from the last messages; an estimate that is too large costs a second measurement.
            count = max(1, min(count, int(room_bytes / self._message_bytes)))
        while True:
            part = messages[begin : begin + count]
            is_plain, size_bytes = measure_all(part, begin)
            if size_bytes <= room_bytes or len(part) == 1:
                self._message_bytes = size_bytes / len(part)
                return part, is_plain, size_bytes
            count = max(1, min(len(part) - 1, len(part) * room_bytes // size_bytes))

    def _start_batch(self) -> ProducerBatch:
        """Start a batch and its linger timer."""
        loop = asyncio.get_running_loop()
        batch = ProducerBatch([], True, 0, loop.create_future(), sender=self._sender)
        batch.travels_alone = batch.is_divisible = True
        self._sender.begin(batch)
        # Each batch lingers from its first message: later ones must not delay it.
        self._linger = loop.call_later(self._linger_s, self._ship)
        return batch

    def _batch_for(self, count: int, size_bytes: int, *, is_plain: bool) -> ProducerBatch:
        """Return the batch for ``count`` messages, and count them; ship what they do not fit behind."""
        batch, added_bytes = self._sender.gathering, size_bytes
        if batch is not None:
            if is_plain is not batch.is_plain:
                # Payloads that share a batch with messages take more than alone: the new ones, or those before.
                added_bytes += MIXED_BYTES * (count if is_plain else len(batch.messages))
            if batch.size_bytes + added_bytes > self.max_batch_bytes:
                self._ship()
                batch, added_bytes = None, size_bytes
        if batch is None:
            batch = self._start_batch()
        batch.is_plain = is_plain and batch.is_plain
        batch.size_bytes += added_bytes
        self._room.used_bytes += added_bytes
        return batch

    def _gather(self, message: Appendable, size_bytes: int) -> ProducerBatch:
        batch = self._batch_for(1, size_bytes, is_plain=type(message) is bytes)
        batch.messages.append(message)
        return batch

    def _ship_if_full(self) -> None:
        batch = self._sender.gathering
        assert batch is not None
        if batch.size_bytes >= self.max_batch_bytes or len(batch.messages) >= MAX_MESSAGES_PER_BATCH:
            self._ship()

    def _ship(self) -> None:
        """Pass the gathered batch to the append stream."""
        batch, self._sender.gathering = self._sender.gathering, None
        if batch is None:
            return
        assert self._linger is not None
        self._linger.cancel()
        if self._route is not None:
            self._route.send(batch)
            return
        try:
            self.put(batch)
        except TidelogError as error:
            batch.fail(error)


def _index_of(total: tuple[str, VchannelTotal]) -> int:
    return int(total[0].rpartition("/")[2])
