"""A blob store and a message store in the memory of the process, for programs of one process and for tests.

Time is an input: a store reads it from its clock once in each call, which is one step under a lock.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from secrets import token_bytes
from threading import Lock
from typing import Final

from tidelog.pandora.errors import (
    NoMessagesError,
    SenderNotFoundError,
    StaleLockError,
    UnableToChangeStatusError,
    blob_not_found,
    duplicate_message,
)
from tidelog.pandora.keys import SHA1_BYTES, Key, SHA1Key, sha1_key
from tidelog.pandora.message import AckStatus, Message, check_mailbox, utc_now
from tidelog.pandora_formats.go_times import exact_time

DEFAULT_GRACE_PERIOD: Final = timedelta(minutes=10)
"""How long ``MemoryBlobStore`` keeps data without references."""
# Below this number of entries, those of leases that were acknowledged are not removed early.
_MIN_ENDS: Final = 1_000


@dataclass(slots=True)
class _Blob:
    data: bytes
    count: int
    collected_after: datetime


class MemoryBlobStore:
    """Data in memory, see ``BlobStore``. Thread-safe.

    Args:
        clock: Returns the time, aware; the machine's clock by default.
        grace_period: How long data without references is kept.
    """

    def __init__(
        self, *, clock: Callable[[], datetime] = utc_now, grace_period: timedelta = DEFAULT_GRACE_PERIOD
    ) -> None:
        self._clock = clock
        self._grace_period = grace_period
        self._lock = Lock()
        self._blobs: dict[bytes, _Blob] = {}
        # The times at which blobs may have to be collected, by key; entries that later calls made invalid are skipped.
        self._ends: list[tuple[datetime, bytes]] = []

    def put_data(self, data: bytes) -> SHA1Key:
        """Store data and return its SHA-1 key. See ``BlobStore.put_data``."""
        with self._step() as now:
            key = sha1_key(data)
            content = bytes(key)
            blob = self._blobs.setdefault(content, _Blob(bytes(data), 0, now))
            self._keep(content, blob, now)
            return key

    def get_data(self, key: Key) -> bytes | None:
        """Return the data of a key; ``None`` if it is unknown. See ``BlobStore.get_data``."""
        with self._step():
            blob = self._blobs.get(bytes(key.bytes()))
            return blob.data if blob else None

    def update_ref_count(self, key: Key, delta: int) -> None:
        """Add to the references of a key. See ``BlobStore.update_ref_count``."""
        with self._step() as now:
            content = bytes(key.bytes())
            blob = self._blobs.get(content)
            if blob is None:
                raise blob_not_found(content.hex())
            had_references, blob.count = blob.count > 0, blob.count + delta
            if had_references and blob.count <= 0:
                self._keep(content, blob, now)

    @contextmanager
    def _step(self) -> Iterator[datetime]:
        """Delete the blobs without references whose grace period has ended; provide the time."""
        with self._lock:
            now = self._clock()
            while self._ends and self._ends[0][0] < now:
                end, key = heapq.heappop(self._ends)
                blob = self._blobs.get(key)
                if blob and blob.count <= 0 and blob.collected_after == end:
                    del self._blobs[key]
            yield now

    def _keep(self, key: bytes, blob: _Blob, now: datetime) -> None:
        """Keep a blob for a grace period from now."""
        blob.collected_after = now + self._grace_period
        if blob.count <= 0:
            heapq.heappush(self._ends, (blob.collected_after, key))


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

    def set_header(self, message: Message) -> None:
        """Set the fields of a message that do not depend on a lease."""
        message.mid = SHA1Key(self.mid)
        message.status = self.status
        message.received_at, message.send_when = self.received_at, self.send_when
        message.delay = self.send_when - self.received_at
        message.delivery_count = self.deliveries


class MemoryMessageStore:
    """Mailboxes in memory, see ``MessageStore``. Thread-safe.

    The ids of all messages are kept, about 100 bytes for each, also of confirmed ones, because a message is never
    accepted twice.

    Args:
        clock: Returns the time, aware; the machine's clock by default.
    """

    def __init__(self, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._clock = clock
        self._lock = Lock()
        self._rows: dict[bytes, _Row] = {}
        self._confirmed: set[bytes] = set()
        # For each mailbox its messages without a lease: a heap by due time, then by number.
        self._waiting: dict[str, list[tuple[datetime, int, bytes]]] = {}
        self._number = itertools.count()
        # Ends of leases, as a heap; entries of acknowledged leases are skipped, and removed when most are of this kind.
        self._ends: list[tuple[datetime, bytes, bytes]] = []
        self._leased = 0

    def enqueue(self, message: Message) -> None:
        """Put a message into the mailbox of its receiver. See ``MessageStore.enqueue``."""
        if message.send_when is not None:
            exact_time(message.send_when)
        with self._step() as now:
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
            row.set_header(message)

    def fetch_and_lock_latest(self, receiver: str, lease: timedelta) -> Message:
        """Lease the message that was due first. See ``MessageStore.fetch_and_lock_latest``."""
        if lease <= timedelta():
            raise ValueError(f"the lease is {lease}, expected more than zero")
        check_mailbox(receiver)
        with self._step() as now:
            end, waiting = now + lease, self._mailbox(receiver)
            if not waiting or waiting[0][0] > now:
                raise NoMessagesError
            _, _, mid = heapq.heappop(waiting)
            row = self._rows[mid]
            row.lid = token_bytes(SHA1_BYTES)
            self._leased += 1
            heapq.heappush(self._ends, (end, mid, row.lid))
            message = Message(lid=SHA1Key(row.lid), leased_until=end, fetch_time=now)
            row.set_header(message)
            row.deliveries += 1
            return message

    def ack(self, mid: Key, lid: Key, status: int) -> None:
        """Acknowledge a leased message. See ``MessageStore.ack``."""
        if status not in {AckStatus.CONFIRMED, AckStatus.REJECTED}:
            raise UnableToChangeStatusError
        found, lock = bytes(mid.bytes()), bytes(lid.bytes())
        with self._step():
            if not lock or not self._is_leased(found, lock):
                raise StaleLockError
            if status == AckStatus.CONFIRMED:
                del self._rows[found]
                self._confirmed.add(found)
            else:
                self._unlock(self._rows[found], AckStatus.REJECTED)
            self._leased -= 1
            if len(self._ends) > 2 * self._leased + _MIN_ENDS:
                self._ends = [each for each in self._ends if self._is_leased(each[1], each[2])]
                heapq.heapify(self._ends)

    def fetch_headers(self, receiver: str, received_after: datetime, limit: int = 10) -> list[Message]:
        """Return messages that could be fetched now. See ``MessageStore.fetch_headers``."""
        exact_time(received_after)
        if limit < 0:
            raise ValueError(f"the limit is {limit}, expected zero or more")
        check_mailbox(receiver)
        with self._step() as now:
            waiting = (self._rows[mid] for send_when, _, mid in self._mailbox(receiver) if send_when <= now)
            rows = [row for row in waiting if row.received_at > received_after]
            found = heapq.nsmallest(limit, rows, key=lambda row: (row.received_at, row.send_when))
            messages = [Message() for _ in found]
            for message, row in zip(messages, found, strict=True):
                row.set_header(message)
            return messages

    def reenqueue(self, now: datetime) -> None:
        """Release the leases that ended before ``now``. See ``MessageStore.reenqueue``."""
        exact_time(now)
        with self._lock:
            self._release(min(now, self._clock()))

    @contextmanager
    def _step(self) -> Iterator[datetime]:
        """Release the leases that have ended; provide the time."""
        with self._lock:
            now = self._clock()
            self._release(now)
            yield now

    def _release(self, now: datetime) -> None:
        """Release the leases that ended before ``now``: a lease is valid up to and including its end."""
        while self._ends and self._ends[0][0] < now:
            _, mid, lid = heapq.heappop(self._ends)
            if self._is_leased(mid, lid):
                self._leased -= 1
                self._unlock(self._rows[mid], AckStatus.TIMEOUT)

    def _is_leased(self, mid: bytes, lid: bytes) -> bool:
        row = self._rows.get(mid)
        return row is not None and row.lid == lid

    def _mailbox(self, receiver: str) -> list[tuple[datetime, int, bytes]]:
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
