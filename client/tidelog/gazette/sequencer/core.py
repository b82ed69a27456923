"""Read-uncommitted messages in, read-committed messages out: the rules, without any input or output (D-119).

The class is a state machine. A driver reads messages and queues them, takes the committed messages, and replays the
range that the machine asks for.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from tidelog.gazette.checkpoints import Checkpoint, JournalProducer, ProducerState
from tidelog.gazette.errors import MustStartReplayError, ReplayReaderError
from tidelog.gazette.messages import NO_BEGIN, Envelope, Journal, Offset, Offsets
from tidelog.gazette.sequencer.replay import check_replayed
from tidelog.gazette.sequencer.ring import NO_ENTRY, JournalState, Producer
from tidelog.gazette.sequencer.table import (
    CONTINUE_TXN,
    NODE_MASK,
    OUTSIDE_TXN,
    REST_MASK,
    TIME_LOW_MASK,
    TIME_LOW_SHIFT,
    DecisionTable,
)
from tidelog.gazette.uuids import CLOCK_UNITS_PER_SECOND, PRODUCER_ID_BYTES, ProducerID, get_clock
from tidelog.wire.durations import check_seconds

DEFAULT_RING_SIZE: Final = 8192


class StepSequencer(DecisionTable):
    """Sequences the messages of any number of journals and producers; not safe for concurrent use.

    Queue each message that was read, and call ``step`` until it returns ``False``; or let ``committed`` do both. A
    message outside of a transaction is delivered at once, the messages of a transaction when it is acknowledged, and
    duplicates never. The acknowledgement itself is delivered as the last message of its transaction. Messages of one
    producer do not wait for those of another.

    Held messages are in a ring. If the outcome of ``queue`` is ``ACK_COMMIT_REPLAY``, evicted ones must be read again:
    pass an iterator over ``replay_range`` to ``start_replay`` before the next ``step``. A driver that reads
    asynchronously passes each message of the range to ``step_replay`` instead, and then calls ``end_replay``.

    Args:
        offsets: Position at which reading of each journal resumes, from a checkpoint.
        states: State of each producer, from the same checkpoint.
        ring_size: Messages that the ring holds, over all journals and producers; at least 1.

    Attributes:
        dequeued: The message that was delivered last, until it is consumed; ``None`` if there is no such message.
        must_replay: A replay must be started before the next ``step``.
    """

    __slots__ = ("_replayed",)

    def __init__(
        self, offsets: Offsets | None = None, states: Iterable[ProducerState] = (), ring_size: int = DEFAULT_RING_SIZE
    ) -> None:
        super().__init__(offsets or {}, states, ring_size)
        self._replayed: Iterator[Envelope] | None = None

    # ------------------------------------------------------------------------------------------------ delivery

    def step(self) -> bool:
        """Consume the message in ``dequeued`` if there is one, and deliver the next committed one into it.

        Returns:
            Whether there is a message. ``False``: queue the next message that was read.

        Raises:
            MustStartReplayError: A replay of ``replay_range()`` must be started first.
            ReplayError: The replay failed, or read something else than ``replay_range()``. Start another one; what was
                delivered before is not delivered again.
        """
        self.consume()
        run = self._run
        if run is None:
            return False
        if self._single is not None:
            self.dequeued, self._single = self._single, None
            return True
        if self.must_replay:
            raise MustStartReplayError
        if self._replayed is not None and self._step_iterator(self._replayed):
            return True
        return self._step_ring(run)

    def consume(self) -> None:
        """Count the message in ``dequeued`` as consumed: a later checkpoint does not deliver it again.

        ``step`` calls it. Call it before a checkpoint that includes what was done with the message. Without a message
        in ``dequeued`` it does nothing.
        """
        run = self._run
        if run is None or self.dequeued is None:
            return
        self.dequeued = None
        run.min_clock = self._clock
        if self._is_span:
            if self._clock != run.max_clock:
                return
            # The acknowledgement is the last message of a span.
            self._drop_span(run)
            self._replayed, self.must_replay = None, False
        run.journal.read_through = self._run_end
        self._run = None

    @property
    def is_draining(self) -> bool:
        """Whether committed messages remain that ``step`` has not delivered."""
        run = self._run
        if run is None or self.dequeued is None:
            return run is not None
        return self._is_span and self._clock != run.max_clock

    def committed(self, envelopes: Iterator[Envelope]) -> Iterator[Envelope]:
        """Queue messages and yield the committed ones, as ``queue`` and ``step`` do, in less time per message.

        A message counts as consumed when the next one is taken, or after ``consume``. The iterator ends with
        ``envelopes``, or as soon as ``must_replay`` is set: replay, then pass the same ``envelopes`` again.

        Raises:
            ReplayError: As ``step``.
        """
        yield from self._drain()
        ring, spec = self._ring, None
        owners, size = ring.owners, len(ring.owners)
        journal = JournalState("")
        for envelope in envelopes:
            if envelope.journal is not spec:
                spec = envelope.journal
                journal = self._journal(spec.name)
            if owners[ring.head] is not None:
                self._vacate_head()
            bits: int = envelope.message.get_uuid().int
            known = journal.known.get(bits & REST_MASK)
            producer, base, flags = known or self._identify(journal, bits, envelope)
            clock = base | bits >> TIME_LOW_SHIFT & TIME_LOW_MASK
            if flags == OUTSIDE_TXN and producer.begin == NO_BEGIN and clock > producer.min_clock:
                head = ring.head + 1
                ring.head = head if head < size else 0
                producer.max_clock = self._clock = clock
                self._is_span, self._run_end, self._run = False, envelope.end, producer
                self.dequeued = envelope
                yield envelope
                if self.dequeued is not None:
                    self.dequeued = self._run = None
                    producer.min_clock = clock
                    journal.read_through = envelope.end
            elif flags == CONTINUE_TXN and producer.begin != NO_BEGIN and clock > producer.max_clock:
                producer.max_clock = clock
                journal.read_through = envelope.end
                ring.add(producer, envelope, clock)
            else:
                self._decide(producer, flags, clock, envelope)
                yield from self._drain()
                if self.must_replay:
                    return

    def _drain(self) -> Iterator[Envelope]:
        """Yield the rest of the run, or up to where a replay must be started."""
        if self._run is not None and self._is_span and not self.must_replay and self._replayed is None:
            yield from self._drain_ring(self._run)
        while not self.must_replay and self.step():
            assert self.dequeued is not None
            yield self.dequeued

    def _drain_ring(self, run: Producer) -> Iterator[Envelope]:
        """Yield the rest of a span from the ring, as ``step`` delivers it."""
        self.consume()
        ring = self._ring
        owners, envelopes, clocks, chain = ring.owners, ring.envelopes, ring.clocks, ring.chain
        while (index := run.first) != NO_ENTRY:
            # `Ring.take`, without the call; the end of the run resets the index of the last entry.
            envelope, clock = envelopes[index], clocks[index]
            owners[index] = envelopes[index] = None
            run.first = chain[index]
            if envelope is not None and run.min_clock < clock <= run.max_clock:
                self.dequeued, self._clock = envelope, clock
                run.begin = envelope.begin
                yield envelope
                if clock == run.max_clock or self._clock != clock:
                    # The end of the span, or the caller called `step`.
                    return
                run.min_clock = clock

    def _step_ring(self, run: Producer) -> bool:
        ring = self._ring
        while run.first != NO_ENTRY:
            envelope, clock = ring.take(run)
            if run.min_clock < clock <= run.max_clock:
                self._deliver(run, envelope, clock)
                return True
        raise AssertionError("the acknowledgement of a run is its last message")

    def _deliver(self, run: Producer, envelope: Envelope, clock: int) -> None:
        self.dequeued, self._clock = envelope, clock
        run.begin = envelope.begin

    # ------------------------------------------------------------------------------------------------ replay

    def replay_range(self) -> tuple[Journal, Offset, Offset]:
        """Return the journal and the half-open range of positions to replay.

        Raises:
            RuntimeError: No replay is required.
        """
        run = self._run
        if run is None or not self.must_replay:
            raise RuntimeError("no replay is required: call this while must_replay is set")
        return run.journal.name, run.begin, self._ring.first_begin(run)

    def start_replay(self, replayed: Iterator[Envelope]) -> None:
        """Take the messages of ``replay_range()`` from ``replayed``; ``step`` reads it.

        Raises:
            RuntimeError: No replay is required.
        """
        self.replay_range()
        self._replayed, self.must_replay = replayed, False

    def step_replay(self, envelope: Envelope) -> bool:
        """Consume the message in ``dequeued``, and deliver a replayed message if it belongs to the run.

        A driver that reads asynchronously calls it with each message of ``replay_range()``, and ``end_replay`` at the
        end. After a failed read it calls ``replay_range`` again, and resumes with the messages of that range.

        Returns:
            Whether there is a message in ``dequeued``.

        Raises:
            RuntimeError: No replay is required.
            ReplayError: The message is outside of the range.
        """
        self.consume()
        journal, begin, end = self.replay_range()
        run = self._run
        assert run is not None
        check_replayed(envelope, journal, begin, end)
        uuid = envelope.message.get_uuid()
        clock = get_clock(uuid)
        if uuid.int & NODE_MASK != run.node or not run.min_clock < clock <= run.max_clock:
            return False
        self._deliver(run, envelope, clock)
        return True

    def end_replay(self) -> None:
        """Take the rest of the run from the ring; ``step`` delivers it.

        Raises:
            RuntimeError: No replay is required.
        """
        self.replay_range()
        self.must_replay = False

    def _step_iterator(self, replayed: Iterator[Envelope]) -> bool:
        """Deliver the next message of a replay; if it fails, another replay must be started."""
        self._replayed, self.must_replay = None, True
        while (envelope := _next_replayed(replayed)) is not None:
            if self.step_replay(envelope):
                self._replayed, self.must_replay = replayed, False
                return True
        self.must_replay = False
        return False

    # ------------------------------------------------------------------------------------------------ checkpoints

    def checkpoint(self, prune_horizon_s: float = 0.0) -> Checkpoint:
        """Return the state from which another sequencer resumes, without acknowledgements; clear ``has_pending``.

        It may be taken at any time. A message in ``dequeued`` counts as not consumed: the other sequencer delivers it.

        Args:
            prune_horizon_s: Forget producers whose clock is this much behind the largest one that was acknowledged in
                their journal; 0 forgets no producer. A later message of one counts as that of a new producer.

        Raises:
            TypeError, ValueError: ``prune_horizon_s`` is no number, negative, not finite or above 100 years.
        """
        self._prune(check_seconds("prune_horizon_s", prune_horizon_s))
        self._pending.clear()
        return Checkpoint(
            {each.name: each.read_through for each in self._journals.values() if each.read_through != NO_BEGIN},
            tuple(self._states()),
        )

    def has_pending(self) -> bool:
        """Return whether a transaction began since the last checkpoint and is open: its end is expected soon."""
        return bool(self._pending)

    def has_pending_since(self, since: Offsets) -> bool:
        """Return whether a transaction is open that began at its journal's position in ``since`` or later.

        A journal that ``since`` does not have counts from position 0. The time is proportional to the producers.
        """
        return any(
            producer.begin != NO_BEGIN and producer.begin >= since.get(journal.name, 0)
            for journal in self._journals.values()
            for producer in journal.producers.values()
        )

    def _states(self) -> Iterator[ProducerState]:
        for journal in self._journals.values():
            for node, each in journal.producers.items():
                producer = ProducerID(node.to_bytes(PRODUCER_ID_BYTES, "big"))
                newest = 0 if each.begin == NO_BEGIN or each.is_age_unknown else each.newest_clock
                yield ProducerState(JournalProducer(journal.name, producer), each.min_clock, each.begin, newest)

    def _prune(self, horizon_s: float) -> None:
        if not horizon_s:
            return
        for journal in self._journals.values():
            newest = max((each.min_clock for each in journal.producers.values()), default=0)
            limit = newest - int(horizon_s * CLOCK_UNITS_PER_SECOND)
            for each in journal.producers.values():
                if each.is_age_unknown:
                    # The transaction counts as written now: to forget it would lose its first messages once its
                    # acknowledgement is read, because a checkpoint lies between them.
                    each.restored_clock = newest
            old = [each for each in journal.producers.values() if each.newest_clock < limit and each is not self._run]
            for each in old:
                self._drop_span(each)
                del journal.producers[each.node]
            if old:
                journal.known.clear()


def _next_replayed(replayed: Iterator[Envelope]) -> Envelope | None:
    try:
        return next(replayed, None)
    except Exception as error:
        # The iterator is the caller's, so its errors are of any class; this one names them and keeps them as the cause.
        raise ReplayReaderError(f"replay reader: {error}") from error
