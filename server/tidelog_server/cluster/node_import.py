"""Makes the metadata of a single server that of the first node of an empty cluster, after its log was copied.

A cluster takes at most a hundred changes at a time, and a server has more records. So the first change sets a mark, and
the last one deletes it and makes the node. As long as the mark exists, the cluster has no node, and no process may open
one: an attempt that ended in between is repeated, and begins again. Key under the root (see docs/reference/format.md)::

    <root>/import   the mark
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog_server.cluster.log_records import LogRecord, log_key, standby_key
from tidelog_server.cluster.session import node_key
from tidelog_server.core.limits import MAX_CHANGES_PER_COMMIT, MIB
from tidelog_server.core.nodes import NodeRecord
from tidelog_server.metadata.json_records import decode_record, encode_record
from tidelog_server.metadata.store import (
    Change,
    Delete,
    Put,
    RevisionConflictError,
    SharedMetadataStore,
    Versioned,
)
from tidelog_server.recordlog.engine import LogSetupError
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.storage.pieces import in_pieces

_VERSION: Final = 1
# etcd takes 1.5 MiB in a request by default.
_BYTES_AT_ONCE: Final = MIB


class ClusterNotEmptyError(LogSetupError):
    """A cluster has something, so no folder is imported into it."""


class ImportOpenError(LogSetupError):
    """An import into a cluster has not ended."""

    @classmethod
    def of(cls, key: str, value: bytes) -> "ImportOpenError":
        """Return the error that names the import in a mark."""
        mark = ImportMark.decode(key, value)
        return cls(
            f"the import of a data folder as node '{mark.node_id}' of this cluster has not ended: repeat `tidelog "
            f"engine import {mark.node_id} FOLDER`, with the folder whose store is {mark.folder}"
        )


@dataclass(frozen=True, slots=True)
class ImportMark:
    """An import that has not ended.

    Attributes:
        node_id: The node that it makes.
        folder: Identity of the folder's store, hexadecimal.
        log: The log of the node.
    """

    node_id: str
    folder: str
    log: LogRecord

    def encode(self) -> bytes:
        """Return the mark as it is stored."""
        topic, incarnation = self.log.topic, self.log.incarnation.hex()
        fields = {"node_id": self.node_id, "folder": self.folder, "topic": topic, "incarnation": incarnation}
        return encode_record(_VERSION, fields)

    @classmethod
    def decode(cls, key: str, value: bytes) -> "ImportMark":
        """Decode what ``encode`` made. Raises DataLossError if ``value`` is invalid."""

        def parse(fields: dict[str, Any]) -> ImportMark:
            log = LogRecord(str(fields["topic"]), bytes.fromhex(fields["incarnation"]))
            return cls(str(fields["node_id"]), str(fields["folder"]), log)

        return decode_record(value, _VERSION, parse, key, key=key)


def import_key(root: str) -> str:
    """Return the key of the mark."""
    return f"{root}/import"


class NodeImport:
    """The steps of an import in the metadata store, in order: ``look``, ``begin``, ``write``, ``end``.

    All raise MetadataUnavailableError if the store does not answer, or refuses, and ImportOpenError if another import
    runs.
    """

    def __init__(self, store: SharedMetadataStore, root: str, node_id: str, folder: str) -> None:
        """Prepare.

        Args:
            store: The metadata store, without a fence.
            root: Root of the keys.
            node_id: The node to make.
            folder: Identity of the folder's store, hexadecimal.
        """
        self._store = store
        self._root = root
        self._node_id = node_id
        self._folder = folder
        self._key = import_key(root)
        self._log_key = log_key(root, node_id)
        self._mark = b""
        self._log: LogRecord | None = None
        # Of the mark, as of the last change of this process: each one proves that no other import has begun since.
        self._revision = 0

    async def look(self) -> LogRecord | None:
        """Return the log of an earlier attempt; None without one. Nothing is changed.

        Raises:
            ClusterNotEmptyError: The cluster has a channel, another record, or a process that serves a node.
        """
        found = await self._store.list(f"{self._root}/")
        if (mark := found.get(self._key)) is None:
            self._check_empty(found)
            return None
        known = ImportMark.decode(self._key, mark.value)
        if (known.node_id, known.folder) != (self._node_id, self._folder):
            raise ImportOpenError.of(self._key, mark.value)
        return known.log

    async def begin(self, log: LogRecord) -> None:
        """Set the mark; ``log`` is that of the node, which no process uses. Raises as ``look``."""
        self._log = log
        self._mark = ImportMark(self._node_id, self._folder, log).encode()
        found = await self._store.list(f"{self._root}/")
        before, created = found.get(self._key), found.get(self._log_key)
        changes: list[Change] = [Put(self._key, self._mark, 0 if before is None else before.revision)]
        if before is None:
            self._check_empty(found)
        if created is not None:
            # A node exists while it has a record, and this one is not complete.
            changes.append(Delete(self._log_key, created.revision))
        self._revision = await self._commit(changes)
        # Ordering: after the mark. A process that registers looks for the mark afterwards.
        found = await self._store.list(node_key(self._root, ""))
        if found:
            if before is None:
                undo: list[Change] = [Delete(self._key, self._revision)]
                undo += [] if created is None else [Put(self._log_key, created.value, 0)]
                await self._commit(undo)
            self._check_empty(found)

    async def write(self, values: Mapping[str, bytes]) -> None:
        """Make the keys under the root those of ``values``, and those that a cluster has of its own."""
        found = await self._store.list(f"{self._root}/")
        changes: list[Change] = [
            Delete(key, None) for key in found if key not in values and not self._is_own(key) and key != self._key
        ]
        for key, value in values.items():
            before = found.get(key)
            # Of the bound of ticks, the greater one is right for both.
            wanted = value if before is None or not self._is_own(key) else max(value, before.value)
            if before is None or before.value != wanted:
                changes.append(Put(key, wanted, None))
        # A commit has the mark, too.
        for some in in_pieces(changes, _bytes_of, max_bytes=_BYTES_AT_ONCE, max_items=MAX_CHANGES_PER_COMMIT - 1):
            self._revision = await self._commit([Put(self._key, self._mark, self._revision), *some])

    async def end(self) -> None:
        """Delete the mark and make the node, which a process serves from now on."""
        assert self._log is not None
        await self._commit([Delete(self._key, self._revision), Put(self._log_key, self._log.encode(), 0)])

    async def _commit(self, changes: Sequence[Change]) -> int:
        try:
            revision = await self._store.commit(changes)
        except RevisionConflictError as error:
            raise ImportOpenError(
                f"another process has changed '{error.key}' in etcd while the folder was imported: find it, and repeat "
                "the import"
            ) from error
        hit(Failpoint.IMPORT_STEP)
        return revision

    def _is_own(self, key: str) -> bool:
        """Return whether an empty cluster may have a key: its identity, its ticks, and what has a lease."""
        own = (f"{self._root}/cluster", f"{self._root}/timestamp", f"{self._root}/leader")
        return key in own or key.startswith(standby_key(self._root, ""))

    def _check_empty(self, found: Mapping[str, Versioned]) -> None:
        prefix = node_key(self._root, "")
        if (node := next((key for key in found if key.startswith(prefix)), None)) is not None:
            record = NodeRecord.decode(node, found[node].value)
            raise ClusterNotEmptyError(
                f"the process at {record.address} serves node '{record.node_id}' of this cluster: stop all processes, "
                "and import the folder before a node has a channel. Nothing was changed"
            )
        other = next((key for key in found if not self._is_own(key) and key != self._log_key), None)
        if other is not None:
            raise ClusterNotEmptyError(
                f"the cluster is not empty: etcd has '{other}'. A folder is imported as the first node of a cluster "
                "without channels. Nothing was changed"
            )


def _bytes_of(change: Change) -> int:
    return len(change.key) + (len(change.value) if isinstance(change, Put) else 0)
