"""The references of messages to blobs follow from the state of the mailbox, however messages come and go.

Method: random operations; after each, the count of each blob is the number of messages that have its key. The same is
true of a state that is restored from a snapshot, and of one that was attached later.
"""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.blobs.live import LiveReferences
from tidelog_server.mailboxes.events import Sent, row_of
from tidelog_server.mailboxes.snapshot import decode_snapshot
from tidelog_server.mailboxes.state import MailboxState
from tidelog_testing.parts.mailboxes import encode_snapshot

KEYS = (b"", b"a" * 32, b"b" * 20)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 2)),
        st.tuples(st.sampled_from(["confirm", "expire", "move", "lease", "purge"]), st.integers(0, 5)),
    ),
    max_size=30,
)


def apply(state: MailboxState, name: str, number: int, tick: int) -> None:
    waiting = [row for row in state.rows.live_rows() if not state.rows.until[row]]
    leased = [row for row in state.rows.live_rows() if state.rows.until[row]]
    ids = [state.rows.ids[row] for row in (leased if name == "confirm" else waiting)][number : number + 2]
    match name:
        case "send":
            message = Sent(b"" if KEYS[number] else b"body", blob_key=KEYS[number], blob_bytes=9 if KEYS[number] else 0)
            state.sent(row_of(tick, message, 0, tick), blob_key=message.blob_key)
        case "lease":
            state.leased(tick + 1_000, ids, [each.to_bytes(20, "big") for each in ids])
        case "confirm":
            state.confirmed(ids)
        case "expire":
            state.expired(ids)
        case "move":
            state.moved(ids)
        case _:
            state.purged()


def counted(live: LiveReferences) -> dict[bytes, int]:
    return {key: live.messages_of(key) for key in KEYS if live.is_live(key)}


@given(operations)
def test_references_are_those_of_the_messages(wanted: list[tuple[str, int]]) -> None:
    state, live, sent = MailboxState(), LiveReferences(), dict[int, bytes]()
    released: list[bytes] = []
    live.on_released = released.append
    state.blobs.attach(live.count)
    for tick, (name, number) in enumerate(wanted, start=1):
        before = counted(live)
        apply(state, name, number, tick)
        if name == "send":
            sent[tick] = KEYS[number]
        expected = Counter(sent[state.rows.ids[row]] for row in state.rows.live_rows() if sent[state.rows.ids[row]])
        assert counted(live) == dict(expected)
        assert set(before) - set(expected) <= set(released)
        restored, again = decode_snapshot(encode_snapshot(state)), LiveReferences()
        assert restored.blobs.keys == state.blobs.keys
        restored.blobs.attach(again.count)
        assert counted(again) == dict(expected)
        restored.blobs.detach()
        assert counted(again) == {}
