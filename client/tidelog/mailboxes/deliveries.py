"""Deliveries: messages under a lease."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Protocol

from tidelog.mailboxes.types import DeadLetter, DeliveryStatus, dead_letter_of, received_at
from tidelog.tick import time_of
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog.wire.durations import Duration


class DeliveryFields:
    """A message under a lease: what the server sent.

    Attributes:
        mailbox: Name of its mailbox.
        id: Id of the message.
        body: Its body; empty if ``is_body_missing``.
        lock: Id of its lock, 20 bytes: a client that has it can acknowledge the delivery.
        is_lost: Whether its worker lost the lease or was closed: another worker may have the message.
    """

    # What is rarely read stays in the message of protobuf: to copy all of it costs more than the rest of a fetch.
    __slots__ = ("_is_settled", "_leased_until_ms", "_wire", "body", "id", "is_lost", "lock", "mailbox", "on_settled")

    def __init__(self, mailbox: str, wire: pb.Delivery, leased_until_ms: int) -> None:
        self.mailbox = mailbox
        self.id = wire.id
        self.lock = wire.lock_id
        self.body = wire.body
        self._wire = wire
        self._leased_until_ms = leased_until_ms
        self._is_settled = self.is_lost = False
        # Of its worker, which then stops extending the lease.
        self.on_settled: Callable[[DeliveryFields], None] | None = None

    @property
    def is_settled(self) -> bool:
        """Whether this client has confirmed or rejected it; acknowledgements and transactions set it."""
        return self._is_settled

    @is_settled.setter
    def is_settled(self, is_settled: bool) -> None:
        self._is_settled = is_settled
        if is_settled and self.on_settled is not None:
            self.on_settled(self)

    @property
    def is_body_missing(self) -> bool:
        """Whether its body was stored as a blob that is not there any more."""
        return self._wire.blob_is_missing

    @property
    def delivery_count(self) -> int:
        """Number of its deliveries, this one included."""
        return self._wire.delivery_count

    @property
    def headers(self) -> dict[str, str]:
        """Headers, as sent."""
        return dict(self._wire.headers)

    @property
    def priority(self) -> int:
        """Priority, as sent."""
        return self._wire.priority

    @property
    def group(self) -> str:
        """Group, as sent."""
        return self._wire.group

    @property
    def dead_letter(self) -> DeadLetter | None:
        """Where the message was dead-lettered; None if it was not."""
        return dead_letter_of(self._wire.dead_letter) if self._wire.HasField("dead_letter") else None

    @property
    def lock_id(self) -> str:
        """Id of its lock as 40 hexadecimal digits."""
        return self.lock.hex()

    @property
    def status(self) -> DeliveryStatus:
        """How its previous delivery ended."""
        return DeliveryStatus(self._wire.status)

    @property
    def due(self) -> datetime:
        """Time from which it was available, in UTC."""
        return time_of(self._wire.due_ms)

    @property
    def leased_until(self) -> datetime:
        """End of its lease in UTC, by the server's clock, as of the last extension."""
        return time_of(self._leased_until_ms)

    @property
    def received_at(self) -> datetime:
        """Time at which the mailbox received the message, in UTC."""
        return received_at(self.id)

    def note_extended(self, leased_until_ms: int) -> None:
        """Record a new end of the lease; extensions call this themselves."""
        self._leased_until_ms = leased_until_ms

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.mailbox}, delivery {self.delivery_count}>"


def delivery_of_lock(mailbox: str, lock: bytes) -> DeliveryFields:
    """Return a delivery of which only the lock is known, to acknowledge or extend it."""
    return DeliveryFields(mailbox, pb.Delivery(lock_id=lock), 0)


class DeliveryCalls(Protocol):
    """The calls of AsyncMailbox that a delivery makes."""

    async def ack_many(self, deliveries: Iterable[DeliveryFields]) -> None:
        """See ``AsyncMailbox.ack_many``."""

    async def reject_many(
        self, deliveries: Iterable[DeliveryFields], *, delay: Duration | None = None, final: bool = False
    ) -> None:
        """See ``AsyncMailbox.reject_many``."""

    async def extend_many(self, deliveries: Iterable[DeliveryFields], lease: Duration | None = None) -> None:
        """See ``AsyncMailbox.extend_many``."""


class AsyncDelivery(DeliveryFields):
    """A message under a lease. ``Delivery`` is its synchronous twin.

    Until the lease ends no other worker receives the message; acknowledge it before, or extend the lease.
    """

    __slots__ = ("_calls",)

    def __init__(self, mailbox: str, wire: pb.Delivery, leased_until_ms: int, calls: DeliveryCalls) -> None:
        super().__init__(mailbox, wire, leased_until_ms)
        self._calls = calls

    async def ack(self) -> None:
        """Confirm the message, durably: it is deleted.

        Raises:
            LockExpiredError: The lease has ended; the message may have been delivered to another worker.
            AlreadyAcknowledgedError: The delivery was confirmed or rejected before.
            LockError: The mailbox does not know the lock, for example because the message was purged.
        """
        await self._calls.ack_many((self,))

    async def reject(self, delay: Duration | None = None, *, final: bool = False) -> None:
        """Return the message to the mailbox, durably.

        Args:
            delay: Delay until it is available again; None for the back-off schedule of the mailbox.
            final: Make it dead, regardless of the number of its deliveries.

        Raises:
            LockError: As ``ack``.
            InvalidRequestError: The delay is out of range.
        """
        await self._calls.reject_many((self,), delay=delay, final=final)

    async def extend(self, lease: Duration | None = None) -> None:
        """Let the lease end ``lease`` from now, durably; None for the default of the mailbox. It may become shorter.

        Raises:
            LockError: As ``ack``.
            InvalidRequestError: The lease is longer than the mailbox allows.
        """
        await self._calls.extend_many((self,), lease)
