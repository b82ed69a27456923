"""The synchronous twin of the worker of a mailbox: threads process deliveries."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack

from tidelog.errors import ClosedError, TidelogError
from tidelog.mailboxes.deliveries import DeliveryFields
from tidelog.mailboxes.feed import DeliveryFeed, FeedMailbox, How, settle
from tidelog.mailboxes.worker import WorkerOptions, WorkerSettings, end_of, log_failure
from tidelog.transport.background import background
from tidelog.transport.retry import Retry
from tidelog.v1 import mailbox_service_pb2 as pb

_Delivery = TypeVar("_Delivery", bound=DeliveryFields)


class MailboxWorker(Generic[_Delivery]):
    """An iterator of deliveries, from ``Mailbox.worker``. See ``AsyncMailboxWorker``.

    ``for delivery in worker`` processes one message after another; several threads may iterate one worker, and hold up
    to ``concurrency`` deliveries together. What holds for a task there holds for a thread here, with one difference:
    the end of a thread that has not left ``with worker`` is not noticed, so its delivery is held until the worker is
    closed.
    """

    def __init__(
        self,
        mailbox: FeedMailbox,
        make: Callable[[pb.Delivery, int], _Delivery],
        retry: Retry,
        **options: Unpack[WorkerOptions],
    ) -> None:
        """Create the worker; does no I/O. Raises ValueError if an option is out of range."""
        self._mailbox = mailbox
        self._make = make
        self._retry = retry
        self.settings = WorkerSettings(**options)
        self._lock = threading.Lock()
        self._feed: DeliveryFeed | None = None
        self._is_closed = False
        # The delivery of each thread that iterates, and the threads that have left their loop.
        self._current: dict[int, _Delivery] = {}
        self._left: set[int] = set()

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
        settings = self.settings
        feed = DeliveryFeed(
            self._mailbox, self._make, self._retry, concurrency=settings.concurrency, prefetch=settings.prefetch,
            lease_s=settings.lease_s,
        )  # fmt: skip
        feed.start()
        return feed

    def __iter__(self) -> Self:
        thread = threading.get_ident()
        if thread in self._current:
            self._left.add(thread)
        return self

    def __next__(self) -> _Delivery:
        """Settle the delivery of this thread, and return the next one. Raises as ``AsyncMailboxWorker.__anext__``."""
        thread = threading.get_ident()
        if (own := self._current.pop(thread, None)) is not None:
            has_left = thread in self._left
            self._left.discard(thread)
            self.settle(own, "reject" if has_left else "ack")
        delivery = self.take()
        if delivery is None:
            raise StopIteration
        self._current[thread] = delivery
        return delivery

    def take(self) -> _Delivery | None:
        """Return the next delivery; None once the worker stops. Raises as ``__next__``."""
        delivery: _Delivery | None = background.run(self.feed().take())
        return delivery

    def settle(self, delivery: _Delivery, how: How) -> None:
        """End a taken delivery. Raises as ``tidelog.mailboxes.feed.settle``."""
        background.run(settle(self._mailbox, self.feed(), delivery, how))

    def close(self) -> None:
        """Stop, and return the messages that no thread holds to the mailbox. See ``AsyncMailboxWorker.aclose``."""
        with self._lock:
            self._is_closed = True
            feed = self._feed
        if feed is not None:
            background.run(feed.aclose())

    def __enter__(self) -> Self:
        self.feed()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        try:
            if (own := self._current.pop(threading.get_ident(), None)) is not None:
                self.settle(own, "return" if isinstance(error, KeyboardInterrupt) else end_of(error))
        finally:
            self.close()


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
    try:
        while (delivery := worker.take()) is not None:
            how: How = "ack"
            try:
                handler(delivery)
            except Exception:  # noqa: BLE001 - a handler may raise anything; it is logged
                log_failure(delivery, "raised an exception")
                how = "reject"
            worker.settle(delivery, how)
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
