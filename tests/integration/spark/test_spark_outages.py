"""Streams, frames and runs of ``archive`` continue after an outage of the server, with default settings, without loss.

Method: the server is killed and later restarted, while writers append continuously and a query copies their messages. A
frame and a run of ``archive`` are planned and read during the outage.

Promises of docs/reference/guarantees.md: G10, G11.
"""

import asyncio
import logging
import threading
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tidelog import AsyncClient
from tidelog.spark.archive.manifest import load as load_archive
from tidelog.spark.pipelines import archive
from tidelog_testing.loads.outage import AWAY, InterruptedServer, Writers
from tidelog_testing.spark.rows import load

CHANNEL = "orders"
VCHANNELS = ["orders/0", "orders/1"]
Row = tuple[str, int, bytes]


class Copied:
    """The rows that a query has returned."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._changed = threading.Condition()

    def __call__(self, frame: DataFrame, _: int) -> None:
        rows = [(f"{row.channel}/{row.vchannel}", row.tick, bytes(row.payload)) for row in frame.collect()]
        with self._changed:
            self.rows += rows
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.rows) >= count, timeout=120), len(self.rows)


@AWAY
async def test_a_query_continues_after_its_server_was_away(spark: SparkSession, tmp_path: Path, away_s: float) -> None:
    copied = Copied()
    with InterruptedServer(tmp_path / "server") as server:
        async with AsyncClient(server.grpc) as client:
            await client.create_channel(CHANNEL, vchannels=2)
            stream = spark.readStream.format("tidelog").options(endpoint=server.grpc, startingOffsets="earliest")
            writer = stream.load(CHANNEL).writeStream.foreachBatch(copied)
            query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
            async with Writers(client, VCHANNELS) as writers:
                await writers.wrote_some()
                await asyncio.to_thread(copied.wait_for, 10)

                await server.away(away_s)

                await writers.wrote_some()
                log = await writers.finish()
            expected = [(name, tick, payload) for name, messages in log.items() for tick, payload in messages]
            await asyncio.to_thread(copied.wait_for, len(expected))
            failure = query.exception()
            query.stop()

    assert failure is None
    assert Counter(copied.rows) == Counter(expected)


@AWAY
async def test_a_frame_and_an_archive_that_are_planned_while_the_server_is_away_wait_for_it(
    spark: SparkSession, tmp_path: Path, away_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    payloads = [b"%d" % number for number in range(100)]
    with InterruptedServer(tmp_path / "server") as server:
        async with AsyncClient(server.grpc) as client:
            await client.create_channel(CHANNEL, vchannels=2)
            await client.append(VCHANNELS[0], payloads)
        options = {"endpoint": server.grpc, "channel": CHANNEL}
        frame = load(spark, options)
        away = asyncio.create_task(server.away(away_s))
        await asyncio.sleep(0)
        with caplog.at_level(logging.WARNING, logger="tidelog"):
            reading = asyncio.to_thread(lambda: [bytes(row.payload) for row in frame.collect()])
            archiving = asyncio.to_thread(archive, spark, tmp_path / "archive", options)
            rows, result, _ = await asyncio.gather(reading, archiving, away)

    assert sorted(rows) == sorted(payloads)
    assert result.messages == load_archive(tmp_path / "archive").messages == len(payloads)
    # From the run of `archive`: the frame is planned in a process of Spark, which has its own log.
    assert "waiting for the server at" in caplog.text
