"""The metadata store: channels, allocations, the oracle's bound. The contract of every implementation.

Keys are text with ``/`` between parts; values are bytes. Every change is a compare-and-swap, so that the same code
is right for one node with an embedded store and for a cluster on etcd.
"""

from collections.abc import Sequence
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
    """

    key: str
    value: bytes
    expected_revision: int | None


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

        At most 128 changes, no key twice (asserted).

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
