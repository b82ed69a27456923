"""Records of consumer groups in the metadata store: ``<root>/group/<name>``, JSON (see FORMAT.md)."""

import json
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Final, get_args

from tidelog_server.core.errors import DataLossError, RateLimitRejectedError
from tidelog_server.core.groups import GroupKey
from tidelog_server.core.limits import MAX_GROUPS
from tidelog_server.core.ticks import Tick
from tidelog_server.core.usage import Usage
from tidelog_server.log.positions import Start, StartAll, StartAtTime, StartFrom, StartLatest
from tidelog_server.metadata.shared_commits import SharedCommits
from tidelog_server.metadata.store import Delete, MetadataStore, Put

# In the metadata since format 1.
_RECORD_VERSION: Final = 1
_START_NAMES: Final[dict[type[Start], str]] = {
    StartAll: "all", StartLatest: "latest", StartFrom: "from_tick", StartAtTime: "from_time_ms"
}  # fmt: skip
_STARTS: Final[dict[str, Callable[..., Start]]] = {name: start for start, name in _START_NAMES.items()}
assert set(_START_NAMES) == set(get_args(Start))


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """What is remembered about a group beside its positions.

    Attributes:
        name: Its name.
        created_tick: When it was made.
        start: Where it begins on vchannels that it subscribes to.
        tenant: The tenant of the principal that created it, hexadecimal; empty for NO_TENANT.
    """

    name: str
    created_tick: Tick
    start: Start
    tenant: str = ""

    def encode(self) -> bytes:
        """Return the record as it is stored."""
        start = [_START_NAMES[type(self.start)], *_value_of(self.start)]
        fields: dict[str, object] = {"version": _RECORD_VERSION, "created_tick": self.created_tick, "start": start}
        if self.tenant:
            fields["tenant"] = self.tenant
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, name: str, value: bytes) -> "GroupRecord":
        """Parse what ``encode`` returned. Raises DataLossError if ``value`` is invalid."""
        try:
            fields = json.loads(value)
            start_name, *start_value = fields["start"]
            version, created_tick = fields["version"], Tick(int(fields["created_tick"]))
            start = _STARTS[start_name](*map(int, start_value))
            tenant = bytes.fromhex(fields.get("tenant", "")).hex()
        except (ValueError, TypeError, KeyError) as error:
            raise DataLossError(f"the metadata record of group {name} cannot be read ({error})", group=name) from error
        if version != _RECORD_VERSION:
            raise DataLossError(f"the metadata record of group {name} has the unknown version {version}", group=name)
        return cls(name, created_tick, start, tenant)


class GroupCatalog:
    """Records of all groups. Changes of one group come one after the other."""

    def __init__(self, metadata: MetadataStore, commits: SharedCommits, root: str) -> None:
        self._metadata = metadata
        self._commits = commits
        self._prefix = f"{root}/group/"
        self._revisions: dict[str, int] = {}
        # Those that are being added count as well.
        self._usage = Usage()
        self.records: dict[str, GroupRecord] = {}

    async def open(self) -> None:
        """Load everything. Raises DataLossError for a record that cannot be read."""
        for key, found in (await self._metadata.list(self._prefix)).items():
            name = key.removeprefix(self._prefix)
            self.records[name] = GroupRecord.decode(name, found.value)
            self._revisions[name] = found.revision
            self._usage.add(bytes.fromhex(self.records[name].tenant), 1)

    def of_tenant(self, tenant: str) -> list[str]:
        """Return the groups that a tenant has created."""
        return [name for name, record in self.records.items() if record.tenant == tenant]

    async def add(self, record: GroupRecord, percent: int) -> None:
        """Add a group that is not there, durably.

        Raises:
            RateLimitRejectedError: There are too many, or of its tenant more than ``percent`` allows. Nothing happened.
        """
        if self._usage.total >= MAX_GROUPS:
            raise RateLimitRejectedError(
                f"the node has {MAX_GROUPS} groups, as many as are allowed: destroy some first",
                groups=MAX_GROUPS, max_groups=MAX_GROUPS,
            )  # fmt: skip
        tenant = bytes.fromhex(record.tenant)
        self._usage.check_share(tenant, 1, MAX_GROUPS, percent, "groups")
        self._usage.add(tenant, 1)
        try:
            self._revisions[record.name] = await self._commits.commit(
                [Put(self._prefix + record.name, record.encode(), 0)]
            )
        except BaseException:
            self._usage.add(tenant, -1)
            raise
        self.records[record.name] = record

    async def remove(self, name: str) -> None:
        """Forget a group that is there, durably."""
        await self._commits.commit([Delete(self._prefix + name, self._revisions[name])])
        self._usage.add(bytes.fromhex(self.records[name].tenant), -1)
        del self.records[name], self._revisions[name]


def check_positions(records: Container[str], positions: Iterable[GroupKey]) -> None:
    """Check that the groups of all positions have records, by name. Raises DataLossError."""
    for key in positions:
        if key.group not in records:
            raise DataLossError(
                f"group '{key.group}' has a position on {key.vchannel} and no record in the metadata: restore both "
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
