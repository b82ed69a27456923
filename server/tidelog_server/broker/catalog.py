"""The catalog: what the metadata store knows about channels.

Keys under the root (see FORMAT.md)::

    <root>/timestamp              the oracle's bound, written by log.oracle
    <root>/next_vchannel_id       the next free vchannel id, decimal
    <root>/next_channel_number    the next number for a channel that the server names, decimal
    <root>/channel/<name>         one record, JSON
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tidelog_server.core.errors import ChannelAlreadyExistsError, DataLossError, RateLimitRejectedError
from tidelog_server.core.limits import (
    MAX_CHANGES_PER_COMMIT,
    MAX_CHANNELS,
    MAX_CHANNELS_PER_REQUEST,
    MAX_VCHANNELS,
    WHOLE_PERCENT,
)
from tidelog_server.core.retention import KEEP_FOR_EVER, GroupCut, Retention, RetentionChange
from tidelog_server.core.tenants import NO_TENANT, Tenant
from tidelog_server.core.ticks import Tick
from tidelog_server.core.usage import Usage
from tidelog_server.metadata.store import Change, Delete, MetadataStore, Put, Watched

ROOT: Final = "tidelog"
"""What the keys of all records begin with."""

# In the metadata since format 1.
_RECORD_VERSION: Final = 1
assert MAX_CHANNELS_PER_REQUEST + 2 <= MAX_CHANGES_PER_COMMIT


@dataclass(frozen=True, slots=True)
class Owner:
    """Who created a channel, for people who find it later."""

    role: str = ""
    address: str = ""
    description_text: str = ""


NOBODY: Final = Owner()


@dataclass(frozen=True, slots=True)
class NewChannels:
    """What channels shall be that are created together.

    Attributes:
        number: How many, if the server names them; 0 if the caller does.
        vchannels: Of each.
        owner: Who creates them.
        retention: What they may forget.
        is_placed: Whether a cluster chooses their nodes; else they are this node's.
        tenant: The tenant of the principal that creates them.
    """

    number: int = 0
    vchannels: int = 1
    owner: Owner = NOBODY
    retention: Retention = KEEP_FOR_EVER
    is_placed: bool = True
    tenant: Tenant = NO_TENANT


@dataclass(frozen=True, slots=True)
class ChannelRecord:
    """What is remembered about a channel.

    Attributes:
        name: Its name.
        vchannel_ids: Numbers of its vchannels in the log store, by index; never used again.
        owner: Who created it.
        created_tick: When.
        is_destroying: Set before its entries are removed; a restart goes on with the removal.
        retention: What it may forget by itself.
        cuts: What the hard cap of its retention has cut past consumer groups: index of the vchannel and what,
            in order of index.
        node_id: The node that owns it; empty for a server that is alone.
        tenant: The tenant of the principal that created it, hexadecimal; empty for NO_TENANT.
    """

    name: str
    vchannel_ids: tuple[int, ...]
    owner: Owner
    created_tick: Tick
    is_destroying: bool = False
    retention: Retention = KEEP_FOR_EVER
    cuts: tuple[tuple[int, GroupCut], ...] = ()
    node_id: str = ""
    tenant: str = ""

    def encode(self) -> bytes:
        """Return the record as it is stored."""
        fields: dict[str, Any] = {
            "version": _RECORD_VERSION, "name": self.name, "vchannel_ids": self.vchannel_ids,
            "owner": _fields(self.owner), "created_tick": self.created_tick, "is_destroying": self.is_destroying,
        }  # fmt: skip
        if self.retention != KEEP_FOR_EVER:
            fields["retention"] = _fields(self.retention)
        if self.node_id:
            fields["node_id"] = self.node_id
        if self.cuts:
            fields["cuts"] = [[index, _fields(cut)] for index, cut in self.cuts]
        if self.tenant:
            fields["tenant"] = self.tenant
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, key: str, value: bytes) -> "ChannelRecord":
        """Return the record that ``encode`` made. Raises DataLossError if it is none."""
        try:
            fields = json.loads(value)
            version = fields.pop("version")
            fields["owner"] = Owner(**fields["owner"])
            fields["vchannel_ids"] = tuple(fields["vchannel_ids"])
            if "retention" in fields:
                fields["retention"] = Retention(**fields["retention"])
            if "cuts" in fields:
                fields["cuts"] = tuple((index, _cut(**cut)) for index, cut in fields["cuts"])
            bytes.fromhex(fields.get("tenant", ""))
            record = cls(**fields)
        except (ValueError, TypeError, KeyError) as error:
            raise DataLossError(f"the metadata record {key} cannot be read ({error})", key=key) from error
        if version != _RECORD_VERSION:
            raise DataLossError(f"the metadata record {key} has the unknown version {version}", key=key)
        return record


def check_owners(records: Iterable[ChannelRecord], batches: Mapping[int, int]) -> None:
    """Check that all vchannels with entries belong to a channel; ``batches`` has the number of each, by id.

    Raises:
        DataLossError: Records were lost.
    """
    known = {number for record in records for number in record.vchannel_ids}
    orphans = sorted(number for number, count in batches.items() if count and number not in known)
    if orphans:
        raise DataLossError(
            f"the log has {len(orphans)} vchannels that no channel in the metadata owns (first id {orphans[0]}): "
            "the metadata belongs to another data folder, or was lost; restore both from one backup",
            vchannel_ids=len(orphans),
        )


def _fields(part: Owner | Retention | GroupCut) -> dict[str, Any]:
    return {name: getattr(part, name) for name in part.__slots__}


def _cut(*, groups: Sequence[str], **rest: Any) -> GroupCut:
    return GroupCut(groups=tuple(groups), **rest)


class Catalog:
    """Channel records, with the two counters that new ones draw from. Changes are serialised by the caller.

    In a cluster it has the records of all nodes, follows what others change, and changes only its own node's; new ones
    it may make for any node. RevisionConflictError from a change means that another node was faster: ``refresh`` and
    try again.
    """

    def __init__(self, metadata: MetadataStore, root: str, node_id: str = "") -> None:
        self._metadata = metadata
        self._root = root
        self._node_id = node_id
        # Of this node, and of all others.
        self._records: dict[str, ChannelRecord] = {}
        self._foreign: dict[str, ChannelRecord] = {}
        self._revisions: dict[str, int] = {}
        # Of all records of this node, those being destroyed included.
        self._channels_usage = Usage()
        self._vchannels_usage = Usage()
        self._counters: dict[str, tuple[int, int]] = {}
        # Grows with each change of a record.
        self.version = 0

    @property
    def oracle_key(self) -> str:
        """Where the tick oracle keeps its bound."""
        return f"{self._root}/timestamp"

    async def open(self) -> None:
        """Load everything. Raises DataLossError for a record that cannot be read."""
        for key, found in (await self._metadata.list(self._channel_key(""))).items():
            self._learn(ChannelRecord.decode(key, found.value), found.revision)
        await self._read_counters()

    def records(self) -> dict[str, ChannelRecord]:
        """Return all records of this node by name, those being destroyed included."""
        return self._records

    def foreign(self) -> dict[str, ChannelRecord]:
        """Return all records of other nodes by name, those being destroyed included."""
        return self._foreign

    def loads(self) -> dict[str, int]:
        """Return how many vchannels each node has, those without any left out."""
        loads = {self._node_id: self._vchannels_usage.total}
        for record in self._foreign.values():
            loads[record.node_id] = loads.get(record.node_id, 0) + len(record.vchannel_ids)
        return loads

    @property
    def channel_prefix(self) -> str:
        """What the keys of all records begin with."""
        return self._channel_key("")

    def follow(self, watched: Watched) -> None:
        """Take over what others have changed. What is older than what is known is passed over."""
        prefix = self.channel_prefix
        for key, found in watched.values.items():
            record = ChannelRecord.decode(key, found.value)
            if self._revisions.get(record.name, 0) < found.revision:
                self._learn(record, found.revision)
        gone = [key.removeprefix(prefix) for key in watched.deleted]
        if watched.is_snapshot:
            gone += [name for name in self._revisions if prefix + name not in watched.values]
        for name in gone:
            if self._revisions.get(name, 0) < watched.revision:
                self._forget(name)

    async def refresh(self, names: Sequence[str]) -> None:
        """Read again what stands in the way of a change: the counters, and the records of ``names``."""
        await self._read_counters()
        for name in names:
            key = self._channel_key(name)
            found = await self._metadata.get(key)
            if found is None:
                self._forget(name)
            elif self._revisions.get(name, 0) < found.revision:
                self._learn(ChannelRecord.decode(key, found.value), found.revision)

    async def create(
        self,
        names: Sequence[str],
        wanted: NewChannels,
        created_tick: Tick,
        nodes: Sequence[str] = (),
        *,
        percent: int = WHOLE_PERCENT,
    ) -> list[ChannelRecord]:
        """Add channels under ``names``, or ``wanted.number`` of them under free names; durable, all or none.

        With ``nodes``, each for the node in its place; else all for this one.

        Raises:
            ChannelAlreadyExistsError: A name is taken. Nothing happened.
            RateLimitRejectedError: The node has too many channels or vchannels, or the principal more than ``percent``
                of them allows. Nothing happened.
            RevisionConflictError: Another node was faster. Nothing happened.
        """
        if taken := [name for name in names if name in self._revisions]:
            raise ChannelAlreadyExistsError.of(taken)
        vchannels, count = wanted.vchannels, len(names) or wanted.number
        nodes = nodes or [self._node_id] * count
        self._check_room(nodes.count(self._node_id), vchannels, wanted.tenant, percent)
        (first_id, id_revision) = self._counters[self._vchannel_id_key]
        (number, number_revision) = self._counters[self._channel_number_key]
        new_names, next_number = (list(names), number) if names else self._free_names(wanted.number, number)
        next_id = first_id + vchannels * len(new_names)
        records = [
            ChannelRecord(
                name, tuple(range(begin, begin + vchannels)), wanted.owner, created_tick, retention=wanted.retention,
                node_id=node_id, tenant=wanted.tenant.hex(),
            )
            for name, node_id, begin in zip(new_names, nodes, range(first_id, next_id, vchannels), strict=True)
        ]  # fmt: skip
        changes: list[Change] = [Put(self._channel_key(record.name), record.encode(), 0) for record in records]
        changes.append(Put(self._vchannel_id_key, str(next_id).encode(), id_revision))
        if not names:
            changes.append(Put(self._channel_number_key, str(next_number).encode(), number_revision))
        revision = await self._metadata.commit(changes)
        for record in records:
            self._learn(record, revision)
        self._counters[self._vchannel_id_key] = (next_id, revision)
        if not names:
            self._counters[self._channel_number_key] = (next_number, revision)
        return records

    async def mark_destroying(self, names: Sequence[str]) -> list[ChannelRecord]:
        """Note that the removal of channels has begun; durable, all or none."""
        return await self._replace([replace(self._records[name], is_destroying=True) for name in names])

    async def alter(self, names: Sequence[str], change: RetentionChange) -> list[ChannelRecord]:
        """Change settings of channels that exist; durable, all or none.

        Raises:
            InvalidRequestError: The settings of one would contradict each other. Nothing happened.
        """
        records = [
            replace(self._records[name], retention=change.applied_to(self._records[name].retention)) for name in names
        ]
        for record in records:
            record.retention.check(record.name)
        return await self._replace(records)

    async def note_cuts(self, name: str, cuts: dict[int, GroupCut]) -> None:
        """Remember what vchannels, by index, were cut past groups; durable."""
        record = self._records[name]
        await self._replace([replace(record, cuts=tuple(sorted((dict(record.cuts) | cuts).items())))])

    async def remove(self, names: Sequence[str]) -> None:
        """Forget channels whose entries are gone; durable, all or none."""
        await self._metadata.commit([Delete(self._channel_key(name), self._revisions[name]) for name in names])
        for name in names:
            self._forget(name)

    async def _replace(self, records: list[ChannelRecord]) -> list[ChannelRecord]:
        """Write records of channels that exist; durable, all or none."""
        changes = [
            Put(self._channel_key(record.name), record.encode(), self._revisions[record.name]) for record in records
        ]
        revision = await self._metadata.commit(changes)
        for record in records:
            self._learn(record, revision)
        return records

    def _learn(self, record: ChannelRecord, revision: int) -> None:
        self._forget(record.name)
        self._revisions[record.name] = revision
        if record.node_id == self._node_id:
            self._records[record.name] = record
            self._count(record, 1)
        else:
            self._foreign[record.name] = record

    def _forget(self, name: str) -> None:
        self.version += 1
        self._revisions.pop(name, None)
        self._foreign.pop(name, None)
        if (record := self._records.pop(name, None)) is not None:
            self._count(record, -1)

    def _count(self, record: ChannelRecord, sign: int) -> None:
        tenant = bytes.fromhex(record.tenant)
        self._channels_usage.add(tenant, sign)
        self._vchannels_usage.add(tenant, sign * len(record.vchannel_ids))

    def _free_names(self, count: int, number: int) -> tuple[list[str], int]:
        """Return so many names that are not taken, from ``number`` on, and the number behind them."""
        names: list[str] = []
        while len(names) < count:
            name = f"channel-{number}"
            number += 1
            if name not in self._revisions:
                names.append(name)
        return names, number

    async def _read_counters(self) -> None:
        for key in (self._vchannel_id_key, self._channel_number_key):
            found = await self._metadata.get(key)
            self._counters[key] = (int(found.value), found.revision) if found else (1, 0)

    def _check_room(self, channels: int, vchannels: int, tenant: Tenant, percent: int) -> None:
        for unit, usage, amount, maximum in (
            ("channels", self._channels_usage, channels, MAX_CHANNELS),
            ("vchannels", self._vchannels_usage, channels * vchannels, MAX_VCHANNELS),
        ):
            if (total := usage.total + amount) > maximum:
                raise RateLimitRejectedError(
                    f"the node would have {total} {unit}, at most {maximum} are allowed: destroy some first",
                    **{unit: total, f"max_{unit}": maximum},
                )
            usage.check_share(tenant, amount, maximum, percent, unit)

    def _channel_key(self, name: str) -> str:
        return f"{self._root}/channel/{name}"

    @property
    def _vchannel_id_key(self) -> str:
        return f"{self._root}/next_vchannel_id"

    @property
    def _channel_number_key(self) -> str:
        return f"{self._root}/next_channel_number"
