"""Arrow batches are encoded as the columns of the same messages encoded one by one.

Method: random messages as Arrow, whole and as slices of a larger batch, decoded by the client's own codec; and invalid
Arrow batches.
"""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import columns_from_arrow
from tidelog.wire.columns import (
    checksum,
    decode_event_times_ms,
    decode_keys,
    decode_payloads,
    decode_properties,
    decode_types,
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=3)
BYTES = st.binary(max_size=4)
PROPERTIES = st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=2)
TIMES_US = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999) | st.integers(-2_000, 2_000)
ROWS = st.lists(
    st.tuples(
        BYTES,
        st.none() | BYTES,
        st.integers(-(1 << 31), (1 << 31) - 1) | st.none(),
        st.none() | TIMES_US,
        st.none() | PROPERTIES,
    ),
    min_size=1,
    max_size=9,
)


def batch_of(rows: list[tuple[Any, ...]], columns: list[str]) -> pa.RecordBatch:
    payloads, keys, types, times, properties = zip(*rows, strict=True)
    pairs = [None if each is None else list(each.items()) for each in properties]
    arrays = {
        "payload": pa.array(payloads, pa.binary()),
        "key": pa.array(keys, pa.binary()),
        "type": pa.array(types, pa.int32()),
        "event_time": pa.array(times, pa.timestamp("us", tz="Europe/Paris")),
        "properties": pa.array(pairs, pa.map_(pa.string(), pa.string())),
        "tick": pa.array(range(len(rows)), pa.int64()),
    }
    return pa.RecordBatch.from_pydict({name: arrays[name] for name in ("payload", "tick", *columns)})


@given(
    ROWS, st.sets(st.sampled_from(["key", "type", "properties", "event_time"])), st.integers(0, 8), st.integers(1, 9)
)
def test_rows_come_back_as_they_were(rows: list[tuple[Any, ...]], names: set[str], begin: int, count: int) -> None:
    begin %= len(rows)
    batch = batch_of(rows, sorted(names)).slice(begin, count)
    rows = rows[begin : begin + count]

    columns = columns_from_arrow(batch)

    assert decode_payloads(columns) == [payload for payload, *_ in rows]
    assert decode_keys(columns) == [key if "key" in names else None for _, key, *_ in rows]
    assert list(decode_types(columns)) == [(kind or 0) % (1 << 32) if "type" in names else 0 for _, _, kind, *_ in rows]
    assert decode_properties(columns) == [(each or {}) if "properties" in names else {} for *_, each in rows]
    assert list(decode_event_times_ms(columns)) == [
        time_us // 1_000 if "event_time" in names and time_us is not None else None for *_, time_us, _ in rows
    ]
    assert columns.crc32c == checksum(columns)


@given(st.sampled_from(["s", "ms", "us", "ns"]), st.lists(st.integers(-5_000_000, 5_000_000), min_size=1, max_size=9))
def test_event_times_of_every_unit_are_rounded_down_to_milliseconds(unit: str, numbers: list[int]) -> None:
    times = pa.array(numbers, pa.timestamp(unit, tz="UTC"))

    columns = columns_from_arrow(pa.RecordBatch.from_pydict({"payload": [b""] * len(numbers), "event_time": times}))

    per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    assert decode_event_times_ms(columns) == [number * 1_000 // per_second for number in numbers]


@pytest.mark.parametrize(
    ("batch", "match"),
    [
        (pa.RecordBatch.from_pydict({"payload": pa.array([], pa.binary())}), "no rows"),
        (pa.RecordBatch.from_pydict({"value": pa.array([b""])}), "no column 'payload', only value"),
        (pa.RecordBatch.from_pydict({"payload": pa.array([b"", None])}), "1 NULLs in 2 rows"),
        (pa.RecordBatch.from_pydict({"payload": pa.array([1])}), "'payload' is int64, expected binary or string"),
        (pa.RecordBatch.from_pydict({"payload": pa.array([""]), "type": pa.array(["1"])}), "expected an integer"),
        (pa.RecordBatch.from_pydict({"payload": [b""], "properties": [{"a": "b"}]}), "expected map<string, string>"),
        (
            pa.RecordBatch.from_pydict({"payload": [b""], "event_time": pa.array([0], pa.timestamp("us"))}),
            r"'event_time' is timestamp\[us\], expected a timestamp with a time zone",
        ),
        (
            pa.RecordBatch.from_pydict({"payload": [b""], "event_time": pa.array([None], pa.string())}),
            "'event_time' is string, expected a timestamp",
        ),
        (
            pa.RecordBatch.from_pydict({"payload": [b""], "event_time": pa.array([1 << 62], pa.timestamp("s", "UTC"))}),
            "'event_time' has a time outside the years 1 to 9999",
        ),
        (
            pa.RecordBatch.from_pydict(
                {"payload": [b""], "properties": pa.array([[("a", None)]], pa.map_(pa.string(), pa.string()))}
            ),
            "NULL value",
        ),
    ],
)
def test_what_no_message_can_be_is_refused(batch: pa.RecordBatch, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        columns_from_arrow(batch)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary(), pa.binary(2)])
def test_payloads_may_be_any_kind_of_bytes(kind: pa.DataType) -> None:
    payloads = pa.array([b"ab", b"cd"], pa.binary()).cast(kind)
    assert decode_payloads(columns_from_arrow(pa.RecordBatch.from_pydict({"payload": payloads}))) == [b"ab", b"cd"]


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view(), pa.dictionary(pa.int8(), pa.string())])
def test_keys_may_be_views_or_a_dictionary(kind: pa.DataType) -> None:
    keys = pa.array(["ab", None, "cd"]).cast(kind)
    columns = columns_from_arrow(pa.RecordBatch.from_pydict({"payload": [b""] * 3, "key": keys}))
    assert decode_keys(columns) == [b"ab", None, b"cd"]


@pytest.mark.parametrize("make_list", [pa.list_, pa.large_list])
@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.string_view()])
def test_properties_may_be_lists_of_structs(make_list: Any, text: pa.DataType) -> None:
    kind = make_list(pa.struct([("key", text), ("value", text)]))
    properties = pa.array([[{"key": "a", "value": "b"}, {"key": "c", "value": ""}], None, []], kind)
    columns = columns_from_arrow(pa.RecordBatch.from_pydict({"payload": [b""] * 3, "properties": properties}).slice(0))
    assert decode_properties(columns) == [{"a": "b", "c": ""}, {}, {}]


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()])
@pytest.mark.parametrize("wrong", [(1 << 32) + 5, 1 << 32, (1 << 63) - 1])
def test_a_type_that_32_bits_cannot_hold_is_refused_with_its_row(kind: pa.DataType, wrong: int) -> None:
    batch = pa.RecordBatch.from_pydict({"payload": [b""] * 3, "type": pa.array([7, None, wrong], kind)})

    with pytest.raises(ValueError, match=f"the type of row 2 is {wrong}, expected 0 to 4294967295"):
        columns_from_arrow(batch)


@pytest.mark.parametrize("wrong", [-(1 << 31) - 1, -(1 << 63)])
def test_a_negative_type_stands_for_one_of_the_upper_half_or_is_refused(wrong: int) -> None:
    types = pa.array([-1, -(1 << 31), (1 << 32) - 1, 0], pa.int64())
    columns = columns_from_arrow(pa.RecordBatch.from_pydict({"payload": [b""] * 4, "type": types}))
    assert list(decode_types(columns)) == [(1 << 32) - 1, 1 << 31, (1 << 32) - 1, 0]

    batch = pa.RecordBatch.from_pydict({"payload": [b"", b""], "type": pa.array([wrong, 0], pa.int64())})
    with pytest.raises(ValueError, match=f"the type of row 0 is {wrong}"):
        columns_from_arrow(batch)


def test_a_type_of_uint64_beyond_63_bits_is_refused() -> None:
    batch = pa.RecordBatch.from_pydict({"payload": [b""], "type": pa.array([(1 << 64) - 1], pa.uint64())})

    with pytest.raises(ValueError, match="the type of row 0 is 18446744073709551615"):
        columns_from_arrow(batch)
