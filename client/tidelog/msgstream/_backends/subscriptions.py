"""Positions of subscriptions: the interface between streams and a durable store."""

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

MarkT = TypeVar("MarkT")


class Subscriptions(Protocol[MarkT]):
    """Stores, per subscription and channel, a mark up to which everything was handled.

    A stream loads when it subscribes, and saves what was handled when the next pack is requested. A store may save
    asynchronously, but ``flush`` waits for it.
    """

    async def load(self, sub_name: str, channels: Iterable[str]) -> Mapping[str, MarkT]:
        """Return the marks of those channels that have one."""
        ...

    async def begin(self, sub_name: str, marks: Mapping[str, MarkT], /) -> None:
        """Record that the subscription begins after these marks."""
        ...

    async def save(self, sub_name: str, marks: Mapping[str, MarkT], /) -> None:
        """Store these marks; after a seek they may be before the stored ones."""
        ...

    async def flush(self, sub_name: str) -> None:
        """Return once everything saved is stored."""
        ...

    async def delete(self, sub_name: str, channels: Iterable[str]) -> None:
        """Delete the marks of these channels, if any."""
        ...


class SubscriptionStore(Subscriptions[int], Protocol):
    """Stores subscriptions of brokers with a log: a mark is a tick, 0 before the first available message."""


class MemSubscriptionStore:
    """Stores positions in memory. Factories of one process can share it."""

    def __init__(self) -> None:
        # Each access is one operation of a dict, so threads need no lock.
        self._ticks: dict[tuple[str, str], int] = {}

    async def load(self, sub_name: str, channels: Iterable[str]) -> Mapping[str, int]:
        """Return the ticks of those channels that have one."""
        found = {channel: self._ticks.get((sub_name, channel)) for channel in channels}
        return {channel: tick for channel, tick in found.items() if tick is not None}

    async def begin(self, sub_name: str, ticks: Mapping[str, int]) -> None:
        """Do nothing: messages in memory do not expire."""

    async def save(self, sub_name: str, ticks: Mapping[str, int]) -> None:
        """Store these ticks."""
        self._ticks.update({(sub_name, channel): tick for channel, tick in ticks.items()})

    async def flush(self, sub_name: str) -> None:
        """Return at once: ``save`` stores synchronously."""

    async def delete(self, sub_name: str, channels: Iterable[str]) -> None:
        """Delete the ticks of these channels."""
        for channel in channels:
            self._ticks.pop((sub_name, channel), None)
