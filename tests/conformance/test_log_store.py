"""Every log store fulfils the contract of ``storage.log_store``.

Method: the same tests on each implementation; RocksDB on a real disk, and the engine store over a log in a folder and
in Kafka. After each test of the latter, what it left is compared with what the log alone has.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Event

import pytest

from tidelog_server.broadcast.rows import LOGGED, LoggedKey
from tidelog_server.core.callers import NO_TENANT, tenant_of
from tidelog_server.core.entries import Entry
from tidelog_server.core.errors import StorageFailedError
from tidelog_server.core.groups import GroupKey, GroupPosition
from tidelog_server.core.limits import CHUNK_BYTES
from tidelog_server.core.producers import ProducerKey, ProducerWindow, Result
from tidelog_server.core.shares import FloorKey, FloorTable
from tidelog_server.core.ticks import MAX_TICK
from tidelog_server.core.transactions import AppCommit, AppKey, TxnOutcome, TxnRun
from tidelog_server.fold.rows import SNAPSHOTS
from tidelog_server.groups.rows import POSITIONS
from tidelog_server.log.rows import WINDOWS
from tidelog_server.storage.format.codec import TailRow
from tidelog_server.storage.format.keys import MAX_VCHANNEL_ID
from tidelog_server.storage.log_state import CHUNK_BATCHES, as_vchannel_tail
from tidelog_server.storage.log_store import LogStore
from tidelog_server.storage.memory import MemoryLogStore
from tidelog_server.txn.rows import APP_COMMITS, FLOORS, OUTCOMES
from tidelog_testing.parts.entries import (
    END,
    FIRST_TICK,
    committed,
    new_entry,
    place_and_columns,
    read_all,
    run_of_entries,
    staged_batch,
)
from tidelog_testing.parts.log_stores import KINDS, store_of_kind


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogStore]:
    yield from store_of_kind(request, tmp_path)


def ticks_of(entries: list[Entry]) -> list[int]:
    return [entry.header.base_tick for entry in entries]


def test_the_name_tells_the_kind(store: LogStore) -> None:
    assert store.wal_name in {"memory", "rocksdb", "engine"}


def test_a_new_vchannel_is_empty(store: LogStore) -> None:
    store.create_vchannels([1])
    assert store.vchannel_ids() == [1]
    assert store.tail(1) == as_vchannel_tail(TailRow())
    assert store.read(1, 0, END, 1) == []
    assert store.headers(1, 0, END, 1) == []
    assert store.chunks(1, 0, END) == []


def test_an_unknown_vchannel_is_a_key_error(store: LogStore) -> None:
    with pytest.raises(KeyError):
        store.tail(5)
    with pytest.raises(KeyError):
        store.read(5, 0, END, 1)
    with pytest.raises(KeyError):
        store.chunks(5, 0, END)
    with pytest.raises(KeyError):
        store.write([new_entry(5, 10)])


def test_entries_come_back_as_they_were_written_in_order(store: LogStore) -> None:
    store.create_vchannels([1])
    written = run_of_entries(1, 20, size_bytes=5_000)
    for entry in written:
        store.write([entry])
    read = list(read_all(store, 1, max_bytes=12_000))
    assert list(map(place_and_columns, read)) == list(map(place_and_columns, written))
    assert [entry.header.columns_crc32c for entry in read] == [entry.columns_crc32c for entry in written]
    assert {entry.header.message_type for entry in read} == {7}


def test_each_entry_names_the_last_tick_before_it(store: LogStore) -> None:
    store.create_vchannels([1, 2])
    store.write([*run_of_entries(1, 3), *run_of_entries(2, 3)])
    for vchannel_id in (1, 2):
        headers = store.headers(vchannel_id, 0, END, 100)
        assert headers[0].previous_tick == 0
        assert all(after.previous_tick == before.last_tick for before, after in pairwise(headers))


def test_the_sequence_is_dense_over_all_vchannels(store: LogStore) -> None:
    store.create_vchannels([1, 2, 3])
    store.write([new_entry(1, 10), new_entry(3, 10), new_entry(1, 20), new_entry(2, 5)])
    store.write([new_entry(2, 30)])
    headers = [header for v in (1, 2, 3) for header in store.headers(v, 0, END, 100)]
    assert sorted(header.sequence for header in headers) == [1, 2, 3, 4, 5]
    assert len({header.chain_hash for header in headers}) == 5
    last = max(headers, key=lambda header: header.sequence)
    assert (store.head.sequence, store.head.chain_hash, store.head.last_tick) == (5, last.chain_hash, 39)


def test_a_chain_hash_depends_on_everything_before_it() -> None:
    def head_after(columns: bytes) -> bytes:
        store = MemoryLogStore()
        store.create_vchannels([1])
        store.write([replace(new_entry(1, 10), columns=columns)])
        store.write([new_entry(1, 20)])
        return store.head.chain_hash

    assert head_after(b"a") == head_after(b"a")
    assert head_after(b"a") != head_after(b"b")


def test_a_write_of_nothing_changes_nothing(store: LogStore) -> None:
    head = store.head
    store.write([])
    store.sync()
    assert store.head == head


def test_a_tick_that_does_not_grow_is_a_bug_and_writes_nothing(store: LogStore) -> None:
    store.create_vchannels([1])
    store.write([new_entry(1, 100)])
    head = store.head
    with pytest.raises(AssertionError):
        store.write([new_entry(1, 200), new_entry(1, 109)])
    assert store.head == head
    store.write([new_entry(1, 110)])
    assert ticks_of(store.read(1, 0, END, 1 << 20)) == [100, 110]
    assert store.head.sequence == 2


@pytest.mark.parametrize(
    ("begin_tick", "end_tick", "expected"),
    [
        (0, END, [100, 200, 300]),
        (0, 100, []),
        (0, 101, [100]),
        (109, 110, [100]),
        (110, 200, []),
        (110, 201, [200]),
        (105, 300, [100, 200]),
        (200, 200, []),
        (300, 200, []),
        (309, END, [300]),
        (310, END, []),
    ],
)
def test_a_read_returns_what_overlaps_its_range(
    store: LogStore, begin_tick: int, end_tick: int, expected: list[int]
) -> None:
    store.create_vchannels([1])
    store.write([new_entry(1, tick) for tick in (100, 200, 300)])
    assert ticks_of(store.read(1, begin_tick, end_tick, 1 << 20)) == expected
    assert [header.base_tick for header in store.headers(1, begin_tick, end_tick, 100)] == expected


def test_a_read_stops_after_the_entry_that_fills_the_page(store: LogStore) -> None:
    store.create_vchannels([1])
    store.write(run_of_entries(1, 10, size_bytes=100))
    assert [len(store.read(1, 0, END, max_bytes)) for max_bytes in (1, 100, 101, 950, 5_000)] == [1, 1, 2, 10, 10]
    assert [len(store.headers(1, 0, END, count)) for count in (1, 3, 50)] == [1, 3, 10]


def test_columns_come_in_the_order_asked_for_over_any_vchannels(store: LogStore) -> None:
    store.create_vchannels([1, 2])
    # A store may store small columns elsewhere than large ones.
    sizes = (0, 1, 511, 512, 513, 4_095, 4_096, 100)
    written = [new_entry(1 + i % 2, 100 * (i + 1), size_bytes=size_bytes) for i, size_bytes in enumerate(sizes)]
    store.write(written)
    headers = [*store.headers(2, 0, END, 9), *store.headers(1, 0, END, 9)]
    columns_at = {(entry.vchannel_id, entry.base_tick): entry.columns for entry in written}
    assert store.columns(headers) == [columns_at[header.vchannel_id, header.base_tick] for header in headers]
    assert store.columns([]) == []


@pytest.mark.parametrize("size_bytes", [100, 5_000])
def test_columns_trimmed_or_dropped_meanwhile_are_none(store: LogStore, size_bytes: int) -> None:
    store.create_vchannels([1, 2])
    store.write([*run_of_entries(1, 2, size_bytes=size_bytes), *run_of_entries(2, 1, size_bytes=size_bytes)])
    headers = [*store.headers(1, 0, END, 9), *store.headers(2, 0, END, 9)]
    store.trim(1, headers[1].base_tick)
    store.drop_vchannels([2])
    assert [columns is None for columns in store.columns(headers)] == [True, False, True]


def test_neighbouring_vchannels_do_not_mix(store: LogStore) -> None:
    ids = [0, 1, 255, 256, MAX_VCHANNEL_ID - 1, MAX_VCHANNEL_ID]
    store.create_vchannels(ids)
    for vchannel_id in ids[::2]:
        store.write(run_of_entries(vchannel_id, 3))
    for vchannel_id in ids:
        assert len(list(read_all(store, vchannel_id))) == (3 if vchannel_id in ids[::2] else 0)


def test_the_tail_counts_what_was_written(store: LogStore) -> None:
    store.create_vchannels([1])
    store.write(run_of_entries(1, 3, count=10, size_bytes=100))
    tail = store.tail(1)
    assert (tail.batches, tail.messages, tail.columns_bytes) == (3, 30, 300)
    assert tail.last_tick == FIRST_TICK + 2 * 11 + 9
    assert (tail.trim_tick, tail.trimmed_messages, tail.trimmed_bytes) == (0, 0, 0)


@pytest.mark.parametrize(
    ("before_tick", "trim_tick", "left"),
    [
        (0, 0, [100, 200, 300]),
        (100, 0, [100, 200, 300]),
        (105, 105, [100, 200, 300]),
        (110, 110, [200, 300]),
        (150, 110, [200, 300]),
        (200, 110, [200, 300]),
        (201, 201, [200, 300]),
        (310, 310, []),
        (END, 310, []),
    ],
)
def test_a_trim_removes_what_lies_wholly_below_it(
    store: LogStore, before_tick: int, trim_tick: int, left: list[int]
) -> None:
    store.create_vchannels([1])
    store.write([new_entry(1, tick) for tick in (100, 200, 300)])
    tail = store.trim(1, before_tick)
    assert tail == store.tail(1)
    assert tail.trim_tick == trim_tick
    assert ticks_of(store.read(1, 0, END, 1 << 20)) == left
    gone = 3 - len(left)
    assert (tail.trimmed_messages, tail.trimmed_bytes) == (gone * 10, gone * 100)
    assert (tail.batches, tail.messages) == (3, 30)


def test_a_trim_below_an_earlier_one_changes_nothing(store: LogStore) -> None:
    store.create_vchannels([1])
    store.write(run_of_entries(1, 5))
    tail = store.trim(1, FIRST_TICK + 25)
    assert store.trim(1, FIRST_TICK + 12) == tail


def test_trims_of_several_vchannels_are_those_of_each(store: LogStore) -> None:
    store.create_vchannels([1, 2, 3])
    store.write([new_entry(each, tick) for each in (1, 2) for tick in (100, 200, 300)])
    assert store.trim_all({1: 150, 2: END, 3: 500}) == {each: store.tail(each) for each in (1, 2, 3)}
    assert [ticks_of(store.read(each, 0, END, 1 << 20)) for each in (1, 2, 3)] == [[200, 300], [], []]


def test_a_trim_of_an_empty_vchannel_changes_nothing(store: LogStore) -> None:
    store.create_vchannels([1])
    assert store.trim(1, 500).trim_tick == 0
    store.write([new_entry(1, 10)])
    assert ticks_of(store.read(1, 0, END, 1)) == [10]


def test_a_trim_twice_through_the_same_entry_counts_it_once(store: LogStore) -> None:
    store.create_vchannels([1])
    store.write(run_of_entries(1, 4))
    for before_tick in range(FIRST_TICK, FIRST_TICK + 40, 3):
        store.trim(1, before_tick)
    assert store.tail(1).trimmed_messages == 30
    assert store.trim(1, END).trimmed_messages == 40


def test_writing_goes_on_after_everything_was_trimmed(store: LogStore) -> None:
    store.create_vchannels([1])
    store.write(run_of_entries(1, 3))
    store.trim(1, END)
    assert store.read(1, 0, END, 1) == []
    last_tick = store.tail(1).last_tick
    store.write([new_entry(1, last_tick + 1)])
    assert ticks_of(store.read(1, 0, END, 1)) == [last_tick + 1]
    assert store.headers(1, 0, END, 1)[0].previous_tick == last_tick


def test_chunks_cover_a_vchannel_without_gap_and_add_up(store: LogStore) -> None:
    store.create_vchannels([1])
    size_bytes = CHUNK_BYTES // 4
    for entry in run_of_entries(1, 11, size_bytes=size_bytes):
        store.write([entry])
    chunks = store.chunks(1, 0, END)
    assert [chunk.batches for chunk in chunks] == [4, 4, 3]
    for before, after in pairwise(chunks):
        assert after.messages_before == before.messages_before + before.messages
        assert after.bytes_before == before.bytes_before + before.columns_bytes
        assert before.last_tick < after.first_tick
    assert sum(chunk.columns_bytes for chunk in chunks) == store.tail(1).columns_bytes
    assert chunks[-1].last_tick == store.tail(1).last_tick
    assert store.chunks(1, chunks[1].first_tick, chunks[1].last_tick + 1) == [chunks[1]]
    assert store.chunks(1, chunks[1].last_tick, chunks[2].first_tick + 1) == chunks[1:]
    assert store.chunks(1, chunks[-1].last_tick + 1, END) == []


def test_the_oldest_chunks_end_where_enough_was_found(store: LogStore) -> None:
    store.create_vchannels([1])
    assert store.oldest_chunks(1, 0, 0) == []
    store.write(run_of_entries(1, 11, size_bytes=CHUNK_BYTES // 4))
    chunks = store.chunks(1, 0, END)
    assert store.oldest_chunks(1, 0, 0) == chunks[:1]
    assert store.oldest_chunks(1, 0, CHUNK_BYTES) == chunks[:1]
    assert store.oldest_chunks(1, 0, CHUNK_BYTES + 1) == chunks[:2]
    assert store.oldest_chunks(1, chunks[0].last_tick + 1, 0) == chunks[:2]
    assert store.oldest_chunks(1, chunks[1].last_tick + 1, 0) == chunks
    assert store.oldest_chunks(1, 0, END) == chunks
    # The trimmed part of a chunk no longer counts.
    store.trim(1, store.headers(1, 0, END, 2)[1].base_tick)
    left_bytes = chunks[0].columns_bytes - store.tail(1).trimmed_bytes
    assert 0 < left_bytes < CHUNK_BYTES
    assert store.oldest_chunks(1, 0, left_bytes) == chunks[:1]
    assert store.oldest_chunks(1, 0, left_bytes + 1) == chunks[:2]
    store.trim(1, chunks[-1].last_tick + 1)
    assert store.oldest_chunks(1, 0, 1) == store.chunks(1, 0, END)
    with pytest.raises(KeyError):
        store.oldest_chunks(5, 0, 0)


def test_a_chunk_of_tiny_entries_is_closed_by_their_number(store: LogStore) -> None:
    store.create_vchannels([1])
    store.write(run_of_entries(1, CHUNK_BATCHES + 5, count=1, size_bytes=1))
    assert [chunk.batches for chunk in store.chunks(1, 0, END)] == [CHUNK_BATCHES, 5]


def test_a_trim_removes_the_chunks_below_it(store: LogStore) -> None:
    store.create_vchannels([1])
    store.write(run_of_entries(1, 11, size_bytes=CHUNK_BYTES // 4))
    chunks = store.chunks(1, 0, END)
    tail = store.trim(1, chunks[1].first_tick + 1)
    assert store.chunks(1, 0, END) == chunks[1:]
    assert tail.trimmed_messages == chunks[1].messages_before
    tail = store.trim(1, chunks[2].first_tick)
    assert store.chunks(1, 0, END) == chunks[2:]
    assert tail.trimmed_bytes == chunks[2].bytes_before


def test_a_dropped_vchannel_is_gone_and_others_stay(store: LogStore) -> None:
    store.create_vchannels([1, 2, 3])
    store.write([*run_of_entries(1, 3), *run_of_entries(2, 3), *run_of_entries(3, 3)])
    store.drop_vchannels([2, 77])
    assert store.vchannel_ids() == [1, 3]
    with pytest.raises(KeyError):
        store.read(2, 0, END, 1)
    assert len(list(read_all(store, 1))) == len(list(read_all(store, 3))) == 3
    store.create_vchannels([2])
    assert store.read(2, 0, END, 1) == []
    store.write([new_entry(2, 5)])
    assert store.head.sequence == 10


def test_a_fencing_token_only_grows_and_goes_with_its_vchannel(store: LogStore) -> None:
    store.create_vchannels([1, 2])
    assert store.tail(1).fencing_token == 0
    for token, expected in ((5, 5), (5, 5), (4, 5), ((1 << 64) - 1, (1 << 64) - 1)):
        store.fence(1, token)
        assert store.tail(1).fencing_token == expected
    store.write(run_of_entries(1, 2))
    store.trim(1, END)
    assert (store.tail(1).fencing_token, store.tail(2).fencing_token) == ((1 << 64) - 1, 0)
    store.drop_vchannels([1])
    with pytest.raises(KeyError):
        store.fence(1, 6)
    store.create_vchannels([1])
    assert store.tail(1).fencing_token == 0


def test_windows_are_written_with_the_entries_and_go_with_their_vchannel(store: LogStore) -> None:
    store.create_vchannels([1, 2, MAX_VCHANNEL_ID])
    first = ProducerWindow(0).extended(Result(10, 1, 7, is_synced=True))
    keys: list[ProducerKey] = [(1, "p"), (1, "é" * 32), (2, "p"), (MAX_VCHANNEL_ID, "\U0010ffff" * 16)]
    store.write([new_entry(1, 10)], WINDOWS.changes(dict.fromkeys(keys, first)))
    assert store.rows(WINDOWS) == dict.fromkeys(keys, first)
    second = first.opened().extended(Result(20, 2, 8, is_synced=False))
    store.write([], WINDOWS.changes({(1, "p"): second, (2, "p"): None}))
    store.write([new_entry(1, 20)])
    assert store.rows(WINDOWS) == {(1, "p"): second, keys[1]: first, keys[3]: first}
    assert (second.epoch, second.last_sequence, second.last_tick) == (1, 2, 21)
    store.drop_vchannels([MAX_VCHANNEL_ID])
    store.drop_vchannels([1])
    assert store.rows(WINDOWS) == {}


def test_staged_batches_are_read_once_their_transaction_is_committed(store: LogStore) -> None:
    store.create_vchannels([1, 2])
    store.write([new_entry(1, 10)])
    entries = [new_entry(1, 100), new_entry(1, 110, size_bytes=9_000), new_entry(2, 120), new_entry(2, 130)]
    staged = [staged_batch(entry, 50, sequence) for sequence, entry in enumerate(entries, 1)]
    store.write([], staged=staged[:1])
    store.write([new_entry(2, 20)], staged=staged[1:])
    assert [entry.header.base_tick for v in (1, 2) for entry in read_all(store, v)] == [10, 20]
    assert store.head.sequence == 2
    assert store.staged() == [(1, 50), (2, 50)]
    outcome = TxnOutcome(100, True, (TxnRun(1, 20), TxnRun(2, 20)))
    commits = [committed(entry, 50, sequence, 100, 139) for sequence, entry in enumerate(entries, 1)]
    store.write(commits, OUTCOMES.changes({50: outcome}))
    store.write([new_entry(1, 200)])
    store.sync()
    assert store.staged() == []
    assert store.rows(OUTCOMES) == {50: outcome}
    assert list(map(place_and_columns, read_all(store, 1))) == [
        place_and_columns(entry) for entry in (new_entry(1, 10), *entries[:2], new_entry(1, 200))
    ]
    assert list(map(place_and_columns, read_all(store, 2)))[1:] == list(map(place_and_columns, entries[2:]))
    headers = store.headers(1, 0, END, 100)
    assert [header.columns_bytes for header in headers] == [100, 100, 9_000, 100]
    assert store.columns(headers) == [entry.columns for entry in (new_entry(1, 10), *entries[:2], new_entry(1, 200))]
    assert {header.txn for header in headers[1:3]} == {commits[0].txn}
    assert store.tail(1).columns_bytes == 9_300


def test_a_batch_may_be_staged_and_committed_in_one_write(store: LogStore) -> None:
    store.create_vchannels([1])
    entries = [new_entry(1, 100), new_entry(1, 110)]
    store.write([], staged=[staged_batch(entries[0], 50, 1)])
    commits = [committed(entry, 50, sequence, 100, 119) for sequence, entry in enumerate(entries, 1)]
    store.write(commits, OUTCOMES.changes({50: TxnOutcome(100, True, ())}), staged=[staged_batch(entries[1], 50, 2)])
    assert store.staged() == []
    assert list(map(place_and_columns, read_all(store, 1))) == list(map(place_and_columns, entries))


def test_what_was_staged_in_vain_is_discarded_and_nothing_else_is(store: LogStore) -> None:
    store.create_vchannels([1, 2])
    entry = new_entry(1, 100)
    store.write(
        [],
        staged=[staged_batch(entry, 50, 1), staged_batch(entry, 51, 1), staged_batch(new_entry(2, 100), 50, 2)],
    )
    store.discard({(1, 50): None, (2, 50): 2, (2, 77): None})
    assert store.staged() == [(1, 51)]
    store.write([committed(entry, 51, 1, 100, 109)])
    assert list(map(place_and_columns, read_all(store, 1))) == [place_and_columns(entry)]
    store.reclaim()
    assert list(map(place_and_columns, read_all(store, 1))) == [place_and_columns(entry)]


def test_staged_batches_go_with_their_vchannel(store: LogStore) -> None:
    store.create_vchannels([1, MAX_VCHANNEL_ID])
    entries = [new_entry(1, 100), new_entry(MAX_VCHANNEL_ID, 110)]
    store.write([], staged=[staged_batch(entry, 50, 1) for entry in entries])
    store.drop_vchannels([MAX_VCHANNEL_ID])
    assert store.staged() == [(1, 50)]
    store.drop_vchannels([1])
    assert store.staged() == []
    with pytest.raises((AssertionError, KeyError)):
        store.write([], staged=[staged_batch(entries[0], 50, 1)])


def test_a_trim_removes_committed_batches_one_by_one(store: LogStore) -> None:
    store.create_vchannels([1])
    entries = [new_entry(1, tick) for tick in (100, 110, 120)]
    store.write([], staged=[staged_batch(entry, 50, i) for i, entry in enumerate(entries, 1)])
    store.write([], staged=[staged_batch(new_entry(1, 300), 60, 1)])
    store.write([committed(entry, 50, i, 100, 129) for i, entry in enumerate(entries, 1)])
    store.trim(1, 115)
    assert list(map(place_and_columns, read_all(store, 1))) == list(map(place_and_columns, entries[1:]))
    headers = store.headers(1, 0, END, 10)
    store.trim(1, 130)
    assert list(read_all(store, 1)) == []
    assert store.columns(headers) == [None, None]
    assert store.staged() == [(1, 60)]
    store.write([committed(new_entry(1, 300), 60, 1, 300, 309)])
    assert list(map(place_and_columns, read_all(store, 1))) == [place_and_columns(new_entry(1, 300))]


def test_outcomes_are_replaced_and_removed(store: LogStore) -> None:
    first, second = TxnOutcome(0, False, ()), TxnOutcome(7, True, (TxnRun(9, 3),))
    store.create_vchannels([1])
    store.write([new_entry(1, 10)], OUTCOMES.changes({5: first, 6: first}))
    store.write([], OUTCOMES.changes({6: second, 5: None, 4: None}))
    assert store.rows(OUTCOMES) == {6: second}


def test_outcomes_and_windows_keep_their_tenant(store: LogStore) -> None:
    tenant = tenant_of("jwt:a")
    outcome = TxnOutcome(7, True, (TxnRun(9, 3),), tenant)
    window = ProducerWindow(2, 8, tenant=tenant).extended(Result(10, 1, 5, is_synced=True), tenant)
    store.create_vchannels([1])
    store.write([new_entry(1, 10)], [*WINDOWS.changes({(1, "p"): window}), *OUTCOMES.changes({5: outcome})])
    assert store.rows(OUTCOMES) == {5: outcome}
    assert store.rows(WINDOWS) == {(1, "p"): window}


def test_floors_are_written_with_the_entries_replaced_and_removed(store: LogStore) -> None:
    common, mine = (FloorKey(FloorTable.OUTCOMES, tenant) for tenant in (NO_TENANT, tenant_of("jwt:a")))
    other = FloorKey(FloorTable.APPS, mine.tenant)
    store.create_vchannels([1, 0x67616161])
    store.write([new_entry(1, 10)], FLOORS.changes({common: 1, mine: 2, other: 3}))
    store.write([], FLOORS.changes({mine: 1 << 62, other: None, FloorKey(FloorTable.FINISHED_APPS, NO_TENANT): None}))
    store.sync()
    assert store.rows(FLOORS) == {common: 1, mine: 1 << 62}


def test_commits_of_applications_are_written_with_the_entries_replaced_and_removed(store: LogStore) -> None:
    first, second = AppCommit(0, 10, 10, False), AppCommit((1 << 63) - 1, 30, 0, True, is_last=True)
    a, b, never, owned = (AppKey("", "a"), AppKey("", "b"), AppKey("", "never"), AppKey("jwt:\u00fc x", "a"))
    store.create_vchannels([1, 0x61616161])
    store.write([new_entry(1, 10)], APP_COMMITS.changes({a: first, b: first, owned: first}))
    store.write([], APP_COMMITS.changes({b: second, a: None, never: None}))
    store.sync()
    assert store.rows(APP_COMMITS) == {b: second, owned: first}


def test_positions_are_written_with_the_entries_and_go_with_their_vchannel(store: LogStore) -> None:
    store.create_vchannels([1, 2])
    first, other = GroupKey("billing", "orders/0"), GroupKey("audit.v2", "orders/0")
    store.write([new_entry(1, 10)], POSITIONS.changes({first: GroupPosition(1, 11, 5), other: GroupPosition(1, 3, 4)}))
    store.write([], POSITIONS.changes({first: GroupPosition(1, 11, 5).after(12, 6, 7), other: None}))
    elsewhere = GroupKey("billing", "payments/1023")
    store.write([], POSITIONS.changes({elsewhere: GroupPosition(2, END - 1, 8)}))
    assert store.rows(POSITIONS) == {
        first: GroupPosition(1, 11, 5).after(12, 6, 7), elsewhere: GroupPosition(2, END - 1, 8)
    }  # fmt: skip
    store.drop_vchannels([1], [POSITIONS.gone(first)])
    assert store.rows(POSITIONS) == {elsewhere: GroupPosition(2, END - 1, 8)}


@pytest.mark.parametrize("vchannel_id", [1, 255, 256, MAX_VCHANNEL_ID])
def test_rows_of_a_vchannel_go_with_it_and_no_others(store: LogStore, vchannel_id: int) -> None:
    others = {1, 2, 255, 256, 257, MAX_VCHANNEL_ID} - {vchannel_id}
    store.create_vchannels([vchannel_id, *others])
    logged = {LoggedKey(each, number): 7 for each in (vchannel_id, *others) for number in (1, MAX_TICK)}
    store.write([], SNAPSHOTS.changes(dict.fromkeys([vchannel_id, *others], 9)))
    store.write([], [*LOGGED.changes(logged), LOGGED.row(LoggedKey(2, 3), 5), LOGGED.gone(LoggedKey(2, 3))])
    assert store.rows(LOGGED) == logged
    store.drop_vchannels([vchannel_id])
    assert store.rows(SNAPSHOTS) == dict.fromkeys(others, 9)
    assert store.rows(LOGGED) == {key: tick for key, tick in logged.items() if key.vchannel_id != vchannel_id}


def test_a_write_that_is_refused_changes_no_window(store: LogStore) -> None:
    store.create_vchannels([1])
    store.write([new_entry(1, 100)])
    with pytest.raises(AssertionError):
        store.write([new_entry(1, 50)], WINDOWS.changes({(1, "p"): ProducerWindow(1)}))
    assert store.rows(WINDOWS) == {}


def test_creating_an_existing_vchannel_leaves_it_as_it_is(store: LogStore) -> None:
    store.create_vchannels([1])
    store.write(run_of_entries(1, 2))
    store.create_vchannels([1, 2])
    assert store.tail(1).batches == 2
    assert store.vchannel_ids() == [1, 2]


def test_a_closed_store_refuses_to_write(store: LogStore) -> None:
    store.create_vchannels([1])
    store.close()
    store.close()
    with pytest.raises(StorageFailedError):
        store.write([new_entry(1, 10)])
    with pytest.raises(StorageFailedError):
        store.sync()
    with pytest.raises(StorageFailedError):
        store.create_vchannels([2])
    with pytest.raises(StorageFailedError):
        store.fence(1, 1)


def test_gauges_have_names_with_units(store: LogStore) -> None:
    gauges = store.metrics()
    assert gauges
    assert all(isinstance(value, float) for value in gauges.values())
    assert store.stall_reason() is None


@pytest.mark.parametrize("size_bytes", [100, 4_000])
def test_readers_see_no_hole_while_entries_are_written_and_trimmed(store: LogStore, size_bytes: int) -> None:
    store.create_vchannels([1])
    is_done = Event()

    def read_until_done() -> int:
        pages = 0
        while not is_done.is_set():
            entries = list(read_all(store, 1, max_bytes=20_000))
            # The store has checked the links; a trim only moves the beginning.
            for before, after in pairwise(entries):
                if after.header.previous_tick != before.header.last_tick:
                    assert before.header.last_tick < store.tail(1).trim_tick
            store.chunks(1, 0, END)
            pages += 1
        return pages

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read_until_done) for _ in range(2)]
        try:
            for i, entry in enumerate(run_of_entries(1, 2_000, size_bytes=size_bytes)):
                store.write([entry])
                if i % 100 == 99:
                    store.sync()
                    store.trim(1, entry.base_tick - 500)
        finally:
            is_done.set()
        assert all(reader.result(timeout=240) > 0 for reader in readers)
