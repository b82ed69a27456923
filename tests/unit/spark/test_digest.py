"""Goal: all implementations of the digests follow their definition, and depend on nothing else.

Method: XXH64 is compared with its published values and a plain implementation; digests with the documented chain.
Hypothesis draws messages, their order, and their division into batches.
"""

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.pipelines.digest import MAX_HASHED_BYTES, Digest, digest_batch, digest_contents
from tidelog.spark.pipelines.tasks import arrow_schema
from tidelog.spark.pipelines.xxh64 import hash_bytes, hash_int32, hash_int64, hash_rows

MASK = (1 << 64) - 1
P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
)  # fmt: skip


def rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & MASK


def mixed(accumulated: int, word: int) -> int:
    return rotated((accumulated + word * P2) & MASK, 31) * P1 & MASK


def xxh64(data: bytes, seed: int) -> int:
    """The plain implementation, for one byte string."""
    words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data) - 7, 8)]
    striped = len(data) // 32 * 4
    if striped:
        lanes = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
        for place, word in enumerate(words[:striped]):
            lanes[place % 4] = mixed(lanes[place % 4], word)
        value = sum(map(rotated, lanes, (1, 7, 12, 18))) & MASK
        for lane in lanes:
            value = ((value ^ mixed(0, lane)) * P1 + P4) & MASK
    else:
        value = (seed + P5) & MASK
    value = (value + len(data)) & MASK
    for word in words[striped:]:
        value = (rotated(value ^ mixed(0, word), 27) * P1 + P4) & MASK
    rest = data[len(words) * 8 :]
    if len(rest) >= 4:
        value = (rotated(value ^ int.from_bytes(rest[:4], "little") * P1 & MASK, 23) * P2 + P3) & MASK
        rest = rest[4:]
    for byte in rest:
        value = rotated(value ^ byte * P5 & MASK, 11) * P1 & MASK
    value = (value ^ value >> 33) * P2 & MASK
    value = (value ^ value >> 29) * P3 & MASK
    return value ^ value >> 32


def content(channel: bytes, key: bytes | None, payload: bytes) -> tuple[int, int]:
    """The content digest of a message, as documented."""
    first, second = 42, xxh64((1).to_bytes(8, "little"), 42)
    for field in (channel, key, payload):
        if field is not None:
            shown = field if len(field) <= 1024 else hashlib.sha256(field).digest()
            first, second = xxh64(shown, first), xxh64(shown, second)
    return first, second


def a_batch(rows: list[dict[str, object]]) -> pa.RecordBatch:
    schema = arrow_schema("channel", "vchannel", "tick", "type", "key", "payload", "properties")
    return pa.RecordBatch.from_pylist(rows, schema)


def a_row(**changes: object) -> dict[str, object]:
    plain = {"channel": "a", "vchannel": 0, "tick": 1, "type": 0, "key": None, "payload": b"x", "properties": {}}
    row = {**plain, **changes}
    properties = row["properties"]
    assert isinstance(properties, dict)
    return {**row, "properties": list(properties.items())}


messages_of_any_kind = st.lists(
    st.tuples(st.none() | st.binary(max_size=12), st.binary(max_size=80) | st.binary(min_size=1020, max_size=1030)),
    max_size=12,
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B), (b"abc", 0x44BC2CF5AD770999)],
)
def test_xxh64_has_its_published_values(data: bytes, expected: int) -> None:
    assert hash_bytes(data, 0) == xxh64(data, 0) == expected


@given(st.lists(st.binary(max_size=120), min_size=1, max_size=20), st.integers(0, MASK))
def test_xxh64_of_many_is_that_of_each(values: list[bytes], seed: int) -> None:
    lengths = np.array([len(value) for value in values], np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    seeds = np.array([(seed + place) & MASK for place in range(len(values))], np.uint64)

    found = hash_rows(np.frombuffer(b"".join(values), np.uint8), starts, lengths, seeds)

    assert found.tolist() == [xxh64(value, (seed + place) & MASK) for place, value in enumerate(values)]


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, MASK))
def test_numbers_are_hashed_as_their_bytes(short: int, long: int, seed: int) -> None:
    seeds = np.array([seed], np.uint64)

    assert hash_int32(np.array([short], np.int32), seeds)[0] == xxh64(short.to_bytes(4, "little", signed=True), seed)
    assert hash_int64(np.array([long], np.int64), seeds)[0] == xxh64(long.to_bytes(8, "little", signed=True), seed)


@given(messages_of_any_kind, st.randoms())
def test_the_content_digest_is_its_definition_in_any_order(
    messages: list[tuple[bytes | None, bytes]], random: object
) -> None:
    keys, payloads = [key for key, _ in messages], [payload for _, payload in messages]
    expected = Digest.total(Digest(*content(b"orders", key, payload)) for key, payload in messages)
    rows = [a_row(channel="orders", tick=tick, key=key, payload=p) for tick, (key, p) in enumerate(messages, 1)]
    random.shuffle(rows)  # type: ignore[attr-defined]  # hypothesis gives a Random

    assert digest_contents("orders", payloads, keys) == expected
    assert digest_batch(a_batch(rows)).content == expected
    half = len(rows) // 2
    assert digest_batch(a_batch(rows[:half])).plus(digest_batch(a_batch(rows[half:]))) == digest_batch(a_batch(rows))


@given(st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=4), st.integers(1, MASK >> 1))
def test_the_full_digest_goes_on_with_numbers_and_properties_by_name(properties: dict[str, str], tick: int) -> None:
    chained = []
    for value in content(b"a", b"k", b"x"):
        for number, size in ((3, 4), (tick, 8), (-2, 4)):
            value = xxh64(number.to_bytes(size, "little", signed=True), value)  # noqa: PLW2901 - a chain
        for name, text in sorted(properties.items(), key=lambda pair: pair[0].encode()):
            value = xxh64(text.encode(), xxh64(name.encode(), value))  # noqa: PLW2901 - a chain
        chained.append(value)
    row = a_row(vchannel=3, tick=tick, type=-2, key=b"k", properties=properties)

    assert digest_batch(a_batch([row])).full == Digest(*chained)
    # Among rows without properties, and as a slice of a larger batch.
    among = a_batch([a_row(), row, a_row(properties={"z": "1"})])
    assert digest_batch(among.slice(1, 1)).full == Digest(*chained)


@pytest.mark.parametrize(
    "change",
    [
        {"channel": "b"}, {"vchannel": 1}, {"tick": 2}, {"type": 1}, {"key": b""}, {"payload": b"y"},
        {"properties": {"a": ""}}, {"payload": b"x" * (MAX_HASHED_BYTES + 1)},
    ],
)  # fmt: skip
def test_whatever_changes_changes_the_digest(change: dict[str, object]) -> None:
    assert digest_batch(a_batch([a_row(**change)])).full != digest_batch(a_batch([a_row()])).full


def test_a_message_that_is_there_twice_changes_the_digest() -> None:
    once = digest_contents("a", [b"x"])
    assert digest_contents("a", [b"x", b"x", b"x"]) not in (once, Digest())


def test_a_digest_is_written_and_read() -> None:
    digest = digest_contents("a", [b"x"])
    assert Digest.parse(str(digest)) == digest
    with pytest.raises(ValueError, match="the digest is '12', expected 32"):
        Digest.parse("12")


def test_keys_and_payloads_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="2 payloads and 1 keys"):
        digest_contents("a", [b"x", b"y"], [None])
