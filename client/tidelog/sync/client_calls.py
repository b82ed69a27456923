"""The calls of ``Client`` that its handles make, as a protocol. See ``tidelog.client_calls``."""

from collections.abc import Iterable, Sequence
from typing import Protocol, Unpack

from tidelog.admin.channel_types import ChannelDescription, OwnerDescription, Retention, RetentionChange
from tidelog.append.options import AppendOptions
from tidelog.append.producer import ProducerOptions
from tidelog.append.sizes import Appendable
from tidelog.read.positions import EARLIEST, WATERMARK, End, Positions, Start
from tidelog.read.scan_plan import ScanOptions
from tidelog.sync.producer import Producer
from tidelog.sync.scan import Scan
from tidelog.tick import Tick
from tidelog.types import AppendResult, ProducerPosition, ProducerSequence

# ruff: noqa: D102 - the contract of each call is that of the method of Client with its name.


class ChannelCalls(Protocol):
    """Calls on channels."""

    def create_channel(
        self,
        name: str,
        *,
        vchannels: int = 1,
        if_not_exists: bool = False,
        owner: OwnerDescription | None = None,
        retention: Retention | None = None,
    ) -> ChannelDescription: ...

    def alter_channels(
        self, names: Iterable[str], *, retention: Retention | RetentionChange
    ) -> list[ChannelDescription]: ...

    def destroy_channels(self, names: Iterable[str], *, ignore_missing: bool = False) -> list[str]: ...

    def describe_channels(self, names: Iterable[str]) -> list[ChannelDescription]: ...


class ClientCalls(ChannelCalls, Protocol):
    """All calls that handles make."""

    def latest_mvcc_tick(self, vchannel: str) -> Tick: ...

    def open_producer(self, vchannel: str, producer_id: str, *, accept_forgotten: bool = False) -> ProducerPosition: ...

    def fence(self, vchannel: str, fencing_token: int) -> None: ...

    def trim(self, vchannel: str, before: End | None = None, *, everything: bool = False) -> Tick: ...

    def append(
        self,
        vchannel: str,
        messages: Appendable | Sequence[Appendable],
        *,
        producer: ProducerSequence | None = None,
        **options: Unpack[AppendOptions],
    ) -> AppendResult: ...

    def producer(self, vchannel: str, **options: Unpack[ProducerOptions]) -> Producer: ...

    def scan(
        self,
        vchannels: str | Iterable[str],
        *,
        start: Start | Positions = EARLIEST,
        until: End = WATERMARK,
        **options: Unpack[ScanOptions],
    ) -> Scan: ...

    def scan_one(self, name: str, start: Start | Positions, until: End, options: ScanOptions) -> Scan: ...
