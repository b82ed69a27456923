"""Checks that a message can be encoded and is within the limits that every server has. Pure."""

import operator
import reprlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from tidelog.errors import InvalidRequestError
from tidelog.message import MESSAGE_BYTES, PROPERTY_BYTES, Message, encoded_bytes
from tidelog.tick import milliseconds

MAX_KEY_BYTES: Final = 1 << 10
MAX_TYPE: Final = (1 << 32) - 1
MAX_PROPERTIES: Final = 16
MAX_PROPERTY_BYTES: Final = 8 << 10
"""Maximum size of the properties of a message, keys and values, in UTF-8."""
MIN_EVENT_TIME_MS: Final = -62_135_596_800_000
MAX_EVENT_TIME_MS: Final = 253_402_300_799_999


def checked_bytes(message: Message) -> int:
    """Check the fields of ``message``, and return its ``size_bytes``.

    Its payload may be larger than a server accepts: servers have limits of their own.

    Raises:
        InvalidRequestError: A field cannot be encoded, or is beyond its limit. The error names it.
    """
    payload, key, properties, time = message.payload, message.key, message.properties, message.event_time
    if type(payload) is not bytes:
        _check_buffer("payload", payload)
    if key is not None:
        _check_key(key)
    # Why not only the range: a bool or a float compares like an integer.
    if type(message.type) is not int or not 0 <= message.type <= MAX_TYPE:
        _check_type(message.type)
    # A time in UTC has no offset that could move it out of the years 1 to 9999.
    if time is not None and (type(time) is not datetime or time.tzinfo is not UTC):
        _check_event_time(time)
    size_bytes = len(payload) + len(key or b"") + MESSAGE_BYTES
    return size_bytes if type(properties) is dict and not properties else size_bytes + _properties_bytes(properties)


def _refuse(problem: str) -> InvalidRequestError:
    return InvalidRequestError(f"the message cannot be appended: {problem}")


def _check_buffer(name: str, value: object) -> None:
    try:
        view = memoryview(value)  # type: ignore[arg-type]  # The check is whether this is possible.
    except TypeError as error:
        hint = ": encode it, as with .encode()" if isinstance(value, str) else ""
        raise _refuse(f"its {name} is of type {type(value).__name__}, expected bytes{hint}") from error
    if view.nbytes != len(view) or not view.c_contiguous:
        raise _refuse(f"its {name} is a view of items that are not single bytes, expected bytes")


def _check_key(key: bytes) -> None:
    if type(key) is not bytes:
        _check_buffer("key", key)
    if len(key) > MAX_KEY_BYTES:
        raise _refuse(f"its key has {len(key)} bytes, expected at most {MAX_KEY_BYTES}")


def _check_type(value: object) -> None:
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]  # A type error is the refusal.
    except TypeError:
        number = -1
    if not 0 <= number <= MAX_TYPE:
        raise _refuse(f"its type is {reprlib.repr(value)}, expected a whole number from 0 to {MAX_TYPE}")


def _properties_bytes(properties: object) -> int:
    """Return what the properties add to the size of their message."""
    if not isinstance(properties, Mapping):
        raise _refuse(f"its properties are of type {type(properties).__name__}, expected a mapping of texts")
    if len(properties) > MAX_PROPERTIES:
        raise _refuse(f"it has {len(properties)} properties, expected at most {MAX_PROPERTIES}")
    size_bytes = 0
    for key, value in properties.items():
        try:
            size_bytes += _text_bytes(key) + _text_bytes(value)
        except (TypeError, UnicodeEncodeError) as error:
            raise _refuse(f"its property {reprlib.repr(key)}: {reprlib.repr(value)} is not of text: {error}") from error
        if not key or key[0] == "_":
            raise _refuse(f"its property key {key!r} is reserved, expected a text without an underscore in front")
    if size_bytes > MAX_PROPERTY_BYTES:
        raise _refuse(f"its properties have {size_bytes} bytes in UTF-8, expected at most {MAX_PROPERTY_BYTES}")
    return size_bytes + PROPERTY_BYTES * len(properties)


def _text_bytes(text: object) -> int:
    if not isinstance(text, str):
        raise TypeError(f"expected str, not {type(text).__name__}")
    return encoded_bytes(text)


def _check_event_time(time: datetime) -> None:
    try:
        number_ms = milliseconds(time)
    except (TypeError, ValueError) as error:
        raise _refuse(f"its event_time is invalid: {error}") from error
    if not MIN_EVENT_TIME_MS <= number_ms <= MAX_EVENT_TIME_MS:
        raise _refuse(f"its event_time is {time.isoformat()}, expected a time within the years 1 to 9999 in UTC")
