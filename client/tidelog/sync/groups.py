"""Consumer group calls of the synchronous client."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Unpack

from tidelog.groups.calls import AsyncGroupCalls
from tidelog.groups.consumer import ConsumerOptions
from tidelog.groups.types import Consumed, GroupDescription, GroupPosition, GroupSummary
from tidelog.read.positions import EARLIEST, Start
from tidelog.sync.consumer import Consumer
from tidelog.transport.background import background
from tidelog.types import PositionCommit


class GroupCalls:
    """Consumer groups, for ``Client``. See ``AsyncGroupCalls``."""

    _client: AsyncGroupCalls

    def create_group(
        self, group: str, channels: str | Iterable[str] = (), *, start: Start = EARLIEST, if_not_exists: bool = False
    ) -> GroupDescription:
        """Create a consumer group, durably, and subscribe it to channels. See ``AsyncClient.create_group``."""
        return background.run(self._client.create_group(group, channels, start=start, if_not_exists=if_not_exists))

    def destroy_group(self, group: str, *, ignore_missing: bool = False, force: bool = False) -> bool:
        """Delete a group with all of its positions, durably. See ``AsyncClient.destroy_group``."""
        return background.run(self._client.destroy_group(group, ignore_missing=ignore_missing, force=force))

    def subscribe_group(
        self, group: str, channels: str | Iterable[str], *, start: Start | None = None
    ) -> GroupDescription:
        """Subscribe a group to channels or vchannels, durably. See ``AsyncClient.subscribe_group``."""
        return background.run(self._client.subscribe_group(group, channels, start=start))

    def unsubscribe_group(self, group: str, channels: str | Iterable[str]) -> GroupDescription:
        """Unsubscribe a group from channels, durably. See ``AsyncClient.unsubscribe_group``."""
        return background.run(self._client.unsubscribe_group(group, channels))

    def describe_group(self, group: str) -> GroupDescription:
        """Return a group with its positions, lag and members. See ``AsyncClient.describe_group``."""
        return background.run(self._client.describe_group(group))

    def list_groups(self, prefix: str = "", *, channel: str = "") -> Iterator[GroupSummary]:
        """Yield groups in order of name. See ``AsyncClient.list_groups``."""
        groups = self._client.list_groups(prefix, channel=channel)

        async def following() -> GroupSummary | None:
            return await anext(groups, None)

        while (group := background.run(following())) is not None:
            yield group

    def commit_positions(self, commits: Iterable[PositionCommit]) -> None:
        """Advance positions of groups, durably and atomically. See ``AsyncClient.commit_positions``."""
        background.run(self._client.commit_positions(commits))

    def seek_group(self, group: str, to: Start, vchannels: str | Iterable[str] = ()) -> Mapping[str, GroupPosition]:
        """Set positions of a group, forward or back, durably. See ``AsyncClient.seek_group``."""
        return background.run(self._client.seek_group(group, to, vchannels))

    def consume(
        self,
        group: str,
        vchannel: str,
        max_messages: int = 1_000,
        *,
        commit: bool = False,
        wait_s: float = 0.0,
        max_bytes: int = 0,
        consume_id: int | None = None,
        is_repeated: bool = False,
    ) -> Consumed:
        """Return the next messages of a group on one vchannel. See ``AsyncClient.consume``."""
        return background.run(
            self._client.consume(
                group,
                vchannel,
                max_messages,
                commit=commit,
                wait_s=wait_s,
                max_bytes=max_bytes,
                consume_id=consume_id,
                is_repeated=is_repeated,
            )
        )

    def consumer(self, group: str, channels: str | Iterable[str], **options: Unpack[ConsumerOptions]) -> Consumer:
        """Return a consumer: a member of a group; use it with ``with``. See ``AsyncClient.consumer``."""

        async def make() -> Consumer:
            return Consumer(self._client.consumer(group, channels, **options))

        return background.run(make())
