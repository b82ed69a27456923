"""Accepts the connections of the HTTP port, with bounds on their number, their rate and their idle time.

Why not asyncio's server: it accepts all waiting connections before our code runs, so it cannot bound descriptors.
"""

import asyncio
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from tidelog_server.core.limits import MAX_HTTP_ACCEPTS_AT_ONCE, MAX_HTTP_CONNECTIONS
from tidelog_server.runtime.buckets import Bucket
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.runtime.tasks import TaskOwner

# The rate exceeds what probes and scrapes need; a request with its connection takes about 0.3 ms of the event loop.
MAX_HTTP_ACCEPTS_PER_S: Final = 100
# A connection is closed if no request begins on it for so long, or another one needs its place.
HTTP_REQUEST_WITHIN_S: Final = 10.0

_log = structlog.get_logger()
_BACKLOG: Final = 128
_SWEEP_INTERVAL_S: Final = 0.5
# Pause after an accept that failed for a reason of the system, which may be temporary.
_PAUSE_AFTER_FAILURE_S: Final = 1.0


class HttpListener:
    """Listens on one address.

    Invariant: at most MAX_HTTP_CONNECTIONS connections are open, besides those that are held, and
    MAX_HTTP_ACCEPTS_AT_ONCE are being closed. A new connection is always accepted: it replaces the one whose last
    request began the longest ago. The caller bounds the number of held connections.
    """

    def __init__(
        self, make_protocol: Callable[[], asyncio.Protocol], metrics: Metrics, tasks: TaskOwner, connections: TaskOwner
    ) -> None:
        self._make_protocol = make_protocol
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._tasks = tasks
        self._opening = connections
        # Open connections with the time of the last request or of the accept, the oldest first.
        self._connections: OrderedDict[_Connection, float] = OrderedDict()
        # From before the first byte is read: a request may arrive together with the end of a TLS handshake.
        self._by_protocol: dict[asyncio.BaseProtocol, _Connection] = {}
        self._accepts = Bucket(MAX_HTTP_ACCEPTS_PER_S, MAX_HTTP_CONNECTIONS, self._loop.time())
        self._socket: socket.socket | None = None
        self._tls: ssl.SSLContext | None = None
        self._resume: asyncio.TimerHandle | None = None

    def listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Listen, with TLS if ``tls`` is set, and return the port. Raises OSError if the address is in use."""
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
        listening.setblocking(False)
        self._socket, self._tls = listening, tls
        self._loop.add_reader(listening, self._accept)
        self._tasks.keep("http_sweep", self._sweep())
        return int(listening.getsockname()[1])

    def renew(self, tls: ssl.SSLContext) -> None:
        """Use another context for new connections."""
        self._tls = tls

    def note_request(self, protocol: asyncio.BaseProtocol) -> None:
        """Record that a request has begun on the connection of a protocol."""
        connection = self._by_protocol.get(protocol)
        if connection is not None and connection in self._connections:
            self._connections[connection] = self._loop.time()
            self._connections.move_to_end(connection)

    @contextmanager
    def held(self, protocol: asyncio.BaseProtocol) -> Iterator[None]:
        """Exempt a connection from the limits of number and time while its request lasts, which may be long."""
        connection = self._by_protocol.get(protocol)
        if connection is None or connection not in self._connections:
            yield
            return
        del self._connections[connection]
        try:
            yield
        finally:
            if connection.socket.fileno() < 0:
                # The peer has disconnected.
                del self._by_protocol[protocol]
            else:
                self._make_room()
                self._connections[connection] = self._loop.time()

    def close(self) -> None:
        """Stop accepting. The HTTP server closes the connections. Idempotent."""
        listening, self._socket = self._socket, None
        if listening is not None:
            if self._resume is not None:
                self._resume.cancel()
            self._loop.remove_reader(listening)
            listening.close()

    def _accept(self) -> None:
        """Accept some of the waiting connections. The others stay in the kernel's backlog and take no descriptors."""
        assert self._socket is not None
        for _ in range(MAX_HTTP_ACCEPTS_AT_ONCE):
            now_s = self._loop.time()
            if (wait_s := self._accepts.wait_s(now_s, 1)) > 0:
                self._accept_later(wait_s)
                return
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.error("http_accept_failed", cause=str(error))
                self._accept_later(_PAUSE_AFTER_FAILURE_S)
                return
            self._accepts.take(1, now_s)
            accepted.setblocking(False)
            self._make_room()
            connection = _Connection(accepted, self._make_protocol())
            self._connections[connection] = now_s
            self._by_protocol[connection.protocol] = connection
            self._opening.start("http_connection", self._open(connection))

    async def _open(self, connection: "_Connection") -> None:
        within_s = None if self._tls is None else HTTP_REQUEST_WITHIN_S
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: connection.protocol, connection.socket, ssl=self._tls, ssl_handshake_timeout=within_s
            )
        except OSError:
            # The peer disconnected, or its handshake failed: no error of the server.
            connection.socket.close()
            return
        if connection.is_refused:
            transport.abort()
            return
        connection.transport = transport

    def _make_room(self) -> None:
        if len(self._connections) < MAX_HTTP_CONNECTIONS:
            return
        self._forget_closed()
        while len(self._connections) >= MAX_HTTP_CONNECTIONS:
            self._end(next(iter(self._connections)), "limit")

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_INTERVAL_S)
            self._forget_closed()
            for connection, begun_s in list(self._connections.items()):
                if self._loop.time() < begun_s + HTTP_REQUEST_WITHIN_S:
                    break
                self._end(connection, "timeout")

    def _forget_closed(self) -> None:
        for connection in [each for each in self._connections if each.socket.fileno() < 0]:
            self._forget(connection)

    def _end(self, connection: "_Connection", reason: str) -> None:
        self._metrics.http_connections_ended.labels(reason).inc()
        self._forget(connection)
        connection.refuse()

    def _forget(self, connection: "_Connection") -> None:
        del self._connections[connection]
        del self._by_protocol[connection.protocol]

    def _accept_later(self, wait_s: float) -> None:
        assert self._socket is not None
        self._loop.remove_reader(self._socket)
        self._resume = self._loop.call_later(wait_s, self._loop.add_reader, self._socket, self._accept)


class _Connection:
    """A connection, from its accept on; its transport exists after the TLS handshake."""

    def __init__(self, accepted: socket.socket, protocol: asyncio.Protocol) -> None:
        self.socket = accepted
        self.protocol = protocol
        self.transport: asyncio.WriteTransport | None = None
        self.is_refused = False

    def refuse(self) -> None:
        """Close the connection and free its descriptor, in any state."""
        self.is_refused = True
        if self.transport is not None:
            self.transport.abort()
        elif self.socket.fileno() >= 0:
            # During the handshake: shutting down both directions ends it immediately.
            self.socket.shutdown(socket.SHUT_RDWR)
