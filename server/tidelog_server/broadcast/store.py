"""Broadcasts in the metadata store: which records exist, and which change in one commit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog_server.broadcast.keys import ResourceKeys
from tidelog_server.broadcast.records import Progress, TaskRecord, Tombstone, decode_floor
from tidelog_server.broadcast.table import Task
from tidelog_server.core.callers import Tenant
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.limits import MAX_CHANGES_PER_COMMIT
from tidelog_server.metadata.shared_commits import SharedCommits
from tidelog_server.metadata.store import Change, Delete, MetadataStore, Put, Versioned

MAX_FORGOTTEN_AT_ONCE: Final = (MAX_CHANGES_PER_COMMIT - 1) // 3
"""Tombstones deleted per commit. Each may raise one floor and delete one, in addition to the common floor."""

_OPEN: Final = {"task", "progress"}
_PENDING: Final = {"task", "progress", "message"}
_FINISHED: Final = {"tombstone"}


@dataclass(slots=True)
class LoadedRecords:
    """All records, as loaded at a start.

    Attributes:
        tasks: Open broadcasts, sorted by id.
        messages: Columns of pending broadcasts, by id.
        tombstones: Finished broadcasts.
        floors: Greatest forgotten id of each tenant.
    """

    tasks: list[Task] = field(default_factory=list)
    messages: dict[int, bytes] = field(default_factory=dict)
    tombstones: list[Tombstone] = field(default_factory=list)
    floors: dict[Tenant, int] = field(default_factory=dict)


class BroadcastRecords:
    """Reads and writes the records of broadcasts. The caller serialises changes of one broadcast."""

    def __init__(self, metadata: MetadataStore, commits: SharedCommits, root: str) -> None:
        self._metadata = metadata
        self._commits = commits
        self._prefix = f"{root}/broadcast/"
        self._floor_key = f"{root}/broadcast_floor"
        # Revisions of the progress records of open broadcasts.
        self._revisions: dict[int, int] = {}

    async def load(self) -> LoadedRecords:
        """Return all records.

        Raises:
            DataLossError: A record is missing, unexpected or unreadable.
        """
        loaded = LoadedRecords()
        by_id: dict[int, dict[str, Versioned]] = {}
        for key, found in (await self._metadata.list(self._prefix)).items():
            number, _, name = key.removeprefix(self._prefix).partition("/")
            if not number.isdecimal():
                raise DataLossError(
                    f"the metadata record {key} belongs to no broadcast: restore the data folder from a backup", key=key
                )
            by_id.setdefault(int(number), {})[name] = found
        for broadcast_id in sorted(by_id):
            self._load_one(broadcast_id, by_id[broadcast_id], loaded)
        for key, floor in (await self._metadata.list(self._floor_key)).items():
            tenant = bytes.fromhex(key.removeprefix(self._floor_key).removeprefix("/"))
            loaded.floors[tenant] = decode_floor(key, floor.value)
        return loaded

    def _load_one(self, broadcast_id: int, records: dict[str, Versioned], loaded: LoadedRecords) -> None:
        if records.keys() == _FINISHED:
            key = self._key(broadcast_id, "tombstone")
            tombstone = Tombstone.decode(key, records["tombstone"].value)
            if tombstone.broadcast_id != broadcast_id:
                raise self._contradiction(broadcast_id, records)
            loaded.tombstones.append(tombstone)
            return
        if not records.keys() >= _OPEN:
            raise self._contradiction(broadcast_id, records)
        record = TaskRecord.decode(self._key(broadcast_id, "task"), records["task"].value)
        progress = Progress.decode(self._key(broadcast_id, "progress"), records["progress"].value)
        expected = _OPEN if progress.tick else _PENDING
        keys = {key.name for key in record.resource_keys}
        has_duplicates = len({*record.vchannel_ids}) < len(record.vchannel_ids) or len(keys) < len(record.resource_keys)
        if (
            has_duplicates
            or records.keys() != expected
            or record.broadcast_id != broadcast_id
            or progress.acks & ~record.all_acks
        ):
            raise self._contradiction(broadcast_id, records)
        if not progress.tick:
            loaded.messages[broadcast_id] = records["message"].value
        loaded.tasks.append(Task(record, progress))
        self._revisions[broadcast_id] = records["progress"].revision

    async def accept(self, task: Task, columns: bytes) -> None:
        """Write a pending broadcast. The caller appends it next; the records are durable once the append is."""
        record = task.record
        changes: list[Change] = [
            Put(self._key(record.broadcast_id, name), value, expected_revision=0)
            for name, value in (("task", record.encode()), ("message", columns), ("progress", task.durable.encode()))
        ]
        self._revisions[record.broadcast_id] = await self._commits.commit(changes, is_before_log=True)

    async def save(self, task: Task, pending: Progress | Tombstone) -> None:
        """Persist the new state of an open broadcast."""
        broadcast_id = task.record.broadcast_id
        before = task.durable
        assert isinstance(before, Progress)
        progress_key, revision = self._key(broadcast_id, "progress"), self._revisions[broadcast_id]
        changes: list[Change]
        if isinstance(pending, Tombstone):
            changes = [
                Put(self._key(broadcast_id, "tombstone"), pending.encode(), expected_revision=0),
                Delete(progress_key, revision),
                Delete(self._key(broadcast_id, "task"), None),
            ]
        else:
            changes = [Put(progress_key, pending.encode(), revision)]
        if before.tick < pending.tick:
            changes.append(Delete(self._key(broadcast_id, "message"), None))
        self._revisions[broadcast_id] = await self._commits.commit(changes)
        if isinstance(pending, Tombstone):
            del self._revisions[broadcast_id]

    async def forget(self, broadcast_ids: Sequence[int], floors: Mapping[Tenant, int | None]) -> None:
        """Delete at most MAX_FORGOTTEN_AT_ONCE tombstones and write floors, in one commit."""
        changes: list[Change] = [Delete(self._key(each, "tombstone"), None) for each in broadcast_ids]
        for tenant, floor in floors.items():
            key = f"{self._floor_key}/{tenant.hex()}" if tenant else self._floor_key
            changes.append(Delete(key, None) if floor is None else Put(key, str(floor).encode(), None))
        await self._commits.commit(changes)

    def _key(self, broadcast_id: int, name: str) -> str:
        return f"{self._prefix}{broadcast_id}/{name}"

    def _contradiction(self, broadcast_id: int, records: dict[str, Versioned]) -> DataLossError:
        return DataLossError(
            f"the metadata records of broadcast {broadcast_id} ({', '.join(sorted(records))}) contradict each other: "
            "restore the data folder from a backup",
            broadcast_id=broadcast_id,
        )


def take_keys_again(keys: ResourceKeys, task: Task) -> None:
    """Acquire the keys of a recovered broadcast. Raises DataLossError if another broadcast holds one."""
    broadcast_id = task.record.broadcast_id
    conflict = keys.try_acquire(broadcast_id, task.record.resource_keys)
    if conflict is not None:
        domain, key = conflict.key.name
        raise DataLossError(
            f"broadcasts {conflict.owner} and {broadcast_id} both hold the resource key '{key}' of domain "
            f"'{domain}': restore the data folder from a backup",
            broadcast_id=broadcast_id,
        )


def check_targets(task: Task, present: int) -> None:
    """Raise DataLossError if ``present``, the number of existing vchannels of a pending broadcast, is not all."""
    if present < len(task.record.vchannels):
        raise DataLossError(
            f"broadcast {task.record.broadcast_id} was accepted for {len(task.record.vchannels)} vchannels, of "
            f"which {present} exist: metadata and log do not match; restore the data folder from a backup",
            broadcast_id=task.record.broadcast_id,
        )
