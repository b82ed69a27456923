"""A planned read of a channel reads that channel or fails, and never reads a re-created channel of the same name.

Method: a channel is destroyed and re-created between a plan and its tasks: of a frame, of a micro-batch, of a run of
``archive``; and before a read whose start or cut is a tick of the destroyed channel.

Promises of docs/reference/guarantees.md: G11.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidelog import ChannelNotFoundError, Client, PositionTrimmedError
from tidelog.spark import TidelogDataSource
from tidelog.spark.archive.manifest import load, writing
from tidelog.spark.errors import ArchiveError
from tidelog.spark.pipelines import archive
from tidelog.spark.pipelines.archiving import archive_options, check_still_there, stage
from tidelog.spark.pipelines.trim import trim_archived
from tidelog.spark.source import SCHEMA
from tidelog_server.testing import RunningServer
from tidelog_testing.spark.rows import error_of, payloads

OLD, NEW = [b"old-%d" % number for number in range(5)], [b"new-%02d" % number for number in range(15)]


def create_again(client: Client, channel: str) -> None:
    client.destroy_channels([channel])
    client.create_channel(channel, vchannels=2)
    client.append(f"{channel}/0", NEW)


@pytest.fixture
def old(client: Client, channel: str) -> int:
    """Return the tick of the first message of a channel with messages."""
    return int(client.append(f"{channel}/0", OLD).first_tick)


def test_a_frame_that_was_planned_before_fails(client: Client, channel: str, old: int, read: Any) -> None:
    frame = read(channel)
    # Plans the frame; `collect` uses this plan.
    assert frame.rdd.getNumPartitions() >= 1

    create_again(client, channel)

    assert "another one was created" in error_of(frame.collect)
    assert payloads(read(channel)) == [payload.decode() for payload in NEW]


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_micro_batch_that_was_planned_before_fails_or_is_left_out(
    client: Client, channel: str, old: int, server: RunningServer, fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"endpoint": server.endpoint, "path": channel, "startingOffsets": "earliest", "failOnDataLoss": fails}
    reader = TidelogDataSource(options).streamReader(SCHEMA)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    partitions = reader.partitions(start, end)
    assert end["created"] == {channel: int(client.describe_channels([channel])[0].created_tick)}

    create_again(client, channel)

    def batches() -> Iterator[Any]:
        for partition in partitions:
            yield from reader.read(partition)

    if fails == "true":
        with pytest.raises(ChannelNotFoundError, match="was destroyed while"):
            list(batches())
        with pytest.raises(PositionTrimmedError, match="re-created at tick"):
            reader.partitions(start, end)
    else:
        assert list(batches()) == []
        assert "was destroyed while" in caplog.text
    reader.stop()


def test_a_run_of_archive_commits_nothing_of_a_channel_that_was_created_again(
    spark: SparkSession, client: Client, channel: str, old: int, options: dict[str, Any], tmp_path: Path
) -> None:
    def on_progress(what: str, done: int, total: int) -> None:
        # The first call comes after the plan and before the tasks.
        if what == "archiving" and not created:
            created.append(what)
            create_again(client, channel)

    created: list[str] = []
    root = tmp_path / "archive"

    text = error_of(lambda: archive(spark, root, options, on_progress=on_progress))

    assert "another one was created" in text
    assert (created, load(root, must_exist=False).last_commit) == (["archiving"], 0)


def test_a_run_of_archive_looks_again_before_it_commits_and_trims_nothing_of_another_channel(
    spark: SparkSession, client: Client, channel: str, old: int, options: dict[str, Any], tmp_path: Path
) -> None:
    root = tmp_path / "archive"
    archive(spark, root, options)
    client.append(f"{channel}/0", b"more")
    read = archive_options(options)
    with writing(root):
        staged = stage(spark, load(root), read)
        assert sum(file.messages for file in staged.files) == 1

        create_again(client, channel)

        with pytest.raises(ArchiveError, match="nothing was committed"):
            check_still_there(staged, read)
        assert trim_archived(spark, load(root), read) == {}
    client.destroy_channels([channel])
    # A destroyed channel that was read completely can still be archived.
    check_still_there(staged, read)


def test_a_start_in_a_channel_that_is_gone_fails_unless_losses_are_accepted(
    client: Client, channel: str, old: int, read: Any
) -> None:
    create_again(client, channel)
    new = [payload.decode() for payload in NEW]

    assert "was destroyed and created again" in error_of(lambda: payloads(read(channel, startingTick=old)))
    assert payloads(read(channel, startingTick=old, failOnDataLoss="false")) == new
    assert payloads(read(channel, startingTick=0)) == payloads(read(channel, startingTick=1)) == new
    assert payloads(read(channel, startingTimestamp=old >> 18)) == new
    # A channel that matches a pattern and was created later is new, and not a loss.
    client.create_channel(f"{channel}.later")
    client.append(f"{channel}.later", b"later")
    assert payloads(read(channelPattern=f"{channel}.*", startingTick=old)) == ["later"]


def test_a_cut_before_the_creation_of_a_channel_fails_unless_losses_are_accepted(
    client: Client, channel: str, old: int, read: Any
) -> None:
    assert payloads(read(channel, asOfTick=old)) == ["old-0"]

    create_again(client, channel)

    assert "lies before the creation" in error_of(lambda: payloads(read(channel, asOfTick=old)))
    assert payloads(read(channel, asOfTick=old, failOnDataLoss="false")) == []
