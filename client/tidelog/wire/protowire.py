"""A reader and writer of protobuf's wire format that does not copy batches. Used by the server too.

Protobuf copies each column twice on its way into a Python object, mostly into newly allocated memory: parsing 4 MiB
takes 7 ms, locating the columns in them 0.1 ms. Tests compare every function with protobuf itself.

Source: https://protobuf.dev/programming-guides/encoding/
"""

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
FIXED32: Final = 5
MAX_WIRE_TYPE: Final = 7

_FIXED64: Final = struct.Struct("<Q")
_FIXED32: Final = struct.Struct("<I")
# The limits of every protobuf implementation: nothing that one of them refuses may enter the log.
_MAX_VARINT_BYTES: Final = 10
_MAX_SHORT_VARINT_BYTES: Final = 5
_SHORT_VARINTS: Final = [bytes((value,)) for value in range(0x80)]
_MIN_TAG: Final = 1 << 3
_MAX_TAG: Final = (1 << 32) - 1


class WireFormatError(Exception):
    """The bytes are not a protobuf message, or not the expected one."""


def read_varint(encoded: bytes | memoryview, at: int, max_bytes: int = _MAX_VARINT_BYTES) -> tuple[int, int]:
    """Return the varint that begins at ``at``, and its end. Raises WireFormatError."""
    result = shift = 0
    while shift < 7 * max_bytes:
        if at >= len(encoded):
            raise WireFormatError("truncated varint")
        byte = encoded[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise WireFormatError(f"varint of more than {max_bytes} bytes")


def varints(encoded: memoryview) -> list[int]:
    """Return the numbers of a packed field. Raises WireFormatError."""
    found, at = [], 0
    while at < len(encoded):
        value, at = read_varint(encoded, at)
        found.append(value)
    return found


def _read_fixed(encoded: bytes | memoryview, at: int, wire_type: int) -> tuple[int, int]:
    """Return the number of four or eight bytes that begins at ``at``, and its end. Raises WireFormatError."""
    if wire_type not in (FIXED64, FIXED32):
        raise WireFormatError(f"wire type {wire_type}")
    layout = _FIXED64 if wire_type == FIXED64 else _FIXED32
    if at + layout.size > len(encoded):
        raise WireFormatError("truncated fixed field")
    (value,) = layout.unpack_from(encoded, at)
    return value, at + layout.size


def tag_of(number: int, wire_type: int) -> int:
    """Return the tag of a field: its number and wire type."""
    return number << 3 | wire_type


def varint_field(tag: int, value: int) -> bytes:
    """Return a field whose value is a varint."""
    return varint(tag) + varint(value)


def fixed32_field(tag: int, value: int) -> bytes:
    """Return a field with a fixed 32-bit value."""
    return varint(tag) + _FIXED32.pack(value)


def key_of(number: int, wire_type: int) -> bytes:
    """Return the encoded tag of a field."""
    return varint(tag_of(number, wire_type))


def fields(encoded: bytes | memoryview) -> Iterator[tuple[int, Any]]:
    """Yield (tag, value) for each field in order.

    The value of a tag of wire type LENGTH is a memoryview into ``encoded``; all others are integers. It is typed Any:
    the tag determines the type, and an isinstance check costs as much as reading the field.

    Raises:
        WireFormatError: The bytes end within a field, or a wire type is unknown (groups included).
    """
    view = memoryview(encoded)
    at, size = 0, len(encoded)
    while at < size:
        # Most tags, lengths and numbers take one byte, which is read in place.
        tag = encoded[at]
        if tag < 0x80:
            at += 1
        else:
            tag, at = read_varint(encoded, at, _MAX_SHORT_VARINT_BYTES)
        if not _MIN_TAG <= tag <= _MAX_TAG:
            raise WireFormatError(f"field number {tag >> 3}")
        wire_type = tag & 7
        if wire_type == LENGTH:
            if at < size and (length := encoded[at]) < 0x80:
                at += 1
            else:
                length, at = read_varint(encoded, at, _MAX_SHORT_VARINT_BYTES)
            end = at + length
            if end > size:
                raise WireFormatError("truncated field")
            yield tag, view[at:end]
            at = end
        elif wire_type == VARINT:
            if at < size and (value := encoded[at]) < 0x80:
                at += 1
            else:
                value, at = read_varint(encoded, at)
            yield tag, value
        else:
            value, at = _read_fixed(encoded, at, wire_type)
            yield tag, value


class Piece(NamedTuple):
    """Whole fields of a message, which follow each other.

    Attributes:
        encoded: The fields.
        tag: Tag of the field if it is a single one of wire type LENGTH that is larger than a piece, otherwise 0.
        value: Value of that field, otherwise empty.
    """

    encoded: memoryview
    tag: int
    value: memoryview


def pieces(encoded: bytes | memoryview, max_bytes: int, max_fields: int) -> Iterator[Piece]:
    """Cut a message at the ends of its fields: merging the pieces in order is the same as parsing the message.

    A piece has at most ``max_bytes`` bytes and ``max_fields`` fields, or is one field that is larger.

    Raises:
        WireFormatError: The bytes end within a field, or a wire type is unknown (groups included).
    """
    view = memoryview(encoded)
    begin = at = count = 0
    while at < len(view):
        tag, value_at, end = _field_at(view, at)
        if count and (count == max_fields or end - begin > max_bytes):
            yield Piece(view[begin:at], 0, view[:0])
            begin, count = at, 0
        count += 1
        if end - at > max_bytes:
            is_long = tag & 7 == LENGTH
            yield Piece(view[at:end], tag if is_long else 0, view[value_at:end] if is_long else view[:0])
            begin, count = end, 0
        at = end
    if count:
        yield Piece(view[begin:], 0, view[:0])


def _field_at(view: memoryview, at: int) -> tuple[int, int, int]:
    """Return the tag of the field at ``at``, where its value begins, and its end. Raises WireFormatError."""
    tag, at = read_varint(view, at, _MAX_SHORT_VARINT_BYTES)
    if not _MIN_TAG <= tag <= _MAX_TAG:
        raise WireFormatError(f"field number {tag >> 3}")
    wire_type = tag & 7
    if wire_type == LENGTH:
        length, at = read_varint(view, at, _MAX_SHORT_VARINT_BYTES)
        if at + length > len(view):
            raise WireFormatError("truncated field")
        return tag, at, at + length
    _, end = read_varint(view, at) if wire_type == VARINT else _read_fixed(view, at, wire_type)
    return tag, at, end


def varint(value: int) -> bytes:
    """Return ``value``, 0 or greater, as a varint: seven bits per byte, lowest first; a set high bit means more."""
    if value <= 0x7F:
        return _SHORT_VARINTS[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
