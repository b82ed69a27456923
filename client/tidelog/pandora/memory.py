"""A blob store and a message store in the memory of the process, for programs of one process and for tests.

Time is an input: a store reads it from its clock once in each call.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from secrets import token_bytes
from threading import Lock
from typing import Final

from tidelog.pandora.keys import SHA1_BYTES, Key, SHA1Key
from tidelog.pandora.memory_tables import BlobTable, MessageTable
from tidelog.pandora.message import Message
from tidelog.pandora.times import exact_time, utc_now

DEFAULT_GRACE_PERIOD: Final = timedelta(minutes=10)
"""How long ``MemoryBlobStore`` keeps data without references."""


class AsyncMemoryBlobStore:
    """Data in memory, see ``AsyncBlobStore``. Thread-safe.

    Args:
        clock: Returns the time, aware; the machine's clock by default.
        grace_period: How long data without references is kept.
    """

    def __init__(
        self, *, clock: Callable[[], datetime] = utc_now, grace_period: timedelta = DEFAULT_GRACE_PERIOD
    ) -> None:
        self._clock = clock
        self._table = BlobTable(grace_period)
        self._lock = Lock()

    async def put_data(self, data: bytes) -> SHA1Key:
        """Store data and return its SHA-1 key. See ``AsyncBlobStore.put_data``."""
        with self._lock:
            return self._table.put(data, self._clock())

    async def get_data(self, key: Key) -> bytes | None:
        """Return the data of a key; ``None`` if it is unknown. See ``AsyncBlobStore.get_data``."""
        with self._lock:
            return self._table.get(bytes(key.bytes()), self._clock())

    async def update_ref_count(self, key: Key, delta: int) -> None:
        """Add to the references of a key. See ``AsyncBlobStore.update_ref_count``."""
        with self._lock:
            self._table.update(bytes(key.bytes()), delta, self._clock())


class AsyncMemoryMessageStore:
    """Mailboxes in memory, see ``AsyncMessageStore``. Thread-safe.

    The ids of all messages are kept, also of confirmed ones, because a message is never accepted twice.

    Args:
        clock: Returns the time, aware; the machine's clock by default.
    """

    def __init__(self, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._clock = clock
        self._table = MessageTable()
        self._lock = Lock()

    async def enqueue(self, message: Message) -> None:
        """Put a message into the mailbox of its receiver. See ``AsyncMessageStore.enqueue``."""
        if message.send_when is not None:
            exact_time(message.send_when)
        with self._lock:
            self._table.enqueue(message, self._clock())

    async def fetch_and_lock_latest(self, receiver: str, lease: timedelta) -> Message:
        """Lease the message that was due first. See ``AsyncMessageStore.fetch_and_lock_latest``."""
        with self._lock:
            return self._table.fetch(receiver, lease, self._clock(), token_bytes(SHA1_BYTES))

    async def ack(self, mid: Key, lid: Key, status: int) -> None:
        """Acknowledge a leased message. See ``AsyncMessageStore.ack``."""
        with self._lock:
            self._table.ack(bytes(mid.bytes()), bytes(lid.bytes()), status, self._clock())

    async def fetch_headers(self, receiver: str, received_after: datetime, limit: int = 10) -> list[Message]:
        """Return messages that could be fetched now. See ``AsyncMessageStore.fetch_headers``."""
        exact_time(received_after)
        with self._lock:
            return self._table.headers(receiver, received_after, limit, self._clock())

    async def reenqueue(self, now: datetime) -> None:
        """Release the leases that ended before ``now``. See ``AsyncMessageStore.reenqueue``."""
        exact_time(now)
        with self._lock:
            self._table.release(min(now, self._clock()))
