"""Changes of existing channels: their retention, and vchannels that are added. Pure."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.retention import RetentionChange
from tidelog_server.core.ticks import Tick

NO_RETENTION_CHANGE: Final = RetentionChange()


class Growth(NamedTuple):
    """An addition of vchannels to a channel.

    Attributes:
        tick: Every message on the added vchannels has a greater tick.
        vchannels: Number of vchannels before.
    """

    tick: Tick
    vchannels: int


@dataclass(frozen=True, slots=True)
class ChannelChange:
    """Settings of channels to change.

    Attributes:
        retention: Retention settings.
        vchannels: Number of vchannels that each channel shall have; 0 for no change.
    """

    retention: RetentionChange = NO_RETENTION_CHANGE
    vchannels: int = 0

    def added_to(self, channel: str, vchannels: int, content_name: str) -> int:
        """Return how many vchannels a channel gets.

        Args:
            channel: Its name.
            vchannels: How many it has.
            content_name: The journal or mailbox whose messages it holds; empty for other channels.

        Raises:
            InvalidRequestError: It has more already, or may have only one.
        """
        if self.vchannels in (0, vchannels):
            return 0
        if self.vchannels < vchannels:
            raise InvalidRequestError(
                f"channel '{channel}' has {vchannels} vchannels, and {self.vchannels} are wanted: vchannels are only "
                f"added, because messages never move; choose {vchannels} or more, or create another channel",
                field="vchannels", name=channel, vchannels=vchannels,
            )  # fmt: skip
        if content_name:
            raise InvalidRequestError(
                f"channel '{channel}' holds the messages of '{content_name}', which has one order and so one vchannel: "
                "no vchannels can be added",
                field="vchannels", name=channel, vchannels=vchannels,
            )  # fmt: skip
        return self.vchannels - vchannels
