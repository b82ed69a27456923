"""Reads entries from RocksDB, and proves that none is missing.

An entry is a header in the family ``log``, and columns: after the header in its row if they are small, else in the
family ``columns`` under the same key. RocksDB's iterators fetch blobs eagerly, so headers are read with an iterator and
the columns of a page in one multi-get, which also lets other Python threads run.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

from crc32c import crc32c
from rocksdict import Rdict, RdictIter

from tidelog_server.core.entries import Entry, EntryHeader
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.ticks import MAX_TICK
from tidelog_server.storage.format.codec import (
    NO_HASH,
    ChunkRow,
    TailRow,
    rolled_hash,
    unpack_chunk,
    unpack_header,
)
from tidelog_server.storage.format.keys import index_range, log_end_key, log_key, parse_chunk_key, staged_key
from tidelog_server.storage.log_state import open_chunk
from tidelog_server.storage.rocksdb.engine import Engine, engine_errors, multi_get, read_options, scan
from tidelog_server.storage.rocksdb.links import first_gap, pages_of_links

_MAX_ATTEMPTS: Final = 100
_Rows = TypeVar("_Rows")
Resolve: TypeAlias = Callable[[list[bytes | None]], list[bytes | None]]
"""Returns the columns of stored values; None for those that are missing."""


class VchannelEnd(NamedTuple):
    """The end of a vchannel.

    Attributes:
        base_tick, last_tick, sequence, chain_hash: Of its last entry, see EntryHeader.
        opened: Number of entries in its open chunk.
        opened_hash: Hash over these, see ``roll_hash``.
    """

    base_tick: int
    last_tick: int
    sequence: int
    chain_hash: bytes
    opened: int
    opened_hash: bytes


class EntryReader:
    """Reads entries in any thread while the committer writes.

    A concurrent trim or drop deletes entries between two reads. So an entry that seems to be missing is only reported
    if the vchannel's trim tick has not changed since the read began. Ordering: the committer therefore changes
    ``tails`` before it deletes rows, and adds to it after it wrote rows.

    Attributes:
        tails: Tails of all vchannels, as far as readers see them.
    """

    def __init__(self, engine: Engine, tails: Mapping[int, TailRow], resolve: Resolve | None = None) -> None:
        """``resolve`` returns the columns of stored values; None if they are the columns."""
        self.tails = tails
        self._engine = engine
        self._resolve = resolve

    def read(self, vchannel_id: int, begin_tick: int, end_tick: int, max_bytes: int) -> list[Entry]:
        """Return entries, see LogStore.read.

        Raises:
            DataLossError: An entry is damaged or missing.
            KeyError: The vchannel does not exist, or was dropped meanwhile.
        """

        def read_as_of(tail: TailRow) -> list[Entry]:
            return self._read_as_of(tail, vchannel_id, begin_tick, end_tick, max_bytes)

        return self._unless_trimmed_meanwhile(vchannel_id, read_as_of)

    def page_of_headers(self, vchannel_id: int, begin_tick: int, end_tick: int, max_headers: int) -> list[EntryHeader]:
        """Return headers, see LogStore.headers. Raises like ``read``."""

        def read_as_of(tail: TailRow) -> list[EntryHeader]:
            return self._headers_as_of(tail, vchannel_id, begin_tick, end_tick, max_headers=max_headers)

        return self._unless_trimmed_meanwhile(vchannel_id, read_as_of)

    def columns(self, headers: Sequence[EntryHeader]) -> list[bytes | None]:
        """Return columns, see LogStore.columns.

        Raises:
            DataLossError: Columns are damaged or missing.
        """
        return [
            # Columns in the header's row are still available if it was read before a trim, but count as trimmed.
            None
            if (value is None or header.inline_columns is not None) and self._is_gone(header)
            else _check_columns(header, value)
            for header, value in zip(headers, self._stored_columns(headers), strict=True)
        ]

    def _is_gone(self, header: EntryHeader) -> bool:
        """Return whether an entry was trimmed, or its vchannel dropped, since its header was read."""
        tail = self.tails.get(header.vchannel_id)
        return tail is None or header.last_tick < tail.trim_tick

    def chunks(self, vchannel_id: int) -> list[ChunkRow]:
        """Return all chunks, oldest first, the open one included.

        Raises:
            DataLossError: A row is damaged or missing.
            KeyError: The vchannel does not exist, or was dropped meanwhile.
        """

        def read_as_of(tail: TailRow) -> list[ChunkRow]:
            last = open_chunk(tail)
            closed = self.closed_chunks(vchannel_id, tail)
            return [*closed, last] if last else closed

        return self._unless_trimmed_meanwhile(vchannel_id, read_as_of)

    def oldest_chunks(self, vchannel_id: int, end_tick: int, min_bytes: int) -> list[ChunkRow]:
        """Return chunks, see LogStore.oldest_chunks. Raises like ``chunks``."""

        def read_as_of(tail: TailRow) -> list[ChunkRow]:
            def is_enough(row: ChunkRow) -> bool:
                return end_tick <= row.last_tick and tail.trimmed_bytes + min_bytes <= end_bytes(row)

            rows = self.closed_chunks(vchannel_id, tail, is_enough)
            last = open_chunk(tail)
            return [*rows, last] if last and not (rows and is_enough(rows[-1])) else rows

        return self._unless_trimmed_meanwhile(vchannel_id, read_as_of)

    def headers(self, vchannel_id: int, begin_tick: int, end_tick: int) -> list[EntryHeader]:
        """Return the headers of all entries that overlap ``[begin_tick, end_tick)``, with the checks of ``read``.

        Only for a job of the committer, or while nothing is trimmed.
        """
        tail = self.tails[vchannel_id]
        return self._headers_as_of(tail, vchannel_id, begin_tick, end_tick)

    def closed_chunks(
        self, vchannel_id: int, tail: TailRow, is_enough: Callable[[ChunkRow], bool] | None = None
    ) -> list[ChunkRow]:
        """Return the closed chunks as of ``tail``, oldest first, up to the first one for which ``is_enough`` is true.

        Only for a job of the committer, or while nothing is trimmed.

        Raises:
            DataLossError: A row is damaged or missing.
        """
        rows: list[ChunkRow] = []
        closed_batches = tail.batches - tail.open_batches
        for key, value in scan(self._engine.index, *index_range(vchannel_id)):
            if place := parse_chunk_key(key):
                row = unpack_chunk(*place, value)
                if closed_batches <= row.batches_before:
                    break  # Closed after ``tail`` was taken.
                rows.append(row)
                if is_enough is not None and is_enough(row):
                    check_continuity(vchannel_id, tail, rows, is_whole=False)
                    return rows
        check_continuity(vchannel_id, tail, rows)
        return rows

    def _unless_trimmed_meanwhile(self, vchannel_id: int, read_as_of: Callable[[TailRow], _Rows]) -> _Rows:
        for _ in range(_MAX_ATTEMPTS):
            # Ordering: the tail first. Later writes may or may not be seen, but earlier ones are never missed.
            tail = self.tails[vchannel_id]
            try:
                return read_as_of(tail)
            except DataLossError:
                if self.tails[vchannel_id].trim_tick == tail.trim_tick:
                    raise
        raise AssertionError("the vchannel was trimmed continuously during one read")

    def _read_as_of(
        self, tail: TailRow, vchannel_id: int, begin_tick: int, end_tick: int, max_bytes: int
    ) -> list[Entry]:
        headers = self._headers_as_of(tail, vchannel_id, begin_tick, end_tick, max_bytes=max_bytes)
        columns = self._stored_columns(headers)
        return [Entry(header, _check_columns(header, value)) for header, value in zip(headers, columns, strict=True)]

    def _stored_columns(self, headers: Sequence[EntryHeader]) -> list[bytes | None]:
        if not headers:
            return []
        with engine_errors(
            "reading columns", vchannel_id=headers[0].vchannel_id,
            first_tick=headers[0].base_tick, last_tick=headers[-1].last_tick,
        ):  # fmt: skip
            return stored_columns(self._engine, headers, self._resolve)

    def _headers_as_of(
        self,
        tail: TailRow,
        vchannel_id: int,
        begin_tick: int,
        end_tick: int,
        *,
        max_bytes: int | None = None,
        max_headers: int | None = None,
    ) -> list[EntryHeader]:
        begin_tick = max(begin_tick, tail.trim_tick)
        if end_tick <= begin_tick or tail.last_tick < begin_tick:
            return []
        with engine_errors("reading headers", vchannel_id=vchannel_id, first_tick=begin_tick, last_tick=end_tick):
            rows = self._engine.log.iter(read_options())
            previous_tick = _seek(rows, tail, vchannel_id, begin_tick)
            headers: list[EntryHeader] = []
            page_bytes = 0
            end_key = log_end_key(vchannel_id)
            while rows.valid() and (key := rows.key()) < end_key:
                header = unpack_header(key, rows.value())
                if header.previous_tick != previous_tick:
                    raise _loss("an entry is missing", vchannel_id, previous_tick + 1, header.base_tick - 1)
                if end_tick <= header.base_tick:
                    return headers
                headers.append(header)
                previous_tick = header.last_tick
                page_bytes += header.columns_bytes
                if (max_bytes is not None and max_bytes <= page_bytes) or len(headers) == max_headers:
                    return headers
                rows.next()
            rows.status()
        if previous_tick < tail.last_tick:
            raise _loss("an entry is missing", vchannel_id, previous_tick + 1, tail.last_tick)
        return headers


def stored_columns(
    engine: Engine, headers: Sequence[EntryHeader], resolve: Resolve | None = None
) -> list[bytes | None]:
    """Return the columns of entries as stored, unchecked; None for missing ones. ``resolve``: see ``EntryReader``.

    Raises:
        Exception: RocksDB's own; call this inside ``engine_errors``.
    """
    written, staged = [], []
    for header in headers:
        if header.inline_columns is not None:
            continue
        if header.staged_sequence and header.txn is not None:
            staged.append(staged_key(header.vchannel_id, header.txn.txn_id, header.staged_sequence))
        else:
            written.append(log_key(header.vchannel_id, header.base_tick))
    found = iter(_resolved(engine.columns, written, resolve)), iter(_resolved(engine.staged, staged, resolve))
    return [
        next(found[header.staged_sequence > 0]) if header.inline_columns is None else header.inline_columns
        for header in headers
    ]


def _resolved(family: Rdict, keys: Sequence[bytes], resolve: Resolve | None) -> list[bytes | None]:
    """Return the columns at keys; None for missing ones."""
    values = multi_get(family, keys)
    if resolve is None:
        return values
    columns = resolve(values)
    # What a value refers to may be deleted once the columns were written again: then the value is another one.
    missing = [place for place, found in enumerate(columns) if found is None and values[place] is not None]
    while missing:
        current = multi_get(family, [keys[place] for place in missing])
        changed = [(place, now) for place, now in zip(missing, current, strict=True) if now != values[place]]
        for (place, now), found in zip(changed, resolve([now for _, now in changed]), strict=True):
            values[place], columns[place] = now, found
        missing = [place for place, now in changed if columns[place] is None and now is not None]
    return columns


def checked_end(rows: RdictIter, vchannel_id: int, tail: TailRow, begin_tick: int) -> VchannelEnd:
    """Check every link of a vchannel from ``begin_tick`` up to the end of ``tail``; return where it ends.

    Only while nothing is written.

    Args:
        rows: Iterator over the log family; shared by all vchannels, because making one takes as long as dozens of rows.
        vchannel_id: Id of the vchannel.
        tail: Its tail, with an entry at or above ``begin_tick`` and the trim tick.
        begin_tick: Tick to begin at.

    Raises:
        DataLossError: An entry is damaged or missing.
    """
    begin_tick = max(begin_tick, tail.trim_tick)
    open_first_tick = tail.open_first_tick if tail.open_batches else MAX_TICK
    opened, opened_hash, last = 0, NO_HASH, None
    with engine_errors("reading headers", vchannel_id=vchannel_id, first_tick=begin_tick):
        previous_tick = _seek(rows, tail, vchannel_id, begin_tick)
        for links in pages_of_links(rows, log_key(vchannel_id, tail.last_tick + 1)):
            if (gap := first_gap(links, previous_tick)) is not None:
                end_tick = links.last_ticks[gap - 1] if gap else previous_tick
                raise _loss("an entry is missing", vchannel_id, end_tick + 1, links.base_ticks[gap] - 1)
            in_open_chunk = links.chain_hashes[bisect_left(links.base_ticks, open_first_tick) :]
            opened += len(in_open_chunk)
            opened_hash = rolled_hash(opened_hash, in_open_chunk)
            previous_tick, last = links.last_ticks[-1], links
    if last is None or previous_tick < tail.last_tick:
        raise _loss("an entry is missing", vchannel_id, previous_tick + 1, tail.last_tick)
    return VchannelEnd(
        last.base_ticks[-1], previous_tick, last.sequences[-1], last.chain_hashes[-1], opened, opened_hash
    )


def end_bytes(row: ChunkRow) -> int:
    """Return the cumulative bytes of the vchannel's columns up to the end of a chunk."""
    return row.bytes_before + row.columns_bytes


def check_continuity(vchannel_id: int, tail: TailRow, closed: Sequence[ChunkRow], *, is_whole: bool = True) -> None:
    """Check that closed chunks of a vchannel are contiguous from its trim and, if whole, up to its open chunk.

    Raises:
        DataLossError: A chunk row is missing.
    """
    batches, next_tick = tail.removed_batches, tail.trim_tick
    for row in closed:
        if row.batches_before != batches:
            raise _loss("a chunk row is missing", vchannel_id, next_tick, row.first_tick - 1)
        batches, next_tick = row.batches_before + row.batches, row.last_tick + 1
    if is_whole and batches != tail.batches - tail.open_batches:
        raise _loss("a chunk row is missing", vchannel_id, next_tick, tail.last_tick)


def _seek(rows: RdictIter, tail: TailRow, vchannel_id: int, begin_tick: int) -> int:
    """Seek ``rows`` to the first entry that ends at or after ``begin_tick``; return its proven previous tick."""
    rows.seek_for_prev(log_key(vchannel_id, begin_tick))
    rows.status()
    if rows.valid() and log_key(vchannel_id, 0) <= (key := rows.key()):
        header = unpack_header(key, rows.value())
        if begin_tick <= header.last_tick:
            return header.previous_tick
        rows.next()
        return header.last_tick
    rows.seek(log_key(vchannel_id, 0))
    if not rows.valid() or log_end_key(vchannel_id) <= (key := rows.key()):
        return 0  # No entry is left; the caller checks the status and compares with the tail.
    first = unpack_header(key, rows.value())
    # Trimmed entries ended below the trim tick; without a trim the first entry has no predecessor.
    if first.previous_tick >= max(tail.trim_tick, 1):
        raise _loss("an entry is missing", vchannel_id, tail.trim_tick, first.base_tick - 1)
    return first.previous_tick


def _check_columns(header: EntryHeader, columns: bytes | None) -> bytes:
    """Return the columns if they match their CRC in ``header``."""
    if columns is None:
        raise _loss("an entry's columns are missing", header.vchannel_id, header.base_tick, header.last_tick)
    if len(columns) != header.columns_bytes or crc32c(columns) != header.stored_crc32c:
        raise _loss("an entry's columns are damaged", header.vchannel_id, header.base_tick, header.last_tick)
    return columns


def _loss(what: str, vchannel_id: int, first_tick: int, last_tick: int) -> DataLossError:
    return DataLossError(
        f"vchannel id {vchannel_id}, ticks {first_tick} to {last_tick}: {what}; restore the data folder from a backup",
        vchannel_id=vchannel_id, first_tick=first_tick, last_tick=last_tick,
    )  # fmt: skip
