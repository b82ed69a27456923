"""A metadata store in memory: the contract of ``store`` without a disk, for tests and for trying things out."""

from collections.abc import Sequence

from tidelog_server.core.errors import StorageFailedError
from tidelog_server.metadata.revisions import RevisionedMap
from tidelog_server.metadata.store import Change, Versioned


class MemoryMetadataStore:
    """Values in a dict; everything is gone after ``close``. Keeps the contract of ``MetadataStore``."""

    def __init__(self) -> None:
        self._map = RevisionedMap()
        self._is_closed = False

    async def get(self, key: str) -> Versioned | None:
        """See MetadataStore."""
        return self._map.get(key)

    async def list(self, prefix: str) -> dict[str, Versioned]:
        """See MetadataStore."""
        return self._map.list(prefix)

    async def commit(self, changes: Sequence[Change], *, is_before_log: bool = False) -> int:
        """See MetadataStore."""
        if self._is_closed:
            raise StorageFailedError("the metadata store is closed")
        self._map.check(changes)
        return self._map.apply(changes)

    async def close(self) -> None:
        """See MetadataStore."""
        self._is_closed = True
