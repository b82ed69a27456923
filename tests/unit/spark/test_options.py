"""Goal: options have the documented meaning, and the error of an invalid one says how to fix it.

Method: parse single sets of options as Spark hands them over, in lower case and as text.
"""

import pickle
from pathlib import Path

import pytest

from tidelog.settings.contexts import Context, ContextFile
from tidelog.settings.resolver import DEFAULT_ENDPOINT, ENDPOINT_VARIABLE
from tidelog.spark.errors import OptionError
from tidelog.spark.option_values import HINTS
from tidelog.spark.options import parse_options
from tidelog.spark.payload_options import PayloadFormat
from tidelog_testing.servers.processes import ROOT


def parse_with(**options: str):  # type: ignore[no-untyped-def]  # the type is that of parse_options
    return parse_options({"channel": "orders", **options})


def test_names_are_taken_in_any_case() -> None:
    assert parse_options({"CHANNEL": "orders", "startingtick": "7"}) == parse_with(startingTick="7")


def test_path_is_the_channel() -> None:
    assert parse_options({"path": "orders"}).channels == ("orders",)


def test_channels_and_vchannels_are_divided_by_commas() -> None:
    assert parse_options({"channels": "a, b"}).channels == ("a", "b")
    assert parse_options({"vchannels": "a/0,b/1"}).vchannels == ("a/0", "b/1")


def test_a_pattern_is_one_of_whole_names_as_in_a_shell() -> None:
    parsed = parse_options({"channelPattern": "orders.*"})
    assert (parsed.channels, parsed.vchannels) == ((), ())
    assert parsed.pattern is not None
    assert [name for name in ("orders.eu", "orders", "ordersx") if parsed.pattern.covers(name)] == ["orders.eu"]


def test_an_archive_is_a_folder_that_executors_find_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_with(archive="kept").archive == str(tmp_path / "kept")
    assert parse_with(archive=f"file://{tmp_path}/kept").archive == str(tmp_path / "kept")
    assert parse_with(archive="kept", archiveOnly="true").archive_only
    for options, message in (
        ({"archive": "s3://bucket/kept"}, "expected the path of a folder"),
        ({"archiveOnly": "true"}, "without 'archive'"),
    ):
        with pytest.raises(OptionError, match=message):
            parse_with(**options)


def test_columns_on_request_have_one_order() -> None:
    assert parse_with(moreColumns="broadcast_id, txn_id").more_columns == ("txn_id", "broadcast_id")
    assert parse_with().more_columns == ()


def test_the_endpoint_comes_from_the_option_then_the_environment_then_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(ENDPOINT_VARIABLE, raising=False)
    assert parse_with().connection.endpoint == DEFAULT_ENDPOINT

    monkeypatch.setenv(ENDPOINT_VARIABLE, "log:1")
    assert parse_with().connection.endpoint == "log:1"
    assert parse_with(endpoint="log:2").connection.endpoint == "log:2"


def test_a_context_names_the_server_and_its_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIDELOG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("TIDELOG_TOKEN", "of-env")
    monkeypatch.delenv(ENDPOINT_VARIABLE, raising=False)
    with ContextFile(tmp_path).changed() as held:
        held[0] = held[0].added("prod", Context("tidelogs://a:1,b:2", token_file="/t"), replace=False)
        held[0] = held[0].added("test", Context("c:3"), replace=False).used("test")
    named = parse_with(context="prod").connection
    assert (named.endpoints, named.needs_tls, named.token_file, named.token) == (("a:1", "b:2"), True, "/t", "")
    assert (parse_with().connection.endpoint, parse_with().connection.token) == ("c:3", "")
    assert pickle.loads(pickle.dumps(named)) == named
    for options in ({"context": "absent"}, {"context": "prod", "endpoint": "d:4"}):
        with pytest.raises(OptionError, match=r"no context 'absent'|pass one of them"):
            parse_with(**options)


def test_an_endpoint_may_name_several_nodes() -> None:
    assert parse_with(endpoint="a:1, b:2,").connection.endpoints == ("a:1", "b:2")


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("1", 1), ("64k", 65_536), ("1MB", 1 << 20), ("2 GiB", 2 << 30), ("3T", 3 << 40)]
)
def test_a_size_has_units_as_spark_has_them(text: str, size_bytes: int) -> None:
    assert parse_with(maxBytesPerPartition=text).max_bytes_per_partition == size_bytes
    assert parse_with().max_bytes_per_partition == 128 << 20


def test_payloads_are_bytes_unless_said_otherwise() -> None:
    assert parse_with().payloads == PayloadFormat("binary")
    assert parse_with(payloadFormat="STRING", mode="FailFast").payloads == PayloadFormat("string", is_failfast=True)
    json = parse_with(valueFormat="json", payloadSchema="a INT", moreColumns="_corrupt_record,txn_id")
    assert json.payloads == PayloadFormat("json", "a INT")
    assert json.more_columns == ("txn_id", "_corrupt_record")


def test_the_start_is_inclusive_and_the_end_exclusive_but_a_cut_is_inclusive() -> None:
    parsed = parse_with(startingTick="10", endingTick="20")
    assert (parsed.begin_tick, parsed.end_tick, parsed.begin_is_tick, parsed.is_cut) == (10, 20, True, False)

    cut = parse_with(asOfTick="20")
    assert (cut.end_tick, cut.is_cut) == (21, True)
    assert (parse_with(versionAsOf="20").end_tick, parse_with(versionAsOf="20").cut) == (21, "versionAsOf=20")


def test_names_of_other_sources_mean_the_same() -> None:
    assert parse_with(maxRecordsPerPartition="9") == parse_with(maxMessagesPerPartition="9")
    assert parse_with(fetchBytes="512k").fetch_bytes == 1 << 19
    assert parse_with().fetch_bytes == 2 << 20


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1500", 1500),
        ("1970-01-01T00:00:01.500Z", 1500),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-02T00:00Z", 86_400_000),
        ("1970-01-01T00:00:00.000001Z", 1),
    ],
)
def test_a_time_is_milliseconds_or_iso_8601_and_rounds_up(text: str, milliseconds: int) -> None:
    parsed = parse_with(startingTimestamp=text)

    assert parsed.begin_tick == milliseconds << 18
    assert not parsed.begin_is_tick


@pytest.mark.parametrize("text", ["1500", "1970-01-01T00:00:01.500Z", "1970-01-01T00:00:01.500999Z"])
def test_a_cut_at_a_time_has_all_of_its_last_millisecond_and_rounds_down(text: str) -> None:
    cut = parse_with(timestampAsOf=text)

    assert (cut.end_tick, cut.is_cut) == (1501 << 18, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channel": "a", "beginningTick": "1"}, "did you mean '"),
        ({"channel": "a", "colour": "red"}, "no option 'colour': choose from endpoint"),
        ({}, "no channel is set: use load"),
        ({"channel": "a", "channels": "a,b"}, "'channel' and 'channels' contradict"),
        ({"channel": "a", "path": "b"}, "set both by the option 'channel' and by load"),
        ({"channel": "a,b"}, "use 'channels' for several"),
        ({"channels": "a,,b"}, "contains an empty name"),
        ({"vchannels": "a/0,a/0"}, "names 'a/0' twice"),
        ({"channel": "a", "startingTick": "1", "startingTimestamp": "1"}, "contradict"),
        ({"channel": "a", "asOfTick": "1", "endingTick": "1"}, "'endingTick' and 'asOfTick' contradict"),
        ({"channel": "a", "asOfTick": "1", "timestampAsOf": "1"}, "'asOfTick' and 'timestampAsOf' contradict"),
        ({"channel": "a", "timestampAsOf": "now"}, "milliseconds since the epoch, or ISO 8601"),
        ({"channels": "a", "channelPattern": "*"}, "'channels' and 'channelPattern' contradict"),
        ({"channelPattern": "orders"}, r"has neither \*, \? nor \[: load\('orders'\) reads one channel"),
        ({"channelPattern": ".*"}, "'channelPattern': '.*' is not a pattern of channels: expected"),
        ({"channelPattern": ""}, "is not a pattern of channels"),
        (
            {"channel": "a", "moreColumns": "txn"},
            "names 'txn': choose from txn_id, broadcast_id, event_time, _corrupt_record",
        ),
        ({"channel": "a", "moreColumns": "txn_id,txn_id"}, "names 'txn_id' twice"),
        ({"channel": "a", "startingTick": "20", "endingTick": "20"}, "not before 'endingTick'"),
        ({"channel": "a", "endingTick": "0"}, "it is exclusive and nothing precedes tick 0"),
        ({"channel": "a", "startingTick": "-1"}, "whole number from 0 to"),
        ({"channel": "a", "startingTimestamp": "yesterday"}, "milliseconds since the epoch, or ISO 8601"),
        (
            {"channel": "a", "startingTimestamp": "2026-03-01T12:00"},
            r"'startingTimestamp': 2026-03-01T12:00:00 has no time zone, expected 2026-03-01T12:00:00\+00:00 for UTC",
        ),
        ({"channel": "a", "endingTimestamp": "2026-03-01"}, "has no time zone"),
        ({"channel": "a", "timestampAsOf": "2026-03-01 12:00:00"}, "has no time zone"),
        *(
            ({"channel": "a", name: "s3://bucket/x"}, f"'{name}' is 's3://bucket/x': expected the path of a file")
            for name in ("tlsCa", "tlsCert", "tlsKey", "tokenFile")
        ),
        ({"channel": "a", "startingTimestamp": "1969-12-31T00:00:00Z"}, "expected a time from 1970"),
        ({"channel": "a", "minPartitions": "0"}, "whole number from 1 to 100000"),
        ({"channel": "a", "failOnDataLoss": "maybe"}, "expected true or false"),
        ({"channel": "a", "maxBytesPerPartition": "0"}, "expected a number of bytes, such as"),
        ({"channel": "a", "maxBytesPerPartition": "1.5g"}, "expected a number of bytes, such as"),
        ({"channel": "a", "fetchBytes": "5MiB"}, "expected a number of bytes up to 4194304, such as"),
        ({"channel": "a", "asOfTick": "1", "versionAsOf": "1"}, "'asOfTick' and 'versionAsOf' contradict"),
        ({"channel": "a", "maxRecordsPerPartition": "1", "maxMessagesPerPartition": "1"}, "contradict each other"),
        ({"channel": "a", "startingOffsets": "earliest"}, "is for spark.read and spark.readStream of channels"),
        ({"channel": "a", "payloadFormat": "avro"}, "expected binary, string or json"),
        ({"channel": "a", "payloadFormat": "json", "valueFormat": "json"}, "are aliases: set one of them"),
        ({"channel": "a", "payloadSchema": "a INT"}, "requires payloadFormat json, but payloadFormat is binary"),
        ({"channel": "a", "mode": "failfast"}, "but payloadFormat is binary"),
        ({"channel": "a", "payloadFormat": "json", "mode": "dropmalformed"}, "to drop such rows, filter them"),
        ({"channel": "a", "moreColumns": "_corrupt_record"}, "binary payloads are never corrupt"),
    ],
)
def test_a_wrong_option_says_what_is_expected(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_options(options)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("kafka.bootstrap.servers", "'endpoint'"),
        ("subscribe", "'channels'"),
        ("subscribePattern", "'channelPattern'"),
        ("assign", "'vchannels'"),
        ("startingOffsetsByTimestamp", "'startingTimestamp'"),
        ("minOffsetsPerTrigger", "the interval of the trigger"),
        ("paths", "'channels'"),
        ("value", "the column 'payload'"),
        ("startTick", "'startingTick', which is inclusive"),
        ("endTick", "'asOfTick', which is inclusive"),
        ("includeControl", "no control messages"),
        ("kafka.security.protocol", "an option of Kafka's clients"),
    ],
)
def test_a_name_of_another_source_is_answered_with_what_to_use_here(name: str, instead: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_with(**{name.lower(): "x"})
    assert instead in str(refused.value)
    # The documented spelling, not that of Spark, which hands names over in lower case.
    assert name not in HINTS or f"has no option '{name}': " in str(refused.value)
    assert "did you mean" not in str(refused.value)


def test_the_hints_are_those_that_the_document_has() -> None:
    document = (ROOT / "docs/guides/spark/reading.md").read_text()
    assert [name for name in HINTS if f"`{name}`" not in document and name not in ("paths", "topic")] == []
