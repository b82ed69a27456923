"""Goal: options of a stream have the documented meaning, and the error of an invalid one says how to fix it.

Method: parse single sets of options as Spark hands them over, in lower case and as text.
"""

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxFiles, ReadMaxRows

from tidelog.spark.errors import OptionError
from tidelog.spark.source import SCHEMA, TidelogDataSource
from tidelog.spark.stream.admission import Limits
from tidelog.spark.stream.options import StreamOptions, parse_stream_options, refuse_stream_options
from tidelog.spark.stream.reader import TidelogStreamReader


def parse_with(**options: str) -> StreamOptions:
    return parse_stream_options({"channel": "orders", **options})


def test_a_query_begins_behind_what_is_there_unless_told_otherwise() -> None:
    assert parse_with().is_latest
    assert parse_with(startingoffsets="LATEST").is_latest
    earliest = parse_with(startingoffsets="EARLIEST")
    assert (earliest.is_latest, earliest.read.begin_of("orders/0")) == (False, 0)
    given = parse_with(startingtick="7")
    assert (given.is_latest, given.read.begin_of("orders/0")) == (False, 7)
    assert not parse_with(startingTimestamp="2026-03-01T00:00Z").is_latest


def test_a_query_may_begin_at_a_position_for_each_vchannel() -> None:
    given = parse_with(startingOffsets='{"orders": {"0": 23, "1": -2, "12": -1}}')
    assert not given.is_latest
    assert given.read.begin_ticks == {"orders/0": 23, "orders/1": 0, "orders/12": -1}
    assert given.read.begin_is_tick


@pytest.mark.parametrize("name", ["maxMessagesPerTrigger", "maxRecordsPerTrigger", "maxOffsetsPerTrigger"])
def test_a_batch_may_have_a_limit_of_messages_by_any_of_its_names(name: str) -> None:
    assert parse_with(**{name: "10"}).limits == Limits(messages=10)


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxBytesPerTrigger": "9"}, ReadMaxBytes(9)),
        ({"maxBytesPerTrigger": "2KiB"}, ReadMaxBytes(2_048)),
        ({"maxMessagesPerTrigger": "5", "maxBytesPerTrigger": "9"}, ReadMaxRows(5)),
    ],
)
def test_spark_is_told_one_limit(options: dict[str, str], limit: ReadLimit) -> None:
    assert TidelogStreamReader(parse_with(**options), SCHEMA).getDefaultReadLimit() == limit


def test_a_limit_that_spark_does_not_have_for_us_is_refused() -> None:
    reader = TidelogStreamReader(parse_with(), SCHEMA)
    with pytest.raises(ValueError, match="expected ReadAllAvailable, -MaxRows or -MaxBytes"):
        reader._limits(ReadMaxFiles(1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "first"}, "'startingOffsets' is 'first': expected earliest or latest, or a JSON object"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "has -3 for orders/0: expected a tick from 0 to"),
        ({"endingOffsets": "latest"}, "a stream has no end: remove the option 'endingOffsets'"),
        ({"startingOffsets": "latest", "startingTick": "1"}, "'startingOffsets' and 'startingTick' contradict"),
        ({"endingTick": "9"}, "a stream has no end: remove the option 'endingTick'"),
        ({"timestampAsOf": "9"}, "a stream has no end: remove the option 'timestampAsOf'"),
        ({"maxMessagesPerTrigger": "1", "maxOffsetsPerTrigger": "1"}, "contradict each other"),
        ({"maxBytesPerTrigger": "0"}, "expected a number of bytes"),
        ({"archive": "/tmp"}, "remove the option 'archive': a stream reads only the log"),
        ({"pushFilters": "true"}, "remove the option 'pushFilters'"),
        ({"commitGroup": ""}, "'commitGroup' is empty"),
        ({"maxMessagePerTrigger": "1"}, "did you mean 'maxMessagesPerTrigger'?"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message.replace("?", r"\?")):
        parse_with(**options)


def test_a_batch_refuses_what_only_a_stream_has() -> None:
    with pytest.raises(OptionError, match=r"is for spark\.readStream only: remove it from spark\.read"):
        TidelogDataSource({"channel": "a", "commitgroup": "g"}).reader(SCHEMA)
    refuse_stream_options({"channel": "a"})


def test_a_stream_has_the_columns_of_a_batch() -> None:
    source = TidelogDataSource({"channel": "a", "maxMessagesPerTrigger": "1"})
    assert source.schema() == SCHEMA
    assert isinstance(source.streamReader(SCHEMA), TidelogStreamReader)
