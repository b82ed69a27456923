"""The common parts of Spark programs that tests run and kill: their session, and the query that writes."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def session(master: str) -> "SparkSession":
    """Return a session with the data source registered, which survives the loss of executors."""
    # Imported here, so that tests can import the programs without PySpark.
    from pyspark.sql import SparkSession

    from tidelog.spark import TidelogDataSource

    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.sql.shuffle.partitions", "2")
        # A killed executor must not count as a failure of the task.
        .config("spark.task.maxFailures", "100")
        .config("spark.deploy.maxExecutorRetries", "-1")
        # Tests read the offsets of all batches.
        .config("spark.sql.streaming.minBatchesToRetain", "100000")
        .getOrCreate()
    )
    spark.dataSource.register(TidelogDataSource)
    return spark


def write_until_told(rows: "DataFrame", endpoint: str, channel: str, app: str, folder: Path) -> None:
    """Write a stream to ``channel`` exactly once, until ``folder/stop`` exists and everything by then is written.

    Raises the error of the query; ``folder/checkpoint`` allows the next query to resume.
    """
    query = (
        # At least two tasks, so that one can die while the other one has prepared.
        rows.repartition(2)
        .writeStream.format("tidelog")
        .option("endpoint", endpoint)
        .option("txnAppId", app)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start(channel)
    )
    while not (folder / "stop").exists():
        query.awaitTermination(1)
    query.processAllAvailable()
    query.stop()
