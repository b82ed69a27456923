"""A program that makes its own Spark session finds the source, and runs its workers with its own Python.

Method: programs in an environment in which ``python3`` is another Python, one that is not activated.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog import Client
from tidelog_server.testing import RunningServer
from tidelog_testing.servers.processes import ROOT

pytestmark = pytest.mark.spark

PROGRAM = """
from pyspark.sql import SparkSession
{register}
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
{after}
print(spark.read.format("tidelog").option("endpoint", "{endpoint}").load("{channel}").count(), "rows")
spark.stop()
"""


def run_program(text: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program with this Python, in an environment in which ``python3`` is another one."""
    stranger = folder / "bin"
    stranger.mkdir()
    # Like a system's Python, which does not have tidelog: -S disables site-packages.
    (stranger / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    (stranger / "python3").chmod(0o755)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "TIDELOG_"))}
    variables |= {"PATH": f"{stranger}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1", **environment}
    (folder / "program.py").write_text(text)
    return subprocess.run(
        [sys.executable, str(folder / "program.py")],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_program_runs_its_workers_with_its_own_python(
    server: RunningServer, client: Client, channel: str, tmp_path: Path
) -> None:
    client.append(f"{channel}/0", [b"a", b"b"])
    text = PROGRAM.format(
        register="from tidelog.spark import TidelogDataSource", after="spark.dataSource.register(TidelogDataSource)",
        endpoint=server.endpoint, channel=channel,
    )  # fmt: skip
    python_path = os.pathsep.join(str(ROOT / folder) for folder in ("client", "server"))

    done = run_program(text, tmp_path, PYTHONPATH=python_path)

    assert done.stdout == "2 rows\n", done.stderr[-3_000:]


def test_the_source_is_known_without_being_registered(
    server: RunningServer, client: Client, channel: str, tmp_path: Path
) -> None:
    client.append(f"{channel}/0", [b"a", b"b", b"c"])
    text = PROGRAM.format(register="", after="", endpoint=server.endpoint, channel=channel)
    python_path = os.pathsep.join(str(ROOT / folder) for folder in ("client", "server"))

    done = run_program(text, tmp_path, PYTHONPATH=python_path, PYSPARK_PYTHON=sys.executable)

    assert done.stdout == "3 rows\n", done.stderr[-3_000:]
