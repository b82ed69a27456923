"""HTTP status codes of refused calls."""

from collections.abc import Mapping
from math import ceil
from typing import Final

import grpc

from tidelog_server.rpc.status import RETRY_AFTER_MS
from tidelog_server.rpc.web.context import RefusedCallError

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


def http_status_of(error: RefusedCallError) -> tuple[int, Mapping[str, str]]:
    """Return the status of a refused call, and the headers that it needs."""
    status = STATUS_OF_REASON.get(error.reason) or STATUS_OF_CODE.get(error.code, 500)
    headers: dict[str, str] = {}
    if status == 401:
        headers |= CHALLENGE
    if (retry_after_ms := error.values.get(RETRY_AFTER_MS)) is not None:
        headers["Retry-After"] = str(ceil(int(retry_after_ms) / 1_000))
    return status, headers
