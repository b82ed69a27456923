"""Subscriptions stored as consumer groups: positions are durable, and retention keeps unconsumed messages."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress

from tidelog.client import AsyncClient
from tidelog.errors import (
    ChannelNotFoundError,
    ClosedError,
    DeadlineError,
    GroupNotFoundError,
    PositionTrimmedError,
    UnavailableError,
)
from tidelog.read.positions import EARLIEST, At
from tidelog.types import PositionCommit

# The next save tries again.
_PASSING = (UnavailableError, DeadlineError)


class _Subscription:
    """The state of one group.

    Attributes:
        known: Ticks stored on the server, by channel.
        unsaved: Ticks not stored yet, by channel.
        saving: Task that saves, while one runs.
        failure: Error of the last save.
    """

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self.unsaved: dict[str, int] = {}
        self.saving: asyncio.Task[None] | None = None
        self.failure: Exception | None = None


class GroupSubscriptionStore:
    """Stores each subscription as the consumer group of its name; see ``SubscriptionStore``.

    Saves run in the background, one at a time; ticks saved meanwhile share the next one.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._subscriptions: dict[str, _Subscription] = {}

    async def load(self, sub_name: str, channels: Iterable[str]) -> Mapping[str, int]:
        """Return the ticks of those channels that the group is subscribed to."""
        await self.flush(sub_name)
        try:
            positions = (await self._client.describe_group(sub_name)).positions
        except GroupNotFoundError:
            return {}
        found = {channel: positions[channel].next_tick - 1 for channel in channels if channel in positions}
        self._of(sub_name).known.update(found)
        return {channel: max(0, tick) for channel, tick in found.items()}

    async def begin(self, sub_name: str, ticks: Mapping[str, int]) -> None:
        """Create the group if it does not exist, and subscribe it."""
        await self._client.create_group(sub_name, if_not_exists=True)
        for tick in set(ticks.values()):
            channels = [channel for channel, each in ticks.items() if each == tick]
            await self._client.subscribe_group(sub_name, channels, start=At.tick(tick + 1) if tick else EARLIEST)

    async def save(self, sub_name: str, ticks: Mapping[str, int]) -> None:
        """Store these ticks in the background.

        Raises:
            TidelogError: Error of an earlier save that a retry cannot resolve.
        """
        subscription = self._of(sub_name)
        if subscription.failure is not None and not isinstance(subscription.failure, _PASSING):
            raise subscription.failure
        subscription.unsaved.update(ticks)
        self._begin(sub_name, subscription)

    async def flush(self, sub_name: str) -> None:
        """Return once everything saved is stored, or the client is closed. Raises TidelogError if a save fails."""
        subscription = self._of(sub_name)
        while subscription.unsaved or subscription.saving is not None:
            self._begin(sub_name, subscription)
            assert subscription.saving is not None
            await asyncio.wait((subscription.saving,))
            if isinstance(subscription.failure, ClosedError):
                return
            if subscription.failure is not None:
                raise subscription.failure

    async def delete(self, sub_name: str, channels: Iterable[str]) -> None:
        """Unsubscribe the group from these channels, and delete it with its last subscription."""
        subscription = self._subscriptions.pop(sub_name, None)
        if subscription is not None and subscription.saving is not None:
            await asyncio.wait((subscription.saving,))
        with suppress(GroupNotFoundError, ChannelNotFoundError):
            if not (await self._client.unsubscribe_group(sub_name, dict.fromkeys(channels))).positions:
                await self._client.destroy_group(sub_name)

    def _of(self, sub_name: str) -> _Subscription:
        return self._subscriptions.setdefault(sub_name, _Subscription())

    def _begin(self, sub_name: str, subscription: _Subscription) -> None:
        if subscription.saving is None:
            saving = self._save_all(sub_name, subscription)
            subscription.saving = asyncio.create_task(saving, name="tidelog-subscription")

    async def _save_all(self, sub_name: str, subscription: _Subscription) -> None:
        try:
            while subscription.unsaved:
                ticks, subscription.unsaved = subscription.unsaved, {}
                try:
                    await self._save(sub_name, ticks, subscription.known)
                except BaseException:
                    subscription.unsaved = {**ticks, **subscription.unsaved}
                    raise
            subscription.failure = None
        except Exception as error:  # noqa: BLE001 - raised by the next save or flush, which would retry indefinitely
            subscription.failure = error
        finally:
            subscription.saving = None

    async def _save(self, sub_name: str, ticks: Mapping[str, int], known: dict[str, int]) -> None:
        """Commit ticks that advance, and seek to ticks that go back."""
        forward = {channel: tick for channel, tick in ticks.items() if known.get(channel, -1) <= tick}
        if unknown := [channel for channel in ticks if channel not in known]:
            await self.begin(sub_name, {channel: ticks[channel] for channel in unknown})
        if forward:
            await self._client.commit_positions(
                PositionCommit(sub_name, channel, tick + 1) for channel, tick in forward.items()
            )
        for channel in ticks.keys() - forward.keys():
            try:
                await self._client.seek_group(sub_name, At.after(ticks[channel]), channel)
            except PositionTrimmedError:
                # A reader from there gets the error; what remains is delivered again.
                await self._client.seek_group(sub_name, EARLIEST, channel)
        known.update(ticks)
