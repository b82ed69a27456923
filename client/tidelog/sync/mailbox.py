"""The synchronous twin of the handle for a mailbox, with deliveries and workers on threads."""

import inspect
from collections.abc import Callable
from typing import Unpack

from tidelog.mailboxes.deliveries import DeliveryFields
from tidelog.mailboxes.mailbox import AsyncMailbox
from tidelog.mailboxes.types import Duration
from tidelog.mailboxes.worker import WorkerOptions, check_handler
from tidelog.sync.generated.mailbox import MailboxBase
from tidelog.sync.mailbox_worker import MailboxWorker, run_handlers
from tidelog.transport.background import background
from tidelog.v1 import mailbox_service_pb2 as pb


class Delivery(DeliveryFields):
    """A message under a lease. See ``AsyncDelivery``."""

    __slots__ = ("_calls",)

    def __init__(self, wire: pb.Delivery, leased_until_ms: int, calls: "Mailbox") -> None:
        super().__init__(calls.name, wire, leased_until_ms)
        self._calls = calls

    def ack(self) -> None:
        """Confirm the message, durably: it is deleted. Raises as ``AsyncDelivery.ack``."""
        self._calls.ack_many((self,))

    def reject(self, delay: Duration | None = None, *, final: bool = False) -> None:
        """Return the message to the mailbox, durably. See ``AsyncDelivery.reject``."""
        self._calls.reject_many((self,), delay=delay, final=final)

    def extend(self, lease: Duration | None = None) -> None:
        """Let the lease end ``lease`` from now, durably. See ``AsyncDelivery.extend``."""
        self._calls.extend_many((self,), lease)


class Mailbox(MailboxBase):
    """A handle for a mailbox, from ``Client.mailbox`` or ``Cluster.mailbox``. See ``AsyncMailbox``. Thread-safe.

    Attributes:
        name: Name of the mailbox.
    """

    def __init__(self, mailbox: AsyncMailbox) -> None:
        """Run the calls of ``mailbox``; does no I/O."""
        self._mailbox = mailbox
        self.name = mailbox.name

    def fetch(
        self, max_messages: int = 1, *, lease: Duration | None = None, wait: Duration = 0.0, max_bytes: int = 0
    ) -> list[Delivery]:
        """Lease the next messages, durably, and return them. See ``AsyncMailbox.fetch``."""
        answer = background.run(self._mailbox.fetch_response(max_messages, lease=lease, wait=wait, max_bytes=max_bytes))
        return [Delivery(each, answer.leased_until_ms, self) for each in answer.deliveries]

    def worker(self, **options: Unpack[WorkerOptions]) -> MailboxWorker[Delivery]:
        """Return a worker: an iterator of deliveries that extends their leases; see ``MailboxWorker``."""
        return MailboxWorker(
            self._mailbox, lambda wire, until_ms: Delivery(wire, until_ms, self), self._mailbox.retry, **options
        )

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
