"""The synchronous client: the calls of ``AsyncClient`` without ``await``, on a background event loop."""

from collections.abc import Iterable
from types import TracebackType
from typing import Self, Unpack

from tidelog.admin.channel_types import OwnerDescription, Retention
from tidelog.append.producer import ProducerOptions
from tidelog.client import (
    DEFAULT_CONNECT_TIMEOUT_S,
    DEFAULT_ENDPOINT,
    DEFAULT_IN_FLIGHT_BYTES,
    DEFAULT_TIMEOUT_S,
    AsyncClient,
)  # fmt: skip
from tidelog.read.positions import EARLIEST, FOLLOW, LATEST, WATERMARK, End, Positions, Start
from tidelog.read.scan_plan import ScanOptions
from tidelog.sync.generated.broadcasts import BroadcastCalls
from tidelog.sync.generated.channels import ChannelCalls
from tidelog.sync.generated.groups import GroupCalls
from tidelog.sync.generated.handles import Channel, Vchannel
from tidelog.sync.generated.log import LogCalls
from tidelog.sync.generated.nodes import NodeCalls
from tidelog.sync.generated.tokens import TokenCalls
from tidelog.sync.generated.transactions import TransactionCalls
from tidelog.sync.producer import Producer
from tidelog.sync.scan import Scan
from tidelog.sync.transaction import Transaction
from tidelog.sync.wal import Wal
from tidelog.transport.background import background
from tidelog.transport.credentials import TlsOptions, TokenSource
from tidelog.transport.retry import DEFAULT_RETRY, Retry
from tidelog.txn.options import TransactionOptions


class Client(LogCalls, ChannelCalls, TransactionCalls, BroadcastCalls, GroupCalls, NodeCalls, TokenCalls):
    """A client of one Tidelog server. ``AsyncClient`` is its asynchronous twin, with the same names and contracts.

    Thread-safe. All clients of a process share one event loop on a background thread. A child that is forked while no
    append or scan is in progress may continue to use it.
    """

    def __init__(
        self,
        endpoint: str = DEFAULT_ENDPOINT,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        connect_timeout_s: float = DEFAULT_CONNECT_TIMEOUT_S,
        max_in_flight_bytes: int = DEFAULT_IN_FLIGHT_BYTES,
        retry: Retry = DEFAULT_RETRY,
        client_id: str | None = None,
        tls: TlsOptions | None = None,
        token: TokenSource | None = None,
    ) -> None:
        """Create a client; does no I/O. See ``AsyncClient``."""
        self.endpoint = endpoint
        self.timeout_s = timeout_s
        self._client: AsyncClient = AsyncClient(
            endpoint, timeout_s=timeout_s, connect_timeout_s=connect_timeout_s,
            max_in_flight_bytes=max_in_flight_bytes, retry=retry, client_id=client_id, tls=tls, token=token,
        )  # fmt: skip
        background.add(self._client)

    def channel(self, name: str) -> Channel:
        """Return a handle for a channel. Does no I/O and does not validate the name."""
        return Channel(self, name)

    def vchannel(self, name: str) -> Vchannel:
        """Return a handle for a vchannel, such as ``orders/0``. Does no I/O and does not validate the name."""
        return Vchannel(self, name)

    def wal(self) -> Wal:
        """Return the client's log with a WAL accessor's interface. See ``AsyncClient.wal``."""
        return Wal(self._client.wal())

    def ensure_channel(
        self,
        name: str,
        *,
        vchannels: int = 1,
        owner: OwnerDescription | None = None,
        retention: Retention | None = None,
    ) -> Channel:
        """Create a channel if it does not exist, and return its handle. See ``AsyncClient.ensure_channel``."""
        background.run(self._client.ensure_channel(name, vchannels=vchannels, owner=owner, retention=retention))
        return self.channel(name)

    def producer(self, vchannel: str, **options: Unpack[ProducerOptions]) -> Producer:
        """Return a producer that streams many messages to one vchannel; use it with ``with``."""
        return Producer(self._client.producer(vchannel, **options))

    def txn(self, **options: Unpack[TransactionOptions]) -> Transaction:
        """Return a transaction over any vchannels of the node; use it with ``with``. See ``AsyncClient.txn``."""
        return Transaction(self._client.txn(**options))

    def scan(
        self,
        vchannels: str | Iterable[str],
        *,
        start: Start | Positions = EARLIEST,
        until: End = WATERMARK,
        **options: Unpack[ScanOptions],
    ) -> Scan:
        """Return a scan of one or many vchannels, merged in tick order. See ``AsyncClient.scan``."""
        return Scan(self._client.scan(vchannels, start=start, until=until, **options))

    def tail(
        self,
        vchannels: str | Iterable[str],
        *,
        start: Start | Positions = LATEST,
        until: End = FOLLOW,
        **options: Unpack[ScanOptions],
    ) -> Scan:
        """Return a scan that follows new messages, by default from now on. Otherwise as ``scan``."""
        return self.scan(vchannels, start=start, until=until, **options)

    def scan_one(self, name: str, start: Start | Positions, until: End, options: ScanOptions) -> Scan:
        """Return a scan of the vchannel ``name``; for handles. See ``AsyncClient.scan_one``."""
        return Scan(self._client.scan_one(name, start, until, options))

    def close(self) -> None:
        """Drain appends, broadcasts and other changes, then close the connection. See ``AsyncClient.aclose``."""
        background.run(self._client.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
