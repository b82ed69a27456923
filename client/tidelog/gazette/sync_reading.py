"""The synchronous readers: pages are read on the client's event loop, and decoded in the caller's thread."""

from collections.abc import Iterator as PythonIterator
from types import TracebackType
from typing import Protocol, Self

from tidelog.admin.journal_types import JournalSpec, ListRequest, ListResponse
from tidelog.gazette.iterators import CommittedCore, UncommittedCore, end_of
from tidelog.gazette.messages import Envelope, NewMessageFunc, Offset
from tidelog.gazette.polled_list import AsyncPolledList
from tidelog.gazette.readers import AsyncRetryReader, ReadRequest
from tidelog.gazette.sequencer import Sequencer, StepSequencer
from tidelog.gazette.sync_append import JournalClient, inner_of
from tidelog.sync.client import Client
from tidelog.sync.cluster import Cluster
from tidelog.transport.background import background
from tidelog.wire.batch import Batch
from tidelog.wire.durations import check_seconds


class Iterator(Protocol):
    """What both synchronous iterators have."""

    def next(self) -> Envelope:
        """Return the next message; raise EOFError at the end."""
        ...


class RetryReader:
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

    def spec(self) -> JournalSpec:
        """Return the specification of the journal. See ``AsyncRetryReader.spec``."""
        return background.run(self.source.spec())

    def next_page(self) -> Batch | None:
        """Return the next frames, at least one; ``None`` at the end. See ``AsyncRetryReader.next_page``."""
        return background.run(self.source.next_page())

    def close(self) -> None:
        """End the read; ``next_page`` opens it again at ``offset``."""
        background.run(self.source.aclose())


class ReadUncommittedIter(PythonIterator[Envelope]):
    """The messages of a journal as they were written: ``for envelope in iterator``. See ``AsyncReadUncommittedIter``.

    It may be passed to ``start_replay`` of a sequencer.
    """

    def __init__(self, reader: RetryReader, new_message: NewMessageFunc) -> None:
        """Create an iterator; does no I/O. See ``AsyncReadUncommittedIter``."""
        self._core = UncommittedCore(reader.source, new_message)
        self._take = self._core.take

    def next(self) -> Envelope:
        """Return the next message. See ``AsyncReadUncommittedIter.next``."""
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
        background.run(self._core.reader.aclose())


class ReadCommittedIter(PythonIterator[Envelope]):
    """The committed messages of a journal, each once: ``for envelope in iterator``. See ``AsyncReadCommittedIter``."""

    def __init__(self, reader: RetryReader, new_message: NewMessageFunc, sequencer: StepSequencer | Sequencer) -> None:
        """Create an iterator; does no I/O. See ``AsyncReadCommittedIter``."""
        self._core = CommittedCore(UncommittedCore(reader.source, new_message), sequencer)
        self._take = self._core.take

    def next(self) -> Envelope:
        """Return the next committed message. See ``AsyncReadCommittedIter.next``."""
        while (envelope := self._take()) is None:
            if not background.run(self._core.fetch()):
                raise end_of(self._core.uncommitted.reader)
        return envelope

    def __next__(self) -> Envelope:
        """Return the next committed message. Raises as ``next``, and StopIteration at the end."""
        while (envelope := self._take()) is None:
            if not background.run(self._core.fetch()):
                raise StopIteration
        return envelope

    def close(self) -> None:
        """End the read."""
        background.run(self._core.aclose())


class PolledList:
    """The journals that a request selects, listed again at an interval. See ``AsyncPolledList``."""

    def __init__(self, client: Client | Cluster, interval_s: float, request: ListRequest) -> None:
        """Create a list; entering the block, or ``refresh``, fetches it first. See ``AsyncPolledList``."""
        self._list = AsyncPolledList(inner_of(client), interval_s, request)

    def list(self) -> ListResponse:
        """Return the journals as of the last poll. See ``AsyncPolledList.list``."""
        return self._list.list()

    def refresh(self) -> None:
        """List the journals now. See ``AsyncPolledList.refresh``."""
        background.run(self._list.refresh())

    def wait_changed(self, known: ListResponse, timeout_s: float | None = None) -> ListResponse:
        """Return the journals once they differ from ``known``; raise TimeoutError after ``timeout_s`` seconds."""
        within_s = None if timeout_s is None else check_seconds("timeout_s", timeout_s)
        return background.run(self._list.wait_changed(known), within_s)

    def close(self) -> None:
        """Stop polling; ``list`` returns the last result."""
        background.run(self._list.aclose())

    def __enter__(self) -> Self:
        background.run(self._list.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
