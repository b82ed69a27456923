"""The log store: where entries live. The contract that every implementation keeps.

One store belongs to one node and holds all of its vchannels. It is written by one at a time and read by many::

    vchannel   trimmed        | readable                  | written, not yet synced
               ---------------^---------------------------^------------------------
                          trim_tick              (the log's watermark)

The store itself has no notion of the watermark: it returns whatever was written. The log above it never asks for
more than is durable.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from tidelog_server.core.entries import Entry, EntryHeader, NewEntry, StagedBatch
from tidelog_server.core.groups import GroupKey, GroupPosition
from tidelog_server.core.producers import ProducerKey, ProducerWindow
from tidelog_server.core.shares import FloorKey
from tidelog_server.core.ticks import Tick
from tidelog_server.core.transactions import AppCommit, AppKey, TxnOutcome, TxnPlace


@dataclass(frozen=True, slots=True)
class VchannelTail:
    """The state of a vchannel after its last written entry.

    Invariant: ``trim_tick <= last_tick + 1`` unless the vchannel is empty.

    Attributes:
        trim_tick: Messages with a smaller tick are gone; 0 when nothing was ever trimmed.
        last_tick: Last tick of the last entry ever written, trimmed or not; 0 when there was none.
        batches, messages, columns_bytes: Cumulative since creation, trimmed ones included.
        trimmed_messages, trimmed_bytes: Cumulative, of entries that lie wholly below ``trim_tick``.
        fencing_token: The token that was set last; 0 when none was.
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
        batches, messages, columns_bytes: What it holds.
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
        sequence: Its dense number; 0 when the store is empty.
        chain_hash: Its chain hash.
        last_tick: The greatest tick in the store; 0 when empty.
    """

    sequence: int
    chain_hash: bytes
    last_tick: Tick


class Beside(NamedTuple):
    """What is written with entries, or without any.

    Attributes:
        windows: Windows of producers, which replace earlier ones; None removes one.
        staged: Batches of begun transactions; their vchannels exist (asserted).
        outcomes: Outcomes of begun transactions by txn id, which replace earlier ones; None removes one.
        positions: Positions of consumer groups, which replace earlier ones; None removes one.
        app_commits: Last commits by application, which replace earlier ones; None removes one.
        floors: Floors of tenants, which replace earlier ones; None removes one.
    """

    windows: Mapping[ProducerKey, ProducerWindow | None] = MappingProxyType({})
    staged: Sequence[StagedBatch] = ()
    outcomes: Mapping[int, TxnOutcome | None] = MappingProxyType({})
    positions: Mapping[GroupKey, GroupPosition | None] = MappingProxyType({})
    app_commits: Mapping[AppKey, AppCommit | None] = MappingProxyType({})
    floors: Mapping[FloorKey, int | None] = MappingProxyType({})


NOTHING_BESIDE: Final = Beside()


class LogStore(Protocol):
    """Entries of all vchannels of a node.

    Threads: ``write``, ``discard``, ``trim``, ``fence``, ``create_vchannels``, ``drop_vchannels`` and ``close`` are
    called one at a time, by whatever thread, and ``sync`` as well; but a ``write`` may run while another thread is in
    ``sync``, so that the next group is written while the disk works. All others may be called by any thread at any time
    until ``close``.

    Failure: the first failed write or sync stops the store. That call and every later one that changes something
    raises StorageFailedError with the first cause; reads go on.
    """

    @property
    def wal_name(self) -> str:
        """Name of this kind of store, for clients; message ids are only comparable within one kind."""
        ...

    @property
    def head(self) -> StoreHead:
        """The last entry written."""
        ...

    def write(self, entries: Sequence[NewEntry], beside: Beside = NOTHING_BESIDE) -> None:
        """Write entries atomically, in order: all of them are readable afterwards, or none is.

        With them, in the same way, what is ``beside`` them. The columns of an entry that has ``staged`` are those of
        the staged batch of its vchannel, transaction and number; whatever else the transaction has staged there is
        kept until the last of its entries is trimmed.

        Not durable before the next ``sync``; after a crash a prefix of the entries written since the last sync may
        be there, in whole calls.

        The ticks of one vchannel must grow from entry to entry (asserted).

        Raises:
            StorageFailedError: The outcome is unknown until a restart.
        """
        ...

    def sync(self) -> None:
        """Make everything durable whose ``write`` returned before this call. Releases the GIL while the disk works.

        Raises:
            StorageFailedError: What was written since the last sync may or may not be there after a restart.
        """
        ...

    def read(self, vchannel_id: int, begin_tick: int, end_tick: int, max_bytes: int) -> list[Entry]:
        """Return the consecutive entries that overlap ``[begin_tick, end_tick)``, oldest first.

        Stops after the entry that brings the columns to ``max_bytes`` or more, so at least one entry is returned if
        there is any. The first and the last entry may reach beyond the range: callers cut. Every entry is checked
        against its predecessor's ``last_tick``; that nothing is missing before the first and after the last entry is
        checked as well, against the trim tick and the tail, so an empty list proves that there is nothing.

        Raises:
            DataLossError: An entry is damaged or missing; names vchannel id and ticks.
        """
        ...

    def headers(self, vchannel_id: int, begin_tick: int, end_tick: int, max_headers: int) -> list[EntryHeader]:
        """Return the headers of what ``read`` would return, at most ``max_headers``, with the same checks.

        Why: a scan of many vchannels merges headers, so that it holds the columns of one response only.
        """
        ...

    def columns(self, headers: Sequence[EntryHeader]) -> list[bytes | None]:
        """Return the columns of entries of any vchannels, in the order asked for; None for one trimmed meanwhile.

        Raises:
            DataLossError: Columns are damaged or missing though their entry was not trimmed.
        """
        ...

    def tail(self, vchannel_id: int) -> VchannelTail:
        """Return the state of a vchannel after the last write. KeyError if it was never created."""
        ...

    def discard(self, places: Mapping[TxnPlace, int | None]) -> None:
        """Remove what transactions that will never commit have staged. Places without anything are passed over.

        With each place goes the number of its batches, if that is known: few are removed more cheaply.

        Not durable before the next ``sync``. ``reclaim`` gives the disk back.
        """
        ...

    def staged(self) -> list[TxnPlace]:
        """Return where something is staged that was not committed; meant for the start.

        Raises:
            DataLossError: A row is damaged.
        """
        ...

    def app_commits(self) -> dict[AppKey, AppCommit]:
        """Return the last commit of each application, as written and not removed; meant for the start.

        Raises:
            DataLossError: A row is damaged.
        """
        ...

    def floors(self) -> dict[FloorKey, int]:
        """Return the floors of tenants, as written and not removed; meant for the start.

        Raises:
            DataLossError: A row is damaged.
        """
        ...

    def txn_outcomes(self) -> dict[int, TxnOutcome]:
        """Return the outcomes of begun transactions by txn id, as written and not removed; meant for the start.

        Raises:
            DataLossError: A row is damaged.
        """
        ...

    def producer_windows(self) -> dict[ProducerKey, ProducerWindow]:
        """Return the windows of all producers on all vchannels; meant for the start.

        Raises:
            DataLossError: A window is damaged.
        """
        ...

    def group_positions(self) -> dict[GroupKey, GroupPosition]:
        """Return the positions of all consumer groups; meant for the start.

        Raises:
            DataLossError: A position is damaged.
        """
        ...

    def vchannel_ids(self) -> list[int]:
        """Return the vchannels that exist, in order."""
        ...

    def chunks(self, vchannel_id: int, begin_tick: int, end_tick: int) -> list[Chunk]:
        """Return the chunks that overlap ``[begin_tick, end_tick)``, oldest first, the open one included."""
        ...

    def oldest_chunks(self, vchannel_id: int, end_tick: int, min_bytes: int) -> list[Chunk]:
        """Return the oldest chunks, the open one included: all that end below ``end_tick``, and some more.

        So many that what is left of them is ``min_bytes`` or more, and that one ends at or above ``end_tick``, if there
        are so many. Takes time in proportion to what it returns, not to the vchannel. KeyError as ``tail``.
        """
        ...

    def create_vchannels(self, vchannel_ids: Iterable[int]) -> None:
        """Create empty vchannels, atomically and durably. Those that exist stay as they are."""
        ...

    def drop_vchannels(self, vchannel_ids: Iterable[int], positions: Iterable[GroupKey] = ()) -> None:
        """Remove vchannels with all their entries, atomically and durably. Those that do not exist are passed over.

        With them go the ``positions`` that groups have on them: the store does not know names.
        """
        ...

    def trim(self, vchannel_id: int, before_tick: int) -> VchannelTail:
        """Raise ``trim_tick`` to ``before_tick``, durably, and remove entries that lie wholly below it.

        Where ``before_tick`` falls between two entries or beyond the last, ``trim_tick`` becomes the tick after the
        last removed message: a reader who has read everything that was removed stays in range.

        Trimming below an earlier trim changes nothing. ``reclaim`` gives the disk back.
        """
        ...

    def fence(self, vchannel_id: int, fencing_token: int) -> None:
        """Raise the fencing token of a vchannel, durably. One that is not greater changes nothing.

        The store keeps the token with the vchannel and does not check it: whoever writes does.
        """
        ...

    def reclaim(self) -> None:
        """Give the disk of trimmed and dropped entries back. Long; called by a thread of its own."""
        ...

    def stall_reason(self) -> str | None:
        """Return why a write would have to wait for background work now, or None. Cheap; asked before each group.

        Why: a stalled RocksDB write holds the GIL, which would stop the whole process.
        """
        ...

    def metrics(self) -> dict[str, float]:
        """Return gauges of the engine, by name with unit, for ``/metrics``."""
        ...

    def close(self) -> None:
        """Sync, note the clean shutdown, and release everything. Idempotent."""
        ...
