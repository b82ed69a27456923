"""``benchmarks gazette``: messages published to journals, in turns with the encoder alone on the same messages."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from benchmarks.gazette.messages import (
    CodecName,
    Reading,
    Spent,
    Stopwatch,
    distinct_readings,
    encode_alone,
    json_alone,
    repeated,
)
from benchmarks.gazette.report import ROUNDS, GazetteSettings, RoundTimes, gazette_report
from tidelog import AsyncClient
from tidelog.gazette import (
    AsyncAppend,
    AsyncJournalClient,
    AsyncPublisher,
    Journal,
    JournalDelete,
    JournalUpsert,
    JSONFraming,
    LabelSet,
    framing_by_content_type,
    register_framing,
)
from tidelog.journals.types import ANY_REVISION
from tidelog_server.commands.bench.report import Report
from tidelog_server.commands.bench.server_process import Target

# Messages that are published before the event loop sends what has gathered.
_PER_TURN: Final = 4_000
_CONTENT_TYPE: Final = JSONFraming.content_type


async def measure_publishing(target: Target, settings: GazetteSettings) -> Report:
    """Publish committed messages and transactions, in turns with the encoder alone; returns medians over the rounds."""
    readings, count = distinct_readings(settings.size), settings.per_round
    encode, times = json_alone(settings.codec).encode, RoundTimes()
    async with AsyncClient(target.grpc) as client, bench_journals(client, 2) as (committed, uncommitted):
        with json_lines_by(settings.codec) as framing:
            await publish_committed(client, committed, readings, min(count, _PER_TURN))
            for _ in range(ROUNDS):
                times.codec.append(encode_alone(encode, readings, count))
                times.committed.append(await publish_committed(client, committed, readings, count))
                times.framing.append(_frame_alone(framing, readings, count))
                times.transactions.append(
                    await publish_transactions(client, uncommitted, readings, count, settings.per_transaction)
                )
    return gazette_report("publish", target, settings, times)


async def publish_committed(client: AsyncClient, journal: Journal, readings: list[Reading], count: int) -> Spent:
    """Publish ``count`` messages, and return the time until all are acknowledged."""
    async with AsyncJournalClient(client) as journals:
        publish, mapping = AsyncPublisher(journals).publish_committed, _to(journal)
        watch = Stopwatch()
        for size in _parts(count, _PER_TURN):
            await journals.room()
            for reading in repeated(readings, size):
                publish(mapping, reading)
            # The event loop sends what has gathered.
            await asyncio.sleep(0)
        await journals.flush()
        return watch.spent()


async def publish_transactions(
    client: AsyncClient, journal: Journal, readings: list[Reading], count: int, per_transaction: int
) -> Spent:
    """Publish ``count`` messages in transactions; return the time until all acknowledgements are acknowledged.

    Each waits for its messages, as a program must before it commits. Its store is memory.
    """
    async with AsyncJournalClient(client) as journals:
        publisher, mapping = AsyncPublisher(journals), _to(journal)
        publish = publisher.publish_uncommitted
        acknowledgements: list[AsyncAppend] = []
        watch = Stopwatch()
        for size in _parts(count, per_transaction):
            await journals.room()
            for reading in repeated(readings, size):
                publish(mapping, reading)
            acknowledgements = journals.append_ack_intents(publisher.build_ack_intents(), journals.pending_except())
        for append in acknowledgements:
            await append
        return watch.spent()


def _frame_alone(framing: JSONFraming, readings: list[Reading], count: int) -> Spent:
    """Return the time in which the publisher's framing encodes ``count`` messages."""
    encode = framing.encode_frame
    watch = Stopwatch()
    for reading in repeated(readings, count):
        encode(reading)
    return watch.spent()


def _parts(count: int, size: int) -> Iterator[int]:
    """Yield sizes of at most ``size`` whose sum is ``count``."""
    for begin in range(0, count, size):
        yield min(size, count - begin)


def _to(journal: Journal) -> Callable[[object], tuple[Journal, str]]:
    place = journal, _CONTENT_TYPE
    return lambda _: place


@contextmanager
def json_lines_by(name: CodecName) -> Iterator[JSONFraming]:
    """Encode and decode JSON lines with one package."""
    before, framing = framing_by_content_type(_CONTENT_TYPE), JSONFraming(codec=name)
    register_framing(framing)
    try:
        yield framing
    finally:
        register_framing(before)


@asynccontextmanager
async def bench_journals(client: AsyncClient, count: int) -> AsyncIterator[list[Journal]]:
    """Yield the names of new journals, which are deleted at the end."""
    names = [f"bench/{os.getpid()}/part-{index:03}" for index in range(count)]
    labels = LabelSet.of({"content-type": _CONTENT_TYPE})
    await client.journals.apply([JournalUpsert(name, labels, 0) for name in names])
    try:
        yield names
    finally:
        await client.journals.apply([JournalDelete(name, ANY_REVISION) for name in names])
