"""What a client is made with, and what it has in one event loop."""

import asyncio
import os
from typing import TypedDict

from tidelog.admin.broadcasts import BroadcastIds
from tidelog.append.calls import AppendCalls, CountVchannels
from tidelog.append.numbered_channel import NumberedChannels
from tidelog.append.stream import AppendStream
from tidelog.mailboxes.operate_stream import OperationStream
from tidelog.transport.credentials import TlsOptions, TokenSource
from tidelog.transport.retry import Retry
from tidelog.transport.transport import Transport
from tidelog.wire.durations import Duration


class ClientOptions(TypedDict, total=False):
    """Options of a client; see ``AsyncClient``."""

    timeout_s: Duration
    connect_timeout_s: Duration
    max_in_flight_bytes: int
    retry: Retry
    client_id: str | None
    tls: TlsOptions | None
    token: TokenSource | None


class ClientSession:
    """The state of a client in one event loop of one process."""

    def __init__(
        self,
        transport: Transport,
        max_in_flight_bytes: int,
        timeout_s: float,
        numbered: NumberedChannels,
        count_vchannels: CountVchannels,
    ) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.get_running_loop()
        self.transport = transport
        self.appends = AppendStream(transport, max_in_flight_bytes=max_in_flight_bytes)
        self.append_calls = AppendCalls(self.appends, numbered, count_vchannels)
        self.operations = OperationStream(transport, timeout_s=timeout_s, max_in_flight_bytes=max_in_flight_bytes)
        self.broadcast_ids = BroadcastIds(transport)

    @property
    def is_idle(self) -> bool:
        """True if no append, call, operation, scan or transaction is in progress."""
        transport = self.transport
        is_idle = self.appends.is_idle and self.operations.is_idle and transport.calls.is_idle
        return is_idle and not transport.scans and not transport.open_transactions

    async def aclose(self, timeout_s: float) -> None:
        """Drain appends and other changes for at most ``timeout_s``, then close the connection."""
        try:
            await asyncio.gather(
                self.appends.pipeline.aclose(timeout_s),
                self.operations.pipeline.aclose(timeout_s),
                self.transport.calls.drain(timeout_s),
            )
        finally:
            await self.transport.aclose()
