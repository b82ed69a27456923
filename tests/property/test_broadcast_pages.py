"""Pages of broadcasts are the sorted broadcasts in the chosen states, and cost what they contain.

Method: random tables whose broadcasts are opened, finished and forgotten in any order, read page by page.
"""

from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.broadcast.records import TaskRecord, Tombstone
from tidelog_server.broadcast.table import MAX_TOMBSTONE_AGE_MS, BroadcastTable, Task
from tidelog_server.core.broadcasts import OPEN_STATES, BroadcastState

STATES = list(BroadcastState)


def opened(broadcast_id: int) -> Task:
    return Task(TaskRecord(broadcast_id, ("a/0",), (1,), (), "", 0, 0, 0))


def finished(broadcast_id: int, state: BroadcastState) -> Tombstone:
    return Tombstone(broadcast_id, state, 1, 1, 1, "", 0, 0)


def id_of(found: Task | Tombstone) -> int:
    return found.broadcast_id if isinstance(found, Tombstone) else found.record.broadcast_id


def pages(table: BroadcastTable, states: frozenset[BroadcastState], size: int) -> list[int]:
    """Return the ids of all pages, which are full up to the last one."""
    ids: list[int] = []
    has_more = True
    while has_more:
        found, has_more = table.page(states, ids[-1] if ids else 0, size)
        ids += map(id_of, found)
        assert len(found) == size or not has_more
    return ids


@given(
    st.dictionaries(st.integers(1, 200), st.sampled_from(STATES), max_size=40),
    st.sets(st.sampled_from(STATES)),
    st.integers(1, 7),
    st.data(),
)
def test_pages_have_the_broadcasts_in_the_chosen_states_in_order(
    wanted: dict[int, BroadcastState], states: set[BroadcastState], size: int, data: st.DataObject
) -> None:
    table = BroadcastTable()
    for broadcast_id, state in wanted.items():
        task = opened(broadcast_id)
        table.add(task)
        if state is not BroadcastState.PENDING:
            task.mark_appended(1, 0)
        if state not in OPEN_STATES:
            task.pending = finished(broadcast_id, state)
            table.apply(task, task.pending)
    assert pages(table, frozenset(states), size) == sorted(key for key in wanted if wanted[key] in states)

    over = [key for key in wanted if wanted[key] not in OPEN_STATES]
    chosen = table.forget_some(MAX_TOMBSTONE_AGE_MS + 1, data.draw(st.integers(0, 40))).broadcast_ids
    # They are listed until their deletion is durable.
    assert pages(table, frozenset(STATES), size) == sorted(wanted)
    assert chosen == sorted(over)[: len(chosen)]
    table.forget(chosen)
    assert pages(table, frozenset(STATES), size) == sorted(set(wanted).difference(chosen))


class CountedFinds(BroadcastTable):
    """A table that counts the broadcasts that are looked at."""

    looks = 0

    def find(self, broadcast_id: int) -> Task | Tombstone | None:
        """Return a broadcast."""
        self.looks += 1
        return super().find(broadcast_id)


def test_a_page_looks_at_what_it_contains() -> None:
    table = CountedFinds()
    for number in range(1, 1_001):
        table.add(opened(2 * number))
        table.add_tombstone(finished(2 * number + 1, BroadcastState.DONE))
    table.looks = 0
    for states in (frozenset(STATES), frozenset(OPEN_STATES), frozenset([BroadcastState.DONE])):
        found, has_more = table.page(states, 1_000, 100)
        assert (len(found), has_more) == (100, True)
        assert min(map(id_of, found)) > 1_000
    assert table.looks == 3 * 101
