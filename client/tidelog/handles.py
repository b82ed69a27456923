"""Handles: the client's calls, bound to a channel or vchannel. Creating a handle does no I/O."""

from collections.abc import Coroutine, Sequence
from typing import Any, Unpack

from tidelog.admin._generated_client_calls import ClientCalls
from tidelog.admin.channel_types import ChannelDescription, CreateOptions, Retention, RetentionChange
from tidelog.append.arrow_data import ArrowData
from tidelog.append.options import AppendOptions
from tidelog.append.producer import AsyncProducer, ProducerOptions
from tidelog.append.sizes import Appendable
from tidelog.read.positions import EARLIEST, FOLLOW, LATEST, WATERMARK, End, Positions, Start
from tidelog.read.scan import AsyncScan
from tidelog.read.scan_plan import ScanOptions
from tidelog.tick import Tick
from tidelog.types import (
    AppendResult,
    ProducerPosition,
    ProducerSequence,
)


class _Handle:
    """A handle for a vchannel or a channel. On a channel, the vchannel of a message is that of its key."""

    def __init__(self, client: ClientCalls, name: str) -> None:
        self._client = client
        self.name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def append(
        self,
        messages: Appendable | Sequence[Appendable] | ArrowData,
        *,
        producer: ProducerSequence | None = None,
        **options: Unpack[AppendOptions],
    ) -> Coroutine[Any, Any, AppendResult]:
        """Append one message, or several as one batch; see ``AsyncClient.append``."""
        # Why not async: each wake-up of an append would pass through one more coroutine.
        return self._client.append(self.name, messages, producer=producer, **options)

    def producer(self, **options: Unpack[ProducerOptions]) -> AsyncProducer:
        """Return a producer; see ``AsyncClient.producer``."""
        return self._client.producer(self.name, **options)

    async def open_producer(self, producer_id: str, *, accept_forgotten: bool = False) -> ProducerPosition:
        """Take over a producer id; see ``AsyncClient.open_producer``."""
        return await self._client.open_producer(self.name, producer_id, accept_forgotten=accept_forgotten)


class AsyncVchannel(_Handle):
    """A handle for a vchannel. Each method calls the one of AsyncClient with the vchannel's name.

    Attributes:
        name: ``<channel>/<index>``, or the name of a channel with one vchannel.
    """

    def scan(
        self, *, start: Start | Positions = EARLIEST, until: End = WATERMARK, **options: Unpack[ScanOptions]
    ) -> AsyncScan:
        """Return a scan; see ``AsyncClient.scan``."""
        return self._client.scan_one(self.name, start, until, options)

    def tail(
        self, *, start: Start | Positions = LATEST, until: End = FOLLOW, **options: Unpack[ScanOptions]
    ) -> AsyncScan:
        """Return a scan that follows new messages; see ``AsyncClient.tail``."""
        return self._client.scan_one(self.name, start, until, options)

    async def latest_mvcc_tick(self) -> Tick:
        """Return the tick that a reader must reach to see every message acknowledged so far; 0 before the first one."""
        return await self._client.latest_mvcc_tick(self.name)

    async def fence(self, fencing_token: int) -> None:
        """Raise the fencing token; see ``AsyncClient.fence``."""
        await self._client.fence(self.name, fencing_token)

    async def trim(self, before: End | None = None, *, everything: bool = False) -> Tick:
        """Delete a prefix; see ``AsyncClient.trim``."""
        return await self._client.trim(self.name, before, everything=everything)


class AsyncChannel(_Handle):
    """A handle for a channel. Its appends and producers distribute messages among its vchannels.

    Attributes:
        name: Name of the channel.
    """

    def vchannel(self, index: int) -> AsyncVchannel:
        """Return a handle for the vchannel with this index; the first is 0."""
        return AsyncVchannel(self._client, f"{self.name}/{index}")

    async def create(self, **options: Unpack[CreateOptions]) -> ChannelDescription:
        """Create the channel; see ``AsyncClient.create_channel``."""
        return await self._client.create_channel(self.name, **options)

    async def alter(
        self, *, retention: Retention | RetentionChange | None = None, vchannels: int | None = None
    ) -> ChannelDescription:
        """Change settings of the channel; see ``AsyncClient.alter_channels``."""
        return (await self._client.alter_channels([self.name], retention=retention, vchannels=vchannels))[0]

    async def destroy(self, *, ignore_missing: bool = False) -> bool:
        """Delete the channel with all its messages; return whether it existed. See ``AsyncClient.destroy_channels``."""
        return bool(await self._client.destroy_channels([self.name], ignore_missing=ignore_missing))

    async def describe(self) -> ChannelDescription:
        """Return a description of the channel; see ``AsyncClient.describe_channels``.

        Raises:
            ChannelNotFoundError: The channel does not exist.
        """
        return (await self._client.describe_channels([self.name]))[0]

    def scan(
        self, *, start: Start | Positions = EARLIEST, until: End = WATERMARK, **options: Unpack[ScanOptions]
    ) -> AsyncScan:
        """Return a scan of all vchannels of the channel; see ``AsyncClient.scan``."""
        return self._client.scan(self.name, start=start, until=until, **options)

    def tail(
        self, *, start: Start | Positions = LATEST, until: End = FOLLOW, **options: Unpack[ScanOptions]
    ) -> AsyncScan:
        """Return a scan of all vchannels that follows new messages; see ``AsyncClient.tail``."""
        return self._client.scan(self.name, start=start, until=until, **options)
