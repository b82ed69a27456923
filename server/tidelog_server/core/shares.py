"""Bounded tables that tenants share fairly, and a record of what was evicted from them. Pure.

``Shares`` holds entries up to a maximum. Above that, it evicts the oldest entry of the tenant with the most entries;
the tenant that adds an entry counts as the largest if it ties. So a tenant with at most ``maximum // tenants`` entries
never loses one to another tenant, and a single tenant may use the whole table.

``Floors`` holds the greatest number of an evicted entry for each tenant. If the numbers of entries grow, it shows
whether an unknown number was never seen or may have been evicted.

Source: longest queue drop of fair queueing, and max-min fairness.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

from tidelog_server.core.callers import NO_TENANT, Tenant

# Principals with their own floor in a table; above that, the smallest floor is merged into the one for all.
MAX_FLOORS: Final = 1_000

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

# Entries of a tenant that are examined to find one that may be evicted.
_LOOKS: Final = 32


class FloorTable(Enum):
    """The tables whose floors are in the log store; the letter is part of the row's key."""

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
    """Entries of several tenants, least recently used first for each tenant.

    Invariant: ``_sizes[n]`` has exactly the tenants with ``n`` entries, and ``_largest`` is the greatest such ``n``.
    """

    def __init__(self, ranks: int = 1) -> None:
        """``ranks`` is the number of entry classes; entries of a tenant with a lower rank are evicted first."""
        self._entries: dict[_Key, _Entry[_Value]] = {}
        # Keys of each tenant by rank, oldest first.
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
        """Return a value without marking it as used; None if the key is unknown."""
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def count(self, tenant: Tenant) -> int:
        """Return the number of entries of a tenant."""
        return self._counts.get(tenant, 0)

    def use(self, key: _Key) -> None:
        """Make an entry the newest of its tenant. Raises KeyError if the key is unknown."""
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
        """Evict entries until one more of ``tenant`` fits into ``maximum``; return the evicted entries, in order.

        Pinned entries are not evicted, even if the table then exceeds ``maximum``. A call examines a bounded number of
        entries, so its time is bounded.
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
        """Evict the oldest entries of the largest tenants down to ``maximum`` entries, at most ``max_count``."""
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
        """Return the oldest unpinned entry of a tenant; pinned entries before it become the newest."""
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
    """The greatest evicted number of each of at most MAX_FLOORS tenants.

    The floor of NO_TENANT applies to all tenants. A floor that no longer fits is merged into it: the smallest one,
    because it affects the fewest numbers that may still be requested.
    """

    def __init__(self, floors: Mapping[Tenant, int]) -> None:
        """Start with the floors of earlier runs."""
        self._floors = dict(floors)

    def of(self, tenant: Tenant) -> int:
        """Return the greatest number of a tenant that may have been evicted; 0 if there is no such number."""
        common = self._floors.get(NO_TENANT, 0)
        return max(common, self._floors.get(tenant, 0))

    @property
    def highest(self) -> int:
        """The greatest evicted number of any tenant; 0 if nothing was evicted."""
        return max(self._floors.values(), default=0)

    def raise_to(self, tenant: Tenant, number: int) -> dict[Tenant, int | None]:
        """Record an evicted entry; return the floors to persist, None for a floor to remove."""
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
