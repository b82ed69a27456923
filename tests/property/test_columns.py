"""`check` accepts exactly the batches that a reader can decode, and `select` selects the same messages as from rows.

Method: a slow oracle that visits each message and each text in plain Python judges valid batches, mutated ones and
batches of random offsets; rows selected by list indexing are compared with columns selected by numpy.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidelog.v1 import message_pb2
from tidelog.wire import columns as client
from tidelog.wire.column_message import columns_from_wire
from tidelog.wire.layout import COLUMN_NAMES
from tidelog.wire.protowire import WireFormatError
from tidelog_server.core import errors, limits
from tidelog_server.core.errors import ChecksumMismatchError, MalformedColumnsError
from tidelog_server.core.limits import Limits
from tidelog_server.rpc.columns import checks as column_checks
from tidelog_server.rpc.columns.checks import MAX_EVENT_TIME_MS, MIN_EVENT_TIME_MS, check
from tidelog_server.rpc.columns.rows import decode_rows, encode_rows
from tidelog_server.rpc.columns.view import ColumnsView, sealed, select
from tidelog_testing.parts.batches import Message, a_columns, batches_of_messages

LIMITS = Limits(max_message_bytes=64, max_batch_bytes=4_096)
OFFSETS = ("payload_offsets", "key_offsets", "property_list_offsets", "property_key_offsets", "property_value_offsets")
REFUSALS = (
    errors.EmptyBatchError,
    errors.BatchTooLargeError,
    errors.MessageTooLargeError,
    errors.MalformedColumnsError,
    errors.ChecksumMismatchError,
    errors.ReservedPropertyError,
)


# -- The slow oracle -------------------------------------------------------------------------------------------


def numbers(column: bytes) -> list[int]:
    assert len(column) % 4 == 0
    return [number for (number,) in struct.iter_unpack("<i", column)]


def pieces(offsets: bytes, values: bytes, count: int) -> list[bytes]:
    bounds = numbers(offsets)
    assert len(bounds) == count + 1
    assert bounds[0] == 0
    assert bounds[-1] == len(values)
    assert all(begin <= end for begin, end in pairwise(bounds))
    return [values[begin:end] for begin, end in pairwise(bounds)]


def judge(columns: message_pb2.Columns, size_bytes: int) -> None:
    """Raise AssertionError or UnicodeDecodeError unless each message can be decoded and is within the limits."""
    count = columns.count
    assert 1 <= count <= limits.MAX_MESSAGES_PER_BATCH
    assert size_bytes <= LIMITS.max_batch_bytes
    for payload in pieces(columns.payload_offsets, columns.payloads, count):
        assert len(payload) <= LIMITS.max_message_bytes
    if columns.key_offsets:
        for key in pieces(columns.key_offsets, columns.keys, count):
            assert len(key) <= column_checks.MAX_KEY_BYTES
        assert len(columns.key_validity) in {0, (count + 7) // 8}
    else:
        assert not columns.keys
        assert not columns.key_validity
    if columns.types:
        assert len(columns.types) == 4 * count
        assert columns.uniform_type == 0
    judge_properties(columns)
    if columns.event_times_ms:
        assert len(columns.event_times_ms) == 8 * count
        assert len(columns.event_time_validity) in {0, (count + 7) // 8}
        valid = client.bits(columns.event_time_validity) or [True] * count
        for (time_ms,), is_valid in zip(struct.iter_unpack("<q", columns.event_times_ms), valid, strict=False):
            assert not is_valid or MIN_EVENT_TIME_MS <= time_ms <= MAX_EVENT_TIME_MS
    else:
        assert not columns.event_time_validity


def judge_properties(columns: message_pb2.Columns) -> None:
    key_offsets, value_offsets = columns.property_key_offsets, columns.property_value_offsets
    if not columns.property_list_offsets:
        assert not key_offsets + columns.property_keys + value_offsets + columns.property_values
        return
    assert key_offsets
    total = len(key_offsets) // 4 - 1
    keys = pieces(key_offsets, columns.property_keys, total)
    values = pieces(value_offsets, columns.property_values, total)
    for key, value in zip(keys, values, strict=True):
        assert key.decode() != ""
        assert not key.startswith(b"_")
        value.decode()
    for message in pieces(columns.property_list_offsets, bytes(total), columns.count):
        assert len(message) <= column_checks.MAX_PROPERTIES_PER_MESSAGE
    for begin, end in pairwise(numbers(columns.property_list_offsets)):
        assert len(set(keys[begin:end])) == end - begin
        size = sum(map(len, keys[begin:end])) + sum(map(len, values[begin:end]))
        assert size <= column_checks.MAX_PROPERTY_BYTES_PER_MESSAGE


def is_good(columns: message_pb2.Columns) -> bool:
    try:
        judge(columns, columns.ByteSize())
    except (AssertionError, UnicodeDecodeError):
        return False
    return True


def is_taken(columns: message_pb2.Columns) -> bool:
    encoded = columns.SerializeToString()
    try:
        check(ColumnsView.parse(encoded), len(encoded), LIMITS)
    except REFUSALS:
        return False
    return True


def resealed(columns: message_pb2.Columns) -> message_pb2.Columns:
    return message_pb2.Columns.FromString(sealed(columns))


# -- Checking --------------------------------------------------------------------------------------------------

mutations = st.one_of(
    st.tuples(st.just("offset"), st.sampled_from(OFFSETS), st.integers(0, 9), st.integers(-(1 << 31), (1 << 31) - 1)),
    st.tuples(st.just("nudge"), st.sampled_from(OFFSETS), st.integers(0, 9), st.integers(-2, 2)),
    st.tuples(st.just("cut"), st.sampled_from(sorted(COLUMN_NAMES.values())), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("grow"), st.sampled_from(sorted(COLUMN_NAMES.values())), st.integers(0, 255), st.integers(1, 70)),
    st.tuples(st.just("byte"), st.sampled_from(sorted(COLUMN_NAMES.values())), st.integers(0, 99), st.integers(0, 255)),
    st.tuples(st.just("clear"), st.sampled_from(sorted(COLUMN_NAMES.values())), st.just(0), st.just(0)),
    st.tuples(st.just("count"), st.just(""), st.integers(0, (1 << 32) - 1), st.just(0)),
    st.tuples(st.just("count"), st.just(""), st.integers(0, 10), st.just(0)),
    st.tuples(st.just("type"), st.just(""), st.integers(0, (1 << 32) - 1), st.just(0)),
)


def mutate(columns: message_pb2.Columns, mutation: tuple[str, str, int, int]) -> None:
    kind, name, place, value = mutation
    if kind == "count":
        columns.count = place
        return
    if kind == "type":
        columns.uniform_type = place
        return
    column: bytes = getattr(columns, name)
    if kind == "cut":
        column = column[: len(column) - place] if place < len(column) else b""
    elif kind == "grow":
        column += bytes([place]) * value
    elif kind == "clear":
        column = b""
    elif kind == "byte" and column:
        place %= len(column)
        column = column[:place] + bytes([value]) + column[place + 1 :]
    elif len(column) >= 4 and kind in {"offset", "nudge"}:
        place = 4 * (place % (len(column) // 4))
        old = struct.unpack_from("<i", column, place)[0]
        new = value if kind == "offset" else max(-(1 << 31), min((1 << 31) - 1, old + value))
        column = column[:place] + struct.pack("<i", new) + column[place + 4 :]
    setattr(columns, name, column)


@given(batches_of_messages)
def test_what_the_client_encodes_is_taken(messages: list[Message]) -> None:
    columns = a_columns(messages)
    assert is_good(columns)
    assert is_taken(columns)


@settings(max_examples=400)
@given(batches_of_messages, st.lists(mutations, min_size=1, max_size=3))
def test_a_mutated_batch_is_taken_exactly_if_every_message_can_be_taken_out(
    messages: list[Message], changes: list[tuple[str, str, int, int]]
) -> None:
    columns = a_columns(messages)
    for change in changes:
        mutate(columns, change)
    columns = resealed(columns)
    assert is_taken(columns) == is_good(columns)


@given(st.lists(st.lists(st.integers(-1, 4), max_size=4), min_size=5, max_size=5), st.binary(max_size=4), st.text())
def test_random_offsets_are_taken_exactly_if_every_message_can_be_taken_out(
    offsets: list[list[int]], raw: bytes, text: str
) -> None:
    columns = message_pb2.Columns(count=2, payloads=raw, property_keys=text.encode(), property_values=raw)
    for name, values in zip(OFFSETS, offsets, strict=True):
        setattr(columns, name, struct.pack(f"<{len(values)}i", *values))
    columns = resealed(columns)
    assert is_taken(columns) == is_good(columns)


@given(
    st.lists(st.integers(-1, 70), min_size=1, max_size=40).flatmap(
        lambda sizes: st.tuples(st.just(sizes), st.integers(-1, 1), st.integers(-1, 1))
    )
)
def test_payloads_of_small_batches_are_taken_exactly_if_numpy_would_take_them(case: tuple[list[int], int, int]) -> None:
    sizes, begin, surplus = case
    offsets = np.cumsum([begin, *sizes])
    view = ColumnsView(
        count=len(sizes),
        columns={
            "payload_offsets": memoryview(offsets.astype("<i4").tobytes()),
            "payloads": memoryview(bytes(max(0, int(offsets[-1]) + surplus))),
        },
    )
    is_small = len(sizes) <= column_checks._SMALL_BATCH
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_checks, "_has_small_payloads", lambda *_: False)
        try:
            check(view, 0, LIMITS, is_encoded_here=True)
        except REFUSALS:
            is_good_for_numpy = False
        else:
            is_good_for_numpy = True
    assert column_checks._has_small_payloads(view, LIMITS.max_message_bytes) == (is_small and is_good_for_numpy)


property_keys = st.sampled_from(
    [b"a", b"b", b"ab", b"a\0", b"ba", *[b"k" * 20 + middle + b"k" * 20 for middle in (b"", b"a", b"b")]]
)


@given(st.lists(st.lists(property_keys, max_size=4), min_size=1, max_size=9))
@example([[b"a", b"ba"], [b"ab", b"a"]])
@example([[b"a", b"b"], [], [b"b", b"b"], [b"ab"]])
def test_property_keys_are_taken_exactly_if_no_message_has_one_twice(keys_of_messages: list[list[bytes]]) -> None:
    columns = with_keys(*keys_of_messages)
    for hashed_messages in (1, 3, 1_000):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(column_checks, "_HASHED_MESSAGES", hashed_messages)
            assert is_taken(columns) == is_good(columns)


def test_property_keys_that_look_the_same_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_checks, "_WEIGHTS", np.zeros_like(column_checks._WEIGHTS))

    assert is_taken(with_keys([b"a", b"b"], [b"c", b"d"]))
    assert not is_taken(with_keys([b"a", b"b"], [b"c", b"c"]))


def test_event_times_of_messages_without_one_may_be_anything() -> None:
    ends = [MIN_EVENT_TIME_MS, MAX_EVENT_TIME_MS]

    assert is_taken(with_times(ends))
    assert is_taken(with_times([*ends, 1 << 62, -(1 << 63)], b"\3"))
    assert not is_taken(with_times([*ends, 1 << 62, -(1 << 63)], b"\7"))


@given(batches_of_messages, st.data())
def test_a_flipped_bit_anywhere_is_refused(messages: list[Message], data: st.DataObject) -> None:
    columns = a_columns(messages)
    name = data.draw(st.sampled_from([field.name for field, _ in columns.ListFields()]))
    value = getattr(columns, name)
    if isinstance(value, bytes):
        at = data.draw(st.integers(0, len(value) - 1))
        setattr(columns, name, value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :])
    else:
        setattr(columns, name, value ^ 1)
    assert not is_taken(columns)


@given(batches_of_messages, st.data())
def test_a_batch_cut_short_is_refused(messages: list[Message], data: st.DataObject) -> None:
    encoded = a_columns(messages).SerializeToString()
    # The CRC is the last field, so any truncation removes it.
    rest = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    with pytest.raises((*REFUSALS, WireFormatError)):
        check(ColumnsView.parse(rest), len(rest), LIMITS)


@given(batches_of_messages)
def test_the_crc_is_the_one_that_the_client_computes(messages: list[Message]) -> None:
    columns = a_columns(messages)
    encoded = columns.SerializeToString()
    assert ColumnsView.parse(encoded).compute_crc32c() == columns.crc32c
    assert client.checksum(columns_from_wire(encoded)) == columns.crc32c


def test_the_crc_covers_counts_lengths_and_columns_as_the_protocol_says() -> None:
    from crc32c import crc32c

    columns = a_columns([Message(b"ab", key=b"k", type=7)])
    parts = [getattr(columns, name) for _, name in sorted(COLUMN_NAMES.items())]
    head = struct.pack("<15I", 1, 7, *map(len, parts))
    assert columns.crc32c == crc32c(head + b"".join(parts))


def one_property(key: bytes, value: bytes = b"") -> message_pb2.Columns:
    columns = a_columns([b"x"])
    columns.property_list_offsets = struct.pack("<2i", 0, 1)
    columns.property_key_offsets = struct.pack("<2i", 0, len(key))
    columns.property_keys = key
    columns.property_value_offsets = struct.pack("<2i", 0, len(value))
    columns.property_values = value
    return columns


def with_fields(**fields: object) -> message_pb2.Columns:
    columns = a_columns([b"ab", b"c"])
    for name, value in fields.items():
        setattr(columns, name, value)
    return columns


def with_keys(*keys_of_messages: Sequence[bytes]) -> message_pb2.Columns:
    """Return messages with these property keys, which may contain duplicates."""
    keys = [key for keys in keys_of_messages for key in keys]
    columns = a_columns([b""] * len(keys_of_messages))
    columns.property_list_offsets = offsets_of(map(len, keys_of_messages))
    columns.property_key_offsets = offsets_of(map(len, keys))
    columns.property_keys = b"".join(keys)
    columns.property_value_offsets = bytes(4 * (len(keys) + 1))
    return resealed(columns)


def offsets_of(sizes: Iterable[int]) -> bytes:
    return np.cumsum([0, *sizes]).astype("<i4").tobytes()


def with_times(times_ms: Sequence[int], validity: bytes = b"") -> message_pb2.Columns:
    columns = a_columns([b""] * len(times_ms))
    columns.event_times_ms, columns.event_time_validity = struct.pack(f"<{len(times_ms)}q", *times_ms), validity
    return resealed(columns)


def two_texts(offset: int) -> message_pb2.Columns:
    columns = one_property("éb".encode())
    columns.property_list_offsets = struct.pack("<2i", 0, 2)
    columns.property_key_offsets = struct.pack("<3i", 0, offset, 3)
    columns.property_value_offsets = struct.pack("<3i", 0, 0, 0)
    return columns


BROKEN: list[tuple[str, Callable[[], message_pb2.Columns], type[Exception], str]] = [
    ("no messages", lambda: with_fields(count=0), errors.EmptyBatchError, "append at least one"),
    ("huge count", lambda: with_fields(count=(1 << 32) - 1), errors.BatchTooLargeError, "at most 10000 are allowed"),
    ("offsets that fall", lambda: with_fields(payload_offsets=struct.pack("<3i", 0, 4, 3)),
     errors.MalformedColumnsError, "decreases from 4 to 3 at item 1"),
    ("first offset", lambda: with_fields(payload_offsets=struct.pack("<3i", 1, 2, 3)),
     errors.MalformedColumnsError, "begins at 1, expected 0"),
    ("last offset", lambda: with_fields(payload_offsets=struct.pack("<3i", 0, 1, 2)),
     errors.MalformedColumnsError, "ends at 2, but payloads has 3"),
    ("difference beyond int32", lambda: with_fields(payload_offsets=struct.pack("<3i", 0, -(1 << 31), (1 << 31) - 1)),
     errors.MalformedColumnsError, "decreases"),
    ("too few offsets", lambda: with_fields(payload_offsets=bytes(8)), errors.MalformedColumnsError, "has 8 bytes"),
    ("odd offsets", lambda: with_fields(payload_offsets=bytes(13)), errors.MalformedColumnsError, "has 13 bytes"),
    ("large message", lambda: a_columns([b"", bytes(65), bytes(70)]), errors.MessageTooLargeError,
     "message 1 has 65 bytes, at most 64"),
    ("large key", lambda: a_columns([Message(b"", key=bytes(1_025))]), errors.MessageTooLargeError, "the key of"),
    ("keys without offsets", lambda: with_fields(keys=b"k"), errors.MalformedColumnsError, "without key_offsets"),
    ("validity without keys", lambda: with_fields(key_validity=b"\1"), errors.MalformedColumnsError, "key_validity"),
    ("two kinds of types", lambda: with_fields(types=bytes(8), uniform_type=3),
     errors.MalformedColumnsError, "must be 0 when"),
    ("too few types", lambda: with_fields(types=bytes(4)), errors.MalformedColumnsError, "has 4 bytes, expected 8"),
    ("reserved key", lambda: one_property(b"_txn"), errors.ReservedPropertyError, "'_txn' is reserved"),
    ("empty key", lambda: one_property(b""), errors.MalformedColumnsError, "has an empty key"),
    ("key that is no text", lambda: one_property(b"a\xff"), errors.MalformedColumnsError, "not UTF-8 at byte 1"),
    ("value that is no text", lambda: one_property(b"a", b"\xc3"), errors.MalformedColumnsError, "not UTF-8"),
    ("offset in a character", lambda: two_texts(1), errors.MalformedColumnsError, "within a UTF-8 character"),
    ("large properties", lambda: one_property(b"a", b"v" * 8_192), errors.MessageTooLargeError, "the properties of"),
    ("too many properties", lambda: a_columns([Message(b"", properties={f"k{i}": "" for i in range(17)})]),
     errors.MalformedColumnsError, "17 properties to a message, at most 16"),
    ("lists without keys", lambda: with_fields(property_list_offsets=bytes(12)),
     errors.MalformedColumnsError, "property_key_offsets"),
    ("keys without lists", lambda: with_fields(property_keys=b"k"), errors.MalformedColumnsError, "property_keys"),
    ("too few times", lambda: with_fields(event_times_ms=bytes(8)), errors.MalformedColumnsError, "expected 16"),
    ("time before the year 1", lambda: with_times([0, MIN_EVENT_TIME_MS - 1]), errors.MalformedColumnsError,
     "is -62135596800001 at message 1, expected .* -62135596800000 to 253402300799999"),
    ("time after the year 9999", lambda: with_times([MAX_EVENT_TIME_MS + 1, 1 << 62], b"\1"),
     errors.MalformedColumnsError, "is 253402300800000 at message 0"),
    ("key twice", lambda: with_keys([b"a"], [b"b", "é".encode(), b"b"]), errors.MalformedColumnsError,
     "the key 'b' twice in message 1"),
    ("key twice in all", lambda: with_keys(*[[b"ab", b"a", b"ab"]] * 3), errors.MalformedColumnsError,
     "the key 'ab' twice in message 0"),
    ("times' validity alone", lambda: with_fields(event_time_validity=b"\3"), errors.MalformedColumnsError, "without"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "kind", "text"), [pytest.param(*case[1:], id=case[0]) for case in BROKEN])
def test_a_broken_batch_is_refused_with_what_is_wrong(
    build: Callable[[], message_pb2.Columns], kind: type[Exception], text: str
) -> None:
    encoded = sealed(build())
    with pytest.raises(kind, match=text):
        check(ColumnsView.parse(encoded), len(encoded), Limits(max_message_bytes=64))


def test_a_batch_with_another_crc_is_refused_and_told_both() -> None:
    columns = a_columns([b"x"])
    columns.crc32c ^= 1
    encoded = columns.SerializeToString()
    with pytest.raises(errors.ChecksumMismatchError, match=f"{columns.crc32c:#010x}.*{columns.crc32c ^ 1:#010x}"):
        check(ColumnsView.parse(encoded), len(encoded), LIMITS)


def test_the_limits_are_inclusive() -> None:
    columns = a_columns([Message(bytes(64), key=bytes(1_024), properties={"k": "v" * 8_191})])
    encoded = columns.SerializeToString()
    exact = Limits(max_message_bytes=64, max_batch_bytes=len(encoded))
    check(ColumnsView.parse(encoded), len(encoded), exact)
    with pytest.raises(errors.BatchTooLargeError, match=f"{len(encoded)} bytes, at most {len(encoded) - 1}"):
        check(ColumnsView.parse(encoded), len(encoded), Limits(64, len(encoded) - 1))


# -- Cutting, and rows -----------------------------------------------------------------------------------------


def rows_of(view: ColumnsView, indices: Sequence[int] | None = None) -> list[message_pb2.Message]:
    wanted = np.array(range(view.count) if indices is None else indices, np.int64)
    return [row.message for row in decode_rows(view, wanted, 0, "c/0")]


def as_row(message: Message) -> message_pb2.Message:
    return message_pb2.Message(
        payload=message.payload, key=message.key, type=message.type, properties=message.properties,
        event_time_ms=message.event_time_ms,
    )  # fmt: skip


@given(batches_of_messages)
def test_columns_come_back_as_rows(messages: list[Message]) -> None:
    view = ColumnsView.parse(a_columns(messages).SerializeToString())
    assert rows_of(view) == [as_row(message) for message in messages]


@given(batches_of_messages)
def test_rows_become_columns_that_are_taken_and_come_back(messages: list[Message]) -> None:
    rows = [as_row(message) for message in messages]
    encoded = encode_rows(rows)
    view = ColumnsView.parse(encoded)
    check(view, len(encoded), LIMITS)
    assert rows_of(view) == rows


@given(batches_of_messages, st.data())
@example([Message(b"a", properties={"k": "v"}), Message(b"b")], None)
def test_a_cut_batch_has_exactly_the_chosen_messages(messages: list[Message], data: st.DataObject | None) -> None:
    view = ColumnsView.parse(a_columns(messages).SerializeToString())
    chosen = [len(messages) - 1]
    if data is not None:
        chosen = sorted(data.draw(st.sets(st.integers(0, len(messages) - 1), min_size=1)))
    encoded = select(view, np.array(chosen, np.int64))
    cut = ColumnsView.parse(encoded)
    check(cut, len(encoded), LIMITS)
    assert rows_of(cut) == [as_row(messages[index]) for index in chosen]


def test_rows_carry_their_ticks() -> None:
    view = ColumnsView.parse(a_columns([b"a", b"b", b"c"]).SerializeToString())
    rows = list(decode_rows(view, np.array([0, 2], np.int64), 1_000, "orders/3"))
    assert [(row.vchannel, row.tick, row.message_id) for row in rows] == [
        ("orders/3", 1_000, (1_000).to_bytes(8, "big")),
        ("orders/3", 1_002, (1_002).to_bytes(8, "big")),
    ]


@given(batches_of_messages, st.data())
def test_a_cut_batch_keeps_each_message_in_its_transaction(messages: list[Message], data: st.DataObject) -> None:
    count = len(messages)
    ends = [*sorted(data.draw(st.lists(st.integers(0, count), max_size=5))), count]
    view = ColumnsView.parse(sealed(_with_ends(messages, ends)))
    check(view, 0, LIMITS)
    assert view.txns == len(ends)
    chosen = np.array(sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1))), np.int64)
    cut = ColumnsView.parse(select(view, chosen))
    check(cut, 0, LIMITS)
    expected = [sum(end <= index for end in ends) for index in chosen.tolist()]
    assert cut.txn_offsets(np.arange(len(chosen))).tolist() == expected
    rows = decode_rows(cut, np.arange(len(chosen)), 1_000, "orders/3", 70)
    assert [row.txn_id for row in rows] == [70 + number for number in expected]


@pytest.mark.parametrize(
    ("txn_ends", "text"),
    [(b"\1\0\0", "3 bytes, expected 4 per"), ([2, 1, 3], "decreases"), ([2], "ends at 2, but the batch has 3")],
)
def test_txn_ends_that_do_not_divide_the_batch_are_refused(txn_ends: bytes | list[int], text: str) -> None:
    columns = a_columns([b"a", b"b", b"c"])
    columns.txn_ends = txn_ends if isinstance(txn_ends, bytes) else np.array(txn_ends, "<u4").tobytes()
    with pytest.raises(MalformedColumnsError, match=text):
        check(ColumnsView.parse(sealed(columns)), 0, LIMITS)


def test_the_crc_covers_txn_ends() -> None:
    columns = message_pb2.Columns.FromString(sealed(_with_ends([Message(b"a"), Message(b"b")], [1, 2])))
    columns.txn_ends = np.array([0, 2], "<u4").tobytes()
    with pytest.raises(ChecksumMismatchError):
        check(ColumnsView.parse(columns.SerializeToString()), 0, LIMITS)


def _with_ends(messages: list[Message], ends: list[int]) -> message_pb2.Columns:
    columns = a_columns(messages)
    columns.txn_ends = np.array(ends, "<u4").tobytes()
    return columns
