"""``benchmarks sequencer``: the time of a sequencer per message, beside that of decoding the message."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from time import process_time_ns
from typing import Final

from tidelog.gazette import Envelope, Flags, JournalSpec, build_uuid, new_clock
from tidelog.gazette.sequencer import StepSequencer
from tidelog_server.commands.bench.report import Floor, Report
from tidelog_testing.parts.gazette_messages import Note, producer_id

PRODUCERS: Final = 4
START_NS: Final = 1_700_000_000 * 10**9
LINE: Final = json.dumps(
    {"uuid": "83fc2f95-cc5f-11e9-82aa-0123456789ab", "a": 12345, "b": "hello world abc", "c": [1, 2, 33]}
)


@dataclass(frozen=True, slots=True)
class SequencerSettings:
    """Settings of ``benchmarks sequencer``.

    Attributes:
        messages: Messages of each kind.
        transaction: Messages of a transaction, with the acknowledgement.
        rounds: Number of runs, of which the fastest counts.
    """

    messages: int
    transaction: int
    rounds: int


def measure_sequencer(settings: SequencerSettings) -> Report:
    """Return the CPU time per message, of single messages and of transactions; the floor is ``json.loads``."""
    count = settings.messages
    outside = _written(count, cycle([Flags.OUTSIDE_TXN]))
    span = [Flags.CONTINUE_TXN] * (settings.transaction - 1) + [Flags.ACK_TXN]
    inside = _written(count, cycle([flags for flags in span for _ in range(PRODUCERS)]))
    single_ns = _fastest(settings, lambda: _sequence(outside))
    held_ns = _fastest(settings, lambda: _sequence(inside))
    floor_ns = _fastest(settings, lambda: _decode(count))
    return Report(
        name="sequencer",
        settings={"messages": count, "transaction": settings.transaction, "line_bytes": len(LINE)},
        messages_per_second=1e9 / single_ns,
        floor=Floor("json.loads alone", "messages_per_second", 1e9 / floor_ns),
        ratio=floor_ns / single_ns,
        details={"outside_ns": single_ns, "in_transactions_ns": held_ns, "json_loads_ns": floor_ns},
    )


def _written(count: int, flags: Iterator[Flags]) -> list[Envelope]:
    spec = JournalSpec("my/journal")
    clocks = [new_clock(START_NS) for _ in range(PRODUCERS)]
    ids = [producer_id(number) for number in range(PRODUCERS)]
    return [
        Envelope(
            spec, at, at + 1, Note(build_uuid(ids[at % PRODUCERS], clocks[at % PRODUCERS].tick(), int(next(flags))))
        )
        for at in range(count)
    ]


def _sequence(envelopes: list[Envelope]) -> None:
    for _ in StepSequencer().committed(iter(envelopes)):
        pass


def _decode(count: int) -> None:
    for _ in range(count):
        json.loads(LINE)


def _fastest(settings: SequencerSettings, run: Callable[[], None]) -> float:
    """Return the CPU time per message of the fastest run, in nanoseconds."""
    times = []
    for _ in range(settings.rounds):
        began = process_time_ns()
        run()
        times.append(process_time_ns() - began)
    return min(times) / settings.messages
