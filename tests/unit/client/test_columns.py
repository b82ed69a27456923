"""The batch codec, byte by byte. Method: golden values derived by hand from the protocol's definition."""

import struct
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from crc32c import crc32c

from tidelog import Columns, Message
from tidelog.wire.columns import (
    checksum,
    decode_event_times_ms,
    decode_keys,
    decode_payloads,
    decode_properties,
    decode_types,
    encode_messages,
    encode_payloads,
)


def test_crc_covers_count_type_lengths_and_columns_in_field_order() -> None:
    columns = Columns(
        count=2, payload_offsets=b"a", payloads=b"bb", key_offsets=b"c", keys=b"d", key_validity=b"e",
        uniform_type=7, types=b"f", property_list_offsets=b"g", property_key_offsets=b"h", property_keys=b"i",
        property_value_offsets=b"j", property_values=b"k", event_times_ms=b"l", event_time_validity=b"m",
    )  # fmt: skip

    head = struct.pack("<15I", 2, 7, 1, 2, *[1] * 11)

    assert checksum(columns) == crc32c(head + b"abbcdefghijklm")


def test_the_short_way_to_a_crc_agrees_with_the_long_one() -> None:
    plain = encode_payloads([b"one", b"two"])

    head = struct.pack("<15I", 2, 0, 12, 6, *[0] * 11)

    assert plain.crc32c == crc32c(head + struct.pack("<3i", 0, 3, 6) + b"onetwo")


def test_plain_payloads_leave_every_other_column_empty() -> None:
    columns = encode_payloads([b"", b"ab"])

    assert columns == replace(Columns(2, struct.pack("<3i", 0, 0, 2), b"ab"), crc32c=columns.crc32c)


def test_each_column_of_a_full_message_is_laid_out_as_arrow_does() -> None:
    columns = encode_messages(
        [
            Message(
                b"p", key=b"k", type=1, properties={"x": "y"}, event_time=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
            ),
            Message(b"q", type=2),
        ]
    )

    assert columns.key_offsets == struct.pack("<3i", 0, 1, 1)
    assert columns.key_validity == b"\x01"
    assert (columns.uniform_type, columns.types) == (0, struct.pack("<2I", 1, 2))
    assert columns.property_list_offsets == struct.pack("<3i", 0, 1, 1)
    assert (columns.property_keys, columns.property_values) == (b"x", b"y")
    assert columns.event_times_ms == struct.pack("<2q", 1000, 0)
    assert columns.event_time_validity == b"\x01"


def test_a_type_that_all_messages_share_needs_no_column() -> None:
    columns = encode_messages([Message(b"a", type=9), Message(b"b", type=9)])

    assert (columns.uniform_type, columns.types) == (9, b"")
    assert list(decode_types(columns)) == [9, 9]


def test_absent_and_empty_keys_stay_different() -> None:
    columns = encode_messages([Message(b"a", key=b""), Message(b"b")])

    assert decode_keys(columns) == [b"", None]


def test_keys_without_validity_are_all_there() -> None:
    columns = encode_messages([Message(b"a", key=b"k"), Message(b"b", key=b"l")])

    assert columns.key_validity == b""
    assert decode_keys(columns) == [b"k", b"l"]


def test_columns_that_nobody_used_decode_to_nothing() -> None:
    columns = encode_payloads([b"a"])

    assert decode_keys(columns) == [None]
    assert decode_properties(columns) == [{}]
    assert decode_event_times_ms(columns) == [None]


def test_an_empty_batch_cannot_be_encoded() -> None:
    with pytest.raises(ValueError, match="at least one"):
        encode_payloads([])


def test_something_whose_length_is_not_in_bytes_cannot_be_encoded() -> None:
    wide = memoryview(struct.pack("<2i", 1, 2)).cast("i")

    with pytest.raises(TypeError, match="not bytes"):
        encode_payloads([wide])  # type: ignore[list-item]  # the point of the test


@pytest.mark.parametrize("message_type", [-1, 1 << 32, 1.5])
def test_a_type_that_is_no_uint32_cannot_be_encoded(message_type: int) -> None:
    with pytest.raises(ValueError, match="type"):
        encode_messages([Message(b"", type=message_type)])


def test_a_batch_that_only_looks_uniform_is_cut_at_its_offsets() -> None:
    # The first size and the total match a uniform size; the offsets in between do not.
    payloads = [b"ab"] * 62 + [b"a", b"abc"]

    assert decode_payloads(encode_payloads(payloads)) == payloads
