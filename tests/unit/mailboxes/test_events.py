"""Events of mailboxes: their bytes, which never change, and what is refused.

Method: the examples of docs/reference/format.md, generated messages, and every way to cut or lengthen an event.
"""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.core.errors import DataLossError
from tidelog_server.core.limits import LOCK_BYTES
from tidelog_server.core.mailboxes import MessageState
from tidelog_server.mailboxes.events import (
    EventType,
    Leased,
    MessageIds,
    Origin,
    Sent,
    decode_ids,
    decode_leased,
    decode_sent,
    encode_ids,
    encode_leased,
    encode_relocated,
    encode_sent,
    relocated_id,
    replay,
    replay_all,
    stored_message,
)
from tidelog_server.mailboxes.state import MailboxState

FORMAT_PAGE = Path(__file__).parents[3] / "docs/reference/format.md"
A, B, C = 0x0102030405060708, 0x1112131415161718, 0x2122232425262728
LOCK = b"L" * LOCK_BYTES

GOLDEN: dict[str, tuple[bytes, str]] = {
    "plain": (encode_sent(Sent(b"hello")), "00 00 0000 0000 00000000 68656c6c6f"),
    "options": (
        encode_sent(Sent(b"hi", {"a": "b"}, A, B, 9, "g1", "k1", C)),
        "01 09 0200 0200 06000000 0807060504030201 1817161514131211 2827262524232221 6731 6b31 0100 61 0100 62 6869",
    ),
    "origin": (
        encode_sent(Sent(b"hi", origin=Origin(7, A, 3))),
        "02 00 0000 0000 00000000 0700000000000000 0807060504030201 03000000 6869",
    ),
    "blob": (
        encode_sent(Sent(b"", blob_key=b"K" * 20, blob_bytes=100_000)),
        "04 00 0000 0000 00000000 14 a086010000000000 4b4b4b4b4b4b4b4b4b4b4b4b4b4b4b4b4b4b4b4b",
    ),
    "ids": (encode_ids(MessageIds(C, (A, B))), "2827262524232221 02000000 0807060504030201 1817161514131211"),
    "leased": (
        encode_leased(Leased(C, (A,), (LOCK,))),
        "2827262524232221 01000000 0807060504030201 4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c",
    ),
    "relocated": (
        encode_relocated(A, encode_sent(Sent(b"hello"))),
        "0807060504030201 00 00 0000 0000 00000000 68656c6c6f",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_an_event_has_the_bytes_on_the_page(name: str) -> None:
    encoded, golden = GOLDEN[name]
    assert encoded == bytes.fromhex(golden)
    assert golden in FORMAT_PAGE.read_text()


def test_the_page_has_the_number_of_every_event() -> None:
    section = FORMAT_PAGE.read_text().split("## The log of a mailbox")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", section, re.MULTILINE)
    assert {(int(number), name) for number, name in rows} == {(each.value, each.name) for each in EventType}


ticks = st.integers(0, (1 << 63) - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
messages = st.builds(
    Sent,
    body=st.binary(max_size=50),
    headers=st.dictionaries(texts, texts, max_size=4),
    due_tick=ticks,
    expires_tick=ticks,
    priority=st.integers(0, 255),
    group=texts,
    key=texts,
    key_until=ticks,
    origin=st.none() | st.builds(Origin, ticks, ticks, st.integers(0, 1 << 31)),
    blob_bytes=st.just(0),
) | st.builds(Sent, body=st.just(b""), blob_key=st.binary(min_size=1, max_size=64), blob_bytes=ticks)


@given(messages)
def test_a_message_comes_back_as_it_was_sent(message: Sent) -> None:
    assert decode_sent(encode_sent(message)) == message


@given(messages, ticks)
def test_a_copied_message_comes_back_with_its_id(message: Sent, message_id: int) -> None:
    encoded = encode_sent(message)
    copied = encode_relocated(message_id, encoded)
    assert relocated_id(copied) == message_id
    place = message_id + 1
    assert stored_message(message_id, place, copied) == stored_message(message_id, message_id, encoded) == encoded
    with pytest.raises(DataLossError, match="is not the copy of message"):
        stored_message(place, place + 1, copied)


@given(ticks, st.lists(ticks, max_size=20))
def test_ids_come_back_as_they_were(tick: int, ids: list[int]) -> None:
    assert decode_ids(encode_ids(MessageIds(tick, ids))) == (tick, tuple(ids))


@given(ticks, st.dictionaries(ticks, st.binary(min_size=LOCK_BYTES, max_size=LOCK_BYTES), max_size=20))
def test_leases_come_back_as_they_were(until: int, locks: dict[int, bytes]) -> None:
    leased = Leased(until, tuple(locks), list(locks.values()))
    assert decode_leased(encode_leased(leased)) == leased


def test_headers_have_one_encoding() -> None:
    assert encode_sent(Sent(b"", {"a": "1", "b": "2"})) == encode_sent(Sent(b"", {"b": "2", "a": "1"}))


def with_messages() -> MailboxState:
    """Return a state with message 10 available, 11 leased, 12 exhausted and 13 dead."""
    state = MailboxState()
    state.sent_plain(10, [1, 1, 1, 1])
    state.leased(1_000, (11, 12, 13), [bytes([each]) * LOCK_BYTES for each in (11, 12, 13)])
    for message_id in (12, 13):
        replay(state, 20, EventType.EXHAUSTED_BY_TIMEOUT, encode_ids(MessageIds(0, (message_id,))))
    replay(state, 21, EventType.BURIED, encode_ids(MessageIds(0, (13,))))
    return state


def test_the_state_for_wrong_events_is_as_described() -> None:
    state = with_messages()
    assert list(state.rows.states) == [
        MessageState.AVAILABLE, MessageState.LEASED, MessageState.EXHAUSTED, MessageState.DEAD,
    ]  # fmt: skip


SENT_WRONG = [
    b"", b"\0" * 9, b"\x08" + b"\0" * 9, b"\x01" + b"\0" * 9, b"\x02" + b"\0" * 9, b"\x04" + b"\0" * 9,
    # A group, a key and headers that are longer than the event.
    *(encode_sent(sent)[:-1] for sent in (Sent(b"", group="g"), Sent(b"", key="k"), Sent(b"", {"a": "b"}))),
    encode_sent(Sent(b"", blob_key=b"K"))[:-1],
    # A group that is no UTF-8, and half a pair of headers.
    encode_sent(Sent(b"", group="g"))[:-1] + b"\xff",
    encode_sent(Sent(b"", {"a": ""}))[:6] + b"\x03\0\0\0" + b"\x01\0a",
    # A header that is longer than all headers, with a body after it.
    encode_sent(Sent(b"", {"a": ""}))[:10] + b"\x01\0a\x05\0" + b"body!",
    # A size that no row has.
    encode_sent(Sent(b"", blob_key=b"K", blob_bytes=1 << 40)),
]  # fmt: skip
OF_IDS = [
    EventType.EXTENDED, EventType.CONFIRMED, EventType.REJECTED, EventType.LEASE_EXPIRED, EventType.MESSAGE_EXPIRED,
    EventType.EXHAUSTED_BY_REJECTION, EventType.EXHAUSTED_BY_TIMEOUT, EventType.BURIED, EventType.DEAD_LETTERED,
    EventType.REDRIVEN, EventType.MOVED,
]  # fmt: skip
# A message in a state in which the event cannot happen.
CONTRADICTED = {
    EventType.EXTENDED: 10, EventType.CONFIRMED: 10, EventType.REJECTED: 10, EventType.LEASE_EXPIRED: 10,
    EventType.MESSAGE_EXPIRED: 11, EventType.EXHAUSTED_BY_REJECTION: 13, EventType.EXHAUSTED_BY_TIMEOUT: 10,
    EventType.BURIED: 10, EventType.DEAD_LETTERED: 11, EventType.REDRIVEN: 11, EventType.MOVED: 11,
}  # fmt: skip


def is_data_loss(kind: int, payload: bytes) -> None:
    with pytest.raises(DataLossError, match=f"at tick 30, of kind {int(kind)}, cannot be replayed"):
        replay(with_messages(), 30, kind, payload)


@pytest.mark.parametrize("payload", SENT_WRONG)
def test_a_damaged_message_is_data_loss(payload: bytes) -> None:
    is_data_loss(EventType.SENT, payload)


@pytest.mark.parametrize("kind", OF_IDS)
def test_a_damaged_event_of_messages_is_data_loss(kind: EventType) -> None:
    encoded = encode_ids(MessageIds(0, (11,)))
    for payload in (b"", encoded[:11], encoded[:-1], encoded + b"\0", encode_ids(MessageIds(0, (99,)))):
        is_data_loss(kind, payload)


@pytest.mark.parametrize("kind", OF_IDS)
def test_an_event_that_contradicts_those_before_it_is_data_loss(kind: EventType) -> None:
    is_data_loss(kind, encode_ids(MessageIds(0, (CONTRADICTED[kind],))))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        encode_leased(Leased(50, (10,), (LOCK,)))[:-1],
        encode_leased(Leased(50, (10,), (LOCK,))) + b"\0",
        encode_ids(MessageIds(50, (10,))),
        encode_leased(Leased(50, (11,), (LOCK,))),
        encode_leased(Leased(50, (99,), (LOCK,))),
        encode_leased(Leased(50, (10, 10), (LOCK, b"M" * LOCK_BYTES))),
        encode_leased(Leased(50, (10,), (bytes([11]) * LOCK_BYTES,))),
    ],
)
def test_damaged_leases_are_data_loss(payload: bytes) -> None:
    is_data_loss(EventType.LEASED, payload)


def test_an_event_of_an_unknown_kind_is_data_loss() -> None:
    for kind in (0, max(EventType) + 1):
        is_data_loss(kind, b"")


def test_a_copy_without_an_id_is_data_loss() -> None:
    is_data_loss(EventType.RELOCATED, b"\0" * 7)


def test_a_message_at_an_earlier_tick_is_data_loss() -> None:
    with pytest.raises(DataLossError, match="at tick 13"):
        replay(with_messages(), 13, EventType.SENT, encode_sent(Sent(b"")))
    with pytest.raises(DataLossError, match="at tick 13"):
        replay(with_messages(), 13, EventType.SENT, encode_sent(Sent(b"", priority=1)))


def test_plain_messages_that_are_replayed_together_are_as_those_replayed_one_by_one() -> None:
    plain, grouped = encode_sent(Sent(b"plain")), encode_sent(Sent(b"x", group="g"))
    delayed = encode_sent(Sent(b"late", due_tick=33))
    events = [
        (30, EventType.SENT, delayed), (31, EventType.SENT, plain), (32, EventType.SENT, encode_sent(Sent(b""))),
        (34, EventType.SENT, plain), (35, EventType.SENT, grouped), (36, EventType.SENT, plain),
        (37, EventType.CONFIGURED, plain), (38, EventType.SENT, plain),
    ]  # fmt: skip
    together, one_by_one = MailboxState(), MailboxState()
    replay_all(together, events)
    for tick, kind, payload in events:
        replay(one_by_one, tick, kind, payload)

    assert together.counts() == one_by_one.counts()
    assert together.now == one_by_one.now == 38
    for state in (together, one_by_one):
        assert state.rows.ids.tolist() == [30, 31, 32, 34, 35, 36, 38]
        assert state.rows.sizes.tolist() == [4, 5, 0, 5, 1, 5, 5]
        assert [state.rows.ids[row] for row in state.order.take(9, 1 << 20, state.now)] == [31, 32, 30, 34, 35, 36, 38]


def test_plain_messages_at_earlier_ticks_are_data_loss() -> None:
    plain = encode_sent(Sent(b""))
    with pytest.raises(DataLossError, match="at tick 13"):
        replay_all(with_messages(), [(13, EventType.SENT, plain), (14, EventType.SENT, plain)])


def test_events_without_messages_are_replayed() -> None:
    state, is_paused = with_messages(), list[bool]()
    for tick, kind in ((30, EventType.PAUSED), (31, EventType.RESUMED)):
        replay(state, tick, kind, b"")
        is_paused.append(state.is_paused)
    assert is_paused == [True, False]
    replay(state, 32, EventType.CONFIGURED, b"anything")
    replay(state, 33, EventType.SNAPSHOT, b"anything")
    assert state.rows.live == 4
    replay(state, 34, EventType.PURGED, b"")
    assert (state.rows.live, state.now) == (0, 34)
