"""The layout of a batch: its columns, their tags, and its CRC, as ``tidelog.v1.Columns`` defines them. Bytes only."""

import struct
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

from tidelog.wire.protowire import FIXED32, LENGTH, VARINT, tag_of

COUNT: Final = tag_of(1, VARINT)
UNIFORM_TYPE: Final = tag_of(7, VARINT)
CRC32C: Final = tag_of(16, FIXED32)
TXN_ENDS: Final = tag_of(17, LENGTH)
COLUMN_NAMES: Final = {
    2: "payload_offsets", 3: "payloads", 4: "key_offsets", 5: "keys", 6: "key_validity", 8: "types",
    9: "property_list_offsets", 10: "property_key_offsets", 11: "property_keys", 12: "property_value_offsets",
    13: "property_values", 14: "event_times_ms", 15: "event_time_validity",
}  # fmt: skip
"""Columns by field number, in the order in which the CRC covers them."""
NAMES_BY_TAG: Final = {tag_of(number, LENGTH): name for number, name in COLUMN_NAMES.items()}

_LENGTH: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<15I")
assert _HEAD.size == 4 * (2 + len(COLUMN_NAMES))
_NO_FURTHER_COLUMNS: Final = (0,) * (len(COLUMN_NAMES) - 2)


def crc32c_of_payloads(
    count: int, uniform_type: int, payload_offsets: bytes | memoryview, payloads: bytes | memoryview
) -> int:
    """Return the CRC-32C of a batch that has only payloads."""
    head = _HEAD.pack(count, uniform_type, len(payload_offsets), len(payloads), *_NO_FURTHER_COLUMNS)
    return crc32c(payloads, crc32c(payload_offsets, crc32c(head)))


def crc32c_of(count: int, uniform_type: int, columns: Sequence[bytes | memoryview]) -> int:
    """Return the CRC-32C of a batch; ``columns`` are all of COLUMN_NAMES, in this order, the absent ones empty."""
    crc = crc32c(_HEAD.pack(count, uniform_type, *map(len, columns)))
    for column in columns:
        if column:
            crc = crc32c(column, crc)
    return crc


def crc32c_with_txn_ends(crc: int, txn_ends: bytes | memoryview) -> int:
    """Return the CRC of a batch with ``txn_ends`` whose CRC without them is ``crc``."""
    return crc32c(txn_ends, crc32c(_LENGTH.pack(len(txn_ends)), crc))
