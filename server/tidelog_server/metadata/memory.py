"""A metadata store in memory: the contract of ``store`` without a disk, for tests and experiments.

Several nodes of one process may share it. It has leases, watches and fences; leases run on the given clock.
"""

import asyncio
import itertools
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
        self.clock = clock or SystemClock()
        self.leases: dict[int, _Lease] = {}
        self.lease_ids = itertools.count(1)
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
            if lease_id and lease_id not in self.leases:
                raise MetadataUnavailableError(f"lease {lease_id} does not exist or has expired")
        revision = self.map.apply(changes)
        for change in changes:
            for lease in self.leases.values():
                lease.keys.discard(change.key)
            if isinstance(change, Put):
                self._created.setdefault(change.key, revision)
                if change.lease_id:
                    self.leases[change.lease_id].keys.add(change.key)
            else:
                self._created.pop(change.key, None)
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()
        return revision

    def revoke(self, lease_id: int) -> None:
        """Revoke a lease and delete its keys."""
        if (lease := self.leases.pop(lease_id, None)) is not None and lease.keys:
            self.commit([Delete(key, None) for key in sorted(lease.keys)], None)

    def expire(self) -> None:
        """Revoke the leases whose time is up."""
        now_s = self.clock.monotonic_s()
        for lease_id in [number for number, lease in self.leases.items() if lease.ends_s <= now_s]:
            self.revoke(lease_id)


class MemoryMetadataStore:
    """Values in a dict that stores may share. Implements ``SharedMetadataStore``."""

    def __init__(self, shared: SharedMemory | None = None) -> None:
        """Use ``shared``, or a new memory."""
        self._shared = shared or SharedMemory()
        self._fence: Fence | None = None
        self._is_closed = False
        # It always answers.
        self.silent_s, self.last_failure = 0.0, ""

    async def get(self, key: str) -> Versioned | None:
        self._shared.expire()
        return self._shared.map.values.get(key)

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
        shared = self._shared
        shared.expire()
        lease_id = next(shared.lease_ids)
        shared.leases[lease_id] = _Lease(ttl_s, shared.clock.monotonic_s() + ttl_s)
        return lease_id, float(ttl_s)

    async def renew_lease(self, lease_id: int) -> float:
        shared = self._shared
        shared.expire()
        if (lease := shared.leases.get(lease_id)) is None:
            return 0.0
        lease.ends_s = shared.clock.monotonic_s() + lease.ttl_s
        return lease.ttl_s

    async def revoke_lease(self, lease_id: int) -> None:
        self._shared.expire()
        self._shared.revoke(lease_id)

    def set_fence(self, fence: Fence | None) -> None:
        self._fence = fence

    async def close(self) -> None:
        self._is_closed = True
