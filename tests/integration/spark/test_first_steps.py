"""A user's first steps in Spark work or fail with advice: SQL, other sources' options, a Python that is not activated.

Method: one Spark session for SQL and errors; separate programs to test the session itself.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import tidelog
from tidelog import Client
from tidelog_server.testing import RunningServer
from tidelog_testing.servers.processes import ROOT
from tidelog_testing.spark.rows import error_of

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


def test_sql_reads_a_view_and_a_table_says_why_it_cannot_be_one(
    spark: SparkSession, server: RunningServer, client: Client, channel: str
) -> None:
    client.append(f"{channel}/0", [b"a", b"b"])
    options = f"OPTIONS (endpoint '{server.endpoint}', channel '{channel}')"

    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING tidelog {options}")
    assert spark.sql("SELECT count(*) AS n FROM seen").first().n == 2  # type: ignore[union-attr]

    text = error_of(lambda: spark.sql(f"CREATE TABLE kept USING tidelog {options}"))
    assert "Use CREATE TEMPORARY VIEW ... USING tidelog OPTIONS (...)" in text


@pytest.mark.parametrize("is_large", ["true", "false"])
def test_rows_with_properties_are_written_whatever_arrow_types_spark_uses(
    spark: SparkSession, server: RunningServer, client: Client, channel: str, is_large: str
) -> None:
    rows: DataFrame = spark.createDataFrame(
        [(b"a", {"x": "1", "y": "2"}), (b"b", {}), (b"c", None)], "payload binary, properties map<string,string>"
    )
    before = spark.conf.get("spark.sql.execution.arrow.useLargeVarTypes")
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", is_large)
    try:
        writer = rows.coalesce(1).write.format("tidelog").mode("append").option("endpoint", server.endpoint)
        writer.save(channel)
    finally:
        spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", str(before))

    with client.scan([f"{channel}/0", f"{channel}/1"], until=tidelog.At.watermark()) as scan:
        found = {bytes(message.payload): dict(message.properties) for batch in scan for message in batch}
    assert found == {b"a": {"x": "1", "y": "2"}, b"b": {}, b"c": {}}


def test_several_paths_are_answered_with_the_option_for_several_channels(
    spark: SparkSession, server: RunningServer
) -> None:
    source = spark.read.format("tidelog").option("endpoint", server.endpoint)
    assert "use the option 'channels' for several" in error_of(lambda: source.load(["a", "b"]))


def test_a_message_of_a_large_map_is_the_one_of_a_small_map() -> None:
    import pyarrow as pa

    def columns(text: pa.DataType) -> object:
        kind = pa.map_(text, text)
        return tidelog.columns_from_arrow(
            pa.RecordBatch.from_arrays(
                [pa.array([b"a", b"b"]), pa.array([[("k", "v")], None], kind)], names=["payload", "properties"]
            )
        )

    assert columns(pa.large_string()) == columns(pa.string())
