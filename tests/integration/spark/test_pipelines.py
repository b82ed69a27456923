"""Goal: the jobs do what docs/guides/spark/pipelines.md says, once, even after failures, and detect damage.

Method: a real server with small channels, archives in temporary folders, and one Spark session. A staged run without a
commit simulates a run that dies between writing and committing; files are damaged by hand; the numbers of `stats` are
compared with those of plain Python.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from benchmarks.spark.pipeline import run_jobs
from tidelog import Client, Message
from tidelog.spark import submit
from tidelog.spark.archive import manifest
from tidelog.spark.errors import OptionError
from tidelog.spark.options import parse_options
from tidelog.spark.pipelines import (
    ArchiveError,
    ArchiveTotals,
    Digests,
    Sequences,
    archive,
    compact,
    digest_contents,
    digest_frame,
    load_archive,
    read_table,
    reason_of,
    stats,
    stats_page,
    verify,
    verify_frame,
    verify_page,
)
from tidelog.spark.pipelines.archiving import commit, stage
from tidelog_cli.exit_codes import ExitCode
from tidelog_server.testing import RunningServer
from tidelog_testing.documents.examples import ENDPOINT, page, run_example
from tidelog_testing.servers.commands import pipeline_error
from tidelog_testing.spark.rows import append, data_files, load, payloads

pytestmark = pytest.mark.spark

COMMAND = "from tidelog_cli import main; main()"
MORE = "txn_id,broadcast_id,event_time"
Options = dict[str, Any]


def last_byte_of(path: Path, column: str) -> int:
    """Return the offset of the last byte of a column's pages in a file with one row group."""
    group = pq.ParquetFile(path).metadata.row_group(0)
    [chunk] = [chunk for i in range(group.num_columns) if (chunk := group.column(i)).path_in_schema == column]
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    return int(begin + chunk.total_compressed_size - 1)


def test_each_message_is_archived_once_and_read_from_there_when_it_is_trimmed(
    spark: SparkSession, client: Client, channel: str, options: Options, tmp_path: Path
) -> None:
    append(client, f"{channel}/0", "a", "b")
    client.append(
        f"{channel}/1",
        [Message(b"c", key=b"k", type=7, properties={"p": "1"}, event_time=datetime(2026, 1, 2, tzinfo=UTC))],
    )
    with client.txn() as txn:
        txn.append(f"{channel}/0", b"t")
        txn.append(f"{channel}/1", b"u")
    client.broadcast([f"{channel}/0"], b"all")
    before = load(spark, options, moreColumns=MORE).orderBy("tick", "vchannel").collect()

    first = archive(spark, tmp_path, options)
    again = archive(spark, tmp_path, options)
    append(client, f"{channel}/1", "d")
    archived = {**options, "archive": str(tmp_path)}

    assert (first.commit, first.messages, again.commit, again.messages) == (1, 6, 0, 0)
    # A run that adds nothing still reports the totals of the archive.
    assert again.archive == first.archive == ArchiveTotals(1, 6, first.bytes, first.files, first.digests)
    assert again.as_record()["archive"] == {
        name: value for name, value in first.as_record().items() if name in first.archive.as_record()
    }
    assert load(spark, archived, moreColumns=MORE).where("payload <> X'64'").orderBy("tick").collect() == before
    assert payloads(load(spark, {**archived, "archiveOnly": "true"})) == ["a", "all", "b", "c", "t", "u"]

    [acked] = [batch for batch in client.scan(f"{channel}/0") if batch.broadcast_id is not None]
    client.ack_batch(acked)
    third = archive(spark, tmp_path, options, trim=True)

    assert (third.commit, third.messages) == (2, 1)
    assert third.archive == ArchiveTotals(
        2, 7, first.bytes + third.bytes, first.files + third.files,
        Digests(first.digests.full + third.digests.full, first.digests.content + third.digests.content),
    )  # fmt: skip
    assert load(spark, options).count() == 0
    append(client, f"{channel}/0", "e")
    everything = ["a", "all", "b", "c", "d", "e", "t", "u"]
    assert payloads(load(spark, archived)) == everything
    assert payloads(load(spark, archived).where("type = 7")) == payloads(load(spark, archived, types="7")) == ["c"]
    assert payloads(load(spark, archived).where("vchannel = 1 AND type = 0")) == ["d", "u"]
    assert payloads(load(spark, archived).where(f"tick > {before[-1].tick}")) == ["d", "e"]
    assert payloads(load(spark, archived, startingTick=before[-1].tick)) == ["all", "d", "e"]
    text = load(spark, archived, payloadFormat="string").where("payload IN ('a', 'e')")
    assert sorted(row.payload for row in text.collect()) == ["a", "e"]
    ranges: list[Options] = [{}, {"types": "7"}, {"startingTick": before[1].tick}, {"asOfTick": before[2].tick}]
    for range_ in [*ranges, {"endingTick": before[4].tick}, {"startingTimestamp": before[0].tick >> 18}]:
        asked = {**archived, **range_, "moreColumns": MORE}
        table = read_table(spark, asked)
        assert table.columns == load(spark, asked).columns
        assert table.orderBy("tick", "vchannel").collect() == load(spark, asked).orderBy("tick", "vchannel").collect()
    assert digest_frame(load(spark, archived)) == (
        8,
        digest_contents(
            channel, [text.encode() for text in everything], [b"k" if text == "c" else None for text in everything]
        ),
    )


def test_no_cut_tears_a_transaction_that_is_archived(
    spark: SparkSession, client: Client, channel: str, options: Options, tmp_path: Path
) -> None:
    append(client, f"{channel}/0", "a")
    with client.txn() as txn:
        txn.append(f"{channel}/0", [b"t1", b"t2"])
        txn.append(f"{channel}/1", b"t3")
    assert txn.result is not None
    first, last = int(txn.result.first_tick), int(txn.result.last_tick)
    append(client, f"{channel}/1", "b")
    archive(spark, tmp_path, options, trim=True)
    archived = {**options, "archive": str(tmp_path)}

    for cut in (first, first + 1, last - 1):
        assert payloads(load(spark, archived, asOfTick=cut)) == ["a"]
        assert payloads(read_table(spark, {**archived, "asOfTick": cut})) == ["a"]
    assert payloads(load(spark, archived, asOfTick=last)) == ["a", "t1", "t2", "t3"]
    # A filter is not a cut: it may divide a transaction.
    assert payloads(load(spark, archived).where(f"tick <= {first}")) == ["a", "t1"]
    with pytest.raises(PySparkException, match="the archive ends before tick"):
        load(spark, archived, archiveOnly="true", asOfTick=last + (1 << 40)).collect()


def test_a_run_that_dies_before_its_commit_leaves_nothing_that_counts(
    spark: SparkSession, client: Client, channel: str, options: Options, tmp_path: Path
) -> None:
    append(client, f"{channel}/0", "a", "b")
    read = parse_options({name: str(value) for name, value in options.items()})
    with manifest.writing(tmp_path):
        dead = stage(spark, manifest.load(tmp_path, must_exist=False), read)
    assert len(data_files(tmp_path)) == len(dead.files) > 0
    stranger = data_files(tmp_path)[0].with_name("of-another-program.parquet")
    stranger.write_bytes(b"x")
    append(client, f"{channel}/1", "c")

    done = archive(spark, tmp_path, options)

    assert (done.commit, done.messages, done.removed_files) == (1, 3, len(dead.files))
    assert {str(path.relative_to(tmp_path)) for path in data_files(tmp_path) if path != stranger} == {
        file.path for file in load_archive(tmp_path).files
    }
    assert stranger.exists()
    with pytest.raises(ArchiveError, match="is missing, or not as it was written"):
        commit(load_archive(tmp_path), dead)
    with manifest.writing(tmp_path), pytest.raises(ArchiveError, match="another run writes"):
        archive(spark, tmp_path, options)
    with pytest.raises(OptionError, match="has all messages of its channels"):
        archive(spark, tmp_path, {**options, "types": "7"})


def rows_in_delta(root: Path) -> list[dict[str, Any]]:
    found = QueryBuilder().register("t", DeltaTable(root)).execute("SELECT * FROM t ORDER BY tick").read_all()
    return [{**row, "properties": dict(row["properties"])} for row in pa.table(found).to_pylist()]


@pytest.mark.parametrize("root", ["s3://bucket/x", "dbfs:/x"])
def test_an_object_store_is_refused_by_all_that_take_a_folder(
    spark: SparkSession, channel: str, options: Options, root: str
) -> None:
    for job in (archive, compact):
        with pytest.raises(OptionError, match="object stores and other URLs are not supported"):
            job(spark, root, options)
    with pytest.raises(OptionError, match="object stores"):
        load_archive(root)
    for read in (read_table, verify, stats):
        with pytest.raises((OptionError, PySparkException), match="expected the path of a folder"):
            read(spark, {**options, "archive": root})


def test_the_delta_table_has_what_the_archive_has_whoever_died(
    spark: SparkSession, client: Client, channel: str, options: Options, tmp_path: Path
) -> None:
    append(client, f"{channel}/0", "a")
    archive(spark, tmp_path, options)
    sent = Message(b"b", key=b"k", type=7, properties={"p": "1"}, event_time=datetime(2026, 1, 2, tzinfo=UTC))
    client.append(f"{channel}/1", [sent])
    read = parse_options({name: str(value) for name, value in options.items()})
    with manifest.writing(tmp_path):
        # A run that died between the manifest and Delta.
        commit(load_archive(tmp_path), stage(spark, load_archive(tmp_path), read))

    first = archive(spark, tmp_path, options, delta=True)

    assert (first.commit, first.messages, first.delta_version) == (0, 0, 2)
    alone = load(spark, {**options, "archive": str(tmp_path), "archiveOnly": "true"}, moreColumns=MORE)
    assert rows_in_delta(tmp_path) == [
        {
            name: value.replace(tzinfo=UTC) if isinstance(value, datetime) else value
            for name, value in row.asDict().items()
        }
        for row in alone.orderBy("tick").collect()
    ]
    # An existing table is updated without `delta`, before the trim, and commits lost by a power failure are restored.
    append(client, f"{channel}/0", "c")
    last = tmp_path / manifest.DELTA_LOG / f"{2:020d}.json"
    last.unlink()
    second = archive(spark, tmp_path, options, trim=True)
    assert (second.commit, second.delta_version, archive(spark, tmp_path, options).delta_version) == (3, 3, 3)
    assert [row["payload"] for row in rows_in_delta(tmp_path)] == [b"a", b"b", b"c"]
    # A run that cannot update the table does nothing.
    append(client, f"{channel}/0", "d")
    last.write_text("{")
    with pytest.raises(ArchiveError, match=r"the Delta table at .* cannot be read or written"):
        archive(spark, tmp_path, options, trim=True)
    assert load_archive(tmp_path).last_commit == 3
    assert payloads(load(spark, options)) == ["d"]


def test_nothing_is_trimmed_that_a_group_or_a_broadcast_needs(
    spark: SparkSession, client: Client, channel: str, options: Options, tmp_path: Path
) -> None:
    ticks = append(client, f"{channel}/0", "a", "b", "c")
    sent = client.broadcast([f"{channel}/1"], b"all")
    append(client, f"{channel}/1", "d")
    group = f"group-of-{channel}"
    client.create_group(group, [f"{channel}/0"], start=ticks[1])

    trimmed = archive(spark, tmp_path, options, trim=True).trimmed

    assert trimmed[f"{channel}/0"].held_by == f"group {group}"
    assert trimmed[f"{channel}/1"].held_by == f"broadcast {sent.broadcast_id}"
    assert payloads(load(spark, options)) == ["all", "b", "c", "d"]
    client.destroy_group(group)
    assert archive(spark, tmp_path, options, trim=True).trimmed[f"{channel}/0"].held_by == ""
    assert payloads(load(spark, options)) == ["all", "d"]


def test_what_was_trimmed_before_it_was_archived_is_lost_aloud(
    spark: SparkSession, client: Client, channel: str, options: Options, tmp_path: Path
) -> None:
    append(client, f"{channel}/0", "a")
    archive(spark, tmp_path, options)
    # A trim that removes no unarchived message loses nothing.
    client.trim(f"{channel}/0", everything=True)
    assert payloads(load(spark, {**options, "archive": str(tmp_path)})) == ["a"]
    ticks = append(client, f"{channel}/0", "b", "c")
    client.trim(f"{channel}/0", ticks[1])

    with pytest.raises(ArchiveError, match="the messages between are lost"):
        archive(spark, tmp_path, options)
    done = archive(spark, tmp_path, {**options, "failOnDataLoss": "false"})

    assert done.messages == 1
    archived = {**options, "archive": str(tmp_path)}
    with pytest.raises(PySparkException, match="before it was archived"):
        load(spark, archived).collect()
    assert payloads(load(spark, archived, startingTick=ticks[1])) == ["c"]
    assert payloads(load(spark, archived, failOnDataLoss="false")) == ["a", "c"]


def test_another_channel_of_the_same_name_is_told_apart(
    spark: SparkSession, client: Client, channel: str, options: Options, tmp_path: Path
) -> None:
    append(client, f"{channel}/0", "a")
    archive(spark, tmp_path, options)
    client.destroy_channels([channel])
    client.create_channel(channel, vchannels=2)

    with pytest.raises(ArchiveError, match="has another channel of the name"):
        archive(spark, tmp_path, options)
    with pytest.raises(PySparkException, match="has another channel of the name"):
        load(spark, {**options, "archive": str(tmp_path)}).collect()
    assert payloads(load(spark, {**options, "archive": str(tmp_path), "archiveOnly": "true"})) == ["a"]


@pytest.mark.parametrize("column", ["payload", "event_time"])
def test_damage_of_an_archive_is_found_before_anything_is_trimmed(
    spark: SparkSession, client: Client, channel: str, options: Options, tmp_path: Path, column: str
) -> None:
    client.append(
        f"{channel}/0",
        [Message(b"payload %d" % number, event_time=datetime.fromtimestamp(number, UTC)) for number in range(1_000)],
    )
    append(client, f"{channel}/1", "whole")
    archive(spark, tmp_path, options)
    alone = {**options, "archive": str(tmp_path), "archiveOnly": "true"}
    assert verify(spark, alone).ok
    largest = max(data_files(tmp_path), key=lambda path: path.stat().st_size)
    shutil.copy(largest, tmp_path / "copy")
    damaged = bytearray(largest.read_bytes())
    damaged[last_byte_of(largest, column)] ^= 1
    largest.write_bytes(damaged)

    report = verify(spark, alone)

    assert "unreadable" in {finding.kind for finding in report.findings} <= {"unreadable", "archive"}
    assert all(finding.name == f"{channel}/0" for finding in report.findings)
    assert "is damaged" in verify_page(report)
    with pytest.raises(PySparkException, match=r"is damaged .* restore it from a copy"):
        load(spark, alone, moreColumns=MORE).collect()
    with pytest.raises(PySparkException, match="is damaged"):
        archive(spark, tmp_path, options, trim=True)
    assert load(spark, options).count() == 1_001
    shutil.copy(tmp_path / "copy", largest)
    archive(spark, tmp_path, options, trim=True)
    assert load(spark, options).count() == 0


def test_a_sound_log_has_no_findings(spark: SparkSession, client: Client, channel: str, options: Options) -> None:
    for number in range(4):
        messages = [Message(b"m", properties={"seq": str(number * 5 + place), "who": "p"}) for place in range(5)]
        client.append(f"{channel}/{number % 2}", messages)
    with client.txn() as txn:
        txn.append(f"{channel}/0", b"t")
        txn.append(f"{channel}/1", b"u")
    client.broadcast([f"{channel}/0", f"{channel}/1"], b"all")

    report = verify(spark, options, sequences=Sequences("seq", "who"))

    assert (report.ok, report.messages, report.transactions, report.broadcasts, report.producers) == (True, 24, 1, 1, 1)
    assert [each.described for each in report.vchannels] == [12, 12]
    with pytest.raises(OptionError, match="remove the option 'types'"):
        verify(spark, {**options, "types": "7"})
    wrong = verify(spark, options, digest="0" * 32)
    assert [finding.kind for finding in wrong.findings] == ["digest"]
    assert json.loads(json.dumps(wrong.as_record()))["digest"] == str(report.digests.full)


def test_each_kind_of_damage_is_a_finding(spark: SparkSession, client: Client, channel: str, options: Options) -> None:
    messages = [Message(b"%d" % number, properties={"seq": str(number)}) for number in range(10)]
    ticks = client.append(f"{channel}/0", messages)
    with client.txn() as txn:
        txn.append(f"{channel}/0", [b"t1", b"t2", b"t3"])
        txn.append(f"{channel}/1", b"t4")
    client.broadcast([f"{channel}/0", f"{channel}/1"], b"all")
    frame = load(spark, options, moreColumns="txn_id,broadcast_id").cache()
    assert verify_frame(frame, is_whole=True, sequences=Sequences("seq")).ok
    repeated = int(ticks.first_tick) + 3

    broken = (
        frame.where("payload <> 't2' AND payload <> '7'")
        .unionAll(frame.where(f"tick = {repeated}"))
        .selectExpr(
            *(name for name in frame.columns if name != "tick"),
            "IF(broadcast_id IS NOT NULL AND vchannel = 1, tick + 9, tick) AS tick",
        )
    )
    report = verify_frame(broken, is_whole=True, sequences=Sequences("seq"))

    assert {finding.kind for finding in report.findings} == {
        "repeated", "overlap", "transaction_gap", "broadcast_ticks", "sequence_repeated", "sequence_gap",
    }  # fmt: skip
    # Without all channels, a gap in a transaction is undecided.
    part = verify_frame(frame.where("payload <> 't2'"))
    assert part.ok
    assert len(part.undecided) == 1
    frame.unpersist()


def test_statistics_are_those_of_a_plain_count(
    spark: SparkSession, client: Client, channel: str, options: Options, tmp_path: Path
) -> None:
    sent = [Message(b"x" * size, key=None if size % 3 else b"k%d" % (size % 5), type=size % 2) for size in range(100)]
    client.append(f"{channel}/0", sent)
    sizes = [len(message.payload) + len(message.key or b"") for message in sent]
    keys = Counter(message.key for message in sent if message.key is not None)

    told: list[tuple[str, int, int]] = []

    report = stats(
        spark, options, window_s=1, top=3, output=tmp_path / "windows", on_progress=lambda *news: told.append(news)
    )

    # The message comes after the tick of the report, and so is not counted.
    client.append(f"{channel}/0", b"later")
    assert report.as_record() == stats(spark, {**options, "asOfTick": report.tick}, window_s=1, top=3).as_record()
    [one] = report.channels
    assert (one["messages"], one["bytes"], one["max_size"]) == (100, sum(sizes), max(sizes))
    # The messages of one append usually have the same time, and then there is no rate.
    assert (one["messages_per_second"] is None) == (one["first"] == one["last"])
    assert (one["unkeyed"], one["distinct_keys"]) == (sum(message.key is None for message in sent), len(keys))
    assert one["p50_size"] == sorted(sizes)[49]
    assert sum(window["messages"] for window in report.windows) == 100
    assert {each["type"]: each["messages"] for each in report.types} == {0: 50, 1: 50}
    expected = Counter(0 if size <= 1 else (size - 1).bit_length() for size in sizes)
    assert {each["at_most_bytes"]: each["messages"] for each in report.sizes} == {
        1 << power: count for power, count in expected.items()
    }
    best = sorted(keys.items(), key=lambda item: (-item[1], item[0]))[:3]
    assert [(each["key"], each["messages"]) for each in report.top_keys] == [(k.decode(), n) for k, n in best]
    assert spark.read.parquet(str(tmp_path / "windows")).agg({"messages": "sum"}).first()[0] == 100  # type: ignore[index]  # a sum has a row
    # Over all stages, both numbers are monotonic.
    assert {what for what, _, _ in told} == {"counting"}
    for numbers in ([done for _, done, _ in told], [total for _, _, total in told]):
        assert numbers == sorted(numbers)
        assert numbers[-1] > 0
    text = stats_page(report, options)
    assert "<svg" in text
    assert f"<h1>Statistics of {options['channel']}</h1>" in text
    assert "http" not in text


def test_producer_log_and_archive_agree(
    spark: SparkSession, client: Client, channel: str, server: RunningServer, tmp_path: Path
) -> None:
    lists = [[os.urandom(100) for _ in range(5_000)] for _ in range(4)]
    for place, payloads_ in enumerate(lists):
        client.append(f"{channel}/{place % 2}", payloads_)
    expected = digest_contents(channel, [payload for each in lists for payload in each])

    times = run_jobs(spark, server.endpoint, channel, tmp_path, expected)

    assert set(times) >= {"archive_s", "archive_again_s", "verify_trimmed_s"}


def test_the_command_reports_findings_and_its_exit_code(
    client: Client, channel: str, server: RunningServer, tmp_path: Path
) -> None:
    append(client, f"{channel}/0", "a")
    program = [sys.executable, "-c", COMMAND, "pipeline", "verify", channel, "--endpoint", server.endpoint]

    ran = subprocess.run(
        [*program, "--digest", "0" * 32, "--html", str(tmp_path / "page.html"), "--conf", "spark.app.name=x"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )  # fmt: skip

    assert ran.returncode == 9, ran.stderr
    assert "1 findings: the full digest is" in ran.stderr
    assert json.loads(ran.stdout)["messages"] == 1
    assert f"expected {'0' * 32}" in (tmp_path / "page.html").read_text()


def test_what_spark_is_not_needed_for_is_told_before_it_starts(
    server: RunningServer, channel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", None)
    common = ["--endpoint", server.endpoint]
    ours, folder = [channel, *common], str(tmp_path / "new")
    (tmp_path / "file").touch()

    hint = "channel 'nope' does not exist: create it with `tidelog channel create nope`, or correct the name"

    for arguments, code, message in (
        (["archive", folder, "nope", *common], ExitCode.NOT_FOUND, hint),
        (["compact", folder, "nope", *common], ExitCode.NOT_FOUND, hint),
        (["verify", "nope", *common], ExitCode.NOT_FOUND, hint),
        (["stats", "nope", *common], ExitCode.NOT_FOUND, hint),
        (["compact", folder, "nope/0", *common], ExitCode.NOT_FOUND, "'nope' does not exist"),
        (["archive", folder, *ours, "--option", "chann=x"], ExitCode.USAGE, "did you mean 'channel'?"),
        (["archive", folder, *ours, "--option", "types=7"], ExitCode.USAGE, "an archive has all messages of its"),
        (["archive", str(tmp_path), *ours], ExitCode.CONFLICT, "is not empty and is not an archive"),
        (["archive", "s3://bucket/x", *ours], ExitCode.USAGE, "object stores"),
        (["verify", *ours, "--digest", "x"], ExitCode.USAGE, "the digest is 'x', expected 32"),
        (["verify", *ours, "--archive", folder], ExitCode.CONFLICT, "there is no archive at"),
        (["stats", *ours, "--html", str(tmp_path / "file" / "x")], ExitCode.FAILURE, "Not a directory"),
    ):
        error = pipeline_error(*arguments)
        assert error.code is code
        assert message in error.message
        assert "\n" not in error.message
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_job_without_java_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    error = pipeline_error("stats", "orders")

    assert error.code is ExitCode.FAILURE
    assert "apt-get install" in error.message


def test_the_reason_of_an_error_of_sparks_own_is_its_first_line(spark: SparkSession) -> None:
    with pytest.raises(PySparkException) as raised:
        spark.sql("SELECT 1 AS a").select("b")

    assert reason_of(raised.value).startswith("[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column")


def test_the_program_for_spark_submit_runs_jobs(
    spark: SparkSession, client: Client, channel: str, server: RunningServer, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    del spark  # The second job uses the active session.
    append(client, f"{channel}/0", "a")
    options = {"endpoint": server.endpoint, "channel": channel}
    root = str(tmp_path / "archive")

    ran = subprocess.run(
        [Path(sys.executable).parent / "spark-submit", submit.__file__, "archive",
         json.dumps({"root": root, "options": options, "delta": True})],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout).items() >= {"messages": 1, "delta_version": 1}.items()
    wanted = {"options": {**options, "archive": root}, "digest": "0" * 32, "sequences": {"sequence": "number"}}
    assert submit.main("verify", json.dumps(wanted)) == 9
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_the_example_of_the_page_prints_what_the_page_says(
    server: RunningServer, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del spark  # The example uses the active session.

    run_example("spark/pipelines.md", {ENDPOINT: server.endpoint, "/mnt": str(tmp_path)})

    assert f"It prints `{capsys.readouterr().out.strip()}`." in page("spark/pipelines.md")
