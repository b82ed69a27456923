"""Watches of tables: what a caller has received, the differences from it, and what wakes the watches."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Final, Generic, NamedTuple, TypeVar

from tidelog_server.core.limits import MAX_LIST_PAGE, MAX_PAGE_LOOKS
from tidelog_server.core.recent_changes import RecentChanges
from tidelog_server.core.sorted_names import SortedNames
from tidelog_server.log.node import LogNode
from tidelog_server.log.watch_memory import WatchMemory
from tidelog_server.rpc.columns.pages import bounded
from tidelog_server.rpc.lists.looks import Looks
from tidelog_server.rpc.lists.pages import Found, Patterns, candidates
from tidelog_server.security.access import current_access, current_tenant
from tidelog_server.security.grants import Verb

# A watch counts its names in steps of this number.
WATCHED_NAMES_STEP: Final = 64
# Interval of the heartbeats that a watch may ask for.
MIN_HEARTBEAT_INTERVAL_MS: Final = 100
MAX_HEARTBEAT_INTERVAL_MS: Final = 60_000
# Maximum delay until a watch of owners reports a change.
OWNERS_LOOK_INTERVAL_S: Final = 0.2

_Item = TypeVar("_Item")
_Wire = TypeVar("_Wire")


class Difference(NamedTuple, Generic[_Item]):
    """A difference from what a caller has received.

    Attributes:
        new: Items that are new or other ones than before.
        gone: Names of items that are gone, or not visible any more.
    """

    new: list[_Item]
    gone: list[str]


class Table(NamedTuple, Generic[_Item]):
    """What can be watched.

    Attributes:
        names: All names.
        changes: The names that changed lately.
        verbs: As for ``candidates``.
        find: Returns the item with a name, or None if the caller must not receive it.
        within: Patterns of which one covers each name whose item ``find`` may return; None for every name.
        version: Returns another value than before if all items may have changed.
    """

    names: SortedNames
    changes: RecentChanges
    verbs: frozenset[Verb]
    find: Callable[[str], Found[_Item]]
    within: Patterns = None
    version: Callable[[], object] = lambda: None


class Watch(Generic[_Item]):
    """What one caller has received of a table.

    A change of a few among thousands of items takes as many looks as there are changes.

    Invariant: until ``close``, the memory of the watches of its tenant has ``_reserved`` names for this one, at least
    as many as there are in ``_sent``.
    """

    def __init__(self, table: Table[_Item], looks: Looks, memory: WatchMemory) -> None:
        self._memory = memory
        self._tenant = current_tenant()
        self._reserved = 0
        self._table = table
        self._looks = looks
        self._sent: dict[str, _Item] = {}
        self._version: object = None
        self._changed_at = 0
        self._grants: object = None

    async def difference(self, version: object = None) -> Difference[_Item] | None:
        """Return the difference from the last call, None without one; the first call always returns one.

        ``version`` is another value than before if all items may have changed.

        Raises:
            RateLimitRejectedError: The watches of the node, or of the tenant, remember too many names. The caller ends
                this one.
        """
        access, table = current_access(), self._table
        seen = version, None if access is None else access.principal.grants
        is_first = self._version is None
        names = table.changes.since(self._changed_at) if seen == self._version else None
        # Ordering: before the first look, because the table may change during a turn.
        self._version, self._changed_at = seen, table.changes.version
        found = Difference[_Item]([], [])
        if names is None:
            async for name in candidates(table.names, table.verbs, self._looks, within=table.within):
                await self._compare(name, found)
            names = list(self._sent)
        else:
            names = sorted(names)
        for name in names:
            await self._compare(name, found)
        return found if found.new or found.gone or is_first else None

    def close(self) -> None:
        """Release the memory."""
        self._memory.release(self._tenant, self._reserved)
        self._reserved = 0
        self._sent.clear()

    async def _compare(self, name: str, found: Difference[_Item]) -> None:
        item, taken = self._table.find(name)
        if item is None:
            if self._sent.pop(name, None) is not None:
                found.gone.append(name)
                if self._reserved - len(self._sent) >= 2 * WATCHED_NAMES_STEP:
                    self._memory.release(self._tenant, WATCHED_NAMES_STEP)
                    self._reserved -= WATCHED_NAMES_STEP
        elif self._sent.get(name) != item:
            if self._reserved == len(self._sent) and name not in self._sent:
                self._memory.take(self._tenant, WATCHED_NAMES_STEP)
                self._reserved += WATCHED_NAMES_STEP
            self._sent[name] = item
            found.new.append(item)
        await self._looks.take(1 + taken)


async def wire_pages(
    items: Sequence[_Item], wire: Callable[[_Item], Found[_Wire]], looks: Looks
) -> AsyncIterator[tuple[list[_Wire], bool]]:
    """Yield items in pages of at most MAX_LIST_PAGE items or about MAX_PAGE_LOOKS, with True for the last page."""
    page, begin = list[_Wire](), looks.count
    for item in items:
        if len(page) == MAX_LIST_PAGE or looks.count - begin >= MAX_PAGE_LOOKS:
            yield page, False
            page, begin = [], looks.count
        converted, taken = wire(item)
        assert converted is not None
        page.append(converted)
        await looks.take(taken)
    yield page, True


class Wakes:
    """Wakes watches once a version has changed or the node does not serve any more: one timer for all of them."""

    def __init__(self, node: LogNode, version: Callable[[], object]) -> None:
        self._node = node
        self._version = version
        self._watching: set[asyncio.Event] = set()
        self._seen: object = None

    @contextmanager
    def watching(self) -> Iterator[asyncio.Event]:
        """Return the event that is set when its watch must look: also when the permissions of the caller changed."""
        changed, access = asyncio.Event(), current_access()
        if access is not None:
            access.on_changed = changed.set
        if not self._watching:
            self._seen = self._state()
            self._look_later()
        self._watching.add(changed)
        self._node.watchers.add(changed)
        try:
            yield changed
        finally:
            self._watching.discard(changed)
            self._node.watchers.discard(changed)

    async def stream(
        self,
        table: Table[_Item],
        looks: Looks,
        heartbeat_interval_ms: int,
        wire: Callable[[_Item], Found[_Wire]],
        write: Callable[[Sequence[_Wire], Sequence[str], bool], Awaitable[None]],
    ) -> None:
        """Write the items of a table, then the differences, until the caller leaves or the node stops to serve.

        A difference is that from the previous one: changes that cancel each other in between are not written. ``write``
        gets converted items, names that are gone, and whether the difference is complete; nothing for a heartbeat,
        which follows after an interval without anything else: its client takes silence for a loss.

        Raises:
            InvalidRequestError: The interval is not 0, for no heartbeats, and not one that a client may ask for.
        """
        interval_s = bounded(
            heartbeat_interval_ms, 0, MIN_HEARTBEAT_INTERVAL_MS, MAX_HEARTBEAT_INTERVAL_MS, "heartbeat_interval_ms"
        ) / 1_000  # fmt: skip
        now_s = asyncio.get_running_loop().time
        written_s = now_s()
        with closing(Watch(table, looks, self._node.watch_memory)) as watch, self.watching() as changed:
            while True:
                self._node.admission.check_serving()
                changed.clear()
                difference = await watch.difference(table.version())
                if difference is not None:
                    async for page, is_last in wire_pages(difference.new, wire, looks):
                        await write(page, difference.gone if is_last else (), is_last)
                        written_s = now_s()
                elif interval_s and now_s() >= written_s + interval_s:
                    await write((), (), False)
                    written_s = now_s()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(written_s + interval_s if interval_s else None):
                        await changed.wait()
                # Thousands of watches wake at once.
                await looks.turn()

    def wake(self) -> None:
        """Wake all watches."""
        for changed in self._watching:
            changed.set()

    def _state(self) -> object:
        return self._version(), self._node.admission.is_serving

    def _look(self) -> None:
        if self._watching:
            seen, self._seen = self._seen, self._state()
            if seen != self._seen:
                self.wake()
            self._look_later()

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(OWNERS_LOOK_INTERVAL_S, self._look)
