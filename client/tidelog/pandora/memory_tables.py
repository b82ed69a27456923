"""Blobs and mailboxes in memory, as state machines: time and lock ids are arguments, and each method is one step."""

import heapq
import itertools
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tidelog.pandora.errors import (
    NoMessagesError,
    SenderNotFoundError,
    StaleLockError,
    UnableToChangeStatusError,
    blob_not_found,
    duplicate_message,
)
from tidelog.pandora.keys import SHA1Key, sha1_key
from tidelog.pandora.message import AckStatus, Message, check_mailbox

# Below this number of entries, those of leases that were acknowledged are not removed early.
_MIN_ENDS: Final = 1_000


@dataclass(slots=True)
class _Blob:
    data: bytes
    count: int
    collected_after: datetime


class BlobTable:
    """Data by key, with counts of references.

    Args:
        grace_period: How long data without references is kept.
    """

    def __init__(self, grace_period: timedelta) -> None:
        self._grace_period = grace_period
        self._blobs: dict[bytes, _Blob] = {}
        # The times at which blobs may have to be collected, by key; entries that later calls made invalid are skipped.
        self._ends: list[tuple[datetime, bytes]] = []

    def put(self, data: bytes, now: datetime) -> SHA1Key:
        """Store data, restart its grace period, and return its key."""
        self._collect(now)
        key = sha1_key(data)
        content = bytes(key)
        blob = self._blobs.setdefault(content, _Blob(bytes(data), 0, now))
        self._keep(content, blob, now)
        return key

    def get(self, key: bytes, now: datetime) -> bytes | None:
        """Return the data of a key; ``None`` if it is unknown."""
        self._collect(now)
        blob = self._blobs.get(key)
        return blob.data if blob else None

    def update(self, key: bytes, delta: int, now: datetime) -> None:
        """Add ``delta`` to the references of a key.

        Raises:
            BlobNotFoundError: The key is unknown.
        """
        self._collect(now)
        blob = self._blobs.get(key)
        if blob is None:
            raise blob_not_found(key.hex())
        had_references, blob.count = blob.count > 0, blob.count + delta
        if had_references and blob.count <= 0:
            self._keep(key, blob, now)

    def _keep(self, key: bytes, blob: _Blob, now: datetime) -> None:
        """Keep a blob for a grace period from now."""
        blob.collected_after = now + self._grace_period
        if blob.count <= 0:
            heapq.heappush(self._ends, (blob.collected_after, key))

    def _collect(self, now: datetime) -> None:
        """Delete the blobs without references whose grace period has ended."""
        while self._ends and self._ends[0][0] < now:
            end, key = heapq.heappop(self._ends)
            blob = self._blobs.get(key)
            if blob and blob.count <= 0 and blob.collected_after == end:
                del self._blobs[key]


@dataclass(slots=True)
class _Row:
    """A message that is not confirmed; ``number`` grows with each, and the lock id is empty without a lease."""

    mid: bytes
    receiver: str
    received_at: datetime
    send_when: datetime
    number: int
    status: AckStatus = AckStatus.NOT_DELIVERED
    deliveries: int = 0
    lid: bytes = b""


class MessageTable:
    """Mailboxes, their messages and leases. The ids of confirmed messages are kept, and about 100 bytes for each."""

    def __init__(self) -> None:
        self._rows: dict[bytes, _Row] = {}
        self._confirmed: set[bytes] = set()
        # For each mailbox its messages without a lease: a heap by due time, then by number.
        self._waiting: dict[str, list[tuple[datetime, int, bytes]]] = {}
        self._number = itertools.count()
        # Ends of leases, as a heap; entries of acknowledged leases are skipped, and removed when most are of this kind.
        self._ends: list[tuple[datetime, bytes, bytes]] = []
        self._leased = 0

    def enqueue(self, message: Message, now: datetime) -> None:
        """Add a message and set its header. See ``AsyncMessageStore.enqueue``."""
        self.release(now)
        check_mailbox(message.sender())
        check_mailbox(message.receiver())
        send_when = now + message.delay if message.send_when is None else message.send_when
        message.calculate_mid()
        mid = bytes(message.mid.bytes()) if message.mid else b""
        if mid in self._rows or mid in self._confirmed:
            raise duplicate_message(mid.hex())
        row = _Row(mid, message.receiver(), now, send_when, next(self._number))
        self._waiting.setdefault(message.sender(), [])
        self._wait(row)
        self._rows[mid] = row
        _set_header(message, row)

    def fetch(self, receiver: str, lease: timedelta, now: datetime, lid: bytes) -> Message:
        """Lease a message under the new lock id. See ``AsyncMessageStore.fetch_and_lock_latest``."""
        if lease <= timedelta():
            raise ValueError(f"the lease is {lease}, expected more than zero")
        end = now + lease
        waiting = self._mailbox(receiver, now)
        if not waiting or waiting[0][0] > now:
            raise NoMessagesError
        _, _, mid = heapq.heappop(waiting)
        row = self._rows[mid]
        row.lid = lid
        self._leased += 1
        heapq.heappush(self._ends, (end, mid, lid))
        message = Message(lid=SHA1Key(lid), leased_until=end, fetch_time=now)
        _set_header(message, row)
        row.deliveries += 1
        return message

    def ack(self, mid: bytes, lid: bytes, status: int, now: datetime) -> None:
        """Acknowledge a message. See ``AsyncMessageStore.ack``."""
        if status not in {AckStatus.CONFIRMED, AckStatus.REJECTED}:
            raise UnableToChangeStatusError
        self.release(now)
        if not lid or not self._is_leased(mid, lid):
            raise StaleLockError
        row = self._rows[mid]
        if status == AckStatus.CONFIRMED:
            del self._rows[mid]
            self._confirmed.add(mid)
        else:
            self._unlock(row, AckStatus.REJECTED)
        self._leased -= 1
        if len(self._ends) > 2 * self._leased + _MIN_ENDS:
            self._ends = [each for each in self._ends if self._is_leased(each[1], each[2])]
            heapq.heapify(self._ends)

    def headers(self, receiver: str, received_after: datetime, limit: int, now: datetime) -> list[Message]:
        """Return messages that could be fetched. See ``AsyncMessageStore.fetch_headers``."""
        if limit < 0:
            raise ValueError(f"the limit is {limit}, expected zero or more")
        waiting = (self._rows[mid] for send_when, _, mid in self._mailbox(receiver, now) if send_when <= now)
        rows = [row for row in waiting if row.received_at > received_after]
        found = heapq.nsmallest(limit, rows, key=lambda row: (row.received_at, row.send_when))
        messages = [Message() for _ in found]
        for message, row in zip(messages, found, strict=True):
            _set_header(message, row)
        return messages

    def release(self, now: datetime) -> None:
        """Release the leases that ended before ``now``: a lease is valid up to and including its end."""
        while self._ends and self._ends[0][0] < now:
            _, mid, lid = heapq.heappop(self._ends)
            if self._is_leased(mid, lid):
                self._leased -= 1
                self._unlock(self._rows[mid], AckStatus.TIMEOUT)

    def _is_leased(self, mid: bytes, lid: bytes) -> bool:
        row = self._rows.get(mid)
        return row is not None and row.lid == lid

    def _mailbox(self, receiver: str, now: datetime) -> list[tuple[datetime, int, bytes]]:
        check_mailbox(receiver)
        self.release(now)
        waiting = self._waiting.get(receiver)
        if waiting is None:
            raise SenderNotFoundError
        return waiting

    def _unlock(self, row: _Row, status: AckStatus) -> None:
        row.lid, row.status = b"", status
        self._wait(row)

    def _wait(self, row: _Row) -> None:
        entry = (row.send_when, row.number, row.mid)
        heapq.heappush(self._waiting.setdefault(row.receiver, []), entry)


def _set_header(message: Message, row: _Row) -> None:
    message.mid = SHA1Key(row.mid)
    message.status = row.status
    message.received_at, message.send_when = row.received_at, row.send_when
    message.delay = row.send_when - row.received_at
    message.delivery_count = row.deliveries
