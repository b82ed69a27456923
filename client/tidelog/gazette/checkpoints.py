"""What a consumer commits together with its state: positions, states of producers, and acknowledgements to append.

The serialized form is ``GazetteCheckpoint`` of proto/tidelog/v1/gazette_checkpoint.proto.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.message import DecodeError

from tidelog.gazette.messages import NO_BEGIN, AckIntent, Journal, Offset, Offsets
from tidelog.gazette.uuids import ProducerID
from tidelog.v1 import gazette_checkpoint_pb2 as pb

FORM_VERSION: Final = 1


@dataclass(frozen=True, slots=True, order=True)
class JournalProducer:
    """A producer in one journal.

    Attributes:
        journal: Name of the journal.
        producer: Id of the producer.
    """

    journal: Journal
    producer: ProducerID


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a read-committed reader knows of a producer in one journal.

    Attributes:
        journal_producer: The journal and the producer.
        last_ack: Clock of the last message that was acknowledged and delivered.
        begin: Position of the first message whose clock is larger, or ``NO_BEGIN``.
        max_clock: Largest clock that was read of the messages from ``begin`` on, which is the age of an open
            transaction; 0 without ``begin``, or if it is not known.
    """

    journal_producer: JournalProducer
    last_ack: int
    begin: Offset
    max_clock: int = 0

    @property
    def journal(self) -> Journal:
        """Name of the journal."""
        return self.journal_producer.journal

    @property
    def producer(self) -> ProducerID:
        """Id of the producer."""
        return self.journal_producer.producer


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a consumer commits together with its state.

    Attributes:
        offsets: Position at which reading of each journal resumes.
        states: State of each producer in each journal.
        intents: Acknowledgements to append after the commit, and again at the next start.
    """

    offsets: Offsets = field(default_factory=dict)
    states: tuple[ProducerState, ...] = ()
    intents: tuple[AckIntent, ...] = ()

    def begins(self) -> dict[Journal, Offset]:
        """Return, for each journal, the position before which nothing is read again, also by replays."""
        begins = dict(self.offsets)
        for state in self.states:
            if state.begin != NO_BEGIN:
                begins[state.journal] = min(state.begin, begins.get(state.journal, state.begin))
        return begins

    def encode(self) -> bytes:
        """Return the serialized form; equal checkpoints have equal bytes.

        States are in the order of ``JournalProducer``, so a decoded checkpoint has its states in that order.
        """
        states: dict[Journal, list[ProducerState]] = {journal: [] for journal in self.offsets}
        for state in sorted(self.states, key=lambda each: each.journal_producer):
            states.setdefault(state.journal, []).append(state)
        form = pb.GazetteCheckpoint(
            version=FORM_VERSION,
            journals=[_journal_form(journal, self.offsets, states[journal]) for journal in sorted(states)],
            intents=[pb.GazetteAckIntent(journal=each.journal, intent=each.intent) for each in self.intents],
        )
        return form.SerializeToString(deterministic=True)

    @classmethod
    def decode(cls, data: bytes) -> "Checkpoint":
        """Return the checkpoint of a serialized form.

        Raises:
            ValueError: ``data`` is not a checkpoint, or one of a version that this release does not know.
        """
        try:
            form = pb.GazetteCheckpoint.FromString(data)
        except DecodeError as error:
            raise ValueError(f"{len(data)} bytes are not a checkpoint: {error}; pass what encode returned") from error
        if form.version != FORM_VERSION:
            raise ValueError(
                f"the checkpoint has version {form.version}, expected {FORM_VERSION}; "
                "pass what encode returned, and use a release that knows the version"
            )
        return cls(
            offsets={each.journal: each.read_through for each in form.journals if each.HasField("read_through")},
            states=tuple(state for each in form.journals for state in _states_of(each)),
            intents=tuple(AckIntent(each.journal, each.intent) for each in form.intents),
        )


def _journal_form(
    journal: Journal, offsets: Mapping[Journal, Offset], states: Sequence[ProducerState]
) -> pb.GazetteJournalCheckpoint:
    return pb.GazetteJournalCheckpoint(
        journal=journal,
        read_through=offsets.get(journal),
        producers=[
            pb.GazetteProducerState(
                producer=bytes(each.producer),
                last_ack=each.last_ack,
                begin=None if each.begin == NO_BEGIN else each.begin,
                max_clock=each.max_clock or None,
            )
            for each in states
        ],
    )


def _states_of(form: pb.GazetteJournalCheckpoint) -> list[ProducerState]:
    return [
        ProducerState(
            JournalProducer(form.journal, ProducerID(each.producer)),
            each.last_ack,
            each.begin if each.HasField("begin") else NO_BEGIN,
            each.max_clock,
        )
        for each in form.producers
    ]
