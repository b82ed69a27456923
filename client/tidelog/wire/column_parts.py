"""Batches that several transactions share: marking and splitting them. Bytes only, as in ``tidelog.wire.columns``."""

from array import array
from collections.abc import Iterator, Sequence

from tidelog.wire.columns import Buffer, Columns, bitmap, bits, little_endian, numbers, with_crc
from tidelog.wire.layout import crc32c_with_txn_ends


def with_txn_ends(columns: Columns, ends: Sequence[int]) -> Columns:
    """Divide the messages of ``columns`` among transactions that end at ``ends``; return ``columns``.

    The CRC of ``columns`` must be valid beforehand.
    """
    columns.txn_ends = little_endian(array("I", ends))
    columns.crc32c = crc32c_with_txn_ends(columns.crc32c, columns.txn_ends)
    return columns


def txn_parts(columns: Columns) -> Iterator[tuple[int, int, Columns]]:
    """Yield, for each transaction with messages: its number from 0, the index of its first message, its columns.

    Raises:
        ValueError: ``txn_ends`` contradicts the batch.
    """
    ends = numbers("I", columns.txn_ends)
    if list(ends) != sorted(ends) or ends[-1] != columns.count:
        raise ValueError("txn_ends does not divide the batch")
    begin = 0
    for number, end in enumerate(ends):
        if begin < end:
            yield number, begin, part(columns, begin, end)
        begin = end


def part(columns: Columns, begin: int, end: int) -> Columns:
    """Return the messages ``[begin, end)`` as a separate batch of one transaction, including the CRC."""
    count = end - begin
    payload_offsets, payloads = _divided(columns.payload_offsets, columns.payloads, begin, end)
    if columns.is_plain:
        return with_crc(Columns(count, payload_offsets, payloads, uniform_type=columns.uniform_type))
    key_offsets, keys = _divided(columns.key_offsets, columns.keys, begin, end)
    lists = b""
    key_texts: tuple[bytes, Buffer] = (b"", b"")
    value_texts: tuple[bytes, Buffer] = (b"", b"")
    if columns.property_list_offsets:
        bounds = numbers("i", columns.property_list_offsets)[begin : end + 1]
        lists = _from_zero(bounds)
        key_texts = _divided(columns.property_key_offsets, columns.property_keys, bounds[0], bounds[-1])
        value_texts = _divided(columns.property_value_offsets, columns.property_values, bounds[0], bounds[-1])
    return with_crc(
        Columns(
            count, payload_offsets, payloads,
            key_offsets, keys, _bitmap_part(columns.key_validity, begin, end),
            columns.uniform_type, columns.types[4 * begin : 4 * end],
            lists, *key_texts, *value_texts,
            columns.event_times_ms[8 * begin : 8 * end], _bitmap_part(columns.event_time_validity, begin, end),
        )
    )  # fmt: skip


def _divided(offsets: bytes, values: Buffer, begin: int, end: int) -> tuple[bytes, Buffer]:
    """Return the offsets and the values of the items ``[begin, end)``; both empty for an absent column."""
    if not offsets:
        return b"", b""
    bounds = numbers("i", offsets[4 * begin : 4 * (end + 1)])
    return _from_zero(bounds), values[bounds[0] : bounds[-1]]


def _from_zero(bounds: "array[int]") -> bytes:
    first = bounds[0]
    return little_endian(array("i", [bound - first for bound in bounds]) if first else bounds)


def _bitmap_part(column: bytes, begin: int, end: int) -> bytes:
    return bitmap(bits(column)[begin:end]) if column else b""
