"""Goal: a batch that Spark writes is in the log exactly as its rows, atomically and once.

Method: a real server and a real Spark session; streams read files. The log is read back with the client.

Promises of docs/reference/guarantees.md: G47.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tidelog import At, Client, Message, TransactionDescription
from tidelog_server.testing import RunningServer, start
from tidelog_server.txn import applications
from tidelog_testing.documents.examples import ENDPOINT, page, run_example
from tidelog_testing.spark.rows import error_of

pytestmark = pytest.mark.spark

Write = Callable[..., None]


@pytest.fixture
def write(server: RunningServer) -> Write:
    def save(frame: DataFrame, path: str | None = None, **options: Any) -> None:
        writer = frame.write.format("tidelog").mode("append").option("endpoint", server.endpoint).options(**options)
        writer.save(path)

    return save


def messages(client: Client, *vchannels: str) -> list[tuple[str, Message]]:
    """Return all messages, in tick order."""
    with client.scan(vchannels, until=At.watermark()) as scan:
        return [
            (
                batch.vchannel,
                Message(
                    each.payload,
                    key=each.key,
                    type=each.type,
                    properties=each.properties,
                    event_time=each.event_time,
                ),
            )
            for batch in scan
            for each in batch
        ]


def payloads(client: Client, *vchannels: str) -> list[bytes]:
    return [message.payload for _, message in messages(client, *vchannels)]


def left_behind(client: Client, channel: str) -> list[TransactionDescription]:
    """Return the open transactions on a channel."""
    return [txn for txn in client.list_txns() if any(name.startswith(f"{channel}/") for name in txn.vchannels)]


def test_every_part_of_a_row_is_in_the_log(spark: SparkSession, client: Client, channel: str, write: Write) -> None:
    frame = spark.sql(
        "SELECT * FROM VALUES (X'00FF', X'6B', 7, map('a', '1'), 0, TIMESTAMP'1969-12-31 23:59:59.0005Z'), "
        "(X'', NULL, -1, map(), 1, NULL), (X'61', X'', 0, NULL, 1, NULL) "
        "AS rows(payload, key, type, properties, vchannel, event_time)"
    ).coalesce(1)

    write(frame, channel)

    event_time = datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert messages(client, f"{channel}/0", f"{channel}/1") == [
        (f"{channel}/0", Message(b"\x00\xff", key=b"k", type=7, properties={"a": "1"}, event_time=event_time)),
        (f"{channel}/1", Message(b"", type=(1 << 32) - 1)),
        (f"{channel}/1", Message(b"a", key=b"")),
    ]


def test_rows_of_all_tasks_are_one_transaction(spark: SparkSession, client: Client, channel: str, write: Write) -> None:
    frame = spark.range(0, 1_000, 1, 4).selectExpr("CAST(id AS STRING) AS payload", "CAST(id % 10 AS STRING) AS key")
    before = client.append(f"{channel}/0", b"before").last_tick
    begin = {f"{channel}/{index}": before for index in range(2)}

    write(frame, channel)

    after = client.append(f"{channel}/0", b"after").first_tick
    with client.scan([f"{channel}/0", f"{channel}/1"], start=begin, until=At.tick(after)) as scan:
        batches = list(scan)
    assert sorted(int(payload) for batch in batches for payload in batch.payloads) == list(range(1_000))
    ticks = sorted(tick for batch in batches for tick in batch.ticks)
    assert ticks == list(range(ticks[0], ticks[0] + 1_000))
    # Equal keys are on the same vchannel, and both vchannels have keys.
    homes = {(key, batch.vchannel) for batch in batches for key in batch.keys}
    assert len(homes) == 10
    assert len({vchannel for _, vchannel in homes}) == 2


@pytest.mark.parametrize("delivery", ["exactlyOnce", "atLeastOnce"])
def test_a_task_may_write_to_more_vchannels_than_a_transaction_has(
    spark: SparkSession, client: Client, channel: str, write: Write, delivery: str
) -> None:
    client.create_channel(f"{channel}.wide", vchannels=257)
    frame = spark.range(0, 514, 1, 1).selectExpr("CAST(id AS STRING) AS payload", "CAST(id % 257 AS INT) AS vchannel")

    write(frame, f"{channel}.wide", delivery=delivery)

    [described] = client.describe_channels([f"{channel}.wide"])
    assert [lane.messages for lane in described.vchannels] == [2] * 257
    assert left_behind(client, f"{channel}.wide") == []


def test_a_column_says_to_which_channel_a_row_goes(
    spark: SparkSession, client: Client, channel: str, write: Write
) -> None:
    other = f"{channel}-b"
    client.create_channel(other)
    frame = spark.sql(f"SELECT * FROM VALUES ('1', '{channel}'), ('2', '{other}') AS rows(payload, channel)")

    write(frame)

    assert payloads(client, f"{other}/0") == [b"2"]
    assert payloads(client, f"{channel}/0", f"{channel}/1") == [b"1"]


def test_a_version_is_written_once_and_an_older_one_is_refused(
    spark: SparkSession, client: Client, channel: str, write: Write
) -> None:
    app = {"txnAppId": channel}
    write(spark.sql("SELECT '1' AS payload"), channel, txnVersion=5, **app)
    write(spark.sql("SELECT 'again' AS payload"), channel, txnVersion=5, **app)
    write(spark.sql("SELECT '2' AS payload"), channel, txnVersion=6, **app)
    refusal = error_of(lambda: write(spark.sql("SELECT 'old' AS payload"), channel, txnVersion=5, **app))

    assert "has already committed version 6" in refusal
    assert sorted(payloads(client, f"{channel}/0", f"{channel}/1")) == [b"1", b"2"]
    assert left_behind(client, channel) == []


def test_nothing_is_in_the_log_of_a_write_of_which_a_task_fails(
    spark: SparkSession, client: Client, channel: str, write: Write
) -> None:
    frame = spark.range(0, 100, 1, 2).selectExpr("IF(id = 99, raise_error('broken'), CAST(id AS STRING)) AS payload")

    assert "broken" in error_of(lambda: write(frame, channel, txnAppId=channel, txnVersion=1, txnTimeout=1))

    assert payloads(client, f"{channel}/0", f"{channel}/1") == []
    # A task that Spark has lost may have prepared its rows; they end by timeout.
    deadline_s = time.monotonic() + 30
    while left_behind(client, channel):
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def test_rows_that_are_written_at_least_once_are_there_without_a_commit_of_the_driver(
    spark: SparkSession, client: Client, channel: str, write: Write
) -> None:
    write(spark.range(0, 10, 1, 2).selectExpr("CAST(id AS STRING) AS payload"), channel, delivery="atLeastOnce")

    assert sorted(payloads(client, f"{channel}/0", f"{channel}/1")) == [b"%d" % i for i in range(10)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, channel: str) -> Iterator[Client]:
    """A client of a separate server that remembers one application, so that other servers here evict none."""
    monkeypatch.setattr(applications, "MAX_APPS", 1)
    monkeypatch.setattr(applications, "MAX_FINISHED_APPS", 1)
    running = start()
    with Client(running.endpoint) as client:
        client.create_channel(channel, vchannels=2)
        yield client
    running.stop()


def test_writes_without_a_name_make_none_with_one_forgotten(
    spark: SparkSession, small: Client, channel: str, write: Write
) -> None:
    named, unnamed = (spark.sql(f"SELECT '{payload}' AS payload") for payload in ("named", "unnamed"))
    where = {"endpoint": small.endpoint}

    write(named, channel, txnAppId=f"{channel}-daily", txnVersion=1, **where)
    for _ in range(2):
        write(unnamed, channel, **where)
    write(named, channel, txnAppId=f"{channel}-daily", txnVersion=1, **where)

    assert sorted(payloads(small, f"{channel}/0", f"{channel}/1")) == [b"named", b"unnamed", b"unnamed"]


def test_a_name_that_may_be_forgotten_is_refused_unless_it_is_said_to_be_new(
    spark: SparkSession, small: Client, channel: str, write: Write
) -> None:
    frame = spark.sql("SELECT 'a' AS payload")
    where = {"endpoint": small.endpoint}
    for name in ("one", "two"):
        write(frame, channel, txnAppId=f"{channel}-{name}", txnVersion=1, txnIsNew=True, **where)

    again = {"txnAppId": f"{channel}-one", "txnVersion": 1, **where}
    assert "may be in the log" in error_of(lambda: write(frame, channel, **again))
    assert len(payloads(small, f"{channel}/0", f"{channel}/1")) == 2

    write(frame, channel, **again, txnIsNew=True)
    assert len(payloads(small, f"{channel}/0", f"{channel}/1")) == 3


def test_an_empty_frame_writes_nothing(spark: SparkSession, client: Client, channel: str, write: Write) -> None:
    write(spark.range(0).selectExpr("CAST(id AS STRING) AS payload"), channel)
    assert payloads(client, f"{channel}/0", f"{channel}/1") == []


@pytest.mark.parametrize(
    ("query", "options", "match"),
    [
        ("SELECT 1 AS payload", {}, "'payload' is int, expected binary or string"),
        ("SELECT 'a' AS value", {}, "no column 'payload', only value"),
        ("SELECT 'a' AS payload, 1 AS tick", {}, "an unknown column 'tick'"),
        (
            "SELECT 'a' AS payload, map(1, 2) AS properties",
            {},
            "'properties' is map<int,int>, expected map<string,string>",
        ),
        (
            "SELECT 'a' AS payload, TIMESTAMP_NTZ'2026-01-01 00:00' AS event_time",
            {},
            "is timestamp_ntz, expected timestamp",
        ),
        (
            "SELECT 'a' AS payload, TIMESTAMP'+20000-01-01' AS event_time",
            {},
            "at message 0, expected .* years 1 to 9999",
        ),
        ("SELECT 'a' AS payload, 2 AS vchannel", {}, "vchannel 2, expected 0 to 1 for the channel"),
        ("SELECT CAST(NULL AS STRING) AS payload", {}, "1 NULLs in 1 rows"),
        ("SELECT 'a' AS payload", {"txnVersion": 1}, "'txnVersion' requires 'txnAppId'"),
        ("SELECT 'a' AS payload", {"delivery": "often"}, "choose from exactlyOnce, atLeastOnce"),
        ("SELECT 'a' AS payload", {"txnAppld": "x"}, "did you mean 'txnAppId'"),
        ("SELECT repeat('x', 2000000) AS payload", {}, "1048576"),
    ],
)
def test_what_cannot_be_written_says_why(
    spark: SparkSession, client: Client, channel: str, write: Write, query: str, options: dict[str, Any], match: str
) -> None:
    text = error_of(lambda: write(spark.sql(query), channel, **options))
    assert re.search(match, text), text
    assert payloads(client, f"{channel}/0", f"{channel}/1") == []


def test_a_log_is_not_overwritten(spark: SparkSession, channel: str, server: RunningServer) -> None:
    frame = spark.sql("SELECT 'a' AS payload")
    overwriting = frame.write.format("tidelog").mode("overwrite").option("endpoint", server.endpoint)
    assert "a log cannot be overwritten" in error_of(lambda: overwriting.save(channel))


class Lines:
    """A folder of text files that a stream reads, one file per batch."""

    def __init__(self, spark: SparkSession, folder: Path, server: RunningServer, channel: str) -> None:
        self._spark, self._folder, self._server, self._channel = spark, folder, server, channel
        (folder / "lines").mkdir()
        self._files = 0

    def add(self, *lines: str) -> None:
        self._files += 1
        (self._folder / "lines" / f"{self._files}.txt").write_text("\n".join(lines), encoding="utf-8")

    def write(self, checkpoint: str = "checkpoint", **options: Any) -> None:
        """Write the files that the checkpoint does not have yet, one batch per file."""
        frame = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._folder / "lines"))
        query = (
            frame.withColumnRenamed("value", "payload").writeStream.format("tidelog")
            .option("endpoint", self._server.endpoint)
            .option("checkpointLocation", str(self._folder / checkpoint)).options(**options)
            .trigger(availableNow=True).start(self._channel)
        )  # fmt: skip
        query.awaitTermination(120)


@pytest.fixture
def lines(spark: SparkSession, tmp_path: Path, server: RunningServer, channel: str) -> Lines:
    return Lines(spark, tmp_path, server, channel)


def test_a_stream_writes_each_batch_once_however_often_it_is_repeated(
    client: Client, channel: str, lines: Lines, tmp_path: Path
) -> None:
    both = f"{channel}/0", f"{channel}/1"
    lines.add("1", "2")
    lines.add("3")
    lines.write(txnAppId=channel)
    assert Counter(payloads(client, *both)) == Counter([b"1", b"2", b"3"])

    # Simulates a crash between the commit of the last batch and its record in the checkpoint.
    for note in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        note.unlink()
    lines.add("4")
    lines.write(txnAppId=channel)

    assert Counter(payloads(client, *both)) == Counter([b"1", b"2", b"3", b"4"])
    assert left_behind(client, channel) == []


def test_a_stream_with_a_lost_checkpoint_is_not_taken_for_a_repetition(
    client: Client, channel: str, lines: Lines
) -> None:
    lines.add("1")
    lines.add("2")
    lines.write(txnAppId=channel)

    assert "with another checkpoint" in error_of(lambda: lines.write("another", txnAppId=channel))

    lines.write("another", txnAppId=f"{channel}-again")
    assert len(payloads(client, f"{channel}/0", f"{channel}/1")) == 4


def test_the_first_batch_of_a_new_checkpoint_is_not_taken_for_that_of_the_one_before(
    client: Client, channel: str, lines: Lines
) -> None:
    lines.add("1")
    lines.write(txnAppId=channel)

    # Same number of rows, same channel, same version: only the checkpoint differs.
    assert "Choose a txnAppId for this checkpoint" in error_of(lambda: lines.write("another", txnAppId=channel))

    assert payloads(client, f"{channel}/0", f"{channel}/1") == [b"1"]
    assert left_behind(client, channel) == []
    lines.add("2")
    lines.write(txnAppId=channel)
    assert sorted(payloads(client, f"{channel}/0", f"{channel}/1")) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("first", "second", "is_elsewhere"),
    [
        ("SELECT 'a' AS payload", "SELECT 'a' AS payload", True),
        ("SELECT 'a' AS payload", "SELECT explode(array('a', 'b')) AS payload", False),
        ("SELECT 'a' AS payload", "SELECT 'a' AS payload WHERE false", False),
        ("SELECT 'a' AS payload, 0 AS vchannel", "SELECT 'a' AS payload, 1 AS vchannel", False),
    ],
    ids=["another channel", "more rows", "no rows", "another vchannel"],
)
def test_a_version_that_was_written_with_other_rows_is_no_repetition(
    spark: SparkSession, client: Client, channel: str, write: Write, first: str, second: str, *, is_elsewhere: bool
) -> None:
    other = f"{channel}-other"
    client.create_channel(other)
    write(spark.sql(first), channel, txnAppId=channel, txnVersion=1)

    target = other if is_elsewhere else channel
    text = error_of(lambda: write(spark.sql(second), target, txnAppId=channel, txnVersion=1))

    assert "was committed with other rows" in text, text
    assert payloads(client, f"{channel}/0", f"{channel}/1") == [b"a"]
    assert payloads(client, f"{other}/0") == []
    assert left_behind(client, channel) == []


def test_batches_of_a_stream_that_are_written_as_frames_are_those_of_their_query(
    spark: SparkSession, client: Client, channel: str, write: Write, tmp_path: Path
) -> None:
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "1.txt").write_text("1", encoding="utf-8")
    other = f"{channel}-other"
    client.create_channel(other)

    def run(checkpoint: str, *names: str) -> None:
        def write_both(frame: DataFrame, batch: int) -> None:
            for target, name in zip((channel, other), names, strict=True):
                write(frame.withColumnRenamed("value", "payload"), target, txnAppId=name, txnVersion=batch)

        query = (
            spark.readStream.text(str(tmp_path / "lines")).writeStream.foreachBatch(write_both)
            .option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination(120)

    # One txnAppId for two targets, as Delta Lake allows, where each table has its own versions.
    assert "Choose a txnAppId for each target" in error_of(lambda: run("one", channel, channel))
    assert payloads(client, f"{other}/0") == []
    run("two", f"{channel}-a", f"{channel}-b")
    assert payloads(client, f"{other}/0") == [b"1"]
    assert "Choose a txnAppId for this checkpoint" in error_of(lambda: run("three", f"{channel}-a", f"{channel}-b"))


def test_a_stream_needs_a_name_to_write_exactly_once(client: Client, channel: str, lines: Lines) -> None:
    lines.add("1")
    assert "needs the option 'txnAppId'" in error_of(lines.write)
    lines.write(delivery="atLeastOnce")
    assert payloads(client, f"{channel}/0", f"{channel}/1") == [b"1"]


def test_what_was_read_can_be_written_to_another_channel(
    spark: SparkSession, client: Client, channel: str, server: RunningServer, write: Write
) -> None:
    copy = f"{channel}-copy"
    client.create_channel(copy)
    event_time = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    client.append(
        f"{channel}/0",
        [Message(b"1", key=b"k", properties={"a": "b"}, event_time=event_time), Message(b"2", type=3)],
    )
    reader = spark.read.format("tidelog").options(endpoint=server.endpoint, moreColumns="event_time")
    read = reader.load(channel)

    write(read.drop("tick", "timestamp", "vchannel"), copy)

    assert messages(client, f"{copy}/0") == [(f"{copy}/0", message) for _, message in messages(client, f"{channel}/0")]


def test_the_example_of_the_page_works(
    server: RunningServer, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    del spark  # The example uses the active session.

    run_example("spark/writing.md", {ENDPOINT: server.endpoint})

    assert f"It prints `{capsys.readouterr().out.strip()}`." in page("spark/writing.md")
