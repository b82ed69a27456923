"""Positions of all consumer groups, in memory. Pure: changes return what the caller must write."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from tidelog_server.core.callers import NO_TENANT, Tenant
from tidelog_server.core.groups import GroupKey, GroupPosition
from tidelog_server.core.usage import Usage
from tidelog_server.groups.rows import POSITIONS
from tidelog_server.storage.rows import Row

_NONE: Final[Mapping[str, GroupPosition]] = MappingProxyType({})


class GroupPositions:
    """Positions by group and by vchannel. Lives on the event loop.

    A node has two instances: one includes all submitted changes and is the basis of decisions; the other includes only
    durable changes and is what clients see.

    Attributes:
        usage: The number of positions of each tenant.
        by_group: Those of each group that has any, by vchannel.
        version: Number of positions that were added and removed so far.

    Invariant: ``usage.total`` is the number of positions.
    """

    def __init__(
        self, positions: Mapping[GroupKey, GroupPosition], tenant_of: Callable[[str], Tenant] = lambda _: NO_TENANT
    ) -> None:
        """Start with ``positions``; ``tenant_of`` returns the tenant of a group, which never changes."""
        self.usage = Usage()
        self.version = 0
        self._tenant_of = tenant_of
        self.by_group: dict[str, dict[str, GroupPosition]] = {}
        self._by_vchannel: dict[str, dict[str, GroupPosition]] = {}
        for key, position in positions.items():
            self.put(key, position)

    def __len__(self) -> int:
        return self.usage.total

    def get(self, key: GroupKey) -> GroupPosition | None:
        """Return the position of a group on a vchannel; None if the group is not subscribed to it."""
        return self.by_group.get(key.group, _NONE).get(key.vchannel)

    def of_group(self, group: str) -> Mapping[str, GroupPosition]:
        """Return the positions of a group by vchannel, in the order of subscription."""
        return self.by_group.get(group, _NONE)

    def of_vchannel(self, vchannel: str) -> Mapping[str, GroupPosition]:
        """Return the positions on a vchannel by group."""
        return self._by_vchannel.get(vchannel, _NONE)

    def on_vchannels(self, vchannels: Iterable[str]) -> list[GroupKey]:
        """Return the keys of all positions on vchannels."""
        return [GroupKey(group, vchannel) for vchannel in vchannels for group in self.of_vchannel(vchannel)]

    def pinned_tick(self, vchannel: str) -> tuple[int, str] | None:
        """Return the smallest next tick of a position that holds back retention, and its group; None without one."""
        positions = self.of_vchannel(vchannel).items()
        return min(((each.next_tick, group) for group, each in positions if each.is_pinning), default=None)

    def put(self, key: GroupKey, position: GroupPosition) -> Row:
        """Set a position; return the change to write."""
        of_group = self.by_group.setdefault(key.group, {})
        if key.vchannel not in of_group:
            self.version += 1
            self.usage.add(self._tenant_of(key.group), 1)
        of_group[key.vchannel] = position
        self._by_vchannel.setdefault(key.vchannel, {})[key.group] = position
        return POSITIONS.row(key, position)

    def remove(self, key: GroupKey) -> Row:
        """Remove an existing position; return the change to write."""
        assert self.get(key) is not None
        self.version += 1
        _remove(self.by_group, key.group, key.vchannel)
        _remove(self._by_vchannel, key.vchannel, key.group)
        self.usage.add(self._tenant_of(key.group), -1)
        return POSITIONS.gone(key)

    def apply(self, changes: Iterable[Row]) -> None:
        """Apply changes, such as those that another instance returned."""
        for _, key, position in changes:
            if position is not None:
                self.put(key, position)
            elif self.get(key) is not None:
                self.remove(key)


def _remove(table: dict[str, dict[str, GroupPosition]], outer: str, inner: str) -> None:
    del table[outer][inner]
    if not table[outer]:
        del table[outer]
