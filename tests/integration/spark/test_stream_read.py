"""Goal: a streaming query reads each message once, in micro-batches that end on all channels at one tick.

Method: real queries with ``Trigger.AvailableNow``, each with its own checkpoint; each micro-batch is collected by
``foreachBatch``, which runs in this process. A batch that fails after it was collected, and a restart from the
checkpoint, simulate a crash of the driver. One query keeps running while messages are appended.

Promises of docs/reference/guarantees.md: G11.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidelog import Client
from tidelog.spark.connection import Connection
from tidelog.spark.owners import Owners
from tidelog.spark.stream.groups import GroupProgress
from tidelog.spark.stream.offsets import cut_at
from tidelog_server.testing import RunningServer
from tidelog_testing.documents.examples import ENDPOINT, page, run_example
from tidelog_testing.parts.soaks import in_core
from tidelog_testing.spark.rows import append, error_of

pytestmark = pytest.mark.spark

WITHIN_S = 60


class CrashError(Exception):
    """Simulates a crash of the driver."""


@dataclass
class Stream:
    """A query that can be restarted from its checkpoint; ``batches`` has the rows of each micro-batch by number."""

    spark: SparkSession
    endpoint: str
    folder: Path
    options: dict[str, Any]
    batches: dict[int, list[str]] = field(default_factory=dict)
    repeats: int = 0
    crashes_at: int | None = None
    trigger: dict[str, Any] = field(default_factory=lambda: {"availableNow": True})

    def start(self, **trigger: Any) -> StreamingQuery:
        source = self.spark.readStream.format("tidelog").option("endpoint", self.endpoint).options(**self.options)
        # Only the columns that the tests check.
        frame = source.schema("channel string NOT NULL, tick bigint NOT NULL, payload binary NOT NULL").load()
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self.folder))
        return writer.trigger(**(trigger or self.trigger)).start()

    def run(self) -> list[str]:
        """Run until all messages that existed at the start are read; return the payloads of this run in tick order."""
        known = set(self.batches)
        query = self.start()
        assert query.awaitTermination(WITHIN_S)
        return [payload for number in sorted(set(self.batches) - known) for payload in self.batches[number]]

    def fails(self) -> str:
        return error_of(self.run)

    def ends(self) -> list[dict[str, Any]]:
        """Return the offsets in the checkpoint."""
        files = sorted((self.folder / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        return [json.loads(path.read_text().splitlines()[-1]) for path in files]

    def _take(self, frame: DataFrame, number: int) -> None:
        rows = [bytes(row.payload).decode() for row in sorted(frame.collect(), key=lambda row: int(row.tick))]
        if number in self.batches:
            assert rows == self.batches[number]
            self.repeats += 1
        self.batches[number] = rows
        if number == self.crashes_at:
            self.crashes_at = None
            raise CrashError


@pytest.fixture
def stream(spark: SparkSession, server: RunningServer, tmp_path: Path) -> Callable[..., Stream]:
    def make(**options: Any) -> Stream:
        return Stream(spark, server.endpoint, tmp_path / "checkpoint", {"startingOffsets": "earliest", **options})

    return make


@pytest.mark.extended
def test_a_restart_goes_on_where_the_query_was_and_a_crash_repeats_the_same_rows(
    client: Client, channel: str, stream: Callable[..., Stream]
) -> None:
    append(client, f"{channel}/0", "a", "b")
    query = stream(channel=channel)

    assert query.run() == ["a", "b"]
    append(client, f"{channel}/1", "c")
    append(client, f"{channel}/0", "d")
    query.crashes_at = max(query.batches) + 1
    assert "CrashError" in query.fails()
    append(client, f"{channel}/1", "e")
    assert query.run() == ["e"]
    assert query.run() == []

    assert query.repeats == 1
    assert [rows for rows in query.batches.values() if rows] == [["a", "b"], ["c", "d"], ["e"]]
    for end in query.ends():
        assert end["v"] == 2
        assert set(end["channels"][channel]) == {"0", "1"}
    assert all(set(end["channels"][channel].values()) == {end["tick"]} for end in query.ends()[1:])


def test_a_query_that_is_triggered_once_reads_what_is_there_and_goes_on_behind_it(
    client: Client, channel: str, stream: Callable[..., Stream]
) -> None:
    append(client, f"{channel}/0", "a", "b")
    append(client, f"{channel}/1", "c")
    query = stream(channel=channel)
    query.trigger = {"once": True}

    # Killed before the first batch was recorded as done: it is repeated from the same start.
    query.crashes_at = 0
    assert "CrashError" in query.fails()
    append(client, f"{channel}/1", "d")
    assert query.run() == []
    assert (query.batches, query.repeats) == ({0: ["a", "b", "c"]}, 1)
    assert query.run() == ["d"]
    assert set(query.ends()[0]["begin"]["channels"][channel]) == {"0", "1"}


def test_limits_divide_a_backlog_and_no_batch_tears_a_transaction(
    client: Client, channel: str, stream: Callable[..., Stream]
) -> None:
    client.create_channel(f"{channel}.more", vchannels=2)
    names = [f"{channel}/0", f"{channel}/1", f"{channel}.more/0", f"{channel}.more/1"]
    for amount in (1, 20, 300):
        append(client, names[amount % 2], "0", "0", "0")
        with client.txn() as txn:
            for _ in range(2):
                txn.append(names[0], str(-amount).encode())
                txn.append(names[3], str(amount).encode())
    with client.txn() as txn:
        for name in names:
            txn.append(name, [b"7", b"-7"] * 4)
    query = stream(channels=f"{channel},{channel}.more", maxMessagesPerTrigger=6)

    assert len(query.run()) == 3 * 7 + 32

    sums = [sum(map(int, rows)) for rows in query.batches.values()]
    assert sums == [0] * len(sums)
    sizes = [len(rows) for rows in query.batches.values() if rows]
    # The last transaction exceeds the limit, and is one batch.
    assert sizes.pop() == 32
    assert all(size <= 6 for size in sizes)
    assert len(sizes) <= 8


def test_bytes_are_a_limit_as_well(client: Client, channel: str, stream: Callable[..., Stream]) -> None:
    for i in range(8):
        append(client, f"{channel}/{i % 2}", str(i) * 10_000)

    query = stream(channel=channel, maxBytesPerTrigger=25_000)

    assert [row[0] for row in query.run()] == list("01234567")
    assert [len(rows) for rows in query.batches.values() if rows] == [2, 2, 2, 2]


def test_a_query_that_runs_takes_new_messages_and_new_channels(
    client: Client, channel: str, stream: Callable[..., Stream]
) -> None:
    client.create_channel(f"{channel}.eu")
    append(client, f"{channel}.eu/0", "not read: it was there before")
    query = stream(channelPattern=f"{channel}.*", startingOffsets="latest", commitGroup=f"{channel}-lag")
    group = f"{channel}-lag"
    running = query.start(processingTime="100 milliseconds")
    try:
        until(lambda: 0 in query.batches, running)
        append(client, f"{channel}.eu/0", "a")
        until(lambda: "a" in read(query), running)
        client.create_channel(f"{channel}.us", vchannels=2)
        append(client, f"{channel}.us/1", "b")
        append(client, f"{channel}.eu/0", "c")
        until(lambda: len(read(query)) == 3, running)
        until(lambda: len(client.describe_group(group).positions) == 3, running)
        until(lambda: client.describe_group(group).lag_messages == 0, running)
    finally:
        running.stop()

    assert read(query) == ["a", "b", "c"]
    append(client, f"{channel}.us/0", "d", "e")
    assert client.describe_group(group).lag_messages == 2
    assert query.run() == ["d", "e"]
    assert client.describe_group(group).lag_messages == 0


def until(condition: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def read(query: Stream) -> list[str]:
    return [row for number in sorted(query.batches) for row in query.batches[number]]


@pytest.mark.extended
def test_what_was_trimmed_before_it_was_read_fails_or_is_left_out(
    client: Client, channel: str, stream: Callable[..., Stream]
) -> None:
    append(client, f"{channel}/0", "a")
    query = stream(channel=channel)
    assert query.run() == ["a"]
    position = query.ends()[-1]["tick"]
    ticks = append(client, f"{channel}/0", "lost", "b")
    append(client, f"{channel}/1", "c")
    client.trim(f"{channel}/0", ticks[1])

    text = query.fails()
    assert f"{channel}/0 was trimmed: the query should continue at tick {position}" in text
    assert f"first available tick is {ticks[1]}" in text
    assert "failOnDataLoss" in text

    query.options["failOnDataLoss"] = "false"
    assert query.run() == ["b", "c"]


@pytest.mark.extended
def test_a_channel_that_is_destroyed_fails_the_query_or_is_dropped(
    client: Client, channel: str, stream: Callable[..., Stream]
) -> None:
    client.create_channel(f"{channel}.a")
    client.create_channel(f"{channel}.b")
    append(client, f"{channel}.a/0", "a")
    query = stream(channelPattern=f"{channel}.*")
    assert query.run() == ["a"]
    client.destroy_channels([f"{channel}.a"])
    append(client, f"{channel}.b/0", "b")

    assert f"the channel '{channel}.a' was destroyed while it was read" in query.fails()
    client.create_channel(f"{channel}.a")
    append(client, f"{channel}.a/0", "new")
    assert f"'{channel}.a' was destroyed while it was read, and re-created at tick" in query.fails()

    query.options["failOnDataLoss"] = "false"
    assert query.run() == ["b", "new"]


def test_a_query_begins_at_a_tick_or_a_time(client: Client, channel: str, stream: Callable[..., Stream]) -> None:
    ticks = append(client, f"{channel}/0", "a", "b")
    query = stream(channel=channel, startingTick=int(ticks[1]))
    del query.options["startingOffsets"]

    assert query.run() == ["b"]


@pytest.mark.parametrize("start", in_core(["earliest"], ["earliest", "tick", "timestamp"]))
def test_channels_that_were_made_behind_a_batch_are_read_in_their_turn(
    client: Client, channel: str, stream: Callable[..., Stream], start: str
) -> None:
    client.create_channel(f"{channel}.a")
    ticks = append(client, f"{channel}.a/0", "1", "2", "3")
    client.create_channel(f"{channel}.b")
    append(client, f"{channel}.b/0", "4", "5")
    query = stream(channelPattern=f"{channel}.*", maxMessagesPerTrigger=1)
    if start == "tick":
        query.options |= {"startingOffsets": "", "startingTick": int(ticks[0])}
    elif start == "timestamp":
        query.options |= {"startingOffsets": "", "startingTimestamp": ticks[0].time.isoformat(timespec="milliseconds")}
    query.options = {name: value for name, value in query.options.items() if value}

    assert query.run() == ["1", "2", "3", "4", "5"]


def test_a_group_that_cannot_be_told_is_a_warning_once_a_batch(
    client: Client, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    progress = GroupProgress(Owners(Connection((client.endpoint,))), "NO SUCH NAME", ())
    offset = cut_at(append(client, f"{channel}/0", "a")[0] + 1, [f"{channel}/0"], {})

    progress.commit(offset)
    progress.commit(offset)

    [warning] = caplog.messages
    assert "the position of consumer group 'NO SUCH NAME' was not committed at tick" in warning


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channel": "nowhere"}, "'nowhere' does not exist"),
        ({"channelPattern": "nowhere.*"}, "which matches no channel"),
        ({"channel": "a", "asOfTick": "1"}, "a stream has no end: remove the option 'asOfTick'"),
    ],
)
def test_a_query_that_cannot_start_says_why(
    stream: Callable[..., Stream], options: dict[str, str], message: str
) -> None:
    assert message in stream(**options).fails()


@pytest.mark.extended
def test_the_example_of_the_page_prints_what_the_page_says(
    server: RunningServer, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del spark  # The example uses the active session.

    run_example("spark/streaming.md", {ENDPOINT: server.endpoint, "/tmp/tidelog-example": str(tmp_path)})

    assert f"It prints:\n\n```text\n{capsys.readouterr().out}```" in page("spark/streaming.md")
