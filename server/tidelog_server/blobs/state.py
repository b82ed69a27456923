"""The blobs of a node: the fold of their events. Pure; time is passed in as ticks.

The live server and a replay of the log call the same methods, so both reach the same state.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidelog_server.core.callers import NO_TENANT, Tenant
from tidelog_server.core.limits import BLOB_CHUNK_BYTES, BLOB_TENANT_MEMORY_BYTES
from tidelog_server.core.usage import Usage

# Of a blob without its chunks, and of the place of a chunk, measured in processes that hold a million of each.
BLOB_MEMORY_BYTES: Final = 680
BLOB_PLACE_MEMORY_BYTES: Final = 48

# The queue of idle blobs is rebuilt once it has more than this number of entries, and twice as many as blobs,
# which BLOB_MEMORY_BYTES covers.
_MIN_REBUILD: Final = 1_024
_REBUILD_RATIO: Final = 2
Charge = Callable[[Tenant, int], None]
"""Adds bytes of memory to what a tenant uses; negative to release."""


@dataclass(slots=True)
class Blob:
    """A blob.

    Attributes:
        size_bytes: Its size.
        places: Ticks of its chunks in the log; 0 for a chunk that is not stored yet.
        references: References of no tenant; may be negative.
        touched: Tick of the last event that stores it or changes its references.
        released: Tick at which the last message that referred to it was deleted; 0 if that was before the start.
        payer: Tenant that stored it first, which uses its bytes; NO_TENANT for none.
        counts: References of each tenant that has stored or counted it, at least 0.
    """

    size_bytes: int
    places: list[int]
    references: int = 0
    touched: int = 0
    released: int = 0
    payer: Tenant = NO_TENANT
    counts: dict[Tenant, int] = field(default_factory=dict)

    @property
    def is_counted(self) -> bool:
        """True while a caller has set references."""
        return self.references > 0 or any(self.counts.values())

    def references_of(self, tenant: Tenant) -> int:
        """Return the references that a caller sees: its own and those of no tenant; without a tenant, all."""
        if tenant == NO_TENANT:
            return self.references + sum(self.counts.values())
        return self.counts.get(tenant, 0) + max(0, self.references)

    @property
    def idle_since(self) -> int:
        """Tick since which nothing has referred to it, if nothing does now."""
        return max(self.touched, self.released)

    @property
    def is_complete(self) -> bool:
        """True once all chunks are stored."""
        return 0 not in self.places

    def bytes_of(self, index: int) -> int:
        """Return the size of a chunk."""
        return min(BLOB_CHUNK_BYTES, self.size_bytes - index * BLOB_CHUNK_BYTES)


class Copy(NamedTuple):
    """A copy of a chunk in the log.

    Attributes:
        key: Key of the blob.
        number: Number of the chunk.
        old, new: Ticks of the chunk and of its copy.
    """

    key: bytes
    number: int
    old: int
    new: int


def chunks_of(size_bytes: int) -> int:
    """Return the number of chunks of a blob; an empty one has one."""
    return max(1, -(-size_bytes // BLOB_CHUNK_BYTES))


def blob_memory_bytes(size_bytes: int) -> int:
    """Return the memory that a blob takes without its tenants, about."""
    return BLOB_MEMORY_BYTES + BLOB_PLACE_MEMORY_BYTES * chunks_of(size_bytes)


class BlobState:
    """The blobs, and how long nothing has referred to them.

    Invariant: each blob has an entry in ``_idle`` with the tick of its last event, unless ``take_idle`` has removed it.

    Attributes:
        blobs: Blobs by key, also incomplete ones.
        stored_bytes: Bytes of all stored chunks.
        number_usage, bytes_usage: Blobs and their bytes by payer; an incomplete blob counts in full.
        memory_usage: Memory that blobs take, about, by payer, and that its references take, by tenant.
    """

    def __init__(self) -> None:
        self.blobs: dict[bytes, Blob] = {}
        self.stored_bytes = 0
        self.number_usage, self.bytes_usage, self.memory_usage = Usage(), Usage(), Usage()
        self._charge_memory: Charge = lambda _tenant, _memory_bytes: None
        # Tick and key, smallest tick first; entries of blobs that changed since are outdated.
        self._idle: list[tuple[int, bytes]] = []

    def find(self, key: bytes) -> Blob | None:
        """Return a complete blob; None if it is missing or incomplete."""
        blob = self.blobs.get(key)
        return blob if blob is not None and blob.is_complete else None

    def attach(self, charge: Charge) -> None:
        """Charge the memory now and all later changes with ``charge``: the blobs are open."""
        for tenant, memory_bytes in self.memory_usage.by_tenant.items():
            charge(tenant, memory_bytes)
        self._charge_memory = charge

    def new_memory_bytes(self, key: bytes, size_bytes: int, tenant: Tenant) -> int:
        """Return the further memory that a blob takes once ``tenant`` has stored it."""
        blob = self.blobs.get(key)
        memory_bytes = blob_memory_bytes(size_bytes) if blob is None else 0
        if tenant != NO_TENANT and (blob is None or tenant not in blob.counts):
            memory_bytes += BLOB_TENANT_MEMORY_BYTES
        return memory_bytes

    # -- Events --------------------------------------------------------------------------------------------

    def put(self, key: bytes, size_bytes: int, index: int, tick: int) -> None:
        """Add a chunk of a blob. Raises ValueError, IndexError if it contradicts the other chunks."""
        blob = self.blobs.get(key)
        if blob is None:
            blob = self.blobs[key] = Blob(size_bytes, [0] * chunks_of(size_bytes))
            self._charge(blob, 1)
        if blob.size_bytes != size_bytes:
            raise ValueError(f"the blob has {blob.size_bytes} bytes, the chunk is of one with {size_bytes}")
        if not blob.places[index]:
            self.stored_bytes += blob.bytes_of(index)
        blob.places[index] = tick
        self._touch(key, blob, tick)

    def counted(self, key: bytes, delta: int, tick: int) -> None:
        """Change the references of a blob; with 0 only its grace period begins again. Raises KeyError."""
        blob = self.blobs[key]
        blob.references += delta
        self._touch(key, blob, tick)

    def stored_by(self, key: bytes, tenant: Tenant, tick: int) -> None:
        """Note that a tenant has stored a blob; the first one pays for it. Raises KeyError."""
        blob = self.blobs[key]
        if blob.payer == NO_TENANT:
            self._charge(blob, -1)
            blob.payer = tenant
            self._charge(blob, 1)
        if tenant not in blob.counts:
            self._count(blob, tenant, 0)
        self._touch(key, blob, tick)

    def counted_by(self, key: bytes, tenant: Tenant, delta: int, tick: int) -> None:
        """Change the references of a tenant. Raises KeyError, and ValueError if they would be negative."""
        blob = self.blobs[key]
        if (count := blob.counts.get(tenant, 0) + delta) < 0:
            raise ValueError(f"the tenant would have {count} references")
        self._count(blob, tenant, count)
        self._touch(key, blob, tick)

    def copied(self, copies: Iterable[Copy]) -> None:
        """Let readers use copies, which are durable. Skips chunks that were deleted, or stored again, since."""
        for key, number, old, new in copies:
            blob = self.blobs.get(key)
            if blob is not None and blob.places[number] == old:
                blob.places[number] = new

    def relocated(self, key: bytes, index: int, tick: int) -> None:
        """Note a copy of a chunk that is in the log. Raises KeyError, IndexError."""
        blob = self.blobs[key]
        if not blob.places[index]:
            self.stored_bytes += blob.bytes_of(index)
        blob.places[index] = tick

    def collected(self, keys: Iterable[bytes]) -> None:
        """Remove blobs. Raises KeyError."""
        for key in keys:
            blob = self.blobs.pop(key)
            self._charge(blob, -1)
            for tenant in blob.counts:
                self._add_memory(tenant, -BLOB_TENANT_MEMORY_BYTES)
            self.stored_bytes -= sum(blob.bytes_of(index) for index, place in enumerate(blob.places) if place)

    # -- Collection ----------------------------------------------------------------------------------------

    def released(self, key: bytes, tick: int) -> None:
        """Let the grace period of a blob begin at ``tick``: the last message that referred to it is gone."""
        blob = self.blobs.get(key)
        if blob is not None:
            blob.released = tick
            self._queue(tick, key)

    def take_idle(self, until: int, is_live: Callable[[bytes], bool], limit: int) -> list[bytes]:
        """Return at most ``limit`` keys of blobs that nothing has referred to since the tick ``until``.

        The caller collects them. ``is_live`` returns whether a message refers to a blob; when the last one is gone,
        ``released`` must be called.
        """
        found: dict[bytes, None] = {}
        while self._idle and self._idle[0][0] <= until and len(found) < limit:
            _, key = heapq.heappop(self._idle)
            blob = self.blobs.get(key)
            # A blob that changed later has a later entry.
            if blob is not None and blob.idle_since <= until and not blob.is_counted and not is_live(key):
                found[key] = None
        return list(found)

    def oldest_place(self, end_tick: int) -> int:
        """Return the smallest tick of a stored chunk; ``end_tick`` without one."""
        return min((place for blob in self.blobs.values() for place in blob.places if place), default=end_tick)

    def rebuild(self) -> None:
        """Rebuild what follows from ``blobs``; needed after a snapshot was loaded."""
        self._queue_all()
        self.number_usage, self.bytes_usage, self.memory_usage = Usage(), Usage(), Usage()
        for blob in self.blobs.values():
            self._charge(blob, 1)
            for tenant in blob.counts:
                self._add_memory(tenant, BLOB_TENANT_MEMORY_BYTES)
        self.stored_bytes = sum(
            blob.bytes_of(index) for blob in self.blobs.values() for index, place in enumerate(blob.places) if place
        )

    def _charge(self, blob: Blob, sign: int) -> None:
        self.number_usage.add(blob.payer, sign)
        self.bytes_usage.add(blob.payer, sign * blob.size_bytes)
        self._add_memory(blob.payer, sign * blob_memory_bytes(blob.size_bytes))

    def _count(self, blob: Blob, tenant: Tenant, count: int) -> None:
        if tenant not in blob.counts:
            self._add_memory(tenant, BLOB_TENANT_MEMORY_BYTES)
        blob.counts[tenant] = count

    def _add_memory(self, tenant: Tenant, memory_bytes: int) -> None:
        self.memory_usage.add(tenant, memory_bytes)
        self._charge_memory(tenant, memory_bytes)

    def _touch(self, key: bytes, blob: Blob, tick: int) -> None:
        blob.touched = tick
        self._queue(tick, key)

    def _queue(self, tick: int, key: bytes) -> None:
        heapq.heappush(self._idle, (tick, key))
        if len(self._idle) > max(_MIN_REBUILD, _REBUILD_RATIO * len(self.blobs)):
            self._queue_all()

    def _queue_all(self) -> None:
        self._idle = [(blob.idle_since, key) for key, blob in self.blobs.items()]
        heapq.heapify(self._idle)
