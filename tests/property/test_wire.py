"""The hand-written wire format equals protobuf.

Method: random messages both ways against the generated classes; then the same bytes truncated, joined and damaged.
Protobuf must accept all that our parser accepts, with the same meaning: otherwise the log could contain a batch that no
reader can parse.
"""

import asyncio
from collections.abc import Sequence

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tidelog.v1 import group_service_pb2, mailbox_service_pb2, message_pb2, wal_service_pb2
from tidelog.wire import protowire
from tidelog.wire import scan_response as wire
from tidelog.wire.consume_response import consume_response, consumed_page
from tidelog.wire.layout import COLUMN_NAMES
from tidelog_server.core.errors import MalformedRequestError
from tidelog_server.rpc import requests as requests_module
from tidelog_server.rpc.columns.view import ColumnsView
from tidelog_server.rpc.requests import merge_in_steps
from tidelog_server.rpc.services.append_requests import PartRequest, StreamRequest, parse_stream_request
from tidelog_server.rpc.services.options import conditions_of

uint32 = st.integers(0, (1 << 32) - 1)
uint64 = st.integers(0, (1 << 64) - 1)
columns = st.builds(
    lambda numbers, named: message_pb2.Columns(**numbers, **named),
    st.fixed_dictionaries({}, optional=dict.fromkeys(("count", "uniform_type", "crc32c"), uint32)),
    st.dictionaries(st.sampled_from(sorted(COLUMN_NAMES.values())), st.binary(max_size=20), max_size=4),
)
options = st.builds(wal_service_pb2.AppendOptions, barrier_tick=uint64, durability=st.integers(-(1 << 31), 5))
parts = st.builds(
    wal_service_pb2.TransactionPart,
    vchannel=st.text(max_size=10),
    batches=st.lists(columns, max_size=2),
    expected_last_tick=st.none() | uint64,
    fencing_token=uint64,
)
lone_requests = st.builds(
    wal_service_pb2.AppendStreamRequest,
    request_id=uint64,
    vchannel=st.text(max_size=10),
    columns=st.none() | columns,
    options=st.none() | options,
    transaction=st.none() | st.builds(wal_service_pb2.Transaction, parts=st.lists(parts, max_size=3)),
)


def with_more(
    first: wal_service_pb2.AppendStreamRequest, others: list[wal_service_pb2.AppendStreamRequest]
) -> wal_service_pb2.AppendStreamRequest:
    together = wal_service_pb2.AppendStreamRequest(more=others)
    together.MergeFrom(first)
    return together


requests = lone_requests | st.builds(with_more, lone_requests, st.lists(lone_requests, max_size=2))
unknown_fields = st.sampled_from(
    [
        b"",
        b"\xa0\x06\x05",  # Field 100, a varint.
        b"\xa2\x06\x02ab",  # Field 100, two bytes.
        b"\xa1\x06" + bytes(8),  # Field 100, fixed64.
        b"\xa5\x06" + bytes(4),  # Field 100, fixed32.
    ]
)
REFUSALS = (MalformedRequestError, protowire.WireFormatError, UnicodeDecodeError, DecodeError)


def check_request(encoded: bytes) -> None:
    """Compare requests that our parser accepts with protobuf; refused ones are not compared."""
    try:
        parsed = parse_stream_request(encoded)
        others = [parse_stream_request(other) for other in parsed.more]
        if any(other.more for other in others):
            return
        for columns in [columns for request in (parsed, *others) for columns in columns_of(request)]:
            ColumnsView.parse(columns)
    except REFUSALS:
        return
    check_columns(parsed.columns, message_pb2.Columns.FromString(parsed.columns))
    try:
        expected = wal_service_pb2.AppendStreamRequest.FromString(encoded)
    except DecodeError:
        # Parts of the batch that are valid messages only once joined: the stored bytes are one valid message.
        assert any(encoded.count(tag) > 1 for tag in (b"\x1a", b"\x22", b"\x2a"))
        return
    check_meaning(parsed, expected)
    for other, wanted in zip(others, expected.more, strict=True):
        check_meaning(other, wanted)


def check_meaning(parsed: StreamRequest, expected: wal_service_pb2.AppendStreamRequest) -> None:
    assert parsed.request_id == expected.request_id
    assert parsed.vchannel == expected.vchannel
    assert (parsed.options or wal_service_pb2.AppendOptions()) == expected.options
    check_columns(parsed.columns, expected.columns)
    assert (parsed.transaction is not None) == expected.HasField("transaction")
    check_parts(parts_of(parsed), list(expected.transaction.parts))
    if parsed.transaction is not None:
        assert parsed.transaction.positions == list(expected.transaction.positions)


def columns_of(parsed: StreamRequest) -> Sequence[bytes]:
    return [parsed.columns, *(batch for part in parts_of(parsed) for batch in part.batches)]


def parts_of(parsed: StreamRequest) -> Sequence[PartRequest]:
    return parsed.transaction.parts if parsed.transaction is not None else []


def check_parts(parsed: Sequence[PartRequest], expected: Sequence[wal_service_pb2.TransactionPart]) -> None:
    assert [part.vchannel for part in parsed] == [part.vchannel for part in expected]
    assert [part.conditions for part in parsed] == [conditions_of(part) for part in expected]
    for part, wanted in zip(parsed, expected, strict=True):
        for encoded, batch in zip(part.batches, wanted.batches, strict=True):
            check_columns(encoded, batch)


def check_columns(encoded: bytes, expected: message_pb2.Columns) -> None:
    try:
        view = ColumnsView.parse(encoded)
    except protowire.WireFormatError:
        return
    assert (view.count, view.uniform_type, view.crc32c) == (expected.count, expected.uniform_type, expected.crc32c)
    for name in COLUMN_NAMES.values():
        assert bytes(view.column(name)) == getattr(expected, name)


@given(requests, unknown_fields)
def test_a_request_has_the_meaning_that_protobuf_gives_it(
    request: wal_service_pb2.AppendStreamRequest, unknown: bytes
) -> None:
    encoded = unknown + request.SerializeToString()
    parsed = parse_stream_request(encoded)
    assert parsed.columns == request.columns.SerializeToString()
    check_request(encoded)


@given(st.lists(st.tuples(requests, unknown_fields), max_size=3), st.randoms())
def test_parts_in_any_order_and_given_several_times_are_merged_as_protobuf_does(
    parts: list[tuple[wal_service_pb2.AppendStreamRequest, bytes]], random: object
) -> None:
    pieces = []
    for request, unknown in parts:
        for number in ("request_id", "vchannel", "columns", "options", "transaction", "more"):
            piece = wal_service_pb2.AppendStreamRequest()
            if number in {field.name for field, _ in request.ListFields()}:
                value = getattr(request, number)
                if number == "more":
                    piece.more.extend(value)
                elif number in {"columns", "options", "transaction"}:
                    getattr(piece, number).CopyFrom(value)
                else:
                    setattr(piece, number, value)
            pieces.append(piece.SerializeToString() + unknown)
    random.shuffle(pieces)  # type: ignore[attr-defined]  # The strategy's type is not public.
    check_request(b"".join(pieces))


@given(requests)
def test_a_request_cut_at_any_byte_is_refused_or_means_what_it_means_to_protobuf(
    request: wal_service_pb2.AppendStreamRequest,
) -> None:
    encoded = request.SerializeToString()
    for end in range(len(encoded)):
        check_request(encoded[:end])


@given(requests, st.data())
def test_damaged_requests_never_mean_anything_else(
    request: wal_service_pb2.AppendStreamRequest, data: st.DataObject
) -> None:
    encoded = bytearray(request.SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        if encoded:
            encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    check_request(bytes(encoded))


@given(st.binary(max_size=40))
def test_random_bytes_never_mean_anything_else(encoded: bytes) -> None:
    check_request(encoded)
    # As the columns of a request, too.
    check_request(b"\x1a" + protowire.varint(len(encoded)) + encoded)


@pytest.mark.parametrize(
    "encoded",
    [
        pytest.param(b"\x00\x05", id="field number 0"),
        pytest.param(b"\xa3\x06\xa4\x06", id="group"),
        pytest.param(b"\xa4\x06", id="end of a group"),
        pytest.param(b"\x0e\x00", id="wire type 6"),
        pytest.param(b"\x0f\x00", id="wire type 7"),
        pytest.param(b"\x88\x80\x80\x80\x80\x00\x05", id="tag of six bytes"),
        pytest.param(b"\xf8\xff\xff\xff\x1f\x05", id="tag above 32 bits"),
        pytest.param(b"\x1a\x82\x80\x80\x80\x80\x00ab", id="length of six bytes"),
        pytest.param(b"\x08" + b"\x80" * 10 + b"\x00", id="varint of eleven bytes"),
        pytest.param(b"\x1a\xff\xff\xff\xff\x07", id="length beyond the end"),
        pytest.param(b"\x0d\x01\x00\x00\x00", id="known field of another wire type"),
        pytest.param(b"\x08", id="tag without a value"),
    ],
)
def test_what_is_no_message_is_refused(encoded: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        parse_stream_request(encoded)
    with pytest.raises(protowire.WireFormatError):
        ColumnsView.parse(encoded)


def test_options_that_are_no_message_are_refused() -> None:
    with pytest.raises(MalformedRequestError):
        parse_stream_request(b"\x22\x01\x08")


@given(uint64)
def test_a_varint_comes_back(value: int) -> None:
    encoded = protowire.varint(value)
    assert protowire.read_varint(encoded, 0) == (value, len(encoded))


@given(
    st.lists(st.tuples(st.integers(0, 2_000), uint64, st.binary(max_size=9), columns, uint64, uint64), max_size=4),
    uint64,
    st.booleans(),
)
def test_a_scan_response_is_what_protobuf_would_write(
    entries: list[tuple[int, int, bytes, message_pb2.Columns, int, int]], watermark: int, is_caught_up: bool
) -> None:
    parts = [
        part
        for source, base_tick, deltas, batch, txn_id, broadcast_id in entries
        for part in wire.entry_parts(
            source, base_tick, deltas, batch.SerializeToString(), txn_id, broadcast_id=broadcast_id
        )
    ]
    expected = wal_service_pb2.ScanResponse(watermark=watermark, caught_up=is_caught_up)
    for source, base_tick, deltas, batch, txn_id, broadcast_id in entries:
        expected.entries.add(
            source=source, base_tick=base_tick, tick_deltas=deltas, columns=batch, txn_id=txn_id,
            broadcast_id=broadcast_id,
        )  # fmt: skip
    response = wal_service_pb2.ScanResponse.FromString(wire.scan_response(parts, watermark, is_caught_up=is_caught_up))
    assert response == expected


@given(st.lists(st.lists(st.tuples(uint64, st.binary(max_size=20)), max_size=3), max_size=3), uint64)
def test_a_consume_response_is_what_protobuf_would_write(pages: list[list[tuple[int, bytes]]], next_tick: int) -> None:
    written = [
        wire.scan_response(
            [part for tick, payloads in page for part in wire.entry_parts(0, tick, b"", of_columns(payloads))],
            0, is_caught_up=False,
        )
        for page in pages
    ]  # fmt: skip
    encoded = consume_response(written, next_tick)
    expected = group_service_pb2.ConsumeResponse.FromString(encoded)
    assert expected.next_tick == next_tick
    assert expected.messages == wal_service_pb2.ScanResponse.FromString(b"".join(written))
    page = consumed_page(expected.SerializeToString())
    assert page.next_tick == next_tick
    assert [(each.base_tick, bytes(each.columns)) for each in page.messages.entries] == [
        (base_tick, of_columns(payloads)) for page in pages for base_tick, payloads in page
    ]


def of_columns(payloads: bytes) -> bytes:
    return message_pb2.Columns(payloads=payloads).SerializeToString()


nested = st.builds(
    mailbox_service_pb2.OperateRequest,
    operations=st.lists(
        st.builds(
            mailbox_service_pb2.Operation,
            number=uint64,
            send=st.builds(
                mailbox_service_pb2.SendRequest,
                mailbox=st.text(max_size=5),
                messages=st.lists(
                    st.builds(
                        mailbox_service_pb2.OutgoingMessage,
                        body=st.binary(max_size=40),
                        headers=st.dictionaries(st.text(max_size=3), st.text(max_size=20), max_size=3),
                    ),
                    max_size=4,
                ),
            ),
        )
        | st.builds(
            mailbox_service_pb2.Operation,
            ack=st.builds(
                mailbox_service_pb2.AckDeliveriesRequest,
                confirmed=st.lists(st.binary(max_size=8), max_size=4),
                rejected=st.lists(st.builds(mailbox_service_pb2.Rejection), max_size=2),
            ),
        ),
        max_size=4,
    ),
    ended_waits=st.lists(uint64, max_size=4),
)


@given(nested, unknown_fields, st.integers(1, 60), st.integers(1, 4))
def test_the_pieces_of_a_message_are_its_whole_fields(
    message: mailbox_service_pb2.OperateRequest, unknown: bytes, max_bytes: int, max_fields: int
) -> None:
    encoded = message.SerializeToString() + unknown
    merged, joined = mailbox_service_pb2.OperateRequest(), b""
    for piece in protowire.pieces(encoded, max_bytes, max_fields):
        found = list(protowire.fields(piece.encoded))
        assert 1 <= len(found) <= max_fields
        assert len(piece.encoded) <= max_bytes or len(found) == 1
        is_large_part = len(piece.encoded) > max_bytes and found[0][0] & 7 == protowire.LENGTH
        assert (piece.tag, piece.value) == (found[0] if is_large_part else (0, b""))
        merged.MergeFromString(bytes(piece.encoded))
        joined += piece.encoded
    assert joined == encoded
    assert merged == mailbox_service_pb2.OperateRequest.FromString(encoded)


# Occurrences of messages that are merged, calls that replace each other, and wire types that do not fit.
merges = st.sampled_from(
    [
        b"",
        b"\x0a\x08\x12\x02\x0a\x00\x12\x02\x0a\x00",
        b"\x0a\x0b\x12\x03\x0a\x01a\x1a\x04\x0a\x02bc",
        b"\x0a\x10\x12\x03\x0a\x01a\x22\x00\x12\x07\x12\x05\x0a\x03abc",
        b"\x08\x05",
    ]
)


@given(nested, merges, st.binary(max_size=3), st.integers(1, 30), st.integers(1, 4))
def test_a_message_merged_in_steps_equals_the_parsed_one(
    message: mailbox_service_pb2.OperateRequest, more: bytes, damage: bytes, max_bytes: int, max_fields: int
) -> None:
    encoded, merged = message.SerializeToString() + more + damage, mailbox_service_pb2.OperateRequest()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests_module, "PARSE_STEP_BYTES", max_bytes)
        patch.setattr(requests_module, "PARSE_STEP_FIELDS", max_fields)
        try:
            asyncio.run(merge_in_steps(encoded, merged))
        except REFUSALS:
            assert damage
            return
    assert merged == mailbox_service_pb2.OperateRequest.FromString(encoded)
