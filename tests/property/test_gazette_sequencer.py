"""A sequencer delivers each committed message once, in order, whatever its ring, its checkpoints and the repeats.

Method: random journals that satisfy the rules for appends, of several producers and with repeated appends, against what
their publishers committed. A consumer reads them through a sequencer with a random ring, fails at random moments, and
resumes from its last checkpoint with another ring. What it delivered since that checkpoint is undone, as by the
transaction of a store. Each interface of the sequencer is used.
"""

from collections.abc import Callable, Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog.gazette import Checkpoint, Envelope
from tidelog.gazette.errors import MustStartReplayError, ReplayReaderError
from tidelog.gazette.sequencer import Outcome, Sequencer, StepSequencer
from tidelog.gazette.uuids import CLOCK_UNITS_PER_SECOND
from tidelog_testing.oracles.gazette_streams import Key, Streams, key, with_pauses, write_streams
from tidelog_testing.parts.soaks import soak

MESSAGES = 24
EXAMPLES, SOAK_EXAMPLES = 200, 5_000
RING_SIZES = (1, 1, 2, 3, 5, 8, 64)
# Clock units that no stream lasts without a pause.
HORIZON = 10_000
# A seed, and not `st.randoms`: that one prefers extreme numbers, with which checkpoints rarely fall between repeats.
SEEDS = st.integers(0, 2**64 - 1)


class FailedError(Exception):
    """The consumer failed."""


class Consumer:
    """A consumer with a store: what it delivered, and the checkpoint that was committed together with it."""

    def __init__(self, streams: Streams, chance: Random, failures: int, horizon_s: float = 0.0) -> None:
        self.streams = streams
        self.chance = chance
        self.failures = failures
        self.horizon_s = horizon_s
        self.checkpoint = Checkpoint()
        self.committed: dict[str, list[Key]] = {name: [] for name in streams.journals}
        self.delivered: list[Envelope] = []
        self.offsets: dict[str, int] = {}

    def may_fail(self, probability: float = 0.1) -> None:
        if self.failures and self.chance.random() < probability:
            self.failures -= 1
            raise FailedError

    def deliver(self, sequencer: StepSequencer) -> None:
        """Take the message, and commit before it, after it, or later."""
        assert sequencer.dequeued is not None
        self.may_fail()
        delivered = sequencer.dequeued
        self.may_commit(sequencer)
        self.delivered.append(delivered)
        if self.chance.random() < 0.1:
            sequencer.consume()
            self.commit(sequencer)

    def may_commit(self, sequencer: StepSequencer) -> None:
        if self.chance.random() < 0.1:
            self.commit(sequencer)
            self.may_fail(0.5)

    def commit(self, sequencer: StepSequencer) -> None:
        checkpoint = sequencer.checkpoint(self.horizon_s)
        self.checkpoint = Checkpoint.decode(checkpoint.encode())
        for each in self.delivered:
            self.committed[each.journal.name].append(key(each))
        self.delivered.clear()

    def read(self, offsets: dict[str, int]) -> Iterator[Envelope]:
        """Read the journals from their offsets, in a random interleaving."""
        unread = {name: list(self.streams.read(name, offsets.get(name, 0), 1 << 62)) for name in self.streams.journals}
        while unread := {name: left for name, left in unread.items() if left}:
            yield unread[self.chance.choice(sorted(unread))].pop(0)

    def replay(self, journal: str, begin: int, end: int) -> Iterator[Envelope]:
        """Read a range, or fail on the way."""
        for each in self.streams.read(journal, begin, end):
            if self.chance.random() < 0.05:
                raise OSError("broken")
            yield each

    def run(self, run_once: Callable[["Consumer"], None]) -> dict[str, list[Key]]:
        while True:
            try:
                run_once(self)
            except FailedError:
                self.delivered.clear()
            else:
                return self.committed


def step_all(consumer: Consumer, sequencer: StepSequencer) -> None:
    while True:
        try:
            if not sequencer.step():
                return
        except (MustStartReplayError, ReplayReaderError):
            assert sequencer.must_replay
            sequencer.start_replay(consumer.replay(*sequencer.replay_range()))
        else:
            consumer.deliver(sequencer)


def with_steps(consumer: Consumer) -> None:
    restored = consumer.checkpoint
    sequencer = StepSequencer(restored.offsets, restored.states, consumer.chance.choice(RING_SIZES))
    for message in consumer.read(dict(restored.offsets)):
        consumer.may_commit(sequencer)
        consumer.may_fail()
        outcome = sequencer.queue(message)
        assert sequencer.must_replay == (outcome == Outcome.ACK_COMMIT_REPLAY)
        step_all(consumer, sequencer)
    consumer.commit(sequencer)


def push_replay(consumer: Consumer, sequencer: StepSequencer) -> None:
    """Replay as an asynchronous driver does, which reads the range again after a failure."""
    while sequencer.must_replay:
        try:
            for each in consumer.replay(*sequencer.replay_range()):
                if sequencer.step_replay(each):
                    consumer.deliver(sequencer)
        except OSError:
            continue
        sequencer.end_replay()


def with_pages(consumer: Consumer) -> None:
    restored = consumer.checkpoint
    sequencer = StepSequencer(restored.offsets, restored.states, consumer.chance.choice(RING_SIZES))
    messages = list(consumer.read(dict(restored.offsets)))
    while messages:
        size = consumer.chance.randint(1, 9)
        page, messages = iter(messages[:size]), messages[size:]
        is_read = False
        while not is_read:
            sequencer.consume()
            consumer.may_commit(sequencer)
            consumer.may_fail()
            for each in sequencer.committed(page):
                assert each is sequencer.dequeued
                consumer.deliver(sequencer)
            is_read = not sequencer.must_replay
            push_replay(consumer, sequencer)
    assert list(sequencer.committed(iter(()))) == []
    consumer.commit(sequencer)


def with_older_interface(consumer: Consumer) -> None:
    """Commit where the older interface permits it: when all committed messages were dequeued."""
    sequencer = Sequencer(consumer.checkpoint.states, consumer.chance.choice(RING_SIZES))
    offsets = dict(consumer.checkpoint.offsets)
    for message in consumer.read(dict(offsets)):
        sequencer.queue_uncommitted(message)
        while True:
            try:
                delivered = sequencer.deque_committed()
            except EOFError:
                break
            except (MustStartReplayError, ReplayReaderError):
                sequencer.start_replay(consumer.replay(message.journal.name, *sequencer.replay_range()))
            else:
                consumer.may_fail()
                consumer.delivered.append(delivered)
        offsets[message.journal.name] = message.end
        if consumer.chance.random() < 0.1:
            commit_states(consumer, offsets, sequencer)
    commit_states(consumer, offsets, sequencer)


def commit_states(consumer: Consumer, offsets: dict[str, int], sequencer: Sequencer) -> None:
    consumer.checkpoint = Checkpoint(dict(offsets), tuple(sequencer.producer_states(consumer.horizon_s)))
    for each in consumer.delivered:
        consumer.committed[each.journal.name].append(key(each))
    consumer.delivered.clear()


INTERFACES = pytest.mark.parametrize("run_once", [with_steps, with_pages, with_older_interface])


def check(run_once: Callable[[Consumer], None], examples: int, *, is_pruned: bool = False) -> None:
    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), deadline=None)
    @given(SEEDS)
    def delivers_what_was_committed(seed: int) -> None:
        chance = Random(seed)
        streams = write_streams(chance, messages=MESSAGES)
        if is_pruned:
            streams = with_pauses(chance, streams, 2 * HORIZON)
        horizon_s = HORIZON / CLOCK_UNITS_PER_SECOND if is_pruned else 0.0
        consumer = Consumer(streams, chance, chance.choice([0, 3, 12]), horizon_s)
        delivered, expected = consumer.run(run_once), streams.expected
        if is_pruned:
            # An acknowledgement that is repeated after its producer was forgotten is delivered again; it is empty.
            delivered, expected = streams.contents(delivered), streams.contents(expected)
        assert delivered == expected

    delivers_what_was_committed()


@INTERFACES
@pytest.mark.parametrize("examples", [EXAMPLES, soak(SOAK_EXAMPLES)])
def test_each_committed_message_is_delivered_once(run_once: Callable[[Consumer], None], examples: int) -> None:
    check(run_once, examples)


@INTERFACES
@pytest.mark.parametrize("examples", [EXAMPLES, soak(SOAK_EXAMPLES)])
def test_producers_that_are_forgotten_between_transactions_lose_no_message(
    run_once: Callable[[Consumer], None], examples: int
) -> None:
    check(run_once, examples, is_pruned=True)
