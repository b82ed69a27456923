"""Values of the families ``columns`` and ``staged`` in a view: columns, or where they are in the log.

The first byte says which (see docs/reference/format.md)::

    0 | columns                                          up to ``MAX_LOCAL_BYTES``
    1 | position 16 | offset 4 | length 4                longer ones

``position`` is that of the record in whose payload the columns begin, at ``offset``. They may continue in the next
records of the same term with the next numbers.
"""

import struct
from typing import Final, NamedTuple

from tidelog_server.recordlog.records import POSITION_BYTES, Position, pack_position

MAX_LOCAL_BYTES: Final = 512
_LOCAL: Final = b"\0"
_REFERENCE: Final = struct.Struct(f">B{POSITION_BYTES}sII")
_IS_REFERENCE: Final = 1
POSITION_OF_REFERENCE: Final = slice(1, 17)
"""Place of the position in the value of a reference."""
LENGTH_OF_REFERENCE: Final = slice(21, 25)
"""Place of the length in the value of a reference."""


class Reference(NamedTuple):
    """Where columns are in the log: see the module."""

    position: Position
    offset: int
    length: int


def pack_local(columns: bytes) -> bytes:
    """Return the value of columns that are in the view."""
    return _LOCAL + columns


def pack_reference(reference: Reference) -> bytes:
    """Return the value of columns that are in the log only."""
    return _REFERENCE.pack(_IS_REFERENCE, pack_position(reference.position), reference.offset, reference.length)


def unpack_value(value: bytes) -> bytes | Reference | None:
    """Return the columns, or where they are; None if the value is damaged."""
    if value[:1] == _LOCAL:
        return value[1:]
    if not is_reference(value):
        return None
    _, position, offset, length = _REFERENCE.unpack(value)
    return Reference(int.from_bytes(position, "big"), offset, length)


def is_reference(value: bytes) -> bool:
    """Return whether this is the value of a reference, undamaged as far as its form tells."""
    return len(value) == _REFERENCE.size and value[0] == _IS_REFERENCE
