"""Reads JSON with bounds that hold while it is read: contents are from callers who may send anything.

The scanner of the standard library in C has no bounds, and holds the interpreter lock. So arrays and objects are read
by its version in Python, which calls back for each value; texts and numbers are read in C.
"""

import json
from collections.abc import Callable
from json import decoder, scanner
from typing import Any, Final

from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.limits import MAX_MAILBOX_BATCH
from tidelog_server.core.message_checks import MAX_MESSAGE_HEADERS

# Values of one JSON content, members of an object, and levels of nesting. An array has at most MAX_MAILBOX_BATCH
# elements. They bound the time to parse a content, about 4 microseconds for a value.
MAX_API_VALUES: Final = MAX_MAILBOX_BATCH * (MAX_MESSAGE_HEADERS + 16)
MAX_API_MEMBERS: Final = 2 * MAX_MESSAGE_HEADERS
MAX_API_DEPTH: Final = 16

Json = Any
"""What ``json.loads`` returns."""
_Scan = Callable[[str, int], tuple[Json, int]]

_make_scanner: Final[Any] = scanner.py_make_scanner  # type: ignore[attr-defined]  # the stubs lack it
_read_array: Final[Any] = decoder.JSONArray  # type: ignore[attr-defined]  # the stubs lack it
_read_object: Final[Any] = decoder.JSONObject  # type: ignore[attr-defined]  # the stubs lack it


def read_json(content: bytes) -> Json:
    """Return the value of JSON; an empty object for no content.

    Raises:
        InvalidRequestError: It is not JSON, or exceeds a bound.
    """
    if not content:
        return {}
    try:
        return _Decoder().decode(content.decode(json.detect_encoding(content)))
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the request is not valid JSON: {error}", field="request") from error


class _Decoder(json.JSONDecoder):
    """Decodes one content."""

    def __init__(self) -> None:
        super().__init__()
        self._values = 0
        self._depth = 0
        self.parse_array = self._array
        self.parse_object = self._object
        self.scan_once = _make_scanner(self)

    def _array(self, place: tuple[str, int], scan: _Scan) -> tuple[Json, int]:
        return self._nested(_read_array, place, self._bounded(scan, MAX_MAILBOX_BATCH, "elements in an array"))

    def _object(self, place: tuple[str, int], strict: bool, scan: _Scan, *rest: Any) -> tuple[Json, int]:
        return self._nested(
            _read_object, place, strict, self._bounded(scan, MAX_API_MEMBERS, "members in an object"), *rest
        )

    def _nested(self, read: Any, *arguments: Any) -> tuple[Json, int]:
        self._depth += 1
        if self._depth > MAX_API_DEPTH:
            raise _too_many(MAX_API_DEPTH, "levels of nesting")
        found: tuple[Json, int] = read(*arguments)
        self._depth -= 1
        return found

    def _bounded(self, scan: _Scan, maximum: int, what: str) -> _Scan:
        count = 0

        def scan_one(text: str, at: int) -> tuple[Json, int]:
            nonlocal count
            count += 1
            self._values += 1
            if count > maximum:
                raise _too_many(maximum, what)
            if self._values > MAX_API_VALUES:
                raise _too_many(MAX_API_VALUES, "values")
            return scan(text, at)

        return scan_one


def _too_many(maximum: int, what: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"the request has more than {maximum} {what}, which is the maximum: send less at a time", field="request"
    )
