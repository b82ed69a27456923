"""The catalog: records of channels in the metadata store.

Keys under the root (see docs/reference/format.md)::

    <root>/timestamp              the oracle's bound, written by log.oracle
    <root>/next_vchannel_id       the next free vchannel id, decimal
    <root>/next_channel_number    the next number for channels named by the server, decimal
    <root>/channel/<name>         one record, JSON
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidelog_server.channels.changes import ChannelChange, Growth
from tidelog_server.channels.contents import Content, ContentKind
from tidelog_server.core.callers import NO_TENANT, Tenant
from tidelog_server.core.errors import ChannelAlreadyExistsError, DataLossError
from tidelog_server.core.limits import MAX_CHANGES_PER_COMMIT, MAX_CHANNELS_PER_REQUEST, WHOLE_PERCENT
from tidelog_server.core.retention import KEEP_FOR_EVER, GroupCut, Retention
from tidelog_server.core.ticks import Tick
from tidelog_server.core.usage import Usage
from tidelog_server.metadata.json_records import decode_record, encode_record
from tidelog_server.metadata.record_table import RecordTable
from tidelog_server.metadata.store import Change, Delete, MetadataStore, Put

MAX_CHANNELS: Final = 10_000
MAX_VCHANNELS: Final = 100_000

ROOT: Final = "tidelog"
"""Prefix of the keys of all records."""

# In the metadata since format 1.
_RECORD_VERSION: Final = 1
assert MAX_CHANNELS_PER_REQUEST + 2 <= MAX_CHANGES_PER_COMMIT


@dataclass(frozen=True, slots=True)
class Owner:
    """The creator of a channel; informational."""

    role: str = ""
    address: str = ""
    description_text: str = ""


NO_OWNER: Final = Owner()


@dataclass(frozen=True, slots=True)
class NewChannels:
    """Properties of channels that are created together.

    Attributes:
        number: Number of channels if the server names them; 0 if the caller does.
        vchannels: Number of vchannels of each channel.
        owner: Creator of the channels.
        retention: Retention settings.
        is_placed: True if a cluster chooses the nodes; False to create the channels on this node.
        tenant: Tenant of the creating principal.
        contents: Journals or mailboxes whose messages the channels will hold; the server names the channels.
        accepts_any: True to accept existing channels with any number of vchannels.
    """

    number: int = 0
    vchannels: int = 1
    owner: Owner = NO_OWNER
    retention: Retention = KEEP_FOR_EVER
    is_placed: bool = True
    tenant: Tenant = NO_TENANT
    contents: tuple[Content, ...] = ()
    accepts_any: bool = False


@dataclass(frozen=True, slots=True)
class ChannelRecord:
    """The record of a channel.

    Attributes:
        name: Name of the channel.
        vchannel_ids: Ids of its vchannels in the log store, by index; never reused.
        owner: Creator of the channel.
        created_tick: Tick of the creation.
        is_destroying: Set before the entries are deleted; a restart resumes the deletion.
        retention: Retention settings.
        cuts: Data that the hard cap of retention deleted past consumer groups, by index of the vchannel; sorted by
            index.
        node_id: Node that owns the channel; empty on a standalone server.
        tenant: Tenant of the creating principal, hexadecimal; empty for NO_TENANT.
        content: Journal or mailbox whose messages it holds; None for other channels.
        growths: When vchannels were added, oldest first.
        is_growing: True until the groups that are subscribed to its earlier vchannels are subscribed to the added ones.
        revision: Metadata revision of its last change.
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
    content: Content | None = None
    growths: tuple[Growth, ...] = ()
    is_growing: bool = False
    revision: int = field(default=0, compare=False)

    @property
    def content_name(self) -> str:
        """Name of the journal or mailbox whose messages it holds; empty for other channels."""
        return "" if self.content is None else self.content.name

    def holds(self, kind: ContentKind) -> bool:
        """Return whether it holds messages of a journal, or of a mailbox."""
        return self.content is not None and self.content.kind is kind

    def grown(self, tick: Tick, vchannel_ids: Iterable[int]) -> "ChannelRecord":
        """Return the record with further vchannels, whose messages have ticks above ``tick``."""
        return replace(
            self,
            vchannel_ids=(*self.vchannel_ids, *vchannel_ids),
            growths=(*self.growths, Growth(tick, len(self.vchannel_ids))),
            is_growing=True,
        )

    def encode(self) -> bytes:
        """Return the record as it is stored."""
        fields: dict[str, Any] = {
            "name": self.name, "vchannel_ids": self.vchannel_ids, "owner": _fields(self.owner),
            "created_tick": self.created_tick, "is_destroying": self.is_destroying,
        }  # fmt: skip
        if self.retention != KEEP_FOR_EVER:
            fields["retention"] = _fields(self.retention)
        if self.node_id:
            fields["node_id"] = self.node_id
        if self.cuts:
            fields["cuts"] = [[index, _fields(cut)] for index, cut in self.cuts]
        if self.tenant:
            fields["tenant"] = self.tenant
        if self.content is not None:
            fields[self.content.kind.value] = self.content.name
        if self.growths:
            fields["growths"] = self.growths
        if self.is_growing:
            fields["is_growing"] = True
        return encode_record(_RECORD_VERSION, fields)

    @classmethod
    def decode(cls, key: str, value: bytes, revision: int = 0) -> "ChannelRecord":
        """Parse what ``encode`` returned. Raises DataLossError if ``value`` is invalid."""

        def parse(fields: dict[str, Any]) -> ChannelRecord:
            fields["owner"] = Owner(**fields["owner"])
            fields["vchannel_ids"] = tuple(fields["vchannel_ids"])
            if "retention" in fields:
                fields["retention"] = Retention(**fields["retention"])
            if "cuts" in fields:
                fields["cuts"] = tuple((index, _cut(**cut)) for index, cut in fields["cuts"])
            fields["growths"] = tuple(Growth(*each) for each in fields.get("growths", ()))
            bytes.fromhex(fields.get("tenant", ""))
            fields["content"] = _content(fields)
            return cls(**fields, revision=revision)

        return decode_record(value, _RECORD_VERSION, parse, key, key=key)


def check_owners(records: Iterable[ChannelRecord], batches: Mapping[int, int]) -> None:
    """Raise DataLossError if a vchannel with entries belongs to no channel.

    Args:
        records: Records of all channels.
        batches: Number of entries by vchannel id.
    """
    known = {number for record in records for number in record.vchannel_ids}
    orphans = sorted(number for number, count in batches.items() if count and number not in known)
    if orphans:
        raise DataLossError(
            f"the log has {len(orphans)} vchannels that belong to no channel in the metadata (first id {orphans[0]}): "
            "the metadata is that of another data folder, or was lost; restore both from one backup",
            vchannel_ids=len(orphans),
        )


def _fields(part: Owner | Retention | GroupCut) -> dict[str, Any]:
    return {name: getattr(part, name) for name in part.__slots__}


def _content(fields: dict[str, Any]) -> Content | None:
    """Remove the content from the fields of a record, and return it."""
    contents = [Content(kind, str(fields.pop(kind))) for kind in ContentKind if kind in fields]
    if "content" in fields or len(contents) > 1:
        raise ValueError("it has more than one content")
    return contents[0] if contents else None


def _cut(*, groups: Sequence[str], **rest: Any) -> GroupCut:
    return GroupCut(groups=tuple(groups), **rest)


class Catalog(RecordTable[ChannelRecord]):
    """Channel records, and the two counters for new channels. The caller serialises changes.

    In a cluster it holds the records of all nodes and follows their changes. It creates channels for any node, and
    changes only those of its own node. A change raises RevisionConflictError if another node was faster: call
    ``refresh`` and retry.

    Attributes:
        own, foreign: Records of this node, and of all other nodes, including channels that are being destroyed.
        channels_of, vchannels_of: Number of channels and vchannels of each node that has any.
        oracle_key: Key of the tick oracle's bound.
    """

    def __init__(self, metadata: MetadataStore, root: str, node_id: str = "") -> None:
        prefix = f"{root}/channel/"
        super().__init__(metadata, prefix, lambda name, *stored: ChannelRecord.decode(prefix + name, *stored))
        self.oracle_key = f"{root}/timestamp"
        self._vchannel_id_key = f"{root}/next_vchannel_id"
        self._channel_number_key = f"{root}/next_channel_number"
        self._node_id = node_id
        self.own: dict[str, ChannelRecord] = {}
        self.foreign: dict[str, ChannelRecord] = {}
        # Usage by all records of this node, including channels that are being destroyed.
        self._channels_usage = Usage()
        self._vchannels_usage = Usage()
        self._counters: dict[str, tuple[int, int]] = {}
        self.channels_of: Counter[str] = Counter()
        self.vchannels_of: Counter[str] = Counter()

    async def open(self) -> None:
        """Load all records. Raises DataLossError if one is unreadable."""
        await super().open()
        await self._read_counters()

    def content_of(self, channel: str) -> Content | None:
        """Return the journal or mailbox whose messages a channel of any node holds; None without one."""
        record = self.records.get(channel)
        return None if record is None else record.content

    def tenant_of(self, channel: str) -> Tenant:
        """Return the tenant of the principal that created a channel of this node; NO_TENANT without one."""
        record = self.own.get(channel)
        return NO_TENANT if record is None else bytes.fromhex(record.tenant)

    async def refresh(self, names: Sequence[str]) -> None:
        """Reload the counters and the records of ``names`` after a conflict."""
        await self._read_counters()
        await super().refresh(names)

    async def refresh_foreign(self, names: Sequence[str]) -> None:
        """Reload those records of ``names`` that another node may have changed."""
        await super().refresh([name for name in names if name in self.foreign])

    async def create(
        self,
        names: Sequence[str],
        new: NewChannels,
        created_tick: Tick,
        nodes: Sequence[str] = (),
        *,
        percent: int = WHOLE_PERCENT,
        also: Callable[[Sequence[ChannelRecord]], Sequence[Change]] = lambda _: (),
    ) -> list[ChannelRecord]:
        """Create channels called ``names``, or those of ``new.contents``, or ``new.number`` channels with free names.

        Durable, all or none.

        Args:
            names: Names; empty if the server names the channels.
            new: Properties.
            created_tick: Tick of the creation.
            nodes: Owner of each channel, in the same order; if empty, this node owns all.
            percent: Bounds the share of a principal.
            also: Returns further changes for the same commit from the new records.

        Raises:
            ChannelAlreadyExistsError: A name is taken. Nothing happened.
            RateLimitRejectedError: The node would have too many channels or vchannels, or the principal more than its
                share, which ``percent`` bounds. Nothing happened.
            RevisionConflictError: Another node was faster. Nothing happened.
        """
        if taken := [name for name in names if name in self.records]:
            raise ChannelAlreadyExistsError.of(taken)
        vchannels, count = new.vchannels, len(names) or len(new.contents) or new.number
        assert 0 < vchannels
        assert len(set(names)) == len(names)
        nodes = nodes or [self._node_id] * count
        here = nodes.count(self._node_id)
        self._check_room(here, here * vchannels, new.tenant, percent)
        (first_id, id_revision) = self._counters[self._vchannel_id_key]
        (number, number_revision) = self._counters[self._channel_number_key]
        next_id = first_id + vchannels * count
        ids = range(first_id, next_id, vchannels)
        new_names, next_number = list(names), number
        if new.contents:
            new_names = [content.channel(vchannel_id) for content, vchannel_id in zip(new.contents, ids, strict=True)]
        elif not names:
            new_names, next_number = self._free_names(new.number, number)
        contents = new.contents or (None,) * count
        records = [
            ChannelRecord(
                name, tuple(range(begin, begin + vchannels)), new.owner, created_tick, retention=new.retention,
                node_id=node_id, tenant=new.tenant.hex(), content=content,
            )
            for name, node_id, begin, content in zip(new_names, nodes, ids, contents, strict=True)
        ]  # fmt: skip
        changes: list[Change] = [Put(self.key(record.name), record.encode(), 0) for record in records]
        changes.append(Put(self._vchannel_id_key, str(next_id).encode(), id_revision))
        if next_number != number:
            changes.append(Put(self._channel_number_key, str(next_number).encode(), number_revision))
        changes += also(records)
        revision = await self._metadata.commit(changes)
        self._counters[self._vchannel_id_key] = (next_id, revision)
        if next_number != number:
            self._counters[self._channel_number_key] = (next_number, revision)
        return self._stored(records, revision)

    async def mark_destroying(self, names: Sequence[str]) -> list[ChannelRecord]:
        """Mark channels as being destroyed; durable, all or none."""
        await self._replace([replace(self.own[name], is_destroying=True) for name in names])
        return [self.own[name] for name in names]

    async def alter(self, names: Sequence[str], change: ChannelChange, tick: Tick, *, percent: int) -> None:
        """Change settings of existing channels, and add vchannels; durable, all or none.

        Args:
            names: Names of channels of this node.
            change: The change.
            tick: A tick that no message on the added vchannels reaches.
            percent: Bounds the share of a principal.

        Raises:
            InvalidRequestError: The new settings of a channel contradict each other, or vchannels cannot be added to
                it. Nothing happened.
            RateLimitRejectedError: The node would have too many vchannels, or a principal more than its share. Nothing
                happened.
            RevisionConflictError: Another node was faster. Nothing happened.
        """
        olds = [self.own[name] for name in names]
        added = {old.name: change.added_to(old.name, len(old.vchannel_ids), old.content_name) for old in olds}
        self._check_growth(added, percent)
        next_id, id_revision = self._counters[self._vchannel_id_key]
        records = []
        for old in olds:
            record = replace(old, retention=change.retention.applied_to(old.retention))
            record.retention.check(record.name)
            if count := added[old.name]:
                record = record.grown(tick, range(next_id, next_id + count))
                next_id += count
            records.append(record)
        changed = [record for record, old in zip(records, olds, strict=True) if record != old]
        if not any(added.values()):
            if changed:
                await self._replace(changed)
            return
        counter = Put(self._vchannel_id_key, str(next_id).encode(), id_revision)
        self._counters[self._vchannel_id_key] = (next_id, await self._replace(changed, [counter]))

    async def finish_growth(self, records: Sequence[ChannelRecord]) -> None:
        """Note that the vchannels of grown channels are all open, and their groups subscribed; durable."""
        await self._replace([replace(record, is_growing=False) for record in records])

    async def add_cuts(self, name: str, cuts: dict[int, GroupCut]) -> None:
        """Persist cuts past consumer groups, by index of the vchannel."""
        record = self.own[name]
        await self._replace([replace(record, cuts=tuple(sorted((dict(record.cuts) | cuts).items())))])

    async def remove(self, names: Sequence[str]) -> None:
        """Delete the records of channels whose entries are deleted; durable, all or none."""
        assert all(self.own[name].is_destroying for name in names)
        await self._metadata.commit([Delete(self.key(name), self.records[name].revision) for name in names])
        for name in names:
            self.forget(name)

    async def _replace(self, records: list[ChannelRecord], also: Sequence[Change] = ()) -> int:
        """Replace records of existing channels; durable, all or none. Returns the revision."""
        changes = [*(Put(self.key(record.name), record.encode(), record.revision) for record in records), *also]
        revision = await self._metadata.commit(changes)
        self._stored(records, revision)
        return revision

    def _stored(self, records: list[ChannelRecord], revision: int) -> list[ChannelRecord]:
        """Note that new records were stored at ``revision``, and return them with it."""
        for record in records:
            # In place, because the caller alone has them yet: a copy takes longer than the rest of this.
            object.__setattr__(record, "revision", revision)
            self.learn(record)
        return records

    def learn(self, record: ChannelRecord) -> None:
        """Note a record that is stored."""
        assert self.revision_of(record.name) < record.revision
        self._leave_out(record.name)
        super().learn(record)
        (self.own if record.node_id == self._node_id else self.foreign)[record.name] = record
        self._count(record, 1)

    def forget(self, name: str) -> None:
        """Note that no record with this name is stored."""
        self._leave_out(name)
        super().forget(name)

    def _leave_out(self, name: str) -> None:
        self.foreign.pop(name, None)
        self.own.pop(name, None)
        if (record := self.records.get(name)) is not None:
            self._count(record, -1)

    def _count(self, record: ChannelRecord, sign: int) -> None:
        vchannels = sign * len(record.vchannel_ids)
        for counter, amount in ((self.channels_of, sign), (self.vchannels_of, vchannels)):
            counter[record.node_id] += amount
            if not counter[record.node_id]:
                del counter[record.node_id]
        if record.node_id == self._node_id:
            tenant = bytes.fromhex(record.tenant)
            self._channels_usage.add(tenant, sign)
            self._vchannels_usage.add(tenant, vchannels)

    def _free_names(self, count: int, number: int) -> tuple[list[str], int]:
        """Return ``count`` free names, numbered from ``number`` on, and the next number."""
        names: list[str] = []
        while len(names) < count:
            name = f"channel-{number}"
            number += 1
            if name not in self.records:
                names.append(name)
        return names, number

    async def _read_counters(self) -> None:
        for key in (self._vchannel_id_key, self._channel_number_key):
            found = await self._metadata.get(key)
            self._counters[key] = (int(found.value), found.revision) if found else (1, 0)

    def _check_growth(self, added: Mapping[str, int], percent: int) -> None:
        """Raise RateLimitRejectedError unless channels may get these numbers of vchannels."""
        of_tenants: Counter[Tenant] = Counter()
        for name, count in added.items():
            of_tenants[self.tenant_of(name)] += count
        self._check_room(0, of_tenants.total(), NO_TENANT, percent)
        for tenant, count in of_tenants.items():
            self._check_room(0, count, tenant, percent)

    def _check_room(self, channels: int, vchannels: int, tenant: Tenant, percent: int) -> None:
        for unit, usage, amount, maximum in (
            ("channels", self._channels_usage, channels, MAX_CHANNELS),
            ("vchannels", self._vchannels_usage, vchannels, MAX_VCHANNELS),
        ):
            if amount:
                usage.check(
                    tenant, amount, maximum, percent, unit=unit, name=unit,
                    full=f"the node would have {{total}} {unit}, at most {{maximum}} are allowed: destroy some first",
                )  # fmt: skip
