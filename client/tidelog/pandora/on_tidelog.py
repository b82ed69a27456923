"""A blob store and a message store on a Tidelog server.

A message of pandora is a message of a mailbox of the same name. Its body is the encoded body, so that pandora's HTTP
endpoints deliver it, too; its headers have the id, the sender, the receiver and the time at which it is due; its
deduplication key is the id.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Final, NamedTuple

from tidelog.admin.mailbox_types import MailboxSettings
from tidelog.client import AsyncClient
from tidelog.errors import BlobNotFoundError, LockError, MailboxNotFoundError, PermissionDeniedError
from tidelog.mailboxes.deliveries import AsyncDelivery
from tidelog.mailboxes.types import MessageState, OutgoingMessage, received_at
from tidelog.pandora.errors import (
    NoMessagesError,
    SenderNotFoundError,
    StaleLockError,
    UnableToChangeStatusError,
    blob_not_found,
    duplicate_message,
)
from tidelog.pandora.keys import Key, SHA1Key, sha1_key
from tidelog.pandora.message import AckStatus, Message, check_mailbox
from tidelog.pandora.values import encode_values
from tidelog.pandora_formats.go_times import exact_time
from tidelog.tick import LOGICAL_BITS, milliseconds

_WEEK_MS: Final = 7 * 24 * 60 * 60 * 1_000
_SETTINGS: Final = MailboxSettings(dedup_window_ms=_WEEK_MS, max_lease_ms=_WEEK_MS)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SHORTEST_LEASE: Final = timedelta(milliseconds=1)
_NS_PER_US: Final = 1_000
_PAGE: Final = 100
# Locks that a store remembers; the oldest is forgotten first.
_MAX_LOCKS: Final = 100_000


class AsyncTidelogBlobStore:
    """Data as blobs of a server, see ``AsyncBlobStore``. The grace period is ``mailboxes.blob_grace_s`` of the server.

    Args:
        client: Client of the server, which the caller closes. It needs ``blob.put`` and ``blob.get``.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def put_data(self, data: bytes) -> SHA1Key:
        """Store data and return its SHA-1 key. See ``AsyncBlobStore.put_data``."""
        return SHA1Key(await self._client.blobs.put(bytes(data), algorithm="sha1"))

    async def get_data(self, key: Key) -> bytes | None:
        """Return the data of a key; ``None`` if it is unknown. See ``AsyncBlobStore.get_data``."""
        try:
            return await self._client.blobs.get(bytes(key.bytes()))
        except BlobNotFoundError:
            return None

    async def update_ref_count(self, key: Key, delta: int) -> None:
        """Add to the references of a key. See ``AsyncBlobStore.update_ref_count``."""
        content = bytes(key.bytes())
        try:
            await self._client.blobs.update_ref_count(content, delta)
        except BlobNotFoundError as error:
            raise blob_not_found(content.hex()) from error


class _Lease(NamedTuple):
    """A message under a lease: its id, and the delivery."""

    mid: bytes
    delivery: AsyncDelivery


class AsyncTidelogMessageStore:
    """Mailboxes of a server, see ``AsyncMessageStore``.

    A mailbox that is missing is created when a message is sent to or from it. An id is refused for seven days after its
    message. A lock is known to the store object that fetched the message, which acknowledges it. The server ends leases
    itself, so ``reenqueue`` has nothing to do. Times of receipt and leases have milliseconds.

    Args:
        client: Client of the server, which the caller closes. It needs ``mailbox.manage``, ``mailbox.send``,
            ``mailbox.receive`` and ``mailbox.read`` on the mailboxes.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        # Mailboxes that are known to exist.
        self._known: set[str] = set()
        self._leases: dict[bytes, _Lease] = {}

    async def enqueue(self, message: Message) -> None:
        """Put a message into the mailbox of its receiver. See ``AsyncMessageStore.enqueue``."""
        sender, receiver = message.sender(), message.receiver()
        check_mailbox(sender)
        check_mailbox(receiver)
        if message.send_when is not None:
            exact_time(message.send_when)
        message.calculate_mid()
        assert message.mid is not None, "it was calculated"
        mid, attempt = bytes(message.mid.bytes()).hex(), token_hex(8)
        outgoing = _outgoing(message, mid, attempt)
        await self._create(sender)
        await self._create(receiver)
        try:
            [sent] = await self._client.mailbox(receiver).send_many((outgoing,))
        except MailboxNotFoundError:
            # Deleted since this store has seen it.
            self._known.discard(receiver)
            await self._create(receiver)
            [sent] = await self._client.mailbox(receiver).send_many((outgoing,))
        if sent.duplicate and not await self._is_mine(receiver, sent.id, attempt):
            raise duplicate_message(mid)
        message.status, message.delivery_count = AckStatus.NOT_DELIVERED, 0
        _set_times(message, sent.id, outgoing.headers)

    async def _create(self, mailbox: str) -> None:
        if mailbox not in self._known:
            await self._client.mailboxes.create(mailbox, _SETTINGS, if_not_exists=True)
            self._known.add(mailbox)

    async def _is_mine(self, mailbox: str, message_id: int, attempt: str) -> bool:
        """Return whether a message that was sent before is that of a lost answer to the same call."""
        try:
            peeked = await self._client.mailbox(mailbox).peek(message_id=message_id)
        except PermissionDeniedError:
            return False
        return any(each.headers.get("attempt") == attempt for each in peeked)

    async def fetch_and_lock_latest(self, receiver: str, lease: timedelta) -> Message:
        """Lease the message that was due first. See ``AsyncMessageStore.fetch_and_lock_latest``."""
        if lease <= timedelta():
            raise ValueError(f"the lease is {lease}, expected more than zero")
        check_mailbox(receiver)
        lease = max(lease, _SHORTEST_LEASE)
        try:
            deliveries = await self._client.mailbox(receiver).fetch(lease=lease)
        except MailboxNotFoundError as error:
            raise SenderNotFoundError from error
        if not deliveries:
            raise NoMessagesError
        [delivery] = deliveries
        until = delivery.leased_until
        headers = delivery.headers
        message = Message(
            lid=SHA1Key(delivery.lock), leased_until=until, fetch_time=until - lease,
            status=AckStatus(delivery.status), delivery_count=delivery.delivery_count - 1,
        )  # fmt: skip
        message.mid = _mid_of(headers, delivery.body)
        _set_times(message, delivery.id, headers, delivery.due)
        self._leases[delivery.lock] = _Lease(bytes(message.mid), delivery)
        if len(self._leases) > _MAX_LOCKS:
            self._leases.pop(next(iter(self._leases)), None)
        return message

    async def ack(self, mid: Key, lid: Key, status: int) -> None:
        """Acknowledge a message that this store has leased. See ``AsyncMessageStore.ack``."""
        if status not in {AckStatus.CONFIRMED, AckStatus.REJECTED}:
            raise UnableToChangeStatusError
        lock = bytes(lid.bytes())
        lease = self._leases.get(lock)
        if lease is None or lease.mid != bytes(mid.bytes()):
            raise StaleLockError
        try:
            if status == AckStatus.CONFIRMED:
                await lease.delivery.ack()
            else:
                await lease.delivery.reject(delay=0.0)
        except (LockError, MailboxNotFoundError) as error:
            self._leases.pop(lock, None)
            raise StaleLockError from error
        self._leases.pop(lock, None)

    async def fetch_headers(self, receiver: str, received_after: datetime, limit: int = 10) -> list[Message]:
        """Return messages that could be fetched now. See ``AsyncMessageStore.fetch_headers``."""
        exact_time(received_after)
        if limit < 0:
            raise ValueError(f"the limit is {limit}, expected zero or more")
        check_mailbox(receiver)
        # Received in a later millisecond: times of receipt have no fractions of it.
        after_id = ((milliseconds(received_after) + 1) << LOGICAL_BITS) - 1 if received_after >= _EPOCH else 0
        found: list[Message] = []
        while True:
            # One at least, which reports a mailbox that does not exist.
            count = max(1, min(limit - len(found), _PAGE))
            try:
                peeked = await self._client.mailbox(receiver).peek(
                    MessageState.AVAILABLE, max_messages=count, after_id=after_id
                )
            except MailboxNotFoundError as error:
                raise SenderNotFoundError from error
            for each in peeked:
                header = each.header
                message = Message(status=AckStatus(header.status), delivery_count=header.delivery_count)
                message.mid = _mid_of(each.headers, each.body)
                _set_times(message, header.id, each.headers, header.due)
                found.append(message)
                after_id = header.id
            if len(peeked) < count or len(found) >= limit:
                return found[:limit]

    async def reenqueue(self, now: datetime) -> None:
        """Do nothing: the server ends leases when their time is over. See ``AsyncMessageStore.reenqueue``."""
        exact_time(now)


def _outgoing(message: Message, mid: str, attempt: str) -> OutgoingMessage:
    headers = {"mid": mid, "sender": message.sender(), "receiver": message.receiver(), "attempt": attempt}
    delay = overdue = None
    if message.send_when is not None:
        headers["send_when"] = message.send_when.astimezone(UTC).isoformat()
    elif message.delay:
        headers["delay"] = str(message.delay // _MICROSECOND * _NS_PER_US)
        # Rounded up: not due before its time.
        exact = timedelta(milliseconds=-(-message.delay // _SHORTEST_LEASE))
        delay, overdue = (exact, None) if exact >= timedelta() else (None, -exact)
    due = None if message.send_when is None else max(message.send_when, _EPOCH)
    return OutgoingMessage(encode_values(message.body), headers, delay, due, dedup_key=mid, overdue=overdue)


def _mid_of(headers: Mapping[str, str], body: bytes) -> SHA1Key:
    """Return the id of a message; one that was not sent as a message of pandora has that of its body."""
    try:
        return SHA1Key(bytes.fromhex(headers["mid"]))
    except (KeyError, ValueError):
        return sha1_key(body)


def _set_times(message: Message, message_id: int, headers: Mapping[str, str], due: datetime | None = None) -> None:
    """Set when a message was received and is due: as its headers state, otherwise as the mailbox does."""
    received = received_at(message_id)
    send_when = received if due is None else max(received, due)
    try:
        if "send_when" in headers:
            given = datetime.fromisoformat(headers["send_when"])
            # A store of pandora writes the zone; a time without one has another origin.
            send_when = send_when if given.utcoffset() is None else given
        elif "mid" in headers:
            send_when = received + timedelta(microseconds=int(headers.get("delay", "0")) // _NS_PER_US)
    except (ValueError, OverflowError):
        # Not a header of this store.
        pass
    message.received_at, message.send_when, message.delay = received, send_when, send_when - received
