"""A sequencer takes little memory per producer, and a constant amount if old producers are forgotten.

Method: the memory that Python allocates, with messages of 100 bytes in a full ring; and a long stream of producers that
live briefly.
"""

import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import pytest

from tidelog.gazette import Envelope, JournalSpec, build_uuid
from tidelog.gazette.sequencer import StepSequencer
from tidelog_testing.parts.gazette_messages import CONTINUE, OUTSIDE, Note, producer_id
from tidelog_testing.parts.soaks import Recorder

JOURNAL = JournalSpec("my/journal")
RING_SIZE, PRODUCERS = 4_096, 10_000
MAX_BYTES = 40_000_000
SECOND = 160_000_000
START = 2_205_855_587 * 10**9
HORIZON_S, MESSAGES_EACH, MESSAGES_A_SECOND = 60.0, 40, 100


@dataclass(slots=True)
class Body(Note):
    """A message with a body."""

    body: bytes = b""


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def message(position: int, producer: int, clock: int, flags: int) -> Envelope:
    body = Body(build_uuid(producer_id(producer), clock, flags), Random(position).randbytes(100))
    return Envelope(JOURNAL, position, position + 1, body)


@pytest.mark.usefixtures("traced")
def test_ten_thousand_producers_and_a_full_ring_take_less_than_forty_megabytes(
    record_property: Recorder,
) -> None:
    sequencer = StepSequencer(ring_size=RING_SIZE)
    for number in range(2 * PRODUCERS):
        flags = CONTINUE if number >= PRODUCERS else OUTSIDE
        sequencer.queue(message(number, number % PRODUCERS, START + number * SECOND, flags))
        while sequencer.step():
            pass
    taken, _ = tracemalloc.get_traced_memory()
    assert len(sequencer.checkpoint().states) == PRODUCERS
    _, peak = tracemalloc.get_traced_memory()
    record_property("measured", f"{taken:,} bytes for the state, {peak:,} at the peak of a checkpoint")
    assert peak < MAX_BYTES


def brief_producers(messages: int) -> Iterator[Envelope]:
    """Messages of producers each of which writes a few; every fourth leaves a transaction open."""
    for position in range(messages):
        number = position // MESSAGES_EACH
        flags = CONTINUE if number % 4 == 0 else OUTSIDE
        clock = START + position * (SECOND // MESSAGES_A_SECOND)
        yield Envelope(JOURNAL, position, position + 1, Note(build_uuid(producer_id(number), clock, flags)))


def growth(messages: int) -> tuple[int, int]:
    """Return the memory after a fifth of the messages and after all of them, in bytes."""
    sequencer, page = StepSequencer(ring_size=RING_SIZE), messages // 5
    taken: list[int] = []
    stream = brief_producers(messages)
    tracemalloc.start()
    for position, _ in enumerate(sequencer.committed(stream)):
        if position % 1_000 == 0:
            states = sequencer.checkpoint(HORIZON_S).states
            assert len(states) <= HORIZON_S * MESSAGES_A_SECOND / MESSAGES_EACH + 1_000 / MESSAGES_EACH * 2
            if sequencer.checkpoint().offsets[JOURNAL.name] >= page * (len(taken) + 1):
                taken.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    return taken[0], taken[-1]


def test_memory_is_constant_if_old_producers_are_forgotten() -> None:
    early, late = growth(60_000)
    assert late < early * 1.1 + 50_000


@pytest.mark.soak
def test_memory_is_constant_over_ten_million_messages(record_property: Recorder) -> None:
    early, late = growth(10_000_000)
    record_property("measured", f"{early:,} bytes after 2 million messages, {late:,} after 10 million")
    assert late < early * 1.1 + 50_000
