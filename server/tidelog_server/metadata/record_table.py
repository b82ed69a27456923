"""Records of one kind in the metadata store, by name, that all nodes of a cluster change."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Generic, Protocol, TypeVar

from tidelog_server.core.recent_changes import RecentChanges
from tidelog_server.core.sorted_names import SortedNames
from tidelog_server.metadata.store import MetadataStore, SharedMetadataStore, Watched


class NamedRecord(Protocol):
    """A record with the revision of the metadata store at its last change."""

    @property
    def name(self) -> str:
        """Its name: the end of its key."""
        ...

    @property
    def revision(self) -> int:
        """Revision of its last change."""
        ...


_Record = TypeVar("_Record", bound=NamedRecord)


class RecordTable(Generic[_Record]):
    """Known records of one kind; in a cluster, of all nodes. The caller serialises changes.

    Attributes:
        prefix: Prefix of the keys of all records.
        records: Records by name. A changed record is another object.
        names: Their names, in order.
        changes: The names of records that changed lately.
    """

    def __init__(self, metadata: MetadataStore, prefix: str, decode: Callable[[str, bytes, int], _Record]) -> None:
        """Create an empty table.

        Args:
            metadata: Store with the records.
            prefix: Prefix of their keys.
            decode: Returns a record from its name, value and revision, or raises DataLossError.
        """
        self._metadata = metadata
        self._decode = decode
        self.prefix = prefix
        self.records: dict[str, _Record] = {}
        self.names = SortedNames()
        self.changes = RecentChanges()

    @property
    def version(self) -> int:
        """A number that is incremented with each change of a record."""
        return self.changes.version

    async def open(self) -> None:
        """Load all records. Raises DataLossError if one is unreadable."""
        for key, found in (await self._metadata.list(self.prefix)).items():
            self.learn(self._decode(key.removeprefix(self.prefix), found.value, found.revision))

    async def run(self, metadata: SharedMetadataStore, changes: asyncio.Lock, on_change: Callable[[], None]) -> None:
        """Apply other nodes' changes under the lock ``changes``, and call ``on_change`` after each. Never returns."""
        async with aclosing(metadata.watch(self.prefix)) as watch:
            async for watched in watch:
                async with changes:
                    version = self.version
                    self.follow(watched)
                if version != self.version:
                    on_change()

    def follow(self, watched: Watched) -> None:
        """Apply changes of other nodes. Changes older than the known revisions are skipped."""
        prefix = self.prefix
        for key, found in watched.values.items():
            name = key.removeprefix(prefix)
            if self.revision_of(name) < found.revision:
                self.learn(self._decode(name, found.value, found.revision))
        gone = [key.removeprefix(prefix) for key in watched.deleted]
        if watched.is_snapshot:
            gone += [name for name in self.records if prefix + name not in watched.values]
        for name in gone:
            if self.revision_of(name) < watched.revision:
                self.forget(name)

    async def refresh(self, names: Sequence[str]) -> None:
        """Reload the records of ``names``."""
        values = await asyncio.gather(*(self._metadata.get(self.key(name)) for name in names))
        for name, found in zip(names, values, strict=True):
            if found is None:
                self.forget(name)
            elif self.revision_of(name) < found.revision:
                self.learn(self._decode(name, found.value, found.revision))

    def learn(self, record: _Record) -> None:
        """Note a record that is stored."""
        self.changes.note(record.name)
        self.records[record.name] = record
        self.names.add(record.name)

    def forget(self, name: str) -> None:
        """Note that no record with this name is stored."""
        self.changes.note(name)
        self.records.pop(name, None)
        self.names.discard(name)

    def key(self, name: str) -> str:
        """Return the key of a record."""
        return self.prefix + name

    def revision_of(self, name: str) -> int:
        """Return the revision of a record; 0 if it does not exist."""
        found = self.records.get(name)
        return 0 if found is None else found.revision
