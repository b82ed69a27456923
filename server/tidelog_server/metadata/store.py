"""The metadata store, which holds channels, allocations and the oracle's bound: contract of every implementation.

Keys are text with ``/`` between parts; values are bytes. Every change is a compare-and-swap, so the same code is
correct for one node with an embedded store and for a cluster on etcd. A store that nodes share also has leases,
watches and a fence.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Versioned:
    """A value with the store revision of its last change (1 or more)."""

    value: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class Put:
    """Set ``key`` to ``value``.

    Attributes:
        expected_revision: Revision that the key must have; 0 if it must not exist; None for no condition.
        lease_id: Lease with which the key expires; 0 for none. Only in stores that have leases.
    """

    key: str
    value: bytes
    expected_revision: int | None
    lease_id: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete ``key``. ``expected_revision`` is as in Put, but never 0."""

    key: str
    expected_revision: int | None


Change = Put | Delete


class RevisionConflictError(Exception):
    """A key's revision is not the expected one. Nothing was changed."""

    def __init__(self, key: str, *, expected_revision: int, actual_revision: int) -> None:
        super().__init__(f"conflict key={key} expected={expected_revision} actual={actual_revision}")
        self.key = key
        self.expected_revision = expected_revision
        self.actual_revision = actual_revision


class MetadataStore(Protocol):
    """A small, durable, ordered map with revisions."""

    async def get(self, key: str) -> Versioned | None:
        """Return the value of ``key``, or None."""
        ...

    async def list(self, prefix: str) -> dict[str, Versioned]:
        """Return all keys that begin with ``prefix``, in order, from one consistent snapshot."""
        ...

    async def commit(self, changes: Sequence[Change], *, is_before_log: bool = False) -> int:
        """Apply all changes atomically and durably, or none; return the new revision.

        At most MAX_CHANGES_PER_COMMIT changes, no key twice (asserted).

        Args:
            changes: Puts and deletes.
            is_before_log: True if the caller makes a synced write to the log next and reports nothing before that is
                durable. A store on the log's own disk then skips its own sync: the later sync covers both writes.

        Raises:
            RevisionConflictError: A key has another revision than expected. Nothing was changed.
            StorageFailedError: The outcome is unknown.
        """
        ...

    async def close(self) -> None:
        """Release everything. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class Watched:
    """Changes under a prefix, up to and including a revision.

    Attributes:
        revision: Revision of the store.
        values: Keys that were put, with their values.
        deleted: Keys that were deleted.
        is_snapshot: True if ``values`` holds all keys; then ``deleted`` is empty.
    """

    revision: int
    values: dict[str, Versioned]
    deleted: frozenset[str] = frozenset()
    is_snapshot: bool = False


@dataclass(frozen=True, slots=True)
class Fence:
    """A node's registration key; commits fail unless its creation revision is still ``created_revision``."""

    key: str
    created_revision: int
    node_id: str


class SharedMetadataStore(MetadataStore, Protocol):
    """A metadata store that several nodes share: with leases, watches, and a fence around a node's changes."""

    @property
    def silent_s(self) -> float:
        """Seconds since the store stopped answering calls; 0 while it answers."""
        ...

    @property
    def last_failure(self) -> str:
        """Error of the last call that failed; empty if none did."""
        ...

    def watch(self, prefix: str) -> AsyncGenerator[Watched, None]:
        """Yield a snapshot of all keys that begin with ``prefix``, then their changes in order. Never ends by itself.

        Changes of one commit are yielded together. After a gap, such as a compaction while the connection was lost, a
        new snapshot follows. Waits while the store does not answer. Close the iterator to end the watch.
        """
        ...

    async def grant_lease(self, ttl_s: int) -> tuple[int, float]:
        """Return the id of a new lease and its duration in seconds, which may exceed ``ttl_s``.

        Raises:
            MetadataUnavailableError: The store did not answer in time. A lease that it granted expires unused.
        """
        ...

    async def renew_lease(self, lease_id: int) -> float:
        """Renew a lease and return its remaining seconds; 0 if it has expired.

        Raises:
            MetadataUnavailableError: The store did not answer in time.
        """
        ...

    async def revoke_lease(self, lease_id: int) -> None:
        """Revoke a lease and delete its keys. Succeeds if the lease has expired already.

        Raises:
            MetadataUnavailableError: The store did not answer in time.
        """
        ...

    def set_fence(self, fence: Fence | None) -> None:
        """Make every later commit raise OwnershipLostError unless the fence holds; None removes the fence."""
        ...
