"""Goal: the example program for Spark runs from its first cell to its last.

Method: run it as a user does, with a server and a Spark session of its own.
"""

import os
import subprocess
import sys

import pytest

from tidelog_testing.servers.processes import ROOT


@pytest.mark.spark
def test_flights_on_spark() -> None:
    path = os.pathsep.join(str(ROOT / part) for part in ("client", "server"))
    ran = subprocess.run(
        [sys.executable, str(ROOT / "client/examples/flights_on_spark.py")],
        env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr[-3_000:]
    told = [line for line in ran.stdout.splitlines() if line[:1].isalpha()]
    assert told[-4:] == [
        "now 3000", "in the morning 2000", "delayed by more than an hour 187", "archived 3187 findings 0"
    ]  # fmt: skip
