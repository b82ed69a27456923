"""A tail that recovery extends by rows is the tail that was reached when they were written.

Method: hypothesis.
"""

from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.core.entries import NewEntry
from tidelog_server.core.ticks import Tick
from tidelog_server.storage.format.codec import StoreRow, TailRow, unpack_links
from tidelog_server.storage.log_state import LogState, extended

sizes = st.lists(st.tuples(st.integers(1, 1_000), st.binary(max_size=40), st.integers(1, 5)), min_size=1, max_size=12)
hashes = st.binary(min_size=16, max_size=16)


@given(sizes, st.integers(0, 11), hashes)
def test_a_tail_row_and_the_entries_after_it_make_the_tail(
    appends: list[tuple[int, bytes, int]], rows_before_tail: int, incarnation: bytes
) -> None:
    state = LogState(StoreRow(incarnation, 0, 0, bytes(16), 0), {7: TailRow()})
    tails, rows, next_tick = [TailRow()], [], 1
    for count, columns, pause in appends:
        entry = NewEntry(7, Tick(next_tick + pause), count, 0, 0, columns)
        state.begin()
        staged = state.stage(entry)
        state.publish()
        rows.append((staged.key, staged.header))
        tails.append(state.tails[7])
        next_tick = entry.last_tick + 1
    stored = min(rows_before_tail, len(rows) - 1)
    links = unpack_links([key for key, _ in rows[stored:]], [header for _, header in rows[stored:]])
    assert extended(tails[stored], links) == tails[-1]
