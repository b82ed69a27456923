"""``bench gazette``: messages published to journals, in turns with the encoder alone on the same messages."""

import asyncio
import os
import statistics
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Final

from tidelog import AsyncClient
from tidelog.admin.journal_types import ANY_REVISION
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
from tidelog_server.commands.bench.measures.gazette_messages import (
    CodecName,
    Reading,
    Spent,
    Stopwatch,
    distinct_readings,
    encode_alone,
    json_alone,
    repeated,
)
from tidelog_server.commands.bench.report import Floor, Report
from tidelog_server.commands.bench.server_process import Target

# Many short rounds, so that variations of the machine's speed affect all measurements alike.
ROUNDS: Final = 9
# Messages that are published before the event loop sends what has gathered.
_PER_TURN: Final = 4_000
_CONTENT_TYPE: Final = JSONFraming.content_type


@dataclass(frozen=True, slots=True)
class GazetteSettings:
    """Settings of the benchmark.

    Attributes:
        messages: Messages of each measurement, over all rounds.
        size: Bytes of each line, with its newline and its UUID.
        per_transaction: Uncommitted messages between two acknowledgements.
        codec: The package that encodes and decodes.
    """

    messages: int
    size: int
    per_transaction: int
    codec: CodecName

    @property
    def per_round(self) -> int:
        """Messages of each measurement in one round."""
        return max(1, self.messages // ROUNDS)

    def described(self) -> dict[str, object]:
        """Return the settings for a report."""
        return {
            "messages": self.per_round * ROUNDS, "size": self.size, "per_transaction": self.per_transaction,
            "codec": self.codec,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Publishing:
    """Times of the rounds.

    Attributes:
        encoder: The encoder alone.
        framing: The encoder with what makes a value of a message, as the publisher uses it.
        committed: Committed messages, until all are acknowledged.
        uncommitted: Transactions, until their acknowledgements are acknowledged.
    """

    encoder: list[Spent] = field(default_factory=list)
    framing: list[Spent] = field(default_factory=list)
    committed: list[Spent] = field(default_factory=list)
    uncommitted: list[Spent] = field(default_factory=list)


async def measure_publishing(target: Target, settings: GazetteSettings) -> Report:
    """Publish committed messages and transactions, in turns with the encoder alone; returns medians over the rounds."""
    readings, count = distinct_readings(settings.size), settings.per_round
    encode, times = json_alone(settings.codec).encode, _Publishing()
    async with AsyncClient(target.grpc) as client, bench_journals(client, 2) as (committed, uncommitted):
        with json_lines_by(settings.codec) as framing:
            await publish_committed(client, committed, readings, min(count, _PER_TURN))
            for _ in range(ROUNDS):
                times.encoder.append(encode_alone(encode, readings, count))
                times.committed.append(await publish_committed(client, committed, readings, count))
                times.framing.append(_frame_alone(framing, readings, count))
                times.uncommitted.append(
                    await publish_transactions(client, uncommitted, readings, count, settings.per_transaction)
                )
    return _report(target, settings, times)


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


def _report(target: Target, settings: GazetteSettings, times: _Publishing) -> Report:
    count = settings.per_round
    rate = count / statistics.median(each.seconds for each in times.committed)
    return Report(
        name="gazette publish",
        settings=settings.described(),
        messages_per_second=rate,
        megabytes_per_second=rate * settings.size / 1e6,
        server_rss_bytes=target.peak_rss_bytes(),
        floor=Floor(
            f"the encoder of {settings.codec} alone",
            "messages_per_second",
            count / statistics.median(each.seconds for each in times.encoder),
        ),
        ratio=ratio(times.encoder, times.committed),
        details={
            "cpu_ratio": cpu_ratio(times.encoder, times.committed),
            "cpu_ratio_of_framing": cpu_ratio(times.encoder, times.framing),
            "uncommitted_messages_per_second": count / statistics.median(each.seconds for each in times.uncommitted),
            "uncommitted_ratio": ratio(times.encoder, times.uncommitted),
            "uncommitted_cpu_ratio": cpu_ratio(times.encoder, times.uncommitted),
        },
    )


def ratio(floor: Sequence[Spent], ours: Sequence[Spent]) -> float:
    """Return the median ratio of the rounds' rates."""
    return statistics.median(alone.seconds / full.seconds for alone, full in zip(floor, ours, strict=True))


def cpu_ratio(floor: Sequence[Spent], ours: Sequence[Spent]) -> float:
    """Return the median ratio of the rounds' messages per second of CPU time of this process."""
    return statistics.median(alone.cpu_seconds / full.cpu_seconds for alone, full in zip(floor, ours, strict=True))
