"""The synchronous append service: frames gather in the caller's thread, and are sent on the client's event loop."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future

from tidelog.client import AsyncClient
from tidelog.gazette.append_driver import FindOwner, JournalAppends
from tidelog.gazette.append_queue import AppendHandle
from tidelog.gazette.append_service import DEFAULT_PENDING_BYTES, AsyncJournalClient
from tidelog.gazette.generated.appends import AppendCalls
from tidelog.gazette.journal_lookup import finder
from tidelog.gazette.messages import Journal
from tidelog.journals.types import JournalSpec
from tidelog.sync.client import Client
from tidelog.sync.cluster import Cluster, inner_of
from tidelog.sync.generated.journals import JournalCalls
from tidelog.transport.background import background
from tidelog.types import AppendResult
from tidelog.wire.durations import check_seconds


class Append(AppendHandle):
    """An append in progress, shared by all frames of a batch. See ``AsyncAppend``.

    Attributes:
        journal: Name of the journal.
        future: Receives the position, or the error.
    """

    __slots__ = ()
    future: "Future[AppendResult]"

    def result(self, timeout_s: float | None = None) -> AppendResult:
        """Wait at most ``timeout_s`` seconds for the batch's position, on any thread and any number of times.

        Raises:
            TimeoutError: The batch is not acknowledged yet.
            TidelogError: The batch was not appended, or the outcome is unknown.
        """
        return self.future.result(None if timeout_s is None else check_seconds("timeout_s", timeout_s))


class JournalClient(AppendCalls[Append]):
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
        self.source = AsyncJournalClient(
            inner_of(client),
            find=None if find is None else lambda journal: asyncio.to_thread(find, journal),
            owner_of=None if owner_of is None else _inner_owner(owner_of),
        )
        # Why not a plain lock: a message that publishes while it is encoded gets an error, and does not block itself.
        self.lock = threading.RLock()
        self._appends = JournalAppends[Append](
            self.source.find, self.source.owner_of, max_pending_bytes,
            make=_new_append, soon=background.call_soon, lock=self.lock,
        )  # fmt: skip


def _new_append(journal: Journal) -> Append:
    return Append(journal, Future())


def _inner_owner(owner_of: Callable[[str], Client]) -> FindOwner:
    async def found(channel: str) -> AsyncClient:
        return inner_of(await asyncio.to_thread(owner_of, channel))

    return found


def sync_finder(journals: JournalCalls) -> Callable[[Journal], JournalSpec]:
    """Return a function that asks the server for a journal, and blocks its caller; see ``finder``."""
    find = finder(journals._journals)  # noqa: SLF001 - the asynchronous calls inside
    return lambda journal: background.run(find(journal))
