"""The log store, which contains the entries: the contract of every implementation.

One store belongs to one node and contains all of its vchannels. It has one writer and many readers::

    vchannel   trimmed        | readable                  | written, not yet synced
               ---------------^---------------------------^------------------------
                          trim_tick              (the log's watermark)

The store does not know the watermark: it returns whatever was written, or, if others may replace its writer, whatever
is durable. The log above it never requests more than is durable.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from tidelog_server.core.entries import Entry, EntryHeader, NewEntry, StagedBatch
from tidelog_server.core.errors.cluster import LogFailure
from tidelog_server.core.ticks import Tick
from tidelog_server.core.transactions import TxnPlace
from tidelog_server.runtime.engine_figures import Figure
from tidelog_server.storage.format.codec import ChunkRow
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


WriteMark: TypeAlias = int
"""Names a write for ``LogStore.sync``."""

Change: TypeAlias = Callable[[], None]
"""A change of the store, to be called as its other changes are."""


class WriteTraits(NamedTuple):
    """How the writes of a store are committed.

    Attributes:
        groups_ahead: Maximum number of groups that are written and not settled.
        always_syncs: True if no write may be acknowledged before a sync, because the end of this process may lose it.
        gives_up_syncs: True if ``sync_soon`` ends in time however long a sync takes.
    """

    groups_ahead: int = 2
    always_syncs: bool = False
    gives_up_syncs: bool = False


class LogFigures(NamedTuple):
    """Figures of a log in an engine, as far as this process knows it.

    Attributes:
        term: Term of this process.
        records: Positions that the engine has, about; some may have no record.
        appended_bytes: Bytes that this process has appended.
        unconfirmed_bytes: Bytes of these that are not confirmed.
        foreign: Records of other programs and logs that were skipped since the start.
        fenced: Records of former owners, and repetitions, that were skipped since the start.
        views_rebuilt: Views that could not be used and were made again at the start.
    """

    term: int
    records: int
    appended_bytes: int
    unconfirmed_bytes: int
    foreign: int
    fenced: int
    views_rebuilt: int


class LogStore(Protocol):
    """Entries of all vchannels of a node.

    Threads: ``write``, ``discard``, ``trim``, ``fence``, ``create_vchannels``, ``drop_vchannels`` and ``close`` are
    called one at a time, by any thread, and so is ``sync``; but a ``write`` may run while another thread is in
    ``sync``, so that the next group is written during disk I/O. All others may be called by any thread at any time
    until ``close``.

    Failure: the first failed write or sync stops the store. That call and every later change raise StorageFailedError
    with the first cause, or OwnershipLostError if another process has become the writer; reads continue.

    What an implementation does not state holds for a store that has no files and whose log is in no engine.
    """

    @property
    def folder(self) -> Path | None:
        """The folder with its files; None without one."""
        return None

    @property
    def write_traits(self) -> WriteTraits:
        """How its writes are committed."""
        return WriteTraits()

    @property
    def wal_name(self) -> str:
        """Name of this kind of store, for clients; message ids can only be compared within one kind."""
        ...

    @property
    def head(self) -> StoreHead:
        """The last entry written."""
        ...

    def write(
        self, entries: Sequence[NewEntry], rows: Sequence[Row] = (), staged: Sequence[StagedBatch] = ()
    ) -> WriteMark:
        """Write entries, changes of rows, and batches of staged transactions in one atomic write, in order.

        Returns its mark. Readers see it at the latest when a sync has covered it.

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

    def sync(self, mark: WriteMark | None = None) -> None:
        """Make everything durable up to the write of ``mark``. Releases the GIL during I/O.

        None stands for the last write that returned before this call. It may make later ones durable as well.

        Raises:
            StorageFailedError: Writes since the last sync may or may not be there after a restart.
        """
        ...

    def sync_soon(self, mark: WriteMark, within_s: float) -> bool:
        """As ``sync``, for the event loop; return False if a thread has to continue, with a ``sync`` of the mark.

        A store that gives syncs up does so after ``within_s`` seconds, and waits for no other thread.
        """
        self.sync(mark)
        return True

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
        """Return the state of a vchannel after the last write that readers see. KeyError if it was never created."""
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

    def chunks(self, vchannel_id: int, begin_tick: int, end_tick: int) -> list[ChunkRow]:
        """Return the chunks that overlap ``[begin_tick, end_tick)``, oldest first, the open one included."""
        ...

    def oldest_chunks(self, vchannel_id: int, end_tick: int, min_bytes: int) -> list[ChunkRow]:
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

    def trim_all(self, before_ticks: Mapping[int, int]) -> Mapping[int, VchannelTail]:
        """As ``trim``, for several vchannels by id, in one write; return the state of each."""
        ...

    def fence(self, vchannel_id: int, fencing_token: int) -> None:
        """Raise the fencing token of a vchannel, durably. A token that is not greater changes nothing.

        The store only persists the token; the writer checks it.
        """
        ...

    def reclaim(self) -> None:
        """Free the disk space of trimmed and dropped entries. Takes long; called by its own thread."""
        return

    def shorten(self) -> Iterator[Change]:
        """Let the engine of the log delete what is not used any more, if that is due; yield changes that help it.

        The changes may be left out. Each step takes long: called by a thread of its own, at all times.

        Raises:
            StorageFailedError, OwnershipLostError: The store has stopped.
            DataLossError, StorageUnreadableError: A change could not be made. The store still works.
        """
        return iter(())

    def unconfirmed_s(self) -> float:
        """Return the seconds for which the oldest write waits for the engine of the log; 0 if no write waits. Cheap."""
        return 0.0

    def give_up(self, error: LogFailure) -> None:
        """Wait no longer for the engine of the log: the store stops, and waiting calls raise ``error``. Any thread.

        Their effect is unknown. Without an engine nothing waits, and the store continues.
        """
        return

    def log_figures(self) -> LogFigures | None:
        """Return figures of the log in its engine; None without an engine. Cheap."""
        return None

    def report_confirmations(self, report: Callable[[float], None]) -> None:
        """Call ``report`` with the seconds from each write to its confirmation by an engine. In any thread.

        Without an engine it is never called.
        """
        return

    def stall_reason(self) -> str | None:
        """Return why a write would have to wait for background work now, else None. Cheap; called before each group.

        Why: a stalled RocksDB write holds the GIL, which would block the whole process.
        """
        return None

    def metrics(self) -> dict[Figure, float]:
        """Return gauges of the engine for ``/metrics``."""
        ...

    def close(self) -> None:
        """Sync, record the clean shutdown, and release everything. Idempotent."""
        ...
