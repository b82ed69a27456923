"""A Spark query that writes files of lines to a channel, exactly once, until all are written; run as a program.

``python -m tidelog_testing.spark_sink <master> <endpoint> <channel> <folder>``: reads ``<folder>/lines``, one file for
each batch, and keeps its checkpoint in ``<folder>/checkpoint``. Killed and started again, it goes on.
"""

import sys
from pathlib import Path

APP = "spark-sink"


def main() -> None:
    """Run the query to its end."""
    # Here, so that tests may import this module without PySpark.
    from pyspark.sql import SparkSession

    from tidelog.spark import TidelogDataSource

    master, endpoint, channel, folder = sys.argv[1:]
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.sql.shuffle.partitions", "2")
        # An executor that was killed is not the task's fault.
        .config("spark.task.maxFailures", "100")
        .config("spark.deploy.maxExecutorRetries", "-1")
        .getOrCreate()
    )
    spark.dataSource.register(TidelogDataSource)
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(Path(folder) / "lines"))
    # In two tasks at least, so that one can die while the other one has prepared.
    rows = lines.selectExpr("value AS payload", "substring_index(value, '-', -1) AS key").repartition(2)
    query = (
        rows.writeStream.format("tidelog")
        .option("endpoint", endpoint)
        .option("txnAppId", APP)
        .option("checkpointLocation", str(Path(folder) / "checkpoint"))
        .trigger(availableNow=True)
        .start(channel)
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
