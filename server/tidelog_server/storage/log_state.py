"""The state of a log store between two writes: sequence, chain of hashes, tails. Pure; no I/O.

Every log store has one, so that all of them number, link and trim in the same way. The committer stages entries,
writes the resulting rows, and then publishes::

    state.begin()
    for entry in entries:
        row = state.stage(entry)  # nothing is visible yet
    ...  # one atomic write of all rows
    state.publish()  # tails and head change, for any thread
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog_server.core.entries import EntryHeader, NewEntry
from tidelog_server.core.limits import CHUNK_BYTES
from tidelog_server.core.ticks import NO_TICK, Tick
from tidelog_server.storage.format.codec import (
    NO_HASH,
    ChunkRow,
    Links,
    StoreRow,
    TailRow,
    pack_header,
    roll_hash,
    rolled_hash,
)
from tidelog_server.storage.log_store import StoreHead, VchannelTail

CHUNK_BATCHES: Final = 1_024
"""Entries at which a chunk is closed even if it is small: bounds what a trim and the start-up gate read."""

TAIL_BATCHES: Final = 16
"""A tail row is written every ``TAIL_BATCHES`` entries, so recovery replays at most ``TAIL_BATCHES - 1`` entries per
vchannel. A clean stop writes all of them.

Why: a broadcast has one entry on each of many vchannels, and a tail takes as long to write as the entry.
"""


class StagedEntry(NamedTuple):
    """The rows to write for an entry.

    Attributes:
        key: Key of the header and of the columns.
        header: Header row, with the columns if they are small.
        columns: Columns that need their own row; None if they are in the header's row or were staged.
        tail: Tail of the vchannel if its row is due.
        chunk: The chunk that the entry closes, if any.
    """

    key: bytes
    header: bytes
    columns: bytes | None
    tail: TailRow | None
    chunk: ChunkRow | None


class EntryCut(NamedTuple):
    """The state of a vchannel after a trim, with cumulative counts of all entries entirely below, since its creation.

    Attributes:
        trim_tick: First tick that remains.
        end_tick: Base tick below which entries are removed; below ``trim_tick`` if the cut divides an entry.
        batches, messages, columns_bytes: Counts of the removed entries.
        removed_batches: Entries in the removed chunk rows.
    """

    trim_tick: int
    end_tick: int
    batches: int
    messages: int
    columns_bytes: int
    removed_batches: int


class LogState:
    """Tails of all vchannels and the head of the store.

    Threads: all changes are made by the committer, one call at a time. ``head``, ``tails`` and ``fencing_tokens`` may
    be read by any thread: the values are immutable and replaced as a whole.

    Invariant: the batches of all tails and ``destroyed_batches`` add up to the head's sequence.
    """

    def __init__(
        self, store: StoreRow, tails: dict[int, TailRow], fencing_tokens: dict[int, int] | None = None
    ) -> None:
        self.incarnation = store.incarnation
        self.destroyed_batches = store.destroyed_batches
        self.tails = tails
        # Only of vchannels that have a token.
        self.fencing_tokens = {} if fencing_tokens is None else fencing_tokens
        self.staged: dict[int, TailRow] = {}
        self.head = _recovered_head(store, tails)
        self.begin()

    @property
    def accounted_batches(self) -> int:
        """Number of entries that the tails and the dropped vchannels account for."""
        return self.destroyed_batches + sum(tail.batches for tail in self.tails.values())

    def store_row(self) -> StoreRow:
        """Return the store's row as of now."""
        head = self.head
        return StoreRow(self.incarnation, self.destroyed_batches, head.sequence, head.chain_hash, head.last_tick)

    def begin(self) -> None:
        """Discard staged entries that were not published."""
        self.staged.clear()
        self._sequence, self._chain_hash = self.head.sequence, self.head.chain_hash
        self._last_tick: int = self.head.last_tick

    def stage(self, entry: NewEntry) -> StagedEntry:
        """Number and link an entry; return the rows to write for it. KeyError if its vchannel does not exist."""
        vchannel_id = entry.vchannel_id
        tail = self.staged.get(vchannel_id) or self.tails[vchannel_id]
        assert tail.last_tick < entry.base_tick
        assert tail.trim_tick <= entry.base_tick
        assert 0 < entry.count
        sequence = self._sequence + 1
        key, header, chain_hash, columns = pack_header(entry, tail.last_tick, sequence, self._chain_hash)
        tail = _with_entry(tail, entry, sequence, chain_hash)
        chunk = None
        if tail.open_bytes >= CHUNK_BYTES or tail.open_batches >= CHUNK_BATCHES:
            chunk = open_chunk(tail)
            tail = _with_chunk_closed(tail)
        self.staged[vchannel_id] = tail
        self._sequence = sequence
        self._chain_hash = chain_hash
        self._last_tick = max(self._last_tick, tail.last_tick)
        due_tail = None if chunk is None and tail.batches % TAIL_BATCHES else tail
        # Without a call of Python code, because this runs for each entry.
        return tuple.__new__(StagedEntry, (key, header, columns, due_tail, chunk))

    def publish(self) -> None:
        """Make the staged entries visible."""
        # Each staged vchannel has at least one new entry, and the head never moves back.
        assert self.head.sequence + len(self.staged) <= self._sequence
        assert self.head.last_tick <= self._last_tick
        self.tails.update(self.staged)
        self.staged.clear()
        self.head = self.staged_head()

    def staged_head(self) -> StoreHead:
        """Return the head that ``publish`` will make visible."""
        return StoreHead(self._sequence, self._chain_hash, Tick(self._last_tick))

    def stale_tails(self) -> dict[int, TailRow]:
        """Return the tails whose rows may be older, by vchannel id."""
        return {
            vchannel_id: tail
            for vchannel_id, tail in self.tails.items()
            if tail.open_batches and tail.batches % TAIL_BATCHES
        }

    def absent(self, vchannel_ids: Iterable[int]) -> list[int]:
        """Return those of ``vchannel_ids`` that do not exist, without duplicates, in order."""
        return sorted(set(vchannel_ids) - self.tails.keys())

    def drop(self, vchannel_ids: Iterable[int]) -> list[int]:
        """Remove vchannels; return those that existed, in order. The store's row must be written in the same write."""
        dropped = sorted(set(vchannel_ids) & self.tails.keys())
        self.destroyed_batches += sum(self.tails.pop(vchannel_id).batches for vchannel_id in dropped)
        for vchannel_id in dropped:
            self.fencing_tokens.pop(vchannel_id, None)
        assert self.destroyed_batches <= self.head.sequence
        return dropped


def _recovered_head(store: StoreRow, tails: dict[int, TailRow]) -> StoreHead:
    """Return the head that follows from the rows of a store."""
    last_tick = Tick(max(store.last_tick, *(tail.last_tick for tail in tails.values()), 0))
    last = max(tails.values(), key=lambda tail: tail.last_sequence, default=TailRow())
    if store.sequence < last.last_sequence:
        return StoreHead(last.last_sequence, last.last_chain_hash, last_tick)
    return StoreHead(store.sequence, store.chain_hash, last_tick)


def uncut(tail: TailRow) -> EntryCut:
    """Return the cut that changes nothing."""
    return EntryCut(
        tail.trim_tick, tail.trim_tick, tail.trimmed_batches, tail.trimmed_messages, tail.trimmed_bytes,
        tail.removed_batches,
    )  # fmt: skip


def cut_after_chunk(chunk: ChunkRow) -> EntryCut:
    """Return the cut that removes ``chunk`` and all before it."""
    batches = chunk.batches_before + chunk.batches
    return EntryCut(
        chunk.last_tick + 1, chunk.last_tick + 1, batches, chunk.messages_before + chunk.messages,
        chunk.bytes_before + chunk.columns_bytes, batches,
    )  # fmt: skip


def cut_after(cut: EntryCut, header: EntryHeader) -> EntryCut:
    """Return the cut that also removes the next entry."""
    # The entry that the last trim divided begins below the trim tick.
    assert cut.trim_tick <= header.last_tick
    return EntryCut(
        header.last_tick + 1, header.last_tick + 1, cut.batches + 1, cut.messages + header.count,
        cut.columns_bytes + header.columns_bytes, cut.removed_batches,
    )  # fmt: skip


def cut_within(cut: EntryCut, header: EntryHeader, before_tick: int) -> EntryCut:
    """Return the cut that hides the next entry's messages below ``before_tick`` but retains the entry."""
    assert cut.trim_tick <= before_tick <= header.last_tick
    if before_tick <= header.base_tick:
        return cut
    return cut._replace(trim_tick=before_tick, end_tick=header.base_tick)


def trimmed(tail: TailRow, cut: EntryCut) -> TailRow:
    """Return the tail after a trim."""
    assert tail.trim_tick < cut.trim_tick <= tail.last_tick + 1
    assert tail.trimmed_batches <= cut.batches <= tail.batches
    assert cut.removed_batches <= cut.batches
    return tail._replace(
        trim_tick=cut.trim_tick,
        trimmed_batches=cut.batches,
        trimmed_messages=cut.messages,
        trimmed_bytes=cut.columns_bytes,
        removed_batches=cut.removed_batches,
    )


def open_chunk(tail: TailRow) -> ChunkRow | None:
    """Return the chunk that is not closed yet, or None if it is empty."""
    if not tail.open_batches:
        return None
    return ChunkRow(
        tail.open_first_tick, tail.last_tick, tail.last_base_tick, tail.open_first_sequence, tail.last_sequence,
        tail.open_batches, tail.open_messages, tail.open_bytes,
        tail.batches - tail.open_batches, tail.messages - tail.open_messages, tail.columns_bytes - tail.open_bytes,
        tail.open_hash,
    )  # fmt: skip


def as_vchannel_tail(row: TailRow, fencing_token: int = 0) -> VchannelTail:
    """Return the VchannelTail of a tail row."""
    return VchannelTail(
        Tick(row.trim_tick), Tick(row.last_tick), row.batches, row.messages, row.columns_bytes,
        row.trimmed_messages, row.trimmed_bytes, fencing_token,
    )  # fmt: skip


def _with_entry(tail: TailRow, entry: NewEntry, sequence: int, chain_hash: bytes) -> TailRow:
    """Return the tail after one more entry.

    Unpacked and made as a plain tuple, because this runs for each entry.
    """
    (
        trim_tick, _, batches, messages, columns_bytes, trimmed_batches, trimmed_messages, trimmed_bytes,
        _, _, _, open_first_tick, open_first_sequence, open_batches, open_messages, open_bytes, open_hash,
        removed_batches,
    ) = tail  # fmt: skip
    base_tick, count, size_bytes = entry.base_tick, entry.count, entry.columns_bytes
    return tuple.__new__(TailRow, (
        trim_tick, base_tick + count - 1, batches + 1, messages + count, columns_bytes + size_bytes, trimmed_batches,
        trimmed_messages, trimmed_bytes, base_tick, sequence, chain_hash, open_first_tick or base_tick,
        open_first_sequence or sequence, open_batches + 1, open_messages + count, open_bytes + size_bytes,
        roll_hash(open_hash, chain_hash), removed_batches,
    ))  # fmt: skip


def extended(tail: TailRow, links: Links) -> TailRow:
    """Return the tail after more entries, none of which closes a chunk."""
    base_ticks, last_ticks, _, sequences, chain_hashes, sizes = links
    batches, size_bytes = len(base_ticks), sum(sizes)
    messages = sum(last_ticks) - sum(base_ticks) + batches
    return tail._replace(
        last_tick=last_ticks[-1],
        batches=tail.batches + batches,
        messages=tail.messages + messages,
        columns_bytes=tail.columns_bytes + size_bytes,
        last_base_tick=base_ticks[-1],
        last_sequence=sequences[-1],
        last_chain_hash=chain_hashes[-1],
        open_first_tick=tail.open_first_tick or base_ticks[0],
        open_first_sequence=tail.open_first_sequence or sequences[0],
        open_batches=tail.open_batches + batches,
        open_messages=tail.open_messages + messages,
        open_bytes=tail.open_bytes + size_bytes,
        open_hash=rolled_hash(tail.open_hash, chain_hashes),
    )


def _with_chunk_closed(tail: TailRow) -> TailRow:
    assert 0 < tail.open_batches <= tail.batches
    return tail._replace(
        open_first_tick=NO_TICK,
        open_first_sequence=0,
        open_batches=0,
        open_messages=0,
        open_bytes=0,
        open_hash=NO_HASH,
    )
