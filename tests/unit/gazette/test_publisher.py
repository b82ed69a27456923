"""The publisher: the order of its steps, its acknowledgements, and the invariants that readers depend on.

The append slots are those of the append service, without a server.
"""

import json
import time
from concurrent.futures import Future
from typing import Self
from uuid import UUID

import pytest

from tidelog import AppendResult, Tick
from tidelog.append.sender import Room
from tidelog.errors import BufferFullError
from tidelog.gazette.append_queue import AppendHandle, JournalQueue
from tidelog.gazette.errors import EmptyListResponseError, FramingError, UnknownContentTypeError
from tidelog.gazette.messages import AckIntent, Journal, Mappable
from tidelog.gazette.publishing import PublisherCore
from tidelog.gazette.uuids import NIL_UUID, Clock, Flags, ProducerID, clock_at, get_clock, get_flags, get_producer_id
from tidelog_testing.parts.journal_messages import JSON_LINES, Note, note, to

A, B = "a/journal", "b/journal"
PRODUCER = ProducerID(bytes.fromhex("0123456789ab"))


class Slots:
    """The append slots of any journals, and the frames in them."""

    def __init__(self, limit_bytes: int = 1 << 30) -> None:
        self.queues: dict[Journal, JournalQueue[AppendHandle]] = {}
        self._room = Room(limit_bytes)

    def queue_of(self, journal: Journal) -> JournalQueue[AppendHandle]:
        if journal not in self.queues:
            self.queues[journal] = JournalQueue(
                journal, self._room, lambda: AppendHandle(journal, Future()), lambda: None
            )
        return self.queues[journal]

    def frames(self, journal: Journal) -> list[bytes]:
        """Return the frames that were added since the last call, and answer them."""
        found = []
        for batch in self.queues[journal].ready():
            batch.seal()
            found += [frame for frame in batch.messages if isinstance(frame, bytes)]
            batch.succeed(AppendResult(Tick(1), Tick(batch.count), "os"))
        return found

    def uuids(self, journal: Journal) -> list[UUID]:
        return [UUID(json.loads(frame)["uuid"]) for frame in self.frames(journal)]

    def acknowledge(self, intents: list[AckIntent]) -> None:
        for intent in intents:
            self.queues[intent.journal].add_first(intent.intent)


def a_publisher(slots: Slots, clock: Clock | None = None) -> PublisherCore[AppendHandle]:
    return PublisherCore(slots.queue_of, clock, PRODUCER)


def test_committed_messages_carry_the_producer_the_flag_and_rising_clocks() -> None:
    slots = Slots()
    publisher = a_publisher(slots, Clock(1_600))
    for text in ("one", "two"):
        publisher.publish_committed(to(A), note(text))

    uuids = slots.uuids(A)

    assert [(get_producer_id(uuid), get_flags(uuid), get_clock(uuid)) for uuid in uuids] == [
        (PRODUCER, Flags.OUTSIDE_TXN, 1_760),
        (PRODUCER, Flags.OUTSIDE_TXN, 1_920),
    ]


def test_a_clock_of_the_publisher_follows_the_time_and_a_given_one_does_not() -> None:
    slots = Slots()
    before = clock_at(time.time_ns())
    a_publisher(slots).publish_committed(to(A), note("now"))
    a_publisher(slots, Clock(0)).publish_committed(to(A), note("then"))

    now, then = map(get_clock, slots.uuids(A))

    assert before < now <= clock_at(time.time_ns()) + 160
    assert then == 160


class Watched(Note):
    """Records the steps of publishing, and whether the UUID was set by then."""

    def __init__(self, steps: list[str]) -> None:
        super().__init__()
        self._steps = steps

    def record(self, step: str) -> None:
        self._steps.append(f"{step} {'without' if self.get_uuid() == NIL_UUID else 'with'} UUID")

    def validate(self) -> None:
        self.record("validate")

    def marshal_json_to(self, writer: object) -> None:
        self.record("marshal")


class WatchedClock(Clock):
    """Records updates and ticks."""

    __slots__ = ("steps",)

    def __init__(self, steps: list[str]) -> None:
        super().__init__()
        self.steps = steps

    def tick(self) -> int:
        self.steps.append("tick")
        return super().tick()


def test_the_steps_have_the_documented_order() -> None:
    steps: list[str] = []
    message = Watched(steps)

    def mapped(mappable: Mappable) -> tuple[Journal, str]:
        assert mappable is message
        message.record("map")
        return A, JSON_LINES

    class WatchedSlots(Slots):
        def queue_of(self, journal: Journal) -> JournalQueue[AppendHandle]:
            steps.append("enter the slot")
            return super().queue_of(journal)

    a_publisher(WatchedSlots(), WatchedClock(steps)).publish_committed(mapped, message)

    assert steps == [
        "validate without UUID", "map without UUID", "enter the slot", "tick", "marshal with UUID",
    ]  # fmt: skip


class Invalid(Note):
    def validate(self) -> None:
        raise ValueError("the text is missing")


def test_an_invalid_message_is_not_mapped() -> None:
    def unreachable(mappable: Mappable) -> tuple[Journal, str]:
        raise AssertionError("the mapping must not be called")

    with pytest.raises(ValueError, match="the text is missing"):
        a_publisher(Slots()).publish_committed(unreachable, Invalid())


def test_an_error_of_the_mapping_and_an_unknown_framing_spend_no_tick() -> None:
    def nowhere(mappable: Mappable) -> tuple[Journal, str]:
        raise EmptyListResponseError

    slots, clock = Slots(), Clock(0)
    publisher = a_publisher(slots, clock)
    for publish in (publisher.publish_committed, publisher.publish_uncommitted):
        with pytest.raises(EmptyListResponseError, match="empty ListResponse"):
            publish(nowhere, note("x"))
        with pytest.raises(UnknownContentTypeError, match=r"unrecognized content-type \(some/thing\)"):
            publish(to(A, "some/thing"), note("x"))

    assert (clock.value, slots.queues, publisher.build_ack_intents()) == (0, {}, [])


def test_a_message_that_cannot_be_encoded_appends_nothing_and_spends_its_tick() -> None:
    slots, clock = Slots(), Clock(0)
    publisher = a_publisher(slots, clock)
    publisher.publish_committed(to(A), note("before"))
    with pytest.raises(FramingError):
        publisher.publish_committed(to(A), Note(text=object()))
    publisher.publish_committed(to(A), note("after"))

    assert [get_clock(uuid) for uuid in slots.uuids(A)] == [160, 480]


def test_a_message_without_room_opens_no_transaction() -> None:
    slots = Slots(limit_bytes=200)
    publisher = a_publisher(slots)
    publisher.publish_uncommitted(to(A), note("x"))
    with pytest.raises(BufferFullError, match=r"wait for room\(\)"):
        publisher.publish_uncommitted(to(B), note("x"))

    assert [intent.journal for intent in publisher.build_ack_intents()] == [A]


def test_each_journal_of_a_transaction_gets_one_acknowledgement_in_the_order_of_first_use() -> None:
    slots, clock = Slots(), Clock(0)
    publisher = a_publisher(slots, clock)
    for journal in (B, A, B, A):
        publisher.publish_uncommitted(to(journal), note("x"))

    intents = publisher.build_ack_intents()

    assert [intent.journal for intent in intents] == [B, A]
    acks = [json.loads(intent.intent) for intent in intents]
    assert all(set(ack) == {"uuid"} for ack in acks)
    uuids = [UUID(ack["uuid"]) for ack in acks]
    assert [(get_flags(uuid), get_clock(uuid)) for uuid in uuids] == [(Flags.ACK_TXN, 800), (Flags.ACK_TXN, 960)]
    assert [get_flags(uuid) for uuid in slots.uuids(A) + slots.uuids(B)] == [Flags.CONTINUE_TXN] * 4
    assert publisher.build_ack_intents() == []


def test_an_acknowledgement_exceeds_all_clocks_of_its_transaction_although_the_time_went_back() -> None:
    slots, clock = Slots(), Clock(1_000_000)
    publisher = a_publisher(slots, clock)
    publisher.publish_uncommitted(to(A), note("x"))
    clock.update(0)
    (intent,) = publisher.build_ack_intents()

    assert get_clock(UUID(json.loads(intent.intent)["uuid"])) > get_clock(slots.uuids(A)[0])


def test_an_acknowledgement_that_cannot_be_built_leaves_the_transaction_open() -> None:
    class Hopeless(Note):
        def new_acknowledgement(self, journal: Journal) -> Self:
            return type(self)(text=object())

    publisher = a_publisher(Slots())
    publisher.publish_uncommitted(to(A), Hopeless())
    for _ in range(2):
        with pytest.raises(FramingError):
            publisher.build_ack_intents()


def test_clocks_are_written_in_rising_order_also_if_a_mapping_publishes() -> None:
    """Invariant I1: a UUID that was built before the slot was entered would have the smaller clock of the two."""
    slots = Slots()
    publisher = a_publisher(slots, Clock(0))

    def publishes(mappable: Mappable) -> tuple[Journal, str]:
        publisher.publish_committed(to(A), note("inside"))
        return A, JSON_LINES

    publisher.publish_committed(publishes, note("outside"))

    assert [get_clock(uuid) for uuid in slots.uuids(A)] == [160, 320]


def test_a_message_that_publishes_while_it_is_encoded_is_refused() -> None:
    """Invariant I1: its frame would be added after one with a larger clock."""
    publisher = a_publisher(Slots())

    class Nested(Note):
        def marshal_json_to(self, writer: object) -> None:
            publisher.publish_committed(to(A), note("inside"))

    with pytest.raises(RuntimeError, match="while another one is encoded"):
        publisher.publish_committed(to(A), Nested())
    publisher.publish_committed(to(A), note("later"))


def test_no_message_of_the_next_transaction_goes_before_the_acknowledgement() -> None:
    """Invariant I3: a reader would discard such a message, because its clock exceeds that of the acknowledgement."""
    slots = Slots()
    publisher = a_publisher(slots)
    publisher.publish_uncommitted(to(A), note("first"))
    intents = publisher.build_ack_intents()

    with pytest.raises(RuntimeError, match="is not appended to a/journal"):
        publisher.publish_uncommitted(to(A), note("second"))
    publisher.publish_uncommitted(to(B), note("elsewhere"))
    slots.acknowledge(intents)
    publisher.publish_uncommitted(to(A), note("second"))

    assert list(map(get_flags, slots.uuids(A))) == [Flags.CONTINUE_TXN, Flags.ACK_TXN, Flags.CONTINUE_TXN]


def test_another_publisher_need_not_wait_for_that_acknowledgement() -> None:
    slots = Slots()
    first, second = a_publisher(slots), PublisherCore(slots.queue_of)
    first.publish_uncommitted(to(A), note("first"))
    first.build_ack_intents()

    second.publish_uncommitted(to(A), note("second"))


@pytest.mark.parametrize("first", ["publish_committed", "publish_uncommitted"])
def test_a_producer_does_not_mix_both_kinds_in_one_journal(first: str) -> None:
    """Invariant I5: a reader would discard the open transaction at the committed message."""
    other = {"publish_committed": "publish_uncommitted", "publish_uncommitted": "publish_committed"}[first]
    publisher = a_publisher(Slots())
    getattr(publisher, first)(to(A), note("x"))

    with pytest.raises(RuntimeError, match="use another publisher for the other kind"):
        getattr(publisher, other)(to(A), note("y"))
    getattr(publisher, other)(to(B), note("y"))


def test_a_journal_may_change_its_content_type() -> None:
    from tidelog.gazette.framings.framing import register_framing
    from tidelog.gazette.framings.json_framing import JSONFraming

    class Escaped(JSONFraming):
        content_type = "application/x-test-escaped"  # type: ignore[misc]  # a framing of its own

    register_framing(Escaped(go_escapes=True))
    slots = Slots()
    publisher = a_publisher(slots)
    for content_type in (JSON_LINES, Escaped.content_type):
        publisher.publish_committed(to(A, content_type), note("<"))

    assert [b"\\u003c" in frame for frame in slots.frames(A)] == [False, True]
