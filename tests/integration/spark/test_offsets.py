"""Goal: a read or a stream begins and ends at the position that the options have for each vchannel.

Method: real reads and queries of small channels, whose messages have known ticks.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tidelog import Client, Tick
from tidelog_server.testing import RunningServer
from tidelog_testing.spark.rows import append, error_of, payloads

pytestmark = pytest.mark.spark
Read = Callable[..., DataFrame]
Stream = Callable[..., list[str]]


def offsets(channel: str, positions: Mapping[int, int]) -> str:
    return json.dumps({channel: {str(index): int(tick) for index, tick in positions.items()}})


@pytest.fixture
def stream(spark: SparkSession, server: RunningServer, tmp_path: Path) -> Stream:
    """Return a function that runs a query until it has read everything, and returns its payloads, sorted."""

    def run(**options: Any) -> list[str]:
        found: list[str] = []
        source = spark.readStream.format("tidelog").option("endpoint", server.endpoint).options(**options).load()
        writer = source.writeStream.foreachBatch(lambda frame, _: found.extend(payloads(frame)))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        return sorted(found)

    return run


@pytest.fixture
def ticks(client: Client, channel: str) -> tuple[list[Tick], list[Tick]]:
    """Return the ticks of three messages on each vchannel."""
    return append(client, f"{channel}/0", "a0", "a1", "a2"), append(client, f"{channel}/1", "b0", "b1", "b2")


def test_a_batch_is_bounded_on_each_vchannel(read: Read, channel: str, ticks: tuple[list[Tick], list[Tick]]) -> None:
    zero, one = ticks
    begin = offsets(channel, {0: zero[1], 1: -2})
    assert payloads(read(channel, startingOffsets=begin)) == ["a1", "a2", "b0", "b1", "b2"]
    assert payloads(read(channel, endingOffsets=offsets(channel, {0: zero[1], 1: -1}))) == ["a0", "b0", "b1", "b2"]
    both = {"startingOffsets": begin, "endingOffsets": offsets(channel, {0: zero[2], 1: one[1]})}
    assert payloads(read(channel, **both)) == ["a1", "b0"]
    assert payloads(read(channel, **both).where(f"tick > {int(zero[1])}")) == ["b0"]
    nothing = offsets(channel, {0: zero[0], 1: one[0]})
    assert payloads(read(channel, startingOffsets=nothing, endingOffsets=nothing)) == []
    assert payloads(read(channel, endingOffsets=offsets(channel, {0: 0, 1: one[1]}))) == ["b0"]
    # Beyond the last message, as with a single end.
    late = int(one[2]) + (1 << 40)
    assert payloads(read(channel, startingOffsets=offsets(channel, {0: late, 1: one[2]}))) == ["b2"]
    assert payloads(read(channel, endingOffsets=offsets(channel, {0: late, 1: one[1]}))) == ["a0", "a1", "a2", "b0"]
    assert payloads(read(channel, startingOffsets="earliest", endingOffsets="latest")) == payloads(read(channel))


def test_the_number_of_partitions_is_shared_by_vchannels_that_begin_elsewhere(
    client: Client, read: Read, channel: str
) -> None:
    zero = append(client, f"{channel}/0", *(f"a{number}" for number in range(500)))
    for _ in range(8):
        append(client, f"{channel}/1", *("b" * 100 for _ in range(500)))
    frame = read(channel, startingOffsets=offsets(channel, {0: zero[1], 1: -2}), minPartitions=4)
    assert frame.count() == 499 + 4_000
    assert 2 <= frame.rdd.getNumPartitions() <= 8


def test_positions_are_those_of_what_is_read(client: Client, read: Read, channel: str) -> None:
    append(client, f"{channel}/0", "a")
    missing = error_of(read(channel, startingOffsets=offsets(channel, {0: -2})).collect)
    assert f"'startingOffsets' has no position for {channel}/1: add a tick, or -2 for the earliest one" in missing
    other = error_of(read(channel, endingOffsets=offsets(channel, {0: -1, 1: -1, 7: -1})).collect)
    assert f"'endingOffsets' names {channel}/7, which is not read" in other
    # With a pattern, channels come and go.
    client.create_channel(f"{channel}.new")
    append(client, f"{channel}.new/0", "b")
    assert payloads(read(channelPattern=f"{channel}*", startingOffsets=offsets(channel, {0: -2}))) == ["a", "b"]


def test_a_position_that_was_trimmed_fails_or_is_left_out(
    client: Client, read: Read, channel: str, ticks: tuple[list[Tick], list[Tick]]
) -> None:
    zero, one = ticks
    client.trim(f"{channel}/0", zero[2])
    # The earliest position of a vchannel that was trimmed is no loss.
    assert payloads(read(channel, startingOffsets=offsets(channel, {0: -2, 1: one[2]}))) == ["a2", "b2"]
    lost = offsets(channel, {0: zero[1], 1: one[2]})
    text = error_of(read(channel, startingOffsets=lost).collect)
    assert f"{channel}/0 was trimmed: the read should start at tick {zero[1]}" in text
    assert payloads(read(channel, startingOffsets=lost, failOnDataLoss="false")) == ["a2", "b2"]


def test_a_transaction_that_spans_the_end_of_a_vchannel_is_read_in_part(
    client: Client, read: Read, channel: str
) -> None:
    with client.txn() as txn:
        txn.append(f"{channel}/0", [b"a", b"b"])
        txn.append(f"{channel}/1", b"c")
    first = read(channel).where("payload = CAST('b' AS BINARY)").first()
    assert first is not None
    assert payloads(read(channel, endingOffsets=offsets(channel, {0: first.tick, 1: -1}))) == ["a", "c"]


def test_a_stream_begins_at_a_position_on_each_vchannel(
    client: Client, stream: Stream, channel: str, ticks: tuple[list[Tick], list[Tick]]
) -> None:
    begin = {"startingOffsets": offsets(channel, {0: ticks[0][1], 1: -1}), "channel": channel}
    assert stream(**begin) == ["a1", "a2"]
    append(client, f"{channel}/0", "a3")
    append(client, f"{channel}/1", "b3")
    # The checkpoint counts, not the option.
    assert stream(**begin) == ["a3", "b3"]


def test_a_stream_never_reads_before_a_position_in_the_future(
    client: Client, stream: Stream, channel: str, ticks: tuple[list[Tick], list[Tick]]
) -> None:
    later = int(ticks[1][2]) + (3_600_000 << 18)
    begin = {"startingOffsets": offsets(channel, {0: -2, 1: later}), "channel": channel, "maxMessagesPerTrigger": 2}
    assert stream(**begin) == ["a0", "a1", "a2"]
    append(client, f"{channel}/0", "a3")
    append(client, f"{channel}/1", "still too early")
    assert stream(**begin) == ["a3"]


def test_a_stream_whose_position_was_trimmed_fails(
    client: Client, stream: Stream, channel: str, ticks: tuple[list[Tick], list[Tick]]
) -> None:
    client.trim(f"{channel}/0", ticks[0][2])
    begin = {"startingOffsets": offsets(channel, {0: ticks[0][1], 1: -2}), "channel": channel}
    assert f"{channel}/0 was trimmed: the query should continue at tick {ticks[0][1]}" in error_of(
        lambda: stream(**begin)
    )
    assert stream(**begin, failOnDataLoss="false") == ["a2", "b0", "b1", "b2"]


def test_a_stream_needs_a_position_for_each_vchannel(stream: Stream, channel: str) -> None:
    text = error_of(lambda: stream(channel=channel, startingOffsets=offsets(channel, {1: -2})))
    assert f"'startingOffsets' has no position for {channel}/0" in text
