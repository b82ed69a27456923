"""Mailboxes that wait for work in the background."""

import asyncio
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Wanted(Generic[Item]):
    """Items that wait for a worker, each once, in the order in which they were first wanted. On the event loop."""

    def __init__(self) -> None:
        self._items: dict[Item, None] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Item) -> None:
        """Queue an item, unless it waits already."""
        self._items[item] = None
        self._changed.set()

    async def next(self) -> Item:
        """Wait for an item, and take it from the queue. One worker calls this."""
        while not self._items:
            self._changed.clear()
            await self._changed.wait()
        item = next(iter(self._items))
        del self._items[item]
        return item
