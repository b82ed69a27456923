"""The metadata store: channels, allocations, the oracle's bound. The contract of every implementation.

Keys are text with ``/`` between parts; values are bytes. Every change is a compare-and-swap, so that the same code
is right for one node with an embedded store and for a cluster on etcd. A store that nodes share also has leases,
watches and a fence.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Versioned:
    """A value with the revision of the store at which it was last changed (1 or more)."""

    value: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class Put:
    """Set ``key`` to ``value``.

    Attributes:
        expected_revision: The revision that the key must still have; 0: it must not exist; None: whatever.
        lease_id: The lease that the key ends with; 0 for one that stays. Only where the store has leases.
    """

    key: str
    value: bytes
    expected_revision: int | None
    lease_id: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove ``key``. ``expected_revision`` as in Put, but never 0."""

    key: str
    expected_revision: int | None


Change = Put | Delete


class RevisionConflictError(Exception):
    """A key has another revision than the change expected; nothing was changed."""

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
        """Return all keys that begin with ``prefix``, in order, as of one moment."""
        ...

    async def commit(self, changes: Sequence[Change], *, is_before_log: bool = False) -> int:
        """Apply all changes atomically and durably, or none; return the new revision.

        At most MAX_CHANGES_PER_COMMIT changes, no key twice (asserted).

        Args:
            changes: What to change.
            is_before_log: Whether the caller writes to the log next, synced, and tells nobody before that is durable. A
                store on the log's own disk need not sync for itself then: what comes first is not lost alone.

        Raises:
            RevisionConflictError: An expectation failed. Nothing was changed.
            StorageFailedError: The outcome is unknown.
        """
        ...

    async def close(self) -> None:
        """Release everything. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class Watched:
    """What has changed under a prefix, up to and with a revision.

    Attributes:
        revision: Of the store.
        values: What was put.
        deleted: Keys that are gone.
        is_snapshot: Whether ``values`` are all there are; then ``deleted`` is empty.
    """

    revision: int
    values: dict[str, Versioned]
    deleted: frozenset[str] = frozenset()
    is_snapshot: bool = False


@dataclass(frozen=True, slots=True)
class Fence:
    """A node's key that must still be as it was made, or nothing is changed."""

    key: str
    created_revision: int
    node_id: str


class SharedMetadataStore(MetadataStore, Protocol):
    """A metadata store that several nodes share: with leases, watches, and a fence around a node's changes."""

    @property
    def silent_s(self) -> float:
        """How long the store has not answered although it was asked; 0 when it has."""
        ...

    def watch(self, prefix: str) -> AsyncGenerator[Watched, None]:
        """Yield all keys that begin with ``prefix``, then their changes in order, for ever.

        Changes of one commit come together. After a gap, such as a compaction while the connection was lost, a snapshot
        comes again. A store that does not answer is waited for. Close the iterator to end it.
        """
        ...

    async def grant_lease(self, ttl_s: int) -> tuple[int, float]:
        """Return a new lease and how many seconds it lasts, which may be more than asked for.

        Raises:
            MetadataUnavailableError: The store did not answer in time; a lease that it granted ends by itself.
        """
        ...

    async def renew_lease(self, lease_id: int) -> float:
        """Return for how many seconds the lease lasts from now on; 0 if it has ended.

        Raises:
            MetadataUnavailableError: The store did not answer in time.
        """
        ...

    async def revoke_lease(self, lease_id: int) -> None:
        """End a lease, and its keys with it. No error if it has ended.

        Raises:
            MetadataUnavailableError: The store did not answer in time.
        """
        ...

    def set_fence(self, fence: Fence | None) -> None:
        """Let every later commit succeed only while the fence stands; OwnershipLostError otherwise."""
        ...
