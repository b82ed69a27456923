"""Replay of a log in Kafka into a view, over a plain consumer that writes the same entries to RocksDB.

Method: the entries are in the log, in groups as a server writes them under load, and as messages in another topic, one
each. Both are read to the end into a new database, by turns, in this process.
"""

import itertools
import shutil
import statistics
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from rocksdict import Options, Rdict, WriteBatch

from benchmarks.engine.kafka import BenchTopics
from benchmarks.engine.turns import by_turns, timed
from tidelog_cli.exit_codes import CommandError
from tidelog_server.commands.bench.report import Floor, Report
from tidelog_server.core.entries import NewEntry
from tidelog_server.recordlog.kafka import PRODUCER_OPTIONS
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.runtime.logging import configure_logging
from tidelog_server.storage.engine.open import LogName, open_engine_store, prepare_engine_store
from tidelog_server.storage.engine.store import GROUPS_AHEAD
from tidelog_testing.parts.entries import new_entry

_MIB: Final = 1 << 20
_KEY: Final = struct.Struct(">IQ")
# Messages that a plain program takes and writes at once.
_AT_ONCE: Final = 500
_POLL_S: Final = 0.1
_ANSWER_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """Settings of a measurement of replays.

    Attributes:
        mib: MiB of entries.
        entry_bytes: Bytes of an entry.
        group_entries: Entries of a group.
        vchannels: Vchannels of the log, among which the entries are distributed.
        rounds: Number of turns of each.
    """

    mib: int
    entry_bytes: int
    group_entries: int
    vchannels: int
    rounds: int

    @property
    def entries(self) -> int:
        """Number of entries."""
        return self.mib * _MIB // self.entry_bytes

    def entry(self, number: int) -> NewEntry:
        """Return an entry."""
        return new_entry(1 + number % self.vchannels, 1_000 + 2 * number, count=1, size_bytes=self.entry_bytes)


def measure_replay(folder: Path, servers: str, settings: ReplaySettings) -> Report:
    """Fill a log and a topic, and read both by turns."""
    # The output is the report.
    configure_logging("warning", "auto")
    with BenchTopics.created(servers) as topics:
        _fill_log(folder, topics, settings)
        _fill_plain(topics, settings)
        folders = map(folder.joinpath, map(str, itertools.count()))
        turns = by_turns(
            settings.rounds,
            lambda: timed(lambda: _replay(next(folders), topics)),
            lambda: timed(lambda: _consume(next(folders), topics, settings)),
        )
    megabytes = settings.entries * settings.entry_bytes / 1e6
    return Report(
        name="engine replay",
        settings={
            "mib": settings.mib, "entry_bytes": settings.entry_bytes, "group_entries": settings.group_entries,
            "vchannels": settings.vchannels, "rounds": settings.rounds,
        },
        messages_per_second=settings.entries / statistics.median(each.seconds for each in turns.ours),
        megabytes_per_second=megabytes / statistics.median(each.seconds for each in turns.ours),
        floor=Floor(
            "a plain consumer that writes the entries to RocksDB", "megabytes_per_second",
            megabytes / statistics.median(each.seconds for each in turns.floors),
        ),
        ratio=turns.speed(),
        details=turns.details(),
    )  # fmt: skip


def _log_of(topics: BenchTopics) -> tuple[RecordLog, LogName]:
    name = LogName("kafka", topics.log, topics.access.check(topics.log))
    return RecordLog(topics.access.engine(topics.log), SystemClock()), name


def _fill_log(folder: Path, topics: BenchTopics, settings: ReplaySettings) -> None:
    with closing(open_engine_store(folder / "filled", *_log_of(topics))) as store:
        store.create_vchannels(range(1, settings.vchannels + 1))
        marks: list[int] = []
        for group in _grouped(range(settings.entries), settings.group_entries):
            marks.append(store.write([settings.entry(number) for number in group]))
            if len(marks) == GROUPS_AHEAD:
                store.sync(marks.pop(0))
        store.sync()
    shutil.rmtree(folder / "filled")


def _fill_plain(topics: BenchTopics, settings: ReplaySettings) -> None:
    producer = Producer({"bootstrap.servers": topics.access.servers, "log_level": 0, **PRODUCER_OPTIONS})
    for number in range(settings.entries):
        entry = settings.entry(number)
        key = _KEY.pack(entry.vchannel_id, entry.base_tick)
        while True:
            try:
                producer.produce(topics.plain, entry.columns, key, partition=0)
            except BufferError:
                producer.poll(1)
            else:
                break
    if producer.flush(_ANSWER_WITHIN_S):
        raise CommandError("Kafka has not confirmed the messages of the floor in time")


def _replay(folder: Path, topics: BenchTopics) -> None:
    """Apply the log to a new view, as a standby does."""
    with closing(prepare_engine_store(folder, *_log_of(topics))) as prepared:
        while prepared.follow():
            pass
        if not prepared.has_caught_up:
            raise CommandError("the log ended before its end at the opening")
    shutil.rmtree(folder)


def _consume(folder: Path, topics: BenchTopics, settings: ReplaySettings) -> None:
    """Write each message of the plain topic to a new database."""
    consumer = Consumer({
        "bootstrap.servers": topics.access.servers, "log_level": 0, "group.id": "tidelog", "enable.auto.commit": False,
    })  # fmt: skip
    place = TopicPartition(topics.plain, 0, 0)
    left = settings.entries
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    database = Rdict(str(folder), options)
    consumer.assign([place])
    while left:
        # It returns what it has after a while, and that may be nothing.
        messages = consumer.consume(_AT_ONCE, _POLL_S)
        batch = WriteBatch(raw_mode=True)
        for message in messages:
            if (error := message.error()) is not None:
                raise CommandError(f"Kafka: {error.str()}")
            batch.put(message.key() or b"", message.value() or b"")
        database.write(batch)
        left -= len(messages)
    consumer.close()
    database.close()
    shutil.rmtree(folder)


def _grouped(numbers: range, size: int) -> Iterator[range]:
    for begin in range(0, len(numbers), size):
        yield numbers[begin : begin + size]
