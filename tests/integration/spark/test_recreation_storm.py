"""Each read of a channel that is destroyed and re-created meanwhile is complete for one life of it, or fails.

Method: each life of one channel gets the same number of messages, which carry the number of the life and their own. In
each round Spark reads the channel in one way: a batch, a run of ``archive``, a query, or a query that is restarted from
its checkpoint. A reader announces its events: that it is about to plan, that it has planned, each row, each
micro-batch. At one of these events a thread trims the channel, or destroys and re-creates it. The reader waits for
the end of the change, or continues while the change is made. The rows must be all that one life has, or the read
must have failed for this reason.

Each way of reading has a round without a change, which must succeed, and one in which the channel is re-created
between the plan and what follows it, which must fail. Events and changes of the other rounds are random. The long form
is for ``make soak``.

Promises of docs/reference/guarantees.md: G11.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidelog import Client, TidelogError
from tidelog.spark.archive import manifest
from tidelog.spark.errors import ArchiveError
from tidelog.spark.pipelines import archive
from tidelog_testing.loads.recreations import PLANNED, WITHIN_S, Change, ChangingChannel, Round, random_change
from tidelog_testing.parts.soaks import Recorder
from tidelog_testing.spark.rows import load

pytestmark = pytest.mark.spark

FAILURES = (TidelogError, ArchiveError, PySparkException, Py4JJavaError)
"""Errors of a failed read; ``toLocalIterator`` raises the last one."""


Way = Callable[[Round], None]


@dataclass
class Readers:
    """The ways of reading: each announces its events to a round, and adds the payloads to it."""

    spark: SparkSession
    options: dict[str, Any]
    folder: Path
    _numbers: Iterator[int] = field(default_factory=count)

    def batch(self, each: Round, **options: str) -> None:
        each.event()
        frame = load(self.spark, self.options, minPartitions=4, **options).select("payload")
        # Plans the frame.
        assert frame.rdd.getNumPartitions() >= 1
        each.event()
        rows = []
        # Spark runs one job per partition, when its rows are requested.
        for row in frame.toLocalIterator():
            rows.append(bytes(row.payload))
            each.event()
        each.taken += rows

    def lossy_batch(self, each: Round) -> None:
        self.batch(each, failOnDataLoss="false")

    def archive(self, each: Round) -> None:
        root = self.folder / f"archive-{next(self._numbers)}"
        each.event()
        try:
            # The first call is between the plan and the tasks.
            archive(self.spark, root, self.options, on_progress=lambda *_: each.event())
        except FAILURES:
            assert manifest.load(root, must_exist=False).last_commit == 0
            raise
        for file in manifest.load(root, must_exist=False).files:
            each.taken += pq.read_table(root / file.path, columns=["payload"])["payload"].to_pylist()

    def stream(self, each: Round) -> None:
        def take(frame: DataFrame, _: int) -> None:
            # The micro-batch was planned before this call.
            each.event()
            each.take(frame)
            each.event()

        each.event()
        self._run(self.folder / f"checkpoint-{next(self._numbers)}", take, maxMessagesPerTrigger="12")

    def restarted_stream(self, each: Round) -> None:
        def take(frame: DataFrame, _: int) -> None:
            each.take(frame)

        checkpoint = self.folder / f"checkpoint-{next(self._numbers)}"
        each.event()
        self._run(checkpoint, take)
        each.event()
        self._run(checkpoint, take)

    def _run(self, checkpoint: Path, take: Callable[[DataFrame, int], None], **options: str) -> None:
        source = self.spark.readStream.format("tidelog").options(**self.options, **options, startingOffsets="earliest")
        writer = source.load().select("payload").writeStream.foreachBatch(take)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(WITHIN_S)
        finally:
            query.stop()


RECREATION = Change(PLANNED, is_awaited=True, trims=False, recreates=True)
TRIM = Change(PLANNED, is_awaited=True, trims=True, recreates=False)


@pytest.mark.parametrize(
    "random_rounds", [3, pytest.param(200, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)])], ids=["short", "long"]
)
def test_a_read_beside_recreations_and_trims_is_complete_for_one_life_or_fails(
    spark: SparkSession,
    client: Client,
    options: dict[str, Any],
    tmp_path: Path,
    random_rounds: int,
    record_property: Recorder,
) -> None:
    seed = random.randrange(1 << 32)
    record_property("seed", seed)
    chance = random.Random(seed)
    channel = ChangingChannel(client, options["channel"], chance)
    readers = Readers(spark, options, tmp_path)
    ways = [readers.batch, readers.lossy_batch, readers.archive, readers.stream, readers.restarted_stream]
    expected: list[tuple[Way, Change | None, str | None]] = [(way, None, "complete") for way in ways]
    expected += [(way, RECREATION, "refused") for way in ways]
    expected += [(readers.batch, TRIM, "refused"), (readers.lossy_batch, TRIM, "complete")]
    expected += [(chance.choice(ways), random_change(chance), None) for _ in range(random_rounds)]
    chance.shuffle(expected)
    ended: Counter[str] = Counter()
    with ThreadPoolExecutor(max_workers=1) as pool:
        for way, change, end in expected:
            found = one_round(way, Round(channel, change, pool), is_lossy=way == readers.lossy_batch)
            assert end in (None, found), f"{way.__name__} was {found} with {change}"
            ended[f"{way.__name__} {found}"] += 1
    record_property("measured", dict(ended))


def one_round(way: Way, each: Round, *, is_lossy: bool) -> str:
    """Give the channel a new life, read it, and return how the read ended."""
    each.channel.destroy()
    each.channel.create()
    try:
        way(each)
    except FAILURES as error:
        return each.judge(error, is_lossy=is_lossy)
    return each.judge(None, is_lossy=is_lossy)
