"""Handles of the synchronous client. See ``tidelog.handles``."""

from collections.abc import Sequence
from typing import Unpack

from tidelog.admin.channel_types import ChannelDescription, OwnerDescription, Retention, RetentionChange
from tidelog.append.options import AppendOptions
from tidelog.append.producer import ProducerOptions
from tidelog.append.sizes import Appendable
from tidelog.read.positions import EARLIEST, FOLLOW, LATEST, WATERMARK, End, Positions, Start
from tidelog.read.scan_plan import ScanOptions
from tidelog.sync.client_calls import ClientCalls
from tidelog.sync.producer import Producer
from tidelog.sync.scan import Scan
from tidelog.tick import Tick
from tidelog.types import (
    AppendResult,
    ProducerPosition,
    ProducerSequence,
)


class Vchannel:
    """A handle for a vchannel. Each method calls the one of Client with the vchannel's name.

    Attributes:
        name: ``<channel>/<index>``, or the name of a channel with one vchannel.
    """

    def __init__(self, client: ClientCalls, name: str) -> None:
        self._client = client
        self.name = name

    def append(
        self,
        messages: Appendable | Sequence[Appendable],
        *,
        producer: ProducerSequence | None = None,
        **options: Unpack[AppendOptions],
    ) -> AppendResult:
        """Append one message, or several as one batch; see ``Client.append``."""
        return self._client.append(self.name, messages, producer=producer, **options)

    def producer(self, **options: Unpack[ProducerOptions]) -> Producer:
        """Return a producer; see ``Client.producer``."""
        return self._client.producer(self.name, **options)

    def scan(
        self, *, start: Start | Positions = EARLIEST, until: End = WATERMARK, **options: Unpack[ScanOptions]
    ) -> Scan:
        """Return a scan; see ``Client.scan``."""
        return self._client.scan_one(self.name, start, until, options)

    def tail(self, *, start: Start | Positions = LATEST, until: End = FOLLOW, **options: Unpack[ScanOptions]) -> Scan:
        """Return a scan that follows new messages; see ``Client.tail``."""
        return self._client.scan_one(self.name, start, until, options)

    def latest_mvcc_tick(self) -> Tick:
        """Return the tick that a reader must reach to see every message acknowledged so far; 0 before the first one."""
        return self._client.latest_mvcc_tick(self.name)

    def open_producer(self, producer_id: str, *, accept_forgotten: bool = False) -> ProducerPosition:
        """Take over a producer id; see ``Client.open_producer``."""
        return self._client.open_producer(self.name, producer_id, accept_forgotten=accept_forgotten)

    def fence(self, fencing_token: int) -> None:
        """Raise the fencing token; see ``Client.fence``."""
        self._client.fence(self.name, fencing_token)

    def trim(self, before: End | None = None, *, everything: bool = False) -> Tick:
        """Delete a prefix; see ``Client.trim``."""
        return self._client.trim(self.name, before, everything=everything)


class Channel:
    """A handle for a channel.

    Attributes:
        name: Name of the channel.
    """

    def __init__(self, client: ClientCalls, name: str) -> None:
        self._client = client
        self.name = name

    def vchannel(self, index: int) -> Vchannel:
        """Return a handle for the vchannel with this index; the first is 0."""
        return Vchannel(self._client, f"{self.name}/{index}")

    def create(
        self,
        *,
        vchannels: int = 1,
        if_not_exists: bool = False,
        owner: OwnerDescription | None = None,
        retention: Retention | None = None,
    ) -> ChannelDescription:
        """Create the channel; see ``Client.create_channel``."""
        return self._client.create_channel(
            self.name, vchannels=vchannels, if_not_exists=if_not_exists, owner=owner, retention=retention
        )

    def alter(self, *, retention: Retention | RetentionChange) -> ChannelDescription:
        """Change settings of the channel; see ``Client.alter_channels``."""
        return (self._client.alter_channels([self.name], retention=retention))[0]

    def destroy(self, *, ignore_missing: bool = False) -> bool:
        """Delete the channel with all its messages; return whether it existed. See ``Client.destroy_channels``."""
        return bool(self._client.destroy_channels([self.name], ignore_missing=ignore_missing))

    def describe(self) -> ChannelDescription:
        """Return a description of the channel; see ``Client.describe_channels``.

        Raises:
            ChannelNotFoundError: The channel does not exist.
        """
        return (self._client.describe_channels([self.name]))[0]

    def append(
        self,
        messages: Appendable | Sequence[Appendable],
        *,
        producer: ProducerSequence | None = None,
        **options: Unpack[AppendOptions],
    ) -> AppendResult:
        """Append to the channel's only vchannel; fails if it has several. See ``Client.append``."""
        return self._client.append(self.name, messages, producer=producer, **options)

    def producer(self, **options: Unpack[ProducerOptions]) -> Producer:
        """Return a producer for the channel's only vchannel; see ``Client.producer``."""
        return self._client.producer(self.name, **options)

    def scan(
        self, *, start: Start | Positions = EARLIEST, until: End = WATERMARK, **options: Unpack[ScanOptions]
    ) -> Scan:
        """Return a scan of all vchannels that the channel has when it opens; see ``Client.scan``."""
        return self._client.scan(self.name, start=start, until=until, **options)

    def tail(self, *, start: Start | Positions = LATEST, until: End = FOLLOW, **options: Unpack[ScanOptions]) -> Scan:
        """Return a scan of all vchannels that follows new messages; see ``Client.tail``."""
        return self._client.scan(self.name, start=start, until=until, **options)
