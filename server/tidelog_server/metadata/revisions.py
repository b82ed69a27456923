"""The map behind the embedded and the memory store: values with revisions, changed by compare-and-swap. Pure."""

from collections.abc import Iterable, Sequence
from threading import Lock

from tidelog_server.core.limits import MAX_CHANGES_PER_COMMIT
from tidelog_server.metadata.store import Change, Put, RevisionConflictError, Versioned


class RevisionedMap:
    """Keys mapped to versioned values, at one revision of the store.

    Threads: one thread writes, any thread reads; ``list`` sees all or none of a commit of several keys.

    Invariant: the store's revision is at least that of each value.

    Attributes:
        values: Keys with their values, for a look at one of them.
    """

    def __init__(self, revision: int = 0, values: Iterable[tuple[str, Versioned]] = ()) -> None:
        self.revision = revision
        self.values = dict(values)
        # Guards values, so that readers see all or none of a commit of several keys.
        self._lock = Lock()
        assert all(value.revision <= revision for value in self.values.values())

    def __len__(self) -> int:
        return len(self.values)

    def list(self, prefix: str) -> dict[str, Versioned]:
        """Return all keys that begin with ``prefix``, in order, from one consistent snapshot."""
        with self._lock:
            found = [item for item in self.values.items() if item[0].startswith(prefix)]
        return dict(sorted(found))

    def check(self, changes: Sequence[Change]) -> None:
        """Raise RevisionConflictError if a key of ``changes`` has another revision than expected."""
        assert len(changes) <= MAX_CHANGES_PER_COMMIT
        assert len({change.key for change in changes}) == len(changes)
        for change in changes:
            expected = change.expected_revision
            current = self.values.get(change.key)
            actual = current.revision if current else 0
            if expected is not None and expected != actual:
                raise RevisionConflictError(change.key, expected_revision=expected, actual_revision=actual)

    def apply(self, changes: Sequence[Change]) -> int:
        """Apply changes that passed ``check`` at the next revision, and return it."""
        with self._lock:
            self.revision += 1
            for change in changes:
                if isinstance(change, Put):
                    self.values[change.key] = Versioned(change.value, self.revision)
                else:
                    self.values.pop(change.key, None)
        return self.revision
