"""What stands for gRPC's context in a call by HTTP."""

import base64
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

import grpc
from aiohttp import web

from tidelog.v1 import error_pb2
from tidelog_server.rpc.calls import OtherAnswerError
from tidelog_server.rpc.status import DETAILS_KEY

# What a browser that asked for a password sends: the token is the password.
_BASIC: Final = "basic "
_CARRIED: Final = ("traceparent", "tracestate")
_FORBIDDEN_IN_HEADERS: Final = "\r\n\0"


class RefusedCallError(OtherAnswerError):
    """A call was refused.

    Attributes:
        code: Its status code.
        text: What was wrong.
        reason: Name of the reason, such as ``MAILBOX_NOT_EXIST``.
        effect: ``none``, or ``unknown``.
        values: Values of the error, by name.
    """

    def __init__(self, code: grpc.StatusCode, text: str, detail: error_pb2.ErrorDetail) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.reason = error_pb2.Reason.Name(detail.reason).removeprefix("REASON_")
        self.effect = error_pb2.Effect.Name(detail.effect).removeprefix("EFFECT_").lower()
        self.values: Mapping[str, str] = dict(detail.values)


class HttpContext:
    """The part of ``grpc.aio.ServicerContext`` that handlers and their wrappers use.

    Attributes:
        written: Messages that a stream has written; the last one only.
        job: What the call does, for calls whose method is only a permission.
    """

    def __init__(self, request: web.Request, job: Callable[[], Awaitable[None]] | None = None) -> None:
        self._request = request
        self._code: grpc.StatusCode | None = None
        self.written = b""
        self.job = job

    def invocation_metadata(self) -> Sequence[tuple[str, str]]:
        """Return the headers that calls by gRPC have as metadata."""
        headers = self._request.headers
        found = [("authorization", bearer(value)) for value in headers.getall("Authorization", [])]
        return [*found, *((name, headers[name]) for name in _CARRIED if name in headers)]

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Return the client certificate, which TLS has verified, and whether the call is encrypted."""
        transport = self._request.transport
        tls: Any = None if transport is None else transport.get_extra_info("ssl_object")
        if tls is None:
            return {}
        certificate = tls.getpeercert(binary_form=True)
        found = {"transport_security_type": [b"ssl"]}
        if certificate:
            found["x509_pem_cert"] = [ssl.DER_cert_to_PEM_cert(certificate).encode()]
        return found

    def peer(self) -> str:
        """Return the address without a port: HTTP connections are cheap, so all of an address count as one."""
        address = self._request.remote or ""
        return f"ipv6:[{address}]:0" if ":" in address else f"ipv4:{address}:0"

    def set_code(self, code: grpc.StatusCode) -> None:
        """Set the status code of a call that has another answer than a refusal."""
        self._code = code

    def code(self) -> grpc.StatusCode | None:
        """Return the status code of a refusal."""
        return self._code

    async def abort(
        self, code: grpc.StatusCode, details: str, trailing_metadata: Sequence[tuple[str, bytes]] = ()
    ) -> NoReturn:
        """Refuse the call. Raises RefusedCallError."""
        self._code = code
        detail = error_pb2.ErrorDetail()
        encoded = dict(trailing_metadata).get(DETAILS_KEY, b"")
        for wrapped in error_pb2.RpcStatus.FromString(encoded).details:
            wrapped.Unpack(detail)
        raise RefusedCallError(code, details, detail)

    async def write(self, response: bytes) -> None:
        """Keep the message: the answer by HTTP is the last one."""
        self.written = response


def bearer(value: str) -> str:
    """Return the value of the header ``Authorization`` with the password of Basic authentication as the token."""
    if value[: len(_BASIC)].lower() != _BASIC:
        return value
    try:
        _, colon, password = base64.b64decode(value[len(_BASIC) :], validate=True).decode().partition(":")
    except ValueError:
        return value
    return f"Bearer {password}" if colon and not set(password) & set(_FORBIDDEN_IN_HEADERS) else value
