"""``benchmarks gazette``: committed messages read from journals, in turns with the decoder alone on the same lines."""

from typing import Final

from benchmarks.gazette.messages import (
    Reading,
    Spent,
    Stopwatch,
    decode_alone,
    distinct_readings,
    json_alone,
    line_of,
    repeated,
)
from benchmarks.gazette.publishing import (
    bench_journals,
    json_lines_by,
    publish_committed,
    publish_transactions,
)
from benchmarks.gazette.report import ROUNDS, GazetteSettings, RoundTimes, gazette_report
from tidelog import AsyncClient
from tidelog.gazette import (
    AsyncJournalClient,
    AsyncReadCommittedIter,
    AsyncRetryReader,
    Journal,
    JournalSpec,
    JSONFraming,
    ReadRequest,
    StepSequencer,
)
from tidelog_server.commands.bench.report import Report
from tidelog_server.commands.bench.server_process import Target

_WARM_UP: Final = 1_000


async def measure_reading(target: Target, settings: GazetteSettings) -> Report:
    """Read committed messages and transactions, in turns with the decoder alone; returns medians over the rounds."""
    readings, count = distinct_readings(settings.size), settings.per_round
    decode, times = json_alone(settings.codec).decode, RoundTimes()
    acknowledgements = -(-count // settings.per_transaction)
    async with AsyncClient(target.grpc) as client, bench_journals(client, 2) as (committed, transactions):
        with json_lines_by(settings.codec) as framing:
            await publish_committed(client, committed, readings, count)
            await publish_transactions(client, transactions, readings, count, settings.per_transaction)
            decode_alone(decode, readings, min(count, _WARM_UP))
            for _ in range(ROUNDS):
                times.codec.append(decode_alone(decode, readings, count))
                times.committed.append(await read_committed(client, committed, count))
                times.framing.append(_unframe_alone(framing, readings, count))
                times.transactions.append(await read_committed(client, transactions, count + acknowledgements))
    return gazette_report("read", target, settings, times)


async def read_committed(client: AsyncClient, journal: Journal, expected: int) -> Spent:
    """Read a journal from its first message to its end, and return the time.

    Raises:
        RuntimeError: It had another number of committed messages than ``expected``.
    """
    async with AsyncJournalClient(client) as journals:
        reader = AsyncRetryReader(journals, ReadRequest(journal))
        watch, found = Stopwatch(), 0
        async for _ in AsyncReadCommittedIter(reader, _new_reading, StepSequencer()):
            found += 1
        spent = watch.spent()
    if found != expected:
        raise RuntimeError(f"{found} committed messages were read from {journal}, expected {expected}")
    return spent


def _new_reading(_: JournalSpec) -> Reading:
    return Reading()


def _unframe_alone(framing: JSONFraming, readings: list[Reading], count: int) -> Spent:
    """Return the time in which the framing decodes ``count`` lines into new messages."""
    lines, decode = [line_of(reading) for reading in readings], framing.new_frame_decoder()
    watch = Stopwatch()
    for line in repeated(lines, count):
        decode(line, Reading())
    return watch.spent()
