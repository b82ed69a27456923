"""Rows are routed by their column `vchannel`, or else by their key, each once and in order."""

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.write.routing import MAX_ROWS, Router
from tidelog.wire.columns import decode_keys, decode_payloads

COUNTS = {"a": 1, "b": 3}
ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.none() | st.integers(0, 2), st.none() | st.binary(max_size=2)).filter(
        lambda row: row[0] == "b" or not row[1]
    ),
    min_size=1,
    max_size=20,
)


def batch_of(rows: list[tuple[str, int | None, bytes | None]]) -> pa.RecordBatch:
    channels, vchannels, keys = zip(*rows, strict=True)
    return pa.RecordBatch.from_pydict(
        {
            "payload": [b"%d" % number for number in range(len(rows))],
            "key": pa.array(keys, pa.binary()),
            "channel": pa.array(channels, pa.string()),
            "vchannel": pa.array(vchannels, pa.int32()),
        }
    )


def routed(router: Router, batch: pa.RecordBatch) -> dict[str, list[tuple[int, bytes | None]]]:
    found: defaultdict[str, list[tuple[int, bytes | None]]] = defaultdict(list)
    for vchannel, columns in router.divide(batch):
        found[vchannel] += zip(map(int, decode_payloads(columns)), decode_keys(columns), strict=True)
    return found


@given(ROWS)
def test_each_row_goes_to_one_vchannel_that_fits_it(rows: list[tuple[str, int | None, bytes | None]]) -> None:
    found = routed(Router("", COUNTS.__getitem__), batch_of(rows))

    numbers = sorted(number for part in found.values() for number, _ in part)
    assert numbers == list(range(len(rows)))
    homes: defaultdict[tuple[str, bytes], set[str]] = defaultdict(set)
    for vchannel, part in found.items():
        assert [number for number, _ in part] == sorted(number for number, _ in part)
        channel, index = vchannel.split("/")
        for number, key in part:
            wanted_channel, wanted_index, wanted_key = rows[number]
            assert (channel, key) == (wanted_channel, wanted_key)
            assert 0 <= int(index) < COUNTS[channel]
            if wanted_index is not None:
                assert int(index) == wanted_index
            elif key is not None:
                homes[channel, key].add(index)
    assert all(len(indices) == 1 for indices in homes.values())


def test_rows_without_a_key_take_turns_batch_by_batch() -> None:
    router = Router("b", COUNTS.__getitem__)
    batch = pa.RecordBatch.from_pydict({"payload": ["1", "2"]})
    found = [routed(router, batch) for _ in range(3)]
    assert [len(each) for each in found] == [1, 1, 1]
    assert {vchannel for each in found for vchannel in each} == {"b/0", "b/1", "b/2"}


@pytest.mark.parametrize("size", [10, 500, 3 << 20])
def test_batches_have_a_bounded_size(size: int) -> None:
    count = max(2, (4 << 20) // size)
    batch = pa.RecordBatch.from_pydict({"payload": [b"x" * size] * count})
    pieces = [columns for _, columns in Router("a", COUNTS.__getitem__).divide(batch)]
    assert sum(columns.count for columns in pieces) == count
    assert all(columns.count <= MAX_ROWS for columns in pieces)
    assert all(columns.count == 1 or columns.size_bytes <= (1 << 20) + 8 * columns.count for columns in pieces)


def test_large_messages_that_stand_together_are_divided() -> None:
    payloads = [b"x"] * 9_000 + [b"y" * 900_000] * 8 + [b"x"] * 900
    pieces = [
        columns
        for _, columns in Router("a", COUNTS.__getitem__).divide(pa.RecordBatch.from_pydict({"payload": payloads}))
    ]
    assert sum(columns.count for columns in pieces) == len(payloads)
    assert max(columns.size_bytes for columns in pieces) < 2 << 20


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"vchannel": [3]}, "vchannel 3, expected 0 to 2 for the channel b"),
        ({"vchannel": [-1]}, "vchannel -1"),
        ({"channel": pa.array([None], pa.string())}, "the channel of 1 of 1 rows is NULL"),
    ],
)
def test_a_row_that_belongs_nowhere_is_refused(columns: dict[str, Any], match: str) -> None:
    router = Router("" if "channel" in columns else "b", COUNTS.__getitem__)
    with pytest.raises(ValueError, match=match):
        list(router.divide(pa.RecordBatch.from_pydict({"payload": ["x"], **columns})))


@pytest.mark.parametrize(
    ("rows", "takes_turns"),
    [
        ([("a", None, None)], False),
        ([("b", 1, None), ("b", None, b"k")], False),
        ([("b", 1, None), ("b", None, None)], True),
        ([("b", None, None)], True),
        ([("b", None, b"k"), ("b", None, None)], True),
    ],
)
def test_only_rows_without_a_vchannel_and_a_key_may_go_elsewhere_the_next_time(
    rows: list[tuple[str, int | None, bytes | None]], *, takes_turns: bool
) -> None:
    router = Router("", COUNTS.__getitem__)

    routed(router, batch_of(rows))

    assert router.takes_turns == takes_turns


def test_a_type_that_32_bits_cannot_hold_is_refused_with_the_row_of_the_task() -> None:
    router = Router("b", COUNTS.__getitem__)
    good = pa.RecordBatch.from_pydict({"payload": [b"x"] * 4, "type": pa.array([1, 2, 3, 4], pa.int64())})
    wrong = pa.RecordBatch.from_pydict(
        {"payload": [b"y"] * 3, "vchannel": [2, 1, 0], "type": pa.array([5, 4294967301, 6], pa.int64())}
    )
    assert len(list(router.divide(good))) == 1

    with pytest.raises(ValueError, match="the type of row 5 is 4294967301, expected 0 to 4294967295"):
        list(router.divide(wrong))
