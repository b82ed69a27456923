"""Snapshots of mailboxes: what they keep, and damaged ones.

Method: the example of docs/reference/format.md; a state with messages in all states, its snapshot, and every cut and
many changes of its bytes. The comparison of a restored state with the original is in
`tests/property/test_mailbox_model.py`.
"""

from pathlib import Path
from random import Random

import pytest

from tidelog_server.core.errors import DataLossError
from tidelog_server.core.limits import LOCK_BYTES
from tidelog_server.core.mailboxes import MailboxSettings, MessageState
from tidelog_server.fold.pages import PAGE_BYTES, decode_page
from tidelog_server.mailboxes.events import (
    EventType,
    Leased,
    MessageIds,
    Sent,
    encode_ids,
    encode_leased,
    encode_sent,
    replay,
)
from tidelog_server.mailboxes.operations import Outgoing, Rejection, acknowledge, bury
from tidelog_server.mailboxes.snapshot import decode_snapshot
from tidelog_server.mailboxes.state import MailboxState
from tidelog_testing.parts.mailboxes import SmallMailbox, encode_snapshot, pages_of

FORMAT_PAGE = Path(__file__).parents[3] / "docs/reference/format.md"
GOLDEN = """
02 01 0c07060504030201 0100000000000000 01000000 01000000 01000000 01000000 00000000
   0807060504030201 0a07060504030201 1817161514131211 3837363534333231 0807060504030201
   02000000 01000000 02000000 03 02 09
   01000000 0200 6731
   0807060504030201 4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c
   0807060504030201 01 4545454545454545454545454545454545454545
   0807060504030201 2827262524232221 b2a8bbbb0d226965cb3fd9a44c5883e5
"""
GOLDEN_1 = """
01 01 0c07060504030201 0100000000000000 01000000 01000000 01000000 01000000 00000000
   0807060504030201 0a07060504030201 1817161514131211 3837363534333231 0807060504030201
   02000000 01000000 02000000 03 02 09
   01000000 0200 6731
   0807060504030201 4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c
   0807060504030201 01 4545454545454545454545454545454545454545
   0807060504030201 2827262524232221 0200 6b31
"""


def test_a_snapshot_has_the_bytes_on_the_page() -> None:
    state, first = MailboxState(), 0x0102030405060708
    message = Sent(b"hi", {}, 0, 0x1112131415161718, 9, "g1", "k1", 0x2122232425262728)
    for tick, kind, payload in (
        (first, EventType.SENT, encode_sent(message)),
        (first + 1, EventType.LEASED, encode_leased(Leased(first + 5, (first,), (b"E" * LOCK_BYTES,)))),
        (first + 2, EventType.REJECTED, encode_ids(MessageIds(first + 2, (first,)))),
        (first + 3, EventType.LEASED, encode_leased(Leased(0x3132333435363738, (first,), (b"L" * LOCK_BYTES,)))),
        (first + 4, EventType.PAUSED, b""),
    ):
        replay(state, tick, kind, payload)
    assert encode_snapshot(state) == bytes.fromhex(GOLDEN)
    assert encode_snapshot(decode_snapshot(bytes.fromhex(GOLDEN))) == bytes.fromhex(GOLDEN)
    assert GOLDEN in FORMAT_PAGE.read_text()


def test_a_snapshot_of_version_1_is_read() -> None:
    assert GOLDEN_1 in FORMAT_PAGE.read_text()
    state = decode_snapshot(bytes.fromhex(GOLDEN_1))
    assert encode_snapshot(state) == bytes.fromhex(GOLDEN)
    assert state.keys.find("k1", state.now) == 0x0102030405060708
    with pytest.raises(DataLossError, match="version 3"):
        decode_snapshot(b"\3" + bytes.fromhex(GOLDEN)[1:])


def in_all_states() -> MailboxState:
    mailbox = SmallMailbox(MailboxSettings(max_deliveries=3))
    mailbox.send(
        *(Outgoing(b"x" * size, group="g" if size % 2 else "", key=f"{size}", ttl_ms=size) for size in range(1, 9))
    )
    mailbox.later()
    grants = mailbox.fetch(4)
    acknowledge(mailbox.step, [grants[0].lock_id], [Rejection(each.lock_id, is_final=True) for each in grants[1:3]])
    bury(mailbox.step, [mailbox.state.exhausted[0]])
    mailbox.send(Outgoing(b"", delay_ms=50), Outgoing(b"", priority=3))
    assert set(mailbox.state.rows.states) == set(MessageState)
    return mailbox.state


def test_a_snapshot_has_what_the_state_has() -> None:
    state = in_all_states()
    restored = decode_snapshot(encode_snapshot(state))
    assert (restored.counts(), restored.oldest_id) == (state.counts(), state.oldest_id)
    assert (restored.exhausted, restored.now) == (state.exhausted, state.now)
    assert [*restored.keys.all()] == [*state.keys.all()] != []
    assert restored.memory_bytes <= state.memory_bytes
    assert restored.rows.gone == 0
    assert encode_snapshot(decode_snapshot(encode_snapshot(restored))) == encode_snapshot(restored)


def test_an_empty_state_has_a_snapshot() -> None:
    restored = decode_snapshot(encode_snapshot(MailboxState()))
    assert (restored.rows.live, restored.now) == (0, 0)


def test_a_cut_snapshot_is_data_loss() -> None:
    encoded = encode_snapshot(in_all_states())
    for size in range(len(encoded)):
        with pytest.raises(DataLossError, match="a snapshot of a mailbox cannot be read"):
            decode_snapshot(encoded[:size])
    with pytest.raises(DataLossError, match="1 bytes too many"):
        decode_snapshot(encoded + b"\0")


def test_a_changed_snapshot_is_read_or_data_loss() -> None:
    chance, encoded = Random(1), encode_snapshot(in_all_states())
    refused = 0
    for _ in range(5_000):
        changed = bytearray(encoded)
        for _ in range(chance.choice([1, 1, 3])):
            changed[chance.randrange(len(changed))] = chance.choice([0, 1, 6, 7, 255, chance.randrange(256)])
        try:
            decode_snapshot(bytes(changed))
        except DataLossError:
            refused += 1
    assert refused > 500


def test_pages_add_up_to_the_snapshot() -> None:
    for size in (0, 1, PAGE_BYTES, PAGE_BYTES + 1, 3 * PAGE_BYTES):
        encoded = Random(1).randbytes(size)
        pages = [decode_page(page) for page in pages_of(encoded)]
        assert b"".join(page.content for page in pages) == encoded
        assert [page.number for page in pages] == list(range(len(pages)))
        assert {page.pages for page in pages} == {max(1, -(-size // PAGE_BYTES))}
    with pytest.raises(DataLossError, match="a page of a snapshot has 7 bytes"):
        decode_page(b"\0" * 7)
