"""A Spark query that copies growing channels into another one, exactly once; run as a program.

``python -m tidelog_testing.spark.copy <master> <endpoint> <pattern> <channel> <folder>``: stores its checkpoint in
``<folder>/checkpoint``. Killed and restarted, it resumes. Once the file ``<folder>/stop`` exists, it ends after the
messages then in the log.
"""

import sys
from pathlib import Path

from tidelog_testing.spark.session import session, write_until_told

APP = "spark-copy"
MAX_MESSAGES = 500
"""Messages per batch: few, so that it can be killed in many batches."""


def main() -> None:
    """Run the query until the stop file exists."""
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
