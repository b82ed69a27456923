"""Entries for tests of the stores: small, distinct, and cheap to compare."""

from collections.abc import Iterator
from dataclasses import replace

from crc32c import crc32c

from tidelog_server.core.entries import Entry, NewEntry, StagedBatch, StagedColumns, TxnSpan
from tidelog_server.core.ticks import MAX_TICK, Tick
from tidelog_server.storage.log_store import LogStore

FIRST_TICK = Tick(1_000)
END = MAX_TICK


def new_entry(vchannel_id: int, base_tick: int, *, count: int = 10, size_bytes: int = 100) -> NewEntry:
    """Return an entry whose columns depend on its position, so that no two are equal."""
    seed = f"{vchannel_id}/{base_tick};".encode()
    columns = (seed * (size_bytes // len(seed) + 1))[:size_bytes]
    return NewEntry(vchannel_id, Tick(base_tick), count, 7, base_tick & 0xFFFF_FFFF, columns)


def staged_batch(entry: NewEntry, txn_id: int, sequence: int) -> StagedBatch:
    """Return the batch of ``entry`` as staged by a staged transaction."""
    return StagedBatch(entry.vchannel_id, txn_id, sequence, entry.columns)


def committed(entry: NewEntry, txn_id: int, sequence: int, first_tick: int, last_tick: int) -> NewEntry:
    """Return ``entry`` as committed after it was staged."""
    staged = StagedColumns(sequence, len(entry.columns), crc32c(entry.columns))
    return replace(entry, columns=b"", txn=TxnSpan(txn_id, first_tick, last_tick), staged=staged)


def run_of_entries(
    vchannel_id: int, entries: int, *, first_tick: int = FIRST_TICK, count: int = 10, size_bytes: int = 100
) -> list[NewEntry]:
    """Return consecutive entries with a gap of one tick between them."""
    return [
        new_entry(vchannel_id, first_tick + i * (count + 1), count=count, size_bytes=size_bytes) for i in range(entries)
    ]


def place_and_columns(entry: Entry | NewEntry) -> tuple[int, int, int, bytes]:
    """Return the fields that an entry read must share with the one written."""
    header = entry.header if isinstance(entry, Entry) else entry
    return header.vchannel_id, header.base_tick, header.count, entry.columns


def read_all(store: LogStore, vchannel_id: int, *, max_bytes: int = 1 << 20) -> Iterator[Entry]:
    """Yield all entries of a vchannel, page by page."""
    begin_tick = 0
    while page := store.read(vchannel_id, begin_tick, END, max_bytes):
        yield from page
        begin_tick = page[-1].header.last_tick + 1


def fill(store: LogStore, *, size_bytes: int) -> None:
    """Write entries of all sizes, most of ``size_bytes``, staged batches, trims, drops and tokens to a new store."""
    store.create_vchannels([1, 2, 3])
    for entry in run_of_entries(1, 40, size_bytes=size_bytes):
        store.write([entry, new_entry(2, entry.base_tick, size_bytes=20), new_entry(3, entry.base_tick)])
    store.write([new_entry(1, 10_000, size_bytes=2_500_000), new_entry(2, 10_000, size_bytes=513)])
    entry = new_entry(2, 20_000, size_bytes=70_000)
    store.write([], staged=[staged_batch(entry, 5, 1), staged_batch(new_entry(2, 30_000), 6, 1)])
    store.write([committed(entry, 5, 1, entry.base_tick, entry.last_tick)])
    store.sync()
    store.trim(1, 1_100)
    store.drop_vchannels([3])
    store.fence(2, 7)
