"""Appends to journals: what the asynchronous journal client and its twin share."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeAlias

from tidelog.append.producer import AsyncProducer
from tidelog.append.sender import Room
from tidelog.client import AsyncClient
from tidelog.errors import ChannelNotFoundError, ProducerStoppedError, TidelogError, copy_of
from tidelog.gazette.append_queue import AppendHandle, FrameBatch, Handle, JournalQueue, closed_error
from tidelog.gazette.errors import MissingJournalError
from tidelog.gazette.messages import AckIntent, Journal
from tidelog.journals.types import JournalSpec

_log: Final = logging.getLogger(__name__)
FindJournal: TypeAlias = Callable[[Journal], Awaitable[JournalSpec]]
FindOwner: TypeAlias = Callable[[str], Awaitable[AsyncClient]]
Dependency: TypeAlias = "AppendHandle | asyncio.Future[Any] | Future[Any]"
"""What must succeed before an append is sent: another append, or a future such as the commit of a store."""


class JournalAppends(Generic[Handle]):
    """The journals of a client, and their appends. All coroutines run on the event loop."""

    def __init__(
        self,
        find: FindJournal,
        owner_of: FindOwner,
        max_pending_bytes: int,
        *,
        make: Callable[[Journal], Handle],
        soon: Callable[[Callable[[], None]], object],
        lock: AbstractContextManager[Any],
    ) -> None:
        """Create appends without journals; does no I/O.

        Args:
            find: Returns the specification of a journal.
            owner_of: Returns a client of the node that owns a channel.
            max_pending_bytes: Memory for frames.
            make: Returns the handle of a new batch.
            soon: Calls a function on the event loop soon.
            lock: Guards the queues if callers run in other threads.
        """
        if max_pending_bytes < 1:
            raise ValueError(f"max_pending_bytes is {max_pending_bytes}, expected 1 or more")
        self._find = find
        self._owner_of = owner_of
        self._room = Room(max_pending_bytes)
        self._make = make
        self._soon = soon
        self._lock = lock
        self._queues: dict[Journal, JournalQueue[Handle]] = {}
        self._producers: dict[Journal, AsyncProducer] = {}
        self._opening: dict[Journal, asyncio.Task[None]] = {}
        self._is_closed = False

    def append(self, journal: Journal, frame: bytes, *, dependencies: Iterable[Dependency] | None = None) -> Handle:
        """Append one frame, and return the append of its batch without waiting.

        Args:
            journal: Name of the journal.
            frame: The bytes of one frame, at least one byte.
            dependencies: What must succeed before the frame is sent. With dependencies, even without any in the
                iterable, the frame is the first of a new batch, and is accepted without room. If one fails, so do this
                and all later appends to the journal.

        Raises:
            TypeError: The frame is not bytes. It was not accepted.
            BufferFullError: There is no room: wait for ``room``. The frame was not accepted.
            ProducerStoppedError: An earlier append to the journal failed. The frame was not accepted.
            ClosedError: The journal client is closed.
        """
        if dependencies is None:
            with self._lock:
                return self.queue_of(journal).add(frame)
        futures = [each.future if isinstance(each, AppendHandle) else each for each in dependencies]
        # Ordering: what is not a future raises before the frame is added, as it would never be sent.
        when_done: list[Callable[..., None]] = [future.add_done_callback for future in futures]
        with self._lock:
            queue = self.queue_of(journal)
            batch = queue.add_first(frame, len(futures))
        for call in when_done:
            call(partial(self._dependency_done, queue, batch))
        return batch.handle

    def queue_of(self, journal: Journal) -> JournalQueue[Handle]:
        """Return the exclusive append slot of a journal; for publishers, which hold the lock of a synchronous client.

        The channel of the journal is looked up when the first frame was added.
        """
        queue = self._queues.get(journal)
        if queue is None:
            if self._is_closed:
                raise closed_error(journal)
            make, begun = partial(self._make, journal), partial(self._soon, partial(self._pass_on, journal))
            queue = self._queues[journal] = JournalQueue(journal, self._room, make, begun, self._lock)
        return queue

    def pending_except(self, journal: Journal = "") -> list[Handle]:
        """Return the last append of each journal other than ``journal`` that is not acknowledged or has failed.

        Appends to one journal succeed in order, so once these are done, everything appended before is done: a write
        barrier. An append that failed stays in the list.
        """
        with self._lock:
            queues = [queue for name, queue in self._queues.items() if name != journal]
            batches = [queue.last for queue in queues if queue.failure is not None or not queue.is_settled]
        return [batch.handle for batch in batches if batch is not None]

    def append_ack_intents(self, intents: Iterable[AckIntent], dependencies: Iterable[Dependency] = ()) -> list[Handle]:
        """Append acknowledgements once ``dependencies`` have succeeded, such as the commit of the store; do not wait.

        The next transaction may begin at once: its messages are queued behind the acknowledgements. If the commit
        fails, the journals are stopped, and their publisher cannot be used any more.

        Raises:
            ProducerStoppedError: An earlier append to a journal failed.
            ClosedError: The journal client is closed.
        """
        shared = tuple(dependencies)
        return [self.append(each.journal, each.intent, dependencies=shared) for each in intents]

    async def write_ack_intents(self, intents: Iterable[AckIntent]) -> None:
        """Append acknowledgements, and return once all are in their journals.

        Call it after the intents were persisted. Call it also when the program starts, before anything is read, with
        the intents that were persisted last: that commits their transaction if the crash came before its
        acknowledgement, and otherwise discards what its publisher left open in these journals. An intent whose journal
        does not exist any more is dropped with a warning.

        Raises:
            TidelogError: An intent could not be appended.
        """
        existing = [intent for intent in intents if await self._exists(intent)]
        for intent, append in zip(existing, self.append_ack_intents(existing), strict=True):
            try:
                await _outcome(append)
            except (ChannelNotFoundError, ProducerStoppedError) as error:
                self._drop(intent, append, error)

    async def flush(self) -> None:
        """Return once everything appended so far is acknowledged.

        Raises:
            TidelogError: The failure of a journal, if any.
        """
        self._check()
        for append in self.pending_except():
            await _outcome(append)
        self._check()

    async def room(self) -> None:
        """Return once at most half of ``max_pending_bytes`` is in use."""
        while self._room.used_bytes * 2 > self._room.limit_bytes:
            await self._room.freed()

    async def answered(self) -> None:
        """Return once the outcome of everything that was sent is known, or given up; call it after an error.

        A batch without an answer is sent again, also after ``aclose``: it may be stored after what another journal
        client appends. Takes up to ``Retry.give_up_s`` of the client.
        """
        while any(queue.has_passed for queue in self._queues.values()):
            await self._room.freed()

    async def aclose(self) -> None:
        """Flush, and refuse further appends.

        Raises:
            TidelogError: As ``flush``.
        """
        try:
            await self.flush()
        finally:
            await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.aclose()
        else:
            # The block raised, and the caller must see that error: what was not sent is dropped.
            await self._close()

    async def _close(self) -> None:
        """Stop looking up journals, and fail what was not sent with ClosedError."""
        self._is_closed = True
        for task in self._opening.values():
            task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        for queue in self._queues.values():
            queue.close()

    def _check(self) -> None:
        """Raise a copy of the error that stopped a journal, if any."""
        for queue in list(self._queues.values()):
            if queue.failure is not None:
                raise copy_of(queue.failure)

    async def _exists(self, intent: AckIntent) -> bool:
        """Return whether the journal of an intent exists; report one that does not."""
        try:
            if intent.journal not in self._producers:
                await self._find(intent.journal)
        except MissingJournalError:
            _warn_missing(intent)
            return False
        return True

    def _drop(self, intent: AckIntent, append: Handle, error: TidelogError) -> None:
        """Report that an intent is dropped, if its journal was deleted before it was appended; else raise ``error``.

        If nothing but the intent was lost, the queue is dropped as well: its failure must not stop other journals.
        """
        if not isinstance(error, ChannelNotFoundError) and not isinstance(error.__cause__, MissingJournalError):
            raise error
        _warn_missing(intent)
        with self._lock:
            queue = self._queues.get(intent.journal)
            if queue is not None and queue.lost_only(append):
                del self._queues[intent.journal]
                self._producers.pop(intent.journal, None)
                self._opening.pop(intent.journal, None)

    def _pass_on(self, journal: Journal) -> None:
        """Pass the batches of a journal that may be sent to the append stream."""
        queue, producer = self._queues.get(journal), self._producers.get(journal)
        if queue is None:
            # It was dropped; see `_drop`.
            return
        if producer is None:
            if journal not in self._opening and not self._is_closed:
                self._opening[journal] = asyncio.create_task(self._open(queue), name=f"tidelog-journal-{journal}")
            return
        for batch in queue.ready():
            # Ordering: a batch that was taken from the queue is settled, whatever happens, or `flush` never returns.
            try:
                producer.put(batch)
            except Exception as error:  # noqa: BLE001 - the batch reports what was raised
                batch.fail(_reported(queue, error))

    async def _open(self, queue: JournalQueue[Handle]) -> None:
        """Look up the journal's channel, and send what has gathered; if it does not exist, stop the queue."""
        try:
            spec = await self._find(queue.journal)
            owner = await self._owner_of(spec.channel)
            # The numbers of the producer's batches are what makes retries harmless; see JournalQueue, I2.
            producer = owner.producer(f"{spec.channel}/0", linger_s=0)
            await producer.found()
            self._producers[queue.journal] = producer
        except asyncio.CancelledError as error:
            # `_close` cancels this task, and stops the queue itself with another error.
            if not self._is_closed:
                queue.stop(_reported(queue, error))
            raise
        except Exception as error:  # noqa: BLE001 - `find` is the caller's; each append reports what it raised
            queue.stop(_reported(queue, error))
        else:
            self._pass_on(queue.journal)

    def _dependency_done(self, queue: JournalQueue[Handle], batch: FrameBatch[Handle], done: Any) -> None:
        self._soon(partial(self._dependency_met, queue, batch, done))

    def _dependency_met(self, queue: JournalQueue[Handle], batch: FrameBatch[Handle], done: Any) -> None:
        failure = asyncio.CancelledError() if done.cancelled() else done.exception()
        if failure is None:
            queue.met(batch)
        else:
            queue.stop(_not_sent(queue, failure, "it depends on a failure"))


async def _outcome(append: AppendHandle) -> None:
    # Why shield: many callers wait for one batch, and cancelling one wait must not end the others.
    await asyncio.shield(asyncio.wrap_future(append.future))


def _warn_missing(intent: AckIntent) -> None:
    """Report that an intent is dropped."""
    _log.warning("journal %s does not exist: its acknowledgement is dropped, as its messages were", intent.journal)


def _reported(queue: JournalQueue[Handle], error: BaseException) -> TidelogError:
    """Return ``error``, or what stands for it, as appends raise only errors of the client."""
    return error if isinstance(error, TidelogError) else _not_sent(queue, error, "sending failed")


def _not_sent(queue: JournalQueue[Handle], cause: BaseException, why: str) -> ProducerStoppedError:
    error = ProducerStoppedError(f"an append to {queue.journal} was not sent, because {why}: {cause!r}")
    error.__cause__ = cause
    return error
