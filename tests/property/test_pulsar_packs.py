"""Packs as messages of Pulsar, and ids. Method: any messages, divided and read again; any keys."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from tidelog import Message
from tidelog.msgstream._backends.pulsar.ids import EARLIEST, MessageKey, ids_of_pack, key_of_bytes
from tidelog.msgstream._backends.pulsar.packs import Sendable, contents_of, sendables
from tidelog.tick import LOGICAL_BITS

SENT_MS = 5
HEADER_BYTES = 32
NUMBERS = st.integers(0, (1 << 62) - 1)
MESSAGES = st.lists(
    st.tuples(st.builds(Message, st.binary(max_size=12), type=st.integers(0, (1 << 32) - 1)), st.integers(0, 1 << 62)),
    max_size=12,
)
KEYS = st.builds(MessageKey, NUMBERS, NUMBERS, st.integers(-1, 10_000), st.integers(-1, 10_000))


class Received:
    """What the library would return for a message that was sent at SENT_MS."""

    def __init__(self, sent: Sendable) -> None:
        self._sent = sent

    def data(self) -> bytes:
        return self._sent.content

    def properties(self) -> Mapping[str, str]:
        return self._sent.properties

    def publish_timestamp(self) -> int:
        return SENT_MS


@given(MESSAGES, st.integers(0, 200))
def test_messages_are_read_as_they_were_sent(several: list[tuple[Message, int]], max_bytes: int) -> None:
    messages, times = [each for each, _ in several], [time for _, time in several]

    packs = list(sendables(messages, times, max_bytes))
    found = [contents_of(Received(each)) for each in packs]

    assert [body for each in found for body in each.bodies] == [each.payload for each in messages]
    assert [number for each in found for number in each.types] == [each.type for each in messages]
    assert [time for each in found for time in each.times] == [time or SENT_MS << LOGICAL_BITS for time in times]
    for each, sent in zip(found, packs, strict=True):
        assert (len(each.bodies) if each.is_pack else 0) == sent.number
        assert len(each.bodies) == 1 or len(sent.content) <= max_bytes + HEADER_BYTES


@given(st.sampled_from([b"\xff", b"", b"\x08\x01", b"\x1a\x00"]))
def test_what_is_not_a_pack_is_a_message_of_another_program(content: bytes) -> None:
    found = contents_of(Received(Sendable(content, {"pack": "2"}, 2)))

    assert (found.types, found.bodies, found.is_pack) == ((0,), (content,), False)


@given(KEYS)
def test_a_serialized_id_is_the_key(key: MessageKey) -> None:
    assert key_of_bytes(key.to_bytes()) == key
    assert key_of_bytes(EARLIEST.to_bytes()) == EARLIEST < key


@given(KEYS, st.integers(1, 300))
def test_the_ids_of_a_pack_are_in_its_order(key: MessageKey, number: int) -> None:
    keys = [key_of_bytes(each) for each in ids_of_pack(key, number)]

    assert keys == sorted(keys) == [key.whole._replace(number=each) for each in range(number)]
    assert key.whole < keys[0]
