"""Vchannels that are added while Spark reads and writes: nothing is lost or repeated. Method: real queries and a load.

Promises of docs/reference/guarantees.md: G11, G57.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from pyspark.sql import DataFrame, SparkSession

from tidelog import AsyncClient, Client
from tidelog_server.testing import RunningServer
from tidelog_testing.loads.growth import GrowthLoad
from tidelog_testing.parts.waiting import until
from tidelog_testing.spark.rows import append, payloads

pytestmark = pytest.mark.spark

WITHIN_S = 120


class Query:
    """A streaming query of a channel; ``rows`` has the payloads of its micro-batches, each in tick order."""

    def __init__(self, spark: SparkSession, endpoint: str, checkpoint: Path, **options: str) -> None:
        self.rows: list[bytes] = []
        self._options = {"endpoint": endpoint, "startingOffsets": "earliest", **options}
        self._spark, self._checkpoint = spark, str(checkpoint)

    def start(self, **trigger: Any) -> Any:
        frame = self._spark.readStream.format("tidelog").options(**self._options).load().select("tick", "payload")
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", self._checkpoint)
        return writer.trigger(**trigger).start()

    def has_more_than(self, count: int) -> bool:
        return len(self.rows) > count

    def run(self) -> list[bytes]:
        """Read what is there, from the checkpoint on, and return it."""
        known = len(self.rows)
        assert self.start(availableNow=True).awaitTermination(WITHIN_S)
        return self.rows[known:]

    def _take(self, frame: DataFrame, _: int) -> None:
        self.rows += [bytes(row.payload) for row in sorted(frame.collect(), key=lambda row: int(row.tick))]


def test_a_query_reads_added_vchannels_from_the_checkpoint_of_before(
    spark: SparkSession, server: RunningServer, client: Client, channel: str, tmp_path: Path
) -> None:
    whole = Query(spark, server.endpoint, tmp_path / "whole", channel=channel)
    part = Query(spark, server.endpoint, tmp_path / "part", vchannels=f"{channel}/0")
    append(client, f"{channel}/0", "a")
    assert (whole.run(), part.run()) == ([b"a"], [b"a"])
    client.alter_channels([channel], vchannels=4)
    append(client, f"{channel}/3", "b")
    append(client, f"{channel}/0", "c")
    append(client, f"{channel}/2", "d")
    assert (whole.run(), part.run()) == ([b"b", b"c", b"d"], [b"c"])
    assert (whole.run(), part.run()) == ([], [])


def test_a_read_has_the_vchannels_of_its_cut_and_a_write_divides_by_the_new_number(
    spark: SparkSession, client: Client, channel: str, options: dict[str, Any], read: Callable[..., DataFrame]
) -> None:
    rows = spark.createDataFrame(
        [(f"k{index}".encode(), f"{index}".encode()) for index in range(40)], ["key", "payload"]
    )
    rows.write.format("tidelog").options(**options).mode("append").save()
    [growth] = client.alter_channels([channel], vchannels=5)[0].growths
    rows.write.format("tidelog").options(**options).mode("append").save()
    assert len(payloads(read(channel=channel))) == 80
    assert len(payloads(read(channel=channel, asOfTick=str(int(growth.tick))))) == 40
    for number, found in (
        (2, read(channel=channel, asOfTick=str(int(growth.tick)))),
        (5, read(channel=channel, startingTick=str(int(growth.tick) + 1))),
    ):
        places = {bytes(row.key): row.vchannel for row in found.select("key", "vchannel").collect()}
        assert places == {f"k{index}".encode(): crc32c(f"k{index}".encode()) % number for index in range(40)}


async def test_producers_a_group_a_stream_and_a_query_run_while_vchannels_are_added(
    spark: SparkSession, server: RunningServer, client: Client, channel: str, tmp_path: Path
) -> None:
    query = Query(spark, server.endpoint, tmp_path / "query", channel=channel)
    async with AsyncClient(server.endpoint) as opened:
        load = GrowthLoad(opened, channel)
        running = await asyncio.to_thread(query.start, processingTime="100 milliseconds")
        try:
            async with load.running(producers=3):
                for vchannels in (3, 4, 8):
                    # A micro-batch has read from the present vchannels before more are added.
                    begun = len(query.rows)
                    await load.until(200)
                    await until(partial(query.has_more_than, begun), WITHIN_S)
                    await opened.alter_channels([channel], vchannels=vchannels)
                await load.until(300)
                await load.complete(query.rows, within_s=WITHIN_S)
        finally:
            await asyncio.to_thread(running.stop)
        load.check_separated((await opened.describe_channels([channel]))[0])
    load.check_readers()
    load.check_complete(query.rows)
    load.check_order_of_keys(query.rows)
