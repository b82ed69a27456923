"""A Spark job that reads the log: for each channel and vchannel, how many messages and bytes, and from when to when.

Run by the profile ``spark`` of docker-compose.yml, and by hand as ``python read_log.py [CHANNEL...]`` with the server
in TIDELOG_ENDPOINT. Without names it reads all channels that people made. What it reads is a consistent cut.
"""

import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import tidelog
from tidelog.spark import TidelogDataSource, require_java

SCHEMA = "channel string NOT NULL, vchannel int NOT NULL, timestamp timestamp NOT NULL, payload binary NOT NULL"


def main() -> None:
    """Print one line for each vchannel that has messages."""
    endpoint = os.environ.get("TIDELOG_ENDPOINT", "127.0.0.1:7420")
    channels = sys.argv[1:] or channels_of(endpoint)
    if not channels:
        print(f"{endpoint} has no channels: append something first")
        return
    require_java()
    spark = (
        SparkSession.builder.appName("tidelog")
        .master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(TidelogDataSource)
    try:
        summary_of(spark, endpoint, channels).show(1_000, truncate=False)
    finally:
        spark.stop()


def channels_of(endpoint: str) -> list[str]:
    """Return the names of all channels but those of the server itself."""
    with tidelog.Client(endpoint) as client:
        return [channel.name for channel in client.list_channels() if not channel.name.startswith("_")]


def summary_of(spark: SparkSession, endpoint: str, channels: list[str]) -> DataFrame:
    """Return a row for each vchannel that has messages."""
    source = spark.read.format("tidelog").option("endpoint", endpoint).option("channels", ",".join(channels))
    messages = source.schema(SCHEMA).load()
    return (
        messages.groupBy("channel", "vchannel")
        .agg(
            f.count("*").alias("messages"),
            f.sum(f.length("payload")).alias("payload_bytes"),
            f.min("timestamp").alias("first"),
            f.max("timestamp").alias("last"),
        )
        .orderBy("channel", "vchannel")
    )


if __name__ == "__main__":
    main()
