"""``benchmarks stream``: a streaming query during steady appends: whether it keeps up, and the delay of messages."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog import AsyncClient
from tidelog_cli import event_loop
from tidelog_cli.child_environment import child_environment
from tidelog_cli.exit_codes import CommandError
from tidelog_cli.local_spark import spark_session
from tidelog_server.commands.bench.report import Floor, Report, percentiles
from tidelog_server.commands.bench.server_process import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_PRODUCER: Final = "benchmarks.spark.stream_producer"
# Batches that take longer because Java compiles its code.
_WARM_UP: Final = 3
_FLOOR_BATCHES: Final = 8
_MS_PER_BUCKET: Final = 10
# Batches for which Spark keeps the durations.
_REMEMBERED: Final = 100_000
_PATIENCE_S: Final = 120.0
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Settings of ``benchmarks stream``.

    Attributes:
        rate: Messages appended per second.
        size: Bytes per payload.
        vchannels: Number of vchannels.
        seconds: Seconds of appends.
        trigger_s: Trigger interval of micro-batches, in seconds.
    """

    rate: int
    size: int
    vchannels: int
    seconds: int
    trigger_s: float


@dataclass(slots=True)
class _Seen:
    """Measurements of the micro-batches.

    Attributes:
        rows: Total number of rows.
        batch_s: Seconds of each batch with rows, as reported by Spark.
        delays: Number of messages by age at the end of their batch, in hundredths of a second.
    """

    rows: int = 0
    batch_s: list[float] = field(default_factory=list)
    delays: "Counter[int]" = field(default_factory=Counter)

    def take(self, frame: "DataFrame", _number: int) -> None:
        """Read all columns of a micro-batch, and count its messages by age."""
        buckets = frame.selectExpr(f"unix_millis(timestamp) DIV {_MS_PER_BUCKET} AS at").groupBy("at").count().collect()
        now = time.time_ns() // 1_000_000 // _MS_PER_BUCKET
        for bucket in buckets:
            self.rows += bucket["count"]
            self.delays[now - bucket["at"]] += bucket["count"]

    def delay_s(self, share: float) -> float:
        """Return the delay in seconds that a fraction ``share`` of the messages did not exceed."""
        left = self.delays.total() * share
        for delay, count in sorted(self.delays.items()):
            left -= count
            if left <= 0:
                return delay * _MS_PER_BUCKET / 1_000
        return 0.0


def measure_stream(target: Target, folder: Path, settings: StreamSettings) -> Report:
    """Append steadily while a query reads; the floor is the same query on Spark's rate source.

    Raises:
        CommandError: The query failed, did not catch up, or read a different number of rows than was appended.
    """
    channel = f"bench-stream-{os.getpid()}"
    vchannels = [f"{channel}/{index}" for index in range(settings.vchannels)]
    event_loop.run(_create(target.grpc, channel, settings.vchannels))
    order = {
        "endpoint": target.grpc, "vchannels": vchannels, "size": settings.size, "rate": settings.rate,
        "seconds": settings.seconds,
    }  # fmt: skip
    with spark_session(folder, name="tidelog bench") as session:
        session.conf.set("spark.sql.streaming.numRecentProgressUpdates", _REMEMBERED)
        floor = _floor(session, folder, settings)
        source = session.readStream.format("tidelog").option("endpoint", target.grpc)
        log = source.option("startingOffsets", "earliest").load(channel)
        seen = _Seen()
        with _running(log, folder / "checkpoint", settings, seen) as query, _producer(order) as producer:
            _until(lambda: query.lastProgress is not None, query)
            appended = _tell(producer, "go")
            _until(lambda: seen.rows >= appended["messages"], query)
            seen.batch_s = _batch_seconds(query)
    event_loop.run(_remove(target.grpc, channel))
    if seen.rows != appended["messages"]:
        raise CommandError(f"{appended['messages']} messages were appended and {seen.rows} were read")
    return _report(target, settings, seen, appended, floor)


def _report(target: Target, settings: StreamSettings, seen: _Seen, appended: dict[str, Any], floor: float) -> Report:
    warm = seen.batch_s[_WARM_UP:] or seen.batch_s
    return Report(
        name="stream",
        settings={
            "rate": settings.rate, "size": settings.size, "vchannels": settings.vchannels,
            "seconds": settings.seconds, "trigger_s": settings.trigger_s,
        },
        messages_per_second=appended["messages"] / appended["seconds"],
        latency_us=percentiles(warm),
        server_rss_bytes=target.peak_rss_bytes(),
        floor=Floor("a batch of Spark's own source of rows", "latency_us", floor * 1e6),
        ratio=statistics.median(warm) / floor,
        details={
            "rows_appended": appended["messages"],
            "rows_read": seen.rows,
            "batches": len(seen.batch_s),
            "batch_p50_s": statistics.median(warm),
            "batch_max_s": max(warm),
            "batch_max_of_warm_up_s": max(seen.batch_s[:_WARM_UP]),
            "batches_longer_than_the_trigger": sum(seconds > settings.trigger_s for seconds in warm),
            "delay_p50_s": seen.delay_s(0.5),
            "delay_p99_s": seen.delay_s(0.99),
        },
    )  # fmt: skip


def _floor(session: "SparkSession", folder: Path, settings: StreamSettings) -> float:
    """Return the median seconds of a batch of Spark's rate source with the same number of rows per trigger."""
    rows = session.readStream.format("rate").option("rowsPerSecond", settings.rate).load()
    seen = _Seen()
    with _running(rows, folder / "floor", settings, seen) as query:
        _until(lambda: len(_batch_seconds(query)) >= _WARM_UP + _FLOOR_BATCHES, query)
        return statistics.median(_batch_seconds(query)[_WARM_UP:])


@contextmanager
def _running(frame: "DataFrame", checkpoint: Path, settings: StreamSettings, seen: _Seen) -> "Iterator[StreamingQuery]":
    writer = frame.writeStream.foreachBatch(seen.take).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(processingTime=f"{round(settings.trigger_s * 1_000)} milliseconds").start()
    try:
        yield query
    finally:
        query.stop()


def _batch_seconds(query: "StreamingQuery") -> list[float]:
    """Return the seconds of each batch with rows; Spark keeps the last _REMEMBERED batches."""
    return [
        progress["durationMs"]["triggerExecution"] / 1_000
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]


def _until(condition: Callable[[], bool], query: "StreamingQuery") -> None:
    """Wait until the query has fulfilled ``condition``. Raises CommandError if it fails or takes over _PATIENCE_S."""
    give_up_at = time.monotonic() + _PATIENCE_S
    while not condition():
        if not query.isActive:
            raise CommandError(f"the query failed: {query.exception()}")
        if time.monotonic() > give_up_at:
            raise CommandError(f"the query did not catch up within {_PATIENCE_S:.0f} s: {query.lastProgress}")
        # The progress of a query must be polled.
        time.sleep(_POLL_S)


@contextmanager
def _producer(order: dict[str, object]) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        [sys.executable, "-m", _PRODUCER, json.dumps(order)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=child_environment(),
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _tell(producer: "subprocess.Popen[str]", word: str) -> dict[str, Any]:
    """Start a producer when it is ready, and return its result."""
    assert producer.stdin is not None
    assert producer.stdout is not None
    producer.stdout.readline()
    print(word, file=producer.stdin, flush=True)
    line = producer.stdout.readline()
    if not line:
        raise CommandError(f"the producer ended early, with exit code {producer.wait()}")
    done: dict[str, Any] = json.loads(line)
    return done


async def _create(endpoint: str, channel: str, vchannels: int) -> None:
    async with AsyncClient(endpoint) as client:
        await client.create_channels([channel], vchannels=vchannels)


async def _remove(endpoint: str, channel: str) -> None:
    async with AsyncClient(endpoint) as client:
        await client.destroy_channels([channel])
