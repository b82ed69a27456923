"""Records of consumer groups in the metadata store: ``<root>/group/<name>``, JSON (see docs/reference/format.md)."""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, get_args

from tidelog_server.core.errors import DataLossError, RateLimitRejectedError
from tidelog_server.core.groups import GroupKey
from tidelog_server.core.ticks import Tick
from tidelog_server.core.usage import Usage
from tidelog_server.log.scan.positions import Start, StartAll, StartAtTime, StartFrom, StartLatest
from tidelog_server.metadata.json_records import decode_record, encode_record
from tidelog_server.metadata.record_table import RecordTable
from tidelog_server.metadata.shared_commits import SharedCommits
from tidelog_server.metadata.store import Delete, MetadataStore, Put

MAX_GROUPS: Final = 10_000

# In the metadata since format 1.
_RECORD_VERSION: Final = 1
_START_NAMES: Final[dict[type[Start], str]] = {
    StartAll: "all", StartLatest: "latest", StartFrom: "from_tick", StartAtTime: "from_time_ms"
}  # fmt: skip
_STARTS: Final[dict[str, Callable[..., Start]]] = {name: start for start, name in _START_NAMES.items()}
assert set(_START_NAMES) == set(get_args(Start))


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """The record of a group, without its positions.

    Attributes:
        name: Name of the group.
        created_tick: Tick of the creation.
        start: Default start position on newly subscribed vchannels.
        tenant: Tenant of the creating principal, hexadecimal; empty for NO_TENANT.
        revision: Metadata revision of its creation.
    """

    name: str
    created_tick: Tick
    start: Start
    tenant: str = ""
    revision: int = field(default=0, compare=False)

    def encode(self) -> bytes:
        """Return the record as it is stored."""
        start = [_START_NAMES[type(self.start)], *_value_of(self.start)]
        fields: dict[str, object] = {"created_tick": self.created_tick, "start": start}
        if self.tenant:
            fields["tenant"] = self.tenant
        return encode_record(_RECORD_VERSION, fields)

    @classmethod
    def decode(cls, name: str, value: bytes, revision: int = 0) -> "GroupRecord":
        """Parse what ``encode`` returned. Raises DataLossError if ``value`` is invalid."""

        def parse(fields: dict[str, Any]) -> GroupRecord:
            start_name, *start_value = fields["start"]
            start = _STARTS[start_name](*map(int, start_value))
            tenant = bytes.fromhex(fields.get("tenant", "")).hex()
            return cls(name, Tick(int(fields["created_tick"])), start, tenant, revision)

        return decode_record(value, _RECORD_VERSION, parse, f"of group '{name}'", group=name)


class GroupCatalog(RecordTable[GroupRecord]):
    """Records of all groups. The caller serialises changes of one group."""

    def __init__(self, metadata: MetadataStore, commits: SharedCommits, root: str) -> None:
        super().__init__(metadata, f"{root}/group/", GroupRecord.decode)
        self._commits = commits
        # Includes groups whose record is being written.
        self._usage = Usage()

    async def open(self) -> None:
        """Load all records. Raises DataLossError if one is unreadable."""
        await super().open()
        for record in self.records.values():
            self._usage.add(bytes.fromhex(record.tenant), 1)

    async def add(self, record: GroupRecord, percent: int) -> None:
        """Persist a new group. No group may have its name.

        Raises:
            RateLimitRejectedError: There are MAX_GROUPS groups, or the tenant would exceed its share, which
                ``percent`` bounds. Nothing happened.
        """
        if self._usage.total >= MAX_GROUPS:
            raise RateLimitRejectedError(
                f"the node has {MAX_GROUPS} groups, the maximum: destroy some first",
                groups=MAX_GROUPS, max_groups=MAX_GROUPS,
            )  # fmt: skip
        tenant = bytes.fromhex(record.tenant)
        self._usage.check_share(tenant, 1, MAX_GROUPS, percent, "groups")
        self._usage.add(tenant, 1)
        try:
            revision = await self._commits.commit([Put(self.key(record.name), record.encode(), 0)])
        except BaseException:
            self._usage.add(tenant, -1)
            raise
        self.learn(replace(record, revision=revision))

    async def remove(self, name: str) -> None:
        """Delete the record of an existing group, durably."""
        await self._commits.commit([Delete(self.key(name), self.revision_of(name))])
        self._usage.add(bytes.fromhex(self.records[name].tenant), -1)
        self.forget(name)


def check_positions(records: Container[str], positions: Iterable[GroupKey]) -> None:
    """Raise DataLossError if a position belongs to a group that is not in ``records``."""
    for key in positions:
        if key.group not in records:
            raise DataLossError(
                f"group '{key.group}' has a position on {key.vchannel} but no record in the metadata: restore both "
                "from one backup",
                group=key.group,
            )


def _value_of(start: Start) -> list[int]:
    match start:
        case StartFrom(tick=tick):
            return [tick]
        case StartAtTime(time_ms=time_ms):
            return [time_ms]
        case _:
            return []
