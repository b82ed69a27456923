"""The batch codec: messages to columns and back. It works on bytes only, so client and server can use it.

``Columns`` mirrors the protocol message of the same name (proto/tidelog/v1/message.proto), which defines the layout.
This module depends on neither gRPC nor protobuf.

Two common shapes have a fast path: payloads alone, without keys, types, properties or times; and payloads of one size.
Both are detected from the batch and affect only the speed.
"""

import struct
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from typing import Final, Protocol

from tidelog.wire.layout import crc32c_of, crc32c_of_payloads, crc32c_with_txn_ends

MAX_MESSAGES_PER_BATCH: Final = 10_000
"""The protocol's bound on Columns.count."""

_LONE_OFFSETS: Final = struct.Struct("<2i")
_MAX_OFFSET: Final = (1 << 31) - 1
# Below this count, the general path is as fast. Above this size, a batch has few messages: most of the table is unused.
_MIN_UNIFORM_COUNT: Final = 64
_MAX_UNIFORM_BYTES: Final = 4096
_UNPACK_BLOCK: Final = 128


Buffer = bytes | memoryview
"""Bytes, or a view into the response that contains them."""


class EncodableMessage(Protocol):
    """Attributes of a message that the codec reads; ``tidelog.Message`` has them."""

    @property
    def payload(self) -> bytes: ...  # noqa: D102 - as of Message
    @property
    def key(self) -> bytes | None: ...  # noqa: D102 - as of Message
    @property
    def type(self) -> int: ...  # noqa: D102 - as of Message
    @property
    def properties(self) -> Mapping[str, str]: ...  # noqa: D102 - as of Message
    @property
    def event_time_ms(self) -> int | None: ...  # noqa: D102 - as of Message


@dataclass(slots=True, unsafe_hash=True)
class Columns:
    """A batch of ``count`` messages in Arrow's layout, little-endian; the fields are those of the protocol.

    Immutable by convention: a frozen dataclass is several times as slow to create, and each append creates one. The
    columns of a scan reference their response, which stays in memory as long as they do.
    """

    count: int
    payload_offsets: bytes
    payloads: Buffer
    key_offsets: bytes = b""
    keys: Buffer = b""
    key_validity: bytes = b""
    uniform_type: int = 0
    types: bytes = b""
    property_list_offsets: bytes = b""
    property_key_offsets: bytes = b""
    property_keys: Buffer = b""
    property_value_offsets: bytes = b""
    property_values: Buffer = b""
    event_times_ms: bytes = b""
    event_time_validity: bytes = b""
    crc32c: int = 0
    txn_ends: bytes = b""

    @property
    def is_plain(self) -> bool:
        """Whether the messages have only payloads and share one type."""
        return not (self.key_offsets or self.types or self.property_list_offsets or self.event_times_ms)

    @property
    def size_bytes(self) -> int:
        """Length of all columns together."""
        return sum(map(len, _byte_columns(self)))

    def __reduce__(self) -> tuple[type["Columns"], tuple[object, ...]]:
        """Support pickling and copying: views become bytes."""
        values = (getattr(self, column.name) for column in fields(self))
        return Columns, tuple(bytes(value) if isinstance(value, memoryview) else value for value in values)


def encode_payloads(payloads: Sequence[bytes]) -> Columns:
    """Return the columns, including the CRC, of messages that have only payloads.

    Raises:
        TypeError: A payload is not bytes-like.
        ValueError: There are no payloads, or they total 2 GiB or more.
    """
    if not payloads:
        raise ValueError("the batch has no messages: append at least one")
    joined = b"".join(payloads)
    offsets = _payload_offsets(payloads, len(joined))
    return with_crc(Columns(len(payloads), offsets, joined))


def encode_messages(messages: Sequence[EncodableMessage]) -> Columns:
    """Return the columns, including the CRC, of ``messages``. A column that no message uses is empty.

    Raises:
        TypeError: A payload or key is not bytes-like.
        ValueError: There are no messages, a type is not a uint32, or a column would have 2 GiB or more.
    """
    payloads = [message.payload for message in messages]
    plain = encode_payloads(payloads)
    key_offsets, keys, key_validity = _encode_keys([message.key for message in messages])
    uniform_type, types = _encode_types([message.type for message in messages])
    properties = _encode_properties([message.properties for message in messages])
    event_times, event_time_validity = _encode_times([message.event_time_ms for message in messages])
    return with_crc(
        Columns(
            plain.count, plain.payload_offsets, plain.payloads, key_offsets, keys, key_validity, uniform_type, types,
            *properties, event_times, event_time_validity,
        )
    )  # fmt: skip


def checksum(columns: Columns) -> int:
    """Return the CRC-32C as the protocol's Columns.crc32c defines it; the field itself is not read."""
    crc = _checksum_of_columns(columns)
    return crc32c_with_txn_ends(crc, columns.txn_ends) if columns.txn_ends else crc


def _checksum_of_columns(columns: Columns) -> int:
    payload_offsets, payloads = columns.payload_offsets, columns.payloads
    if columns.is_plain and not columns.key_validity and not columns.event_time_validity:
        return crc32c_of_payloads(columns.count, columns.uniform_type, payload_offsets, payloads)
    return crc32c_of(columns.count, columns.uniform_type, _byte_columns(columns))


def decode_payloads(columns: Columns) -> list[bytes]:
    """Return the payload of each message, in order. Check the CRC first: the columns are assumed valid."""
    size = _uniform_size(columns)
    if size is not None:
        return _split_uniform(columns.payloads, size, columns.count)
    return _split(columns.payloads, columns.payload_offsets)


def decode_keys(columns: Columns) -> list[bytes | None]:
    """Return the key of each message; None for a message without one."""
    if not columns.key_offsets:
        return [None] * columns.count
    keys: list[bytes] = _split(columns.keys, columns.key_offsets)
    if not columns.key_validity:
        return list[bytes | None](keys)
    return [key if valid else None for key, valid in zip(keys, bits(columns.key_validity), strict=False)]


def decode_types(columns: Columns) -> Sequence[int]:
    """Return the type of each message."""
    if not columns.types:
        return [columns.uniform_type] * columns.count
    return numbers("I", columns.types)


def decode_properties(columns: Columns) -> list[dict[str, str]]:
    """Return the properties of each message; an empty mapping for a message without any."""
    if not columns.property_list_offsets:
        return [{} for _ in range(columns.count)]
    keys = [key.decode() for key in _split(columns.property_keys, columns.property_key_offsets)]
    values = [value.decode() for value in _split(columns.property_values, columns.property_value_offsets)]
    bounds = numbers("i", columns.property_list_offsets)
    return [dict(zip(keys[a:b], values[a:b], strict=True)) for a, b in pairwise(bounds)]


def decode_event_times_ms(columns: Columns) -> list[int | None]:
    """Return the event time of each message in milliseconds since the epoch; None for a message without one."""
    if not columns.event_times_ms:
        return [None] * columns.count
    times = numbers("q", columns.event_times_ms)
    if not columns.event_time_validity:
        return list[int | None](times)
    return [time if valid else None for time, valid in zip(times, bits(columns.event_time_validity), strict=False)]


def decode_tick_deltas(deltas: bytes) -> Sequence[int]:
    """Return the uint32 values of Entry.tick_deltas."""
    return numbers("I", deltas)


def _byte_columns(columns: Columns) -> tuple[Buffer, ...]:
    """Return columns 2 to 6 and 8 to 15, in field order."""
    return (
        columns.payload_offsets, columns.payloads, columns.key_offsets, columns.keys, columns.key_validity,
        columns.types, columns.property_list_offsets, columns.property_key_offsets, columns.property_keys,
        columns.property_value_offsets, columns.property_values, columns.event_times_ms, columns.event_time_validity,
    )  # fmt: skip


def with_crc(columns: Columns) -> Columns:
    """Set the CRC of ``columns``, and return them."""
    columns.crc32c = checksum(columns)
    return columns


def _payload_offsets(payloads: Sequence[bytes], total_bytes: int) -> bytes:
    count = len(payloads)
    if count == 1 and len(payloads[0]) == total_bytes <= _MAX_OFFSET:
        return _LONE_OFFSETS.pack(0, total_bytes)
    if count >= _MIN_UNIFORM_COUNT:
        lengths = list(map(len, payloads))
        size = lengths[0]
        if size <= _MAX_UNIFORM_BYTES and lengths.count(size) == count <= MAX_MESSAGES_PER_BATCH:
            return _uniform_offsets(size)[: 4 * (count + 1)]
        return _offsets(lengths, total_bytes)
    return _offsets(map(len, payloads), total_bytes)


def _offsets(lengths: Iterable[int], total_bytes: int) -> bytes:
    if total_bytes > _MAX_OFFSET:
        raise ValueError(f"the batch has {total_bytes} bytes in one column, expected at most {_MAX_OFFSET}")
    offsets = array("i", accumulate(lengths, initial=0))
    # The len() of a bytes-like payload may differ from its size in bytes, as of a memoryview of wider items.
    if offsets[-1] != total_bytes:
        raise TypeError("a payload is not bytes: its length differs from its size in bytes")
    return little_endian(offsets)


@lru_cache(maxsize=64)
def _uniform_offsets(size: int) -> bytes:
    """Return the offsets of a full batch of payloads of one size; those of a smaller batch are a prefix of them."""
    return little_endian(array("i", [size * i for i in range(MAX_MESSAGES_PER_BATCH + 1)]))


def _uniform_size(columns: Columns) -> int | None:
    """Return the size that all payloads of a larger batch share, or None."""
    count, total_bytes = columns.count, len(columns.payloads)
    if not _MIN_UNIFORM_COUNT <= count <= MAX_MESSAGES_PER_BATCH or total_bytes % count:
        return None
    size = total_bytes // count
    if not 0 < size <= _MAX_UNIFORM_BYTES:
        return None
    # Check one offset first, which is cheap: the table of a size that is not uniform would be computed for nothing.
    if int.from_bytes(columns.payload_offsets[4:8], "little") != size:
        return None
    return size if _uniform_offsets(size).startswith(columns.payload_offsets) else None


@lru_cache(maxsize=64)
def _block(size: int) -> struct.Struct:
    return struct.Struct(f"{size}s" * _UNPACK_BLOCK)


def _split_uniform(column: Buffer, size: int, count: int) -> list[bytes]:
    """Split ``column`` into ``count`` pieces of ``size`` bytes: about five times as fast as slicing."""
    in_blocks = count - count % _UNPACK_BLOCK
    blocks = _block(size).iter_unpack(memoryview(column)[: in_blocks * size])
    pieces: list[bytes] = list(chain.from_iterable(blocks))
    pieces.extend(bytes(column[i * size : (i + 1) * size]) for i in range(in_blocks, count))
    return pieces


def _split(column: Buffer, offsets: bytes) -> list[bytes]:
    # Copy a view once instead of piece by piece.
    whole = bytes(column)
    bounds = numbers("i", offsets)
    return [whole[begin:end] for begin, end in pairwise(bounds)]


def _encode_keys(keys: list[bytes | None]) -> tuple[bytes, bytes, bytes]:
    present = [key is not None for key in keys]
    if not any(present):
        return b"", b"", b""
    filled = [key or b"" for key in keys]
    joined = b"".join(filled)
    return _offsets(map(len, filled), len(joined)), joined, b"" if all(present) else bitmap(present)


def _encode_types(types: list[int]) -> tuple[int, bytes]:
    try:
        column = array("I", types)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"a message type is not a whole number from 0 to {(1 << 32) - 1}") from error
    return (types[0], b"") if types.count(types[0]) == len(types) else (0, little_endian(column))


def _encode_properties(properties: list[Mapping[str, str]]) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    if not any(properties):
        return b"", b"", b"", b"", b""
    counts = [len(mapping) for mapping in properties]
    keys = [key.encode() for mapping in properties for key in mapping]
    values = [value.encode() for mapping in properties for value in mapping.values()]
    joined_keys, joined_values = b"".join(keys), b"".join(values)
    return (
        _offsets(counts, sum(counts)),
        _offsets(map(len, keys), len(joined_keys)), joined_keys,
        _offsets(map(len, values), len(joined_values)), joined_values,
    )  # fmt: skip


def _encode_times(times: list[int | None]) -> tuple[bytes, bytes]:
    present = [time is not None for time in times]
    if not any(present):
        return b"", b""
    column = array("q", [time or 0 for time in times])
    return little_endian(column), b"" if all(present) else bitmap(present)


def bitmap(flags: list[bool]) -> bytes:
    """Return an Arrow bitmap, lowest bit first."""
    bits = "".join("1" if flag else "0" for flag in reversed(flags))
    return int(bits, 2).to_bytes((len(flags) + 7) // 8, "little")


def bits(bitmap: bytes) -> list[bool]:
    """Return the flags of an Arrow bitmap, including the unused ones at the end."""
    if not bitmap:
        return []
    bits = bin(int.from_bytes(bitmap, "little"))[2:].zfill(8 * len(bitmap))
    return [bit == "1" for bit in reversed(bits)]


def little_endian(numbers: "array[int]") -> bytes:
    """Return the bytes of ``numbers``, little-endian as in columns."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def numbers(typecode: str, column: bytes) -> "array[int]":
    """Return the numbers in a column."""
    found: array[int] = array(typecode)
    found.frombytes(column)
    if sys.byteorder == "big":
        found.byteswap()
    return found
