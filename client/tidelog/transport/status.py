"""Conversion of gRPC statuses and error details to the errors of ``tidelog``."""

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from tidelog.errors import (
    AppendUnknownError,
    DeadlineError,
    Effect,
    InvalidRequestError,
    ServerError,
    TidelogError,
    UnavailableError,
    class_of_reason,
)  # fmt: skip
from tidelog.v1 import error_pb2, wal_service_pb2

WRITE_FAILED: Final = (grpc.StatusCode.INTERNAL, "Internal error from Core")
"""The status that grpcio gives to a call of which a write failed: the call is over, and its own status is not known."""

_TOO_LARGE: Final = re.compile(r"larger than max \(\d+ vs\. (\d+)\)")
_CLASSES: Final[dict[grpc.StatusCode, type[TidelogError]]] = {
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.CANCELLED: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineError,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    grpc.StatusCode.UNIMPLEMENTED: InvalidRequestError,
}
_DETAILS_KEY: Final = "grpc-status-details-bin"


def error_of_status(error: grpc.aio.AioRpcError, *, is_read: bool, is_append: bool = False) -> TidelogError:
    """Return the error of a failed call. The caller raises it ``from error``.

    Only the server can promise that nothing changed, in the detail of the status. A status without detail comes from
    the transport, and the request may have arrived: the effect is ``unknown`` unless the call only reads.
    """
    detail = _detail_of(error.trailing_metadata())
    message = error.details() or error.code().name
    if detail is not None:
        return error_of_detail(message, detail)
    effect: Effect = "none" if is_read else "unknown"
    if is_append:
        return AppendUnknownError(f"the outcome of the append is unknown: {message}", effect=effect)
    if (error.code(), message) == WRITE_FAILED:
        return UnavailableError("the server, or the connection, ended the call while it was written to", effect=effect)
    return _CLASSES.get(error.code(), ServerError)(message, effect=effect)


def is_of_server(error: grpc.aio.AioRpcError) -> bool:
    """Return whether the server itself ended a call; otherwise the transport did, on either side."""
    return _detail_of(error.trailing_metadata()) is not None


def error_of_detail(message: str, detail: error_pb2.ErrorDetail) -> TidelogError:
    """Return the error that ``detail`` describes."""
    effect: Effect = "none" if detail.effect == error_pb2.EFFECT_NONE else "unknown"
    try:
        reason = error_pb2.Reason.Name(detail.reason)
    except ValueError:
        reason = f"unknown reason {detail.reason}"
    return class_of_reason(reason)(message, effect=effect, values=detail.values)


def error_of_answer(answer: wal_service_pb2.AppendError | error_pb2.CallError) -> TidelogError:
    """Return the error of a part of a call, such as one batch of an append stream."""
    return error_of_detail(answer.message, answer.detail)


def max_request_bytes_of(error: grpc.aio.AioRpcError) -> int | None:
    """Return the server's maximum request size if the call failed because its request exceeds it, else None.

    gRPC itself refuses such a request before the server sees it, and states the maximum only in its text.
    """
    found = _TOO_LARGE.search(error.details() or "") if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED else None
    return int(found[1]) if found else None


def _detail_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> error_pb2.ErrorDetail | None:
    detail = error_pb2.ErrorDetail()
    for key, value in metadata or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            with suppress(DecodeError):
                status = error_pb2.RpcStatus.FromString(value)
                return detail if any(packed.Unpack(detail) for packed in status.details) else None
    return None
