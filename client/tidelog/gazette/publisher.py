"""The publisher: sequences messages into journals, committed or in transactions, and acknowledges transactions."""

from collections.abc import Iterable

from tidelog.gazette.append_driver import Dependency
from tidelog.gazette.append_service import AsyncAppend, AsyncJournalClient
from tidelog.gazette.generated.publisher import PublisherCalls
from tidelog.gazette.messages import AckIntent
from tidelog.gazette.publishing import PublisherCore
from tidelog.gazette.sync_append import Append, JournalClient
from tidelog.gazette.uuids import Clock, ProducerID


class AsyncPublisher(PublisherCore[AsyncAppend]):
    """Maps, sequences and asynchronously appends messages to journals. ``Publisher`` is its synchronous twin.

    A committed message is visible to every reader at once. An uncommitted one belongs to the open transaction: readers
    of committed messages receive it when they read the acknowledgement of its journal, which may never come.
    To commit a transaction, in this order:

    1. wait for the appends of its messages: ``pending_except`` or ``flush`` of the journal client;
    2. take the acknowledgements with ``build_ack_intents``, and persist them with the state that they belong to;
    3. append them with ``write_ack_intents``, and do this again when the program starts again.

    Publishing does not wait: it is one call without a coroutine, future or lock for the message. Not thread-safe: use
    it in its client's event loop; any number of tasks may publish committed messages, one task transactions.

    Attributes:
        producer_id: Identifies the publisher in the UUIDs of its messages.
        clock: Clock of the UUIDs.
    """

    def __init__(
        self, journals: AsyncJournalClient, clock: Clock | None = None, *, producer_id: ProducerID | None = None
    ) -> None:
        """Create a publisher; does no I/O.

        Args:
            journals: Client that appends the messages.
            clock: Clock, which the caller updates. Default: a clock that each message updates to the current time.
            producer_id: Id of the publisher, which no other may have used. Default: a random one.
        """
        super().__init__(journals.queue_of, clock, producer_id)
        self.journals = journals


class Publisher(PublisherCalls[Append]):
    """Maps, sequences and asynchronously appends messages to journals. See ``AsyncPublisher``.

    Publishing does not wait for the server. Thread-safe for committed messages; one thread publishes transactions.

    Attributes:
        producer_id: Identifies the publisher in the UUIDs of its messages.
        clock: Clock of the UUIDs.
    """

    def __init__(
        self, journals: JournalClient, clock: Clock | None = None, *, producer_id: ProducerID | None = None
    ) -> None:
        """Create a publisher; does no I/O. See ``AsyncPublisher``."""
        self.journals = journals
        self._core = PublisherCore[Append](journals.queue_of, clock, producer_id)
        self.producer_id = self._core.producer_id
        self.clock = self._core.clock
        # Invariant (I1): the lock is held from the tick of the clock until the frame is in the journal's queue. It
        # covers the mapping too, whose caches need not be thread-safe.
        self._lock = journals.lock


def append_ack_intents(
    journals: AsyncJournalClient, intents: Iterable[AckIntent], dependencies: Iterable[Dependency] = ()
) -> list[AsyncAppend]:
    """Append acknowledgements without waiting; see ``AsyncJournalClient.append_ack_intents``."""
    return journals.append_ack_intents(intents, dependencies)


async def write_ack_intents(journals: AsyncJournalClient, intents: Iterable[AckIntent]) -> None:
    """Append acknowledgements, and return once all are in their journals; also to recover after a crash.

    See ``AsyncJournalClient.write_ack_intents``.
    """
    await journals.write_ack_intents(intents)
