"""Goal: a snapshot has the latest message of each key, is written once, and is not reused for other options.

Method: a real server and one Spark session; removing the metadata file simulates an incomplete snapshot.
"""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidelog import Client, Message
from tidelog.spark.pipelines import ArchiveError, CompactError, UnkeyedError, archive, compact
from tidelog_cli.commands import pipeline
from tidelog_testing.servers.commands import pipeline_error
from tidelog_testing.spark.rows import append

pytestmark = pytest.mark.spark

Options = dict[str, Any]


def test_compaction_keeps_the_latest_of_each_key(
    spark: SparkSession, client: Client, channel: str, options: Options, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    client.append(f"{channel}/0", [Message(b"1", key=b"a"), Message(b"2", key=b"b"), Message(b"3", key=b"a")])
    cut = int(client.append(f"{channel}/1", [Message(b"", key=b"b"), Message(b"4", key=b"")]).last_tick)
    client.append(f"{channel}/0", b"no key")

    with pytest.raises(UnkeyedError, match=r"use unkeyed='keep' to include .* or unkeyed='drop'"):
        compact(spark, tmp_path, options)
    monkeypatch.setattr(pipeline, "spark_session", lambda *_, **__: nullcontext(spark))
    words = ["compact", str(tmp_path), channel, "--endpoint", str(options["endpoint"])]
    hint = "use --unkeyed keep to include all such messages in the snapshot, or --unkeyed drop"
    assert hint in pipeline_error(*words).message
    (tmp_path / "table.csv").touch()
    with pytest.raises(CompactError, match=r"it has 'table\.csv', but no folder 'snapshot-\.\.\.'"):
        compact(spark, tmp_path, {**options, "asOfTick": cut})
    with pytest.raises(ArchiveError, match=r"it has 'table\.csv', but no _tidelog"):
        archive(spark, tmp_path, options, delta=True)
    (tmp_path / "table.csv").unlink()
    first = compact(spark, tmp_path, {**options, "asOfTick": cut})
    again = compact(spark, tmp_path, {**options, "asOfTick": cut})

    snapshot = spark.read.parquet(first.path)
    assert {bytes(row.key): bytes(row.payload) for row in snapshot.collect()} == {b"a": b"3", b"": b"4"}
    assert (first.tick, first.rows, first.written, again.rows, again.written) == (cut, 2, True, 2, False)
    assert (Path(first.path) / "_SUCCESS").is_file()
    with pytest.raises(CompactError, match="with other values of tombstones"):
        compact(spark, tmp_path, {**options, "asOfTick": cut}, tombstones="keep")
    # The snapshot of a run that died is ignored.
    (Path(first.path) / "_tidelog.json").unlink()
    kept = compact(spark, tmp_path, {**options, "asOfTick": cut}, tombstones="keep")
    assert (kept.rows, kept.written) == (3, True)
    last = compact(spark, tmp_path, options, unkeyed="keep")
    assert (last.rows, last.written) == (3, True)
    # Without new messages; then with other options; then with a new message.
    same = compact(spark, tmp_path, options, unkeyed="keep")
    assert (same.tick, same.path, same.rows, same.written) == (last.tick, last.path, 3, False)
    assert compact(spark, tmp_path, {**options, "types": "0"}, unkeyed="keep").tick > last.tick
    client.append(f"{channel}/1", Message(b"5", key=b"c"))
    assert compact(spark, tmp_path, options, unkeyed="keep").rows == 4


def test_a_snapshot_of_another_channel_of_the_same_name_is_not_taken_for_this_one(
    spark: SparkSession, client: Client, channel: str, options: Options, tmp_path: Path
) -> None:
    other = f"{channel}.other"
    client.create_channel(other)
    client.append(f"{channel}/0", Message(b"1", key=b"a"))
    before = compact(spark, tmp_path, options)
    client.destroy_channels([channel])
    client.create_channel(channel, vchannels=2)
    now = int(append(client, f"{other}/0", "later")[0])

    empty = compact(spark, tmp_path, {**options, "asOfTick": now})

    assert (before.rows, empty.rows, empty.written) == (1, 0, True)
    with pytest.raises(CompactError, match="with other values of vchannels"):
        compact(spark, tmp_path, {**options, "asOfTick": before.tick})
