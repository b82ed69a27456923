"""The append service: appends frames to journals, in order, batched, and each one once."""

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextlib import nullcontext
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from tidelog.client import AsyncClient
from tidelog.cluster import AsyncCluster
from tidelog.errors import ChannelNotFoundError, ProducerStoppedError
from tidelog.gazette.ack_intents import AckIntent
from tidelog.gazette.append_driver import AppendDriver, FindJournal, FindOwner
from tidelog.gazette.append_queue import JournalQueue, Room
from tidelog.gazette.journal_lookup import finder, owner_function
from tidelog.gazette.messages import Journal
from tidelog.types import AppendResult

DEFAULT_PENDING_BYTES: Final = 8 << 20


class AsyncAppend:
    """An append in progress, shared by all frames of a batch: await it, any number of times, for the batch's position.

    Cancelling the wait does not cancel the append.

    Attributes:
        journal: Name of the journal.
        future: Receives the position, or the error.
    """

    __slots__ = ("future", "journal")

    def __init__(self, journal: Journal, future: "asyncio.Future[AppendResult]") -> None:
        self.journal = journal
        self.future = future

    def done(self) -> bool:
        """Return whether the frames are acknowledged or the append has failed."""
        return self.future.done()

    def __await__(self) -> Generator[Any, None, AppendResult]:
        # Why shield: many callers wait for one batch, and cancelling one wait must not end the others.
        return asyncio.shield(self.future).__await__()


Dependency: TypeAlias = "AsyncAppend | asyncio.Future[Any]"
"""What must succeed before an append is sent: another append, or a future such as the commit of a store."""


class AsyncJournalClient:
    """Appends frames to journals, for each journal in the order of the calls. ``JournalClient`` is its twin.

    Frames of one journal gather in batches, and many batches are in flight. A batch whose answer is lost is sent again,
    and is stored once. The first failed append to a journal stops it: every later one raises ProducerStoppedError, and
    ``pending_except`` and ``flush`` report the failure. Use it with ``async with``; leaving the block flushes. Not
    thread-safe: use it in its client's event loop.
    """

    def __init__(
        self,
        client: AsyncClient | AsyncCluster,
        *,
        find: FindJournal | None = None,
        owner_of: FindOwner | None = None,
        max_pending_bytes: int = DEFAULT_PENDING_BYTES,
    ) -> None:
        """Create a journal client; does no I/O.

        Args:
            client: Client of the server, or of the cluster, which the caller closes.
            find: Returns the specification of a journal, whose ``channel`` has the frames, or raises
                MissingJournalError. Default: ask the server.
            owner_of: Returns a client of the node that owns a channel. Default: ask the cluster; for a single server,
                ``client``.
            max_pending_bytes: Memory for frames that are not acknowledged, with 48 bytes for each besides its own;
                appends beyond it raise BufferFullError.

        Raises:
            ValueError: ``max_pending_bytes`` is not positive.
        """
        self.client = client
        self.find: FindJournal = find or finder(client.journals)
        self.owner_of: FindOwner = owner_of or owner_function(client)
        self._driver = AppendDriver[AsyncAppend](
            Room.of(max_pending_bytes), self.find, self.owner_of, make=_new_append, soon=_soon, lock=nullcontext()
        )

    def append(
        self, journal: Journal, frame: bytes, *, dependencies: Iterable[Dependency] | None = None
    ) -> AsyncAppend:
        """Append one frame, and return the append of its batch without waiting.

        Args:
            journal: Name of the journal.
            frame: The bytes of one frame, at least one byte.
            dependencies: What must succeed before the frame is sent. With dependencies, even without any in the
                iterable, the frame is the first of a new batch, and is accepted without room. If one fails, so do this
                and all later appends to the journal.

        Raises:
            TypeError: The frame is not bytes. It was not accepted.
            BufferFullError: There is no room: wait for ``room``. The frame was not accepted.
            ProducerStoppedError: An earlier append to the journal failed. The frame was not accepted.
            ClosedError: The journal client is closed.
        """
        if dependencies is None:
            return self.queue_of(journal).add(frame)
        futures = [each.future if isinstance(each, AsyncAppend) else each for each in dependencies]
        return self._driver.add_first(journal, frame, futures)

    def queue_of(self, journal: Journal) -> JournalQueue[AsyncAppend]:
        """Return the exclusive append slot of a journal; for publishers."""
        return self._driver.queue_of(journal)

    def pending_except(self, journal: Journal = "") -> list[AsyncAppend]:
        """Return the last append of each journal other than ``journal`` that is not acknowledged or has failed.

        Appends to one journal succeed in order, so once these are done, everything appended before is done: a write
        barrier. An append that failed stays in the list.
        """
        return self._driver.pending_except(journal)

    def append_ack_intents(
        self, intents: Iterable[AckIntent], dependencies: Iterable[Dependency] = ()
    ) -> list[AsyncAppend]:
        """Append acknowledgements once ``dependencies`` have succeeded, such as the commit of the store; do not wait.

        The next transaction may begin at once: its messages are queued behind the acknowledgements. If the commit
        fails, the journals are stopped, and their publisher cannot be used any more.

        Raises:
            ProducerStoppedError: An earlier append to a journal failed.
            ClosedError: The journal client is closed.
        """
        shared = tuple(dependencies)
        return [self.append(each.journal, each.intent, dependencies=shared) for each in intents]

    async def write_ack_intents(self, intents: Iterable[AckIntent]) -> None:
        """Append acknowledgements, and return once all are in their journals.

        Call it after the intents were persisted. Call it also when the program starts, before anything is read, with
        the intents that were persisted last: that commits their transaction if the crash came before its
        acknowledgement, and otherwise discards what its publisher left open in these journals. An intent whose journal
        does not exist any more is dropped with a warning.

        Raises:
            TidelogError: An intent could not be appended.
        """
        existing = await self._driver.existing(intents)
        for intent, append in zip(existing, self.append_ack_intents(existing), strict=True):
            try:
                await append
            except (ChannelNotFoundError, ProducerStoppedError) as error:
                await self._driver.drop(intent, append, error)

    async def flush(self) -> None:
        """Return once everything appended so far is acknowledged.

        Raises:
            TidelogError: The failure of a journal, if any.
        """
        self._driver.check()
        for append in self.pending_except():
            await append
        self._driver.check()

    async def room(self) -> None:
        """Return once at most half of ``max_pending_bytes`` is in use."""
        await self._driver.room()

    async def answered(self) -> None:
        """Return once the outcome of everything that was sent is known, or given up; call it after an error.

        A batch without an answer is sent again, also after ``aclose``: it may be stored after what another journal
        client appends. Takes up to ``Retry.give_up_s`` of the client.
        """
        await self._driver.answered()

    async def aclose(self) -> None:
        """Flush, and refuse further appends.

        Raises:
            TidelogError: As ``flush``.
        """
        try:
            await self.flush()
        finally:
            await self._driver.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.aclose()
        else:
            # The block raised, and the caller must see that error: what was not sent is dropped.
            await self._driver.aclose()


def _new_append(journal: Journal) -> AsyncAppend:
    return AsyncAppend(journal, asyncio.get_running_loop().create_future())


def _soon(call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(call)
