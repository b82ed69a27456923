"""Reading and writing protobuf's wire format by hand, where the batch itself must not be touched.

A batch is stored and sent as the bytes that came. Parsing it into a message and serialising it again would copy it
three more times, which at 300 MB/s is a tenth of a core each. Tests compare every function with protobuf itself.

Source: https://protobuf.dev/programming-guides/encoding/
"""

import struct
from collections.abc import Iterator
from typing import Any, Final

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
FIXED32: Final = 5
MAX_WIRE_TYPE: Final = 7

_FIXED64: Final = struct.Struct("<Q")
_FIXED32: Final = struct.Struct("<I")
# As every protobuf implementation bounds them: what one of them refuses must not get into the log.
_MAX_VARINT_BYTES: Final = 10
_MAX_SHORT_VARINT_BYTES: Final = 5
_MIN_TAG: Final = 1 << 3
_MAX_TAG: Final = (1 << 32) - 1


class WireFormatError(Exception):
    """The bytes are no protobuf message."""


def read_varint(encoded: bytes, at: int, max_bytes: int = _MAX_VARINT_BYTES) -> tuple[int, int]:
    """Return the varint that begins at ``at`` and where it ends. Raises WireFormatError."""
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


def _read_fixed(encoded: bytes, at: int, wire_type: int) -> tuple[int, int]:
    """Return the number of four or eight bytes that begins at ``at`` and where it ends. Raises WireFormatError."""
    if wire_type not in (FIXED64, FIXED32):
        raise WireFormatError(f"wire type {wire_type}")
    layout = _FIXED64 if wire_type == FIXED64 else _FIXED32
    if at + layout.size > len(encoded):
        raise WireFormatError("truncated fixed field")
    (value,) = layout.unpack_from(encoded, at)
    return value, at + layout.size


def tag_of(number: int, wire_type: int) -> int:
    """Return what stands before a field: its number and how its value is written."""
    return number << 3 | wire_type


def fields(encoded: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (tag, value) for each field in order.

    The value of a tag of wire type LENGTH is a memoryview into ``encoded``, all others are integers. It is typed Any,
    for who knows the tag knows the type, and proving it again costs as much as reading the field.

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


def varint(value: int) -> bytes:
    """Return ``value`` (not negative) as a varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def varint_field(tag: int, value: int) -> bytes:
    """Return a field whose value is a varint."""
    return varint(tag) + varint(value)


def fixed32_field(tag: int, value: int) -> bytes:
    """Return a field whose value takes four bytes."""
    return varint(tag) + _FIXED32.pack(value)


def _tag(number: int, wire_type: int) -> bytes:
    return varint(tag_of(number, wire_type))


_RESPONSE_ENTRIES: Final = _tag(1, LENGTH)
_RESPONSE_WATERMARK: Final = _tag(3, VARINT)
_RESPONSE_CAUGHT_UP: Final = _tag(4, VARINT) + b"\x01"
_ENTRY_SOURCE: Final = _tag(1, VARINT)
_ENTRY_BASE_TICK: Final = _tag(2, FIXED64)
_ENTRY_TICK_DELTAS: Final = _tag(3, LENGTH)
_ENTRY_COLUMNS: Final = _tag(4, LENGTH)


def entry_parts(source: int, base_tick: int, tick_deltas: bytes, columns: bytes) -> list[bytes]:
    """Return the bytes of one ``ScanResponse.entries`` field, in parts to be joined later."""
    head = [_ENTRY_BASE_TICK, _FIXED64.pack(base_tick)]
    if source:
        head = [_ENTRY_SOURCE, varint(source), *head]
    if tick_deltas:
        head += [_ENTRY_TICK_DELTAS, varint(len(tick_deltas)), tick_deltas]
    head += [_ENTRY_COLUMNS, varint(len(columns))]
    prefix = b"".join(head)
    return [_RESPONSE_ENTRIES, varint(len(prefix) + len(columns)), prefix, columns]


def scan_response(parts: list[bytes], watermark: int, *, is_caught_up: bool) -> bytes:
    """Return a ScanResponse with the entries in ``parts``, in one copy."""
    if watermark:
        parts += [_RESPONSE_WATERMARK, varint(watermark)]
    if is_caught_up:
        parts.append(_RESPONSE_CAUGHT_UP)
    return b"".join(parts)
