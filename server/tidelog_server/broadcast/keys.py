"""Resource keys: their holders and waiters. Pure: no clock, no I/O, no asyncio.

An owner acquires all of its keys in one step or none, so no two owners wait for each other. A waiter is not overtaken
by a later waiter whose mode conflicts. An attempt without waiting (``try_acquire``) conflicts with holders only, not
with waiters.

Source: the lock manager of Milvus' broadcaster, without the defects of its issues: waits that cannot be cancelled, a
key that one owner requests twice, and attempts that fail because of a mere waiter (PR #51083, PR #53071).
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from tidelog_server.core.broadcasts import KeyName, ResourceKey


class Conflict(NamedTuple):
    """Why keys cannot be acquired.

    Attributes:
        key: First key in conflict, in order of the names.
        owner: Its conflicting holder or earlier waiter.
    """

    key: ResourceKey
    owner: int


class _Waiter(NamedTuple):
    """A waiter, with its arrival number."""

    arrival: int
    keys: Sequence[ResourceKey]


class ResourceKeys:
    """All resource keys of a node. An owner is a number; it has one set of keys, which it holds or waits for.

    Invariant: a key has one exclusive holder, or any number of shared holders.
    Invariant: every waiter has a conflict: a holder or an earlier waiter whose mode conflicts with its own.
    """

    def __init__(self) -> None:
        # Owners of each key, with True for shared mode; waiters are in order of arrival.
        self._holders: dict[KeyName, dict[int, bool]] = {}
        self._queues: dict[KeyName, dict[int, bool]] = {}
        self._held: dict[int, Sequence[ResourceKey]] = {}
        self._waiting: dict[int, _Waiter] = {}
        self._arrivals = 0

    @property
    def waiters(self) -> int:
        """Number of waiting owners."""
        return len(self._waiting)

    def holds(self, owner: int) -> bool:
        """Return True if ``owner`` holds its keys."""
        return owner in self._held

    def holders(self, name: KeyName) -> list[int]:
        """Return the holders of a key, in order of acquisition."""
        return list(self._holders.get(name, ()))

    def try_acquire(self, owner: int, keys: Sequence[ResourceKey]) -> Conflict | None:
        """Acquire all keys, whose names are distinct, and return None; or acquire none and return a conflict."""
        conflict = self._conflict(owner, keys, ())
        if conflict is None:
            self._hold(owner, keys)
        return conflict

    def request(self, owner: int, keys: Sequence[ResourceKey]) -> bool:
        """Acquire all keys, whose names are distinct, and return True; or enqueue ``owner`` and return False."""
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
        """Return the first conflict of a waiter."""
        conflict = self._conflict(owner, self._waiting[owner].keys, self._queues)
        assert conflict is not None
        return conflict

    def release(self, owner: int) -> list[int]:
        """Release the keys that ``owner`` holds or waits for; return the owners that acquired theirs, in order.

        No effect if ``owner`` neither holds nor waits.
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
        """Grant keys to waiters for one of ``freed`` that no longer have a conflict."""
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
        assert owner not in self._waiting
        assert len({key.name for key in keys}) == len(keys)
        self._held[owner] = keys
        for key in keys:
            holders = self._holders.setdefault(key.name, {})
            # One holder stands for all: several hold a key only if all of them share it.
            assert all(is_shared and key.is_shared for is_shared in islice(holders.values(), 1))
            holders[owner] = key.is_shared

    def _conflict(
        self, owner: int, keys: Sequence[ResourceKey], queues: Mapping[KeyName, dict[int, bool]] | tuple[()]
    ) -> Conflict | None:
        """Return the first conflict of ``owner`` over ``keys``: a holder, or an earlier waiter in ``queues``."""
        for key in keys:
            # Checking one holder is enough: several hold a key only if all of them share it.
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
    """Return the waiters without a conflict in the queue: the first one, or all shared ones before an exclusive one."""
    foremost: list[int] = []
    for owner, is_shared in queue.items():
        if not is_shared and foremost:
            break
        foremost.append(owner)
        if not is_shared:
            break
    return foremost
