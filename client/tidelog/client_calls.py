"""The calls of ``AsyncClient`` that handles and the WAL accessor make, as a protocol: they are below the client."""

from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Protocol, Unpack

from tidelog.admin.broadcast_types import AckMode, BroadcastResult, ResourceKey
from tidelog.admin.channel_types import ChannelDescription, OwnerDescription, Retention, RetentionChange
from tidelog.append.options import AppendOptions
from tidelog.append.producer import AsyncProducer, ProducerOptions
from tidelog.append.sizes import Appendable
from tidelog.read.positions import EARLIEST, WATERMARK, End, Positions, Start
from tidelog.read.scan import AsyncScan
from tidelog.read.scan_plan import ScanOptions
from tidelog.tick import Tick
from tidelog.txn.together import TransactionClient
from tidelog.types import AppendResult, ProducerPosition, ProducerSequence
from tidelog.wire.batch import Batch

# ruff: noqa: D102 - the contract of each call is that of the method of AsyncClient with its name.


class ChannelCalls(Protocol):
    """Calls on channels."""

    async def create_channel(
        self,
        name: str,
        *,
        vchannels: int = 1,
        if_not_exists: bool = False,
        owner: OwnerDescription | None = None,
        retention: Retention | None = None,
    ) -> ChannelDescription: ...

    async def alter_channels(
        self, names: Iterable[str], *, retention: Retention | RetentionChange
    ) -> list[ChannelDescription]: ...

    async def destroy_channels(self, names: Iterable[str], *, ignore_missing: bool = False) -> list[str]: ...

    async def describe_channels(self, names: Iterable[str]) -> list[ChannelDescription]: ...


class BroadcastCalls(Protocol):
    """Calls on broadcasts."""

    async def broadcast(
        self,
        vchannels: str | Iterable[str],
        message: Appendable,
        *,
        resource_keys: Iterable[ResourceKey] = (),
        wait_s: float | None = None,
        barrier_tick: int | None = None,
        timeout_s: float | None = None,
    ) -> BroadcastResult: ...

    async def ack(self, broadcast_id: int, vchannels: str | Iterable[str]) -> None: ...

    async def ack_batch(self, batch: Batch) -> None: ...

    async def wait_acked(
        self, key_or_id: ResourceKey | int, *, mode: AckMode = AckMode.ALL, timeout_s: float | None = None
    ) -> None: ...


class ClientCalls(ChannelCalls, BroadcastCalls, TransactionClient, Protocol):
    """All calls that handles and the WAL accessor make."""

    def check_open(self) -> None: ...

    async def wal_name(self) -> str: ...

    async def latest_mvcc_tick(self, vchannel: str) -> Tick: ...

    async def open_producer(
        self, vchannel: str, producer_id: str, *, accept_forgotten: bool = False
    ) -> ProducerPosition: ...

    async def fence(self, vchannel: str, fencing_token: int) -> None: ...

    async def trim(self, vchannel: str, before: End | None = None, *, everything: bool = False) -> Tick: ...

    def append(
        self,
        vchannel: str,
        messages: Appendable | Sequence[Appendable],
        *,
        producer: ProducerSequence | None = None,
        **options: Unpack[AppendOptions],
    ) -> Coroutine[Any, Any, AppendResult]: ...

    def producer(self, vchannel: str, **options: Unpack[ProducerOptions]) -> AsyncProducer: ...

    def scan(
        self,
        vchannels: str | Iterable[str],
        *,
        start: Start | Positions = EARLIEST,
        until: End = WATERMARK,
        **options: Unpack[ScanOptions],
    ) -> AsyncScan: ...

    def scan_one(self, name: str, start: Start | Positions, until: End, options: ScanOptions) -> AsyncScan: ...
