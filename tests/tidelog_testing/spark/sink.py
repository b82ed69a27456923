"""A Spark query that writes files of lines to a channel as they arrive, exactly once; run as a program.

``python -m tidelog_testing.spark.sink <master> <endpoint> <channel> <folder>``: reads ``<folder>/lines``, one file per
batch, and stores its checkpoint in ``<folder>/checkpoint``. Killed and restarted, it resumes. Once the file
``<folder>/stop`` exists, it ends after the files that then exist.
"""

import sys
from pathlib import Path

from tidelog_testing.spark.session import session, write_until_told

APP = "spark-sink"


def main() -> None:
    """Run the query until the stop file exists."""
    master, endpoint, channel, folder = sys.argv[1:]
    spark = session(master)
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(Path(folder) / "lines"))
    rows = lines.selectExpr("value AS payload", "substring_index(value, '-', -1) AS key")
    write_until_told(rows, endpoint, channel, APP, Path(folder))
    spark.stop()


if __name__ == "__main__":
    main()
