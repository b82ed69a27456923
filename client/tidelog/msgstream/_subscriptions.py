"""Where subscriptions got to: the one seam between streams and whatever keeps positions durably."""

from collections.abc import Iterable, Mapping
from typing import Protocol


class SubscriptionStore(Protocol):
    """Keeps for each subscription and channel the tick up to which everything was handled.

    A stream loads when it subscribes, and saves what the caller has handled when he asks for the next pack. A store may
    save later what it was given, but not after ``flush``.
    """

    async def load(self, sub_name: str, channels: Iterable[str]) -> Mapping[str, int]:
        """Return the ticks of those of the channels that have one."""
        ...

    async def begin(self, sub_name: str, ticks: Mapping[str, int]) -> None:
        """Note that the subscription is about to begin behind these ticks, 0 for the first message that is there."""
        ...

    async def save(self, sub_name: str, ticks: Mapping[str, int]) -> None:
        """Keep these ticks; smaller ones than before too, after a seek backwards."""
        ...

    async def flush(self, sub_name: str) -> None:
        """Return once all is kept that was saved."""
        ...

    async def delete(self, sub_name: str, channels: Iterable[str]) -> None:
        """Forget the ticks of these channels, where there are any."""
        ...


class MemSubscriptionStore:
    """Keeps positions as long as it lives. One may be shared by factories of one process."""

    def __init__(self) -> None:
        # Each access is one operation of a dict, so threads need no lock.
        self._ticks: dict[tuple[str, str], int] = {}

    async def load(self, sub_name: str, channels: Iterable[str]) -> Mapping[str, int]:
        """Return the ticks of those of the channels that have one."""
        found = {channel: self._ticks.get((sub_name, channel)) for channel in channels}
        return {channel: tick for channel, tick in found.items() if tick is not None}

    async def begin(self, sub_name: str, ticks: Mapping[str, int]) -> None:
        """Do nothing: what is in memory is not forgotten by age or size."""

    async def save(self, sub_name: str, ticks: Mapping[str, int]) -> None:
        """Keep these ticks."""
        self._ticks.update({(sub_name, channel): tick for channel, tick in ticks.items()})

    async def flush(self, sub_name: str) -> None:
        """Return at once: nothing is kept later than it was saved."""

    async def delete(self, sub_name: str, channels: Iterable[str]) -> None:
        """Forget the ticks of these channels."""
        for channel in channels:
            self._ticks.pop((sub_name, channel), None)
