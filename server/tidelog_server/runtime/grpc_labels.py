"""The labels of metrics of calls, as the libraries of gRPC for other languages name them, so that their boards fit."""

from typing import Final

GRPC_LABELS: Final = ("grpc_type", "grpc_service", "grpc_method")

_UNLIKE: Final = {"OK": "OK", "CANCELLED": "Canceled"}
_NAMES: Final = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
GRPC_CODES: Final = {name: _UNLIKE.get(name, name.title().replace("_", "")) for name in _NAMES}
"""The label ``grpc_code`` of each status code, by its name in Python: those of Go, such as ``NotFound``."""


def grpc_type(*, client_streaming: bool, server_streaming: bool) -> str:
    """Return the label ``grpc_type`` of a method."""
    if client_streaming:
        return "bidi_stream" if server_streaming else "client_stream"
    return "server_stream" if server_streaming else "unary"
