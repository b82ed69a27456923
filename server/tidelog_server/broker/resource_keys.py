"""Resource keys: who holds which, and who waits for them. Pure: no clock, no I/O, no asyncio.

All keys of an owner are acquired in one step or none is, so that two owners never wait for each other. Who waits is not
overtaken by a later one that wants the same key in a mode that excludes him; but who does not wait at all is refused by
holders only, for he asks what is so now.

Source: the lock manager of Milvus' broadcaster, with the defects of its issues left out: waits that cannot be called
back, a key that one owner wants twice, and attempts that fail because somebody merely waits (PR #51083, PR #53071).
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from tidelog_server.core.broadcasts import KeyName, ResourceKey


class Conflict(NamedTuple):
    """Why keys are not to be had.

    Attributes:
        key: The first that is not, in order of the names.
        owner: Who holds it, or wants it and came before.
    """

    key: ResourceKey
    owner: int


class _Waiter(NamedTuple):
    """One that waits, and how many came before it ever."""

    arrival: int
    keys: Sequence[ResourceKey]


class ResourceKeys:
    """All resource keys of a node. An owner is a number; it has one set of keys, and holds it or waits for it.

    Invariant: a key has one exclusive holder, or any number of shared ones.
    Invariant: whoever waits has a reason to: a holder, or an earlier waiter, whose mode excludes his.
    """

    def __init__(self) -> None:
        # Each with whether it is shared; those who wait are in order of arrival.
        self._holders: dict[KeyName, dict[int, bool]] = {}
        self._queues: dict[KeyName, dict[int, bool]] = {}
        self._held: dict[int, Sequence[ResourceKey]] = {}
        self._waiting: dict[int, _Waiter] = {}
        self._arrivals = 0

    @property
    def waiters(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def holds(self, owner: int) -> bool:
        """Tell whether ``owner`` has its keys."""
        return owner in self._held

    def holders(self, name: KeyName) -> list[int]:
        """Return who holds a key, in order of acquisition."""
        return list(self._holders.get(name, ()))

    def try_acquire(self, owner: int, keys: Sequence[ResourceKey]) -> Conflict | None:
        """Take all keys, no name twice, unless somebody holds one; return what is in the way, if anything."""
        conflict = self._conflict(owner, keys, ())
        if conflict is None:
            self._hold(owner, keys)
        return conflict

    def request(self, owner: int, keys: Sequence[ResourceKey]) -> bool:
        """Take all keys, no name twice, and return True; or wait for them, and return False."""
        assert owner not in self._held
        assert owner not in self._waiting
        if self._conflict(owner, keys, self._queues) is None:
            self._hold(owner, keys)
            return True
        self._arrivals += 1
        self._waiting[owner] = _Waiter(self._arrivals, keys)
        for key in keys:
            self._queues.setdefault(key.name, {})[owner] = key.is_shared
        return False

    def conflict(self, owner: int) -> Conflict:
        """Return what a waiter waits for."""
        conflict = self._conflict(owner, self._waiting[owner].keys, self._queues)
        assert conflict is not None
        return conflict

    def release(self, owner: int) -> list[int]:
        """Take from ``owner`` what it holds or waits for; return who has its keys now because of that, in order.

        One that has nothing is no error.
        """
        waiter = self._waiting.pop(owner, None)
        keys = self._held.pop(owner, ()) if waiter is None else waiter.keys
        home = self._holders if waiter is None else self._queues
        for key in keys:
            owners = home[key.name]
            del owners[owner]
            if not owners:
                del home[key.name]
        return self._grant(key.name for key in keys)

    def _grant(self, freed: Iterable[KeyName]) -> list[int]:
        """Give keys to those who waited for one of ``freed`` and have no reason to wait any more."""
        candidates = {owner for name in freed for owner in _foremost(self._queues.get(name, {}))}
        granted = []
        for owner in sorted(candidates, key=lambda candidate: self._waiting[candidate].arrival):
            keys = self._waiting[owner].keys
            if self._conflict(owner, keys, self._queues) is not None:
                continue
            del self._waiting[owner]
            for key in keys:
                queue = self._queues[key.name]
                del queue[owner]
                if not queue:
                    del self._queues[key.name]
            self._hold(owner, keys)
            granted.append(owner)
        return granted

    def _hold(self, owner: int, keys: Sequence[ResourceKey]) -> None:
        assert owner not in self._held
        assert len({key.name for key in keys}) == len(keys)
        self._held[owner] = keys
        for key in keys:
            self._holders.setdefault(key.name, {})[owner] = key.is_shared

    def _conflict(
        self, owner: int, keys: Sequence[ResourceKey], queues: Mapping[KeyName, dict[int, bool]] | tuple[()]
    ) -> Conflict | None:
        """Return what keeps ``owner`` from ``keys``: a holder, or in ``queues`` one that comes before it."""
        for key in keys:
            # One stands for all: several hold a key only if all of them share it.
            for other, is_shared in islice(self._holders.get(key.name, {}).items(), 1):
                if not (is_shared and key.is_shared):
                    return Conflict(key, other)
            for other, is_shared in queues.get(key.name, {}).items() if queues else ():
                if other == owner:
                    break
                if not (is_shared and key.is_shared):
                    return Conflict(key, other)
        return None


def _foremost(queue: Mapping[int, bool]) -> list[int]:
    """Return those that nobody else in a queue keeps from the key: the first, or all that share up to the next."""
    foremost: list[int] = []
    for owner, is_shared in queue.items():
        if not is_shared and foremost:
            break
        foremost.append(owner)
        if not is_shared:
            break
    return foremost
