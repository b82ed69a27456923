"""Reads the messages of several journals, as they were written, in pages as the server sends them."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress

from tidelog.errors import TidelogError
from tidelog.gazette.append_service import AsyncJournalClient
from tidelog.gazette.iterators import UncommittedCore
from tidelog.gazette.messages import Envelope, Journal, NewMessageFunc, Offset
from tidelog.gazette.readers import AsyncRetryReader, ReadRequest
from tidelog.journals.types import JournalSpec


class AsyncPages:
    """Pages of any number of journals, each journal in the order of its positions.

    At most as many pages as journals wait in memory, and each journal reads one ahead. Not thread-safe: use it in its
    client's event loop. ``Pages`` is its synchronous twin.

    Args:
        journals: Client of the journals.
        names: Names of the journals to read, at least one.
        new_message: Returns an empty message to decode into.
    """

    def __init__(self, journals: AsyncJournalClient, names: Iterable[Journal], new_message: NewMessageFunc) -> None:
        self._journals = journals
        self._names = tuple(names)
        self._new_message = new_message
        self._readers: dict[Journal, AsyncRetryReader] = {}
        # An empty page wakes the caller of `next`.
        self._ready: asyncio.Queue[list[Envelope]] = asyncio.Queue(len(self._names))
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, offsets: Mapping[Journal, Offset]) -> None:
        """Begin to read each journal at its offset, or at its first frame without an offset.

        Raises:
            MissingJournalError: A journal does not exist.
        """
        for name in self._names:
            request = ReadRequest(name, offset=offsets.get(name, 0), block=True)
            reader = self._readers[name] = AsyncRetryReader(self._journals, request)
            await reader.spec()
        for reader in self._readers.values():
            task = asyncio.create_task(self._follow(reader))
            task.add_done_callback(lambda _: self._wake())
            self._tasks.append(task)

    async def next(self, *, wait_s: float | None) -> list[Envelope]:
        """Return the next page; no messages if none has arrived within ``wait_s`` seconds, or after ``wake``.

        Args:
            wait_s: Seconds to wait for a page, during which the journals are read; ``None`` to wait without an end.

        Raises:
            UnmarshalError: A frame cannot be decoded.
            TidelogError: A journal can no longer be read.
        """
        if self._ready.empty():
            for task in self._tasks:
                if task.done():
                    task.result()
        try:
            async with asyncio.timeout(wait_s):
                return await self._ready.get()
        except TimeoutError:
            return []

    async def spec(self, journal: Journal) -> JournalSpec:
        """Return the specification of any journal.

        Raises:
            MissingJournalError: The journal does not exist.
        """
        return await self._journals.find(journal)

    async def wake(self) -> None:
        """Make a waiting call of ``next`` return."""
        self._wake()

    async def replay(self, journal: Journal, begin: Offset, end: Offset) -> AsyncIterator[list[Envelope]]:
        """Yield the messages of a journal in a half-open range of positions, in pages.

        Raises:
            TidelogError: As ``next``.
        """
        core = UncommittedCore(self._readers[journal].part(begin, end), self._new_message)
        try:
            while await core.fetch():
                yield _page(core)
        finally:
            await core.reader.aclose()

    async def aclose(self) -> None:
        """Stop reading."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        # A failure was raised by `next`, or is of no interest to a caller that stops.
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, reader: AsyncRetryReader) -> None:
        core = UncommittedCore(reader, self._new_message)
        try:
            while await core.fetch():
                await self._ready.put(_page(core))
            raise _ended(reader.request.journal)
        finally:
            await reader.aclose()

    def _wake(self) -> None:
        # A full queue wakes the caller too.
        with suppress(asyncio.QueueFull):
            self._ready.put_nowait([])


def _ended(journal: Journal) -> TidelogError:
    """Return the error of a read that should follow its journal without an end."""
    return TidelogError(
        f"the read of journal {journal} has ended, expected it to follow the journal: run the consumer again, which "
        "resumes at its last checkpoint",
        values={"journal": journal},
    )


def _page(core: UncommittedCore) -> list[Envelope]:
    """Return the messages of the page that was fetched."""
    page = []
    while (envelope := core.take()) is not None:
        page.append(envelope)
    return page
