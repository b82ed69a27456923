"""A metadata store in memory: the contract of ``store`` without a disk, for tests and experiments.

Several nodes of one process may share it. It has leases, watches and fences; leases run on the given clock.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from tidelog_server.core.errors import StorageFailedError
from tidelog_server.core.errors.cluster import MetadataUnavailableError, OwnershipLostError
from tidelog_server.metadata.revisions import RevisionedMap
from tidelog_server.metadata.store import Change, Delete, Fence, Put, Versioned, Watched
from tidelog_server.runtime.clock import Clock, SystemClock


@dataclass(slots=True)
class _Lease:
    ttl_s: float
    ends_s: float
    keys: set[str] = field(default_factory=set)


class SharedMemory:
    """State shared by stores in memory: values, leases, and the event of the next change. Lives on the event loop."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.map = RevisionedMap()
        self._clock = clock or SystemClock()
        self._leases: dict[int, _Lease] = {}
        self._last_lease_id = 0
        self._created: dict[str, int] = {}
        self.changed = asyncio.Event()

    def commit(self, changes: Sequence[Change], fence: Fence | None) -> int:
        """Apply changes; see MetadataStore and Fence."""
        self.expire()
        if fence is not None and self._created.get(fence.key) != fence.created_revision:
            raise OwnershipLostError(fence.node_id)
        self.map.check(changes)
        for change in changes:
            lease_id = change.lease_id if isinstance(change, Put) else 0
            if lease_id and lease_id not in self._leases:
                raise MetadataUnavailableError(f"lease {lease_id} does not exist or has expired")
        revision = self.map.apply(changes)
        for change in changes:
            for lease in self._leases.values():
                lease.keys.discard(change.key)
            if isinstance(change, Put):
                self._created.setdefault(change.key, revision)
                if change.lease_id:
                    self._leases[change.lease_id].keys.add(change.key)
            else:
                self._created.pop(change.key, None)
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()
        return revision

    def grant(self, ttl_s: int) -> tuple[int, float]:
        """Return a new lease; see SharedMetadataStore."""
        self.expire()
        self._last_lease_id += 1
        self._leases[self._last_lease_id] = _Lease(ttl_s, self._clock.monotonic_s() + ttl_s)
        return self._last_lease_id, float(ttl_s)

    def renew(self, lease_id: int) -> float:
        """Renew a lease and return its duration in seconds; 0 if it has expired."""
        self.expire()
        if (lease := self._leases.get(lease_id)) is None:
            return 0.0
        lease.ends_s = self._clock.monotonic_s() + lease.ttl_s
        return lease.ttl_s

    def revoke(self, lease_id: int) -> None:
        """Revoke a lease and delete its keys."""
        if (lease := self._leases.pop(lease_id, None)) is not None and lease.keys:
            self.commit([Delete(key, None) for key in sorted(lease.keys)], None)

    def expire(self) -> None:
        """Revoke the leases whose time is up."""
        now_s = self._clock.monotonic_s()
        for lease_id in [number for number, lease in self._leases.items() if lease.ends_s <= now_s]:
            self.revoke(lease_id)


class MemoryMetadataStore:
    """Values in a dict that stores may share. Implements ``SharedMetadataStore``."""

    def __init__(self, shared: SharedMemory | None = None) -> None:
        """Use ``shared``, or a new memory."""
        self._shared = shared or SharedMemory()
        self._fence: Fence | None = None
        self._is_closed = False

    @property
    def silent_s(self) -> float:
        return 0.0

    async def get(self, key: str) -> Versioned | None:
        self._shared.expire()
        return self._shared.map.get(key)

    async def list(self, prefix: str) -> dict[str, Versioned]:
        self._shared.expire()
        return self._shared.map.list(prefix)

    async def commit(self, changes: Sequence[Change], *, is_before_log: bool = False) -> int:
        if self._is_closed:
            raise StorageFailedError("the metadata store is closed")
        return self._shared.commit(changes, self._fence)

    async def watch(self, prefix: str) -> AsyncGenerator[Watched, None]:
        """See SharedMetadataStore. Leases expire only when the store is called."""
        known = self._shared.map.list(prefix)
        yield Watched(self._shared.map.revision, known, is_snapshot=True)
        while True:
            changed = self._shared.changed
            values = self._shared.map.list(prefix)
            put = {key: value for key, value in values.items() if known.get(key) != value}
            deleted = frozenset(known.keys() - values.keys())
            known = values
            if put or deleted:
                yield Watched(self._shared.map.revision, put, deleted)
            else:
                await changed.wait()

    async def grant_lease(self, ttl_s: int) -> tuple[int, float]:
        return self._shared.grant(ttl_s)

    async def renew_lease(self, lease_id: int) -> float:
        return self._shared.renew(lease_id)

    async def revoke_lease(self, lease_id: int) -> None:
        self._shared.revoke(lease_id)

    def set_fence(self, fence: Fence | None) -> None:
        self._fence = fence

    async def close(self) -> None:
        self._is_closed = True
