"""Conversion of columns to the protocol message, and back from its bytes."""

from typing import Final

from tidelog.v1 import message_pb2
from tidelog.wire.columns import Buffer, Columns
from tidelog.wire.layout import COLUMN_NAMES, COUNT, CRC32C, NAMES_BY_TAG, TXN_ENDS, UNIFORM_TYPE
from tidelog.wire.protowire import fields

_UINT32: Final = 0xFFFF_FFFF
_COLUMNS_BY_TAG: Final = {
    **NAMES_BY_TAG, COUNT: "count", UNIFORM_TYPE: "uniform_type", CRC32C: "crc32c", TXN_ENDS: "txn_ends"
}  # fmt: skip
_VIEWED: Final = frozenset(("payloads", "keys", "property_keys", "property_values"))


def columns_to_wire(columns: Columns) -> message_pb2.Columns:
    """Return ``columns`` as the protocol message."""
    wire = message_pb2.Columns(
        count=columns.count, uniform_type=columns.uniform_type, crc32c=columns.crc32c, txn_ends=columns.txn_ends
    )
    for name in COLUMN_NAMES.values():
        if column := getattr(columns, name):
            setattr(wire, name, bytes(column))
    return wire


def columns_from_wire(encoded: Buffer) -> Columns:
    """Return serialised Columns, unchecked. Payloads, keys and properties are views into ``encoded``, not copied.

    Raises:
        WireFormatError: ``encoded`` is malformed.
    """
    columns = Columns(0, b"", b"")
    for tag, value in fields(encoded):
        name = _COLUMNS_BY_TAG.get(tag)
        if name is None:
            continue
        # Numbers are copied because Arrow requires alignment; they are small compared to the bytes that they divide.
        if isinstance(value, int):
            setattr(columns, name, value & _UINT32)
        else:
            setattr(columns, name, value if name in _VIEWED else bytes(value))
    return columns
