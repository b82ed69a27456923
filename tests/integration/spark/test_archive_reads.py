"""Goal: a read of archive and log as one table returns each row once, or reports the rows that were lost.

Method: a real server, archives in temporary folders, a run of `archive` between the plan of a read and its rows, and
archives whose files or manifests were changed by hand.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidelog import Client
from tidelog.spark.archive import manifest
from tidelog.spark.pipelines import VerifyReport, archive, read_table, verify
from tidelog_testing.spark.rows import append, data_files, load, payloads

pytestmark = pytest.mark.spark

Options = dict[str, Any]


@pytest.fixture
def archived(spark: SparkSession, client: Client, channel: str, options: Options, tmp_path: Path) -> Options:
    """Archive two files of one vchannel in two commits, and return options that read them and the log."""
    for text in ("a", "b"):
        append(client, f"{channel}/0", text, text * 2)
        archive(spark, tmp_path, options)
    return {**options, "archive": str(tmp_path)}


def found(report: VerifyReport) -> list[tuple[str, str]]:
    return [(finding.kind, finding.name) for finding in report.findings]


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
    # A new plan finds the messages in the archive.
    assert payloads(read_table(spark, both)) == payloads(load(spark, both)) == ["a", "b", "c"]


@pytest.mark.parametrize("only", ["true", "false"])
def test_an_audit_compares_each_file_with_what_its_manifest_says(
    spark: SparkSession, archived: Options, channel: str, tmp_path: Path, only: str
) -> None:
    assert found(verify(spark, {**archived, "archiveOnly": only})) == []
    commit = sorted((tmp_path / manifest.FOLDER).glob("*.json"))[0]
    said = json.loads(commit.read_text())
    [file] = said["files"]
    file["content_digest"] = "0" * 32
    commit.write_text(json.dumps(said))

    report = verify(spark, {**archived, "archiveOnly": only})
    part = verify(spark, {**archived, "archiveOnly": only, "startingTick": file["last_tick"]})

    assert found(report) == [("archive", f"{channel}/0")]
    assert file["path"] in report.findings[0].text
    assert report.undecided == []
    assert found(part) == []
    assert f"digests of 1 archived file ({file['path']}): only a part was read" in part.undecided


@pytest.mark.parametrize("only", ["true", "false"])
def test_a_file_that_lacks_rows_is_an_error(
    spark: SparkSession, archived: Options, channel: str, tmp_path: Path, only: str
) -> None:
    shorter = data_files(tmp_path)[0]
    pq.write_table(pq.read_table(shorter, partitioning=None).slice(1), shorter)

    assert found(verify(spark, {**archived, "archiveOnly": only})) == [("unreadable", f"{channel}/0")]
    with pytest.raises(PySparkException, match=r"1 messages, expected \d+ and 2 by the manifest: restore it"):
        load(spark, archived, archiveOnly=only).collect()


def test_an_audit_says_which_files_lie_behind_its_cut(
    spark: SparkSession, client: Client, archived: Options, channel: str, options: Options, tmp_path: Path
) -> None:
    append(client, f"{channel}/1", "late")
    archive(spark, tmp_path, {"endpoint": options["endpoint"], "vchannels": f"{channel}/1"})

    report = verify(spark, {**archived, "archiveOnly": "true"})
    one = verify(spark, {"archive": str(tmp_path), "archiveOnly": "true", "vchannels": f"{channel}/1"})

    [text] = report.undecided
    assert text.startswith(f"1 archived file (data/channel={channel}/vchannel=1/")
    assert (report.ok, report.messages) == (True, 4)
    assert (one.ok, one.messages, one.undecided) == (True, 1, [])


def test_a_table_passes_over_no_damage_whatever_the_session_says(
    spark: SparkSession, archived: Options, tmp_path: Path
) -> None:
    damaged = data_files(tmp_path)[0]
    content = bytearray(damaged.read_bytes())
    group = pq.ParquetFile(damaged).metadata.row_group(0)
    [payload] = [chunk for i in range(group.num_columns) if (chunk := group.column(i)).path_in_schema == "payload"]
    content[payload.data_page_offset + payload.total_compressed_size - 1] ^= 1
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        damaged.write_bytes(content)
        with pytest.raises(Py4JJavaError, match="CRC checksum verification failed"):
            read_table(spark, archived).collect()
        damaged.unlink()
        with pytest.raises(PySparkException, match="PATH_NOT_FOUND"):
            read_table(spark, archived).collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
