"""Domain errors as statuses of gRPC: the class names the reason, and ``error.proto`` the status code of the reason.

The effect in our error detail applies to ``UNAVAILABLE`` too. A status without our detail comes from the transport; its
effect is unknown. Beside it is a google.rpc.ErrorInfo for clients without our files (D-005).
"""

from collections.abc import Iterable
from typing import Final

import grpc
from google.protobuf import any_pb2, duration_pb2

from tidelog.v1 import error_options_pb2, error_pb2
from tidelog.wire.protowire import LENGTH, key_of, varint
from tidelog_server.core.errors import Effect, TidelogServerError
from tidelog_server.rpc.status_size import MAX_DETAIL_VALUES_BYTES, MAX_INFO_VALUES_BYTES, cut_text, fitting

DETAILS_KEY: Final = "grpc-status-details-bin"
RETRY_AFTER_MS: Final = "retry_after_ms"
"""Key of the error value with the milliseconds to wait before a retry."""

CODES: Final = {
    value.name: grpc.StatusCode[value.GetOptions().Extensions[error_options_pb2.code]]  # type: ignore[index]  # its type does not state what it extends
    for value in error_pb2.Reason.DESCRIPTOR.values
    if value.number
}
"""The status code of each reason, which is an option of the reason in ``error.proto``."""

_REASON_PREFIX: Final = "REASON_"
_DOMAIN: Final = "tidelog"
_STANDARD: Final = "type.googleapis.com/google.rpc."
_EFFECTS: Final = {Effect.NONE: error_pb2.EFFECT_NONE, Effect.UNKNOWN: error_pb2.EFFECT_UNKNOWN}


def detail_of(error: TidelogServerError) -> error_pb2.ErrorDetail:
    """Return the reason, effect and values of ``error`` as a message."""
    return error_pb2.ErrorDetail(reason=reason_of(error), effect=_EFFECTS[error.effect], values=_values_of(error))


def _values_of(error: TidelogServerError) -> dict[str, str]:
    return {name: _encodable(value) for name, value in error.values.items()}


def reason_of(error: TidelogServerError) -> str:
    """Return the name of the reason of ``error`` in the protocol."""
    return _REASON_PREFIX + error.reason


def code_of(error: TidelogServerError) -> grpc.StatusCode:
    """Return the status code of ``error``."""
    return CODES[reason_of(error)]


def code_number_of(error: TidelogServerError) -> int:
    """Return the status code of ``error`` as a number."""
    number: int = code_of(error).value[0]
    return number


def text_of(error: TidelogServerError) -> str:
    """Return the text of ``error``, cut to MAX_TEXT_BYTES."""
    return cut_text(_encodable(error.message))


def _encodable(text: str) -> str:
    """Return a text with escapes in place of the lone surrogates that a request by HTTP may contain."""
    return text.encode(errors="backslashreplace").decode()


def call_error_of(error: TidelogServerError) -> error_pb2.CallError:
    """Return ``error`` as a message, for a response."""
    return error_pb2.CallError(code=code_number_of(error), message=text_of(error), detail=detail_of(error))


def trailing_metadata_of(error: TidelogServerError) -> tuple[tuple[str, bytes], ...]:
    """Return the trailing metadata with the detail of ``error``, of which long values are cut."""
    values = _values_of(error)
    detail = error_pb2.ErrorDetail(
        reason=reason_of(error), effect=_EFFECTS[error.effect], values=fitting(values, MAX_DETAIL_VALUES_BYTES)
    )
    wrapped = any_pb2.Any()
    wrapped.Pack(detail)
    details = [wrapped, _error_info(error, values)]
    if (retry_after_ms := error.values.get(RETRY_AFTER_MS)) is not None:
        details.append(_retry_info(int(retry_after_ms)))
    status = error_pb2.RpcStatus(code=code_number_of(error), message=text_of(error), details=details)
    return ((DETAILS_KEY, status.SerializeToString()),)


def detail_in(trailing_metadata: Iterable[tuple[str, str | bytes]]) -> error_pb2.ErrorDetail:
    """Return the detail that trailing metadata contain; an empty one if they have no detail."""
    detail = error_pb2.ErrorDetail()
    encoded = dict(trailing_metadata).get(DETAILS_KEY)
    if isinstance(encoded, bytes):
        for wrapped in error_pb2.RpcStatus.FromString(encoded).details:
            wrapped.Unpack(detail)
    return detail


def _error_info(error: TidelogServerError, values: dict[str, str]) -> any_pb2.Any:
    """Return a google.rpc.ErrorInfo with the reason and ``values`` of ``error``."""
    info = error_pb2.RpcErrorInfo(
        reason=error.reason,
        domain=_DOMAIN,
        metadata=fitting({**values, "effect": error.effect.value}, MAX_INFO_VALUES_BYTES),
    )
    return any_pb2.Any(type_url=_STANDARD + "ErrorInfo", value=info.SerializeToString())


def _retry_info(retry_after_ms: int) -> any_pb2.Any:
    """Return a google.rpc.RetryInfo. Encoded by hand: one field is not worth a package that clients must install."""
    delay = duration_pb2.Duration(seconds=retry_after_ms // 1_000, nanos=retry_after_ms % 1_000 * 1_000_000)
    encoded = delay.SerializeToString()
    value = key_of(1, LENGTH) + varint(len(encoded)) + encoded
    return any_pb2.Any(type_url=_STANDARD + "RetryInfo", value=value)
