"""Tables that tenants share fairly: each loses its own oldest entries, and what was lost stays known as lost. Pure.

``Shares`` holds entries up to a maximum. Past that, the tenant with the most entries loses its oldest one; the tenant
that adds an entry counts as the largest when it ties. So a tenant that holds at most ``maximum // tenants`` entries
never loses one to another tenant, and one tenant alone may use the whole table.

``Floors`` holds, for each tenant, the greatest number of an entry that was evicted. A table whose entries have growing
numbers proves with it that an unknown number was never seen, or that it may have been evicted.

Source: the longest queue drop of fair queueing, and max-min fairness.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

from tidelog_server.core.limits import MAX_FLOORS
from tidelog_server.core.tenants import NO_TENANT, Tenant

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

# Entries of a tenant that are looked at to find those that may be evicted.
_LOOKS: Final = 32


class FloorTable(Enum):
    """The tables whose floors lie in the log store; the letter is in the key of the row."""

    OUTCOMES = "o"
    APPS = "a"
    FINISHED_APPS = "f"


class FloorKey(NamedTuple):
    """The floor of a tenant in a table."""

    table: FloorTable
    tenant: Tenant


def floors_of(floors: Mapping[FloorKey, int], table: FloorTable) -> dict[Tenant, int]:
    """Return the floors of one table by tenant."""
    return {key.tenant: number for key, number in floors.items() if key.table is table}


FloorChange = tuple[FloorKey, int | None]
"""A floor, or None for one that is to be removed."""


@dataclass(slots=True)
class _Entry(Generic[_Value]):
    tenant: Tenant
    rank: int
    value: _Value


class Evicted(NamedTuple, Generic[_Key, _Value]):
    """An entry that was evicted."""

    key: _Key
    tenant: Tenant
    value: _Value


def _never(_: object) -> bool:
    return False


class Shares(Generic[_Key, _Value]):
    """Entries of several tenants, each in the order of its last use.

    Invariant: ``_sizes[n]`` has exactly the tenants with ``n`` entries, and ``_largest`` is the greatest such ``n``.
    """

    def __init__(self, ranks: int = 1) -> None:
        """``ranks`` is the number of classes of entries: of one tenant, those of a lower rank are evicted first."""
        self._entries: dict[_Key, _Entry[_Value]] = {}
        # Of each tenant, by rank; oldest first.
        self._queues: dict[Tenant, tuple[OrderedDict[_Key, None], ...]] = {}
        self._counts: dict[Tenant, int] = {}
        self._sizes: dict[int, dict[Tenant, None]] = {}
        self._largest = 0
        self._ranks = ranks

    def __len__(self) -> int:
        return len(self._entries)

    def keys(self) -> list[_Key]:
        """Return all keys."""
        return list(self._entries)

    def items(self) -> list[tuple[_Key, _Value]]:
        """Return all keys with their values."""
        return [(key, entry.value) for key, entry in self._entries.items()]

    def get(self, key: _Key) -> _Value | None:
        """Return a value, without using it; None if the key is unknown."""
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def count(self, tenant: Tenant) -> int:
        """Return how many entries a tenant has."""
        return self._counts.get(tenant, 0)

    def use(self, key: _Key) -> None:
        """Make an entry the newest of its tenant. KeyError if the key is unknown."""
        entry = self._entries[key]
        self._queues[entry.tenant][entry.rank].move_to_end(key)

    def put(self, key: _Key, value: _Value, tenant: Tenant, rank: int = 0) -> None:
        """Add or replace an entry, which becomes the newest of its tenant. Evicts nothing: see ``make_room``."""
        entry = self._entries.get(key)
        if entry is not None and entry.tenant == tenant and entry.rank == rank:
            entry.value = value
            self._queues[tenant][rank].move_to_end(key)
            return
        if entry is not None:
            self.pop(key)
        self._entries[key] = _Entry(tenant, rank, value)
        queues = self._queues.get(tenant)
        if queues is None:
            queues = self._queues[tenant] = tuple(OrderedDict() for _ in range(self._ranks))
        queues[rank][key] = None
        self._resize(tenant, 1)

    def pop(self, key: _Key) -> _Value | None:
        """Remove an entry and return its value; None if the key is unknown."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        del self._queues[entry.tenant][entry.rank][key]
        self._resize(entry.tenant, -1)
        return entry.value

    def make_room(
        self, tenant: Tenant, maximum: int, is_pinned: Callable[[_Value], bool] = _never
    ) -> list[Evicted[_Key, _Value]]:
        """Evict entries until one more of ``tenant`` fits into ``maximum``; return those evicted, in order.

        Pinned ones stay, even if the table exceeds ``maximum`` for it; of each tenant only some are looked at, so that
        a call takes a bounded time.
        """
        evicted: list[Evicted[_Key, _Value]] = []
        looks = _LOOKS
        while self._entries and maximum <= len(self._entries) and looks:
            victim = self._victim(tenant)
            found = self._oldest(victim, is_pinned)
            looks -= 1
            if found is None:
                break
            value = self.pop(found)
            assert value is not None
            evicted.append(Evicted(found, victim, value))
        return evicted

    def shrink(self, maximum: int, max_count: int) -> list[Evicted[_Key, _Value]]:
        """Evict the oldest entries of the largest tenants, at most ``max_count``, while there are too many."""
        evicted: list[Evicted[_Key, _Value]] = []
        while maximum < len(self._entries) and len(evicted) < max_count:
            victim = next(iter(self._sizes[self._largest]))
            key = self._oldest(victim, _never)
            value = None if key is None else self.pop(key)
            assert key is not None
            assert value is not None
            evicted.append(Evicted(key, victim, value))
        return evicted

    def _victim(self, adding: Tenant) -> Tenant:
        """Return the tenant that loses an entry when ``adding`` adds one."""
        mine = self.count(adding)
        return adding if mine and self._largest <= mine + 1 else next(iter(self._sizes[self._largest]))

    def _oldest(self, tenant: Tenant, is_pinned: Callable[[_Value], bool]) -> _Key | None:
        """Return the oldest entry of a tenant that is not pinned; pinned ones become the newest."""
        for queue in self._queues[tenant]:
            for _ in range(min(_LOOKS, len(queue))):
                key = next(iter(queue))
                if not is_pinned(self._entries[key].value):
                    return key
                queue.move_to_end(key)
        return None

    def _resize(self, tenant: Tenant, by: int) -> None:
        before = self._counts.get(tenant, 0)
        after = before + by
        if before:
            tenants = self._sizes[before]
            del tenants[tenant]
            if not tenants:
                del self._sizes[before]
        if after:
            self._counts[tenant] = after
            self._sizes.setdefault(after, {})[tenant] = None
        else:
            del self._counts[tenant], self._queues[tenant]
        if self._largest < after or (before == self._largest and before not in self._sizes):
            self._largest = after


class Floors:
    """The greatest number that was evicted, for each of at most MAX_FLOORS tenants.

    The floor of NO_TENANT holds for all tenants: a floor that no longer fits is merged into it, the smallest one
    first, because it concerns the fewest numbers that may still come.
    """

    def __init__(self, floors: Mapping[Tenant, int]) -> None:
        """Start with the floors of earlier runs."""
        self._floors = dict(floors)

    def of(self, tenant: Tenant) -> int:
        """Return the greatest number that may have been evicted of a tenant; 0 if none was."""
        common = self._floors.get(NO_TENANT, 0)
        return max(common, self._floors.get(tenant, 0))

    @property
    def highest(self) -> int:
        """The greatest number that was evicted of any tenant; 0 if none was."""
        return max(self._floors.values(), default=0)

    def raise_to(self, tenant: Tenant, number: int) -> dict[Tenant, int | None]:
        """Note that an entry was evicted; return the floors that are to be stored, None for one to be removed."""
        if number <= self.of(tenant):
            return {}
        changes: dict[Tenant, int | None] = {tenant: number}
        self._floors[tenant] = number
        if len(self._floors) > MAX_FLOORS:
            smallest = min(self._floors.keys() - {NO_TENANT}, key=self._floors.__getitem__)
            common = max(self._floors.get(NO_TENANT, 0), self._floors.pop(smallest))
            self._floors[NO_TENANT] = common
            changes |= {smallest: None, NO_TENANT: common}
        return changes
