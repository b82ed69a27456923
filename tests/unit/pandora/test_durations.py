"""Durations are parsed and printed as Go does, and times keep nanoseconds.

Method: examples of the documentation of Go's package time, and random durations and ids.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.pandora_formats.go_times import epoch_ns_of, exact_time, exact_time_of_ns, format_duration, parse_duration
from tidelog_server.rpc.web.pandora import last_id_until, received_at

EXAMPLES = [
    ("0s", 0),
    ("1ns", 1),
    ("1.1µs", 1_100),
    ("2.2ms", 2_200_000),
    ("3.3s", 3_300_000_000),
    ("4m5s", 245_000_000_000),
    ("4m5.001s", 245_001_000_000),
    ("5h6m7.001s", 18_367_001_000_000),
    ("-1m30s", -90_000_000_000),
    ("2562047h47m16.854775807s", (1 << 63) - 1),
]
OTHER_FORMS = [
    ("0", 0),
    ("+5s", 5_000_000_000),
    ("-.5h", -1_800_000_000_000),
    ("1.s", 1_000_000_000),
    ("3us", 3_000),
    ("3\N{GREEK SMALL LETTER MU}s", 3_000),
    ("1m1h", 3_660_000_000_000),
]
INVALID = ["", "3", "-", "s", ".", "-.", ".s", "+.s", "1d", "1s ", " 1s", "1 s", "--1s", "3000000h", "1e3s", "٣s"]
IDS = st.integers(min_value=1 << 18, max_value=(1 << 60) - 1)


@pytest.mark.parametrize(("text", "duration_ns"), EXAMPLES)
def test_a_duration_is_printed_as_go_prints_it(text: str, duration_ns: int) -> None:
    assert format_duration(duration_ns) == text
    assert parse_duration(text) == duration_ns


@pytest.mark.parametrize(("text", "duration_ns"), OTHER_FORMS)
def test_other_forms_are_parsed(text: str, duration_ns: int) -> None:
    assert parse_duration(text) == duration_ns


@pytest.mark.parametrize("text", INVALID)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="the duration"):
        parse_duration(text)


@given(st.integers(min_value=-(1 << 63) + 1, max_value=(1 << 63) - 1))
def test_a_printed_duration_is_the_same(duration_ns: int) -> None:
    assert parse_duration(format_duration(duration_ns)) == duration_ns


@given(st.integers(min_value=-62_135_596_800 * 10**9, max_value=253_402_300_799 * 10**9))
def test_a_time_keeps_its_nanoseconds(epoch_ns: int) -> None:
    assert epoch_ns_of(exact_time(str(exact_time_of_ns(epoch_ns)))) == epoch_ns


@given(IDS)
def test_what_was_received_after_a_message_begins_with_the_next_id(message_id: int) -> None:
    received_ns = epoch_ns_of(exact_time(received_at(message_id)))
    assert last_id_until(received_ns) == message_id
    assert last_id_until(received_ns - 1) < message_id
    assert last_id_until(-received_ns) == 0
