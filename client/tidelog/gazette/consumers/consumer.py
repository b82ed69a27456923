"""Consumers: read committed messages, change state and publish, each exactly once. ``make sync`` writes the twins.

The order of a transaction is part of the contract: everything published is acknowledged, then the store commits the
checkpoint with the acknowledgements to append, and only then are they appended. A new instance first appends those of
the last commit again, before it reads anything. If the crash came after the commit, this commits what was published; if
it came in the next transaction, it discards what that had published. Source: Gazette's consumer protocol.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from time import monotonic
from typing import Final, Generic, TypeAlias, TypeVar

from tidelog.client import AsyncClient
from tidelog.gazette.append_service import DEFAULT_PENDING_BYTES, AsyncJournalClient
from tidelog.gazette.checkpoints import Checkpoint
from tidelog.gazette.consumers.failpoints import Failpoint, hit, is_armed
from tidelog.gazette.consumers.pages import AsyncPages
from tidelog.gazette.framings.framing import frame_encoder, framing_by_content_type
from tidelog.gazette.messages import AckIntent, Envelope, Journal, Message, NewMessageFunc
from tidelog.gazette.publisher import AsyncPublisher, Publisher
from tidelog.gazette.sequencer.core import DEFAULT_RING_SIZE, StepSequencer
from tidelog.gazette.stores.interface import AsyncCheckpointStore
from tidelog.gazette.uuids import Flags, build_uuid, get_flags
from tidelog.wire.durations import check_seconds

ConsumedT = TypeVar("ConsumedT")
AsyncHandler: TypeAlias = Callable[[Envelope, ConsumedT, AsyncPublisher], Awaitable[None]]
"""Handles a message: changes state with the open transaction of the store, and publishes with ``publish_uncommitted``.

It must not commit or roll back the transaction, must not call ``build_ack_intents``, and may be called again with the
same message after a crash, a rollback or a failed commit; nothing of the earlier call then remains. An exception ends
the consumer's run and discards the transaction.
"""

Handler: TypeAlias = Callable[[Envelope, ConsumedT, Publisher], None]
"""The synchronous form of ``AsyncHandler``."""

DEFAULT_MAX_MESSAGES: Final = 1_000
DEFAULT_MAX_DELAY_S: Final = 1.0
LINGER_S: Final = 0.002
"""Time without a message after which an open transaction is committed. The next page of a backlog arrives earlier."""
DEFAULT_PRUNE_HORIZON_S: Final = 86_400.0
"""As in Gazette's consumer framework: a producer that is silent for a day is forgotten."""
ACK_TXN: Final = int(Flags.ACK_TXN)


class AsyncConsumerRun(Generic[ConsumedT]):
    """One instance of a consumer, from the acquisition of its store until it stops; see ``AsyncConsumer``."""

    def __init__(
        self,
        store: AsyncCheckpointStore[ConsumedT],
        handler: AsyncHandler[ConsumedT],
        journals: AsyncJournalClient,
        pages: AsyncPages,
        checkpoint: Checkpoint,
        *,
        max_messages: int,
        max_delay_s: float,
        ring_size: int,
    ) -> None:
        self._store = store
        self._handler = handler
        self._journals = journals
        self._pages = pages
        self._max_messages = max_messages
        self._max_delay_s = check_seconds("max_delay_s", max_delay_s)
        self._sequencer = StepSequencer(checkpoint.offsets, checkpoint.states, ring_size)
        # A producer id of its own: its acknowledgements must not commit what an earlier instance left open.
        self._publisher = AsyncPublisher(journals)
        # The last acknowledgement of each journal. Why all of them in each checkpoint: a new instance appends them
        # again, which discards what a crashed transaction published to a journal that the last one did not use.
        self._intents: dict[Journal, AckIntent] = {}
        # The open transaction, or nothing.
        self._transactions: list[ConsumedT] = []
        self._handled = 0
        # When the positions first moved since the last commit; 0 if they have not.
        self._moved_s = 0.0

    async def open_outputs(self, outputs: Mapping[Journal, Message], checkpoint: Checkpoint) -> None:
        """Persist an acknowledgement of nothing for each output, and append it, before the first transaction.

        A new instance appends it again after a crash in the first transaction, which discards what that published.
        """
        if not outputs:
            return
        opened = [await self._opening(journal, message) for journal, message in outputs.items()]
        self._intents.update((intent.journal, intent) for intent in opened)
        await self._store.begin()
        await self._store.commit(replace(checkpoint, intents=tuple(opened)))
        await self._acknowledge(opened)

    async def step(self) -> None:
        """Handle the next page of messages; commit if no other page arrives for ``LINGER_S``, or at a limit.

        Positions that moved without a message to handle are committed after ``max_delay_s`` seconds.
        """
        page = await self._pages.next(wait_s=self._wait_s())
        for envelope in page:
            self._sequencer.queue(envelope)
            self._moved_s = self._moved_s or monotonic()
            if self._sequencer.must_replay:
                await self._replay()
            while self._sequencer.step():
                await self._deliver()
        if self._is_due or (self._transactions and not page):
            await self.commit()

    async def commit(self) -> None:
        """Commit positions and the open transaction in the store, and acknowledge what it published.

        If the positions have not moved since the last commit, it does nothing.
        """
        if not self._moved_s:
            return
        if not self._transactions:
            await self._begin()
        self._sequencer.consume()
        await self._journals.flush()
        hit(Failpoint.FLUSHED)
        intents = self._publisher.build_ack_intents()
        self._intents.update((intent.journal, intent) for intent in intents)
        checkpoint = replace(self._sequencer.checkpoint(DEFAULT_PRUNE_HORIZON_S), intents=tuple(self._intents.values()))
        hit(Failpoint.BEFORE_COMMIT)
        # Ordering: the store first. An acknowledgement without its commit would deliver a transaction that is repeated.
        self._transactions.clear()
        await self._store.commit(checkpoint)
        self._moved_s = 0.0
        await self._acknowledge(intents)

    @property
    def _is_due(self) -> bool:
        """Whether the positions have moved for ``max_delay_s``."""
        return bool(self._moved_s) and monotonic() - self._moved_s >= self._max_delay_s

    def _wait_s(self) -> float | None:
        """Return the seconds to wait for the next page before a commit; ``None`` if there is nothing to commit."""
        if not self._moved_s:
            return None
        rest_s = max(0.0, self._moved_s + self._max_delay_s - monotonic())
        return min(LINGER_S, rest_s) if self._transactions else rest_s

    async def _begin(self) -> None:
        self._transactions.append(await self._store.begin())
        self._handled = 0

    async def _acknowledge(self, intents: Iterable[AckIntent]) -> None:
        """Append the acknowledgements that the store has committed."""
        hit(Failpoint.STORE_COMMITTED)
        for intent in intents:
            self._journals.append_ack_intents([intent])
            hit(Failpoint.INTENT_QUEUED)
            if is_armed(Failpoint.INTENT_WRITTEN):
                await self._journals.flush()
                hit(Failpoint.INTENT_WRITTEN)
        await self._journals.flush()
        hit(Failpoint.INTENTS_WRITTEN)

    async def _opening(self, journal: Journal, message: Message) -> AckIntent:
        """Return an acknowledgement that is older than everything that this instance publishes."""
        spec = await self._pages.spec(journal)
        acknowledgement = message.new_acknowledgement(journal)
        clock = self._publisher.clock
        # Without the time, the clock begins at 0, and readers would forget the producer as one that is long silent.
        clock.update_to_now()
        acknowledgement.set_uuid(build_uuid(self._publisher.producer_id, clock.tick(), ACK_TXN))
        encode = frame_encoder(framing_by_content_type(spec.content_type))
        return AckIntent(journal, encode(acknowledgement))

    async def _replay(self) -> None:
        """Deliver messages that are no longer in the ring."""
        journal, begin, end = self._sequencer.replay_range()
        async for page in self._pages.replay(journal, begin, end):
            for envelope in page:
                if self._sequencer.step_replay(envelope):
                    await self._deliver()
            # A replay also reads the messages of others, which are not handled: without this, the transaction of the
            # store would stay open until its end. The next run resumes within the replayed one.
            if self._is_due:
                await self.commit()
        self._sequencer.end_replay()

    async def _deliver(self) -> None:
        """Handle the delivered message in the open transaction, which is begun if necessary and committed if full."""
        envelope = self._sequencer.dequeued
        assert envelope is not None, "the sequencer has delivered a message"
        # Within a span, this may be the first message after a commit.
        self._moved_s = self._moved_s or monotonic()
        # An acknowledgement has no content: it moves the positions, which the next commit includes.
        if get_flags(envelope.message.get_uuid()) == ACK_TXN:
            return
        if not self._transactions:
            await self._begin()
        await self._handler(envelope, self._transactions[0], self._publisher)
        hit(Failpoint.HANDLED)
        # What was published waits in memory; a handler never waits for it.
        await self._journals.room()
        self._handled += 1
        if self._handled >= self._max_messages:
            await self.commit()


class AsyncConsumer(Generic[ConsumedT]):
    """Reads committed messages of journals and handles each exactly once.

    Messages are handled one after the other, those of a journal's producer in their order, in transactions of the
    store. What a handler changes with the store's transaction, and what it publishes with ``publish_uncommitted``,
    happens once for each message, whatever crashes. A transaction ends when no message waits, which is known after 2 ms
    (``LINGER_S``), and at the limits below; it may end between two messages that were published together. Under a
    backlog it ends at a limit. An acknowledgement, or a message of a transaction that is open, begins no transaction:
    the position behind it is committed with the next message, or alone after ``max_delay_s``.

    Of several instances with the name of one consumer, the one that started last works, and the others fail with
    ConsumerFencedError at their next commit.

    Args:
        client: Client of the server, which the caller closes.
        store: Where checkpoints are committed, which the caller closes.
        journals: Names of the journals to read.
        new_message: Returns a message to decode into.
        handler: Handles a message; see ``AsyncHandler``.
        outputs: Journals that the handler publishes to, each with a message of its type. What a crash leaves open in
            these is discarded at the next start. In a journal that is not named here, what the first transaction of
            an instance published before a crash stays in the memory of readers for a day; it is never delivered.
        max_messages: Messages after which a transaction is committed.
        max_delay_s: Seconds after which a transaction is committed, at the end of the page that was read last, also
            within a replay. They are counted from when the positions first moved.
        ring_size: Messages of open transactions that are held in memory; others are read again when they are committed.
        max_pending_bytes: Memory for published messages that are not acknowledged, with 48 bytes for each besides its
            own. What the handler publishes for one message must fit into half of it, or BufferFullError may be raised.
    """

    def __init__(
        self,
        client: AsyncClient,
        store: AsyncCheckpointStore[ConsumedT],
        journals: Iterable[Journal],
        new_message: NewMessageFunc,
        handler: AsyncHandler[ConsumedT],
        *,
        outputs: Mapping[Journal, Message] | None = None,
        max_messages: int = DEFAULT_MAX_MESSAGES,
        max_delay_s: float = DEFAULT_MAX_DELAY_S,
        ring_size: int = DEFAULT_RING_SIZE,
        max_pending_bytes: int = DEFAULT_PENDING_BYTES,
    ) -> None:
        if max_messages < 1:
            raise ValueError(f"max_messages is {max_messages}, expected at least 1")
        if max_pending_bytes < 1:
            raise ValueError(f"max_pending_bytes is {max_pending_bytes}, expected at least 1")
        self._client = client
        self._store = store
        self._names = tuple(dict.fromkeys(journals))
        if not self._names:
            raise ValueError("there are no journals: name at least one")
        self._new_message = new_message
        self._handler = handler
        self._outputs = dict(outputs or {})
        self._max_messages = max_messages
        self._max_delay_s = check_seconds("max_delay_s", max_delay_s)
        self._ring_size = ring_size
        self._max_pending_bytes = max_pending_bytes
        self._pages: AsyncPages | None = None
        self._is_stopping = False
        # Of the last run; None before the first.
        self._journals: AsyncJournalClient | None = None

    @property
    def is_running(self) -> bool:
        """Whether the store is acquired and messages are read."""
        return self._pages is not None

    async def run(self) -> None:
        """Acquire the store, append the acknowledgements of its last commit again, and consume until ``stop``.

        After an error, nothing of the open transaction remains, and ``run`` may be called again: it resumes at the
        store's last checkpoint, as a new process does.

        Raises:
            ConsumerFencedError: A later instance works for the consumer.
            MissingJournalError: A journal does not exist.
            TidelogError: The server cannot be reached, or a journal cannot be read or appended to.
            Exception: What the handler, the store or the decoding of a message raised.
        """
        checkpoint = await self._store.acquire()
        hit(Failpoint.ACQUIRED)
        try:
            if self._journals is not None:
                # Ordering: what an earlier run has sent is stored, or given up, before its acknowledgements roll it
                # back. Stored behind them, it would be an open transaction that nothing ends.
                await self._journals.answered()
            async with AsyncJournalClient(self._client, max_pending_bytes=self._max_pending_bytes) as journals:
                self._journals = journals
                # Ordering: before anything is read, because what is read may depend on what they acknowledge.
                await journals.write_ack_intents(checkpoint.intents)
                hit(Failpoint.RECOVERED)
                await self._consume(journals, checkpoint)
        finally:
            self._is_stopping = False
            await self._store.rollback()

    async def stop(self) -> None:
        """Make ``run`` commit what was handled and return, after the page that it handles.

        Before ``run``, it counts too: the next ``run`` completes the store's last commit and returns without reading.
        The ``run`` after that consumes again.
        """
        self._is_stopping = True
        if self._pages is not None:
            await self._pages.wake()

    async def _consume(self, journals: AsyncJournalClient, checkpoint: Checkpoint) -> None:
        pages = AsyncPages(journals, self._names, self._new_message)
        run = AsyncConsumerRun(
            self._store, self._handler, journals, pages, checkpoint, max_messages=self._max_messages,
            max_delay_s=self._max_delay_s, ring_size=self._ring_size,
        )  # fmt: skip
        self._pages = pages
        try:
            await run.open_outputs(self._outputs, checkpoint)
            await pages.start(checkpoint.offsets)
            while not self._is_stopping:
                await run.step()
            await run.commit()
        finally:
            self._pages = None
            await pages.aclose()
