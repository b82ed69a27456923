"""What the facade requires of a blob store and of a message store.

Source: pandora's API, version of January 2020; where its code does less than it declares, the declaration counts
(D-126).
"""

from datetime import datetime, timedelta
from typing import Protocol

from tidelog.pandora.keys import Key
from tidelog.pandora.message import Message


class AsyncBlobStore(Protocol):
    """Stores data under a key that is the hash of the data, once for equal data, with a count of references.

    Data whose count is zero or less is collected after a grace period; until then it can still be read. The count is
    zero after the first ``put_data``, and each ``put_data`` restarts the grace period.
    """

    async def put_data(self, data: bytes) -> Key:
        """Store ``data`` and return its SHA-1 key; its count of references is not changed if it is there already."""
        ...

    async def get_data(self, key: Key) -> bytes | None:
        """Return the data of a key; ``None`` if the key is unknown."""
        ...

    async def update_ref_count(self, key: Key, delta: int) -> None:
        """Add ``delta``, which may be negative, to the references of a key.

        Raises:
            BlobNotFoundError: The key is unknown.
        """
        ...


class AsyncMessageStore(Protocol):
    """Mailboxes with messages, which are leased to one client at a time. The times are those of the store's clock.

    Every call first releases the leases that have ended: their messages have the status ``TIMEOUT`` and can be fetched
    again. A mailbox exists once a message was sent to or from it. Names are checked by ``check_mailbox``, whose errors
    each call with a name raises.
    """

    async def enqueue(self, message: Message) -> None:
        """Put a message into the mailbox of its receiver, and set its header: id, status, count, and times.

        It is due at ``send_when`` if that is set, otherwise after ``delay``; at once if the delay is negative. The
        store keeps the header only; the body is in a blob store.

        Raises:
            InvalidMailBoxError: The body has no valid sender or receiver.
            InvalidHeaderEncodingError: UTF-8 cannot encode the body.
            DuplicateMessageError: A message with the same id was enqueued before, even if it was confirmed since.
        """
        ...

    async def fetch_and_lock_latest(self, receiver: str, lease: timedelta) -> Message:
        """Lease and return the message that was due first, without its body, in one step.

        Its ``lid`` is new and random. ``delivery_count`` is that before this delivery, and ``status`` is not changed.

        Args:
            receiver: The mailbox.
            lease: Duration of the lease, greater than zero.

        Raises:
            SenderNotFoundError: The mailbox does not exist.
            NoMessagesError: No message is due and without a lease.
            ValueError: The lease is zero or negative.
        """
        ...

    async def ack(self, mid: Key, lid: Key, status: int) -> None:
        """Acknowledge a leased message and end its lease.

        Args:
            mid: Id of the message.
            lid: Id of its lock, which must be that of a valid lease.
            status: ``CONFIRMED``: it is never delivered or listed again. ``REJECTED``: it can be fetched again at once.

        Raises:
            UnableToChangeStatusError: The status is another one.
            StaleLockError: The message has no valid lease with this lock.
        """
        ...

    async def fetch_headers(self, receiver: str, received_after: datetime, limit: int = 10) -> list[Message]:
        """Return messages that could be fetched now, without leasing them and without their bodies.

        Args:
            receiver: The mailbox.
            received_after: Return messages received strictly after this time only.
            limit: Maximum number of messages: the first ones by ``received_at``, then ``send_when``.

        Raises:
            SenderNotFoundError: The mailbox does not exist.
            ValueError: The time has no time zone, or the limit is negative.
        """
        ...

    async def reenqueue(self, now: datetime) -> None:
        """Release the leases that ended before ``now``; one that is valid by the store's clock is kept in any case.

        Raises:
            ValueError: The time has no time zone.
        """
        ...
