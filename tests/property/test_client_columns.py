"""The batch codec over any messages. Method: hypothesis; decoding inverts encoding and detects every changed byte."""

from dataclasses import fields, replace
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidelog import Columns, Message
from tidelog.v1 import wal_service_pb2
from tidelog.wire.append_terms import AppendTerms
from tidelog.wire.column_message import columns_from_wire, columns_to_wire
from tidelog.wire.column_parts import txn_parts, with_txn_ends
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
from tidelog.wire.protocol import append_options, append_stream_request
from tidelog.wire.protowire import WireFormatError
from tidelog.wire.scan_response import scan_page

UINT64 = st.integers(0, (1 << 64) - 1)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
MESSAGES = st.builds(
    Message,
    payload=st.binary(max_size=30),
    key=st.none() | st.binary(max_size=5),
    type=st.integers(0, (1 << 32) - 1),
    properties=st.dictionaries(TEXTS, TEXTS, max_size=3),
    event_time=st.none() | st.datetimes(min_value=datetime(1900, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - hypothesis adds the zone
)
BATCHES = st.lists(MESSAGES, min_size=1, max_size=20)


@given(BATCHES)
def test_messages_come_back_as_they_were(messages: list[Message]) -> None:
    columns = encode_messages(messages)

    assert columns.count == len(messages)
    assert decode_payloads(columns) == [message.payload for message in messages]
    assert decode_keys(columns) == [message.key for message in messages]
    assert list(decode_types(columns)) == [message.type for message in messages]
    assert decode_properties(columns) == [message.properties for message in messages]
    assert decode_event_times_ms(columns) == [message.event_time_ms for message in messages]


@given(BATCHES)
def test_the_wire_carries_columns_unchanged(messages: list[Message]) -> None:
    columns = encode_messages(messages)

    received = columns_from_wire(columns_to_wire(columns).SerializeToString())

    assert received == columns
    assert {type(payload) for payload in decode_payloads(received)} == {bytes}
    for decode in (decode_payloads, decode_keys, decode_types, decode_properties, decode_event_times_ms):
        assert decode(received) == decode(columns)


@given(
    st.lists(
        st.tuples(st.integers(0, 2_000), st.integers(0, (1 << 64) - 1), st.binary(max_size=9), BATCHES), max_size=4
    ),
    st.integers(0, (1 << 64) - 1),
    st.booleans(),
    st.integers(0, (1 << 64) - 1),
)
def test_a_response_means_what_protobuf_says(
    entries: list[tuple[int, int, bytes, list[Message]]], watermark: int, caught_up: bool, end_tick: int
) -> None:
    response = wal_service_pb2.ScanResponse(watermark=watermark, caught_up=caught_up, end_tick=end_tick)
    for source, base_tick, deltas, messages in entries:
        columns = columns_to_wire(encode_messages(messages))
        response.entries.add(source=source, base_tick=base_tick, tick_deltas=deltas, columns=columns)

    page = scan_page(response.SerializeToString())

    assert (page.watermark, page.caught_up, page.end_tick) == (watermark, caught_up, end_tick)
    assert [(entry.source, entry.base_tick, entry.tick_deltas) for entry in page.entries] == [
        (entry.source, entry.base_tick, entry.tick_deltas) for entry in response.entries
    ]
    for entry, expected in zip(page.entries, response.entries, strict=True):
        assert columns_to_wire(columns_from_wire(entry.columns)) == expected.columns


@given(BATCHES, st.data())
def test_damaged_responses_are_refused_or_fail_their_crc_but_never_break_the_client(
    messages: list[Message], data: st.DataObject
) -> None:
    response = wal_service_pb2.ScanResponse(watermark=7)
    response.entries.add(base_tick=1, columns=columns_to_wire(encode_messages(messages)))
    encoded = bytearray(response.SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        for entry in scan_page(bytes(encoded[: data.draw(st.integers(0, len(encoded)))])).entries:
            checksum(columns_from_wire(entry.columns))
    except WireFormatError:
        pass


TERMS = st.builds(AppendTerms, st.sampled_from([None, "sync", "os"]), st.none() | st.integers(1, (1 << 64) - 1))


@given(BATCHES, TERMS, st.integers(1, 1 << 40))
def test_requests_have_the_bytes_that_protobuf_would_make(
    messages: list[Message], terms: AppendTerms, request_id: int
) -> None:
    columns = encode_messages(messages)

    expected = wal_service_pb2.AppendStreamRequest(
        request_id=request_id, vchannel="a/0", columns=columns_to_wire(columns),
        options=append_options(terms) if any(terms) else None,
    )  # fmt: skip

    request = append_stream_request(request_id, "a/0", columns, terms)
    assert request == expected.SerializeToString(deterministic=True)


@given(st.binary(max_size=100), st.integers(1, 400))
def test_payloads_of_one_size_take_the_short_way_to_the_same_bytes(payload: bytes, count: int) -> None:
    payloads = [payload] * count
    # A batch with the same beginning that is not uniform, so it is encoded and decoded by the general path.
    longer = encode_payloads([*payloads, payload + b"x"])

    columns = encode_payloads(payloads)

    assert columns.payload_offsets == longer.payload_offsets[: 4 * (count + 1)]
    assert decode_payloads(columns) == payloads == decode_payloads(longer)[:count]


@given(BATCHES, st.data())
def test_a_flipped_bit_in_any_column_changes_the_crc(messages: list[Message], data: st.DataObject) -> None:
    columns = encode_messages(messages)
    names = [
        f.name for f in fields(Columns) if isinstance(getattr(columns, f.name), bytes) and getattr(columns, f.name)
    ]
    name = data.draw(st.sampled_from(names))
    damaged = bytearray(getattr(columns, name))
    bit = data.draw(st.integers(0, 8 * len(damaged) - 1))

    damaged[bit // 8] ^= 1 << bit % 8

    changes: dict[str, Any] = {name: bytes(damaged)}
    assert checksum(replace(columns, **changes)) != columns.crc32c


@given(st.lists(st.lists(MESSAGES, max_size=4), min_size=1, max_size=6).filter(any))
def test_transactions_that_share_a_batch_come_apart_as_they_were(groups: list[list[Message]]) -> None:
    columns = encode_messages([message for group in groups for message in group])
    ends = list(accumulate(len(group) for group in groups))

    received = columns_from_wire(columns_to_wire(with_txn_ends(columns, ends)).SerializeToString())
    assert checksum(received) == received.crc32c
    found = {number: (begin, part) for number, begin, part in txn_parts(received)}

    assert found.keys() == {number for number, group in enumerate(groups) if group}
    for number, (begin, part) in found.items():
        group = groups[number]
        assert begin == ends[number] - len(group)
        assert checksum(part) == part.crc32c
        assert decode_payloads(part) == [message.payload for message in group]
        assert decode_keys(part) == [message.key for message in group]
        assert list(decode_types(part)) == [message.type for message in group]
        assert decode_properties(part) == [message.properties for message in group]
        assert decode_event_times_ms(part) == [message.event_time_ms for message in group]
