"""A real log store that fails, waits or reports on a test's request."""

import threading
from collections.abc import Callable, Iterable, Sequence

from tidelog_server.core.entries import EntryHeader, NewEntry, StagedBatch
from tidelog_server.core.errors import Effect, StorageFailedError
from tidelog_server.storage.log_store import VchannelTail, WriteMark
from tidelog_server.storage.memory import MemoryLogStore
from tidelog_server.storage.rows import Row


class FaultyStore(MemoryLogStore):
    """A memory store with faults; by default without faults.

    Attributes:
        fails_at_write, fails_at_sync: Number of the first call that fails, from 1; later calls fail too.
        written: Entries of each write, in order, including those of a failing write.
        synced: Number of entries written at the time of each sync.
        may_sync: Syncs wait until it is set.
        has_written, has_synced: Set by the first write, and by the first sync.
        on_headers: Called on the reader thread before headers are read.
    """

    def __init__(self, *, fails_at_write: int = 0, fails_at_sync: int = 0) -> None:
        super().__init__()
        self.fails_at_write = fails_at_write
        self.fails_at_sync = fails_at_sync
        self.written: list[list[NewEntry]] = []
        self.synced: list[int] = []
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.has_written = threading.Event()
        self.has_synced = threading.Event()
        self.on_headers: Callable[[], None] = lambda: None

    def write(
        self, entries: Sequence[NewEntry], rows: Sequence[Row] = (), staged: Sequence[StagedBatch] = ()
    ) -> WriteMark:
        """Write, or fail."""
        self.written.append(list(entries))
        self.has_written.set()
        if 0 < self.fails_at_write <= len(self.written):
            raise StorageFailedError("write: no space left on device", effect=Effect.UNKNOWN)
        return super().write(entries, rows, staged)

    def sync(self, mark: WriteMark | None = None) -> None:
        """Wait until the test allows it, then sync, or fail."""
        count = sum(map(len, self.written))
        self.may_sync.wait()
        self.synced.append(count)
        self.has_synced.set()
        if 0 < self.fails_at_sync <= len(self.synced):
            raise StorageFailedError("sync: input/output error", effect=Effect.UNKNOWN)
        super().sync(mark)

    def headers(self, vchannel_id: int, begin_tick: int, end_tick: int, max_headers: int) -> list[EntryHeader]:
        """Call the test's function, then read."""
        self.on_headers()
        return super().headers(vchannel_id, begin_tick, end_tick, max_headers)


class LastingStore(FaultyStore):
    """A store that outlives its node."""

    def close(self) -> None:
        """Stay open."""


class CrashingStore(LastingStore):
    """A store that outlives its node, and that can be opened again as a crash would have left it."""

    def __init__(self) -> None:
        super().__init__()
        # Changes, in order, and the number of those that are durable.
        self._changes: list[Callable[[MemoryLogStore], object]] = []
        self._durable = 0

    @property
    def durable_changes(self) -> int:
        """Number of changes that a crash would leave now."""
        return self._durable

    def crashed(self) -> "CrashingStore":
        """Return a store with what is durable now."""
        store = CrashingStore()
        for change in self._changes[: self._durable]:
            change(store)
        return store

    def write(
        self, entries: Sequence[NewEntry], rows: Sequence[Row] = (), staged: Sequence[StagedBatch] = ()
    ) -> WriteMark:
        """Write, which is durable after a sync."""
        mark = super().write(entries, rows, staged)
        self._changes.append(lambda store: store.write(entries, rows, staged))
        return mark

    def sync(self, mark: WriteMark | None = None) -> None:
        """Make the writes before this call durable."""
        count = len(self._changes)
        super().sync(mark)
        self._durable = max(self._durable, count)

    def create_vchannels(self, vchannel_ids: Iterable[int]) -> None:
        """Create vchannels, durably."""
        vchannel_ids = list(vchannel_ids)
        super().create_vchannels(vchannel_ids)
        self._note_durable(lambda store: store.create_vchannels(vchannel_ids))

    def drop_vchannels(self, vchannel_ids: Iterable[int], rows: Sequence[Row] = ()) -> None:
        """Drop vchannels, durably."""
        vchannel_ids = list(vchannel_ids)
        super().drop_vchannels(vchannel_ids, rows)
        self._note_durable(lambda store: store.drop_vchannels(vchannel_ids, rows))

    def trim(self, vchannel_id: int, before_tick: int) -> VchannelTail:
        """Trim, durably."""
        tail = super().trim(vchannel_id, before_tick)
        self._note_durable(lambda store: store.trim(vchannel_id, before_tick))
        return tail

    def _note_durable(self, change: Callable[[MemoryLogStore], object]) -> None:
        # All changes before it are in the same write-ahead log.
        self._changes.append(change)
        self._durable = len(self._changes)
