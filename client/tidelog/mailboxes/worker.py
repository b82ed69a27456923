"""Workers: process the messages of a mailbox, several at a time, under leases that are extended meanwhile."""

import asyncio
import inspect
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Final, Self, TypedDict, Unpack

from tidelog.errors import (
    ClosedError,
    TidelogError,
)
from tidelog.mailboxes.deliveries import AsyncDelivery, DeliveryFields
from tidelog.mailboxes.feed import DeliveryFeed, FeedMailbox, How, settle
from tidelog.mailboxes.types import Duration, duration_ms
from tidelog.transport.retry import Retry

_log: Final = logging.getLogger("tidelog")
DEFAULT_CONCURRENCY: Final = 8
DEFAULT_LEASE: Final = timedelta(seconds=30)
_MAX_CONCURRENCY: Final = 10_000


class _HandlerTypeError(TypeError):
    """The handler is not asynchronous: every message would be rejected until it is dead."""


class WorkerOptions(TypedDict, total=False):
    """Options of a worker.

    Attributes:
        concurrency: Number of messages in process at a time, 1 to 10,000. Default 8.
        lease: Duration of the leases, which are extended three times as often; at least 10 ms. Default 30 s. After a
            crash of the worker its messages are delivered again once their leases end.
        prefetch: Number of further messages under leases that wait for processing, 0 to 10,000. Default 0: a message
            that is fetched ahead counts as delivered, even if it is returned unprocessed.
    """

    concurrency: int
    lease: Duration
    prefetch: int


class WorkerSettings:
    """The options of a worker, checked."""

    def __init__(
        self, *, concurrency: int = DEFAULT_CONCURRENCY, lease: Duration = DEFAULT_LEASE, prefetch: int = 0
    ) -> None:
        """Check the options. Raises ValueError if one is out of range."""
        self.concurrency = concurrency
        self.prefetch = prefetch
        self.lease_s = duration_ms("lease", lease) / 1_000
        if not 1 <= concurrency <= _MAX_CONCURRENCY:
            raise ValueError(f"concurrency is {concurrency}, expected 1 to {_MAX_CONCURRENCY}")
        if not 0 <= self.prefetch <= _MAX_CONCURRENCY:
            raise ValueError(f"prefetch is {prefetch}, expected 0 to {_MAX_CONCURRENCY}")
        if self.lease_s < 0.01:
            raise ValueError(f"the lease is {self.lease_s} s, expected at least 0.01")


class AsyncMailboxWorker:
    """An iterator of deliveries, from ``AsyncMailbox.worker``. ``MailboxWorker`` is its synchronous twin.

    ``async for delivery in worker`` processes one message after another; several tasks may iterate one worker, and hold
    up to ``concurrency`` deliveries together. Leases are extended while a delivery is held. A delivery ends

    - when its task asks for the next one in the same loop: it is confirmed;
    - when its task begins another loop over the worker, having left the first one: it is rejected;
    - when its task leaves ``async with worker``, or ends: it is confirmed, or rejected if there is an exception;
    - when its lease is lost: ``is_lost`` of the delivery becomes true, and a warning is logged. Another worker may have
      the message: stop processing it. ``AsyncMailbox.work`` cancels its handler then.

    A rejection has the back-off of the mailbox; after a cancellation it has no delay. A delivery that the loop's body
    has acknowledged itself is not acknowledged again. An acknowledgement that fails because the lease is lost, or the
    server does not answer, is logged, and the message is delivered again.

    Use it with ``async with``, which returns messages that were fetched ahead to the mailbox at its end; otherwise that
    happens in the background, once all tasks that have iterated it end.
    """

    def __init__(self, mailbox: FeedMailbox, retry: Retry, **options: Unpack[WorkerOptions]) -> None:
        """Create the worker; does no I/O. Raises ValueError if an option is out of range."""
        self._mailbox = mailbox
        self._retry = retry
        self.settings = WorkerSettings(**options)
        self._feed: DeliveryFeed | None = None
        self._is_closed = False
        # The delivery of each task that iterates, and whether it has left its loop.
        self._current: dict[asyncio.Task[object], AsyncDelivery] = {}
        self._left: set[asyncio.Task[object]] = set()
        self._consumers: set[asyncio.Task[object]] = set()
        self._ending: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Deliver nothing further: iterations end after their current message. Returns at once."""
        self.feed().stop()

    def feed(self) -> DeliveryFeed:
        """Return the feed; start it if necessary.

        Raises:
            ClosedError: The worker is closed.
        """
        if self._feed is None:
            if self._is_closed:
                raise ClosedError("the worker is closed: create a new one")
            mailbox = self._mailbox
            self._feed = DeliveryFeed(
                mailbox, lambda wire, until_ms: AsyncDelivery(mailbox.name, wire, until_ms, mailbox), self._retry,
                concurrency=self.settings.concurrency, prefetch=self.settings.prefetch, lease_s=self.settings.lease_s,
            )  # fmt: skip
            self._feed.start()
        return self._feed

    def __aiter__(self) -> Self:
        task = _this_task()
        if task in self._current:
            self._left.add(task)
        return self

    async def __anext__(self) -> AsyncDelivery:
        """Settle the delivery of this task, and return the next one.

        Raises:
            TidelogError: The mailbox cannot be fetched from, or refuses acknowledgements.
            ClosedError: The worker is closed.
        """
        task = _this_task()
        feed = self.feed()
        if task not in self._consumers:
            self._consumers.add(task)
            task.add_done_callback(self._consumer_ended)
        if (own := self._current.pop(task, None)) is not None:
            has_left = task in self._left
            self._left.discard(task)
            await self.settle(own, "reject" if has_left else "ack")
        delivery: AsyncDelivery | None = await feed.take()
        if delivery is None:
            raise StopAsyncIteration
        self._current[task] = delivery
        return delivery

    async def settle(self, delivery: AsyncDelivery, how: How) -> None:
        """End a taken delivery. Raises as ``feed.settle``."""
        await settle(self._mailbox, self.feed(), delivery, how)

    async def aclose(self) -> None:
        """Stop, and return the messages that no task holds to the mailbox. Idempotent.

        Leases of deliveries that tasks still hold are not extended any further.
        """
        self._is_closed = True
        if self._feed is not None:
            self._feed.stop()
            await asyncio.gather(*self._ending, return_exceptions=True)
            await self._feed.aclose()

    async def __aenter__(self) -> Self:
        self.feed()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = _this_task()
        self.stop()
        try:
            if (own := self._current.pop(task, None)) is not None:
                await self.settle(own, end_of(error))
        finally:
            await self.aclose()

    def _consumer_ended(self, task: asyncio.Task[object]) -> None:
        """Settle the delivery of a task that has ended; the last one closes the worker."""
        self._consumers.discard(task)
        self._left.discard(task)
        own = self._current.pop(task, None)
        if own is None and (self._consumers or self._is_closed):
            return
        error: BaseException | None = None
        if own is not None:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if isinstance(error, Exception):
                # Logged here, because asyncio does not log an exception that was looked at.
                _log.error(
                    "the task with message %d of mailbox %s raised: it is rejected", own.id, own.mailbox, exc_info=error
                )
        ending = task.get_loop().create_task(self._end(own, error), name="tidelog-worker-end")
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _end(self, own: AsyncDelivery | None, error: BaseException | None) -> None:
        try:
            if own is not None:
                await self.settle(own, end_of(error))
        except TidelogError as failure:
            _log.warning("mailbox %s: the last acknowledgement of a task failed: %s", self._mailbox.name, failure)
        if not self._consumers and not self._is_closed and self._feed is not None:
            self._is_closed = True
            await self._feed.aclose()


async def run_handlers(
    worker: AsyncMailboxWorker, handler: Callable[[AsyncDelivery], Awaitable[None]], *, handles_sigterm: bool
) -> None:
    """Run ``handler`` with deliveries until the worker stops; see ``AsyncMailbox.work``."""
    check_handler(handler)
    async with worker:
        with _stopping_at_sigterm(worker, is_wanted=handles_sigterm):
            runners = [
                asyncio.create_task(_run(worker, handler), name="tidelog-worker-run")
                for _ in range(worker.settings.concurrency)
            ]
            try:
                await asyncio.wait(runners, return_when=asyncio.FIRST_EXCEPTION)
                worker.stop()
                await asyncio.wait(runners)
            except asyncio.CancelledError:
                worker.stop()
                try:
                    await asyncio.wait(runners)
                finally:
                    for runner in runners:
                        runner.cancel()
                    await asyncio.gather(*runners, return_exceptions=True)
                raise
            # Of all of them: asyncio logs an exception that nothing has retrieved.
            if failures := [failure for runner in runners if (failure := runner.exception()) is not None]:
                raise failures[0]


async def _run(worker: AsyncMailboxWorker, handler: Callable[[AsyncDelivery], Awaitable[None]]) -> None:
    feed = worker.feed()
    while (delivery := await feed.take()) is not None:
        try:
            how = await _handled(feed, delivery, handler)
        except (asyncio.CancelledError, _HandlerTypeError):
            await worker.settle(delivery, "return")
            raise
        await worker.settle(delivery, how)


async def _handled(
    feed: DeliveryFeed, delivery: AsyncDelivery, handler: Callable[[AsyncDelivery], Awaitable[None]]
) -> How:
    """Run ``handler``; return how its delivery ends. The loss of the lease cancels the handler."""
    # Why a timeout without a deadline: unlike Task.cancel, it tells its own cancellation from a caller's.
    scope = asyncio.timeout(None)
    try:
        async with scope:
            feed.on_lost(delivery, lambda: scope.reschedule(0.0))
            work = handler(delivery)
            if not inspect.isawaitable(work):
                raise _HandlerTypeError(
                    f"the handler {handler!r} returned {type(work).__name__}, expected an awaitable: define it with "
                    "'async def', or use Client"
                )
            await work
    except _HandlerTypeError:
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # The handler raised it by itself, for example from a task that it had cancelled.
        log_failure(delivery, "was cancelled")
        return "reject"
    except Exception:  # noqa: BLE001 - a handler may raise anything; it is logged
        if not delivery.is_lost:
            log_failure(delivery, "raised an exception")
        return "reject"
    return "ack"


def check_handler(handler: object) -> None:
    """Raise TypeError if ``handler`` cannot be called."""
    if not callable(handler):
        raise TypeError(f"the handler is {handler!r}, expected a function of a delivery")


def log_failure(delivery: DeliveryFields, what: str) -> None:
    """Log the exception that a handler raised."""
    _log.exception("the handler %s: message %d of mailbox %s is rejected", what, delivery.id, delivery.mailbox)


def end_of(error: BaseException | None) -> How:
    """Return how a delivery ends whose processing ended with ``error``."""
    if error is None:
        return "ack"
    return "return" if isinstance(error, asyncio.CancelledError) else "reject"


@contextmanager
def _stopping_at_sigterm(worker: AsyncMailboxWorker, *, is_wanted: bool) -> Iterator[None]:
    """Stop the worker on SIGTERM, if this is the main thread."""
    if not is_wanted or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGTERM)
    loop.add_signal_handler(signal.SIGTERM, worker.stop)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, before)


def _this_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None
    return task
