"""Checks of requests on mailboxes: numbers, durations, texts and headers. Pure."""

from collections.abc import Mapping
from typing import Final

from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.errors.mailboxes import InvalidDelayError
from tidelog_server.core.limits import (
    MAX_MAILBOX_BATCH,
    MAX_MESSAGE_GROUP_BYTES,
    MAX_MESSAGE_HEADERS,
    MAX_MESSAGE_HEADERS_BYTES,
)
from tidelog_server.core.names import is_plain, shown

MS_PER_YEAR_9999: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""


def check_count(field_name: str, count: int) -> None:
    """Check the number of values of a request. Raises InvalidRequestError."""
    if not 1 <= count <= MAX_MAILBOX_BATCH:
        raise InvalidRequestError(
            f"the request has {count} {field_name}, expected 1 to {MAX_MAILBOX_BATCH}", field=field_name
        )


def check_ms(label: str, ms: int, max_ms: int) -> None:
    """Check a number of milliseconds. Raises InvalidDelayError."""
    if not 0 <= ms <= max_ms:
        raise InvalidDelayError(label, ms=ms, max_ms=max_ms)


def check_text(label: str, text: str, max_bytes: int, index: int) -> None:
    """Check the size of a text of the message ``index``. Raises InvalidRequestError."""
    size_bytes = len(text.encode())
    if size_bytes > max_bytes:
        raise InvalidRequestError(
            f"the {label} of message {index} has {size_bytes} bytes, at most {max_bytes} are allowed", field=label
        )


def check_group(group: str, index: int) -> None:
    """Check the name of the group of the message ``index``. Raises InvalidRequestError."""
    check_text("group", group, MAX_MESSAGE_GROUP_BYTES, index)
    if not is_plain(group):
        raise InvalidRequestError(
            f"the group of message {index} is '{shown(group)}', expected text without control or format characters, "
            "line separators, and blanks at its ends",
            field="group",
        )


def check_header_count(count: int, index: int) -> None:
    """Check the number of headers of the message ``index``. Raises InvalidRequestError."""
    if count > MAX_MESSAGE_HEADERS:
        raise InvalidRequestError(
            f"message {index} has {count} headers, at most {MAX_MESSAGE_HEADERS} are allowed", field="headers"
        )


def check_headers(headers: Mapping[str, str], index: int) -> None:
    """Check the headers of the message ``index``. Raises InvalidRequestError."""
    if not headers:
        return
    check_header_count(len(headers), index)
    size_bytes = sum(len(text.encode()) for pair in headers.items() for text in pair)
    if size_bytes > MAX_MESSAGE_HEADERS_BYTES:
        raise InvalidRequestError(
            f"message {index} has {len(headers)} headers with {size_bytes} bytes, at most {MAX_MESSAGE_HEADERS_BYTES} "
            "bytes are allowed",
            field="headers",
        )
