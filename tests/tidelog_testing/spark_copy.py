"""A Spark query that copies channels into another one, exactly once, while they grow; run as a program.

``python -m tidelog_testing.spark_copy <master> <endpoint> <pattern> <channel> <folder>``: keeps its checkpoint in
``<folder>/checkpoint``. Killed and started again, it goes on. Once there is a file ``<folder>/stop``, it ends behind
what is in the log then.
"""

import sys
from pathlib import Path

from tidelog_testing.spark_session import session, write_until_told

APP = "spark-copy"
MAX_MESSAGES = 500
"""In a batch: few, so that there are many batches to be killed in."""


def main() -> None:
    """Run the query until it is to stop."""
    master, endpoint, pattern, channel, folder = sys.argv[1:]
    spark = session(master)
    source = (
        spark.readStream.format("tidelog")
        .option("endpoint", endpoint)
        .option("channelPattern", pattern)
        .option("startingOffsets", "earliest")
        .option("maxMessagesPerTrigger", MAX_MESSAGES)
        .load()
    )
    rows = source.selectExpr("payload", "substring_index(CAST(payload AS STRING), ' ', 1) AS key")
    write_until_told(rows, endpoint, channel, APP, Path(folder))
    spark.stop()


if __name__ == "__main__":
    main()
