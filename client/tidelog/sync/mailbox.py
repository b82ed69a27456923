"""The synchronous twin of the handle for a mailbox, with deliveries and workers on threads."""

import inspect
from collections.abc import Callable
from typing import Unpack

from tidelog.mailboxes._generated_deliveries import Delivery
from tidelog.mailboxes.mailbox import AsyncMailbox
from tidelog.mailboxes.worker import WorkerOptions, check_handler
from tidelog.sync.generated.mailbox import MailboxBase
from tidelog.sync.mailbox_worker import MailboxWorker, run_handlers
from tidelog.transport.background import background
from tidelog.wire.durations import Duration


class Mailbox(MailboxBase):
    """A handle for a mailbox, from ``Client.mailbox`` or ``Cluster.mailbox``. See ``AsyncMailbox``. Thread-safe.

    Attributes:
        name: Name of the mailbox.
    """

    def __init__(self, mailbox: AsyncMailbox) -> None:
        """Run the calls of ``mailbox``; does no I/O."""
        self._mailbox = mailbox
        self.name = mailbox.name

    def __repr__(self) -> str:
        return f"<Mailbox {self.name!r}>"

    def fetch(
        self, max_messages: int = 1, *, lease: Duration | None = None, wait: Duration = 0.0, max_bytes: int = 0
    ) -> list[Delivery]:
        """Lease the next messages, durably, and return them. See ``AsyncMailbox.fetch``."""
        answer = background.run(self._mailbox.fetch_response(max_messages, lease=lease, wait=wait, max_bytes=max_bytes))
        return [Delivery(self.name, each, answer.leased_until_ms, self) for each in answer.deliveries]

    def worker(self, **options: Unpack[WorkerOptions]) -> MailboxWorker[Delivery]:
        """Return a worker: an iterator of deliveries that extends their leases; see ``MailboxWorker``."""
        return MailboxWorker(self._mailbox, lambda wire, until_ms: Delivery(self.name, wire, until_ms, self), **options)

    def work(
        self, handler: Callable[[Delivery], None], *, handles_sigterm: bool = True, **options: Unpack[WorkerOptions]
    ) -> None:
        """Call ``handler`` with each message, on ``concurrency`` threads, until SIGTERM or Ctrl-C.

        As ``AsyncMailbox.work``, but a thread cannot be cancelled: a handler whose lease is lost continues, and can see
        that in ``delivery.is_lost``. Ctrl-C drains as SIGTERM does, and then raises KeyboardInterrupt; a second one
        does not wait for handlers.

        Raises:
            TypeError: ``handler`` cannot be called, or is a coroutine function. Nothing was fetched.
        """
        check_handler(handler)
        if inspect.iscoroutinefunction(handler):
            # Its calls would do nothing, and every message would be confirmed.
            raise TypeError(f"the handler {handler!r} is asynchronous: use AsyncClient")
        run_handlers(self.worker(**options), handler, handles_sigterm=handles_sigterm)
