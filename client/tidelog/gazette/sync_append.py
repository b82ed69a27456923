"""The synchronous append service: frames gather in the caller's thread, and are sent on the client's event loop."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeAlias

from tidelog.admin.journal_types import JournalSpec
from tidelog.client import AsyncClient
from tidelog.cluster import AsyncCluster
from tidelog.errors import ChannelNotFoundError, ProducerStoppedError
from tidelog.gazette.ack_intents import AckIntent
from tidelog.gazette.append_driver import AppendDriver, FindJournal, FindOwner
from tidelog.gazette.append_queue import JournalQueue, Room
from tidelog.gazette.append_service import DEFAULT_PENDING_BYTES, AsyncJournalClient
from tidelog.gazette.messages import Journal
from tidelog.sync.client import Client
from tidelog.sync.cluster import Cluster
from tidelog.transport.background import background
from tidelog.types import AppendResult
from tidelog.wire.durations import check_seconds


class Append:
    """An append in progress, shared by all frames of a batch. See ``AsyncAppend``.

    Attributes:
        journal: Name of the journal.
        future: Receives the position, or the error.
    """

    __slots__ = ("future", "journal")

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.future: Future[AppendResult] = Future()

    def done(self) -> bool:
        """Return whether the frames are acknowledged or the append has failed."""
        return self.future.done()

    def result(self, timeout_s: float | None = None) -> AppendResult:
        """Wait at most ``timeout_s`` seconds for the batch's position, on any thread and any number of times.

        Raises:
            TimeoutError: The batch is not acknowledged yet.
            TidelogError: The batch was not appended, or the outcome is unknown.
        """
        return self.future.result(None if timeout_s is None else check_seconds("timeout_s", timeout_s))


SyncDependency: TypeAlias = "Append | Future[Any]"
"""What must succeed before an append is sent."""


class JournalClient:
    """Appends frames to journals, for each journal in the order of the calls. See ``AsyncJournalClient``.

    Thread-safe: callers on several threads append to a journal in the order in which they get its slot.

    Attributes:
        source: The asynchronous client, with which readers find journals.
        lock: Guards the append slots; a publisher holds it from the tick of its clock until the frame is added.
    """

    def __init__(
        self,
        client: Client | Cluster,
        *,
        find: Callable[[Journal], JournalSpec] | None = None,
        owner_of: Callable[[str], Client] | None = None,
        max_pending_bytes: int = DEFAULT_PENDING_BYTES,
    ) -> None:
        """Create a journal client; does no I/O. See ``AsyncJournalClient``; both functions run on other threads."""
        room = Room.of(max_pending_bytes)
        self.source = AsyncJournalClient(
            inner_of(client),
            find=None if find is None else _on_a_thread(find),
            owner_of=None if owner_of is None else _inner_owner(owner_of),
        )
        # Why not a plain lock: a message that publishes while it is encoded gets an error, and does not block itself.
        self.lock = threading.RLock()
        self._driver = AppendDriver[Append](
            room, self.source.find, self.source.owner_of, make=Append, soon=background.call_soon, lock=self.lock
        )

    def append(self, journal: Journal, frame: bytes, *, dependencies: Iterable[SyncDependency] | None = None) -> Append:
        """Append one frame, and return the append of its batch without waiting. See ``AsyncJournalClient.append``."""
        if dependencies is None:
            with self.lock:
                return self._driver.queue_of(journal).add(frame)
        futures = [each.future if isinstance(each, Append) else each for each in dependencies]
        with self.lock:
            return self._driver.add_first(journal, frame, futures)

    def queue_of(self, journal: Journal) -> JournalQueue[Append]:
        """Return the exclusive append slot of a journal; for publishers, which hold ``lock``."""
        return self._driver.queue_of(journal)

    def pending_except(self, journal: Journal = "") -> list[Append]:
        """Return the last append of each journal but one that is not done. See ``AsyncJournalClient``."""
        return self._driver.pending_except(journal)

    def append_ack_intents(
        self, intents: Iterable[AckIntent], dependencies: Iterable[SyncDependency] = ()
    ) -> list[Append]:
        """Append acknowledgements without waiting. See ``AsyncJournalClient.append_ack_intents``."""
        shared = tuple(dependencies)
        return [self.append(each.journal, each.intent, dependencies=shared) for each in intents]

    def write_ack_intents(self, intents: Iterable[AckIntent]) -> None:
        """Append acknowledgements, and wait for them. See ``AsyncJournalClient.write_ack_intents``."""
        existing = background.run(self._driver.existing(intents))
        for intent, append in zip(existing, self.append_ack_intents(existing), strict=True):
            try:
                append.result()
            except (ChannelNotFoundError, ProducerStoppedError) as error:
                background.run(self._driver.drop(intent, append, error))

    def flush(self) -> None:
        """Wait until everything appended before is acknowledged. See ``AsyncJournalClient.flush``."""
        self._driver.check()
        for append in self.pending_except():
            append.result()
        self._driver.check()

    def room(self) -> None:
        """Wait until at most half of ``max_pending_bytes`` is in use."""
        background.run(self._driver.room())

    def answered(self) -> None:
        """Wait until the outcome of everything that was sent is known. See ``AsyncJournalClient.answered``."""
        background.run(self._driver.answered())

    def close(self) -> None:
        """Flush, and refuse further appends. See ``AsyncJournalClient.aclose``."""
        try:
            self.flush()
        finally:
            background.run(self._driver.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            # The block raised, and the caller must see that error: what was not sent is dropped.
            background.run(self._driver.aclose())


def _on_a_thread(find: Callable[[Journal], JournalSpec]) -> FindJournal:
    async def found(journal: Journal) -> JournalSpec:
        return await asyncio.to_thread(find, journal)

    return found


def inner_of(client: Client | Cluster) -> AsyncClient | AsyncCluster:
    """Return the asynchronous client inside of a synchronous one."""
    # A journal client is a part of the client, as message streams are.
    return client._cluster if isinstance(client, Cluster) else client._client  # noqa: SLF001 - as above


def _inner_owner(owner_of: Callable[[str], Client]) -> FindOwner:
    async def found(channel: str) -> AsyncClient:
        client = await asyncio.to_thread(owner_of, channel)
        return client._client  # noqa: SLF001 - as in ``inner_of``

    return found
