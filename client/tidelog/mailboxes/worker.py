"""Workers: process the messages of a mailbox, several at a time, under leases that are extended meanwhile."""

import asyncio
import inspect
import logging
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, Self, TypedDict, Unpack

from tidelog._closing import AsyncClosing
from tidelog.errors import ClosedError
from tidelog.mailboxes.deliveries import AsyncDelivery, DeliveryFields
from tidelog.mailboxes.feed import DeliveryFeed, FeedMailbox, How, WorkerSettings
from tidelog.mailboxes.iteration import Iteration, WorkerIterator
from tidelog.transport.in_one_process import InOneProcess
from tidelog.wire.durations import Duration

_log: Final = logging.getLogger("tidelog")


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


class AsyncMailboxWorker(InOneProcess, AsyncClosing):
    """Delivers messages under leases, from ``AsyncMailbox.worker``. ``MailboxWorker`` is its synchronous twin.

    ``async for delivery in worker`` processes one message after another. Each loop, and each call of ``aiter(worker)``,
    has an iterator of its own; loops in several tasks hold up to ``concurrency`` deliveries together, and wait for
    their turn. Leases are extended until their deliveries are settled. A delivery is confirmed

    - when its iterator is asked for the next one;
    - by ``delivery.ack()``, or by a transaction.

    Nothing else confirms it: no ``break``, no exception, no cancellation, no end of a task or of ``async with``. A
    delivery whose loop was left is returned to the mailbox, available at once, when its iterator is collected (at the
    end of an ``async for``) or the worker is closed; ``delivery.reject()`` rejects it with back-off instead.

    ``anext(worker)`` on the worker itself returns a delivery that only ``ack()`` confirms. It raises
    UnsettledDeliveriesError while ``concurrency`` deliveries are unsettled.

    When a lease is lost, ``is_lost`` of its delivery becomes true, and a warning is logged. Another worker may have the
    message: stop processing it. ``AsyncMailbox.work`` cancels its handler then. An iterator's acknowledgement that
    fails because the lease is lost, or the server does not answer, is logged, and the message is delivered again. A
    message whose body is missing (``is_body_missing``) is rejected where others are confirmed; ``ack()`` deletes it.

    Use it with ``async with``, which returns all unsettled deliveries to the mailbox at its end, and those that were
    fetched ahead. A worker that is collected without that leaves deliveries of ``anext(worker)`` to their leases.
    """

    def __init__(self, mailbox: FeedMailbox, **options: Unpack[WorkerOptions]) -> None:
        """Create the worker; does no I/O. Raises ValueError if an option is out of range."""
        self._feed: DeliveryFeed | None = None
        self._mailbox = mailbox
        self.settings = WorkerSettings(**options)
        self._is_closed = False

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
                mailbox, lambda wire, until_ms: AsyncDelivery(mailbox.name, wire, until_ms, mailbox), self.settings
            )
        return self._feed

    def __aiter__(self) -> AsyncIterator[AsyncDelivery]:
        return _AsyncDeliveries(self)

    async def __anext__(self) -> AsyncDelivery:
        """Return the next delivery, which only ``ack()`` confirms.

        Raises:
            UnsettledDeliveriesError: ``concurrency`` deliveries are unsettled.
            TidelogError: The mailbox cannot be fetched from.
            ClosedError: The worker is closed.
        """
        delivery: AsyncDelivery | None = await self.feed().take(waits_for_room=False)
        if delivery is None:
            raise StopAsyncIteration
        return delivery

    async def aclose(self) -> None:
        """Stop, and return all unsettled deliveries to the mailbox. Idempotent."""
        self._is_closed = True
        if self._feed is not None:
            await self._feed.aclose(returns_taken=True)

    async def __aenter__(self) -> Self:
        self.feed()
        return self

    def __del__(self) -> None:
        if self._feed is not None and not self._is_closed:
            self._feed.close_soon()


class _AsyncDeliveries(WorkerIterator[AsyncMailboxWorker]):
    """An iterator of a worker; see ``AsyncMailboxWorker``."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncDelivery:
        if self._iteration is None:
            self._iteration = Iteration(self._worker.feed())
        delivery: AsyncDelivery | None = await self._iteration.take()
        if delivery is None:
            raise StopAsyncIteration
        self._iteration.hand_out(delivery)
        return delivery


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
            await feed.settle(delivery, "return")
            raise
        await feed.settle(delivery, how)


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
