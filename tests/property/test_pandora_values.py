"""Keys, bodies and times are printed and read without loss.

Method: round trips of random values; `urllib.parse` as an oracle of the URL encoding, where its rules are the same.
"""

from datetime import datetime, timedelta, timezone
from urllib.parse import parse_qs, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.pandora import (
    InputTooShortError,
    KeyPrinter,
    KeyTooShortError,
    SHA1Key,
    Values,
    encode_values,
    format_time,
    parse_time,
    parse_values,
)

KEYS = st.binary(min_size=20, max_size=20)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
BODIES = st.dictionaries(TEXTS, st.lists(TEXTS, min_size=1, max_size=3), max_size=5)
OFFSETS = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TIMES = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=OFFSETS)  # noqa: DTZ001 - bounds are naive
PRINTER = KeyPrinter()


@given(KEYS, st.none() | st.binary(max_size=60).map(bytearray))
def test_a_printed_key_is_read_back(content: bytes, out: bytearray | None) -> None:
    key, read = SHA1Key(content), SHA1Key()
    printed = PRINTER.print(key, out)
    assert printed == content.hex().encode()
    assert len(printed) == PRINTER.encoded_size(key)
    PRINTER.read(read, printed)
    assert read == key
    PRINTER.read_string(read, PRINTER.print_string(key).upper())
    assert (read, bytes(read)) == (key, content)


@given(st.text(max_size=60))
def test_only_forty_digits_are_a_key(text: str) -> None:
    size, key = len(text.encode("utf-8", "surrogatepass")), SHA1Key(b"\1" * 20)
    expected = KeyTooShortError if size > 40 else InputTooShortError if size < 40 else ValueError
    digits = size == len(text) == 40 and all(each in "0123456789abcdefABCDEF" for each in text)
    if digits:
        PRINTER.read_string(key, text)
        assert key == SHA1Key(bytes.fromhex(text))
    else:
        with pytest.raises(expected):
            PRINTER.read_string(key, text)
        assert key == SHA1Key(b"\1" * 20)


@given(BODIES)
def test_a_body_is_encoded_as_urllib_does_and_read_back(body: Values) -> None:
    encoded = encode_values(body)
    ordered = sorted(body.items(), key=lambda field: field[0].encode())
    assert encoded.decode("ascii") == urlencode(ordered, doseq=True)
    assert parse_values(encoded) == body
    if body:
        assert parse_qs(encoded.decode(), keep_blank_values=True, strict_parsing=True) == body


@given(BODIES)
def test_the_order_of_the_fields_does_not_count(body: Values) -> None:
    assert encode_values(dict(reversed(body.items()))) == encode_values(body)


@given(st.lists(st.binary(max_size=8), max_size=4))
def test_bytes_that_are_not_utf8_are_kept(values: list[bytes]) -> None:
    body = {"name": [value.decode("utf-8", "surrogateescape") for value in values]}
    parsed = parse_values(encode_values(body))
    assert parsed == (body if values else {})


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(encoded: bytes) -> None:
    try:
        values = parse_values(encoded)
    except ValueError:
        return
    assert parse_values(encode_values(values)) == values


@given(TIMES, st.text("0123456789", max_size=3))
def test_a_printed_time_is_read_back(time: datetime, nanoseconds: str) -> None:
    printed = format_time(time)
    assert parse_time(printed) == time
    assert parse_time(printed).utcoffset() == time.utcoffset()
    assert datetime.fromisoformat(printed) == time
    exact = time.replace(tzinfo=None).isoformat(timespec="microseconds") + nanoseconds + "-03:00"
    digits = format_time(exact)[19:-6]
    assert digits == ("." + exact[20:-6]).rstrip("0").rstrip(".")
