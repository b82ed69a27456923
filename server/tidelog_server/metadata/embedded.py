"""The metadata store of a single node: rows in a table of the node's own database, cached whole in memory.

There is one row per key, and a summary row with their number and hash. So the next start detects a row that was lost or
resurrected by a fault: the list of channels never shrinks silently. The layout is on disk since format 1 (see
docs/reference/format.md).
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol, Self

from crc32c import crc32c

from tidelog_server.core.entries import HASH_BYTES
from tidelog_server.core.errors import DataLossError, StorageFailedError
from tidelog_server.metadata.revisions import RevisionedMap
from tidelog_server.metadata.store import Change, Put, Versioned

ROW_VERSION: Final = 1
SUMMARY_KEY: Final = b"s"
_VALUE_TAG: Final = b"v"
# Fields: version, revision. The value follows, then a CRC-32C over key and row.
_VALUE: Final = struct.Struct(">BQ")
# Fields: version, revision, keys, hash. A CRC-32C over key and row follows.
_SUMMARY: Final = struct.Struct(f">BQQ{HASH_BYTES}s")
_CRC_BYTES: Final = 4


class MetadataRows(Protocol):
    """An ordered table of rows: bytes to bytes, sorted by key."""

    def scan(self) -> Iterable[tuple[bytes, bytes]]:
        """Return all rows in order. Raises DataLossError if one is unreadable; rows are never left out silently."""
        ...

    def apply(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes], *, syncs: bool = True) -> None:
        """Put and delete rows atomically, and durably if ``syncs``.

        Raises:
            StorageFailedError: The outcome is unknown.
        """
        ...


Write = Callable[[Callable[[], int]], Awaitable[int]]


class Summary(NamedTuple):
    """The summary row.

    Attributes:
        revision: Revision of the store: number of commits since its creation.
        keys: Number of value rows.
        rows_hash: Exclusive or of the hashes of all value rows; independent of their order.
    """

    revision: int = 0
    keys: int = 0
    rows_hash: int = 0


class EmbeddedMetadataStore:
    """Metadata in a table of the node's database. Implements ``MetadataStore``.

    Reads are served from memory. Commits run as jobs of the log's committer.
    """

    def __init__(
        self, table: MetadataRows, executor: Executor, write: Write, summary: Summary, rows: RevisionedMap
    ) -> None:
        """Use ``open`` instead: it loads ``rows`` and ``summary`` from the table and checks them."""
        self._table = table
        self._executor = executor
        self._write = write
        self._summary = summary
        self._map = rows
        self._is_closed = False

    @classmethod
    async def open(cls, table: MetadataRows, executor: Executor, write: Write) -> Self:
        """Load and check the whole table on the executor.

        Args:
            table: The rows.
            executor: Runs calls one at a time, in order.
            write: Runs a call that does not sync, in the same order, possibly with less delay.

        Raises:
            DataLossError: A row is damaged, missing or unexpected.
        """
        summary, rows = await asyncio.get_running_loop().run_in_executor(executor, _load, table)
        return cls(table, executor, write, summary, rows)

    # Why these only pass on: the contract is asynchronous, for stores that are asked over a network.
    async def get(self, key: str) -> Versioned | None:
        return self._map.values.get(key)

    async def list(self, prefix: str) -> dict[str, Versioned]:
        return self._map.list(prefix)

    async def commit(self, changes: Sequence[Change], *, is_before_log: bool = False) -> int:
        """See MetadataStore. Cancelling does not stop a commit that has started."""
        if self._is_closed:
            raise StorageFailedError("the metadata store is closed")
        call = partial(self._commit, tuple(changes), syncs=not is_before_log)
        if is_before_log:
            return await self._write(call)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    async def close(self) -> None:
        """See MetadataStore. The rows and the executor belong to the caller."""
        self._is_closed = True

    def _commit(self, changes: Sequence[Change], *, syncs: bool) -> int:
        self._map.check(changes)
        revision = self._map.revision + 1
        keys, rows_hash = self._summary.keys, self._summary.rows_hash
        puts, deletes = [], []
        for change in changes:
            key = value_key(change.key)
            if before := self._map.values.get(change.key):
                keys -= 1
                rows_hash ^= row_hash(key, pack_value(key, before))
            if isinstance(change, Put):
                row = pack_value(key, Versioned(change.value, revision))
                puts.append((key, row))
                keys += 1
                rows_hash ^= row_hash(key, row)
            else:
                deletes.append(key)
        summary = Summary(revision, keys, rows_hash)
        puts.append((SUMMARY_KEY, pack_summary(summary)))
        self._table.apply(puts, deletes, syncs=syncs)
        self._summary = summary
        return self._map.apply(changes)


def stored_values(table: MetadataRows) -> dict[str, Versioned]:
    """Return all values of a table, by key. Raises DataLossError if a row is damaged, missing or unexpected."""
    _, rows = _load(table)
    return rows.list("")


def value_key(key: str) -> bytes:
    """Return the key of the row of ``key``."""
    return _VALUE_TAG + key.encode()


def pack_value(row_key: bytes, value: Versioned) -> bytes:
    """Return the row of a value."""
    return _sealed(row_key, _VALUE.pack(ROW_VERSION, value.revision) + value.value)


def pack_summary(summary: Summary) -> bytes:
    """Return the summary row."""
    rows_hash = summary.rows_hash.to_bytes(HASH_BYTES, "big")
    return _sealed(SUMMARY_KEY, _SUMMARY.pack(ROW_VERSION, summary.revision, summary.keys, rows_hash))


def row_hash(key: bytes, row: bytes) -> int:
    """Return the hash of a value row, which the summary combines by exclusive or."""
    return int.from_bytes(blake2b(len(key).to_bytes(4, "big") + key + row, digest_size=HASH_BYTES).digest(), "big")


def _load(table: MetadataRows) -> tuple[Summary, RevisionedMap]:
    summary, rows_hash = Summary(), 0
    values: list[tuple[str, Versioned]] = []
    for key, row in table.scan():
        body = _opened(key, row)
        if key == SUMMARY_KEY:
            _, revision, keys, hash_then = _SUMMARY.unpack(body)
            summary = Summary(revision, keys, int.from_bytes(hash_then, "big"))
        else:
            _, revision = _VALUE.unpack_from(body)
            values.append((key[len(_VALUE_TAG) :].decode(), Versioned(body[_VALUE.size :], revision)))
            rows_hash ^= row_hash(key, row)
    if (len(values), rows_hash) != (summary.keys, summary.rows_hash):
        raise DataLossError(
            f"the metadata has {len(values)} keys, but {summary.keys} were written, or a row is outdated: restore the "
            "data folder from a backup",
            keys=len(values), expected_keys=summary.keys,
        )  # fmt: skip
    return summary, RevisionedMap(summary.revision, values)


def _sealed(key: bytes, body: bytes) -> bytes:
    return body + crc32c(key + body).to_bytes(_CRC_BYTES, "big")


def _opened(key: bytes, row: bytes) -> bytes:
    body = row[:-_CRC_BYTES]
    expected_bytes = _SUMMARY.size if key == SUMMARY_KEY else max(_VALUE.size, len(body))
    if crc32c(key + body) != int.from_bytes(row[-_CRC_BYTES:], "big") or len(body) != expected_bytes:
        raise DataLossError(
            f"the metadata row {key[:64]!r} is damaged: restore the data folder from a backup", key=key[:64]
        )
    if body[0] != ROW_VERSION:
        raise DataLossError(
            f"the metadata row {key[:64]!r} has version {body[0]}, but this server reads version {ROW_VERSION}: use "
            "the server version that wrote it",
            key=key[:64], version=body[0],
        )  # fmt: skip
    return body
