"""Goal: a payload decodes to the same value with others or alone, and corrupt ones are reported, row by row.

Method: hypothesis draws JSON that fits, JSON that nearly fits, and tokens in any order. The decoder by columns must
decline, or return the same as the one row by row. A table has the accepted values of each type.
"""

import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import Batch
from tidelog.message import Message
from tidelog.spark.errors import CorruptPayloadError
from tidelog.spark.payload_options import PayloadFormat
from tidelog.spark.read.arrow import to_record_batch
from tidelog.spark.read.json_columns import JsonColumns
from tidelog.spark.read.json_rows import JsonRows
from tidelog.spark.read.payloads import TEXT_DECODER, Payloads, decode
from tidelog.wire.columns import encode_messages

MICROSECONDS = pa.timestamp("us", tz="UTC")
INNER = pa.struct([("i", pa.int32()), ("s", pa.string())])
TARGET = pa.struct(
    [
        ("b", pa.bool_()), ("t", pa.int8()), ("h", pa.int16()), ("i", pa.int32()), ("l", pa.int64()),
        ("f", pa.float32()), ("d", pa.float64()), ("s", pa.string()), ("day", pa.date32()), ("at", MICROSECONDS),
        ("raw", pa.binary()),
        ("o", INNER), ("is", pa.list_(pa.int32())), ("os", pa.list_(INNER)), ("times", pa.list_(MICROSECONDS)),
    ]
)  # fmt: skip
ROWS, COLUMNS = JsonRows(TARGET), JsonColumns(TARGET)
NUMBERS = (
    "0", "-0", "1", "127", "128", "-129", "32768", "2147483647", "2147483648",
    "9223372036854775807", "9223372036854775808", "1.0", "1e2", "1E-2",
    "-1.5", "0.1", "1e999", "-1e999", "1e-999", "3.4028235e38", "3.4028236e38", "1e39", "1e308",
    "1.7976931348623159e308", "16777217", "0.30000001192092896", "9" * 5_000, "NaN", "Infinity", "-Infinity", "Inf",
    "01", "+1", ".5", "1.", "0x1", "-",
)  # fmt: skip
STRINGS = (
    '""', '"x"', '"1"', '"\\u00e4\\ud83d\\ude00"', '"\\ud83d"', '"\\udc00"', '"\\u0000"', '"a\tb"', '"} n"',
    '": NaN"', '"ü😀"', '"2026-03-01"', '"2026-02-30"', '"0000-01-01"', '"2026-03-01T12:00:00"',
    '"2026-03-01 12:00:00.5Z"', '"0001-01-01T00:00:00+23:59"', '"2026-03-01T12:00:00.123456789-05:30"',
    '"2026-03-01T12:00:60Z"', '"2026-03-01T24:00:00Z"', '"2026-03-01T12:00Z"', '"1969-12-31T23:59:59.9Z"',
    '"9999-12-31T23:59:59.999999-01:00"', '"2026-03-01T12:00:00+24:00"', '"2026-03-01T12:00:00+0100"',
    '"2026-03-01T12:00:00\\n"', '"eHg="', '"eHg"', '"eH g="', '"YQ=="', '"YQ==YQ=="', '"="', '"\\n"', '"\\/"',
    '"\\x"', '"\xa0"',
)  # fmt: skip
OTHERS = (
    "null",
    "true",
    "false",
    "{}",
    "[]",
    "nul",
    "True",
    "[null]",
    '{"i":1}',
    '[{"i":1},null,{}]',
    "[1,2]",
    '["x"]',
)
NAMES = (*(f'"{name}"' for name in TARGET.names), '"other"', '"\\u0069"')
TOKENS = (
    *"{}[],: \t\r",
    "\n",
    "\x00",
    "\ufeff",
    '"',
    "\\",
    "{}",
    '{"i":1}',
    "null",
    "1",
    '"i"',
    '"i":1',
    '"s":"x"',
    '"other":',
    "NaN",
)


def joined(opening: str, closing: str) -> Any:
    return lambda parts: f"{opening}{','.join(parts)}{closing}"


def texts_of_values() -> st.SearchStrategy[str]:
    leaves = st.sampled_from((*NUMBERS, *STRINGS, *OTHERS)) | st.text(max_size=5).map(json.dumps)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3).map(joined("[", "]")) | objects(inner),
        max_leaves=4,
    )


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    field = st.tuples(st.sampled_from(NAMES), st.sampled_from((":", " : ")), values).map("".join)
    return st.lists(field, max_size=4).map(joined("{", "}"))


def fitting(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Return JSON values that are accepted as ``kind``."""
    if pa.types.is_struct(kind):
        # Fields may be missing, and there may be unknown ones.
        known = {field.name: fitting(field.type) for field in kind}
        return st.fixed_dictionaries({}, optional=known | {"other": st.none() | st.text(max_size=3)})
    if pa.types.is_list(kind):
        return st.none() | st.lists(fitting(kind.value_type), max_size=3)
    if pa.types.is_integer(kind):
        limit = 1 << (kind.bit_width - 1)
        return st.none() | st.integers(-limit, limit - 1)
    simple: dict[pa.DataType, st.SearchStrategy[Any]] = {
        pa.bool_(): st.booleans(),
        pa.float64(): st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
        pa.float32(): st.floats(width=32, allow_nan=False, allow_infinity=False) | st.floats(-1e38, 1e38),
        pa.string(): st.text(max_size=8) | st.sampled_from(("}x", "{}{", ": NaN", '"}"}', "\\", '\\"')),
        pa.date32(): st.dates().map(str),
        MICROSECONDS: st.datetimes().map(lambda moment: moment.isoformat() + "Z"),
        pa.binary(): st.sampled_from(("", "eHg=", "YWJj")),
    }
    return st.none() | simple[kind]


def check_same(payloads: list[bytes]) -> bool:
    """Return whether the payloads were decoded by columns; if so, check that the rows are the same as row by row."""
    together = COLUMNS.decode(pa.array(payloads, pa.binary()))
    rows, corrupt = ROWS.decode(payloads)
    rows.validate(full=True)
    assert len(rows) == len(payloads)
    assert [row is None for row in rows.to_pylist()] == [
        i in {each.position for each in corrupt} for i in range(len(rows))
    ]
    if together is None:
        return False
    together.validate(full=True)
    assert corrupt == []
    # Scalars are compared by their bits: -0.0 is not 0.0.
    assert together.type == rows.type == TARGET
    assert [repr(row) for row in together.to_pylist()] == [repr(row) for row in rows.to_pylist()]
    return True


@given(
    st.lists(
        objects(texts_of_values()) | st.lists(st.sampled_from(TOKENS), max_size=8).map("".join), min_size=1, max_size=4
    )
)
def test_what_is_accepted_by_columns_is_the_same_row_by_row(texts: list[str]) -> None:
    check_same([text.encode() for text in texts])


@given(st.lists(fitting(TARGET), min_size=1, max_size=5), st.booleans())
def test_what_fits_is_decoded_by_columns(values: list[Any], is_ascii: bool) -> None:
    assert check_same([json.dumps(value, ensure_ascii=is_ascii).encode() for value in values])


@given(st.lists(st.binary(max_size=6) | st.text(max_size=6).map(str.encode), min_size=1, max_size=4))
def test_texts_are_the_same_together_and_one_by_one(payloads: list[bytes]) -> None:
    together = TEXT_DECODER.together(pa.array(payloads, pa.binary()))
    texts, corrupt = TEXT_DECODER.one_by_one(payloads)

    assert (together is None) == bool(corrupt)
    assert together is None or together.equals(texts)
    assert all(
        payloads[each.position].decode(errors="replace") != payloads[each.position].decode(errors="ignore")
        for each in corrupt
    )


@pytest.mark.parametrize(
    "payloads",
    [
        [b'{"i":1}{"i":2}', b""],
        [b'{"i":', b'1}{"i":2}'],
        [b'{"i":1}{"i":2}', b"{"],
        [b'{"i":1} null {"i":2}'],
        [b'{"i":1},{"i":2}'],
        [b'{"i":1}]{"i":2}'],
        [b'{"i":1}\n{"i":2}', b""],
        [b'{"i":1}\x00{"i":2}'],
        [b'{"s":"', b'"}'],
        [b"null"],
        [b""],
        [b" "],
        [b'\xef\xbb\xbf{"i":1}'],
        [b'{"other":NaN}'],
        [b'{"other":[1, -Infinity]}'],
        [b'{"other":' + b"[" * 5_000 + b"]" * 5_000 + b"}"],
    ],
)  # fmt: skip
def test_what_is_not_one_object_for_each_payload_is_left_to_rows(payloads: list[bytes]) -> None:
    assert not check_same(payloads)


def test_white_space_is_none_of_the_payload() -> None:
    assert check_same([b' {"i":1}\n', b'\r\n\t{\n  "i": 1,\n  "o": {"i": 2}\n}\n', b'{"s":"\xc3\xa4"}'])
    assert not check_same([b'{"s":"a\nb"}'])
    assert not check_same([b'{"s":"a\rb"}'])


@pytest.mark.parametrize("field", ["day", "at"])
def test_a_year_that_is_none_is_corrupt_whatever_comes_beside_it(field: str) -> None:
    text = '"0000-01-01"' if field == "day" else '"0000-01-01T00:00:00"'
    payloads = [f'{{"{field}":{text}}}'.encode()]

    assert not check_same(payloads)
    assert [each.position for each in ROWS.decode(payloads)[1]] == [0]


@pytest.mark.parametrize(("begin", "end"), [(b'{"i":', b"}"), (b"", b""), (b'{"i":{"x":', b"}}")])
def test_a_payload_of_any_depth_is_corrupt_and_no_failure(begin: bytes, end: bytes) -> None:
    limit = sys.getrecursionlimit()
    for depth in [*range(limit - 150, limit + 5), 100 * limit]:
        payload = begin + b"[" * depth + b"]" * depth + end
        assert [each.position for each in ROWS.decode([payload, b'{"i":1}'])[1]] == [0]


def test_no_payloads_are_left_to_rows() -> None:
    assert not check_same([])


def test_many_brackets_are_not_many_levels() -> None:
    assert check_same(
        [b'{"is":[' + b",".join([b"1"] * 900) + b'],"other":[' + b",".join([b'[{"x":"]["}]'] * 900) + b"]}"]
    )


def value_of(kind: pa.DataType, text: str) -> Any:
    rows, corrupt = JsonRows(pa.struct([("a", kind)])).decode([f'{{"a":{text}}}'.encode()])
    return corrupt[0].reason if corrupt else rows.to_pylist()[0]["a"]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (pa.bool_(), "true", True),
        (pa.bool_(), "1", "has 1 as 'a', expected BOOLEAN"),
        (pa.int8(), "-128", -128),
        (pa.int8(), "128", "has 128 as 'a', expected TINYINT"),
        (pa.int64(), "9" * 50, f"has {'9' * 40}... as 'a', expected BIGINT"),
        (pa.int32(), "1.0", "has 1.0 as 'a', expected INT"),
        (pa.int32(), '"1"', "has \"1\" as 'a', expected INT"),
        (pa.float64(), "1e308", 1e308),
        (pa.float64(), "1e309", "has 1e309 as 'a', expected DOUBLE"),
        (pa.float32(), "0.1", 0.10000000149011612),
        (pa.float32(), "1e39", "has 1e39 as 'a', expected FLOAT"),
        (pa.decimal128(5, 2), "123.45", Decimal("123.45")),
        (pa.decimal128(5, 2), "1.5e1", Decimal("15.00")),
        (pa.decimal128(5, 2), "123.456", "has 123.456 as 'a', expected DECIMAL(5, 2)"),
        (pa.decimal128(5, 2), "1000", "has 1000 as 'a', expected DECIMAL(5, 2)"),
        (pa.decimal128(38, 0), "1e" + "9" * 30, f"has 1e{'9' * 30} as 'a', expected DECIMAL(38, 0)"),
        (pa.decimal128(38, 0), "9" * 38, Decimal("9" * 38)),
        (pa.decimal128(38, 38), "-0." + "9" * 38, Decimal("-0." + "9" * 38)),
        (pa.decimal128(38, 0), "1" + "0" * 38, f"has 1{'0' * 38} as 'a', expected DECIMAL(38, 0)"),
        (pa.string(), '"x"', "x"),
        (pa.string(), "1", "has 1 as 'a', expected STRING"),
        (pa.string(), '"\\ud83d"', "has \"\\ud83d\" as 'a', expected STRING"),
        (pa.date32(), '"2026-03-01"', date(2026, 3, 1)),
        (pa.date32(), '"2026-3-1"', "has \"2026-3-1\" as 'a', expected DATE"),
        (pa.date32(), '"0000-01-01"', "has \"0000-01-01\" as 'a', expected DATE"),
        *((pa.date32(), f'"{year:04}-12-31"', date(year, 12, 31)) for year in (1, 10, 100, 1000, 2000, 2010, 9999)),
        (
            MICROSECONDS,
            '"2026-03-01T12:00:00+00:60"',
            "has \"2026-03-01T12:00:00+00:60\" as 'a', expected TIMESTAMP",
        ),
        (MICROSECONDS, '"2026-03-01T12:00:00.1234567+01:00"', datetime(2026, 3, 1, 11, 0, 0, 123456, UTC)),
        (MICROSECONDS, '"2026-03-01 12:00:00"', datetime(2026, 3, 1, 12, tzinfo=UTC)),
        (MICROSECONDS, "1772366400", "has 1772366400 as 'a', expected TIMESTAMP"),
        (pa.binary(), '"eHg="', b"xx"),
        (pa.binary(), '"xx="', "has \"xx=\" as 'a', expected BINARY"),
        (pa.map_(pa.string(), pa.int32()), '{"x":1,"y":null,"x":2}', [("x", 2), ("y", None)]),
        (pa.map_(pa.string(), MICROSECONDS), '{"x":1}', "has 1 as 'a[]', expected TIMESTAMP"),
        (pa.list_(pa.int32()), "[1,null]", [1, None]),
        (pa.list_(pa.int32()), '[1,"x"]', "has \"x\" as 'a[]', expected INT"),
        (INNER, '{"i":1,"i":2,"z":3}', {"i": 2, "s": None}),
        (INNER, '{"s":2}', "has 2 as 'a.s', expected STRING"),
        (INNER, "[]", "has [] as 'a', expected STRUCT"),
        (INNER, "null", None),
    ],
)
def test_each_type_takes_what_the_table_says(kind: pa.DataType, text: str, expected: Any) -> None:
    assert value_of(kind, text) == expected


def a_run(payloads: list[bytes]) -> list[Batch]:
    return [Batch("orders/3", encode_messages([Message(each) for each in payloads]), range(700, 700 + len(payloads)))]


SCHEMA = pa.schema(
    [("tick", pa.int64()), ("payload", pa.struct([("i", pa.int32())])), ("_corrupt_record", pa.binary())]
)


@given(st.lists(st.sampled_from([b'{"i":1}', b'{"i":2}', b"x", b"\xff"]), min_size=1, max_size=900))
def test_corrupt_rows_are_told_among_thousands(payloads: list[bytes]) -> None:
    run = a_run(payloads)

    rows = to_record_batch(run, SCHEMA, Payloads(PayloadFormat("json"), SCHEMA)).to_pylist()

    values = {b'{"i":1}': {"i": 1}, b'{"i":2}': {"i": 2}}
    assert rows == [
        {"tick": 700 + i, "payload": values.get(payload), "_corrupt_record": None if payload in values else payload}
        for i, payload in enumerate(payloads)
    ]


def test_failfast_names_the_first_by_vchannel_and_tick() -> None:
    run = a_run([b'{"i":1}', b'{"i":"x"}', b"y"])

    with pytest.raises(
        CorruptPayloadError, match=r"^orders/3: the payload at tick 701 has \"x\" as 'i', expected INT\. Read"
    ):
        to_record_batch(run, SCHEMA, Payloads(PayloadFormat("json", is_failfast=True), SCHEMA))


def test_one_corrupt_payload_does_not_slow_down_the_others() -> None:
    parts: list[pa.Array] = []
    payloads = [b"a"] * 10_000
    payloads[7_000] = b"\xff"

    corrupt = decode(TEXT_DECODER, pa.array(payloads, pa.binary()), parts)

    assert [each.position for each in corrupt] == [7_000]
    assert sum(part.null_count for part in parts) == 1
    assert len(parts) < 16
