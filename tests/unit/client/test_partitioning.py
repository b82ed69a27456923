"""The vchannel of a key: known values of Kafka, and that all forms of the rule agree.

Source: ``UtilsTest.testMurmur2`` of Kafka's clients.
"""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tidelog import InvalidRequestError, Message, partition_keys
from tidelog.append.dividing import CHANNELS_KEPT, KnownChannels, VchannelTurns, divide
from tidelog.wire.partitioning import NO_KEY, Partitioner, murmur2

KAFKA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
keys = st.lists(st.none() | st.binary(max_size=20), min_size=1, max_size=50)
partitioners = st.sampled_from(["crc32c", "murmur2", None, lambda key, vchannels: len(key) % vchannels])


@pytest.mark.parametrize("key", KAFKA)
def test_murmur2_is_that_of_kafka(key: bytes) -> None:
    (signed,) = struct.unpack("<i", struct.pack("<I", murmur2(key)))

    assert signed == KAFKA[key]


@pytest.mark.parametrize("key", KAFKA)
def test_a_key_of_kafka_has_the_partition_that_kafka_gives_it(key: bytes) -> None:
    assert list(partition_keys([key], 7, "murmur2")) == [(KAFKA[key] & 0x7FFFFFFF) % 7]


def test_the_rule_is_crc32c_modulo_the_number() -> None:
    assert list(partition_keys([b"a", None, b"b", b""], 5)) == [crc32c(b"a") % 5, NO_KEY, crc32c(b"b") % 5, 0]


@given(keys, st.integers(1, 1_024), partitioners)
def test_each_key_has_one_vchannel_and_no_key_has_none(
    several: list[bytes | None], vchannels: int, partitioner: Partitioner | None
) -> None:
    found = partition_keys(several, vchannels, partitioner)

    assert all(
        index == NO_KEY if key is None else 0 <= index < vchannels and found.count(index) >= several.count(key)
        for key, index in zip(several, found, strict=True)
    )


@given(keys, st.integers(1, 8), partitioners)
def test_a_division_has_each_message_once_in_order_and_on_the_vchannel_of_its_key(
    several: list[bytes | None], vchannels: int, partitioner: Partitioner | None
) -> None:
    messages = [Message(b"%d" % place, key=key) for place, key in enumerate(several)]

    shares = divide(messages, vchannels, partitioner, VchannelTurns())

    assert sorted(place for share in shares for place in share.places) == list(range(len(messages)))
    assert [share.index for share in shares] == sorted({share.index for share in shares})
    for share in shares:
        assert list(share.messages) == [messages[place] for place in share.places]
        assert list(share.places) == sorted(share.places)
    index_of = {place: share.index for share in shares for place in share.places}
    expected = partition_keys(several, vchannels, partitioner)
    unkeyed = {index_of[place] for place, key in enumerate(several) if key is None}
    assert len(unkeyed) <= 1
    assert all(index_of[place] == expected[place] for place, key in enumerate(several) if key is not None)


@given(st.lists(st.integers(1, 10_000), min_size=40, max_size=200), st.integers(1, 8))
def test_turns_differ_by_one_batch_at_most(batches: list[int], vchannels: int) -> None:
    turns, given = VchannelTurns(), [0] * vchannels

    for messages in batches:
        given[turns.next(vchannels, messages)] += messages

    assert max(given) - min(given) <= max(batches)


def test_payloads_go_together_and_are_not_copied() -> None:
    payloads: list[bytes | Message] = [b"a", b"b"]

    [share] = divide(payloads, 4, None, VchannelTurns(), is_plain=True)

    assert share.messages is payloads


def test_a_message_without_key_is_refused_where_it_could_move() -> None:
    with pytest.raises(InvalidRequestError, match=r"messages\[1\] has no key"):
        divide([Message(b"a", key=b"k"), Message(b"b")], 4, None, None)
    with pytest.raises(InvalidRequestError, match=r"messages\[0\] has no key"):
        divide([b"a"], 4, None, None, is_plain=True)


@pytest.mark.parametrize("returned", [-1, 4, "0", 1.0, None])
def test_a_function_must_return_an_index(returned: object) -> None:
    with pytest.raises(ValueError, match="0 to 3"):
        partition_keys([b"k"], 4, lambda _key, _vchannels: returned)  # type: ignore[arg-type]  # It is refused.


def test_what_a_function_raises_is_the_cause() -> None:
    def failing(key: bytes, vchannels: int) -> int:
        raise LookupError(f"{key!r} of {vchannels}")

    with pytest.raises(InvalidRequestError, match="the partitioner failed: LookupError: b'k' of 4") as caught:
        divide([Message(b"a", key=b"k")], 4, failing, VchannelTurns())
    assert isinstance(caught.value.__cause__, LookupError)


@pytest.mark.parametrize(("vchannels", "partitioner"), [(0, None), (-1, None), (4, "md5"), (4, 5)])
def test_an_unknown_rule_is_refused(vchannels: int, partitioner: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        partition_keys([b"k"], vchannels, partitioner)  # type: ignore[arg-type]  # It is refused.


def test_a_client_knows_a_bounded_number_of_channels() -> None:
    known = KnownChannels()

    for number in range(CHANNELS_KEPT + 10):
        known.note(f"c{number}/1", 3)
    known.note("one/0", 1)
    known.note("silent/0", 0)

    assert (known.get("c9"), known.get("c10"), known.get("one"), known.get("silent")) == (None, 3, None, None)
    known.forget("c10")
    assert known.get("c10") is None
