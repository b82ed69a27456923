"""The synchronous readers: pages are read on the client's event loop, and decoded in the caller's thread."""

from collections.abc import Iterator as PythonIterator
from typing import Protocol, Self

from tidelog.admin.journal_types import ListRequest, ListResponse
from tidelog.gazette.generated.polled_list import ListCalls
from tidelog.gazette.generated.reader import ReaderCalls
from tidelog.gazette.iterators import CommittedCore, UncommittedCore, end_of
from tidelog.gazette.messages import Envelope, NewMessageFunc, Offset
from tidelog.gazette.polled_list import AsyncPolledList
from tidelog.gazette.readers import AsyncRetryReader, ReadRequest
from tidelog.gazette.sequencer import Sequencer, StepSequencer
from tidelog.gazette.sync_append import JournalClient, inner_of
from tidelog.sync.client import Client
from tidelog.sync.cluster import Cluster
from tidelog.transport.background import background
from tidelog.wire.durations import check_seconds


class Iterator(Protocol):
    """What both synchronous iterators have."""

    def next(self) -> Envelope:
        """Return the next message; raise EOFError at the end."""
        ...


class RetryReader(ReaderCalls):
    """Reads a journal in pages, and survives the loss of its connection. See ``AsyncRetryReader``."""

    def __init__(self, journals: JournalClient, request: ReadRequest) -> None:
        """Create a reader; does no I/O."""
        self.source = AsyncRetryReader(journals.source, request)

    @property
    def request(self) -> ReadRequest:
        """The request."""
        return self.source.request

    @property
    def offset(self) -> Offset:
        """Position of the next frame to read, at least; ``FROM_END`` before a read from the end has begun."""
        return self.source.offset


class _Messages(PythonIterator[Envelope]):
    """What both synchronous iterators have: the wait for pages."""

    def __init__(self, core: UncommittedCore | CommittedCore) -> None:
        self._core = core
        self._take = core.take

    def next(self) -> Envelope:
        """Return the next message. See ``next`` of the asynchronous iterators."""
        while (envelope := self._take()) is None:
            if not background.run(self._core.fetch()):
                raise end_of(self._core.reader)
        return envelope

    def __next__(self) -> Envelope:
        """Return the next message. Raises as ``next``, and StopIteration at the end."""
        while (envelope := self._take()) is None:
            if not background.run(self._core.fetch()):
                raise StopIteration
        return envelope

    def close(self) -> None:
        """End the read."""
        background.run(self._core.aclose())


class ReadUncommittedIter(_Messages):
    """The messages of a journal as they were written: ``for envelope in iterator``. See ``AsyncReadUncommittedIter``.

    It may be passed to ``start_replay`` of a sequencer.
    """

    def __init__(self, reader: RetryReader, new_message: NewMessageFunc) -> None:
        """Create an iterator; does no I/O. See ``AsyncReadUncommittedIter``."""
        super().__init__(UncommittedCore(reader.source, new_message))


class ReadCommittedIter(_Messages):
    """The committed messages of a journal, each once: ``for envelope in iterator``. See ``AsyncReadCommittedIter``."""

    def __init__(self, reader: RetryReader, new_message: NewMessageFunc, sequencer: StepSequencer | Sequencer) -> None:
        """Create an iterator; does no I/O. See ``AsyncReadCommittedIter``."""
        super().__init__(CommittedCore(UncommittedCore(reader.source, new_message), sequencer))


class PolledList(ListCalls):
    """The journals that a request selects, listed again at an interval. See ``AsyncPolledList``."""

    def __init__(self, client: Client | Cluster, interval_s: float, request: ListRequest) -> None:
        """Create a list; entering the block, or ``refresh``, fetches it first. See ``AsyncPolledList``."""
        self._list = AsyncPolledList(inner_of(client), interval_s, request)

    def wait_changed(self, known: ListResponse, timeout_s: float | None = None) -> ListResponse:
        """Return the journals once they differ from ``known``; raise TimeoutError after ``timeout_s`` seconds."""
        within_s = None if timeout_s is None else check_seconds("timeout_s", timeout_s)
        return background.run(self._list.wait_changed(known), within_s)

    def __enter__(self) -> Self:
        background.run(self._list.start())
        return self
