"""Goal: Spark reads, verifies and continues an archive that an earlier version wrote.

Method: the golden archive of ``tests/compatibility``, and a server on the data folder from which it was archived.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compatibility.content import text_of
from compatibility.golden import GoldenSet, each_set
from tidelog.spark.pipelines import archive, read_table, verify
from tidelog_server.testing import start

pytestmark = pytest.mark.spark


@each_set
def test_spark_reads_verifies_and_continues_a_golden_archive(
    golden: GoldenSet, spark: SparkSession, tmp_path: Path
) -> None:
    root, data = golden.unpack("archive", tmp_path), golden.unpack("data", tmp_path)
    was = golden.expected["archive"]
    options = {"channels": "orders,payments", "archive": str(root), "archiveOnly": "true"}

    report = verify(spark, options)
    rows = read_table(spark, {**options, "moreColumns": "txn_id,broadcast_id"}).collect()

    assert report.ok
    assert {"full": str(report.digests.full), "content": str(report.digests.content)} == was["digests"]
    # Spark has no unsigned types: a type above 2^31 is negative there.
    found = sorted(
        (
            f"{row.channel}/{row.vchannel}",
            row.tick,
            text_of(row.payload),
            row.type % (1 << 32),
            row.txn_id,
            row.broadcast_id,
        )
        for row in rows
    )
    assert found == sorted(
        (lane, row[0], row[1], row[3], row[6], row[7]) for lane, messages in was["messages"].items() for row in messages
    )

    server = start(str(data))
    try:
        more = archive(spark, root, {"endpoint": server.endpoint, "channels": "orders,payments"})
    finally:
        server.stop()
    now = golden.expected["folder"]["messages"]
    new = [row for lane, old in was["messages"].items() for row in now[lane] if row[0] > old[-1][0]]
    assert (more.commit, more.messages) == (3, len(new))
    assert more.archive.messages == len(rows) + len(new)
