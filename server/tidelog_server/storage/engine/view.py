"""The local database as a function of a prefix of the log.

A group is applied in one write, together with the row that says up to where the log was applied. So whatever a crash
leaves is the view of a shorter prefix, and the rest is applied again.
"""

from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from itertools import accumulate
from typing import Final

from rocksdict import RdictIter, WriteBatch

from tidelog_server.core.errors import DataLossError
from tidelog_server.core.ticks import NO_TICK
from tidelog_server.recordlog.records import MAX_PAYLOAD_BYTES, MAX_RECORD_BYTES, Position
from tidelog_server.recordlog.rules import Fence, Group, ReaderState, SnapshotPart, Taken
from tidelog_server.storage.engine.operations import FAMILY_NUMBERS, OperationKind, operations
from tidelog_server.storage.engine.place import Place, pack_origin, pack_place, unpack_origin, unpack_place
from tidelog_server.storage.engine.values import MAX_LOCAL_BYTES, Reference, pack_local, pack_reference
from tidelog_server.storage.format.codec import StoreRow, first_hash, pack_store
from tidelog_server.storage.format.keys import IMPORT_KEY, ORIGIN_KEY, STORE_KEY, VIEW_KEY
from tidelog_server.storage.rocksdb.engine import BLOB_FAMILIES, Engine, engine_errors, read_options

OF_COLUMNS: Final = frozenset(FAMILY_NUMBERS[name] for name in BLOB_FAMILIES)
"""Numbers of the families whose values are local columns or references."""
_PUT: Final = OperationKind.PUT
_DELETE: Final = OperationKind.DELETE
_INDEX: Final = FAMILY_NUMBERS["index"]
_LOADING: Final = b"loading"
# Of a record, beside its payload.
_HEAD_BYTES: Final = MAX_RECORD_BYTES - MAX_PAYLOAD_BYTES


class FrozenView:
    """All rows of a view as of a place, but for that of the place. One thread at a time.

    It keeps files and memory of the database until ``close``.

    Attributes:
        place: The place.
        close: Releases everything. Idempotent.
    """

    def __init__(self, place: Place, rows: dict[int, RdictIter]) -> None:
        """``rows``: an iterator for each family, by its number."""
        self.place = place
        self._rows = rows
        self.close = rows.clear

    def rows(self) -> Generator[tuple[int, bytes, bytes]]:
        """Yield the number of the family, the key and the value of each row, once.

        Raises:
            DataLossError, StorageUnreadableError: A block is damaged, or could not be read.
        """
        while self._rows:
            family = min(self._rows)
            # Dropped after its use: what it has read is not needed any more.
            yield from _rows_of(family, self._rows.pop(family))


class View:
    """A database that has what the log before a place has. One thread at a time.

    Attributes:
        engine: The database.
        place: The place.
        origin: Origin of the log; empty if its first record names no origin, or was not applied.
    """

    def __init__(self, engine: Engine, begin: Position) -> None:
        """Load the place of the view; an empty one is at ``begin``.

        Raises:
            DataLossError: The row of the place, or that of the origin, is damaged, or only a part of a snapshot was
                loaded.
            StorageUnreadableError: The system refused to read it.
        """
        self.engine = engine
        with engine_errors("reading the view"):
            value = engine.index.get(VIEW_KEY)
        if value == _LOADING:
            raise DataLossError("a process ended while it loaded a snapshot into it")
        self.place = Place(begin) if value is None else unpack_place(value)
        self.origin = self._stored_origin()

    @property
    def next(self) -> Position:
        """Position of the first record that was not applied."""
        return self.place.next

    @property
    def state(self) -> ReaderState:
        """State of a reader there."""
        return self.place.state

    def apply(self, taken: Sequence[Taken]) -> None:
        """Apply what was taken from the log, in order. Snapshots change nothing.

        Raises:
            DataLossError: A group cannot be decoded, or the log does not begin here.
            Exception: RocksDB's own; call this inside ``engine_errors``.
        """
        for each in taken:
            if isinstance(each, Group):
                self._apply_group(each)
            elif isinstance(each, Fence):
                self._apply_fence(each)
            else:
                self.place = self.place._replace(log_bytes=self.place.log_bytes + _stored_bytes(each))

    def is_unfinished_import(self) -> bool:
        """Return whether the log has a part of a data folder, whose import has not ended."""
        with engine_errors("reading the view"):
            return self.engine.index.get(IMPORT_KEY) is not None

    def catch_up(self, taken: Sequence[Taken]) -> None:
        """As ``apply``, with RocksDB's errors as ``engine_errors`` raises them."""
        with engine_errors("applying the log to the view"):
            self.apply(taken)

    def freeze(self) -> FrozenView:
        """Return all rows as of now.

        Why not RocksDB's snapshots: rocksdict's iterators over one return what was written after it, too. An iterator
        shows the rows as of its creation, and nothing is applied between these.

        Raises:
            DataLossError, StorageUnreadableError: The database could not be read.
        """
        families = {number: self.engine.family(name) for name, number in FAMILY_NUMBERS.items()}
        with engine_errors("reading the view"):
            return FrozenView(self.place, {number: family.iter(read_options()) for number, family in families.items()})

    def begin_load(self) -> None:
        """Begin to load a snapshot: until ``end_load``, nothing takes this for a view. Only for an empty one."""
        with engine_errors("loading a snapshot into the view"):
            self.engine.index.put(VIEW_KEY, _LOADING)

    def load(self, payload: bytes) -> int:
        """Write the rows of the operations that are complete in ``payload``; return where they end in it.

        Raises:
            DataLossError, StorageUnreadableError: The payload cannot be decoded, or the rows not be written.
        """
        batch = WriteBatch(raw_mode=True)
        handles = [self.engine.handles[name] for name in FAMILY_NUMBERS]
        loaded = 0
        for kind, family, key, begin, end in operations(payload, is_whole=False):
            if kind != _PUT:
                raise DataLossError(f"a snapshot has an operation of kind {kind}, which is no row")
            batch.put(key, payload[begin:end], handles[family])
            loaded = end
        with engine_errors("loading a snapshot into the view"):
            self.engine.db.write(batch)
        return loaded

    def end_load(self, place: Place) -> None:
        """End the load of the snapshot that is as of ``place``."""
        with engine_errors("loading a snapshot into the view"):
            self.engine.index.put(VIEW_KEY, pack_place(place))
        self.place = place
        self.origin = self._stored_origin()

    def _apply_fence(self, fence: Fence) -> None:
        batch = WriteBatch(raw_mode=True)
        state = self.state
        if not state.incarnation:
            if fence.term:
                raise DataLossError(
                    f"the log begins in term {fence.term}, at position {fence.position}, and no record names a "
                    "snapshot of what was before it: its begin was deleted",
                    position=fence.position,
                )
            # The first record of the log; from here on the rows are those of an empty store.
            store = StoreRow(fence.incarnation, 0, 0, first_hash(fence.incarnation), NO_TICK)
            batch.put(STORE_KEY, pack_store(store), self.engine.handles["index"])
            self.origin = fence.origin
            self._put_origin(batch)
        state = state._replace(incarnation=fence.incarnation, term=fence.term, number=1)
        self._write(batch, Place(fence.position + 1, state, self.place.log_bytes + _stored_bytes(fence)))

    def _apply_group(self, group: Group) -> None:
        payload = group.payloads[0] if len(group.payloads) == 1 else b"".join(group.payloads)
        place_of = _places(group)
        batch = WriteBatch(raw_mode=True)
        put, delete, delete_range = batch.put, batch.delete, batch.delete_range
        # Not stored: a handle keeps the database open.
        handles = [self.engine.handles[name] for name in FAMILY_NUMBERS]
        deletes_ranges = False
        for kind, family, key, begin, end in operations(payload):
            handle = handles[family]
            if kind == _PUT:
                if family not in OF_COLUMNS:
                    value = payload[begin:end]
                elif end - begin <= MAX_LOCAL_BYTES:
                    value = pack_local(payload[begin:end])
                else:
                    # Without a copy: it is most of what a group has.
                    value = pack_reference(place_of(begin, end))
                put(key, value, handle)
            elif kind == _DELETE:
                delete(key, handle)
            else:
                delete_range(key, payload[begin:end], handle)
                deletes_ranges = True
        if deletes_ranges:
            self._put_origin(batch)
        state = ReaderState(
            self.state.incarnation, group.term, group.number + len(group.positions), group.after, group.snapshot
        )
        self._write(batch, Place(group.end + 1, state, self.place.log_bytes + _stored_bytes(group)))

    def _stored_origin(self) -> bytes:
        with engine_errors("reading the view"):
            origin = self.engine.index.get(ORIGIN_KEY)
        return b"" if origin is None else unpack_origin(origin)

    def _put_origin(self, batch: WriteBatch) -> None:
        # Ordering: behind deletions of ranges, because the drop of a vchannel may delete one with this key in it.
        if self.origin:
            batch.put(ORIGIN_KEY, pack_origin(self.origin), self.engine.handles["index"])

    def _write(self, batch: WriteBatch, place: Place) -> None:
        # Ordering: last in the batch, because the drop of a vchannel may delete a range with this key in it.
        batch.put(VIEW_KEY, pack_place(place), self.engine.handles["index"])
        self.engine.db.write(batch)
        self.place = place


def _rows_of(family: int, rows: RdictIter) -> Generator[tuple[int, bytes, bytes]]:
    is_index = family == _INDEX
    with engine_errors("reading the view"):
        rows.seek(b"")
        while rows.valid():
            key = rows.key()
            if not is_index or key != VIEW_KEY:
                yield family, key, rows.value()
            rows.next()
        rows.status()


def _places(group: Group) -> Callable[[int, int], Reference]:
    """Return what makes a reference of a place in the payload of all parts."""
    begins = [0, *accumulate(map(len, group.payloads))]

    def place_of(begin: int, end: int) -> Reference:
        part = bisect_right(begins, begin) - 1
        return Reference(group.positions[part], begin - begins[part], end - begin)

    return place_of


def _stored_bytes(taken: Taken) -> int:
    """Return the bytes of the records of ``taken``, about."""
    if isinstance(taken, Group):
        return sum(map(len, taken.payloads)) + _HEAD_BYTES * len(taken.payloads)
    return _HEAD_BYTES + (len(taken.payload) if isinstance(taken, SnapshotPart) else 0)
