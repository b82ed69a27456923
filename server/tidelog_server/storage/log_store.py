"""The log store, which contains the entries: the contract of every implementation.

One store belongs to one node and contains all of its vchannels. It has one writer and many readers::

    vchannel   trimmed        | readable                  | written, not yet synced
               ---------------^---------------------------^------------------------
                          trim_tick              (the log's watermark)

The store does not know the watermark: it returns whatever was written. The log above it never requests more than is
durable.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tidelog_server.core.entries import Entry, EntryHeader, NewEntry, StagedBatch
from tidelog_server.core.ticks import Tick
from tidelog_server.core.transactions import TxnPlace
from tidelog_server.storage.rows import Key, Row, Table, Value


@dataclass(frozen=True, slots=True)
class VchannelTail:
    """The state of a vchannel after its last written entry.

    Invariant: ``trim_tick <= last_tick + 1`` unless the vchannel is empty.

    Attributes:
        trim_tick: First tick that was not trimmed; 0 if nothing was ever trimmed.
        last_tick: Last tick of the last entry ever written, trimmed or not; 0 before the first.
        batches, messages, columns_bytes: Cumulative since creation, trimmed ones included.
        trimmed_messages, trimmed_bytes: Cumulative, of entries that are entirely below ``trim_tick``.
        fencing_token: Last token set; 0 if not set.
    """

    trim_tick: Tick
    last_tick: Tick
    batches: int
    messages: int
    columns_bytes: int
    trimmed_messages: int
    trimmed_bytes: int
    fencing_token: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A row of the sparse index: a run of consecutive entries of one vchannel, of about CHUNK_BYTES.

    Attributes:
        first_tick, last_tick: Ticks of its first and last message, both inclusive.
        batches, messages, columns_bytes: Counts of the chunk.
        messages_before, bytes_before: Cumulative counts of the vchannel before it.
    """

    first_tick: Tick
    last_tick: Tick
    batches: int
    messages: int
    columns_bytes: int
    messages_before: int
    bytes_before: int


class StoreHead(NamedTuple):
    """The last entry of the whole store.

    Attributes:
        sequence: Number of the entry, from 1 without gaps; 0 if the store is empty.
        chain_hash: Its chain hash.
        last_tick: The greatest tick in the store; 0 if it is empty.
    """

    sequence: int
    chain_hash: bytes
    last_tick: Tick


class LogStore(Protocol):
    """Entries of all vchannels of a node.

    Threads: ``write``, ``discard``, ``trim``, ``fence``, ``create_vchannels``, ``drop_vchannels`` and ``close`` are
    called one at a time, by any thread, and so is ``sync``; but a ``write`` may run while another thread is in
    ``sync``, so that the next group is written during disk I/O. All others may be called by any thread at any time
    until ``close``.

    Failure: the first failed write or sync stops the store. That call and every later change raise StorageFailedError
    with the first cause; reads continue.
    """

    @property
    def wal_name(self) -> str:
        """Name of this kind of store, for clients; message ids can only be compared within one kind."""
        ...

    @property
    def head(self) -> StoreHead:
        """The last entry written."""
        ...

    def write(self, entries: Sequence[NewEntry], rows: Sequence[Row] = (), staged: Sequence[StagedBatch] = ()) -> None:
        """Write entries, changes of rows, and batches of staged transactions in one atomic write, in order.

        Of several changes of a row, the last one holds. The vchannels of staged batches must exist (asserted).

        The columns of an entry with ``staged`` are those of the staged batch of its vchannel, transaction and number.
        All other staged batches of the transaction on the vchannel are retained until the last of its entries is
        trimmed.

        Not durable before the next ``sync``; after a crash, a prefix of the writes since the last sync may be there,
        each complete.

        The ticks of a vchannel must grow from entry to entry (asserted).

        Raises:
            StorageFailedError: The outcome is unknown until a restart.
        """
        ...

    def sync(self) -> None:
        """Make everything durable whose ``write`` returned before this call. Releases the GIL during disk I/O.

        Raises:
            StorageFailedError: Writes since the last sync may or may not be there after a restart.
        """
        ...

    def read(self, vchannel_id: int, begin_tick: int, end_tick: int, max_bytes: int) -> list[Entry]:
        """Return the consecutive entries that overlap ``[begin_tick, end_tick)``, oldest first.

        Stops after the entry that brings the columns to ``max_bytes`` or more, so at least one entry is returned if
        there is any. The first and the last entry may extend beyond the range: callers cut them. Every entry is checked
        against its predecessor's ``last_tick``, and the first and the last one against the trim tick and the tail. So
        an empty list proves that the range has no entries.

        Raises:
            DataLossError: An entry is damaged or missing; names vchannel id and ticks.
        """
        ...

    def headers(self, vchannel_id: int, begin_tick: int, end_tick: int, max_headers: int) -> list[EntryHeader]:
        """Return the headers that ``read`` would return, at most ``max_headers``, with the same checks.

        Why: a scan of many vchannels merges headers, so that its memory is limited to the columns of one response.
        """
        ...

    def columns(self, headers: Sequence[EntryHeader]) -> list[bytes | None]:
        """Return the columns of entries of any vchannels, in the given order; None for an entry trimmed meanwhile.

        Raises:
            DataLossError: Columns are damaged or missing though their entry was not trimmed.
        """
        ...

    def tail(self, vchannel_id: int) -> VchannelTail:
        """Return the state of a vchannel after the last write. KeyError if it was never created."""
        ...

    def discard(self, places: Mapping[TxnPlace, int | None]) -> None:
        """Delete staged batches of transactions that will never commit. Places without staged batches are skipped.

        The value of a place is the number of its batches, if known: small numbers are deleted more cheaply.

        Not durable before the next ``sync``. ``reclaim`` frees the disk space.
        """
        ...

    def staged(self) -> list[TxnPlace]:
        """Return the places with staged batches of uncommitted transactions; meant for the start.

        Raises:
            DataLossError: A row is damaged.
        """
        ...

    def rows(self, table: Table[Key, Value]) -> dict[Key, Value]:
        """Return the rows of a table, including writes not synced; meant for the start.

        Raises:
            DataLossError: A row is damaged.
        """
        ...

    def vchannel_ids(self) -> list[int]:
        """Return the vchannels that exist, in order."""
        ...

    def chunks(self, vchannel_id: int, begin_tick: int, end_tick: int) -> list[Chunk]:
        """Return the chunks that overlap ``[begin_tick, end_tick)``, oldest first, the open one included."""
        ...

    def oldest_chunks(self, vchannel_id: int, end_tick: int, min_bytes: int) -> list[Chunk]:
        """Return the oldest chunks, the open one included: all that end below ``end_tick``, and more as needed.

        Enough that the data left of them is at least ``min_bytes`` and that the last one ends at or above ``end_tick``,
        if the vchannel has that many. The time is proportional to the result, not to the vchannel. KeyError like
        ``tail``.
        """
        ...

    def create_vchannels(self, vchannel_ids: Iterable[int]) -> None:
        """Create empty vchannels, atomically and durably. Existing ones are not changed."""
        ...

    def drop_vchannels(self, vchannel_ids: Iterable[int], rows: Sequence[Row] = ()) -> None:
        """Delete vchannels with all their entries, atomically and durably. Missing ones are skipped.

        Rows that belong to a vchannel are deleted with it (see ``Table.is_of_vchannel``). ``rows`` are changed in the
        same write.
        """
        ...

    def trim(self, vchannel_id: int, before_tick: int) -> VchannelTail:
        """Raise ``trim_tick`` to ``before_tick``, durably, and delete entries that are entirely below it.

        If ``before_tick`` is between two entries or beyond the last one, ``trim_tick`` becomes the tick after the last
        deleted message, so that a reader that has read all deleted messages stays in range.

        Trimming below an earlier trim changes nothing. ``reclaim`` frees the disk space.
        """
        ...

    def fence(self, vchannel_id: int, fencing_token: int) -> None:
        """Raise the fencing token of a vchannel, durably. A token that is not greater changes nothing.

        The store only persists the token; the writer checks it.
        """
        ...

    def reclaim(self) -> None:
        """Free the disk space of trimmed and dropped entries. Takes long; called by its own thread."""
        ...

    def stall_reason(self) -> str | None:
        """Return why a write would have to wait for background work now, else None. Cheap; called before each group.

        Why: a stalled RocksDB write holds the GIL, which would block the whole process.
        """
        ...

    def metrics(self) -> dict[str, float]:
        """Return gauges of the engine, by name with unit, for ``/metrics``."""
        ...

    def close(self) -> None:
        """Sync, record the clean shutdown, and release everything. Idempotent."""
        ...
