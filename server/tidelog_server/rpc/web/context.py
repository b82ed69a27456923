"""What stands for gRPC's context in a call by HTTP, and the status of one that was refused."""

import base64
import ssl
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Final, NoReturn

import grpc
from aiohttp import web

from tidelog.v1 import error_pb2
from tidelog_server.rpc.calls import OtherAnswerError
from tidelog_server.rpc.context import TRACE_KEYS
from tidelog_server.rpc.status import RETRY_AFTER_MS, detail_in

# What a browser that asked for a password sends: the token is the password.
_BASIC: Final = "basic "
_FORBIDDEN_IN_HEADERS: Final = "\r\n\0"
_Code = grpc.StatusCode
STATUS_OF_CODE: Final = {
    _Code.INVALID_ARGUMENT: 400,
    _Code.OUT_OF_RANGE: 400,
    _Code.UNAUTHENTICATED: 401,
    _Code.PERMISSION_DENIED: 403,
    _Code.NOT_FOUND: 404,
    _Code.FAILED_PRECONDITION: 409,
    _Code.ALREADY_EXISTS: 409,
    _Code.ABORTED: 409,
    _Code.RESOURCE_EXHAUSTED: 429,
    _Code.INTERNAL: 500,
    _Code.DATA_LOSS: 500,
    _Code.UNAVAILABLE: 503,
    _Code.DEADLINE_EXCEEDED: 504,
}
STATUS_OF_REASON: Final = {"BODY_TOO_LARGE": 413, "NOT_OWNER": 421, "DISK_FULL": 507}
"""Reasons whose status is more precise than that of their code."""
CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="tidelog"'}
BROWSER_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="tidelog: the token is the password", charset="UTF-8"'}
"""What makes a browser ask for a token. It understands neither Bearer nor two challenges in one header."""


class RefusedCallError(OtherAnswerError):
    """A call was refused.

    Attributes:
        code: Its status code.
        text: What was wrong.
        detail: Its reason, effect and values.
        reason: Name of the reason, such as ``MAILBOX_NOT_EXIST``.
        values: Values of the error, by name.
    """

    def __init__(self, code: grpc.StatusCode, text: str, detail: error_pb2.ErrorDetail) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.detail = detail
        self.reason = error_pb2.Reason.Name(detail.reason).removeprefix("REASON_")
        self.values: Mapping[str, str] = dict(detail.values)


def http_status_of(error: RefusedCallError) -> tuple[int, Mapping[str, str]]:
    """Return the status of a refused call, and the headers that it needs."""
    status = STATUS_OF_REASON.get(error.reason) or STATUS_OF_CODE.get(error.code, 500)
    headers: dict[str, str] = {}
    if status == 401:
        headers |= CHALLENGE
    if (retry_after_ms := error.values.get(RETRY_AFTER_MS)) is not None:
        headers["Retry-After"] = str(ceil(int(retry_after_ms) / 1_000))
    return status, headers


class HttpContext:
    """The part of ``grpc.aio.ServicerContext`` that handlers and their wrappers use.

    Attributes:
        written: Messages that a stream has written; the last one only.
    """

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._code: grpc.StatusCode | None = None
        self.written = b""

    def invocation_metadata(self) -> Sequence[tuple[str, str]]:
        """Return the headers that calls by gRPC have as metadata."""
        headers = self._request.headers
        found = [("authorization", bearer(value)) for value in headers.getall("Authorization", [])]
        return [*found, *((name, headers[name]) for name in TRACE_KEYS if name in headers)]

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
        raise RefusedCallError(code, details, detail_in(trailing_metadata))

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
