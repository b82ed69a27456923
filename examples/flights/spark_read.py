"""The Spark half: read everything back, summarise it, and count messages out of order."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from examples.flights.summary import HASH_HEX_DIGITS, CarrierFigures, Summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_CONTENT: Final = (
    "concat(key, X'00', cast(cast(type AS STRING) AS BINARY), X'00', cast(properties['source'] AS BINARY), X'00', "
    "cast(properties['line'] AS BINARY), X'00', payload)"
)
_CONTENT_HASH: Final = f"cast(conv(substring(sha2({_CONTENT}, 256), 1, {HASH_HEX_DIGITS}), 16, 10) AS DECIMAL(38, 0))"


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Result of reading in Spark.

    Attributes:
        summary: Summary to compare with that of the source.
        disordered: Number of messages whose tick or line does not exceed that of their predecessor.
        rows: Number of rows.
        read_s: Seconds for reading all columns of all rows once, without processing them.
    """

    summary: Summary
    disordered: int
    rows: int
    read_s: float


def read_back(spark: "SparkSession", endpoint: str, channel: str) -> ReadBack:
    """Read the whole channel in Spark: first its contents, then again to measure the speed."""
    messages = spark.read.format("tidelog").option("endpoint", endpoint).load(channel)
    # Ordering: these also start Spark's Python workers, which takes longer than reading and must not be measured.
    summary = _summary(messages)
    disordered = _disordered(messages)
    start = time.perf_counter()
    messages.write.format("noop").mode("overwrite").save()
    read_s = time.perf_counter() - start
    rows = sum(count for count, _ in summary.lanes.values())
    return ReadBack(summary, disordered, rows, read_s)


def _summary(messages: "DataFrame") -> Summary:
    """Return the same summary as ``summary.summarise`` does for the source, in one pass over the messages."""
    from pyspark.sql import functions as sql

    flight = sql.from_json(messages.payload.cast("string"), "dep_delay INT, arr_delay INT")
    found = (
        messages.withColumn("carrier", messages.key.cast("string"))
        .withColumn("flight", flight)
        .groupBy("vchannel", "carrier")
        .agg(
            sql.sum(sql.expr(_CONTENT_HASH)).alias("digest"),
            sql.count("*").alias("flights"),
            sql.count("flight.dep_delay").alias("departed"),
            sql.sum("flight.dep_delay").alias("departure_delay"),
            sql.count("flight.arr_delay").alias("arrived"),
            sql.sum("flight.arr_delay").alias("arrival_delay"),
        )
        .collect()
    )
    lanes: dict[int, tuple[int, int]] = {}
    for row in found:
        count, digest = lanes.get(row.vchannel, (0, 0))
        lanes[row.vchannel] = count + row.flights, digest + int(row.digest)
    # A carrier that was read from two vchannels shows up as a difference on both.
    return Summary(lanes, {row.carrier: _figures(row) for row in found})


def _figures(row: "Row") -> CarrierFigures:
    return CarrierFigures(
        flights=row.flights,
        departed=row.departed,
        departure_delay=row.departure_delay or 0,
        arrived=row.arrived,
        arrival_delay=row.arrival_delay or 0,
    )


def _disordered(messages: "DataFrame") -> int:
    """Return how many messages, sorted by tick, do not follow a smaller tick and a smaller line."""
    from pyspark.sql import functions as sql
    from pyspark.sql.window import Window

    line = sql.col("properties")["line"].cast("long")
    in_order = Window.partitionBy("vchannel").orderBy("tick")
    steps = messages.select(
        "vchannel",
        (sql.col("tick") - sql.lag("tick").over(in_order)).alias("tick_step"),
        (line - sql.lag(line).over(in_order)).alias("line_step"),
    )
    return steps.where("tick_step <= 0 OR line_step <= 0").count()
