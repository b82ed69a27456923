"""Keys sort in the order of their numbers, and every row is unpacked unchanged or refused.

Method: hypothesis.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.core.entries import HASH_BYTES, NewEntry, StagedColumns, TxnSpan
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.ticks import MAX_TICK, Tick
from tidelog_server.storage.format import codec, keys
from tidelog_server.storage.format.codec import (
    MAX_INLINE_BYTES,
    ChunkRow,
    StoreRow,
    TailRow,
    pack_chunk,
    pack_header,
    pack_store,
    pack_tail,
    unpack_chunk,
    unpack_header,
    unpack_links,
    unpack_store,
    unpack_tail,
)

vchannel_ids = st.integers(0, keys.MAX_VCHANNEL_ID)
ticks = st.integers(0, MAX_TICK)
u64 = st.integers(0, (1 << 64) - 1)
hashes = st.binary(min_size=16, max_size=16)
places = st.tuples(vchannel_ids, ticks)


def rows_of(kind: Any) -> st.SearchStrategy[Any]:
    types = kind.__annotations__.values()
    return st.tuples(*(hashes if annotation is bytes else u64 for annotation in types)).map(kind._make)


entries = st.builds(
    NewEntry,
    vchannel_id=vchannel_ids,
    base_tick=ticks.map(Tick),
    count=st.integers(1, (1 << 32) - 1),
    message_type=st.integers(-1, (1 << 32) - 1),
    columns_crc32c=st.integers(0, (1 << 32) - 1),
    columns=st.binary(max_size=100) | st.binary(min_size=MAX_INLINE_BYTES - 1, max_size=MAX_INLINE_BYTES + 2),
    broadcast_id=st.just(0) | ticks,
)

spans = st.builds(TxnSpan, u64, ticks, ticks)
staged_columns = st.builds(
    StagedColumns, st.integers(1, (1 << 32) - 1), st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 32) - 1)
)


def in_a_transaction(entry: NewEntry, span: TxnSpan, staged: StagedColumns | None) -> NewEntry:
    columns = entry.columns if staged is None else b""
    return replace(entry, txn=span, staged=staged, columns=columns, broadcast_id=0)


entries_of_all_kinds = entries | st.builds(in_a_transaction, entries, spans, st.none() | staged_columns)


@given(places, places)
def test_log_keys_sort_as_vchannel_and_tick_do(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (keys.log_key(*one) < keys.log_key(*other)) == (one < other)
    assert (keys.chunk_key(*one) < keys.chunk_key(*other)) == (one < other)
    assert keys.parse_log_key(keys.log_key(*one)) == one


@given(places, vchannel_ids)
def test_ranges_hold_the_keys_of_their_vchannel_only(place: tuple[int, int], vchannel_id: int) -> None:
    is_same = place[0] == vchannel_id
    assert (keys.log_key(vchannel_id, 0) <= keys.log_key(*place) < keys.log_end_key(vchannel_id)) == is_same
    begin, end = keys.index_range(vchannel_id)
    assert (begin <= keys.chunk_key(*place) < end) == is_same
    assert (begin <= keys.tail_key(place[0]) < end) == is_same


@given(places)
def test_index_keys_tell_their_kind(place: tuple[int, int]) -> None:
    chunk, tail = keys.chunk_key(*place), keys.tail_key(place[0])
    assert (keys.parse_chunk_key(chunk), keys.parse_tail_key(chunk)) == (place, None)
    assert (keys.parse_chunk_key(tail), keys.parse_tail_key(tail)) == (None, place[0])
    assert keys.parse_chunk_key(keys.STORE_KEY) is None
    assert keys.parse_tail_key(keys.STORE_KEY) is None


@given(entries, u64, u64, hashes)
def test_a_header_comes_back(entry: NewEntry, previous_tick: int, sequence: int, previous_hash: bytes) -> None:
    key, value, chain_hash, apart = pack_header(
        entry, previous_tick=previous_tick, sequence=sequence, previous_hash=previous_hash
    )
    header = unpack_header(key, value)
    for name in ("vchannel_id", "base_tick", "count", "message_type", "columns_crc32c", "broadcast_id"):
        assert getattr(header, name) == getattr(entry, name)
    assert (header.previous_tick, header.sequence, header.chain_hash) == (previous_tick, sequence, chain_hash)
    assert header.columns_bytes == len(entry.columns)
    is_small = len(entry.columns) <= MAX_INLINE_BYTES
    assert (header.inline_columns, apart) == ((entry.columns, None) if is_small else (None, entry.columns))
    chained = previous_hash + key + value[: value.index(chain_hash)]
    assert blake2b(chained, digest_size=HASH_BYTES).digest() == chain_hash


@given(st.lists(entries_of_all_kinds, min_size=1, max_size=8), u64, u64, hashes)
def test_links_of_rows_are_those_of_their_headers(
    several: list[NewEntry], previous_tick: int, sequence: int, previous_hash: bytes
) -> None:
    rows = [pack_header(entry, previous_tick, sequence, previous_hash)[:2] for entry in several]
    links = unpack_links([key for key, _ in rows], [value for _, value in rows])
    assert list(zip(*links, strict=True)) == [
        (
            header.base_tick, header.last_tick, header.previous_tick, header.sequence, header.chain_hash,
            header.columns_bytes,
        )
        for header in (unpack_header(key, value) for key, value in rows)
    ]  # fmt: skip


@given(vchannel_ids, rows_of(TailRow), rows_of(ChunkRow), rows_of(StoreRow))
def test_index_rows_come_back(vchannel_id: int, tail: TailRow, chunk: ChunkRow, store: StoreRow) -> None:
    assert unpack_tail(vchannel_id, pack_tail(vchannel_id, tail)) == tail
    assert unpack_chunk(vchannel_id, chunk.first_tick, pack_chunk(vchannel_id, chunk)) == chunk
    assert unpack_store(pack_store(store)) == store


ROWS: list[tuple[bytes, Callable[[bytes], object]]] = [
    (pack_tail(7, TailRow()), lambda value: unpack_tail(7, value)),
    (pack_chunk(7, ChunkRow._make([*range(11), bytes(16)])), lambda value: unpack_chunk(7, 0, value)),
    (pack_store(StoreRow(bytes(16), 0, 0, bytes(16), 0)), unpack_store),
    (
        pack_header(NewEntry(7, Tick(1), 1, 1, 1, b""), previous_tick=0, sequence=1, previous_hash=bytes(16))[1],
        lambda value: unpack_header(keys.log_key(7, 1), value),
    ),
    (
        pack_header(
            NewEntry(7, Tick(1), 1, 1, 1, b"", broadcast_id=9), previous_tick=0, sequence=1, previous_hash=bytes(16)
        )[1],
        lambda value: unpack_header(keys.log_key(7, 1), value),
    ),
    (
        pack_header(
            NewEntry(7, Tick(1), 1, 1, 1, bytes(MAX_INLINE_BYTES + 1)),
            previous_tick=0, sequence=1, previous_hash=bytes(16),
        )[1],
        lambda value: unpack_header(keys.log_key(7, 1), value),
    ),
]  # fmt: skip


def links_between(others: list[bytes], value: bytes) -> object:
    return unpack_links([keys.log_key(7, 1)] * (len(others) + 1), [*others[:1], value, *others[1:]])


# Header rows are also read for their links: alone, and between others of the same and of another form.
ROWS += [
    (row, partial(links_between, others)) for row, _ in ROWS[3:6] for others in ([], [ROWS[3][0]] * 2, [ROWS[4][0]])
]


@pytest.mark.parametrize(("row", "unpack"), ROWS)
def test_no_bit_of_a_row_can_flip_unseen(row: bytes, unpack: Callable[[bytes], object]) -> None:
    unpack(row)
    for position in range(len(row) * 8):
        flipped = bytearray(row)
        flipped[position // 8] ^= 1 << position % 8
        with pytest.raises(DataLossError):
            unpack(bytes(flipped))
    for size in range(len(row)):
        with pytest.raises(DataLossError):
            unpack(row[:size])


def test_a_header_with_unknown_flags_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "_INLINE", 2)
    entry = NewEntry(7, Tick(1), 1, 1, 1, b"")
    key, value, *_ = pack_header(entry, previous_tick=0, sequence=1, previous_hash=bytes(16))
    monkeypatch.undo()
    with pytest.raises(DataLossError, match="flags"):
        unpack_header(key, value)
    with pytest.raises(DataLossError, match="flags"):
        unpack_links([key], [value])


@given(vchannel_ids, vchannel_ids, rows_of(TailRow))
def test_a_row_in_the_place_of_another_is_refused(vchannel_id: int, other_id: int, tail: TailRow) -> None:
    if vchannel_id != other_id:
        with pytest.raises(DataLossError):
            unpack_tail(other_id, pack_tail(vchannel_id, tail))
