"""What each message that was read does to the state of its producer: the decision table of a sequencer.

Source: Gazette's message package, file sequencer.go, in the form since September 2021.
"""

import logging
from collections.abc import Iterable
from typing import Final

from tidelog.gazette.checkpoints import ProducerState
from tidelog.gazette.messages import NO_BEGIN, Envelope, Journal, Offset, Offsets
from tidelog.gazette.sequencer.outcomes import Outcome
from tidelog.gazette.sequencer.ring import JournalState, Producer, Ring
from tidelog.gazette.uuids import Flags

_log: Final = logging.getLogger("tidelog")

NODE_MASK: Final = (1 << 48) - 1
# Of a UUID's 128 bits the upper 32 are the low bits of the time. The others rarely differ from those of an earlier
# message of the producer with the same flags, so what follows from them is looked up: 5 operations instead of 15.
REST_MASK: Final = (1 << 96) - 1
TIME_LOW_SHIFT: Final = 92
TIME_LOW_MASK: Final = 0xFFFFFFFF0
_MAX_KNOWN: Final = 4096
OUTSIDE_TXN: Final = int(Flags.OUTSIDE_TXN)
CONTINUE_TXN: Final = int(Flags.CONTINUE_TXN)
ACK_TXN: Final = int(Flags.ACK_TXN)


class DecisionTable:
    """The state of all producers, and the committed run that the last message completed.

    Attributes:
        dequeued: The message that was delivered last, until it is consumed; ``None`` if there is no such message.
        must_replay: A replay must be started before the run can be delivered.
    """

    __slots__ = (
        "_clock",
        "_is_span",
        "_journals",
        "_pending",
        "_ring",
        "_run",
        "_run_end",
        "_single",
        "_unknown_flags",
        "dequeued",
        "must_replay",
    )

    def __init__(self, offsets: Offsets, states: Iterable[ProducerState], ring_size: int) -> None:
        self._ring = Ring(ring_size)
        self._journals = {name: JournalState(name, offset) for name, offset in offsets.items()}
        for state in states:
            journal, node = self._journal(state.journal), int.from_bytes(state.producer, "big")
            journal.producers[node] = Producer(journal, node, state.last_ack, state.begin, state.max_clock)
        # Producers with a span that began since the last checkpoint.
        self._pending: set[Producer] = set()
        self._unknown_flags: set[int] = set()
        self.must_replay = False
        # The run: its producer, whether it is a span, and the position after it.
        self._run: Producer | None = None
        self._is_span = False
        self._run_end: Offset = NO_BEGIN
        # The message of a run that is not a span, until it is delivered.
        self._single: Envelope | None = None
        # The delivered message, with the clock that it had when it was queued: an application may change its UUID.
        self.dequeued: Envelope | None = None
        self._clock = 0

    def queue(self, envelope: Envelope) -> Outcome:
        """Apply the next message that was read; messages of a journal come in the order of their positions.

        Raises:
            RuntimeError: Committed messages remain to step over.
        """
        if self._run is not None:
            raise RuntimeError("committed messages remain: call step until it returns False, then queue a message")
        self._vacate_head()
        bits: int = envelope.message.get_uuid().int
        name = envelope.journal.name
        journal = self._journals.get(name) or self._journal(name)
        producer, base, flags = journal.known.get(bits & REST_MASK) or self._identify(journal, bits, envelope)
        return self._decide(producer, flags, base | bits >> TIME_LOW_SHIFT & TIME_LOW_MASK, envelope)

    def _vacate_head(self) -> None:
        """Empty the entry at the head of the ring.

        Ordering: this is done before a message is examined, also if it is a duplicate. Replay ranges depend on it.
        """
        owner = self._ring.owners[self._ring.head]
        if owner is not None:
            self._ring.take(owner)

    def _identify(self, journal: JournalState, bits: int, envelope: Envelope) -> tuple[Producer, int, int]:
        """Return the producer of a UUID, its clock without the bits of ``TIME_LOW_MASK``, and its flags."""
        high, flags = bits >> 58, bits >> 48 & 0x3FF
        base = (high & 0x3FFC0) << 46 | (high & 0x3FFFC00000) << 14 | high & 0xF
        clock = base | bits >> TIME_LOW_SHIFT & TIME_LOW_MASK
        if not clock:
            # A message without a clock has no place in an order: it is delivered, and changes no producer.
            return Producer(journal, 0, -1), 0, OUTSIDE_TXN
        if flags > ACK_TXN:
            self._report_flags(flags, envelope)
            flags = OUTSIDE_TXN
        node = bits & NODE_MASK
        producer = journal.producers.get(node)
        if producer is None:
            producer = journal.producers[node] = Producer(journal, node, clock - 1)
        if base:
            if len(journal.known) >= _MAX_KNOWN:
                journal.known.clear()
            journal.known[bits & REST_MASK] = producer, base, flags
        return producer, base, flags

    def _decide(self, producer: Producer, flags: int, clock: int, envelope: Envelope) -> Outcome:
        if flags == CONTINUE_TXN:
            return self._continue(producer, envelope, clock)
        if flags == ACK_TXN:
            return self._acknowledge(producer, envelope, clock)
        if clock <= producer.min_clock:
            producer.journal.read_through = envelope.end
            return Outcome.OUTSIDE_ALREADY_ACKED
        if producer.begin != NO_BEGIN:
            _log.error(
                "producer %012x mixes messages inside and outside of transactions in journal %s: its messages from "
                "position %d to %d are discarded; use one publisher for each kind",
                producer.node, producer.journal.name, producer.begin, envelope.begin,
            )  # fmt: skip
            self._drop_span(producer)
        self._emit_single(producer, envelope, clock)
        return Outcome.OUTSIDE_COMMIT

    def _continue(self, producer: Producer, envelope: Envelope, clock: int) -> Outcome:
        producer.journal.read_through = envelope.end
        if clock <= producer.max_clock:
            if clock <= producer.min_clock:
                return Outcome.CONTINUE_ALREADY_ACKED
            return Outcome.CONTINUE_TXN_CLOCK_LARGER
        producer.max_clock = clock
        self._ring.add(producer, envelope, clock)
        if producer.begin != NO_BEGIN:
            return Outcome.CONTINUE_EXTEND_SPAN
        producer.begin = envelope.begin
        self._pending.add(producer)
        return Outcome.CONTINUE_BEGIN_SPAN

    def _acknowledge(self, producer: Producer, envelope: Envelope, clock: int) -> Outcome:
        if clock <= producer.min_clock:
            self._roll_back(producer, envelope, clock)
            return Outcome.ACK_ROLLBACK
        if producer.begin == NO_BEGIN:
            self._emit_single(producer, envelope, clock)
            return Outcome.ACK_EMPTY
        self.must_replay = self._ring.first_begin(producer) != producer.begin
        producer.max_clock = clock
        self._ring.add(producer, envelope, clock)
        self._run, self._run_end, self._is_span = producer, envelope.end, True
        return Outcome.ACK_COMMIT_REPLAY if self.must_replay else Outcome.ACK_COMMIT_RING

    def _roll_back(self, producer: Producer, envelope: Envelope, clock: int) -> None:
        if clock < producer.min_clock:
            _log.error(
                "producer %012x goes back in journal %s from clock %d to %d: its messages in between are delivered "
                "again if they are appended again; a publisher must persist acknowledgements before it appends them",
                producer.node, producer.journal.name, producer.min_clock, clock,
            )  # fmt: skip
        self._drop_span(producer)
        # The largest clock goes back too: a repeated append of (acknowledgement, messages) rolls the messages back,
        # and its copies of them must count as new.
        producer.min_clock = producer.max_clock = clock
        producer.journal.read_through = envelope.end

    def _emit_single(self, producer: Producer, envelope: Envelope, clock: int) -> None:
        """Make one message the run; its entry of the ring stays empty, because it is delivered before the next."""
        producer.max_clock = clock
        ring = self._ring
        ring.head = ring.head + 1 if ring.head + 1 < len(ring.owners) else 0
        self._single, self._clock = envelope, clock
        self._run, self._run_end, self._is_span = producer, envelope.end, False

    def _drop_span(self, producer: Producer) -> None:
        self._ring.drop(producer)
        producer.begin = NO_BEGIN
        self._pending.discard(producer)

    def _journal(self, name: Journal) -> JournalState:
        return self._journals.setdefault(name, JournalState(name))

    def _report_flags(self, flags: int, envelope: Envelope) -> None:
        """Report a value of flags once: a foreign producer may use it in every message."""
        if flags not in self._unknown_flags:
            self._unknown_flags.add(flags)
            _log.error(
                "flags %#x at position %d of journal %s are unknown, expected 0, 1 or 2: messages with them are "
                "delivered at once; the value is reported once",
                flags, envelope.begin, envelope.journal.name,
            )  # fmt: skip
