"""Batches in columns: checked once on arrival, cut and filtered on the way out. No work per message but in numpy.

The layout is that of ``tidelog.v1.Columns``.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final

import crc32c
import numpy as np
import numpy.typing as npt

from tidelog import _protowire as protowire
from tidelog.v1 import message_pb2
from tidelog_server.core.entries import MIXED_TYPES
from tidelog_server.core.errors import (
    BatchTooLargeError,
    ChecksumMismatchError,
    EmptyBatchError,
    MalformedColumnsError,
    MessageTooLargeError,
    ReservedPropertyError,
)
from tidelog_server.core.limits import (
    MAX_KEY_BYTES,
    MAX_MESSAGES_PER_BATCH,
    MAX_PROPERTIES_PER_MESSAGE,
    MAX_PROPERTY_BYTES_PER_MESSAGE,
    Limits,
)
from tidelog_server.core.names import RESERVED_PREFIX, shown
from tidelog_server.rpc import wire

Offsets = npt.NDArray[np.int32]
Indices = npt.NDArray[np.int64]

# Tags of Columns.
_COUNT: Final = protowire.tag_of(1, protowire.VARINT)
_UNIFORM_TYPE: Final = protowire.tag_of(7, protowire.VARINT)
_CRC32C: Final = protowire.tag_of(16, protowire.FIXED32)
_TXN_ENDS: Final = protowire.tag_of(17, protowire.LENGTH)
_MAX_KNOWN: Final = protowire.tag_of(17, protowire.MAX_WIRE_TYPE)
_UINT32: Final = 0xFFFF_FFFF
# Length-delimited columns by field number; the CRC covers them in this order.
COLUMN_NAMES: Final = {
    2: "payload_offsets", 3: "payloads", 4: "key_offsets", 5: "keys", 6: "key_validity", 8: "types",
    9: "property_list_offsets", 10: "property_key_offsets", 11: "property_keys", 12: "property_value_offsets",
    13: "property_values", 14: "event_times_ms", 15: "event_time_validity",
}  # fmt: skip
_NAMES_BY_TAG: Final = {protowire.tag_of(number, protowire.LENGTH): name for number, name in COLUMN_NAMES.items()}
_LONE: Final = struct.Struct("<2i")
_LENGTH: Final = struct.Struct("<I")
_CRC_PREFIX: Final = struct.Struct("<15I")
assert _CRC_PREFIX.size == 4 * (2 + len(COLUMN_NAMES))
_NO_FURTHER_COLUMNS: Final = (0,) * (len(COLUMN_NAMES) - 2)
_EMPTY: Final = memoryview(b"")
_PAYLOAD_COLUMNS: Final = frozenset(("payload_offsets", "payloads"))


@dataclass(slots=True)
class ColumnsView:
    """A batch whose columns are views into the bytes it came in.

    Attributes:
        count, uniform_type, crc32c: As in ``tidelog.v1.Columns``.
        columns: Views by column name; absent ones are empty.
        txn_ends: As in ``tidelog.v1.Columns``.
    """

    count: int = 0
    uniform_type: int = 0
    crc32c: int = 0
    columns: dict[str, memoryview] = field(default_factory=dict)
    txn_ends: memoryview = _EMPTY

    @classmethod
    def parse(cls, encoded: bytes) -> "ColumnsView":
        """Return a view of serialised Columns, unchecked.

        Raises:
            protowire.WireFormatError: It is no such message.
        """
        view = cls()
        columns = view.columns
        for tag, value in protowire.fields(encoded):
            if (name := _NAMES_BY_TAG.get(tag)) is not None:
                columns[name] = value
            elif tag == _COUNT:
                view.count = value & _UINT32
            elif tag == _CRC32C:
                view.crc32c = value
            elif tag == _UNIFORM_TYPE:
                view.uniform_type = value & _UINT32
            elif tag == _TXN_ENDS:
                view.txn_ends = value
            elif tag <= _MAX_KNOWN:
                raise protowire.WireFormatError(f"field {tag >> 3} has wire type {tag & 7}")
            # A field of a later version: the CRC does not cover it, and readers of this version skip it as well.
        return view

    def column(self, name: str) -> memoryview:
        """Return a column; empty if it is absent."""
        return self.columns.get(name, _EMPTY)

    @property
    def is_plain(self) -> bool:
        """Whether there are no columns but the payloads'."""
        return self.columns.keys() <= _PAYLOAD_COLUMNS

    def compute_crc32c(self) -> int:
        """Return the CRC-32C that the batch should have."""
        crc = self._crc32c_of_columns()
        if not self.txn_ends:
            return crc
        return crc32c.crc32c(self.txn_ends, crc32c.crc32c(_LENGTH.pack(len(self.txn_ends)), crc))

    def _crc32c_of_columns(self) -> int:
        if self.is_plain:
            offsets, payloads = self.column("payload_offsets"), self.column("payloads")
            head = _CRC_PREFIX.pack(self.count, self.uniform_type, len(offsets), len(payloads), *_NO_FURTHER_COLUMNS)
            return crc32c.crc32c(payloads, crc32c.crc32c(offsets, crc32c.crc32c(head)))
        views = list(map(self.columns.get, COLUMN_NAMES.values(), repeat(_EMPTY)))
        crc = crc32c.crc32c(_CRC_PREFIX.pack(self.count, self.uniform_type, *map(len, views)))
        for view in views:
            if view:
                crc = crc32c.crc32c(view, crc)
        return crc

    def sealed(self) -> bytes:
        """Return the batch serialised, with the CRC that it should have; each column is copied once."""
        parts: list[bytes | memoryview] = [
            wire.varint_field(_COUNT, self.count),
            wire.varint_field(_UNIFORM_TYPE, self.uniform_type),
        ]
        for tag, name in _NAMES_BY_TAG.items():
            if column := self.column(name):
                parts += (protowire.varint(tag), protowire.varint(len(column)), column)
        parts.append(wire.fixed32_field(_CRC32C, self.compute_crc32c()))
        if self.txn_ends:
            parts += (protowire.varint(_TXN_ENDS), protowire.varint(len(self.txn_ends)), self.txn_ends)
        return b"".join(parts)

    @property
    def message_type(self) -> int:
        """The type of all messages, or MIXED_TYPES."""
        return MIXED_TYPES if self.column("types") else self.uniform_type

    @property
    def txns(self) -> int:
        """Number of transactions that it is divided into; 1 if it is not divided."""
        return len(self.txn_ends) // 4 or 1

    def txn_offsets(self, indices: Indices) -> Indices:
        """Return the number, from 0, of the transaction of each message at ``indices``."""
        return np.searchsorted(np.frombuffer(self.txn_ends, "<u4"), indices, side="right").astype(np.int64)

    def types(self) -> npt.NDArray[np.uint32]:
        """Return the type of each message."""
        if column := self.column("types"):
            return np.frombuffer(column, "<u4")
        return np.full(self.count, self.uniform_type, np.uint32)

    def offsets(self, name: str) -> Offsets:
        """Return an offsets column."""
        return np.frombuffer(self.column(name), "<i4")


def check(view: ColumnsView, size_bytes: int, limits: Limits) -> None:
    """Raise unless ``view`` is a batch that may be stored. Nothing else checks it again.

    Raises:
        EmptyBatchError, BatchTooLargeError, MessageTooLargeError: By count and size.
        ChecksumMismatchError: Its CRC is not that of its columns.
        MalformedColumnsError, ReservedPropertyError: Its columns contradict each other or the limits.
    """
    if view.count == 0:
        raise EmptyBatchError
    if view.count > MAX_MESSAGES_PER_BATCH:
        raise BatchTooLargeError(actual=view.count, maximum=MAX_MESSAGES_PER_BATCH, unit="messages")
    if size_bytes > limits.max_batch_bytes:
        raise BatchTooLargeError(actual=size_bytes, maximum=limits.max_batch_bytes, unit="bytes")
    actual = view.compute_crc32c()
    if actual != view.crc32c:
        raise ChecksumMismatchError(expected=view.crc32c, actual=actual)
    if not _is_lone_payload(view, limits.max_message_bytes):
        sizes = _check_divided(view, "payload_offsets", "payloads", view.count)
        _check_size(sizes, limits.max_message_bytes, "payload")
    if view.txn_ends:
        _check_txn_ends(view)
    if view.is_plain:
        return
    _check_keys(view)
    _check_types(view)
    _check_properties(view)
    _check_event_times(view)


def _is_lone_payload(view: ColumnsView, max_bytes: int) -> bool:
    """Tell whether there is one payload and it is sound: numpy takes longer to begin than this takes."""
    size_bytes = len(view.column("payloads"))
    return view.count == 1 and size_bytes <= max_bytes and view.column("payload_offsets") == _LONE.pack(0, size_bytes)


def _check_divided(view: ColumnsView, offsets_name: str, values_name: str, count: int) -> Offsets:
    """Check an offsets column against the column that it divides; return the sizes."""
    return _check_offsets(view, offsets_name, count, len(view.column(values_name)), values_name)


def _check_offsets(view: ColumnsView, name: str, count: int, end: int, divided: str) -> Offsets:
    column = view.column(name)
    if len(column) != 4 * (count + 1):
        raise MalformedColumnsError(name, f"has {len(column)} bytes, expected {4 * (count + 1)} for {count} items")
    offsets = np.frombuffer(column, "<i4")
    if offsets[0] != 0:
        raise MalformedColumnsError(name, f"begins at {offsets[0]}, expected 0")
    # In 64 bits: the difference of two int32 may not fit.
    sizes = np.diff(offsets.astype(np.int64))
    if sizes.size and sizes.min() < 0:
        index = int(np.argmin(sizes >= 0))
        raise MalformedColumnsError(name, f"falls from {offsets[index]} to {offsets[index + 1]} at item {index}")
    if offsets[-1] != end:
        raise MalformedColumnsError(name, f"ends at {offsets[-1]}, but {divided} has {end}")
    return sizes.astype(np.int32)


def _check_size(sizes: Offsets, max_bytes: int, part: str) -> None:
    if sizes.size and sizes.max() > max_bytes:
        index = int(np.argmax(sizes > max_bytes))
        raise MessageTooLargeError(size_bytes=int(sizes[index]), max_bytes=max_bytes, index=index, part=part)


def _check_keys(view: ColumnsView) -> None:
    if not view.column("key_offsets"):
        _check_absent(view, "keys", "key_offsets")
        _check_absent(view, "key_validity", "key_offsets")
        return
    sizes = _check_divided(view, "key_offsets", "keys", view.count)
    _check_size(sizes, MAX_KEY_BYTES, "key")
    _check_validity(view, "key_validity")


def _check_types(view: ColumnsView) -> None:
    column = view.column("types")
    if not column:
        return
    if len(column) != 4 * view.count:
        raise MalformedColumnsError("types", f"has {len(column)} bytes, expected {4 * view.count}")
    if view.uniform_type:
        raise MalformedColumnsError("uniform_type", "must be 0 when the column types is present")


def _check_event_times(view: ColumnsView) -> None:
    column = view.column("event_times_ms")
    if not column:
        _check_absent(view, "event_time_validity", "event_times_ms")
        return
    if len(column) != 8 * view.count:
        raise MalformedColumnsError("event_times_ms", f"has {len(column)} bytes, expected {8 * view.count}")
    _check_validity(view, "event_time_validity")


def _check_txn_ends(view: ColumnsView) -> None:
    if len(view.txn_ends) % 4:
        raise MalformedColumnsError("txn_ends", f"has {len(view.txn_ends)} bytes, expected 4 for each transaction")
    ends = np.frombuffer(view.txn_ends, "<u4").astype(np.int64)
    if np.diff(ends, prepend=0).min() < 0:
        raise MalformedColumnsError("txn_ends", "falls")
    if ends[-1] != view.count:
        raise MalformedColumnsError("txn_ends", f"ends at {ends[-1]}, but the batch has {view.count} messages")


def _check_validity(view: ColumnsView, name: str) -> None:
    column, expected = view.column(name), -(-view.count // 8)
    if column and len(column) != expected:
        raise MalformedColumnsError(name, f"has {len(column)} bytes, expected {expected} or none")


def _check_absent(view: ColumnsView, name: str, without: str) -> None:
    if view.column(name):
        raise MalformedColumnsError(name, f"is present without {without}")


_PROPERTY_COLUMNS: Final = (
    "property_key_offsets", "property_keys", "property_value_offsets", "property_values"
)  # fmt: skip


def _check_properties(view: ColumnsView) -> None:
    lists = view.column("property_list_offsets")
    if not lists:
        for name in _PROPERTY_COLUMNS:
            _check_absent(view, name, "property_list_offsets")
        return
    total = max(len(view.column("property_key_offsets")) // 4 - 1, 0)
    numbers = _check_offsets(view, "property_list_offsets", view.count, total, "the number of properties")
    if (most := int(numbers.max())) > MAX_PROPERTIES_PER_MESSAGE:
        raise MalformedColumnsError(
            "property_list_offsets",
            f"gives a message {most} properties, at most {MAX_PROPERTIES_PER_MESSAGE} are allowed",
        )
    key_sizes = _check_divided(view, "property_key_offsets", "property_keys", total)
    value_sizes = _check_divided(view, "property_value_offsets", "property_values", total)
    running = np.concatenate(([0], np.cumsum(key_sizes.astype(np.int64) + value_sizes)))
    sizes = np.diff(running[view.offsets("property_list_offsets")])
    _check_size(sizes.astype(np.int32), MAX_PROPERTY_BYTES_PER_MESSAGE, "properties")
    _check_property_texts(view, key_sizes)


def _check_property_texts(view: ColumnsView, key_sizes: Offsets) -> None:
    if key_sizes.size and key_sizes.min() == 0:
        raise MalformedColumnsError("property_keys", "has an empty key")
    for name in ("property_keys", "property_values"):
        try:
            str(view.column(name), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedColumnsError(name, f"is not UTF-8 at byte {error.start}") from error
        starts = view.offsets(name.removesuffix("s") + "_offsets")[:-1]
        _check_starts_are_characters(view.column(name), starts, name)
    keys = np.frombuffer(view.column("property_keys"), np.uint8)
    starts = view.offsets("property_key_offsets")[:-1]
    reserved = np.flatnonzero(keys[starts] == ord(RESERVED_PREFIX)) if starts.size else starts
    if reserved.size:
        begin = int(starts[reserved[0]])
        key = bytes(view.column("property_keys")[begin : begin + int(key_sizes[reserved[0]])])
        raise ReservedPropertyError(shown(key.decode("utf-8", "replace")))


def _check_starts_are_characters(values: memoryview, starts: Offsets, name: str) -> None:
    """The whole column is UTF-8; so is each text unless an offset falls within a character."""
    bytes_at = np.frombuffer(values, np.uint8)
    inner = starts[starts < bytes_at.size]
    if inner.size and bool(((bytes_at[inner] & 0xC0) == 0x80).any()):
        raise MalformedColumnsError(name, "has an offset within a UTF-8 character")


# -- Cutting ---------------------------------------------------------------------------------------------


def select(view: ColumnsView, indices: Indices) -> bytes:
    """Return serialised Columns with only the messages at ``indices`` (growing, not empty), and a CRC of their own."""
    columns = dict(_gather(view, "payload_offsets", "payloads", indices))
    if view.column("key_offsets"):
        columns |= _gather(view, "key_offsets", "keys", indices)
        columns |= _gather_bits(view, "key_validity", indices)
    if types := view.column("types"):
        columns["types"] = memoryview(np.frombuffer(types, "<u4")[indices].tobytes())
    if view.column("property_list_offsets"):
        columns |= _gather_properties(view, indices)
    if times := view.column("event_times_ms"):
        columns["event_times_ms"] = memoryview(np.frombuffer(times, "<i8")[indices].tobytes())
        columns |= _gather_bits(view, "event_time_validity", indices)
    return ColumnsView(len(indices), view.uniform_type, 0, columns, _select_txn_ends(view, indices)).sealed()


def _select_txn_ends(view: ColumnsView, indices: Indices) -> memoryview:
    """Return where the transactions end; those without a message left stay, for the number of one makes its id."""
    if not view.txn_ends:
        return _EMPTY
    ends = np.searchsorted(indices, np.frombuffer(view.txn_ends, "<u4"))
    return memoryview(ends.astype("<u4").tobytes())


def sealed(columns: message_pb2.Columns) -> bytes:
    """Return ``columns`` serialised, with their CRC, which they have from then on."""
    columns.crc32c = ColumnsView.parse(columns.SerializeToString()).compute_crc32c()
    return columns.SerializeToString()


_Columns = dict[str, memoryview]


def _gather(view: ColumnsView, offsets_name: str, values_name: str, indices: Indices) -> _Columns:
    offsets, values = view.offsets(offsets_name), view.column(values_name)
    runs = [values[offsets[begin] : offsets[end]] for begin, end in _runs(indices)]
    # One run, as at the edge of a scan, is not copied here.
    gathered = runs[0] if len(runs) == 1 else memoryview(b"".join(runs))
    return {offsets_name: _offsets_of(np.diff(offsets)[indices]), values_name: gathered}


def _gather_properties(view: ColumnsView, indices: Indices) -> _Columns:
    lists = view.offsets("property_list_offsets")
    chosen = [np.arange(lists[begin], lists[end], dtype=np.int64) for begin, end in _runs(indices)]
    properties = np.concatenate(chosen) if chosen else np.empty(0, np.int64)
    return {
        "property_list_offsets": _offsets_of(np.diff(lists)[indices]),
        **_gather(view, "property_key_offsets", "property_keys", properties),
        **_gather(view, "property_value_offsets", "property_values", properties),
    }


def _gather_bits(view: ColumnsView, name: str, indices: Indices) -> _Columns:
    column = view.column(name)
    if not column:
        return {}
    bits = np.unpackbits(np.frombuffer(column, np.uint8), bitorder="little")[indices]
    return {name: memoryview(np.packbits(bits, bitorder="little").tobytes())}


def _offsets_of(sizes: npt.NDArray[np.int32]) -> memoryview:
    offsets = np.zeros(len(sizes) + 1, "<i4")
    np.cumsum(sizes, out=offsets[1:])
    return memoryview(offsets.tobytes())


def _runs(indices: Indices) -> Iterable[tuple[int, int]]:
    """Yield half-open runs of consecutive indices: one copy for each run, not for each message."""
    if not len(indices):
        return
    breaks = np.flatnonzero(np.diff(indices) != 1) + 1
    begins = np.concatenate(([0], breaks))
    ends = np.concatenate((breaks, [len(indices)])) - 1
    for begin, end in zip(begins, ends, strict=True):
        yield int(indices[begin]), int(indices[end]) + 1
