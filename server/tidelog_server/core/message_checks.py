"""Checks of requests: numbers; and of requests on mailboxes: durations, texts and headers. Pure."""

from collections.abc import Mapping
from typing import Final

from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.errors.mailboxes import InvalidDelayError
from tidelog_server.core.limits import KIB, MAX_MAILBOX_BATCH
from tidelog_server.core.names import is_plain, shown

MAX_MESSAGE_GROUP_BYTES: Final = 256
MAX_MESSAGE_HEADERS: Final = 64
MAX_MESSAGE_HEADERS_BYTES: Final = 8 * KIB

MS_PER_YEAR_9999: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""

_NUMBER: Final = "{field} is {value}"


def check_within(value: int, least: int, greatest: int, field: str, text: str = _NUMBER, *, advice: str = "") -> None:
    """Check a number of a request. Raises InvalidRequestError.

    The error begins with ``text``, which has ``{value}`` and may have ``{field}``, and ends with ``advice``.
    """
    if not least <= value <= greatest:
        begin = text.format(field=field, value=value)
        raise InvalidRequestError(f"{begin}, expected {least} to {greatest}{advice}", field=field)


def check_at_most(value: int, maximum: int, field: str, text: str = _NUMBER, *, advice: str = "") -> None:
    """Check the upper bound of a number of a request; as ``check_within``. Raises InvalidRequestError."""
    if value > maximum:
        begin, verb = text.format(field=field, value=value), "is" if text == _NUMBER else "are"
        raise InvalidRequestError(f"{begin}, at most {maximum} {verb} allowed{advice}", field=field)


def check_count(field_name: str, count: int) -> None:
    """Check the number of values of a request. Raises InvalidRequestError."""
    check_within(count, 1, MAX_MAILBOX_BATCH, field_name, "the request has {value} {field}")


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
