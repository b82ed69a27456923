"""The append service: appends frames to journals, in order, batched, and each one once."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import nullcontext
from typing import Any, Final

from tidelog.client import AsyncClient
from tidelog.cluster import AsyncCluster
from tidelog.gazette.append_driver import FindJournal, FindOwner, JournalAppends
from tidelog.gazette.append_queue import AppendHandle
from tidelog.gazette.journal_lookup import finder, owner_function
from tidelog.gazette.messages import Journal
from tidelog.types import AppendResult

DEFAULT_PENDING_BYTES: Final = 8 << 20


class AsyncAppend(AppendHandle):
    """An append in progress, shared by all frames of a batch: await it, any number of times, for the batch's position.

    Cancelling the wait does not cancel the append.

    Attributes:
        journal: Name of the journal.
        future: Receives the position, or the error.
    """

    __slots__ = ()
    future: "asyncio.Future[AppendResult]"

    def __await__(self) -> Generator[Any, None, AppendResult]:
        # Why shield: many callers wait for one batch, and cancelling one wait must not end the others.
        return asyncio.shield(self.future).__await__()


class AsyncJournalClient(JournalAppends[AsyncAppend]):
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
        super().__init__(self.find, self.owner_of, max_pending_bytes, make=_new_append, soon=_soon, lock=nullcontext())


def _new_append(journal: Journal) -> AsyncAppend:
    return AsyncAppend(journal, asyncio.get_running_loop().create_future())


def _soon(call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(call)
