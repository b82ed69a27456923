"""Connections to one server, and unary calls."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

import grpc.aio

from tidelog.errors import ClosedError, DeadlineError, TidelogError, UnauthenticatedError, UnavailableError
from tidelog.transport import fork as _fork
from tidelog.transport import tracing as _tracing
from tidelog.transport.absence import why_not_connected
from tidelog.transport.calls import WITHDRAW_S, Calls, Progress, closed_error
from tidelog.transport.consume_ids import ConsumeIds
from tidelog.transport.credentials import TlsOptions, TokenSource, authorization
from tidelog.transport.in_one_process import InOneProcess
from tidelog.transport.retry import Retry, may_repeat, retry_after_s
from tidelog.transport.status import error_of_status
from tidelog.v1 import (
    backup_service_pb2_grpc,
    blob_service_pb2_grpc,
    broadcast_service_pb2_grpc,
    channel_service_pb2_grpc,
    cluster_service_pb2_grpc,
    group_service_pb2,
    group_service_pb2_grpc,
    journal_service_pb2_grpc,
    mailbox_service_pb2,
    mailbox_service_pb2_grpc,
    token_service_pb2_grpc,
    transaction_service_pb2_grpc,
    wal_service_pb2,
    wal_service_pb2_grpc,
)

MIB: Final = 1 << 20
SCAN_WINDOW_BYTES: Final = 8 * MIB
"""Flow-control window of a scan: what it may receive ahead. gRPC may exceed it by a factor of 2 plus one response.

By default gRPC grows the window with the bandwidth-delay product, without a limit: at a round trip of 30 ms it had
received 200 MB ahead. With 8 MiB a scan reaches 250 MB/s at a round trip of 20 ms, and the full bandwidth at 2 ms.
"""
# Keepalive detects a dead peer within 25 s; servers refuse pings more often than every 10 s. The metadata limits are
# equal, because between two different ones gRPC refuses at random.
CHANNEL_OPTIONS: Final = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", SCAN_WINDOW_BYTES),
    ("grpc.max_send_message_length", 72 * MIB),
    ("grpc.max_receive_message_length", 72 * MIB),
    ("grpc.max_metadata_size", 8 << 10),
    ("grpc.absolute_max_metadata_size", 8 << 10),
    # This client decides what may be retried.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    # No longer: it grows while no process listens, and another attempt is what finds out that one does again.
    ("grpc.max_reconnect_backoff_ms", 500),
    # Channels of one process to one server must not share a connection, and no connection may outlive its channel.
    ("grpc.use_local_subchannel_pool", 1),
    # A web proxy would cut streams, and must not be used for loopback.
    ("grpc.enable_http_proxy", 0),
)
# The server allows 100 streams per connection; unary calls and the append stream need some of them.
_SCANS_PER_CONNECTION: Final = 80
# First and last interval at which the state of a connecting channel is polled.
_FIRST_LOOK_S: Final = 0.001
_LAST_LOOK_S: Final = 0.05
WARN_EVERY_S: Final = 10.0
"""The readers of a client together log at most one warning in this time."""

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
UnaryMethod = Callable[..., Awaitable[_Response]]
"""A method of a generated stub, which has no annotations."""

_CLIENT_ID_KEY: Final = "tidelog-client-id"
_LOST_CODES: Final = frozenset(
    (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
)


class Connection:
    """One HTTP/2 connection, opened when it is first needed.

    Attributes:
        channel: Its gRPC channel.
        append_stream, operate, join_group: Methods AppendStream, Operate and JoinGroup, with requests as bytes.
        scan, consume: Methods Scan and Consume, with responses as bytes.
        wal, channels, transactions, broadcasts, groups, cluster, tokens, backups, journals, mailboxes, blobs: Stubs.
        scans: Number of scans and long-waiting calls in progress on it.
    """

    def __init__(self, channel: Any) -> None:
        self.channel: grpc.aio.Channel = channel
        self.scans = 0
        self.append_stream: Any = channel.stream_stream(
            "/tidelog.v1.WalService/AppendStream",
            response_deserializer=wal_service_pb2.AppendStreamResponse.FromString,
        )
        self.operate: Any = channel.stream_stream(
            "/tidelog.v1.MailboxService/Operate", response_deserializer=mailbox_service_pb2.OperateResponse.FromString
        )
        self.scan: Any = channel.unary_stream(
            "/tidelog.v1.WalService/Scan", request_serializer=wal_service_pb2.ScanRequest.SerializeToString
        )
        self.consume: Any = channel.unary_unary(
            "/tidelog.v1.GroupService/Consume", request_serializer=group_service_pb2.ConsumeRequest.SerializeToString
        )
        self.join_group: Any = channel.stream_stream(
            "/tidelog.v1.GroupService/JoinGroup", response_deserializer=group_service_pb2.JoinGroupResponse.FromString
        )

        # Why: a generated class has no annotations.
        def stub(kind: Any) -> Any:
            return kind(channel)

        self.wal = stub(wal_service_pb2_grpc.WalServiceStub)
        self.channels = stub(channel_service_pb2_grpc.ChannelServiceStub)
        self.transactions = stub(transaction_service_pb2_grpc.TransactionServiceStub)
        self.broadcasts = stub(broadcast_service_pb2_grpc.BroadcastServiceStub)
        self.groups = stub(group_service_pb2_grpc.GroupServiceStub)
        self.cluster = stub(cluster_service_pb2_grpc.ClusterServiceStub)
        self.tokens = stub(token_service_pb2_grpc.TokenServiceStub)
        self.backups = stub(backup_service_pb2_grpc.BackupServiceStub)
        self.journals = stub(journal_service_pb2_grpc.JournalServiceStub)
        self.mailboxes = stub(mailbox_service_pb2_grpc.MailboxServiceStub)
        self.blobs = stub(blob_service_pb2_grpc.BlobServiceStub)


class Transport(InOneProcess):
    """The connections of one client in one event loop of one process. Does no I/O before the first call."""

    def __init__(
        self,
        endpoint: str,
        *,
        client_id: str,
        connect_timeout_s: float,
        retry: Retry,
        tls: TlsOptions | None = None,
        token: TokenSource | None = None,
    ) -> None:
        _fork.connected(self)
        self.endpoint = endpoint
        # Identifies the owner of transactions to the server.
        self._client_id = ((_CLIENT_ID_KEY, client_id),)
        self._tls = tls
        self._token = token
        # Of each transaction that is staged on the server, what ends its keepalives.
        self.open_transactions: set[Callable[[], None]] = set()
        self.consume_ids = ConsumeIds()
        # Of the process that serves the node; see NodeTransport.
        self.term = 0
        self.connect_timeout_s = connect_timeout_s
        self.retry = retry
        # Streams may wait in it too; a close cancels what runs outside of it with CancelledError.
        self.calls = Calls()
        # Number of readers that may be waiting for a connection.
        self._waiting = 0
        self._may_warn_at_s = 0.0
        self._connections = [Connection(self._open_channel())]

    @property
    def transactions(self) -> Any:
        """TransactionService on the first connection; a transaction may outlive its client."""
        if self.is_closed:
            raise ClosedError("the client was closed: its open transactions expire with their keepalive")
        return self.services.transactions

    @property
    def can_renew_token(self) -> bool:
        """Whether the token source may return a new token after the server has refused one."""
        return callable(self._token)

    @property
    def is_closed(self) -> bool:
        """Whether the connections are closed."""
        return not self._connections

    def append_stream(self) -> Any:
        """Return a new call of AppendStream on the first connection; its requests are bytes."""
        return self.services.append_stream(metadata=self._call_metadata())

    def operate_stream(self) -> Any:
        """Return a new call of Operate on the first connection; its requests are bytes."""
        return self.services.operate(metadata=self.metadata())

    def metadata(self) -> _tracing.Metadata:
        """Return call metadata: client id and token. Raises UnauthenticatedError if the token is unavailable."""
        if self._token is None:
            return self._client_id
        try:
            return (*self._client_id, authorization(self._token))
        except (OSError, ValueError) as error:
            raise UnauthenticatedError(f"the client's token is unavailable: {error}") from error

    @property
    def client_id(self) -> str:
        """Id of this client, which owns its transactions."""
        return self._client_id[0][1]

    @property
    def scans(self) -> int:
        """Number of scans and long-waiting calls, including those that wait for the server."""
        return self._waiting + sum(connection.scans for connection in self._connections)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count a reader that may wait for the server, so that a fork does not close the connections that it uses."""
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def may_warn(self) -> bool:
        """Return whether a reader may log a warning now, and count it: all readers log one per ``WARN_EVERY_S``."""
        now_s = time.monotonic()
        if now_s < self._may_warn_at_s:
            return False
        self._may_warn_at_s = now_s + WARN_EVERY_S
        return True

    def lease(self) -> Connection:
        """Return a connection with room for one more scan or long-waiting call; return it with ``release``.

        Raises:
            ClosedError: The connections are closed.
        """
        if not self._connections:
            raise closed_error()
        for connection in self._connections:
            if connection.scans < _SCANS_PER_CONNECTION:
                break
        else:
            connection = Connection(self._open_channel())
            self._connections.append(connection)
        connection.scans += 1
        return connection

    def release(self, connection: Connection) -> None:
        """Return a connection that ``lease`` returned."""
        connection.scans -= 1

    @contextmanager
    def leased(self) -> Iterator[Connection]:
        """Yield a connection with room for a call that may wait for long; see ``lease``.

        Why: a connection carries at most 100 calls at once. If 100 waiting calls filled the main connection, the
        acknowledgements that they wait for could not be sent.
        """
        connection = self.lease()
        try:
            yield connection
        finally:
            self.release(connection)

    def note_stop(self, term: int) -> None:
        """Note that the process that serves the node in ``term`` has begun to stop; see NodeTransport."""

    async def ready(self, timeout_s: float, *, holds_close: bool = False) -> None:
        """Return once the first connection is established. No part of any request is sent before.

        Args:
            timeout_s: Maximum wait in seconds.
            holds_close: Whether a close of the client waits for this.

        Raises:
            UnavailableError: It could not be established in time; ``effect`` is ``none``.
            ClosedError: The client was closed.
        """
        if self.calls.is_closing or not self._is_ready():
            async with self.calls.entered(holds_close=holds_close):
                await self._ready(timeout_s)

    async def reach(self, timeout_s: float) -> None:
        """Return once the first connection is established, as ``ready``; but fail at once if it is refused.

        Raises:
            UnavailableError, ClosedError: As ``ready``.
        """
        async with self.calls.entered(holds_close=False):
            await self._ready(timeout_s, tries_once=True)

    async def call(
        self,
        method: UnaryMethod[_Response],
        request: _Request,
        *,
        timeout_s: float,
        is_read: bool,
        is_append: bool = False,
        is_idempotent: bool = False,
        holds_close: bool | None = None,
        mark_repeated: Callable[[_Request], None] | None = None,
        withdraw: Callable[..., Awaitable[object]] | None = None,
    ) -> _Response:
        """Return the response to ``request``. Retry until the timeout if it had no effect or is idempotent.

        Args:
            method: The method to call.
            request: Its request.
            timeout_s: Maximum time in seconds, including retries.
            is_read: Whether the call only reads, so that it never has an effect.
            is_append: Whether it appends messages.
            is_idempotent: Whether the call is idempotent.
            holds_close: Whether a close of the client waits for it; None: only if it is not a read.
            mark_repeated: Called with the request before a retry, once an attempt may have had an effect.
            withdraw: Calls the server so that it answers a request that waits there; for a close.

        Raises:
            TidelogError: The last error of server or transport; its effect is unknown if that of any attempt is.
            ClosedError, AppendUnknownError: The client was closed before there was a response; see ``effect``.
        """
        progress = Progress()
        try:
            async with self.calls.entered(
                holds_close=not is_read if holds_close is None else holds_close,
                withdraw=None if withdraw is None else partial(self._withdraw, progress, withdraw),
            ):
                return await self._repeated(
                    progress, method, request, timeout_s=timeout_s, is_read=is_read, is_append=is_append,
                    is_idempotent=is_idempotent, mark_repeated=mark_repeated,
                )  # fmt: skip
        except ClosedError:
            raise progress.error_at_close(is_read=is_read, is_append=is_append) from None

    async def _withdraw(self, progress: Progress, method: Callable[..., Awaitable[object]]) -> bool:
        """Ask the server to answer a request that waits there; return False if it is not sent, or that fails."""
        if not progress.is_sent:
            return False
        # Its answer ends the call: the server's code for a barrier is one after which requests are sent again.
        progress.is_withdrawn = True
        try:
            await method(timeout=WITHDRAW_S, metadata=self._call_metadata())
        except (grpc.aio.AioRpcError, UnauthenticatedError):
            # The server is away, refuses, or has no such method yet. The error of the ended call reports its effect.
            return False
        return True

    async def _repeated(
        self,
        progress: Progress,
        method: UnaryMethod[_Response],
        request: _Request,
        *,
        timeout_s: float,
        is_read: bool,
        is_append: bool,
        is_idempotent: bool,
        mark_repeated: Callable[[_Request], None] | None,
    ) -> _Response:
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s
        pauses_s = self.retry.pauses_s()
        error: TidelogError
        failure: Exception
        while True:
            try:
                await self._ready(deadline - clock())
                progress.is_sent = True
                return await method(request, timeout=max(0.0, deadline - clock()), metadata=self._call_metadata())
            except UnavailableError as absence:
                if not progress.is_unknown:
                    raise
                error, failure = absence, absence
            except grpc.aio.AioRpcError as refusal:
                error, failure = error_of_status(refusal, is_read=is_read, is_append=is_append), refusal
            progress.is_sent = False
            progress.is_unknown = progress.is_unknown or error.effect == "unknown"
            pause_s = max(next(pauses_s), retry_after_s(error))
            may_pass = may_repeat(error) or (is_idempotent and _is_lost(failure))
            if progress.is_withdrawn or not may_pass or clock() + pause_s >= deadline:
                error.effect = "unknown" if progress.is_unknown else "none"
                raise error from (failure if failure is not error else None)
            if progress.is_unknown and mark_repeated is not None:
                mark_repeated(request)
            await asyncio.sleep(pause_s)

    def _is_ready(self) -> bool:
        return self.services.channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY

    async def _ready(self, timeout_s: float, *, tries_once: bool = False) -> None:
        if self._is_ready():
            return
        channel = self.services.channel
        timeout_s = min(timeout_s, self.connect_timeout_s)
        within = f" within {timeout_s:.1f} s"
        try:
            async with asyncio.timeout(timeout_s):
                if await is_connected(channel, tries_once=tries_once):
                    return
                within = ""
        except TimeoutError:
            # The reason is determined below.
            pass
        why = await why_not_connected(channel, self.endpoint, self._tls)
        raise UnavailableError(f"no connection to {self.endpoint}{within}{why}")

    @property
    def services(self) -> Connection:
        """The first connection, with the stubs of all services. Raises ClosedError once the client is closed."""
        if not self._connections:
            raise closed_error()
        return self._connections[0]

    def _call_metadata(self) -> _tracing.Metadata:
        """Return the metadata of a call, including its span if tracing is enabled."""
        return self.metadata() if _tracing.hooks is None else (*self.metadata(), *_tracing.hooks.metadata())

    async def aclose(self) -> None:
        """Close the connections, which ends their calls and streams; open transactions expire on the server.

        Broadcasts that wait on the server are withdrawn first. Cancelling ends only that.
        """
        try:
            await self.calls.withdraw()
        finally:
            await self._close()

    async def _close(self) -> None:
        for forget in list(self.open_transactions):
            forget()
        # Ordering: before the channels, whose close ends calls in progress with CancelledError.
        await self.calls.end()
        # Why: gRPC's thread runs as long as its objects exist, and must not run during a fork.
        connections, self._connections = self._connections, []
        for connection in connections:
            await connection.channel.close()
        _fork.disconnected(self)

    def _open_channel(self) -> Any:
        if self._tls is None:
            return grpc.aio.insecure_channel(self.endpoint, options=CHANNEL_OPTIONS)
        credentials = self._tls.channel_credentials()
        return grpc.aio.secure_channel(self.endpoint, credentials, options=CHANNEL_OPTIONS)


async def is_connected(channel: grpc.aio.Channel, *, tries_once: bool) -> bool:
    """Return True once the channel is connected; with ``tries_once``, False once an attempt has failed.

    Why it polls: gRPC cannot cancel a watch of the state before the state changes, and may report an abandoned watch
    after its event loop is closed, to the loop of another client.
    """
    pause_s = _FIRST_LOOK_S
    while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
        if tries_once and state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            return False
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LAST_LOOK_S)
    return True


def _is_lost(failure: Exception) -> bool:
    """Return whether the connection was lost or the time ended before a response; the request may have arrived."""
    return isinstance(failure, UnavailableError) or (
        isinstance(failure, grpc.aio.AioRpcError) and failure.code() in _LOST_CODES
    )


def deadline_error(what: str, timeout_s: float) -> TidelogError:
    """Return the error for a request that was not sent before its timeout."""
    return DeadlineError(f"{what} was not sent within {timeout_s:.1f} s: nothing changed; retry, or wait longer")
