"""Goal: a read of archive and log as one table has each row once, or says which it cannot have.

Method: a real server, archives in temporary folders, and a run of `archive` between the plan of a read and its rows.
"""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidelog import Client
from tidelog.spark.pipelines import archive, read_table
from tidelog_server.testing import RunningServer
from tidelog_testing.spark_rows import append, payloads

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

Options = dict[str, Any]


@pytest.fixture
def options(server: RunningServer, channel: str) -> Options:
    return {"endpoint": server.endpoint, "channel": channel}


def load(spark: SparkSession, options: Options, **more: object) -> DataFrame:
    return spark.read.format("tidelog").options(**options, **more).load()  # type: ignore[arg-type]  # a number will do


@pytest.mark.parametrize("start", [{}, {"startingTimestamp": "2026-01-01T00:00:00Z"}], ids=["all", "time"])
def test_what_is_archived_and_trimmed_after_the_plan_is_an_error_and_no_gap(
    spark: SparkSession, client: Client, channel: str, options: Options, tmp_path: Path, start: Options
) -> None:
    other = f"{channel}.new"
    client.create_channel(other)
    append(client, f"{channel}/0", "a")
    append(client, f"{other}/0", "b", "c")
    archive(spark, tmp_path, options)
    both = {"endpoint": options["endpoint"], "channels": f"{channel},{other}", "archive": str(tmp_path), **start}
    planned = read_table(spark, both)
    tolerant = read_table(spark, {**both, "failOnDataLoss": "false"})

    archive(spark, tmp_path, {"endpoint": options["endpoint"], "channel": other}, trim=True)

    with pytest.raises(PySparkException, match="trimmed"):
        planned.count()
    assert payloads(tolerant) == ["a"]
    # Whoever plans now finds it in the archive.
    assert payloads(read_table(spark, both)) == payloads(load(spark, both)) == ["a", "b", "c"]
