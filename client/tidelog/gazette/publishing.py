"""The steps of publishing, which the asynchronous publisher and its twin share. Does no I/O and never waits.

The order of the steps is part of the contract. Source: Gazette's message package, file publisher.go.
"""

from collections.abc import Callable
from typing import Final, Generic
from uuid import UUID

from tidelog.gazette.append_queue import Handle, JournalQueue
from tidelog.gazette.framings.framing import FrameEncoder, frame_encoder, framing_by_content_type
from tidelog.gazette.messages import AckIntent, Journal, MappingFunc, Message, Validator
from tidelog.gazette.uuids import Clock, Flags, ProducerID, UUIDBuilder, build_uuid, new_producer_id

_ACK_TXN: Final = int(Flags.ACK_TXN)


class _Slot(Generic[Handle]):
    """What a publisher keeps of a journal.

    Attributes:
        queue: The exclusive append slot.
        content_type: Content type of the last message.
        encode: Encodes a message with the framing of that content type.
        is_outside: Whether the publisher publishes committed messages to the journal; otherwise transactions.
        acknowledgement: Message that will acknowledge the open transaction.
        intent: The acknowledgement that was built last, or no bytes.
    """

    __slots__ = ("acknowledgement", "content_type", "encode", "intent", "is_outside", "queue")

    def __init__(
        self, queue: JournalQueue[Handle], content_type: str, encode: FrameEncoder, *, is_outside: bool
    ) -> None:
        self.queue = queue
        self.content_type = content_type
        self.encode = encode
        self.is_outside = is_outside
        self.acknowledgement: Message | None = None
        self.intent = b""


class PublisherCore(Generic[Handle]):
    """Maps, sequences and frames messages, and adds them to the append slots of journals.

    Not thread-safe: the callers of a publisher, and all who append to its journals, hold one lock or use one thread.

    Attributes:
        producer_id: Identifies the publisher in the UUIDs of its messages.
        clock: Clock of the UUIDs.
    """

    def __init__(
        self,
        queue_of: Callable[[Journal], JournalQueue[Handle]],
        clock: Clock | None = None,
        producer_id: ProducerID | None = None,
    ) -> None:
        self.producer_id = new_producer_id() if producer_id is None else producer_id
        self.clock = Clock() if clock is None else clock
        self._owns_clock = clock is None
        self._queue_of = queue_of
        self._slots: dict[Journal, _Slot[Handle]] = {}
        # The journals of the open transaction, in the order of their first use.
        self._open: dict[Journal, _Slot[Handle]] = {}
        self._validates: dict[type, bool] = {}
        self._is_stamping = False
        self._uuid_outside = UUIDBuilder(self.producer_id, Flags.OUTSIDE_TXN).build
        self._uuid_within = UUIDBuilder(self.producer_id, Flags.CONTINUE_TXN).build

    def publish_committed(self, mapping: MappingFunc, message: Message) -> Handle:
        """Publish a message for immediate consumption, and return the append of its batch without waiting.

        The order of the steps: update the clock, validate the message, map it, look up the framing, and then without
        interruption tick the clock, set the UUID, and append the frame. So validation and mapping see no UUID yet.

        Raises:
            EmptyListResponseError: No journal matches the mapping: create one, or retry later.
            UnknownContentTypeError: The content type of the journal is not registered.
            FramingError: The message cannot be encoded. Nothing was appended.
            BufferFullError: There is no room: wait for ``room`` of the journal client. Nothing was appended.
            ProducerStoppedError: An earlier append to the journal failed. Nothing was appended.
            RuntimeError: The publisher has published uncommitted messages to the journal.
            Exception: What the message's validation, its encoding or the mapping raised. Nothing was appended.
        """
        if self._owns_clock:
            self.clock.update_to_now()
        if self._validates.get(type(message), True):
            self._validate(message)
        journal, content_type = mapping(message)
        slot = self._slots.get(journal)
        if slot is None or not slot.is_outside or slot.content_type != content_type:
            slot = self._slot(journal, content_type, is_outside=True)
        return self._stamped(slot, message, self._uuid_outside)

    def publish_uncommitted(self, mapping: MappingFunc, message: Message) -> Handle:
        """Publish a message in the open transaction; the first one begins it. Otherwise as ``publish_committed``.

        Raises:
            RuntimeError: The publisher has published committed messages to the journal; or the acknowledgement of the
                previous transaction is not appended to it.
            Exception: As ``publish_committed``.
        """
        if self._owns_clock:
            self.clock.update_to_now()
        if self._validates.get(type(message), True):
            self._validate(message)
        journal, content_type = mapping(message)
        slot = self._open.get(journal)
        if slot is not None and slot.content_type == content_type:
            return self._stamped(slot, message, self._uuid_within)
        slot = self._slot(journal, content_type, is_outside=False)
        if slot.intent in slot.queue.unwritten_intents:
            # Invariant (I3): the acknowledgement is added to the queue before any message of the next transaction. A
            # reader would discard a message before it, because its clock is larger.
            raise RuntimeError(
                f"the acknowledgement of the last transaction is not appended to {journal}: pass the result of "
                "build_ack_intents to append_ack_intents before the next transaction begins, or create a new publisher"
            )
        if journal not in self._open:
            slot.acknowledgement = message.new_acknowledgement(journal)
        handle = self._stamped(slot, message, self._uuid_within)
        # Only now: a message that was not accepted opens no transaction.
        self._open[journal] = slot
        return handle

    def build_ack_intents(self) -> list[AckIntent]:
        """End the open transaction, and return its acknowledgements, one for each journal, in order of first use.

        Persist all of them before the first is appended. Without that, a crash may leave the transaction acknowledged
        in some journals and not in others.

        Raises:
            Exception: An acknowledgement cannot be encoded. The transaction remains open.
        """
        intents = []
        for journal, slot in self._open.items():
            assert slot.acknowledgement is not None
            # Ordering: without an update from the wall clock. The clock of the messages continues, so it exceeds all.
            slot.acknowledgement.set_uuid(build_uuid(self.producer_id, self.clock.tick(), _ACK_TXN))
            intents.append(AckIntent(journal, slot.encode(slot.acknowledgement)))
        for slot, intent in zip(self._open.values(), intents, strict=True):
            slot.intent, slot.acknowledgement = intent.intent, None
            slot.queue.unwritten_intents.add(intent.intent)
        self._open = {}
        return intents

    def _validate(self, message: Message) -> None:
        """Validate a message, or remember that messages of its type do not validate themselves."""
        # An isinstance with a protocol takes longer than all other steps, so once for each type.
        if type(message) not in self._validates:
            self._validates[type(message)] = isinstance(message, Validator)
        if self._validates[type(message)]:
            message.validate()  # type: ignore[attr-defined]  # as checked above

    def _slot(self, journal: Journal, content_type: str, *, is_outside: bool) -> _Slot[Handle]:
        """Step 4: look up the framing, for the first message of a journal and when its content type has changed."""
        slot = self._slots.get(journal)
        if slot is None:
            encode = frame_encoder(framing_by_content_type(content_type))
            slot = _Slot(self._queue_of(journal), content_type, encode, is_outside=is_outside)
            self._slots[journal] = slot
        elif slot.is_outside != is_outside:
            # Invariant (I5): one producer publishes either committed or uncommitted messages to a journal. A reader
            # would discard the open transaction at a committed message.
            raise RuntimeError(
                f"this publisher publishes {'committed' if slot.is_outside else 'uncommitted'} messages to {journal}: "
                "use another publisher for the other kind"
            )
        elif slot.content_type != content_type:
            slot.encode = frame_encoder(framing_by_content_type(content_type))
            slot.content_type = content_type
        return slot

    def _stamped(self, slot: _Slot[Handle], message: Message, build: Callable[[int], UUID]) -> Handle:
        """Steps 5 to 8: enter the slot, tick the clock, set the UUID, add the frame.

        Invariant (I1): nothing is added to the queue between the tick and ``add``, so clocks are written in increasing
        order: the call never waits, other threads are kept out by the caller's lock, and a message that publishes
        while it is encoded is refused.
        """
        if self._is_stamping:
            raise RuntimeError("a message was published while another one is encoded: publish it before or afterwards")
        self._is_stamping = True
        try:
            message.set_uuid(build(self.clock.tick()))
            return slot.queue.add(slot.encode(message))
        finally:
            self._is_stamping = False
