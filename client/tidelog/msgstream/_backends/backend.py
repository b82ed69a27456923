"""The interface between streams and each kind of broker."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from tidelog.message import Message


class Backend(Protocol):
    """A kind of broker."""

    async def resolve(self, channels: Iterable[str]) -> list[str]:
        """Return the full names of channels, in their order.

        Raises:
            ChannelNotFoundError: A channel does not exist.
            MsgStreamError: A name stands for several channels.
        """
        ...

    async def append(self, parts: Mapping[str, Sequence[Message]]) -> Mapping[str, Sequence[bytes]]:
        """Append the messages of each channel, in their order, and return their ids. Cancelling only ends the wait."""
        ...

    async def last_id(self, channel: str) -> bytes:
        """Return the id of the last message of a channel, or the one before any. Raises ChannelNotFoundError."""
        ...

    async def destroy(self, channels: Iterable[str]) -> None:
        """Delete channels with all their messages; missing channels are skipped."""
        ...
