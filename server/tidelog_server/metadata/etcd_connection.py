"""Calls to etcd: one connection at a time to one of several addresses, with TLS, a user's token and a deadline each.

Source: the gRPC interface of etcd 3.4. aetcd provides its messages and stubs; aetcd's own client supports neither TLS
nor several addresses, and its token expires after five minutes (D-053).
"""

import itertools
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from aetcd import rpc

from tidelog_server.core.errors.cluster import MetadataUnavailableError
from tidelog_server.core.limits import ETCD_CALL_TIMEOUT_S

# etcd closes connections that send pings more often than every 5 s.
_OPTIONS: Final = (
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
)
_STALE_TOKEN_TEXTS: Final = ("invalid auth token", "revision in header is old", "user name is empty")


@dataclass(frozen=True, slots=True)
class EtcdAccess:
    """Addresses of etcd and credentials for it.

    Attributes:
        endpoints: ``host:port`` of etcd's members, at least one.
        username: User name; empty for access without authentication.
        password_file: File whose first line is the user's password.
        ca_file: CA certificates that verify etcd's certificate; enables TLS.
        cert_file: Client certificate, if etcd requires one.
        key_file: Private key of the client certificate.
    """

    endpoints: tuple[str, ...]
    username: str = ""
    password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None


class EtcdCallError(Exception):
    """A call failed.

    Attributes:
        code: Name of the gRPC status code, such as ``UNAVAILABLE``.
        text: Details from etcd or the transport.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text

    @property
    def may_pass(self) -> bool:
        """True if a retry may succeed, perhaps at another address."""
        return self.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNAUTHENTICATED", "UNKNOWN", "INTERNAL")


class EtcdConnection:
    """Calls etcd at one of its addresses. Lives on the event loop. Does no network I/O before the first call."""

    def __init__(self, access: EtcdAccess) -> None:
        """Read the certificates, if any. Raises OSError if one is unreadable."""
        assert access.endpoints
        self._access = access
        self._credentials = _credentials(access)
        self._addresses = itertools.cycle(access.endpoints)
        self.endpoint = next(self._addresses)
        self._channel = self._open()
        self._token: tuple[tuple[str, str], ...] | None = None
        self._is_closed = False

    async def call(self, method: str, request: Any, *, timeout_s: float = ETCD_CALL_TIMEOUT_S) -> Any:
        """Return etcd's response to ``request``; ``method`` is ``Service.Method``.

        Raises:
            EtcdCallError: etcd refused the call or did not answer. After no answer, the next call uses the next
                address.
        """
        for may_renew in (True, False):
            try:
                metadata = await self._metadata(timeout_s)
                return await self._stub(method)(request, timeout=timeout_s, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                if not (self._note(error) and may_renew):
                    raise _call_error(error) from error
        raise AssertionError("unreachable")

    async def stream(self, method: str, request: Any) -> AsyncGenerator[Any, None]:
        """Yield etcd's responses to one request on a stream; the request side stays open until this is closed.

        Raises:
            EtcdCallError: The stream broke.
        """
        try:
            call = self._stub(method)(metadata=await self._metadata(ETCD_CALL_TIMEOUT_S))
            try:
                # Why not pass the request as an iterator: if the call breaks before it is cancelled, gRPC never ends
                # the task that reads the iterator.
                await call.write(request)
                async for answer in call:
                    yield answer
            finally:
                call.cancel()
        except grpc.aio.AioRpcError as error:
            self._note(error)
            raise _call_error(error) from error

    async def close(self) -> None:
        """End the connection. Idempotent."""
        self._is_closed = True
        await self._channel.close()

    async def _metadata(self, timeout_s: float) -> tuple[tuple[str, str], ...]:
        if self._is_closed:
            raise MetadataUnavailableError("the connection to etcd is closed")
        if self._token is None:
            self._token = await self._authenticate(timeout_s)
        return self._token

    async def _authenticate(self, timeout_s: float) -> tuple[tuple[str, str], ...]:
        if not self._access.username:
            return ()
        assert self._access.password_file is not None
        # Read each time, so that a password can be changed without a restart.
        password = self._access.password_file.read_text().split("\n", 1)[0]
        request = rpc.AuthenticateRequest(name=self._access.username, password=password)
        answer = await self._stub("Auth.Authenticate")(request, timeout=timeout_s)
        return (("token", answer.token),)

    def _note(self, error: grpc.aio.AioRpcError) -> bool:
        """Drop a stale token or a dead address after a failed call; return True to retry at once with a new token."""
        text = error.details() or ""
        if error.code() is grpc.StatusCode.UNAUTHENTICATED or any(part in text for part in _STALE_TOKEN_TEXTS):
            was_known, self._token = self._token is not None, None
            return was_known and bool(self._access.username)
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            self._move_on()
        return False

    def _move_on(self) -> None:
        """Switch to the next address. The old connection closes once no call uses it."""
        if len(self._access.endpoints) > 1 and not self._is_closed:
            self.endpoint = next(self._addresses)
            self._channel = self._open()
            self._token = None

    def _open(self) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(self.endpoint, options=_OPTIONS)
        return grpc.aio.secure_channel(self.endpoint, self._credentials, options=_OPTIONS)

    def _stub(self, method: str) -> Any:
        service, name = method.split(".")
        return getattr(getattr(rpc, f"{service}Stub")(self._channel), name)


def _credentials(access: EtcdAccess) -> grpc.ChannelCredentials | None:
    if access.ca_file is None:
        return None
    key = None if access.key_file is None else access.key_file.read_bytes()
    certificate = None if access.cert_file is None else access.cert_file.read_bytes()
    return grpc.ssl_channel_credentials(access.ca_file.read_bytes(), key, certificate)


def _call_error(error: grpc.aio.AioRpcError) -> EtcdCallError:
    return EtcdCallError(error.code().name, error.details() or "")
