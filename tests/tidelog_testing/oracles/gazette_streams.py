"""Journals that satisfy the rules for appends, and what a read-committed reader must deliver of them.

The rules of issue 22, for each journal and producer: clocks increase (I1); an append is repeated as a whole, before the
producer appends anything else to the journal (I2); an acknowledgement precedes the messages of the next transaction
(I3); an append has no acknowledgement or message outside of transactions after an acknowledgement (I4); one producer
uses transactions, or does not (I5).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Final

from tidelog.gazette import Envelope, JournalSpec, get_clock, get_flags, get_producer_id
from tidelog_testing.parts.gazette_messages import ACK, CONTINUE, OUTSIDE, envelope

Key = tuple[str, int, int]
"""Journal, producer and clock: the identity of a message."""

MAX_REPEATS: Final = 3


@dataclass
class Writer:
    """A producer of one journal.

    Attributes:
        batches: Its appends that are not in the journal yet: each a list of (clock, flags).
        held: The messages of its open transaction.
        acked: Clock of its last acknowledgement.
    """

    journal: JournalSpec
    number: int
    batches: list[list[tuple[int, int]]]
    held: list[Key] = field(default_factory=list)
    acked: int = 0


@dataclass
class Streams:
    """Journals with their messages, and what must be delivered of each.

    Attributes:
        journals: Messages of each journal, in the order of their positions.
        expected: What a reader of a journal must deliver, in order.
        quiet: Of each journal, the numbers of messages after which no transaction was open and no append was repeated.
    """

    journals: dict[str, list[Envelope]]
    expected: dict[str, list[Key]]
    quiet: dict[str, set[int]]

    def read(self, journal: str, begin: int, end: int) -> Iterator[Envelope]:
        """Read the messages of a range of positions."""
        return iter([each for each in self.journals[journal] if begin <= each.begin and each.end <= end])

    def contents(self, delivered: Mapping[str, Sequence[Key]]) -> dict[str, list[Key]]:
        """Return what was delivered without the acknowledgements."""
        empty = {key(each) for messages in self.journals.values() for each in messages if _flags(each) == ACK}
        return {name: [each for each in found if each not in empty] for name, found in delivered.items()}


def key(message: Envelope) -> Key:
    """Return the identity of a message."""
    uuid = message.message.get_uuid()
    return message.journal.name, int.from_bytes(get_producer_id(uuid)[1:], "big"), get_clock(uuid)


def _flags(message: Envelope) -> int:
    return get_flags(message.message.get_uuid())


def write_streams(chance: Random, *, messages: int) -> Streams:
    """Write about ``messages`` messages of several producers into one or two journals."""
    specs = [JournalSpec(f"my/journal-{number}") for number in range(chance.randint(1, 2))]
    names = [spec.name for spec in specs]
    streams = Streams({name: [] for name in names}, {name: [] for name in names}, {name: set() for name in names})
    writers = [
        Writer(spec, number, _batches(chance, chance.randint(1, messages)))
        for spec in specs
        for number in range(chance.randint(1, 3))
    ]
    everyone = list(writers)
    while writers:
        for name in names:
            if not any(each.held for each in everyone if each.journal.name == name):
                streams.quiet[name].add(len(streams.journals[name]))
        writer = chance.choice(writers)
        batch = writer.batches.pop(0)
        _expect(writer, batch, streams.expected[writer.journal.name])
        # Other producers append between the repeats.
        repeats = chance.choice([1, chance.randint(2, MAX_REPEATS)])
        for repeat in range(repeats):
            others = [each for each in writers if each is not writer and each.batches]
            if repeat and others and chance.random() < 0.5:
                other = chance.choice(others)
                between = other.batches.pop(0)
                _expect(other, between, streams.expected[other.journal.name])
                _append(chance, streams, other, between)
            _append(chance, streams, writer, batch)
        writers = [each for each in writers if each.batches]
    return streams


def with_pauses(chance: Random, streams: Streams, pause: int) -> Streams:
    """Return the streams with clocks of one time, which advances by 1 with each message, and by ``pause`` at times.

    The pauses are where a producer may be forgotten: no transaction is open, and no append is repeated afterwards.
    """
    found = Streams({}, {}, streams.quiet)
    for name, messages in streams.journals.items():
        clocks: dict[Key, int] = {}
        now = 0
        written = []
        for index, message in enumerate(messages):
            if index in streams.quiet[name] and chance.random() < 0.3:
                now += pause
            now += 1
            clock = clocks.setdefault(key(message), now)
            written.append(envelope(message.begin, key(message)[1], clock, _flags(message), message.journal))
        found.journals[name] = written
        found.expected[name] = [(each[0], each[1], clocks[each]) for each in streams.expected[name]]
    return found


def _append(chance: Random, streams: Streams, writer: Writer, batch: list[tuple[int, int]]) -> None:
    journal = streams.journals[writer.journal.name]
    for clock, flags in batch:
        begin = (journal[-1].end if journal else 0) + chance.choice([0, 0, 3])
        journal.append(envelope(begin, writer.number, clock, flags, writer.journal))


def _expect(writer: Writer, batch: list[tuple[int, int]], expected: list[Key]) -> None:
    """Note what a first append commits; the rules are those of a publisher, which knows its own transactions."""
    for clock, flags in batch:
        message = writer.journal.name, writer.number, clock
        if flags == OUTSIDE:
            expected.append(message)
        elif flags == CONTINUE:
            writer.held.append(message)
        else:
            if clock > writer.acked:
                expected += [*writer.held, message]
            writer.acked = clock
            writer.held.clear()


def _batches(chance: Random, messages: int) -> list[list[tuple[int, int]]]:
    """Return the appends of a producer that uses transactions, or of one that does not."""
    clock, step = chance.choice([1, 160, 1 << 62]), chance.choice([1, 160, 1 << 38])
    ticks = count(clock, step)
    if chance.random() < 0.3:
        outside = [(next(ticks), int(OUTSIDE)) for _ in range(messages)]
        return _split(chance, outside, lambda batch: True)
    written: list[tuple[int, int]] = []
    acked = 0
    while len(written) < messages:
        written += [(next(ticks), int(CONTINUE)) for _ in range(chance.choice([0, 1, 2, 5, 9]))]
        if acked and chance.random() < 0.2:
            # A transaction that is rolled back, with an acknowledgement at the clock of the last one.
            written.append((acked, int(ACK)))
        else:
            acked = next(ticks)
            written.append((acked, int(ACK)))
    if chance.random() < 0.5:
        written += [(next(ticks), int(CONTINUE)) for _ in range(chance.randint(1, 3))]
    return _split(chance, written, lambda batch: sum(flags == ACK for _, flags in batch) < 2)


def _split(
    chance: Random, written: list[tuple[int, int]], is_valid: Callable[[list[tuple[int, int]]], bool]
) -> list[list[tuple[int, int]]]:
    batches: list[list[tuple[int, int]]] = []
    for message in written:
        if batches and is_valid([*batches[-1], message]) and chance.random() < 0.6:
            batches[-1].append(message)
        else:
            batches.append([message])
    return batches
