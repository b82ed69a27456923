"""The size of a topic, whose oldest message is that of an idle channel, while a channel with retention is appended to.

Method: a server on a Kafka that is started for it; the topic is measured by its records, and by the broker's files.
"""

import asyncio
import itertools
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.engine.kafka import engine_figures
from tidelog import AsyncClient, Retention
from tidelog_cli.exit_codes import CommandError
from tidelog_server.commands.bench.payloads import DISTINCT
from tidelog_server.commands.bench.report import Report
from tidelog_server.recordlog.kafka_access import KafkaAccess
from tidelog_server.recordlog.reads import reads
from tidelog_server.runtime.clock import SystemClock
from tidelog_testing.parts.engine_stores import create_log
from tidelog_testing.servers.kafka import KafkaProcesses

if TYPE_CHECKING:
    from tidelog_server.commands.bench.server_process import ServerProcess

_TOPIC: Final = "engine-topic"
_BATCH_BYTES: Final = 1 << 20
_PRODUCERS: Final = 2
_LOOK_EVERY_S: Final = 1.0
_READ_BYTES: Final = 4 << 20
_GIB: Final = 1 << 30
# Brokers delete files behind the begin of a topic that often; by default each five minutes.
_BROKER: Final = {"log.retention.check.interval.ms": 5_000, "log.segment.delete.delay.ms": 1_000}


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings of a measurement of a topic.

    Attributes:
        gib: GiB that are appended.
        retention_mib: ``retention.bytes`` of the channel.
        size: Bytes of a message.
    """

    gib: float
    retention_mib: int
    size: int


@dataclass(frozen=True, slots=True)
class KafkaLog:
    """A log in a topic.

    Attributes:
        settings: Settings of a server on it.
        folder: Folder of the files of the broker.
        access: Access to Kafka.
    """

    settings: Mapping[str, str]
    folder: Path
    access: KafkaAccess

    def file_bytes(self) -> int:
        """Return the bytes of the topic's files."""
        found = 0
        for path in self.folder.rglob(f"{_TOPIC}-0/*"):
            try:
                found += path.stat().st_size if path.suffix == ".log" else 0
            except FileNotFoundError:
                continue  # Deleted since it was listed.
        return found

    def stored_bytes(self) -> int:
        """Return the bytes of the records from the begin of the topic to its end."""
        reader = self.access.engine(_TOPIC)
        try:
            found = reads(reader, SystemClock(), *reader.bounds(), _READ_BYTES)
            return sum(len(each.value) for read in found for each in read.records)
        finally:
            reader.close()


@contextmanager
def kafka_log(folder: Path) -> Iterator[KafkaLog]:
    """Start a Kafka with a log in a topic."""
    with KafkaProcesses(folder.absolute() / "kafka", settings=_BROKER) as kafka:
        access = KafkaAccess(kafka.servers)
        access.create(_TOPIC)
        create_log(access.engine(_TOPIC))
        settings = {"storage.kind": "kafka", "engine.servers": kafka.servers, "engine.topic": _TOPIC}
        yield KafkaLog(settings, folder / "kafka", access)


async def measure_topic(process: "ServerProcess", log: KafkaLog, settings: TopicSettings) -> Report:
    """Append, and return the size of the topic.

    Raises:
        CommandError: The message of the idle channel is gone.
    """
    payloads = [os.urandom(settings.size) for _ in range(DISTINCT)]
    sizes: list[float] = []
    async with AsyncClient(process.grpc, timeout_s=60.0) as client:
        idle = await client.ensure_channel("idle")
        # Above what is stored in the view itself.
        await idle.append(payloads[0])
        retention = Retention(bytes=settings.retention_mib << 20)
        busy = await client.ensure_channel("busy", vchannels=_PRODUCERS, retention=retention)
        begin_s = time.perf_counter()
        watching = asyncio.create_task(_watch(process, sizes))

        async def produce(index: int) -> None:
            source, left = itertools.cycle(payloads), int(settings.gib * _GIB / _PRODUCERS)
            async with busy.vchannel(index).producer(max_batch_bytes=_BATCH_BYTES) as producer:
                while left > 0:
                    batch = list(itertools.islice(source, _BATCH_BYTES // settings.size))
                    await producer.send_many(batch)
                    left -= sum(map(len, batch))

        await asyncio.gather(*map(produce, range(_PRODUCERS)))
        took_s = time.perf_counter() - begin_s
        watching.cancel()
        if [row.payload async for batch in idle.scan() for row in batch] != [payloads[0]]:
            raise CommandError("the message of the idle channel is gone")
        live_bytes = sum(vchannel.bytes for vchannel in (await busy.describe()).vchannels) + settings.size
    stored_bytes = await asyncio.to_thread(log.stored_bytes)
    figures = await asyncio.to_thread(engine_figures, process)
    return Report(
        name="engine topic",
        settings={"gib": settings.gib, "retention_mib": settings.retention_mib, "size": settings.size},
        megabytes_per_second=settings.gib * _GIB / took_s / 1e6,
        server_rss_bytes=process.peak_rss_bytes(),
        details={
            "live_bytes": live_bytes, "topic_bytes": stored_bytes, "topic_file_bytes": log.file_bytes(),
            "allowed_bytes": 3 * live_bytes + _GIB, "largest_log_bytes": max(sizes, default=0.0),
            "snapshots": figures["log_snapshots"],
        },
    )  # fmt: skip


async def _watch(process: "ServerProcess", sizes: list[float]) -> None:
    """Note the size of the log, as the server counts it, each second, until cancelled."""
    while True:
        sizes.append((await asyncio.to_thread(engine_figures, process))["log_bytes"])
        await asyncio.sleep(_LOOK_EVERY_S)
