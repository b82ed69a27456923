"""Goal: the source reads and writes through Spark Connect, whose client has no Java.

Method: a separate program, because a process has only one kind of session. It starts a Connect server on loopback, and
connects to it as to a remote one.
"""

import os
import subprocess
import sys

import pytest

from tidelog import Client
from tidelog_server.testing import RunningServer
from tidelog_testing.servers.processes import ROOT

pytestmark = pytest.mark.spark

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from tidelog.spark import TidelogDataSource

builder = SparkSession.builder.remote("local[2]").config("spark.connect.grpc.binding.address", "127.0.0.1")
builder = builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
print(type(spark).__module__)
spark.dataSource.register(TidelogDataSource)
endpoint, channel = sys.argv[1:]
frame = spark.read.format("tidelog").option("endpoint", endpoint).load(channel)
print(sorted(bytes(row.payload).decode() for row in frame.where("vchannel = 0").collect()))
copy = frame.drop("channel", "vchannel", "tick", "timestamp").where("payload = X'62'")
copy.write.format("tidelog").mode("append").option("endpoint", endpoint).save(channel)
spark.stop()
"""


def test_a_client_of_spark_connect_reads_and_writes(server: RunningServer, client: Client, channel: str) -> None:
    client.append(f"{channel}/0", [b"a", b"b"])
    path = os.pathsep.join(str(ROOT / part) for part in ("client", "server"))
    environment = {
        **os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
        # Uses a free port.
        "SPARK_TESTING": "1",
    }  # fmt: skip

    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, server.endpoint, channel],
        env=environment, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr[-3_000:]
    assert ran.stdout.split("\n")[:2] == ["pyspark.sql.connect.session", "['a', 'b']"]
    vchannels = client.describe_channels([channel])[0].vchannels
    assert sum(vchannel.messages for vchannel in vchannels) == 3
