"""Batches in columns: parsed on arrival, sliced and filtered for readers. Work per message is done in numpy only.

The layout is that of ``tidelog.v1.Columns``.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import Final

import numpy as np
import numpy.typing as npt

from tidelog.v1 import message_pb2
from tidelog.wire import layout, protowire
from tidelog_server.core.entries import MIXED_TYPES
from tidelog_server.core.errors import InvalidRequestError

Offsets = npt.NDArray[np.int32]
Indices = npt.NDArray[np.int64]

_MAX_KNOWN: Final = protowire.tag_of(17, protowire.MAX_WIRE_TYPE)
_UINT32: Final = 0xFFFF_FFFF
_EMPTY: Final = memoryview(b"")
_NAMES: Final = tuple(layout.COLUMN_NAMES.values())
_PAYLOAD_COLUMNS: Final = frozenset(("payload_offsets", "payloads"))


@dataclass(slots=True)
class ColumnsView:
    """A batch whose columns are views into the received bytes.

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
    def parse(cls, encoded: bytes, max_fields: int | None = None) -> "ColumnsView":
        """Return a view of serialised Columns, without validation.

        Args:
            encoded: The columns.
            max_fields: Maximum number of their fields; None for stored columns, which remain readable.

        Raises:
            InvalidRequestError: They have more than ``max_fields`` fields.
            protowire.WireFormatError: The bytes are not a protobuf message of this type.
        """
        view = cls()
        columns = view.columns
        fields = protowire.fields(encoded)
        # A field takes two bytes or more.
        is_counted = max_fields is not None and len(encoded) > 2 * max_fields
        for tag, value in islice(fields, max_fields) if is_counted else fields:
            if (name := layout.NAMES_BY_TAG.get(tag)) is not None:
                columns[name] = value
            elif tag == layout.COUNT:
                view.count = value & _UINT32
            elif tag == layout.CRC32C:
                view.crc32c = value
            elif tag == layout.UNIFORM_TYPE:
                view.uniform_type = value & _UINT32
            elif tag == layout.TXN_ENDS:
                view.txn_ends = value
            elif tag <= _MAX_KNOWN:
                raise protowire.WireFormatError(f"field {tag >> 3} has wire type {tag & 7}")
            # Fields of later versions are skipped: the CRC does not cover them, and readers of this version skip them.
        if is_counted and next(fields, None) is not None:
            raise InvalidRequestError(f"a batch has more than {max_fields} fields: set each column once")
        return view

    def column(self, name: str) -> memoryview:
        """Return a column; empty if it is absent."""
        return self.columns.get(name, _EMPTY)

    @property
    def is_plain(self) -> bool:
        """True if there are no columns other than the payloads."""
        return self.columns.keys() <= _PAYLOAD_COLUMNS

    def compute_crc32c(self) -> int:
        """Return the CRC-32C of the columns."""
        if self.is_plain:
            crc = layout.crc32c_of_payloads(
                self.count, self.uniform_type, self.column("payload_offsets"), self.column("payloads")
            )
        else:
            views = list(map(self.columns.get, _NAMES, repeat(_EMPTY)))
            crc = layout.crc32c_of(self.count, self.uniform_type, views)
        return layout.crc32c_with_txn_ends(crc, self.txn_ends) if self.txn_ends else crc

    def sealed(self) -> tuple[bytes, int]:
        """Return the batch serialised with its computed CRC, and the CRC. Each column is copied once."""
        crc32c = self.compute_crc32c()
        parts: list[bytes | memoryview] = [
            protowire.varint_field(layout.COUNT, self.count),
            protowire.varint_field(layout.UNIFORM_TYPE, self.uniform_type),
        ]
        for tag, name in layout.NAMES_BY_TAG.items():
            if column := self.column(name):
                parts += (protowire.varint(tag), protowire.varint(len(column)), column)
        parts.append(protowire.fixed32_field(layout.CRC32C, crc32c))
        if self.txn_ends:
            parts += (protowire.varint(layout.TXN_ENDS), protowire.varint(len(self.txn_ends)), self.txn_ends)
        return b"".join(parts), crc32c

    @property
    def message_type(self) -> int:
        """The type of all messages, or MIXED_TYPES."""
        return MIXED_TYPES if self.column("types") else self.uniform_type

    @property
    def txns(self) -> int:
        """Number of transactions in the batch; 1 if it is not divided."""
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


# -- Slicing ---------------------------------------------------------------------------------------------


def select(view: ColumnsView, indices: Indices) -> bytes:
    """Return serialised Columns with only the messages at ``indices`` (ascending, not empty), and a new CRC."""
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
    return ColumnsView(len(indices), view.uniform_type, 0, columns, _select_txn_ends(view, indices)).sealed()[0]


def _select_txn_ends(view: ColumnsView, indices: Indices) -> memoryview:
    """Return the ends of the transactions. Empty transactions are kept, because a transaction's number makes its id."""
    if not view.txn_ends:
        return _EMPTY
    ends = np.searchsorted(indices, np.frombuffer(view.txn_ends, "<u4"))
    return memoryview(ends.astype("<u4").tobytes())


def sealed(columns: message_pb2.Columns) -> bytes:
    """Set the CRC of ``columns``, and return them serialised."""
    crc = layout.crc32c_of(columns.count, columns.uniform_type, [getattr(columns, name) for name in _NAMES])
    columns.crc32c = layout.crc32c_with_txn_ends(crc, columns.txn_ends) if columns.txn_ends else crc
    return columns.SerializeToString()


_Columns = dict[str, memoryview]


def _gather(view: ColumnsView, offsets_name: str, values_name: str, indices: Indices) -> _Columns:
    offsets, values = view.offsets(offsets_name), view.column(values_name)
    runs = [values[offsets[begin] : offsets[end]] for begin, end in _runs(indices)]
    # A single run, as at the edge of a scan, is not copied.
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
    """Yield half-open runs of consecutive indices, to copy per run and not per message."""
    if not len(indices):
        return
    breaks = np.flatnonzero(np.diff(indices) != 1) + 1
    begins = np.concatenate(([0], breaks))
    ends = np.concatenate((breaks, [len(indices)])) - 1
    for begin, end in zip(begins, ends, strict=True):
        yield int(indices[begin]), int(indices[end]) + 1
