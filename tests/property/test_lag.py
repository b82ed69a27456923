"""The lag of a position equals the counted messages. Method: logs with trims and chunks, on a store in memory."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.groups.lag import lag_of
from tidelog_server.storage import log_state
from tidelog_server.storage.memory import MemoryLogStore
from tidelog_testing.parts.entries import new_entry

counts = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3)), max_size=40)


@given(counts, st.integers(0, 200), st.integers(0, 250), st.integers(1, 9))
def test_lag_is_what_counting_gives(plan: list[tuple[int, int]], trim: int, position: int, chunk_batches: int) -> None:
    store = MemoryLogStore()
    store.create_vchannels([1])
    ticks: list[int] = []
    sizes: list[float] = []
    next_tick = 1
    before = log_state.CHUNK_BATCHES
    log_state.CHUNK_BATCHES = chunk_batches  # type: ignore[misc]  # Small chunks, so that a log of this size has many.
    try:
        for count, gap in plan:
            entry = new_entry(1, next_tick + gap, count=count, size_bytes=count * 10)
            store.write([entry])
            ticks += range(entry.base_tick, entry.last_tick + 1)
            sizes += [len(entry.columns) / count] * count
            next_tick = entry.last_tick + 1
        trim_tick = store.trim(1, trim).trim_tick
        lag = lag_of(store, 1, position)
    finally:
        log_state.CHUNK_BATCHES = before  # type: ignore[misc]  # As above.

    there = [tick for tick in ticks if max(position, trim_tick) <= tick]
    assert lag.messages == len(there)
    assert lag.first_tick == (there[0] if there else 0)
    expected = sum(size for tick, size in zip(ticks, sizes, strict=True) if tick in set(there))
    assert abs(lag.size_bytes - expected) <= 10
    has_ended = not ticks or ticks[-1] < position
    assert lag.is_trimmed == (position < trim_tick and not has_ended)
