"""Snapshots in parts, and their end: what was packed comes back, and what does not fit is DATA_LOSS."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.core.errors import DataLossError
from tidelog_server.recordlog.records import MAX_PAYLOAD_BYTES, Mark
from tidelog_server.recordlog.rules import ReaderState
from tidelog_server.storage.engine.operations import operations
from tidelog_server.storage.engine.place import Place
from tidelog_server.storage.engine.snapshot_format import (
    PartsInOrder,
    SnapshotEnd,
    pack_end,
    parts_of,
    unpack_end,
)
from tidelog_server.storage.engine.snapshot_plan import MAX_MARKS, LogMark

PLACE = Place(90, ReaderState(bytes(range(16)), 3, 10, Mark(9, b"I" * 16), 70), 123_456)
END = SnapshotEnd(95, 7, (LogMark(5, 0), LogMark(1 << 100, 900)), PLACE)


def rows_of(parts: Iterable[bytes]) -> list[tuple[int, bytes, bytes]]:
    whole = b"".join(parts)
    return [(each.family, each.key, whole[each.begin : each.end]) for each in operations(whole)]


def test_an_end_comes_back() -> None:
    assert unpack_end(99, pack_end(END)) == END._replace(marks=list(END.marks))
    full = END._replace(marks=[LogMark(number, number) for number in range(MAX_MARKS)])
    assert len(pack_end(full)) <= MAX_PAYLOAD_BYTES
    assert unpack_end(99, pack_end(full)) == full


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", "no end of a snapshot"),
        (b"\2" + pack_end(END)[1:], "version 2"),
        (pack_end(END)[:-1], "is damaged"),
        (pack_end(END._replace(marks=())), "0 marks of 0"),
        (pack_end(END)[:53], "1 marks of 2"),
    ],
    ids=["empty", "later version", "cut", "without marks", "cut within the marks"],
)
def test_another_end_is_data_loss(payload: bytes, said: str) -> None:
    with pytest.raises(DataLossError, match=said):
        unpack_end(99, payload)


@given(st.lists(st.tuples(st.integers(0, 6), st.binary(max_size=20), st.binary(max_size=100)), max_size=30))
def test_rows_come_back(rows: list[tuple[int, bytes, bytes]]) -> None:
    parts = list(parts_of(rows))
    assert len(parts) == 1
    assert rows_of(parts) == rows


def test_parts_are_full_and_a_row_may_continue_in_the_next_ones() -> None:
    sizes = (10, MAX_PAYLOAD_BYTES - 30, 5 * MAX_PAYLOAD_BYTES // 2, 0, 1_000)
    rows = [(number, b"key%d" % number, bytes([number]) * size) for number, size in enumerate(sizes)]
    parts = list(parts_of(iter(rows)))
    assert [len(part) for part in parts[:-1]] == [MAX_PAYLOAD_BYTES] * 3
    assert rows_of(parts) == rows


def test_a_snapshot_that_fills_its_part_has_no_empty_one() -> None:
    value = bytes(MAX_PAYLOAD_BYTES - len(b"".join(parts_of([(1, b"key", b"")]))))
    assert list(map(len, parts_of([(1, b"key", value)]))) == [MAX_PAYLOAD_BYTES]


def test_parts_come_in_order_and_the_end_fits() -> None:
    parts = PartsInOrder(95)
    assert parts.take(95, 0, b"rows", is_last=False) == b"rows"
    assert parts.take(97, 1, b"row", is_last=False) == b"row"
    assert [parts.end] == [None]
    assert parts.take(99, 2, pack_end(END), is_last=True) is None
    assert parts.end == END._replace(marks=list(END.marks))
    with pytest.raises(DataLossError, match="part 3 of a snapshot"):
        parts.take(100, 3, b"", is_last=False)


@pytest.mark.parametrize(
    ("part", "payload", "is_last", "said"),
    [
        (0, b"rows", False, "part 0 of a snapshot, expected part 1"),
        (2, b"rows", False, "part 2 of a snapshot, expected part 1"),
        (1, pack_end(END._replace(size_bytes=8)), True, "a snapshot of 8 bytes from position 95, and 7 bytes from"),
        (1, pack_end(END._replace(first=94)), True, "from position 94, and 7 bytes from position 95 are there"),
    ],
)
def test_parts_that_do_not_fit_are_data_loss(part: int, payload: bytes, is_last: bool, said: str) -> None:
    parts = PartsInOrder(95)
    parts.take(95, 0, b"the row", is_last=False)
    with pytest.raises(DataLossError, match=said):
        parts.take(97, part, payload, is_last=is_last)
