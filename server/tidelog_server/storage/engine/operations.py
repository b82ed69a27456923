"""Changes of rows as the payload of a group, and back.

A payload is a sequence of operations, in order. All integers are big-endian (see docs/reference/format.md)::

    kind 1 | family 1 | key length 2 | value length 4 | key | value

``kind`` is 1 for a put, 2 for the deletion of a row, 3 for that of the half-open range from the key to the value.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from tidelog_server.core.errors import DataLossError
from tidelog_server.storage.rocksdb.engine import FAMILIES

_HEAD: Final = struct.Struct(">BBHI")
OPERATION_HEAD_BYTES: Final = _HEAD.size
"""Bytes of an operation beside its key and its value."""

FAMILY_NUMBERS: Final = MappingProxyType(
    {"log": 0, "columns": 1, "staged": 2, "producers": 3, "groups": 4, "index": 5, "metadata": 6}
)
"""Numbers of the families in payloads, by name. Never reuse one."""
assert set(FAMILY_NUMBERS) == set(FAMILIES)


class OperationKind(IntEnum):
    """What an operation does."""

    PUT = 1
    DELETE = 2
    DELETE_RANGE = 3


_PUT: Final = int(OperationKind.PUT)
_DELETE: Final = int(OperationKind.DELETE)
_DELETE_RANGE: Final = int(OperationKind.DELETE_RANGE)


def put_operation(family: int, key: bytes, value: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the bytes of an operation that sets a row, in pieces."""
    return _HEAD.pack(_PUT, family, len(key), len(value)), key, value


class RowBatch:
    """Changes of rows, encoded as they are made. Implements ``Batch``; a family is its number."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def put(self, key: bytes, value: bytes, family: int, /) -> None:
        """Set a row."""
        # As ``put_operation``, without a call for each row of each append.
        self._pieces += (_HEAD.pack(_PUT, family, len(key), len(value)), key, value)

    def delete(self, key: bytes, family: int, /) -> None:
        """Delete a row."""
        self._pieces += (_HEAD.pack(_DELETE, family, len(key), 0), key)

    def delete_range(self, begin_key: bytes, end_key: bytes, family: int, /) -> None:
        """Delete the rows of ``[begin_key, end_key)``."""
        self._pieces += (_HEAD.pack(_DELETE_RANGE, family, len(begin_key), len(end_key)), begin_key, end_key)

    def payload(self) -> bytes:
        """Return all changes; empty without a change."""
        return b"".join(self._pieces)


class Operation(NamedTuple):
    """A change of a row or a range of rows.

    Attributes:
        kind: What it does, an ``OperationKind``.
        family: Number of the family.
        key: Key of the row, or the first key of the range.
        begin, end: Place of the value in the payload, half-open; of the end of the range, if it deletes one.
    """

    kind: int
    family: int
    key: bytes
    begin: int
    end: int


def operations(payload: bytes, *, is_whole: bool = True) -> Iterator[Operation]:
    """Yield the operations of a payload, in order.

    Args:
        payload: The payload.
        is_whole: False if the payload may end within an operation, which is not yielded then.

    Raises:
        DataLossError: It is not a payload, or a later server wrote it.
    """
    at, size_bytes = 0, len(payload)
    unpack_from, head_bytes = _HEAD.unpack_from, _HEAD.size
    while at < size_bytes:
        key_at = at + head_bytes
        if size_bytes < key_at:
            if not is_whole:
                return
            raise _damaged(at)
        kind, family, key_bytes, value_bytes = unpack_from(payload, at)
        begin = key_at + key_bytes
        at = begin + value_bytes
        if not _PUT <= kind <= _DELETE_RANGE or len(FAMILY_NUMBERS) <= family:
            raise _damaged(key_at)
        if size_bytes < at:
            if not is_whole:
                return
            raise _damaged(key_at)
        yield Operation(kind, family, payload[key_at:begin], begin, at)


def _damaged(at: int) -> DataLossError:
    return DataLossError(
        f"a group of the log has an operation at byte {at} that this server does not know: use the server that wrote it"
    )
