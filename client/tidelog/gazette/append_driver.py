"""Sends the batches of journal queues: the part that the asynchronous journal client and its twin share."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from tidelog.admin.journal_types import JournalSpec
from tidelog.append.producer import AsyncProducer
from tidelog.client import AsyncClient
from tidelog.errors import (
    AppendUnknownError,
    ChannelNotFoundError,
    ClosedError,
    ProducerStoppedError,
    TidelogError,
    copy_of,
)
from tidelog.gazette.ack_intents import AckIntent
from tidelog.gazette.append_queue import FrameBatch, JournalQueue, Room, closed_error
from tidelog.gazette.errors import MissingJournalError
from tidelog.gazette.messages import Journal
from tidelog.types import AppendResult

_log: Final = logging.getLogger(__name__)
FindJournal: TypeAlias = Callable[[Journal], Awaitable[JournalSpec]]
FindOwner: TypeAlias = Callable[[str], Awaitable[AsyncClient]]
AnyFuture: TypeAlias = "asyncio.Future[Any] | Future[Any]"


class AppendHandle(Protocol):
    """What the callers of a batch share.

    Attributes:
        future: Receives the position of the batch, or the error.
    """

    future: Any

    def done(self) -> bool:
        """Return whether the batch is acknowledged or has failed."""
        ...


Handle = TypeVar("Handle", bound=AppendHandle)


class AppendDriver(Generic[Handle]):
    """Sends the batches of journal queues; the part that the asynchronous client and its twin share.

    All methods but ``queue_of`` run on the event loop.
    """

    def __init__(
        self,
        room: Room,
        find: FindJournal,
        owner_of: FindOwner,
        *,
        make: Callable[[Journal], Handle],
        soon: Callable[[Callable[[], None]], object],
        lock: AbstractContextManager[Any],
    ) -> None:
        """Create a driver without queues.

        Args:
            room: Memory for frames.
            find: Returns the specification of a journal.
            owner_of: Returns a client of the node that owns a channel.
            make: Returns the handle of a new batch, with an attribute ``future``.
            soon: Calls a function on the event loop soon.
            lock: Guards the queues if callers run in other threads.
        """
        self.queues: dict[Journal, JournalQueue[Handle]] = {}
        self._room = room
        self._find = find
        self._owner_of = owner_of
        self._make = make
        self._soon = soon
        self._lock = lock
        self._producers: dict[Journal, AsyncProducer] = {}
        self._opening: dict[Journal, asyncio.Task[None]] = {}
        self._sending: set[asyncio.Future[AppendResult]] = set()
        self._room_waiters: list[asyncio.Future[None]] = []
        self._is_closed = False

    def queue_of(self, journal: Journal) -> JournalQueue[Handle]:
        """Return the queue of a journal, whose channel is looked up when the first frame was added."""
        queue = self.queues.get(journal)
        if queue is None:
            if self._is_closed:
                raise closed_error(journal)
            queue = self.queues[journal] = JournalQueue(
                journal, self._room, partial(self._make, journal), partial(self._wake, journal)
            )
        return queue

    def add_first(self, journal: Journal, frame: bytes, dependencies: Iterable[AnyFuture]) -> Handle:
        """Append ``frame`` in a new batch that is sent once all of ``dependencies`` succeeded.

        If one fails, the append fails, and so does every later one to the journal.
        """
        futures = list(dependencies)
        # Ordering: what is not a future raises before the frame is added, as it would never be sent.
        when_done = [future.add_done_callback for future in futures]
        queue = self.queue_of(journal)
        batch = queue.add_first(frame, len(futures))
        for call in when_done:
            call(partial(self._dependency_done, queue, batch))
        return batch.handle

    async def existing(self, intents: Iterable[AckIntent]) -> list[AckIntent]:
        """Return the intents whose journals exist; report the others."""
        found = []
        for intent in intents:
            try:
                if intent.journal not in self._producers:
                    await self._find(intent.journal)
            except MissingJournalError:
                _warn_missing(intent)
            else:
                found.append(intent)
        return found

    async def drop(self, intent: AckIntent, handle: Handle, error: TidelogError) -> None:
        """Report that an intent is dropped, if its journal was deleted before it was appended; else raise ``error``.

        If nothing but the intent was lost, the queue is dropped as well: its failure must not stop other journals.
        """
        if not isinstance(error, ChannelNotFoundError) and not isinstance(error.__cause__, MissingJournalError):
            raise error
        _warn_missing(intent)
        with self._lock:
            queue = self.queues.get(intent.journal)
            if queue is not None and queue.lost_only(handle):
                del self.queues[intent.journal]
                self._producers.pop(intent.journal, None)
                self._opening.pop(intent.journal, None)

    def pending_except(self, journal: Journal) -> list[Handle]:
        """Return the last append of each journal but one, if it is not done or the journal has failed."""
        with self._lock:
            batches = [queue.last for name, queue in self.queues.items() if name != journal and not queue.is_settled]
        return [batch.handle for batch in batches if batch is not None]

    def check(self) -> None:
        """Raise a copy of the error that stopped a journal, if any."""
        for queue in list(self.queues.values()):
            if queue.failure is not None:
                raise copy_of(queue.failure)

    async def room(self) -> None:
        """Return once at most half of the memory is in use."""
        while self._room.used_bytes * 2 > self._room.limit_bytes:
            waiter = asyncio.get_running_loop().create_future()
            self._room_waiters.append(waiter)
            await waiter

    async def answered(self) -> None:
        """Return once the outcome of everything that was sent is known, or given up; also after ``aclose``."""
        while self._sending:
            await asyncio.wait(self._sending)

    async def aclose(self) -> None:
        """Stop looking up journals, and fail what was not sent with ClosedError."""
        self._is_closed = True
        for task in self._opening.values():
            task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        for queue in self.queues.values():
            error = ClosedError(f"the journal client was closed before it appended to {queue.journal}")
            with self._lock:
                unsent = queue.close(error)
            self._fail_unsent(unsent, error)

    def _wake(self, journal: Journal) -> None:
        self._soon(partial(self._pump, journal))

    def _pump(self, journal: Journal) -> None:
        """Send the batches of a journal that may be sent now."""
        queue, producer = self.queues.get(journal), self._producers.get(journal)
        if queue is None:
            # It was dropped; see `drop`.
            return
        if producer is None:
            if journal not in self._opening and not self._is_closed:
                self._opening[journal] = asyncio.create_task(self._open(queue), name=f"tidelog-journal-{journal}")
            return
        while True:
            with self._lock:
                batch = queue.next()
            if batch is None:
                return
            # Ordering: a batch that was taken from the queue is settled, whatever happens, or `flush` never returns.
            try:
                sending = producer.send_batch(batch.frames)
            except Exception as error:  # noqa: BLE001 - the batch reports what was raised
                self._failed(queue, batch, _reported(queue, error))
            else:
                self._sending.add(sending)
                sending.add_done_callback(partial(self._answered, queue, batch))

    async def _open(self, queue: JournalQueue[Handle]) -> None:
        """Look up the journal's channel, and send what has gathered; if it does not exist, stop the queue."""
        try:
            spec = await self._find(queue.journal)
            owner = await self._owner_of(spec.channel)
            # The numbers of the producer's batches are what makes retries harmless; see JournalQueue, I2.
            self._producers[queue.journal] = owner.producer(f"{spec.channel}/0", linger_s=0)
        except asyncio.CancelledError as error:
            # `aclose` cancels this task, and stops the queue itself with another error.
            if not self._is_closed:
                self._stop(queue, _reported(queue, error))
            raise
        except Exception as error:  # noqa: BLE001 - `find` is the caller's; each append reports what it raised
            self._stop(queue, _reported(queue, error))
        else:
            self._pump(queue.journal)

    def _answered(
        self, queue: JournalQueue[Handle], batch: FrameBatch[Handle], sending: "asyncio.Future[AppendResult]"
    ) -> None:
        self._sending.discard(sending)
        error = asyncio.CancelledError() if sending.cancelled() else sending.exception()
        if error is not None:
            self._failed(queue, batch, error if isinstance(error, TidelogError) else _unknown(queue, error))
            return
        with self._lock:
            queue.settled(batch)
        if not batch.handle.done():
            batch.handle.future.set_result(sending.result())
        self._free_room()
        self._pump(queue.journal)

    def _failed(self, queue: JournalQueue[Handle], batch: FrameBatch[Handle], error: TidelogError) -> None:
        with self._lock:
            unsent = queue.failed(batch, error)
        _fail(batch, error)
        self._fail_unsent(unsent, queue.stopped())

    def _stop(self, queue: JournalQueue[Handle], error: TidelogError) -> None:
        with self._lock:
            unsent = queue.stop(error)
        self._fail_unsent(unsent, queue.stopped())

    def _fail_unsent(self, unsent: Iterable[FrameBatch[Handle]], error: TidelogError) -> None:
        for batch in unsent:
            _fail(batch, error)
        self._free_room()

    def _dependency_done(self, queue: JournalQueue[Handle], batch: FrameBatch[Handle], done: AnyFuture) -> None:
        self._soon(partial(self._dependency_met, queue, batch, done))

    def _dependency_met(self, queue: JournalQueue[Handle], batch: FrameBatch[Handle], done: AnyFuture) -> None:
        failure = asyncio.CancelledError() if done.cancelled() else done.exception()
        if failure is None:
            with self._lock:
                queue.met(batch)
            return
        self._stop(queue, _not_sent(queue, failure, "it depends on a failure"))

    def _free_room(self) -> None:
        waiters, self._room_waiters = self._room_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _warn_missing(intent: AckIntent) -> None:
    """Report that an intent is dropped."""
    _log.warning("journal %s does not exist: its acknowledgement is dropped, as its messages were", intent.journal)


def _fail(batch: FrameBatch[Handle], error: TidelogError) -> None:
    if batch.handle.done():
        # A caller has cancelled the future itself.
        return
    batch.handle.future.set_exception(copy_of(error))
    # Marks the exception as retrieved: a caller that does not wait finds the failure with its next append.
    batch.handle.future.exception()


def _reported(queue: JournalQueue[Handle], error: BaseException) -> TidelogError:
    """Return ``error``, or what stands for it, as appends raise only errors of the client."""
    return error if isinstance(error, TidelogError) else _not_sent(queue, error, "sending failed")


def _unknown(queue: JournalQueue[Handle], cause: BaseException) -> AppendUnknownError:
    error = AppendUnknownError(f"the outcome of an append to {queue.journal} is unknown: {cause!r}", effect="unknown")
    error.__cause__ = cause
    return error


def _not_sent(queue: JournalQueue[Handle], cause: BaseException, why: str) -> ProducerStoppedError:
    error = ProducerStoppedError(f"an append to {queue.journal} was not sent, because {why}: {cause!r}")
    error.__cause__ = cause
    return error
