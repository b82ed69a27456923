"""Goal: positions by vchannel are those of the JSON that a user writes, and each other text is refused.

Method: parse single options as Spark hands them over; and any JSON, which never fails in another way.
"""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.errors import OptionError
from tidelog.spark.offset_options import check_vchannels, offsets_of, parse_batch_options, without_offsets
from tidelog.spark.options import ReadOptions
from tidelog.spark.ticks import END_OF_TIME, MAX_TICK

_NAMES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,9}", fullmatch=True)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def parse_with(**options: str) -> ReadOptions:
    return parse_batch_options({"channel": "orders", **options})


def test_texts_stand_for_all_vchannels() -> None:
    assert parse_with(startingOffsets="Earliest", endingOffsets="LATEST") == parse_with()
    assert parse_with().end_of("orders/0") == END_OF_TIME


def test_a_position_is_a_tick_or_one_of_two_ends() -> None:
    parsed = parse_with(
        startingOffsets='{"orders": {"0": 23, "1": -2}}', endingoffsets='{"orders": {"0": 23, "1": -1, "2": 0}}'
    )
    assert [parsed.begin_of(f"orders/{index}") for index in range(3)] == [23, 0, 0]
    assert [parsed.end_of(f"orders/{index}") for index in range(3)] == [23, END_OF_TIME, 0]
    assert parsed.begin_is_tick
    assert not parse_with(endingOffsets='{"orders": {"0": 5}}').begin_is_tick


@given(st.dictionaries(_NAMES, st.dictionaries(st.integers(0, 4095), st.integers(0, MAX_TICK), min_size=1), min_size=1))
def test_any_positions_come_back(channels: dict[str, dict[int, int]]) -> None:
    found = offsets_of("startingOffsets", json.dumps(channels), "earliest")
    assert found == {f"{name}/{index}": tick for name, part in channels.items() for index, tick in part.items()}


@given(_JSON)
def test_any_other_json_is_refused_as_an_option(value: object) -> None:
    with suppress(OptionError):
        offsets_of("startingOffsets", json.dumps(value), "earliest")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "'startingOffsets' is 'latest': expected earliest, or a JSON object"),
        ({"endingOffsets": "earliest"}, "'endingOffsets' is 'earliest': expected latest, or a JSON object"),
        ({"startingOffsets": ""}, "expected earliest, or a JSON object with a tick for each vchannel, such as"),
        ({"startingOffsets": "{}"}, "expected earliest, or"),
        ({"startingOffsets": '{"orders": {}}'}, "expected earliest, or"),
        ({"startingOffsets": '{"orders": 5}'}, "expected earliest, or"),
        ({"startingOffsets": '[["orders", [["0", 5]]]]'}, "expected earliest, or"),
        ({"startingOffsets": '{"orders": {"00": 5}}'}, "expected earliest, or"),
        ({"startingOffsets": '{"orders": {"0": 5, "0": 6}}'}, "expected earliest, or"),
        ({"startingOffsets": '{"orders": {"0": 5}, "orders": {"1": 6}}'}, "expected earliest, or"),
        ({"startingOffsets": "[" * 100_000}, "expected earliest, or"),
        ({"startingOffsets": '{"orders": {"0": true}}'}, "has True for orders/0: expected a tick from 0 to"),
        ({"startingOffsets": '{"orders": {"0": 1.5}}'}, "has 1.5 for orders/0"),
        ({"startingOffsets": '{"orders": {"0": "5"}}'}, "has 5 for orders/0"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "has -1 for orders/0: .* or -2 for earliest$"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "has -2 for orders/0: .* or -1 for latest$"),
        (
            {"startingOffsets": '{"orders": {"0": 9223372036854775808}}'},
            "expected a tick from 0 to 9223372036854775807",
        ),
        ({"startingOffsets": "earliest", "startingTick": "5"}, "'startingOffsets' and 'startingTick' contradict"),
        ({"endingOffsets": "latest", "asOfTick": "5"}, "'endingOffsets' and 'asOfTick' contradict"),
        (
            {"startingOffsets": '{"orders": {"0": 6}}', "endingOffsets": '{"orders": {"0": 5}}'},
            r"'startingOffsets' of orders/0 \(6\) is after 'endingOffsets' \(5\)",
        ),
        ({"startingOffsets": '{"orders": {"0": 6}}', "archive": "/tmp"}, "set 'startingTick' and 'endingTick'"),
    ],
)
def test_a_wrong_position_says_what_is_expected(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_with(**options)


def test_each_vchannel_that_is_read_has_a_position_and_no_other_one() -> None:
    named = parse_with()
    by_pattern = parse_batch_options({"channelPattern": "orders*"})
    check_vchannels("startingOffsets", {}, ["orders/0"], named)
    check_vchannels("startingOffsets", {"orders/0": 5}, ["orders/0"], named)
    check_vchannels("startingOffsets", {"orders/0": 5}, ["orders/0", "orders/1"], by_pattern)
    with pytest.raises(OptionError, match="has no position for orders/1: add a tick, or -2 for the earliest one"):
        check_vchannels("startingOffsets", {"orders/0": 5}, ["orders/0", "orders/1"], named)
    for read in (named, by_pattern):
        with pytest.raises(OptionError, match="names orders/9, which is not read"):
            check_vchannels("endingOffsets", {"orders/0": 5, "orders/9": 5}, ["orders/0"], read)


def test_the_options_of_a_batch_and_a_stream_are_without_positions() -> None:
    assert without_offsets({"StartingOffsets": "x", "endingoffsets": "y", "Channel": "a"}) == {"Channel": "a"}
