"""The synchronous twin of the worker of a mailbox: threads process deliveries."""

import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Generic, Self, TypeVar, Unpack

from tidelog._closing import Closing
from tidelog.errors import ClosedError, TidelogError
from tidelog.mailboxes.deliveries import DeliveryFields
from tidelog.mailboxes.feed import DeliveryFeed, FeedMailbox, How, WorkerSettings
from tidelog.mailboxes.iteration import Iteration, WorkerIterator
from tidelog.mailboxes.worker import WorkerOptions, log_failure
from tidelog.transport.background import background
from tidelog.transport.in_one_process import InOneProcess
from tidelog.v1 import mailbox_service_pb2 as pb

_Delivery = TypeVar("_Delivery", bound=DeliveryFields)


class MailboxWorker(InOneProcess, Closing, Generic[_Delivery]):
    """Delivers messages under leases, from ``Mailbox.worker``. See ``AsyncMailboxWorker``, whose rules are the same.

    ``for delivery in worker`` processes one message after another. Each loop, and each call of ``iter(worker)``, has an
    iterator of its own; loops in several threads hold up to ``concurrency`` deliveries together. An iterator belongs to
    one loop: threads that share one confirm each other's deliveries. ``next(worker)`` on the worker itself returns a
    delivery that only ``ack()`` confirms, in any thread.
    """

    def __init__(
        self,
        mailbox: FeedMailbox,
        make: Callable[[pb.Delivery, int], _Delivery],
        **options: Unpack[WorkerOptions],
    ) -> None:
        """Create the worker; does no I/O. Raises ValueError if an option is out of range."""
        self._feed: DeliveryFeed | None = None
        self._mailbox = mailbox
        self._make = make
        self.settings = WorkerSettings(**options)
        self._lock = threading.Lock()
        self._is_closed = False

    def stop(self) -> None:
        """Deliver nothing further: iterations end after their current message. Returns at once."""
        # Not ``background.run``: signal handlers call this while their thread waits for the loop.
        background.call_soon(self.feed().stop)

    def feed(self) -> DeliveryFeed:
        """Return the feed; start it if necessary. Raises ClosedError if the worker is closed."""
        feed = self._feed
        if feed is not None:
            return feed
        with self._lock:
            if self._feed is None:
                if self._is_closed:
                    raise ClosedError("the worker is closed: create a new one")
                self._feed = background.run(self._started())
            return self._feed

    async def _started(self) -> DeliveryFeed:
        return DeliveryFeed(self._mailbox, self._make, self.settings)

    def __iter__(self) -> Iterator[_Delivery]:
        return _Deliveries(self)

    def __next__(self) -> _Delivery:
        """Return the next delivery, which only ``ack()`` confirms. Raises as ``AsyncMailboxWorker.__anext__``."""
        feed = self.feed()
        delivery: _Delivery | None = _taken(feed, lambda: feed.take(waits_for_room=False))
        if delivery is None:
            raise StopIteration
        return delivery

    def close(self) -> None:
        """Stop, and return all unsettled deliveries to the mailbox. Idempotent."""
        with self._lock:
            self._is_closed = True
            feed = self._feed
        if feed is not None:
            background.close(feed.aclose(returns_taken=True))

    def __enter__(self) -> Self:
        self.feed()
        return self

    def __del__(self) -> None:
        if self._feed is not None and not self._is_closed:
            self._feed.close_soon()


class _Deliveries(WorkerIterator[MailboxWorker[_Delivery]], Generic[_Delivery]):
    """An iterator of a worker; see ``MailboxWorker``."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _Delivery:
        if self._iteration is None:
            self._iteration = Iteration(self._worker.feed())
        iteration = self._iteration
        delivery: _Delivery | None = _taken(iteration.feed, iteration.take)
        if delivery is None:
            raise StopIteration
        iteration.hand_out(delivery)
        return delivery


def _taken(feed: DeliveryFeed, take: Callable[[], Awaitable[Any]]) -> Any:
    """Take a delivery. If a signal handler interrupts this thread, what came meanwhile returns to the mailbox."""
    taken: list[Any] = []

    async def run() -> None:
        taken.append(await take())

    try:
        background.run(run())
        return taken[0]
    except BaseException:
        feed.give_back_soon(taken)
        raise


def run_handlers(
    worker: MailboxWorker[_Delivery], handler: Callable[[_Delivery], None], *, handles_sigterm: bool
) -> None:
    """Run ``handler`` on threads until the worker stops; see ``Mailbox.work``."""
    failures: list[TidelogError] = []
    with worker, _stopping_at_sigterm(worker, is_wanted=handles_sigterm):
        threads = [
            threading.Thread(target=_run, args=(worker, handler, failures), name=f"tidelog-worker-{index}", daemon=True)
            for index in range(worker.settings.concurrency)
        ]
        for thread in threads:
            thread.start()
        try:
            _join(threads)
        except KeyboardInterrupt:
            worker.stop()
            _join(threads)
            raise
    if failures:
        raise failures[0]


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join()


def _run(worker: MailboxWorker[_Delivery], handler: Callable[[_Delivery], None], failures: list[TidelogError]) -> None:
    feed = worker.feed()
    try:
        while (delivery := background.run(feed.take())) is not None:
            how: How = "ack"
            try:
                handler(delivery)
            except Exception:  # noqa: BLE001 - a handler may raise anything; it is logged
                log_failure(delivery, "raised an exception")
                how = "reject"
            background.run(feed.settle(delivery, how))
    except TidelogError as error:
        failures.append(error)
        worker.stop()


@contextmanager
def _stopping_at_sigterm(worker: MailboxWorker[Any], *, is_wanted: bool) -> Iterator[None]:
    """Stop the worker on SIGTERM, if this is the main thread."""
    if not is_wanted or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        worker.stop()

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
