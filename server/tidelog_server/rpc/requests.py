"""Bounds of requests that are checked before they are parsed, which takes tens of milliseconds for many small parts."""

from itertools import islice

from tidelog.wire import protowire
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.limits import MAX_DENSE_REQUEST_BYTES, MAX_LARGE_REQUEST_FIELDS


def check_size(encoded: bytes, maximum: int = MAX_DENSE_REQUEST_BYTES) -> None:
    """Raise InvalidRequestError if a request has more than ``maximum`` bytes."""
    if len(encoded) > maximum:
        raise InvalidRequestError(
            f"the request has {len(encoded)} bytes, at most {maximum} are allowed: use several requests"
        )


def check_fields(encoded: bytes) -> None:
    """Check the number of fields of a request above MAX_DENSE_REQUEST_BYTES.

    Raises:
        InvalidRequestError: It has too many.
        WireFormatError: It is malformed.
    """
    if len(encoded) <= MAX_DENSE_REQUEST_BYTES:
        return
    if next(islice(protowire.fields(encoded), MAX_LARGE_REQUEST_FIELDS, None), None) is not None:
        raise InvalidRequestError(
            f"a request of more than {MAX_DENSE_REQUEST_BYTES} bytes has more than {MAX_LARGE_REQUEST_FIELDS} fields: "
            "use several requests"
        )
