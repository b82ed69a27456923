"""Channel calls of the synchronous client: create, alter, describe, list and destroy."""

from collections.abc import Iterable, Iterator

from tidelog.admin.channel_types import ChannelDescription, OwnerDescription, Retention, RetentionChange
from tidelog.admin.channels import AsyncChannelCalls
from tidelog.transport.background import background


class ChannelCalls:
    """Channels, for ``Client``. See ``AsyncChannelCalls``."""

    _client: AsyncChannelCalls

    def create_channel(
        self,
        name: str,
        *,
        vchannels: int = 1,
        if_not_exists: bool = False,
        owner: OwnerDescription | None = None,
        retention: Retention | None = None,
    ) -> ChannelDescription:
        """Create a channel, durably, and return it. See ``AsyncClient.create_channel``."""
        return background.run(
            self._client.create_channel(
                name, vchannels=vchannels, if_not_exists=if_not_exists, owner=owner, retention=retention
            )
        )

    def create_channels(
        self,
        names: Iterable[str] = (),
        *,
        number: int = 0,
        vchannels: int = 1,
        if_not_exists: bool = False,
        owner: OwnerDescription | None = None,
        retention: Retention | None = None,
    ) -> list[ChannelDescription]:
        """Create channels, durably. See ``AsyncClient.create_channels``."""
        return background.run(
            self._client.create_channels(
                names, number=number, vchannels=vchannels, if_not_exists=if_not_exists, owner=owner,
                retention=retention,
            )
        )  # fmt: skip

    def alter_channels(
        self, names: Iterable[str], *, retention: Retention | RetentionChange
    ) -> list[ChannelDescription]:
        """Change settings of channels, durably. See ``AsyncClient.alter_channels``."""
        return background.run(self._client.alter_channels(names, retention=retention))

    def destroy_channels(self, names: Iterable[str], *, ignore_missing: bool = False, force: bool = False) -> list[str]:
        """Delete channels with all their messages. See ``AsyncClient.destroy_channels``."""
        return background.run(self._client.destroy_channels(names, ignore_missing=ignore_missing, force=force))

    def describe_channels(self, names: Iterable[str], *, ignore_missing: bool = False) -> list[ChannelDescription]:
        """Return the channels in the order of ``names``. See ``AsyncClient.describe_channels``."""
        return background.run(self._client.describe_channels(names, ignore_missing=ignore_missing))

    def list_channels(self, prefix: str = "") -> Iterator[ChannelDescription]:
        """Yield the channels whose names begin with ``prefix``, in order of name."""
        channels = self._client.list_channels(prefix)

        async def following() -> ChannelDescription | None:
            return await anext(channels, None)

        while (channel := background.run(following())) is not None:
            yield channel
