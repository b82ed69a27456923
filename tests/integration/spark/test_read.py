"""Goal: Spark reads exactly the rows that the options and filters select, and a failed read reports the reason.

Method: a real server with small channels, and one real Spark session on two cores. The server's metrics show how many
messages it sent, which proves that a filter was pushed down.

Promises of docs/reference/guarantees.md: G11.
"""

import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from tidelog import Client, Message, Tick
from tidelog.spark import SCHEMA
from tidelog.spark.connection import Connection
from tidelog.spark.payload_options import AS_THEY_ARE
from tidelog.spark.read.partition import ReadPartition
from tidelog.spark.read.reader import read_partition
from tidelog_cli.metrics_text import without_labels
from tidelog_server.testing import RunningServer
from tidelog_testing.documents.examples import ENDPOINT, page, run_example
from tidelog_testing.spark.rows import append, error_of, payloads

pytestmark = pytest.mark.spark

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SCHEMA_TEXT = (
    "struct<channel:string,vchannel:int,tick:bigint,timestamp:timestamp,type:int,key:binary,payload:binary,"
    "properties:map<string,string>>"
)
Read = Callable[..., DataFrame]


def messages_sent(server: RunningServer) -> float:
    with urllib.request.urlopen(f"http://{server.http_endpoint}/metrics", timeout=10) as response:
        return without_labels(response.read().decode())["tidelog_scan_messages_total"]


def test_the_schema_is_as_documented(read: Read, channel: str) -> None:
    frame = read(channel)

    assert frame.schema == SCHEMA
    assert frame.schema.simpleString() == SCHEMA_TEXT


def test_every_part_of_a_message_comes_back(client: Client, read: Read, channel: str) -> None:
    sent = [
        Message(b"plain"),
        Message(b"", key=b"", type=7),
        Message(b"\x00\xff", key=b"k", properties={"a": "1", "ü": ""}),
    ]
    first = client.append(f"{channel}/1", sent).first_tick

    rows = read(channel).orderBy("tick").collect()

    assert rows == [
        Row(
            channel=channel,
            vchannel=1,
            tick=int(first) + i,
            timestamp=(datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=first >> 18)).replace(tzinfo=None),
            type=message.type,
            key=None if message.key is None else bytearray(message.key),
            payload=bytearray(message.payload),
            properties=dict(message.properties),
        )
        for i, message in enumerate(sent)
    ]


def test_a_batch_begins_and_ends_at_a_position_on_each_vchannel(client: Client, read: Read, channel: str) -> None:
    zero = append(client, f"{channel}/0", "a0", "a1", "a2")
    append(client, f"{channel}/1", "b0")
    begin = f'{{"{channel}": {{"0": {int(zero[1])}, "1": -2}}}}'
    end = f'{{"{channel}": {{"0": {int(zero[2])}, "1": -1}}}}'

    assert payloads(read(channel, startingOffsets=begin, endingOffsets=end)) == ["a1", "b0"]
    assert payloads(read(channel, versionAsOf=zero[1], maxRecordsPerPartition=1, fetchBytes="64k")) == ["a0", "a1"]


def test_an_empty_channel_has_no_rows(read: Read, channel: str) -> None:
    assert read(channel).collect() == []


def test_sources_are_named_by_channel_channels_or_vchannels(client: Client, read: Read, channel: str) -> None:
    client.create_channel(f"{channel}-other")
    append(client, f"{channel}/0", "a")
    append(client, f"{channel}/1", "b")
    append(client, f"{channel}-other/0", "c")

    assert payloads(read(channel=channel)) == ["a", "b"]
    assert payloads(read(channels=f"{channel}, {channel}-other")) == ["a", "b", "c"]
    assert payloads(read(vchannels=f"{channel}/1,{channel}-other")) == ["b", "c"]


def test_a_pattern_names_what_is_there_when_the_query_is_planned(client: Client, read: Read, channel: str) -> None:
    frame = read(channelPattern=f"{channel}.*")
    assert "which matches no channel" in error_of(frame.collect)

    client.create_channel(f"{channel}.eu")
    client.create_channel(f"{channel}.us", vchannels=2)
    append(client, f"{channel}/0", "not below itself")
    append(client, f"{channel}.eu/0", "a")
    append(client, f"{channel}.us/1", "b")

    assert payloads(frame) == ["a", "b"]
    assert payloads(frame.where(f"channel = '{channel}.us'")) == ["b"]


def test_a_cut_at_a_time_is_all_that_had_happened_by_then(client: Client, read: Read, channel: str) -> None:
    first = append(client, f"{channel}/0", "a")[0]
    later = client.append(f"{channel}/1", b"b", barrier_tick=((first >> 18) + 5) << 18).first_tick

    assert payloads(read(channel, timestampAsOf=first >> 18)) == ["a"]
    assert payloads(read(channel, timestampAsOf=later >> 18)) == ["a", "b"]
    assert payloads(read(channel, timestampAsOf=datetime.fromtimestamp((first >> 18) / 1_000, UTC).isoformat())) == [
        "a"
    ]
    said = error_of(read(channel, timestampAsOf="2999-01-01T00:00:00Z").collect)
    assert "timestampAsOf=2999-01-01T00:00:00Z lies in the future: the latest tick is" in said


def test_transactions_and_broadcasts_are_columns_on_request(
    client: Client, read: Read, spark: SparkSession, channel: str
) -> None:
    append(client, f"{channel}/0", "plain")
    with client.txn() as txn:
        txn.append(f"{channel}/0", b"one")
        txn.append(f"{channel}/1", b"two")
    sent = client.broadcast([f"{channel}/0"], Message(b"all"))

    rows = read(channel, moreColumns="txn_id,broadcast_id").collect()
    ids = {bytes(row.payload).decode(): (row.txn_id, row.broadcast_id) for row in rows}

    assert ids["plain"] == (None, None)
    assert ids["all"] == (None, sent.broadcast_id)
    assert ids["one"] == ids["two"]
    assert ids["one"][0] is not None
    whole = read(channel, moreColumns="txn_id").where("txn_id IS NOT NULL").groupBy("txn_id").count()
    assert [row["count"] for row in whole.collect()] == [2]
    chosen = (
        spark.read.format("tidelog").schema("txn_id bigint, tick bigint NOT NULL").option("endpoint", client.endpoint)
    )
    assert sum(row.txn_id is not None for row in chosen.load(channel).collect()) == 2


def test_the_start_is_inclusive_and_the_end_exclusive(client: Client, read: Read, channel: str) -> None:
    ticks = append(client, f"{channel}/0", "a", "b", "c", "d")

    assert payloads(read(channel, startingTick=ticks[1], endingTick=ticks[3])) == ["b", "c"]
    assert payloads(read(channel, startingTick=ticks[3])) == ["d"]
    assert payloads(read(channel, endingTimestamp="2999-01-01T00:00:00Z")) == ["a", "b", "c", "d"]
    assert payloads(read(channel, startingTimestamp=ticks[0] >> 18)) == ["a", "b", "c", "d"]
    assert payloads(read(channel, endingTimestamp=ticks[0] >> 18)) == []


def test_a_cut_shows_the_same_rows_of_all_channels_for_ever(client: Client, read: Read, channel: str) -> None:
    append(client, f"{channel}/0", "a")
    cut = append(client, f"{channel}/1", "b")[-1]
    append(client, f"{channel}/0", "c")

    frame = read(channel, asOfTick=cut)
    before = payloads(frame)
    append(client, f"{channel}/1", "d")

    assert before == payloads(frame) == ["a", "b"]
    assert payloads(read(channel)) == ["a", "b", "c", "d"]


def test_a_cut_in_the_future_is_refused(client: Client, read: Read, channel: str) -> None:
    tick = append(client, f"{channel}/0", "a")[0]

    said = error_of(read(channel, asOfTick=tick + (1 << 40)).collect)
    assert f"asOfTick={tick + (1 << 40)} lies in the future" in said
    assert "Traceback" not in said


def test_partitions_divide_the_rows_without_loss_or_repeat(client: Client, read: Read, channel: str) -> None:
    expected = [f"{i:04}" for i in range(1_000)]
    for begin in range(0, 1_000, 100):
        append(client, f"{channel}/{begin // 600}", *expected[begin : begin + 100])

    by_messages = read(channel, maxMessagesPerPartition=50)
    by_number = read(channel, minPartitions=5)

    assert by_messages.rdd.getNumPartitions() == 20
    assert by_number.rdd.getNumPartitions() >= 5
    assert payloads(by_messages) == payloads(by_number) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("tick >= {tick_2}", ["2", "3", "4", "5"]),
        ("tick = {tick_2}", ["2"]),
        ("vchannel = 1", ["4", "5"]),
        ("vchannel IN (1, 3)", ["4", "5"]),
        ("channel = 'elsewhere'", []),
        ("channel LIKE 'channel-of%' AND vchannel <> 0", ["4", "5"]),
        ("type = 7", ["4"]),
        ("type IN (7, 8) AND vchannel = 1", ["4", "5"]),
        ("timestamp < timestamp'2001-01-01'", []),
        ("timestamp >= timestamp_millis({time_4})", ["4", "5"]),
        ("type = 7 AND type = 8", []),
        ("tick > {tick_0} AND tick < {tick_2}", ["1"]),
        ("tick BETWEEN {tick_2} AND {tick_4} AND vchannel = 0", ["2", "3"]),
        ("tick <= {tick_0} AND channel LIKE '%test-%' AND type = 0", ["0"]),
        ("timestamp = timestamp_millis({time_4}) AND type = 8 AND vchannel IN (1)", ["5"]),
    ],
)
def test_a_filter_is_applied_by_the_server(
    server: RunningServer, client: Client, read: Read, channel: str, condition: str, expected: list[str]
) -> None:
    ticks = append(client, f"{channel}/0", "0", "1", "2", "3")
    barrier = ((ticks[-1] >> 18) + 2) << 18
    last = client.append(f"{channel}/1", [Message(b"4", type=7), Message(b"5", type=8)], barrier_tick=barrier)
    frame = read(channel, pushFilters="true").where(
        condition.format(tick_0=ticks[0], tick_2=ticks[2], tick_4=last.first_tick, time_4=last.first_tick >> 18)
    )

    before = messages_sent(server)
    found = payloads(frame)

    assert found == expected
    assert messages_sent(server) - before == len(expected)


def test_a_filter_that_the_server_cannot_apply_is_applied_by_spark(client: Client, read: Read, channel: str) -> None:
    ticks = append(client, f"{channel}/0", "a", "b", "c")

    assert payloads(read(channel, pushFilters="true").where("payload = X'62' AND vchannel >= 0")) == ["b"]
    assert payloads(read(channel, pushFilters="true").where(f"tick IN ({ticks[0]}, {ticks[2]})")) == ["a", "c"]
    assert payloads(read(channel, pushFilters="true").where(f"tick = {ticks[0]} OR type = 9")) == ["a"]


def test_accepted_filters_are_gone_from_the_plan(
    client: Client, read: Read, channel: str, capsys: pytest.CaptureFixture[str]
) -> None:
    append(client, f"{channel}/0", "a")

    read(channel, pushFilters="true").where("type = 0 AND tick > 5 AND payload = X'61'").explain()

    conditions = [line for line in capsys.readouterr().out.splitlines() if "Filter (" in line]
    assert len(conditions) == 1
    assert "payload" in conditions[0]
    assert "type" not in conditions[0]


def test_a_trimmed_start_fails_and_names_both_ticks(client: Client, read: Read, channel: str) -> None:
    ticks = append(client, f"{channel}/0", "a", "b", "c")
    append(client, f"{channel}/1", "d")
    client.trim(f"{channel}/0", ticks[1])

    text = error_of(read(channel, startingTick=ticks[0]).collect)

    assert f"{channel}/0 was trimmed" in text
    assert f"tick {ticks[0]}" in text
    assert f"{ticks[1]}" in text
    assert "failOnDataLoss" in text


def test_what_is_left_is_read_where_loss_is_allowed(client: Client, read: Read, channel: str) -> None:
    ticks = append(client, f"{channel}/0", "a", "b", "c")
    append(client, f"{channel}/1", "d")
    client.trim(f"{channel}/0", ticks[1])

    assert payloads(read(channel, startingTick=ticks[0], failOnDataLoss="false")) == ["b", "c", "d"]
    assert payloads(read(channel, startingTimestamp=ticks[0] >> 18)) == ["b", "c", "d"]
    assert payloads(read(channel)) == ["b", "c", "d"]


def test_what_was_trimmed_while_it_was_read_is_passed_over_however_often(
    server: RunningServer, client: Client, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    payload = bytes(1 << 20)
    [described] = client.describe_channels([channel])
    created = int(described.created_tick)
    ticks = [int(client.append(f"{channel}/0", payload).last_tick) for _ in range(64)]
    whole = ReadPartition(
        Connection((server.endpoint,)),
        channel,
        0,
        ticks[0],
        ticks[-1] + 1,
        (),
        fail_on_data_loss=False,
        created_tick=created,
    )
    batches = read_partition(whole, pa.schema([("tick", pa.int64())]), AS_THEY_ARE)
    read: list[int] = []

    # Each trim removes messages that the scan has not prefetched yet: its prefetch is bounded in bytes.
    for first_left in (30, 60):
        read += next(batches).column("tick").to_pylist()
        client.trim(f"{channel}/0", Tick(ticks[first_left]))
    for batch in batches:
        read += batch.column("tick").to_pylist()

    assert read == sorted(set(read))
    assert read[0] == ticks[0]
    assert set(ticks[60:]) <= set(read)
    assert len(read) < 64
    assert any("failOnDataLoss is false" in record.message for record in caplog.records)


def test_chosen_columns_are_read_alone(client: Client, read: Read, spark: SparkSession, channel: str) -> None:
    append(client, f"{channel}/0", "a")
    endpoint = client.endpoint

    chosen = spark.read.format("tidelog").schema("payload binary, vchannel int").option("endpoint", endpoint)

    assert chosen.load(channel).collect() == [Row(payload=bytearray(b"a"), vchannel=0)]
    wrong = spark.read.format("tidelog").schema("payload string").option("endpoint", endpoint)
    said = error_of(lambda: wrong.load(channel).collect())
    assert "the column 'payload' of the tidelog source is binary, not string" in said
    strange = spark.read.format("tidelog").schema("size int").option("endpoint", endpoint)
    said = error_of(lambda: strange.load(channel).collect())
    assert "no column 'size': choose from channel string" in said


def test_a_filter_on_types_is_exact_also_where_there_are_broadcasts(client: Client, read: Read, channel: str) -> None:
    append(client, f"{channel}/0", "a")
    client.broadcast([f"{channel}/0", f"{channel}/1"], Message(b"barrier", type=9))

    assert payloads(read(channel, pushFilters="true").where("type = 0")) == ["a"]
    assert payloads(read(channel, pushFilters="true").where("type = 9")) == ["barrier", "barrier"]
    assert payloads(read(channel)) == ["a", "barrier", "barrier"]


def test_a_filter_on_ticks_divides_a_transaction_and_a_cut_does_not(client: Client, read: Read, channel: str) -> None:
    with client.txn() as txn:
        txn.append(f"{channel}/0", [b"a", b"b"])
        txn.append(f"{channel}/1", [b"c", b"d"])
    inside = txn.result.first_tick + 3

    assert payloads(read(channel, pushFilters="true").where(f"tick < {inside}")) == ["a", "b", "c"]
    assert payloads(read(channel).where(f"tick < {inside}")) == ["a", "b", "c"]
    assert payloads(read(channel, endingTick=inside)) == []


def test_a_frame_may_be_used_with_several_filters_at_once_and_without(client: Client, read: Read, channel: str) -> None:
    append(client, f"{channel}/0", "a", "b")
    append(client, f"{channel}/1", "c")
    frame = read(channel)
    first, second = frame.where("vchannel = 0"), frame.where("vchannel = 1")

    assert payloads(first.union(second)) == ["a", "b", "c"]
    assert payloads(second) == ["c"]
    assert payloads(frame) == ["a", "b", "c"]
    assert payloads(first.unionByName(frame)) == ["a", "a", "b", "b", "c"]


def test_only_the_types_that_are_asked_for_leave_the_server(
    server: RunningServer, client: Client, read: Read, channel: str
) -> None:
    client.append(f"{channel}/0", [Message(b"%d" % kind, type=kind) for kind in (1, 2, 3, 4)])
    before = messages_sent(server)

    assert payloads(read(channel, types="2, 4")) == ["2", "4"]
    assert payloads(read(channel, types="2,4", pushFilters="true").where("type IN (4, 1)")) == ["4"]
    assert payloads(read(channel, types="2", pushFilters="true").where("type = 1")) == []

    assert messages_sent(server) - before == 3


def test_filters_are_pushed_only_where_spark_is_told_to(
    client: Client, read: Read, spark: SparkSession, channel: str
) -> None:
    append(client, f"{channel}/0", "a", "b")
    spark.conf.set(PUSHDOWN, "false")
    try:
        assert payloads(read(channel).where("vchannel = 0 AND payload = X'62'")) == ["b"]
        assert PUSHDOWN in error_of(read(channel, pushFilters="true").where("vchannel = 0").collect)
    finally:
        spark.conf.set(PUSHDOWN, "true")


def test_the_example_of_the_page_prints_what_the_page_says(
    server: RunningServer, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    del spark  # The example uses the active session.

    run_example("spark/reading.md", {ENDPOINT: server.endpoint})

    assert f"It prints `{capsys.readouterr().out.strip()}`." in page("spark/reading.md")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"channel": "nowhere"},
            "channel 'nowhere' does not exist: create it with `tidelog channel create nowhere`, or correct the name",
        ),
        ({"channel": "NOWHERE"}, "the name 'NOWHERE' is not allowed"),
        ({"channel": "a", "commitGroup": "g"}, "the option 'commitGroup' is for spark.readStream only"),
        ({"channel": "a", "asOfTick": "1", "endingTick": "1"}, "contradict each other"),
        ({"channel": "a", "endpoint": "127.0.0.1:1", "serverTimeout": "0"}, "127.0.0.1:1"),
    ],
)
def test_an_error_reaches_the_user_as_one_clear_sentence(read: Read, options: dict[str, str], message: str) -> None:
    assert message in error_of(lambda: read(**options).collect())


def test_a_vchannel_that_does_not_exist_is_named(read: Read, channel: str) -> None:
    text = error_of(lambda: read(vchannels=f"{channel}/2").collect())

    assert f"names '{channel}/2', which does not exist: choose from {channel}/0, {channel}/1" in text
